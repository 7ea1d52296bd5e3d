"""tritonworthy advise: advice on every part of a trace, of a program that is predicted, or on a region's text, on one
device or on all of the table.

Exit status: 0 done; 1 the input is wrong; 3 a program came to an error, and what it ran until then was advised on.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from app.agents.brief.ranks import ranks_brief
from app.agents.brief.region import region_brief
from app.agents.brief.trace import trace_brief
from app.analysis.own_oracle import start_oracle
from app.cli.inputs import (
    InputError,
    check_device,
    is_trace,
    read_ranks,
    read_text,
    read_whole_trace,
    unpacked,
)
from app.cli.options import given_path, workload_options
from app.cli.program import (
    check_program_options,
    predicted_trace,
    program_options,
    refuse_program_options,
    request_of,
)
from app.cli.streams import print_answer, print_brief
from app.cli.text import ranks_text, region_text, show_oracle_progress, trace_text
from app.exit_status import INCOMPLETE
from app.objects.common import Range
from app.program.named import is_program, prefix_missing, words_of
from app.thresholds import Thresholds, thresholds_in_force

if TYPE_CHECKING:
    from app.objects.advice import RegionDevices
    from app.objects.region import AdviceAnswer, RegionBody
    from app.objects.trace import TraceBody
    from app.trace_report.report import Whole

OK = 0

ALL = "all"
"""The name that stands for every device of the table."""


def add_advise(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Hook `advise` into the command line."""
    advise = commands.add_parser("advise", help="advice on every part of a trace, or on a region's text")
    advise.add_argument(
        "file",
        metavar="FILE",
        nargs="+",
        help="a trace (.json of torch.profiler or rocprofv3, .sqlite of nsys; also .gz, .zst), the traces of several"
        " ranks (also as one .tar, .tar.gz or .zip), a region's text, or - for stdin; or a program: model.py:FUNCTION,"
        " which returns (module, inputs), hf:CONFIG.json, or def:DEFINITION.json. A program, and a definition's"
        " reference, run with your rights",
    )
    advise.add_argument(
        "--companion",
        "--beside",  # its old name
        dest="companion",
        type=given_path,
        metavar="TRACE",
        help="a trace of the same model without CUDA graphs, or of their capture: lends its operations and shapes",
    )
    advise.add_argument(
        "--execution-trace",
        type=given_path,
        metavar="ET",
        help="what ExecutionTraceObserver wrote in the same run (.json, .json.gz): which operand is which value",
    )
    workload_options(advise)
    program_options(advise)
    advise.add_argument(
        "--oracle",
        choices=("auto", "off"),
        help="ask Inductor what torch.compile would make of it: the rule then goes by its kernels. By default a trace's"
        " heaviest regions are asked about, which takes a second or so each; a region's text is not, for starting"
        " Inductor takes seconds (a server keeps it running)",
    )
    advise.add_argument(
        "--brief",
        action="store_true",
        help="print JSON for a coding agent, at most 1,500 tokens: what to do, where, what not to write, how to prove"
        " it (docs/agents.md)",
    )
    advise.set_defaults(run=_advise)


def _advise(arguments: argparse.Namespace) -> int:
    if arguments.brief and (arguments.json or arguments.device == ALL):
        raise InputError("--brief goes without --json, and with one device")
    file = arguments.file[0]
    if len(arguments.file) == 1 and not arguments.no_program:
        if is_program(file):
            return _advise_program(arguments)
        if told := prefix_missing(file):
            raise InputError(told)
    refuse_program_options(arguments)
    with unpacked([Path(file) for file in arguments.file]) as files:
        return advise_files(arguments, files)


def _advise_program(arguments: argparse.Namespace) -> int:
    """As of a trace, for the device that it is predicted for."""
    check_program_options(arguments, arguments.file[0])
    check_device(arguments.device)
    with predicted_trace(arguments, arguments.file[0]) as path:
        whole = read_whole_trace(path)
        with _finish_by_oracle(arguments) as finish:
            trace = finish(whole)
    if arguments.brief:
        words = words_of(request_of(arguments, arguments.file[0]), arguments.device)
        print_brief(trace_brief(trace, str(arguments.save or ""), program=words))
    else:
        print_answer(trace, trace_text, as_json=arguments.json)
    origin = trace["origin"]
    return INCOMPLETE if origin and any(gap["ends"] for gap in origin["gaps"]) else OK


