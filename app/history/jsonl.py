"""The file of a history: one run a line, as JSON. Read tolerantly, written by whole lines at its end.

Branches that each added lines merge as texts (`merge=union` in .gitattributes): runs are ordered by time and counted
once by their id. A line that was cut, or that a newer version wrote, is left where it is and named.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from app.history.model import Entry
from app.history.regular_file import open_regular
from app.history.to_json import SCHEMA, entry_json, entry_of, utc
from app.objects.history import HistoryEntry

MAX_LINE_BYTES = 1_000_000
MAX_MEASURES = 2_000
MAX_TEXT = 500
"""Longest name, commit, version or method."""
MAX_SOFTWARE = 32
MAX_PARENTS = 16
MIN_VALUE, MAX_VALUE = 1e-12, 1e18
"""In µs a billionth of a cycle and thirty thousand years: beyond is no measurement."""
MAX_SPREAD = 100.0
MAX_SAMPLES = 2**53
YEARS = range(1970, 2201)
COMMIT = re.compile(r"[0-9A-Za-z._/][0-9A-Za-z._/-]*")
"""What may stand in a command to copy: nothing that a shell reads, and no option."""
COMMIT_IS = "a commit has letters, digits and . _ / - alone, and begins with no -"
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""No name has them, and not every database takes them."""

_DECODER = msgspec.json.Decoder(HistoryEntry)


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no run. number: from 1."""

    number: int
    problem: str


@dataclass(frozen=True, slots=True)
class History:
    """Runs, oldest first and each once, and the lines that are none."""

    entries: tuple[Entry, ...]
    bad_lines: tuple[BadLine, ...] = ()


class LineError(ValueError):
    """A text that is no run, and why."""


def parse_line(line: bytes) -> Entry:
    """One run. LineError."""
    if len(line) > MAX_LINE_BYTES:
        raise LineError(f"longer than {MAX_LINE_BYTES:,} bytes")
    try:
        body = _DECODER.decode(line)
    except msgspec.ValidationError as error:
        raise LineError(_newer(line) or f"no run of a check: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise LineError("not JSON, or cut off") from None
    except RecursionError:
        raise LineError("not a run of a check: nested too deep") from None
    return checked(body)


def checked(body: HistoryEntry) -> Entry:
    """A run of an object that has the right types: what types do not say. LineError."""
    environment = body["environment"]
    texts = [body["id"], body["check"], body["commit"], body["branch"], environment["device"], environment["method"]]
    texts += [text for pair in environment["software"].items() for text in pair] + list(body["parents"])
    texts += [text for m in body["measures"] for text in (m["subject"], m["metric"], m["unit"])]
    if not body["id"] or not body["check"]:
        raise LineError("no run of a check: `id` and `check` are not empty")
    if any(len(text) > MAX_TEXT for text in texts):
        raise LineError(f"a text is longer than {MAX_TEXT} characters")
    if any(CONTROL.search(text) for text in texts):
        raise LineError("a text has control characters")
    if len(environment["software"]) > MAX_SOFTWARE or len(body["parents"]) > MAX_PARENTS:
        raise LineError(f"more than {MAX_SOFTWARE} versions of software or {MAX_PARENTS} parents")
    if not all(COMMIT.fullmatch(commit) for commit in (body["commit"], *body["parents"]) if commit):
        raise LineError(COMMIT_IS)
    if len(body["measures"]) > MAX_MEASURES:
        raise LineError(f"more than {MAX_MEASURES:,} measures")
    for measure in body["measures"]:
        name, spread = f"{measure['subject']}, {measure['metric']}", measure["spread"]
        if not MIN_VALUE <= measure["value"] <= MAX_VALUE:
            raise LineError(f"{name}: a value is from {MIN_VALUE:g} to {MAX_VALUE:g}")
        if not 1 <= measure["samples"] <= MAX_SAMPLES:
            raise LineError(f"{name}: samples are from 1 to {MAX_SAMPLES:,}")
        if not (spread is None or 0 <= spread <= MAX_SPREAD):
            raise LineError(f"{name}: a spread is from 0 to {MAX_SPREAD:g}")
    try:
        at = utc(body["at"])
    except (ValueError, OverflowError):  # a year that an offset moves out of the calendar
        raise LineError("`at` is an ISO 8601 time such as 2026-11-26T11:30:00Z") from None
    if int(at[: at.index("-")]) not in YEARS:
        raise LineError(f"`at` is in the years {YEARS[0]} to {YEARS[-1]}")
    return entry_of({**body, "at": at})


def _newer(line: bytes) -> str:
    try:
        schema = json.loads(line).get("schema", SCHEMA)
    except (ValueError, AttributeError, RecursionError):
        return ""
    if schema == SCHEMA:
        return ""
    return f"written as schema {str(schema)[:20]}, which this version does not read: it reads {SCHEMA}"


def parse(text: bytes) -> History:
    """The runs of a whole file. Of two lines with one id the first counts, and the other is named where it differs."""
    entries: dict[str, tuple[int, Entry]] = {}
    bad = []
    for number, line in enumerate(text.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            entry = parse_line(line.strip())
        except LineError as error:
            bad.append(BadLine(number, str(error)))
            continue
        first, known = entries.setdefault(entry.id, (number, entry))
        if replace(entry, at=known.at) != known:
            bad.append(BadLine(number, f"has the id of line {first} and other values"))
    return History(merged(entry for _, entry in entries.values()), tuple(bad))


def merged(*histories: Iterable[Entry]) -> tuple[Entry, ...]:
    """All runs by time, each once: the first of an id."""
    by_id: dict[str, Entry] = {}
    for history in histories:
        for entry in history:
            by_id.setdefault(entry.id, entry)
    return tuple(sorted(by_id.values(), key=lambda entry: (entry.at, entry.id)))


def read(path: Path) -> History:
    """The file's runs; a file that is not there has none. OSError."""
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
            return parse(file.read())
    except FileNotFoundError:
        return History(())


def render(entries: Sequence[Entry]) -> bytes:
    """Lines, each with its end."""
    return b"".join(
        json.dumps(entry_json(entry), ensure_ascii=False, separators=(",", ":")).encode() + b"\n" for entry in entries
    )


def append(path: Path, entries: Sequence[Entry]) -> int:
    """Adds those that the file does not have, in one write under a lock; returns how many. OSError, LineError.

    A last line that was cut keeps its place: what follows begins on a line of its own.
    """
    for entry in entries:
        checked(entry_json(entry))
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = file.readall()
        known = {entry.id for entry in parse(text).entries}
        added = [entry for entry in merged(entries) if entry.id not in known]
        if not added:
            return 0
        start = b"" if not text or text.endswith(b"\n") else b"\n"
        lines = start + render(added)
        if file.write(lines) != len(lines):
            raise OSError(28, "the disk is full", str(path))
        os.fsync(descriptor)
    return len(added)
