"""tritonworthy history: what checks measured run after run, what changed and why.

Exit status: 0 the series were printed; 1 the file is no history.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from app.check.safe import visible
from app.cli.ci.run_context import commits_of
from app.cli.inputs import InputError
from app.cli.options import given_path
from app.cli.streams import json_text
from app.history.bisection import bisection_order
from app.history.jsonl import BadLine, History, read
from app.history.model import Change, Entry, Series
from app.history.to_json import series_json
from app.history.wording import commit_name
from app.units import digits, duration
from app.units import ratio as ratio_text

MAX_BAD_LINES = 5
WIDTH = 2000


def add_history(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Hook `history` into the command line."""
    about = "the series of a history file that checks appended to: what changed, at which commit, and why"
    history = commands.add_parser("history", help=about, description=about[0].upper() + about[1:] + ".")
    history.add_argument("file", type=given_path, metavar="FILE", help="the file of `check --history FILE --append`")
    history.add_argument("--check", metavar="PATTERN", default="*", help="checks of these names alone")
    history.add_argument("--branch", metavar="PATTERN", default="*", help="branches of these names alone")
    history.add_argument("--subject", metavar="PATTERN", default="*", help="traces and regions of these names alone")
    history.add_argument("--json", action="store_true", help="print the API's objects")
    history.set_defaults(run=_history)


def _history(arguments: argparse.Namespace) -> int:
    from app.history.changes import all_series

    history = read_history(arguments.file)
    if not arguments.file.exists():
        raise InputError(f"{arguments.file}: there is no such file: `tritonworthy check --history` writes it")
    if history.bad_lines and not history.entries:
        raise InputError(f"{arguments.file}: no line of it is a run of a check")
    series = [
        one for one in all_series(history.entries, commits=commits_of("HEAD"))
        if fnmatchcase(one.key.check, arguments.check) and fnmatchcase(one.key.branch, arguments.branch)
        and fnmatchcase(one.key.subject, arguments.subject)
    ]  # fmt: skip
    if arguments.json:
        print(json_text({"items": [series_json(one) for one in series]}))
    else:
        print("\n\n".join(_text(one) for one in series) or "no run of these names")
    return 0


def read_history(path: Path) -> History:
    """The file, its bad lines named on stderr."""
    history = read(path)
    for bad in history.bad_lines[:MAX_BAD_LINES]:
        print(_bad_line(path, bad), file=sys.stderr)
    if (more := len(history.bad_lines) - MAX_BAD_LINES) > 0:
        print(f"{path}: {more} more lines are left out", file=sys.stderr)
    return history


def _bad_line(path: Path, bad: BadLine) -> str:
    return visible(f"{path}:{bad.number}: left out: {bad.problem}", WIDTH)


def _text(series: Series) -> str:
    key, last, unit = series.key, series.points[-1], series.unit
    counted = _is_counted(unit)
    head = f"{key.subject}, {key.metric} ({key.check}, {key.branch or 'no branch'})"
    now = f"{len(series.points)} {'run' if len(series.points) == 1 else 'runs'}, now {_value(last.value, unit)}"
    untold = False
    if last.low is not None and last.high is not None and not counted:
        now += f"; runs of this level lie within {_value(last.low, unit)} and {_value(last.high, unit)}"
        told = any(change.after.id == last.entry.id for change in series.changes)
        untold = not told and not last.low <= last.value <= last.high
    lines = [f"{head}: {now}", *(f"  {line}" for change in series.changes for line in change_lines(change, unit))]
    if untold:
        lines.append("  this run lies outside of the band; one run, or a few after an outlier, are not told yet")
    elif not series.changes:
        lines.append("  no change beyond what runs differ by themselves")
    return "\n".join(visible_line(line) for line in lines)


def visible_line(line: str) -> str:
    """One line of output, with the spaces it begins with."""
    return line[: len(line) - len(line.lstrip())] + visible(line.lstrip(), WIDTH)


