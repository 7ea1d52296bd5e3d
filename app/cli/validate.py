"""tritonworthy validate: measures the candidates of a region, and a kernel of the user's own, on this host's GPU.

Exit status: 0 measured; 1 the input is wrong; 2 nothing could be measured. With --kernel by the verdict: 0 keep it;
3 delete it; 4 wrong; 5 it cheats; 6 it crashed; 7 it hung; 2 it is right, but could not be timed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from app.cli.advise import advise_region
from app.cli.archive import hint
from app.cli.inputs import InputError, read_text, read_trace
from app.cli.options import budget_s, given_path, shapes, workload_options
from app.cli.streams import print_answer
from app.cli.text import kernel_verdict_text, show_progress, validation_text
from app.objects.kernel_verdict import ValidationWithKernel, Verdict
from app.thresholds import thresholds_in_force

if TYPE_CHECKING:
    from app.objects.record import NamedValidation
    from app.objects.region import RegionBody
    from app.objects.task import ValidateTask

OK, NOT_MEASURED = 0, 2
KERNEL_STATUS: Mapping[Verdict, int] = {
    "keep": 0, "unmeasured": NOT_MEASURED, "delete": 3, "wrong": 4, "cheats": 5, "crashed": 6, "hung": 7,
}  # fmt: skip
"""Exit status by the verdict on the user's kernel."""


def add_validate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Hook `validate` into the command line."""
    validate = commands.add_parser("validate", help="measure the candidates of a region on this host's GPU")
    validate.add_argument("file", metavar="REGION", nargs="?", help="a region's text, or - for stdin")
    validate.add_argument("--trace", type=given_path, metavar="FILE", help="take the region from this trace")
    validate.add_argument("--region", metavar="NAME", help="the region's name or number (from 1) in the trace")
    validate.add_argument("--candidates", metavar="A,B", help="only these candidates")
    validate.add_argument("--shapes", type=shapes, metavar="JSON", help='sizes in use: [{"N": 37, "calls": 3}]')
    validate.add_argument(
        "--record", type=given_path, metavar="DIR", help="write the result as a record of the archive"
    )
    validate.add_argument("--budget", type=budget_s, metavar="SECONDS", help="time that measuring may take")
    validate.add_argument(
        "--kernel", metavar="FILE.py:FUNCTION",
        help="measure this function too and say whether to keep it: docs/own-kernel.md. It takes the region's inputs"
        " as tensors, in the order of the region's text, and returns its output, or a tuple of its outputs in the order"
        " of the return line; where an input requires gradients, autograd must get through it. The file is run, with"
        " your rights, in a process of its own. Exit status: 0 keep it, 3 delete it, 4 wrong, 5 it cheats, 6 it"
        " crashed, 7 it hung, 2 could not be timed",
    )  # fmt: skip
    validate.add_argument(
        "--kernel-limit",
        type=budget_s,
        metavar="SECONDS",
        help="until --kernel counts as hung; 120, and 0.4 of --budget at most",
    )
    workload_options(validate)
    validate.set_defaults(run=_validate)


def _validate(arguments: argparse.Namespace) -> int:
    from app.analysis.user_kernel import UserKernelError, named_kernel, verdict_of
    from app.analysis.validate import validate_region
    from profiler.region.model import RegionError

    try:
        kernel = named_kernel(arguments.kernel, Path()) if arguments.kernel is not None else None
    except UserKernelError as error:
        raise InputError(f"--kernel {error}") from None
    region = _region_to_validate(arguments)
    request: ValidateTask = {
        "region": region["text"] or "",
        "shapes": region.get("shapes"),
        "candidates": arguments.candidates.split(",") if arguments.candidates else None,
        "device": "cpu" if arguments.device == "cpu" else None,
        "budget_s": arguments.budget,
        "share_of_step": region.get("share_of_step"),
        "advice_before": region["advice"],
        "thresholds": asdict(thresholds_in_force()),
    }
    try:
        measured = validate_region(
            request, on_progress=show_progress, kernel=kernel.kernel if kernel else None,
            kernel_limit_s=arguments.kernel_limit,
        )  # fmt: skip
    except RegionError as error:
        raise InputError(str(error)) from None
    validation: NamedValidation = {"name": region["name"], **measured}
    verdict = verdict_of(measured, thresholds_in_force())
    if arguments.record is not None:
        from app.archive import record_store

        try:
            print(f"recorded: {record_store.record(validation, region['name'], arguments.record)}", file=sys.stderr)
        except ValueError as error:
            print(f"not recorded: {error}", file=sys.stderr)
    if verdict is not None:
        whole: ValidationWithKernel = {**validation, "kernel_verdict": verdict}
        print_answer(whole, kernel_verdict_text, as_json=arguments.json)
        return KERNEL_STATUS[verdict["verdict"]]
    print_answer(validation, validation_text, as_json=arguments.json)
    if validation["outcome"] != "unmeasured":
        return OK
    if nearest := hint(validation["region"]):
        print(nearest, file=sys.stderr)
    return NOT_MEASURED


def _region_to_validate(arguments: argparse.Namespace) -> RegionBody:
    """The region named on the command line, with its advice."""
    if (arguments.file is None) == (arguments.trace is None):
        raise InputError("give either a region's text, or --trace FILE --region NAME")
    if arguments.trace is None:
        return advise_region(arguments, read_text(arguments.file))
    regions = read_trace(arguments.trace)["regions"]
    wanted = arguments.region or ""
    by_name = [r for r in regions if r["name"] == wanted] or [
        r for r in regions if wanted and wanted.lower() in r["name"].lower()
    ]
    with suppress(ValueError, IndexError):
        by_name = by_name or ([regions[int(wanted) - 1]] if int(wanted) > 0 else [])
    if not by_name:
        names = "\n".join(f"  {number}. {r['name']}" for number, r in enumerate(regions, 1))
        raise InputError(f"which region? --region takes a name or number of:\n{names}")
    return by_name[0]
