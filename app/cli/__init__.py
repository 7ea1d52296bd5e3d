"""tritonworthy serve | advise | oracle | validate | check | watch | archive | ...: the web, from a shell.

All but `serve` and `report` import neither FastAPI nor a database: they run where only torch, triton and numpy are.
Exit status: 0 done; 1 the input is wrong; 2 it could not be measured, predicted or written, the settings or the usage
are wrong, or there is a fault in the command itself; 130 interrupted; 141 nobody reads the output any more. `check` and
`watch` have statuses of their own for what they assert, and share the others.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from app import __version__
from app.check.safe import visible
from app.cli.accuracy import add_accuracy
from app.cli.archive import add_archive, hint
from app.cli.check import add_check
from app.cli.devices import ALL, advise_on_devices, devices_text
from app.cli.fleet import add_fleet
from app.cli.init import under_init
from app.cli.kit import add_kit
from app.cli.landscape import add_landscape
from app.cli.options import budget_s, count, given_path, shapes, workload_options
from app.cli.oracle import LISTINGS
from app.cli.report import add_report
from app.cli.streams import NoReaderError, OutputError, json_text, standard_streams
from app.cli.text import ranks_text, region_text, show_progress, trace_text, validation_text
from app.cli.watch import add_watch
from app.thresholds import ThresholdError, thresholds_in_force
from profiler.oracle.model import MODES

if TYPE_CHECKING:
    from app.cli.oracle import OraclePredictions
    from app.objects.advice import RegionDevices
    from app.objects.record import NamedValidation
    from app.objects.region import AdviceAnswer, RegionBody
    from app.objects.task import ValidateTask
    from app.objects.trace import TraceBody
    from app.trace_report.ranks import RankReports
    from profiler.oracle.process import Oracle

Body = TypeVar("Body")

OK, BAD_INPUT, NOT_MEASURED = 0, 1, 2
FAILED = 2
"""Not written, or a fault of the command: never 1, which says something of the input, or of what `check` asserts."""
INTERRUPTED, NO_READER = 130, 141
"""128 and the number of the signal, as a shell has it: SIGINT, SIGPIPE."""

DEBUG_VARIABLE = "TRITONWORTHY_DEBUG"
"""Set, a fault of the command shows its whole traceback."""

TRACE_SUFFIXES = (".json", ".gz")


class InputError(Exception):
    """The input is wrong; the message is for the user."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    with standard_streams():
        try:
            try:
                return _run(argv)
            finally:
                sys.stdout.flush()
        except NoReaderError:  # `tritonworthy advise FILE | head`
            return NO_READER
        except OutputError as error:
            return _fail(str(error))
        except KeyboardInterrupt:
            return INTERRUPTED


def _run(argv: Sequence[str] | None) -> int:
    """Run one command; what it raises of the input and of the system, and its own faults, as one line."""
    parser = _parser()
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        getattr(arguments, "complain", parser.error)(f"unrecognized arguments: {' '.join(unknown)}")
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except (InputError, ThresholdError) as error:
        print(error, file=sys.stderr)
        return BAD_INPUT if isinstance(error, InputError) else NOT_MEASURED
    except (OutputError, NoReaderError):
        raise
    except ImportError as error:
        return _fail(f"cannot import what this command needs: {error}")
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        description = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        hint = "" if os.environ.get(DEBUG_VARIABLE) else f"; {DEBUG_VARIABLE}=1 shows where"
        return _fail(f"internal error: {visible(description)} ({place}){hint}")


