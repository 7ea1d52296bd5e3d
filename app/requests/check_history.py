"""Asking for the history of checks: runs that are sent, series with what changed in them. Raises Problem."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from app.errors import Problem, not_found
from app.history.changes import series_of
from app.history.jsonl import COMMIT, COMMIT_IS, CONTROL, MAX_SOFTWARE, LineError, parse_line
from app.history.model import Entry, Series, SeriesKey
from app.history.to_json import change_json, entry_json, entry_of, run_json, series_json
from app.lru_cache import Recent
from app.objects.common import Page
from app.objects.history import (
    HistoryAppended,
    HistoryBadLine,
    HistoryChange,
    HistoryDetail,
    HistoryEntry,
    HistorySeries,
    HistorySummary,
)
from app.objects.task import CheckHistory
from app.requests.state import ServerState
from app.storage import check_history
from app.storage.check_history import Narrowed, StoredRun, StoredSeries

log = logging.getLogger(__name__)

LISTED_RUNS = 60
"""Of each series in a list: what its line shows and its last change is looked for in."""

MOST_RUNS = 1000
"""Of one series in one answer."""

MOST_BAD_LINES = 100
"""That an answer names."""

_newest: Recent[tuple[HistoryChange, ...]] = Recent(2000)
_series: Recent[HistorySeries] = Recent(8)
"""By series and runs, what was found in them last: a run takes tens of milliseconds to look at."""

ID_CHARS = 64

NAME_CHARS = 200
"""Of a name, a version or a method that is given with a check."""

DEFAULT_BRANCH = "main"


def read_history(
    *, wanted: bool, commit: str, branch: str, software: Mapping[str, str] = MappingProxyType({}), method: str = ""
) -> CheckHistory | None:
    """Of which commit a check is, None where it is in no history; 422 for one without the other.

    software, method: with what and how the trace was recorded, where somebody says so.
    """
    commit, branch, method = commit.strip(), branch.strip(), method.strip()
    if not wanted:
        if commit or branch or software or method:
            detail = "`commit`, `branch`, `software` and `method` go with `history`: true, which keeps the run."
            raise Problem(422, "invalid-request", "", detail)
        return None
    if not commit:
        raise Problem(422, "invalid-request", "", "A history needs `commit`: which one was measured.")
    longest = max(map(len, (commit, branch, method, *software, *software.values())))
    if longest > NAME_CHARS or len(software) > MAX_SOFTWARE:
        detail = f"A name has at most {NAME_CHARS} characters, and there are at most {MAX_SOFTWARE} versions."
        raise Problem(422, "invalid-request", "", detail)
    if not COMMIT.fullmatch(commit):
        raise Problem(422, "invalid-request", "", f"`commit`: {COMMIT_IS}.")
    if any(map(CONTROL.search, (branch, method, *software, *software.values()))):
        raise Problem(422, "invalid-request", "", "A name has no control characters.")
    return {"commit": commit, "branch": branch or DEFAULT_BRANCH, "software": dict(software), "method": method}


def read_software(text: str) -> dict[str, str]:
    """Versions of a form's field: "torch=2.14.0, triton=3.7.1"; 422 for what has none."""
    versions = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, version = (half.strip() for half in part.partition("="))
        if not (name and version):
            detail = "`software` is NAME=VERSION, separated by commas, such as torch=2.14.0, triton=3.7.1."
            raise Problem(422, "invalid-request", "", detail)
        if name in versions:
            raise Problem(422, "invalid-request", "", f"`software` has {name} twice.")
        versions[name] = version
    return versions


class _Sent(msgspec.Struct, forbid_unknown_fields=True):
    entries: list[msgspec.Raw]


def read_lines(data: bytes) -> tuple[list[HistoryEntry], list[HistoryBadLine]]:
    """The runs of a file of lines, and the lines that are none; 422 where there is no run."""
    entries: list[Entry] = []
    bad: list[HistoryBadLine] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            try:
                entries.append(_storable(parse_line(line.strip())))
            except LineError as error:
                bad.append({"number": number, "problem": str(error)})
    if not entries:
        raise _invalid(f"Line {bad[0]['number']}: {bad[0]['problem']}." if bad else "There is no line.")
    return _by_time(entries), bad


