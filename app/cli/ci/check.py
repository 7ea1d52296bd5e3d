"""tritonworthy check: assertions on traces and regions, for CI without a server.

Exit status: 0 every error-level assertion holds; 1 one does not; 2 it could not be measured (no GPU, a machine that is
not fit, a trace that cannot be read, no baseline, a crash), or its report or history could not be written; 3 nothing
was checked, for the command, the configuration or a region's text is wrong.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, NoReturn

from app.analysis.region_failed import DEFECT, in_words
from app.archive import record_store
from app.check.config import DEFAULTS, Config, read_toml
from app.check.config_error import ConfigError
from app.check.toml_bounds import MAX_CHARS
from app.check.toml_keys import line_of
from app.cli.ci.history import bisection_text, read_history
from app.cli.ci.run_context import context_options, is_shallow, run_context
from app.cli.inputs import InputError, is_trace, unpacked_alone
from app.cli.options import given_path
from app.exit_status import UNMEASURED
from app.history.from_report import entries_from
from app.history.jsonl import LineError, append
from app.thresholds import ThresholdError, thresholds_in_force

log = logging.getLogger("tritonworthy.check")

if TYPE_CHECKING:
    from app.check.contracts.lock import Lock
    from app.check.history import Past
    from app.objects.check import Report
    from app.objects.task import CheckSource, CheckTask

CRASHED = 2
WRONG = 3
FILE = "tritonworthy.toml"
STEM = "check"
"""Reports are called check.json, check.md, ..."""


def add_check(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Hook `check` into the command line."""
    from app.check.contracts.lock import FILE as LOCK
    from app.check.formats import FORMATS
    from app.cli.environments.named import VARIABLE

    about = "assertions on traces and regions, for CI: exit 0, 1, or 2 for could not measure"
    check = commands.add_parser("check", help=about, description=about[0].upper() + about[1:] + ".")
    check.error = MethodType(usage_error, check)  # type: ignore[method-assign]
    check.add_argument("files", metavar="TRACE|REGION", nargs="*", help="traces (.json, .sqlite of nsys, .gz, .zst,"
                       " .zip) and regions' texts; none where the configuration has kernels or contracts")  # fmt: skip
    check.add_argument("--baseline", type=given_path, metavar="TRACE", help="the same step before the change")
    check.add_argument(
        "--config", type=given_path, metavar="FILE", help=f"assertions; {FILE} where it is there (docs/ci.md)"
    )
    check.add_argument("--format", nargs="+", choices=tuple(FORMATS), default=(), metavar="FORMAT",
                       help=f"reports to write: {', '.join(FORMATS)}; one without --out goes to stdout")  # fmt: skip
    check.add_argument("--out", type=given_path, metavar="DIR", help=f"folder of the reports, {STEM}.json and so on")
    check.add_argument("--validate", action="store_true", help="measure what an assertion wants measured, on this GPU")
    check.add_argument("--device", metavar="NAME", help="device to predict for, such as H200")
    check.add_argument("--accept", action="store_true", help=f"write what Inductor answers to the contracts to {LOCK}")
    check.add_argument("--environment", metavar="ENV", help="whose torch the contracts are asked in: an"
                       f" interpreter, a virtual environment's folder, or torch==X.Y of {VARIABLE}")  # fmt: skip
    check.add_argument("--history", type=given_path, metavar="FILE",
                       help="runs before this one, for the assertion `history` (docs/history.md)")  # fmt: skip
    check.add_argument("--append", action="store_true", help="add this run to the history")
    check.add_argument("--bisect", action="store_true",
                       help="check nothing: say which commits between last good and first bad to try")  # fmt: skip
    context_options(check)
    check.set_defaults(run=_check, complain=check.error)