def _fail(message: str) -> int:
    """One line on stderr, after the traceback of what is being handled where that is wanted."""
    if os.environ.get(DEBUG_VARIABLE) and sys.exc_info()[0] is not None:
        traceback.print_exc()
    print(f"tritonworthy: {' '.join(message.split())}", file=sys.stderr)
    return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tritonworthy", description="Should I write a Triton kernel for this?")
    parser.add_argument("--version", action="version", version=f"tritonworthy {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="serve the web app; settings by TRITONWORTHY_* (docs/settings.md)")
    serve.add_argument("--host", help="address to listen on")
    serve.add_argument("--port", type=count(0, 65535), help="port to listen on; 0 picks a free one")
    serve.add_argument("--data-dir", type=given_path, help="folder of the database and uploads")
    serve.set_defaults(run=_serve)

    advise = commands.add_parser("advise", help="advice on every part of a trace, or on a region's text")
    advise.add_argument(
        "file",
        metavar="FILE",
        nargs="+",
        help="a trace (.json, .json.gz), the traces of several ranks, a region's text, or - for stdin",
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
    advise.add_argument(
        "--oracle",
        choices=("auto", "off"),
        default="off",
        help="ask Inductor what torch.compile would make of a region's text: the rule then goes by its kernels. Off"
        " unless asked for: starting it takes seconds (a server keeps it running)",
    )
    advise.set_defaults(run=_advise)

    oracle = commands.add_parser("oracle", help="what torch.compile would make of a region, without a GPU")
    oracle.add_argument("file", metavar="REGION", help="a region's text, or - for stdin")
    oracle.add_argument("--device", help="GPU to predict for, such as H200")
    oracle.add_argument("--mode", choices=MODES, help="only this mode")
    oracle.add_argument("--shapes", type=shapes, metavar="JSON", help='sizes in use: [{"N": 37, "calls": 3}]')
    oracle.add_argument("--kernel", metavar="NAME", help="what the compiler decides about this kernel")
    oracle.add_argument("--show", choices=LISTINGS, help="print this text of --kernel")
    oracle.add_argument("--json", action="store_true", help="print the API's object")
    oracle.set_defaults(run=_oracle)

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
    workload_options(validate)
    validate.set_defaults(run=_validate)
    for add in (add_check, add_watch, add_archive, add_kit, add_landscape, add_accuracy, add_fleet):
        add(commands)
    add_report(commands, _advise_one)
    return parser


# --------------------------------------------------------------------------------------------------------------- serve


def _serve(arguments: argparse.Namespace) -> int:
    def run() -> int:
        from app.cli.serve import Options, serve

        options: Options = {}
        if arguments.host is not None:
            options["host"] = arguments.host
        if arguments.port is not None:
            options["port"] = arguments.port
        if arguments.data_dir is not None:
            options["data_dir"] = arguments.data_dir
        return serve(options)

    return under_init(run)


# -------------------------------------------------------------------------------------------------------------- advise


def _advise(arguments: argparse.Namespace) -> int:
    files = [Path(file) for file in arguments.file]
    if len(files) > 1:
        if arguments.execution_trace is not None:
            raise InputError("--execution-trace goes with one trace")
        _print(arguments, _read_ranks(files, arguments.companion), ranks_text)
        return OK
    if arguments.file[0] != "-" and _is_trace(files[0]):
        device = _check_device(arguments.device)
        trace = _read_trace(files[0], arguments.companion, arguments.execution_trace, device)
        _print(arguments, trace, trace_text)
        return OK
    if arguments.companion is not None or arguments.execution_trace is not None:
        raise InputError("--companion and --execution-trace go with a trace")
    if arguments.device == ALL:
        _print(arguments, _on_devices(arguments, _read_text(arguments.file[0])), devices_text)
        return OK
    _print(arguments, _flatten(_region_advice(arguments, _read_text(arguments.file[0]))), region_text)
    return OK


def _flatten(region: RegionBody) -> AdviceAnswer:
    """The advice, and what the region has as well: what POST /api/v1/advice answers."""
    advice = region["advice"]
    assert advice is not None
    rest = {key: value for key, value in region.items() if key != "advice"}
    answer: AdviceAnswer = {**rest, **advice}  # type: ignore[typeddict-item]
    return answer


def _advise_one(arguments: argparse.Namespace) -> tuple[TraceBody, None] | tuple[None, RegionBody]:
    """What `report` writes down: a trace with its regions, else one region."""
    if arguments.file != "-" and _is_trace(Path(arguments.file)):
        return _read_trace(Path(arguments.file)), None
    return None, _region_advice(arguments, _read_text(arguments.file))


# -------------------------------------------------------------------------------------------------------------- oracle


def _oracle(arguments: argparse.Namespace) -> int:
    from app.cli.oracle import (
        UnavailableError,
        compile_kernel,
        kernel_names,
        kernel_text,
        listing_text,
        predict,
        prediction_text,
    )
    from profiler.region.model import RegionError

    if arguments.show and not arguments.kernel:
        raise InputError("--show goes with --kernel NAME")
    text, device = _read_text(arguments.file), _check_device(arguments.device)
    with _start_oracle() as oracle:
        try:
            predictions = predict(oracle, text, device=device, mode=arguments.mode, shapes=arguments.shapes)
        except RegionError as error:
            raise InputError(str(error)) from None
        missing = [p["unavailable"] for p in predictions["oracle"] if p["unavailable"]]
        if not arguments.kernel:
            _print(arguments, predictions, prediction_text)
            return NOT_MEASURED if missing else OK
        try:
            mode = _mode_of(predictions, arguments.kernel)
            kernel = compile_kernel(oracle, predictions, arguments.kernel, mode)
            if arguments.show:
                print(listing_text(kernel, arguments.show))
            else:
                _print(arguments, kernel, kernel_text)
        except KeyError:
            if missing:
                print(f"the prediction is unavailable: {missing[0]}", file=sys.stderr)
                return NOT_MEASURED
            raise InputError(
                "\n  ".join([f"no kernel {arguments.kernel}; there are:", *kernel_names(predictions)])
            ) from None
        except UnavailableError as error:
            print(error, file=sys.stderr)
            return NOT_MEASURED
    return OK


def _mode_of(predictions: OraclePredictions, kernel: str) -> str:
    """The mode asked for, else the first that has the kernel."""
    from app.cli.oracle import find_kernel

    modes = [p["mode"] for p in predictions["oracle"]]
    return next((m for m in modes if find_kernel(predictions, m, kernel)), modes[0])


@contextmanager
def _start_oracle() -> Iterator[Oracle]:
    """An oracle for one command; its process ends with it."""
    from profiler.oracle.process import START_S, Oracle

    oracle = Oracle(timeout_s=START_S)
    try:
        yield oracle
    finally:
        oracle.stop()


def _check_device(name: str | None) -> str | None:
    from profiler.hardware import find_device

    if name is not None and find_device(name) is None:
        raise InputError(f"{name}: no such device in the table")
    return name


def _is_trace(path: Path) -> bool:
    """By name, or by its first byte: a region's text begins with a letter or a comment."""
    if path.suffix.lower() in TRACE_SUFFIXES:
        return True
    try:
        with path.open("rb") as file:
            head = file.read(64).lstrip()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    return head[:1] in (b"{", b"[", b"\x1f")


def _read_trace(
    path: Path, companion: Path | None = None, execution: Path | None = None, what_if: str | None = None
) -> TraceBody:
    from app.trace_report.companions import Companion
    from app.trace_report.report import report

    lender, observed = (Companion(file, file.name) if file else None for file in (companion, execution))
    with _trace_errors(path):
        settings = thresholds_in_force()
        return report(path, path.name, beside=lender, execution=observed, thresholds=settings, what_if=what_if)


def _read_ranks(paths: Sequence[Path], companion: Path | None) -> RankReports:
    from app.trace_report.ranks import report_ranks

    if not all(_is_trace(path) for path in paths):
        raise InputError("several files are the traces of several ranks: one of these is no trace")
    with _trace_errors(paths[0] if len(paths) == 1 else None):
        return report_ranks(paths, companion, thresholds_in_force())


@contextmanager
def _trace_errors(path: Path | None) -> Iterator[None]:
    """What reading raises, as wrong input. path: the file, where there is only one."""
    from profiler.trace.errors import TraceError

    try:
        yield
    except TraceError as error:
        place = f"{path}: " if path else ""
        raise InputError(f"{place}{error.message}\n{error.remedy}".rstrip()) from None
    except OSError as error:
        raise InputError(f"{error.filename or path}: {error.strerror}") from None


def _read_text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{file}: neither a trace nor a text") from None


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


def _region_advice(arguments: argparse.Namespace, text: str) -> RegionBody:
    from app.analysis import service
    from profiler.region.model import RegionError

    device = _check_device(arguments.device if arguments.device != "cpu" else None)
    with_oracle = getattr(arguments, "oracle", "off") == "auto"
    try:
        with _start_oracle() if with_oracle else nullcontext() as oracle:
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


# ------------------------------------------------------------------------------------------------------------ validate


def _validate(arguments: argparse.Namespace) -> int:
    from app.analysis.validate import validate_region
    from profiler.region.model import RegionError

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
        measured = validate_region(request, on_progress=show_progress)
    except RegionError as error:
        raise InputError(str(error)) from None
    validation: NamedValidation = {"name": region["name"], **measured}
    if arguments.record is not None:
        from app.archive import record_store

        try:
            print(f"recorded: {record_store.record(validation, region['name'], arguments.record)}", file=sys.stderr)
        except ValueError as error:
            print(f"not recorded: {error}", file=sys.stderr)
    _print(arguments, validation, validation_text)
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
        return _region_advice(arguments, _read_text(arguments.file))
    regions = _read_trace(arguments.trace)["regions"]
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


# -------------------------------------------------------------------------------------------------------------- output


def _print(arguments: argparse.Namespace, body: Body, text: Callable[[Body], str]) -> None:
    print(json_text(body) if arguments.json else text(body))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
