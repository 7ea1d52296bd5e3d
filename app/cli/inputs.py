"""What several commands read: a region's text, traces, the name of a device. What is wrong with them is InputError."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from app.thresholds import thresholds_in_force

if TYPE_CHECKING:
    from app.objects.trace import TraceBody
    from app.trace_report.ranks import RankReports
    from app.trace_report.report import Whole

TRACE_SUFFIXES = (".json", ".gz", ".zst", ".sqlite", ".tar", ".tgz", ".zip", ".nsys-rep", ".qdrep")
"""The last two are reports of nsys, whose reader says how they are exported."""


class InputError(Exception):
    """The input is wrong; the message is for the user."""


def check_device(name: str | None) -> str | None:
    """The name, where the table has the device. Raises InputError."""
    from profiler.hardware import find_device

    if name is not None and find_device(name) is None:
        raise InputError(f"{name}: no such device in the table")
    return name


def is_trace(path: Path) -> bool:
    """By name, or by its first bytes: a region's text begins with a letter or a comment."""
    if path.suffix.lower() in TRACE_SUFFIXES:
        return True
    from profiler.trace.read.members import is_no_text

    try:
        return is_no_text(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


@contextmanager
def unpacked(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """The files, and for archives of several traces, or zip archives, the traces inside in their places: files of a
    folder that is removed in the end. Raises InputError."""
    with TemporaryDirectory(prefix="tritonworthy-") as folder:
        files: list[Path] = []
        for number, path in enumerate(paths):
            with _trace_errors(path):
                files += _inside(path, Path(folder) / str(number)) or [path]
        yield files


@contextmanager
def unpacked_alone(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """One file for each: the trace inside, for zip archives of one. A damaged archive stays itself, for its reader.

    Raises InputError for an archive of several traces.
    """
    from profiler.trace.errors import TraceError

    with TemporaryDirectory(prefix="tritonworthy-") as folder:
        files: list[Path] = []
        for number, path in enumerate(paths):
            inside: list[Path] = []
            with _trace_errors(path), suppress(TraceError):
                inside = _inside(path, Path(folder) / str(number))
            if len(inside) > 1:
                names = ", ".join(file.name for file in inside)
                raise InputError(f"{path}: holds several traces ({names}), and this command takes one at a time")
            files += inside or [path]
        yield files


def _inside(path: Path, folder: Path) -> list[Path]:
    """The traces of an archive as files in a folder; [] for what is none, and for a tar that can be read as it is.

    Raises TraceError, OSError.
    """
    from profiler.trace.read.limits import Limits
    from profiler.trace.read.members import is_archive, is_zip, traces_in

    if path == Path("-") or not path.is_file() or not is_archive(path):
        return []
    made: list[Path] = []
    strays: list[str] = []
    for name, content in traces_in(path, Limits(), strays):
        place = folder / str(len(made)) / name
        place.parent.mkdir(parents=True)
        with place.open("wb") as file:
            file.writelines(content)
        made.append(place)
    return made if len(made) > 1 or (made and (strays or is_zip(path))) else []


def read_trace(path: Path) -> TraceBody:
    """A trace with its regions and their advice, as it is predicted. Raises InputError."""
    return read_whole_trace(path).trace


def read_whole_trace(
    path: Path, companion: Path | None = None, execution: Path | None = None, what_if: str | None = None
) -> Whole:
    """The same with what each region's advice was issued on."""
    from app.trace_report.companions import Companion
    from app.trace_report.report import whole_report

    lender, observed = (Companion(file, file.name) if file else None for file in (companion, execution))
    with _trace_errors(path):
        settings = thresholds_in_force()
        return whole_report(path, path.name, companion=lender, execution=observed, thresholds=settings, what_if=what_if)


def read_ranks(
    paths: Sequence[Path], companion: Path | None, finish: Callable[[Whole], TraceBody] = lambda whole: whole.trace
) -> RankReports:
    """The traces of several ranks side by side; finish: as `report_ranks` takes it. Raises InputError."""
    from app.trace_report.ranks import report_ranks

    if not all(is_trace(path) for path in paths):
        raise InputError("several files are the traces of several ranks: one of these is no trace")
    with _trace_errors(paths[0] if len(paths) == 1 else None):
        return report_ranks(paths, companion, thresholds_in_force(), finish)


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


def read_text(file: str) -> str:
    """A region's text from a file, or from stdin for `-`. Raises InputError."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{file}: neither a trace nor a text") from None