def usage_error(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """Wrong usage has a status of its own: 2 means that a correct check could not be measured."""
    parser.print_usage(sys.stderr)
    parser.exit(WRONG, f"{parser.prog}: error: {message}\n")


def _check(arguments: argparse.Namespace) -> int:
    from app.analysis.device_choice import DeviceUnknownError
    from app.check.contracts.acceptance import acceptance
    from app.check.contracts.lock import LockUnwritableError
    from app.check.formats import FORMATS
    from app.check.formats.plain import to_text
    from profiler.region.model import RegionError

    try:
        if len(arguments.format) > 1 and arguments.out is None:
            raise ConfigError("", "several formats need --out DIR")
        config = _config(arguments)
        if arguments.history is None and (arguments.append or arguments.bisect):
            raise ConfigError("", "--append and --bisect go with --history FILE")
        if arguments.bisect:
            return _bisect(arguments, config)
        past = _past(arguments)
        if not arguments.files and not config.kernels and not config.contracts:
            arguments.complain("the following arguments are required: TRACE|REGION")
        for option in ("accept", "environment"):
            if getattr(arguments, option) and not config.contracts:
                raise ConfigError("", f"--{option} goes with contracts, and the configuration has none")
        locked = _lock(arguments)
        report = _report(arguments, config, past)
        accepted = acceptance(locked, _lock(arguments), config.contracts) if arguments.accept else []
    except (ConfigError, DeviceUnknownError) as error:
        return _wrong(f"{error.message}\n{getattr(error, 'remedy', '')}".strip())
    except (InputError, RegionError, ThresholdError) as error:
        return _wrong(str(error))
    except LockUnwritableError as error:
        print(f"the lock cannot be written: {error}", file=sys.stderr)
        return UNMEASURED
    except OSError as error:
        return _wrong(f"{error.filename}: {error.strerror}")
    except Exception as fault:
        # Python's own status for this is 1: an assertion that does not hold.
        log.exception("the check crashed")
        print(f"could not be checked: {in_words(fault)}; {DEFECT.format(what='the file')}", file=sys.stderr)
        return CRASHED
    rendered = {name: FORMATS[name].render(report) for name in arguments.format}
    if arguments.out is not None:
        try:
            arguments.out.mkdir(parents=True, exist_ok=True)
            for name, text in rendered.items():
                path = arguments.out / f"{STEM}.{FORMATS[name].suffix}"
                path.write_text(text, encoding="utf-8", newline="")
        except OSError as error:
            print(f"the report cannot be written: {error.filename or arguments.out}: {error.strerror}", file=sys.stderr)
            return UNMEASURED
    if rendered and arguments.out is None:
        sys.stdout.write(next(iter(rendered.values())))
        print(*accepted, to_text(report), sep="\n", file=sys.stderr)
    else:
        print(*accepted, to_text(report), sep="\n")
    sys.stdout.flush()
    if past is not None and arguments.append and not _append(arguments.history, report, past):
        return UNMEASURED
    return int(report["exit_code"])


def _wrong(message: str) -> int:
    print(f"nothing was checked: {message}", file=sys.stderr)
    return WRONG


def _config(arguments: argparse.Namespace) -> Config:
    """The configuration of the file, with what the command line says instead."""
    path: Path = arguments.config or Path(FILE)
    if arguments.config is None and not path.exists():
        config = DEFAULTS
    else:
        try:
            with path.open(encoding="utf-8") as file:
                config = read_toml(file.read(MAX_CHARS + 1), str(path), runs_kernels=True)
        except UnicodeDecodeError:
            raise ConfigError("", "not UTF-8", str(path)) from None
    device = arguments.device or config.device
    return replace(config, validate=config.validate or arguments.validate, device=device)


def _lock(arguments: argparse.Namespace) -> Lock:
    """What is accepted, where `--accept` is to change it."""
    from app.check.contracts.lock import FILE as LOCK
    from app.check.contracts.lock import Lock, read_lock

    file: Path = arguments.config or Path(FILE)
    return read_lock(file.parent / LOCK) if arguments.accept else Lock()


def _past(arguments: argparse.Namespace) -> Past | None:
    """The runs before this one; None without --history."""
    from app.check.history import Past

    if arguments.history is None:
        return None
    return Past(read_history(arguments.history).entries, run_context(arguments, arguments.history))


def _append(file: Path, report: Report, past: Past) -> bool:
    """Adds this run to the history, where anything was measured; False where the file cannot be written."""
    entries = entries_from(report, past.run)
    lacks = "" if entries else "nothing was measured"
    try:
        if entries and not append(file, entries):
            lacks = "it has this measurement of this commit already"
    except LineError as error:
        lacks = str(error)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        print(f"the run cannot be added to the history: {file}: {reason}", file=sys.stderr)
        return False
    if lacks:
        print(f"{file}: nothing was added: {lacks}", file=sys.stderr)
    return True


def _bisect(arguments: argparse.Namespace, config: Config) -> int:
    """Prints the commits to try."""
    from app.history.newest import in_series

    run = run_context(arguments, arguments.history)
    entries = in_series(read_history(arguments.history).entries, config.name, run.branch, run.base)
    if not entries:
        branches = " or ".join(dict.fromkeys(name or "no branch" for name in (run.branch, run.base or run.branch)))
        raise ConfigError("", f"{arguments.history} has no run of {config.name} on {branches}")
    print(bisection_text(arguments.history, entries, arguments.files, run.commits, is_shallow()))
    return 0


def _report(arguments: argparse.Namespace, config: Config, past: Past | None) -> Report:
    from app.check.contracts.run import ContractOptions
    from app.check.run import check_config
    from app.cli.environments.named import environment_of

    files = [Path(file) for file in arguments.files]
    baseline: Path | None = arguments.baseline
    for path in (*files, *([baseline] if baseline else [])):
        path.open("rb").close()  # a file that is not there is a mistake, no trace that cannot be read
    traces = [file for file in files if is_trace(file)]
    if baseline is not None and len(traces) != 1:
        raise ConfigError("", "--baseline goes with one trace")
    file: Path = arguments.config or Path(FILE)
    try:
        with unpacked_alone([*files, *([baseline] if baseline else [])]) as places:
            request: CheckTask = {
                "sources": [_source(name, place) for name, place in zip(_names(files), places, strict=False)],
                "baseline": {"name": baseline.name, "path": str(places[-1])} if baseline else None,
                "thresholds": asdict(thresholds_in_force()),
                "archives": [str(record_store.user_folder()), str(record_store.FOLDER)],
            }
            environment = environment_of(arguments.environment) if arguments.environment else None
            options = ContractOptions(file.parent, arguments.accept, environment)
            return check_config(
                config, request, folder=file.parent, contract_options=options, on_progress=_show_progress, past=past
            )
    except ConfigError as error:
        if not error.key:  # of the lock, which its message names
            raise
        with file.open(encoding="utf-8") as opened:
            line = line_of(opened.read(MAX_CHARS), error.key)
        raise ConfigError(error.key, error.problem, str(file), line) from None


def _source(name: str, file: Path) -> CheckSource:
    if is_trace(file):
        return {"name": name, "path": str(file)}
    return {"name": name, "text": file.read_text(encoding="utf-8", errors="replace")}


def _names(files: Sequence[Path]) -> list[str]:
    """File names; whole paths where two files have one name."""
    names = [file.name for file in files]
    return [str(f) if names.count(f.name) > 1 else f.name for f in files]


def _show_progress(progress: Mapping[str, object]) -> None:
    if progress.get("phase") in ("reading", "measuring"):
        parts = (progress.get("phase"), progress.get("candidate"), progress.get("message"))
        print(" ".join(str(part) for part in parts if part), file=sys.stderr)
