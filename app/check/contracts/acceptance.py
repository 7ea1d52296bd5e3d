"""What `tritonworthy check --accept` did to the lock, in lines for a terminal. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from app.check.contracts.lock import Entry, Lock
from app.check.contracts.model import Contract
from app.check.safe import visible

MAX_NAMES = 10


def acceptance(before: Lock, after: Lock, contracts: Sequence[Contract]) -> list[str]:
    """What is new, changed, as before or gone of the configuration's contracts, and what else the lock keeps."""
    of_configuration = {(c.name, c.about): c for c in contracts}
    was = {e.key: e for e in reversed(before.contracts)}
    now = {e.key: e for e in after.contracts}
    active = {key: e for key, e in now.items() if key[:2] in of_configuration}
    groups = {
        "new": [e for key, e in active.items() if key not in was],
        "changed": [e for key, e in active.items() if key in was and was[key] != e],
        "as before": [e for key, e in active.items() if was.get(key) == e],
        "gone": [e for key, e in was.items() if key not in now],
    }
    counted = [
        f"{len(entries)} {word} ({_names([_name(e, of_configuration.get(e.key[:2])) for e in entries])})"
        for word, entries in groups.items()
        if entries
    ]
    lines = [f"accepted: {', '.join(counted) or 'nothing, for nothing was answered'}"]
    if others := [f"{e.name} of {e.about}" for key, e in now.items() if key[:2] not in of_configuration]:
        lines.append(f"left in the lock, and not in this configuration: {_names(others)}")
    return lines


def _name(entry: Entry, contract: Contract | None) -> str:
    return f"{entry.name}: {entry.of}" if contract is not None and contract.pattern else entry.name


def _names(names: Sequence[str]) -> str:
    more = [f"{len(names) - MAX_NAMES} more"] if names[MAX_NAMES:] else []
    return ", ".join([*(visible(name, 120) for name in names[:MAX_NAMES]), *more])
