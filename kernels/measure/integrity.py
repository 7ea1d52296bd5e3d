"""What a candidate may not replace in the process that measures it, and the threads that it may not leave running.

The clocks that are used were taken before any candidate was loaded (`timing`); this finds one that tried, and one
that replaced a function of this package. It cannot hold against code that rewrites memory: see docs/validation.md.
"""

from __future__ import annotations

import sys
import threading
import time
import types
from collections.abc import Mapping
from typing import Any

import torch

OUTSIDE: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    ("time", time, ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "sleep")),
    ("torch", torch, ("allclose", "equal", "isclose", "randn", "rand", "randint", "where")),
    ("torch.testing", torch.testing, ("assert_close",)),
    ("torch.cuda", torch.cuda, ("Event", "Stream", "synchronize", "current_stream", "_sleep")),
    ("torch.cuda.Event", torch.cuda.Event, ("record", "elapsed_time", "synchronize", "query", "wait")),
)
"""(name, where, attributes) of what a measurement could be fooled through."""
OWN = "kernels.measure."


class TamperedError(Exception):
    """The candidate replaced something that measures it."""


def snapshot() -> dict[str, Any]:
    """Name -> what it stands for now; functions and methods of this package with their code."""
    found = {f"{name}.{key}": getattr(owner, key, None) for name, owner, keys in OUTSIDE for key in keys}
    for name, module in list(sys.modules.items()):
        if name.startswith(OWN) and module is not None:
            found |= {f"{name}.{key}": value for key, value in _functions(module, name).items()}
    return found


def _functions(module: types.ModuleType, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in vars(module).items():
        if isinstance(value, types.FunctionType):
            found[key] = (value, value.__code__)
        elif isinstance(value, types.BuiltinFunctionType):
            found[key] = value
        elif isinstance(value, type) and value.__module__ == name:
            found[key] = value
            found |= {
                f"{key}.{part}": (method, method.__code__)
                for part, method in vars(value).items()
                if isinstance(method, types.FunctionType)
            }
    return found


def replaced(before: Mapping[str, Any]) -> list[str]:
    """Names of `before` that stand for something else now. What was added since is no matter."""
    now = snapshot()
    return [name for name, value in before.items() if not _same(value, now.get(name))]


def _same(before: Any, now: Any) -> bool:
    if isinstance(before, tuple):
        return isinstance(now, tuple) and all(a is b for a, b in zip(before, now, strict=True))
    return before is now


def check(before: Mapping[str, Any]) -> None:
    """Raises TamperedError where something was replaced."""
    if names := replaced(before):
        raise TamperedError(f"it replaced {', '.join(names[:4])} in the process that measures it")


def threads() -> frozenset[int]:
    """Python's threads of this process; not those of torch's own engine that once ran Python code."""
    dummy = threading._DummyThread
    return frozenset(t.ident or 0 for t in threading.enumerate() if not isinstance(t, dummy))


def left_running(before: frozenset[int]) -> list[str]:
    """Names of the threads that were started since and still run."""
    new = threads() - before
    return [t.name for t in threading.enumerate() if t.ident in new]
