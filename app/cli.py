"""tritonworthy serve | advise FILE | validate REGION: the same as the web, from a shell.

`advise` and `validate` import neither FastAPI nor a database: they run where only torch, triton and numpy are.
Exit status: 0 done; 1 the input is wrong; 2 it could not be measured, or the settings are wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from app import __version__

Json = dict[str, Any]

OK, BAD_INPUT, NOT_MEASURED = 0, 1, 2

TRACE_SUFFIXES = (".json", ".gz")


class InputError(Exception):
    """The input is wrong; the message is for the user."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    arguments = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except InputError as error:
        print(error, file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:
        # `tritonworthy advise FILE | head`: nobody reads any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tritonworthy", description="Should I write a Triton kernel for this?")
    parser.add_argument("--version", action="version", version=f"tritonworthy {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="serve the web app; settings by TRITONWORTHY_* (docs/settings.md)")
    serve.add_argument("--host", help="address to listen on")
    serve.add_argument("--port", type=int, help="port to listen on")
    serve.add_argument("--data-dir", type=Path, help="folder of the database and uploads")
    serve.set_defaults(run=_serve)

    advise = commands.add_parser("advise", help="advice on every part of a trace, or on a region's text")
    advise.add_argument("file", metavar="FILE", help="a trace (.json, .json.gz), a region's text, or - for stdin")
    _workload_options(advise)
    advise.set_defaults(run=_advise)

    validate = commands.add_parser("validate", help="measure the candidates of a region on this host's GPU")
    validate.add_argument("file", metavar="REGION", nargs="?", help="a region's text, or - for stdin")
    validate.add_argument("--trace", type=Path, metavar="FILE", help="take the region from this trace")
    validate.add_argument("--region", metavar="NAME", help="the region's name or number (from 1) in the trace")
    validate.add_argument("--candidates", metavar="A,B", help="only these candidates")
    validate.add_argument("--shapes", type=_shapes, metavar="JSON", help='sizes in use: [{"N": 37, "calls": 3}]')
    validate.add_argument("--record", type=Path, metavar="DIR", help="write the result as a record of the archive")
    validate.add_argument("--budget", type=float, metavar="SECONDS", help="time that measuring may take")
    _workload_options(validate)
    validate.set_defaults(run=_validate)
    return parser


def _workload_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--share", type=_share, metavar="0..1", help="share of the step that the region takes")
    parser.add_argument("--step-time-us", type=float, metavar="US", help="time of one step, in µs")
    parser.add_argument("--device", help="device to predict for, such as H200; for validate also cpu")
    parser.add_argument("--objective", choices=("time", "memory"), default="time")
    parser.add_argument("--json", action="store_true", help="print the API's object")


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError("a share is between 0 and 1")
    return value


def _shapes(text: str) -> list[Json]:
    try:
        value = json.loads(text)
    except ValueError:
        raise argparse.ArgumentTypeError("not JSON") from None
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise argparse.ArgumentTypeError('a list of objects, such as [{"N": 37, "calls": 3}]')
    return value


# --------------------------------------------------------------------------------------------------------------- serve


def _serve(arguments: argparse.Namespace) -> int:
    from app.serve import serve

    given = {"host": arguments.host, "port": arguments.port, "data_dir": arguments.data_dir}
    return serve({name: value for name, value in given.items() if value is not None})


# -------------------------------------------------------------------------------------------------------------- advise


def _advise(arguments: argparse.Namespace) -> int:
    if arguments.file != "-" and _is_trace(Path(arguments.file)):
        trace = _read_trace(Path(arguments.file))
        _print(arguments, trace, _trace_text)
        return OK
    region = _region_advice(arguments, _read_text(arguments.file))
    _print(arguments, {**{k: v for k, v in region.items() if k != "advice"}, **region["advice"]}, _region_text)
    return OK


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


def _read_trace(path: Path) -> Json:
    from app import service
    from profiler.trace.errors import TraceError

    try:
        trace: Json = service.read_trace_file(path, path.name)
    except TraceError as error:
        raise InputError(f"{path}: {error.message}\n{error.remedy}".rstrip()) from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    return trace


def _read_text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{file}: neither a trace nor a text") from None


def _region_advice(arguments: argparse.Namespace, text: str) -> Json:
    from app import service
    from profiler.hardware import find_device
    from profiler.region.model import RegionError

    device = arguments.device if arguments.device != "cpu" else None
    if device is not None and find_device(device) is None:
        raise InputError(f"{device}: no such device in the table")
    try:
        region: Json = service.advise_region(
            text,
            share_of_step=arguments.share,
            step_time_us=arguments.step_time_us,
            shapes=getattr(arguments, "shapes", None),
            device=device,
            objective=arguments.objective,
        )
    except RegionError as error:
        raise InputError(str(error)) from None
    return region


# ------------------------------------------------------------------------------------------------------------ validate


def _validate(arguments: argparse.Namespace) -> int:
    from app.validate import validate_region
    from profiler.region.model import RegionError

    region = _region_to_validate(arguments)
    request = {
        "region": region["text"],
        "shapes": region.get("shapes"),
        "candidates": arguments.candidates.split(",") if arguments.candidates else None,
        "device": "cpu" if arguments.device == "cpu" else None,
        "budget_s": arguments.budget,
        "share_of_step": region.get("share_of_step"),
        "advice_before": region["advice"],
    }
    try:
        validation = validate_region(request, on_progress=_show_progress)
    except RegionError as error:
        raise InputError(str(error)) from None
    validation = {"name": region["name"], **validation}
    if arguments.record is not None:
        from app.archive import shelf

        try:
            print(f"recorded: {shelf.record(validation, region['name'], arguments.record)}", file=sys.stderr)
        except ValueError as error:
            print(f"not recorded: {error}", file=sys.stderr)
    _print(arguments, validation, _validation_text)
    return NOT_MEASURED if validation["outcome"] == "unmeasured" else OK


def _region_to_validate(arguments: argparse.Namespace) -> Json:
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
    found: Json = by_name[0]
    return found


def _show_progress(progress: Json) -> None:
    fraction = progress.get("fraction")
    done = f"{fraction:4.0%} " if isinstance(fraction, float) else ""
    parts = (progress.get("phase"), progress.get("candidate"), progress.get("message"))
    print(done + " ".join(str(part) for part in parts if part), file=sys.stderr)


# -------------------------------------------------------------------------------------------------------------- output


def _print(arguments: argparse.Namespace, body: Json, text: Callable[[Json], str]) -> None:
    print(json.dumps(body, indent=2, allow_nan=False, ensure_ascii=False) if arguments.json else text(body))
    sys.stdout.flush()


def _advice_text(advice: Json) -> str:
    lines = [f"{advice['tool']}{' (' + advice['mode'] + ')' if advice.get('mode') else ''}: {advice['headline']}"]
    lines += [advice["action"]] if advice.get("action") else []
    lines += ["    " + line for line in (advice.get("call") or "").splitlines()]
    return "\n".join(lines)


def _region_text(region: Json) -> str:
    marks = {True: "yes", False: "no ", None: "?  "}
    because = [f"  {marks[c['holds']]} {c['name']}: {c['because']}" for c in region["criteria"]]
    return "\n".join([region["name"], _advice_text(region), *because])


def _trace_text(trace: Json) -> str:
    share = trace.get("linked_share")
    linked = "" if share is None else f", {share:.1%} of kernel time linked"
    lines = [f"{trace['name']}: {trace['kernels']} kernels, {trace['steps']} steps{linked}"]
    lines += [f"{note['level']}: {note['message']} {note.get('remedy', '')}".rstrip() for note in trace["notes"]]
    for number, region in enumerate(trace["regions"], 1):
        share = region.get("share_of_step")
        lines += ["", f"{number}. {region['name']}" + ("" if share is None else f" ({share:.1%} of the step)")]
        lines += ["   " + line for line in _advice_text(region["advice"]).splitlines() if region.get("advice")]
    return "\n".join(lines)


def _validation_text(validation: Json) -> str:
    lines = [f"{validation['outcome']}: {validation['reason']}"]
    for candidate in validation["candidates"]:
        time_us = candidate.get("time_us")
        took = "" if time_us is None else f"  {time_us['median']:.1f} µs [{time_us['low']:.1f}, {time_us['high']:.1f}]"
        lines.append(f"  {candidate['name']:<40} {candidate['status']}{took}  {candidate.get('message', '')}".rstrip())
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