def advise_files(arguments: argparse.Namespace, files: Sequence[Path]) -> int:
    """Print the advice on files, by the options of the command line. Raises InputError."""
    if len(files) > 1:
        if arguments.execution_trace is not None:
            raise InputError("--execution-trace goes with one trace")
        with _finish_by_oracle(arguments) as finish:
            ranks = read_ranks(files, arguments.companion, finish)
        if arguments.brief:
            print_brief(ranks_brief(ranks, arguments.file))
            return OK
        print_answer(ranks, ranks_text, as_json=arguments.json)
        return OK
    if arguments.file[0] != "-" and is_trace(files[0]):
        device = check_device(arguments.device)
        whole = read_whole_trace(files[0], arguments.companion, arguments.execution_trace, device)
        with _finish_by_oracle(arguments) as finish:
            trace = finish(whole)
        if arguments.brief:
            print_brief(trace_brief(trace, arguments.file[0]))
            return OK
        print_answer(trace, trace_text, as_json=arguments.json)
        return OK
    if arguments.companion is not None or arguments.execution_trace is not None:
        raise InputError("--companion and --execution-trace go with a trace")
    if arguments.device == ALL:
        print_answer(_on_devices(arguments, read_text(arguments.file[0])), devices_text, as_json=arguments.json)
        return OK
    from app.trace_report.by_record import region_by_archive

    region = region_by_archive(advise_region(arguments, read_text(arguments.file[0])))
    if arguments.brief:
        print_brief(region_brief(region, arguments.file[0]))
        return OK
    print_answer(_flatten(region), region_text, as_json=arguments.json)
    return OK


@contextmanager
def _finish_by_oracle(arguments: argparse.Namespace) -> Iterator[Callable[[Whole], TraceBody]]:
    """Makes a report's trace: with Inductor's answers unless they are not wanted, waiting for them, and by what the
    archive has of its regions."""
    from app.trace_report.by_record import by_archive

    if arguments.oracle == "off":
        yield lambda whole: by_archive(whole.trace)
        return
    from app.trace_report.ask_oracle import ask_oracle

    with start_oracle() as oracle:
        yield lambda whole: by_archive(
            ask_oracle(
                whole.trace, whole.inputs, oracle, thresholds=thresholds_in_force(), on_progress=show_oracle_progress
            )
        )


def _flatten(region: RegionBody) -> AdviceAnswer:
    """The advice, and what the region has as well: what POST /api/v1/advice answers."""
    advice = region["advice"]
    assert advice is not None
    rest = {key: value for key, value in region.items() if key != "advice"}
    answer: AdviceAnswer = {**rest, **advice}  # type: ignore[typeddict-item]
    return answer


def advise_region(arguments: argparse.Namespace, text: str) -> RegionBody:
    """A region's text with its advice, by the options of the command line. Raises InputError."""
    from app.analysis import service
    from profiler.region.model import RegionError

    device = check_device(arguments.device if arguments.device != "cpu" else None)
    with_oracle = getattr(arguments, "oracle", None) == "auto"
    try:
        with start_oracle() if with_oracle else nullcontext() as oracle:
            region = service.advise_region(
                text,
                share_of_step=arguments.share,
                step_time_us=arguments.step_time_us,
                shapes=getattr(arguments, "shapes", None),
                device=device,
                objective=arguments.objective,
                oracle=oracle,
                thresholds=thresholds_in_force(),
            )
    except RegionError as error:
        raise InputError(str(error)) from None
    return region


def _on_devices(arguments: argparse.Namespace, text: str) -> RegionDevices:
    from profiler.region.model import RegionError

    try:
        return advise_on_devices(
            text,
            share_of_step=arguments.share,
            step_time_us=arguments.step_time_us,
            objective=arguments.objective,
            thresholds=thresholds_in_force(),
        )
    except RegionError as error:
        raise InputError(str(error)) from None


def advise_on_devices(
    text: str, *, share_of_step: float | None, step_time_us: float | None, objective: str, thresholds: Thresholds
) -> RegionDevices:
    """The API's `items` of a region's text: what `GET /api/v1/regions/{id}/devices` answers. Raises RegionError."""
    from app.analysis import service

    prepared = service.prepare_region(
        text,
        share_of_step=share_of_step,
        step_time_us=step_time_us,
        objective=objective,
        thresholds=thresholds,
    )
    return {"items": service.on_devices(prepared)}


def devices_text(advised: RegionDevices) -> str:
    """One line a device."""
    lines = []
    for row in advised["items"]:
        tool = f"{row['tool']} {row['mode']}" if row["mode"] != "default" else row["tool"]
        region, step = _span(row["region_speedup"]), _span(row["step_speedup"])
        lines.append(f"{row['device']:<24} {tool}: region {region}, step {step}{'' if row['fitted'] else ' *'}")
    scaled = next((r["because"] for r in advised["items"] if not r["fitted"]), None)
    return "\n".join([*lines, *([f"* such as the first: {scaled}"] if scaled else [])])


def _span(values: Range | None) -> str:
    if values is None:
        return "not predicted"
    return f"{values['mid']:.2f} times as fast ({values['low']:.2f} to {values['high']:.2f})"
