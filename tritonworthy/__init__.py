"""Tritonworthy from Python: record a step, read its trace, ask about a region, measure it.

    import tritonworthy

    with tritonworthy.capture("step.json.gz") as capture:
        for batch in loader:
            train(batch)
            capture.step()
    print(capture.report)

`read_trace`, `advise`, `validate`, `capture` and `Region` are the whole of it (docs/python.md). Importing this package
imports nothing else: torch comes with the first call that needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.cli.inputs import InputError
    from tritonworthy.ask import advise, read_trace, validate
    from tritonworthy.recorder import Capture, CaptureError, capture
    from tritonworthy.recording import Recording
    from tritonworthy.region import Region
    from tritonworthy.reports import RegionReport, TraceReport, ValidationReport

__all__ = [
    "Capture",
    "CaptureError",
    "InputError",
    "Recording",
    "Region",
    "RegionReport",
    "TraceReport",
    "ValidationReport",
    "advise",
    "capture",
    "read_trace",
    "validate",
]

_MODULES = {
    "Capture": "tritonworthy.recorder",
    "CaptureError": "tritonworthy.recorder",
    "InputError": "app.cli.inputs",
    "Recording": "tritonworthy.recording",
    "Region": "tritonworthy.region",
    "RegionReport": "tritonworthy.reports",
    "TraceReport": "tritonworthy.reports",
    "ValidationReport": "tritonworthy.reports",
    "advise": "tritonworthy.ask",
    "capture": "tritonworthy.recorder",
    "read_trace": "tritonworthy.ask",
    "validate": "tritonworthy.ask",
}
"""Name -> the module that has it, which is imported when the name is first used."""


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
