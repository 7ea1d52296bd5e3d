"""A change in words."""

from __future__ import annotations

from collections.abc import Sequence

from app.history.model import Entry

SHORT = 10


def commit_name(entry: Entry) -> str:
    """The commit as people say it."""
    name = entry.commit[:SHORT] or "an unnamed commit"
    return f"{name} with changes that were not committed" if entry.dirty else name


def because(before: Entry, after: Entry, ratio: float, parts: Sequence[str], lone: bool, moved: bool) -> str:
    """parts: what changed of the environment; lone: one run alone has the new level; moved: the commit is another."""
    much = f"{abs(ratio - 1):.1%} {'more' if ratio > 1 else 'less'}"
    once = "; one run alone says so: run it again" if lone else ""
    if parts:
        words = f"{much} {', '.join(parts)}"
        if moved:
            words += (
                f", and the commit is {commit_name(after)} instead of {commit_name(before)}: run the old commit in the"
                " new environment to tell them apart"
            )
        return words + once
    if not moved:
        return f"{much} with the same commit {commit_name(after)} in the same environment: no change of the program"
    return f"{much} from {commit_name(after)} on, after {commit_name(before)}, in the same environment{once}"