def read_object(data: bytes) -> list[HistoryEntry]:
    """The runs of `{"entries": [...]}`; 422 with the place of the first that is none."""
    try:
        sent = msgspec.json.decode(data, type=_Sent)
    except msgspec.ValidationError as error:
        raise _invalid(f"{error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Problem(422, "invalid-json", "", "The body is not JSON that can be read.") from None
    entries = []
    for place, body in enumerate(sent.entries):
        try:
            entries.append(_storable(parse_line(bytes(body))))
        except LineError as error:
            raise _invalid(f"entries[{place}]: {error}.") from None
    return _by_time(entries)


def append(
    state: ServerState, entries: Sequence[HistoryEntry], bad_lines: Sequence[HistoryBadLine] = ()
) -> HistoryAppended:
    """Keep runs, each once."""
    added, other = check_history.append(state.store.database, entries)
    return {
        "added": added,
        "known": len(entries) - added,
        "other_values": other[:MOST_BAD_LINES],
        "bad_lines": list(bad_lines[:MOST_BAD_LINES]),
    }


def list_series(state: ServerState, limit: int, after: str | None, wanted: Narrowed) -> Page[HistorySummary]:
    """A page of series, each with its newest runs and the last change among them."""
    database = state.store.database
    page = check_history.series_page(database, limit, after, wanted)
    runs = check_history.runs_of(database, page["items"], LISTED_RUNS, wanted.device)
    # A series whose runs were deleted between the two questions is left out.
    return {"items": [_summary(s, runs[s.id]) for s in page["items"] if runs[s.id]], "next": page["next"]}


def find_series(state: ServerState, series_id: str, *, device: str = "", runs: int = MOST_RUNS) -> HistoryDetail:
    """The newest runs of a series, with the changes between them, or 404."""
    database = state.store.database
    series = check_history.one_series(database, series_id, device)
    if series is None:
        raise not_found("series")
    stored = check_history.runs_of(database, [series], min(runs, MOST_RUNS), device)[series.id]
    branches = check_history.siblings(database, series.key, series.unit)
    return {
        **_series.of(_of_runs(series, stored), lambda: series_json(analyze(series, stored))),
        "id": series.id,
        "runs": series.runs,
        "checks": {run.entry["id"]: run.check_id for run in stored if run.check_id},
        "devices": check_history.names(database, series.id).devices,
        "branches": [{"branch": one.key["branch"], "id": one.id} for one in branches],
    }


def delete_series(state: ServerState, series_id: str) -> None:
    """Forget a series, or 404."""
    if not check_history.delete_series(state.store.database, series_id):
        raise not_found("series")


def analyze(series: StoredSeries, runs: Sequence[StoredRun]) -> Series:
    """A series with the changes in it."""
    entries = [entry_of({**run.entry, "measures": [run.measure]}) for run in runs]
    key = series.key
    return series_of(key=SeriesKey(key["check"], key["branch"], key["subject"], key["metric"]), entries=entries)


def _newest_change(series: StoredSeries, runs: Sequence[StoredRun]) -> HistoryChange | None:
    """The last change that is more than noise; looked for once for the same runs."""

    def look() -> tuple[HistoryChange, ...]:
        try:
            real = [change for change in analyze(series, runs).changes if change.cause != "noise"]
        except (ArithmeticError, ValueError):
            log.exception("series %s cannot be analysed", series.id)  # the others of its list can
            return ()
        return tuple(change_json(change) for change in real[-1:])

    changes = _newest.of(_of_runs(series, runs), look)
    return changes[0] if changes else None


def _of_runs(series: StoredSeries, runs: Sequence[StoredRun]) -> str:
    """The same for the same runs of a series: a run that came is never changed."""
    told = json.dumps([(run.entry["id"], run.came, run.measure) for run in runs], sort_keys=True)
    return f"{series.id} {hashlib.sha256(told.encode()).hexdigest()}"


def _summary(series: StoredSeries, runs: Sequence[StoredRun]) -> HistorySummary:
    return {
        "id": series.id,
        "key": series.key,
        "unit": series.unit,
        "runs": series.runs,
        "recent": [run.measure["value"] for run in runs],
        "newest": run_json(entry_of(runs[-1].entry)),
        "change": _newest_change(series, runs),
    }


def _by_time(entries: Sequence[Entry]) -> list[HistoryEntry]:
    return [entry_json(entry) for entry in sorted(entries, key=lambda entry: (entry.at, entry.id))]


def _storable(entry: Entry) -> Entry:
    """The same, within what a database's columns hold. LineError."""
    if len(entry.id) > ID_CHARS:
        raise LineError(f"`id` has at most {ID_CHARS} characters")
    return entry


def _invalid(detail: str) -> Problem:
    return Problem(422, "history-invalid", "These are no runs of a check", detail)
