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
        if moved and before.commit and before.commit == after.commit:
            words += f", and {_changed(before, after)}"
        elif moved:
            words += (
                f", and the commit is {commit_name(after)} instead of {commit_name(before)}: run the old commit in the"
                " new environment to tell them apart"
            )
        return words + once
    if not moved:
        return f"{much} with the same commit {commit_name(after)} in the same environment: no change of the program"
    if before.commit and before.commit == after.commit:
        return f"{much} in the same environment: {_changed(before, after)}{once}"
    return f"{much} from {commit_name(after)} on, after {commit_name(before)}, in the same environment{once}"


def _changed(before: Entry, after: Entry) -> str:
    """Two working trees of one commit."""
    name = before.commit[:SHORT]
    if before.dirty and after.dirty:
        return f"changes to {name} that were not committed may have become others"
    return f"{name} {'has' if after.dirty else 'no longer has'} changes that were not committed"
