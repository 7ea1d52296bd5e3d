"""Which runs may be compared, and in which part of their environments two runs differ. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from app.history.model import Cause, Environment

PARTS = {"method": "the way it was measured", "hardware": "the device", "software": "the software"}
"""In the order in which a cause is named: another method explains any difference, another device most."""


def differences(before: Environment, after: Environment) -> dict[Cause, str]:
    """Each part that changed, with the change in words. What one of both does not know has not changed."""
    changed: dict[Cause, str] = {}
    if _differ(before.method, after.method):
        changed["method"] = f"measured as {after.method} instead of {before.method}"
    if _differ(before.device, after.device):
        changed["hardware"] = f"on {after.device} instead of {before.device}"
    upgraded = [
        f"{name} {after.software[name]} instead of {version}"
        for name, version in sorted(before.software.items())
        if _differ(version, after.software.get(name, ""))
    ]
    if upgraded:
        changed["software"] = f"with {', '.join(upgraded)}"
    return changed


def groups(environments: Sequence[Environment]) -> list[int]:
    """The number of each one's group, counted from 0 as they come: those of a group do not differ in anything known.

    An environment that comes back is in its old group: runners of two kinds take turns.
    """
    kinds: list[Environment] = []
    numbers = []
    for environment in environments:
        known = (n for n, kind in enumerate(kinds) if _alike(kind, environment))
        number = next(known, len(kinds))
        if number == len(kinds):
            kinds.append(environment)
        else:
            kinds[number] = _both(kinds[number], environment)
        numbers.append(number)
    return numbers


def _alike(one: Environment, other: Environment) -> bool:
    """Whether `differences` has none, without its words: each run is compared with each environment before it."""
    return not (
        _differ(one.device, other.device)
        or _differ(one.method, other.method)
        or any(_differ(version, other.software.get(name, "")) for name, version in one.software.items())
    )


def _both(one: Environment, other: Environment) -> Environment:
    """What either knows."""
    return Environment(one.device or other.device, {**other.software, **one.software}, one.method or other.method)


def _differ(before: str, after: str) -> bool:
    return bool(before and after) and before != after
