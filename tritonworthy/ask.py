"""Questions: about a trace, about a region's text, and what this host measures of it.

A trace is read and a region measured by the command line in a process of its own, so that neither the caller's CUDA
context and threads nor what it set of torch (default device, default type) touch the answer. A text is answered here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast, overload

from app.cli.inputs import InputError, check_device, is_trace, read_text
from app.exit_status import INCOMPLETE
from app.objects.kernel_verdict import ValidationWithKernel
from app.objects.record import NamedValidation
from app.objects.trace import TraceBody
from app.program.named import is_program, prefix_missing, words_of
from app.thresholds import thresholds_in_force
from profiler.program.request import Request
from tritonworthy.command import run_command
from tritonworthy.region import Region
from tritonworthy.reports import RegionReport, TraceReport, ValidationReport

PathLike = str | os.PathLike[str]
Objective = Literal["time", "memory"]
DType = Literal["bf16", "f16", "f32"]


def read_trace(
    path: PathLike,
    *,
    companion: PathLike | None = None,
    execution_trace: PathLike | None = None,
    device: str | None = None,
    oracle: bool = False,
) -> TraceReport:
    """A trace of torch.profiler with its regions, advice on each and what to do about the step.

    companion, execution_trace: files that tell more of it, as `tritonworthy advise` takes them. device: predict for
    this one instead of the trace's. oracle: ask Inductor about the heaviest regions, a second or so each. Nothing
    of the file is run. Raises InputError where the file is no trace, or has no kernel of a GPU.
    """
    options = ["--oracle", "auto" if oracle else "off"]
    options += ["--device", device] if device is not None else []
    options += ["--companion", os.fspath(companion)] if companion is not None else []
    options += ["--execution-trace", os.fspath(execution_trace)] if execution_trace is not None else []
    if not is_trace(Path(path)):
        raise InputError(f"{os.fspath(path)}: no trace, by its name and its first byte")
    printed = run_command("advise", os.fspath(path), "--json", "--no-program", *options)
    return TraceReport(cast("TraceBody", json.loads(printed)))


@overload
def advise(
    asked: Region | RegionReport,
    device: str | None = None,
    *,
    objective: Objective = "time",
    oracle: bool = False,
) -> RegionReport: ...


@overload
def advise(
    asked: PathLike,
    device: str | None = None,
    *,
    objective: Objective = "time",
    oracle: bool = False,
    training: bool = False,
    dtype: DType | None = None,
    batch: int | None = None,
    sequence: int | None = None,
    sizes: Mapping[str, int] | None = None,
) -> RegionReport | TraceReport: ...


def advise(
    asked: PathLike | Region | RegionReport,
    device: str | None = None,
    *,
    objective: Objective = "time",
    oracle: bool = False,
    training: bool = False,
    dtype: DType | None = None,
    batch: int | None = None,
    sequence: int | None = None,
    sizes: Mapping[str, int] | None = None,
) -> RegionReport | TraceReport:
    """Advice on a region, a region's text (more than one line), a file: a trace, or a region's text, or a program:
    "model.py:make_model", "hf:config.json", "def:definition.json". A program is run with your rights.

    device: such as "H200"; by default this host's GPU, for a trace the recorded one. objective: of a region. oracle:
    ask Inductor what torch.compile would make of it, which takes seconds. Of a program (docs/module.md): training:
    forward and backward; dtype: of weights and floating inputs; batch, sequence: of "hf:"; sizes: of the axes
    of "def:". Raises InputError.
    """
    default = Request("")
    how = Request(
        "", training, dtype, default.batch if batch is None else batch,
        default.sequence if sequence is None else sequence, dict(sizes or {}),
    )  # fmt: skip
    program = None if isinstance(asked, Region | RegionReport) else os.fspath(asked)
    if program is not None and "\n" not in program and is_program(program):
        return _advise_program(replace(how, source=program), device, oracle)
    if how != replace(default, sizes={}):
        raise InputError("training, dtype, batch, sequence and sizes go with a program")
    if isinstance(asked, RegionReport):
        asked = asked.region
    if not isinstance(asked, Region):
        text = os.fspath(asked)
        if "\n" not in text:
            if told := prefix_missing(text):
                raise InputError(told)
            if is_trace(Path(text)):
                return read_trace(text, device=device, oracle=oracle)
            text = read_text(text)
        asked = Region(text)
    return _advise_region(asked, check_device(device), objective, oracle)


def _advise_program(request: Request, device: str | None, oracle: bool) -> TraceReport:
    source, *options = words_of(request, device)
    printed = run_command(
        "advise", source, *options, "--json", "--oracle", "auto" if oracle else "off", answered=(0, INCOMPLETE)
    )
    return TraceReport(cast("TraceBody", json.loads(printed)))


def _advise_region(region: Region, device: str | None, objective: Objective, oracle: bool) -> RegionReport:
    from contextlib import nullcontext

    from app.analysis import service
    from app.analysis.own_oracle import start_oracle
    from app.trace_report.by_record import region_by_archive
    from profiler.region.model import RegionError

    try:
        with start_oracle() if oracle else nullcontext() as asked:
            body = service.advise_region(
                region.text,
                name=region.name,
                shapes=region.shapes or None,
                calls_per_step=region.calls_per_step,
                share_of_step=region.share_of_step,
                step_time_us=region.step_time_us,
                device=device,
                objective=objective,
                oracle=asked,
                thresholds=thresholds_in_force(),
            )
    except RegionError as error:
        raise InputError(str(error)) from None
    return RegionReport(region_by_archive(body))


MEASURED = frozenset({0, 2, 3, 4, 5, 6, 7})
"""Statuses of `tritonworthy validate` with which it prints a validation: not measured, and what it says of a kernel."""


def validate(
    region: PathLike | Region | RegionReport,
    *,
    kernel: str | None = None,
    candidates: Sequence[str] | None = None,
    device: Literal["cpu"] | None = None,
    budget_s: float | None = None,
) -> ValidationReport:
    """Measures a region's candidates on this host's GPU: a region, a text of more than one line, or a text's file.

    kernel: "FILE.py:FUNCTION", measured too, with a verdict (docs/own-kernel.md): it runs with your rights. device:
    "cpu" checks without timing. budget_s: that measuring may take. Raises InputError.
    """
    asked = _as_region(region)
    options: Mapping[str, str | None] = {
        "--kernel": kernel,
        "--candidates": ",".join(candidates) if candidates is not None else None,
        "--device": device,
        "--budget": None if budget_s is None else f"{budget_s:g}",
        "--shapes": json.dumps([dict(s) for s in asked.shapes]) if asked.shapes else None,
        "--share": None if asked.share_of_step is None else repr(asked.share_of_step),
        "--step-time-us": None if asked.step_time_us is None else repr(asked.step_time_us),
    }
    given = [part for name, value in options.items() if value is not None for part in (name, value)]
    printed = run_command("validate", "-", "--json", *given, text=asked.text, answered=MEASURED)
    body = cast("NamedValidation | ValidationWithKernel", {**json.loads(printed), "name": asked.name})
    return ValidationReport(body)


def _as_region(asked: PathLike | Region | RegionReport) -> Region:
    if isinstance(asked, RegionReport):
        return asked.region
    if isinstance(asked, Region):
        return asked
    text = os.fspath(asked)
    return Region(text) if "\n" in text else Region(read_text(text))