def change_lines(change: Change, unit: str) -> list[str]:
    """A change as text: what, when and how sure; then what tells its causes apart."""
    ratio = change.ratio
    if _is_counted(unit):
        old, new = (_measured(entry, change) for entry in (change.before, change.after))
        sure = f"{_value(new, unit)} instead of {old:g}"
    else:
        times = f"{ratio_text(ratio['low'])} to {ratio_text(ratio['high'])} times"
        sure = f"{times}, confidence {_confidence(change.confidence)}"
    lines = [f"{change.after.at[:10]} {change.cause}: {change.because} ({sure})"]
    if len(change.commits_between) > 1:
        lines.append(f"  {len(change.commits_between)} commits may be it: tritonworthy check --bisect says what to try")
    if change.how_to_separate:
        lines.append("  to tell them apart:")
        lines += [f"    {line}" for line in change.how_to_separate.splitlines()]
    return lines


def _confidence(confidence: float) -> str:
    return f"{confidence:.4%}" if confidence < 0.999999 else "over 99.9999%"


def _measured(entry: Entry, change: Change) -> float:
    subject, metric = change.key.subject, change.key.metric
    return next(m.value for m in entry.measures if (m.subject, m.metric) == (subject, metric))


def _is_counted(unit: str) -> bool:
    from app.history.changes import EXACT_UNITS

    return unit in EXACT_UNITS


def _value(value: float, unit: str) -> str:
    """Counts are whole, or ratios of counted bytes."""
    if _is_counted(unit):
        return f"{value:g} {unit.removesuffix('s') if value == 1 else unit}"
    return duration(value) if unit == "µs" else f"{digits(value)} {unit}"


# ---------------------------------------------------------------------------------------------------------- bisection


def bisection_text(
    file: Path, entries: Sequence[Entry], traces: Sequence[str], commits: Sequence[str], shallow: bool = False
) -> str:  # fmt: skip
    """For the last regression of each series the commits to try, and how. traces: as the command line names them.

    shallow: commits are not all that there are, for git has only the newest here.
    """
    from app.history.changes import all_series

    wanted: dict[tuple[str, str], tuple[Change, list[str]]] = {}
    for series in all_series(entries, commits=commits):
        regressions = [change for change in series.changes if change.cause == "regression"]
        if regressions:
            change = regressions[-1]
            bad = change.commits_between[-1] if change.commits_between else change.after.commit
            names = wanted.setdefault((change.before.commit, bad), (change, []))[1]
            names.append(f"{series.key.subject}, {series.key.metric}")
    if not wanted:
        return "the history shows no regression: there is nothing to bisect"
    measured = {entry.commit for entry in entries if not entry.dirty}
    return "\n\n".join(
        _bisection(file, change, names, measured, traces, commits, shallow) for change, names in wanted.values()
    )  # fmt: skip


def _bisection(
    file: Path, change: Change, names: Sequence[str], measured: set[str], traces: Sequence[str], commits: Sequence[str],
    shallow: bool,
) -> str:  # fmt: skip
    lines = [f"{'; '.join(names)}: {change.because}"]
    bad = change.commits_between[-1] if change.commits_between else change.after.commit
    lines.append(f"  last good {change.before.commit or commit_name(change.before)}, first bad {bad}")
    command = f"tritonworthy check {' '.join(traces) or 'TRACE'} --history {file} --append"
    order = bisection_order(change.commits_between, measured)
    if order:
        lines.append(f"  {len(order)} {'commit' if len(order) == 1 else 'commits'} to try, in this order, until one"
                     " is bad and the one before it good; after each, --bisect again says which are left:")  # fmt: skip
        lines += [f"    git checkout {commit}, record the trace again, {command}" for commit in order]
    elif bad in commits and change.before.commit in commits:
        lines.append(f"  no commit is left between them: it is {bad}")
    elif shallow:
        lines.append("  git has only the newest commits here, and not both of these: check out with fetch-depth: 0, or"
                     " git fetch --unshallow, and ask again")  # fmt: skip
    else:
        lines.append(f"  git does not have both here: try what lies between, each with {command}")
    return "\n".join(visible_line(line) for line in lines)
