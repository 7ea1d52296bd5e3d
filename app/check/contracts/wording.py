"""What became of a contract, in words: what it was, what it is, and what changed between."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from app import __version__
from app.check.contracts.lock import Entry, hash_of
from app.check.contracts.model import Answer, Contract

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def number(count: int) -> str:
    """As a word, up to ten."""
    return _NUMBERS[count] if count < len(_NUMBERS) else f"{count:,}"


def counted(count: int, one: str, many: str = "") -> str:
    """one kernel, three kernels, no library call."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def public(version: str) -> str:
    """A version without what tells builds of it apart: 2.13.0 of 2.13.0+cpu."""
    try:
        return Version(version).public
    except InvalidVersion:
        return version


@dataclass(frozen=True, slots=True)
class Verbs:
    """Of a figure: as it was, as it is, and as it is now that it was another: was, is, is now."""

    was: str
    has: str
    now_has: str


@dataclass(frozen=True, slots=True)
class Change:
    """A figure in words. before: as it was accepted, "" where it was not; short: `after` where it follows `before`."""

    before: str
    after: str
    short: str
    verbs: Verbs


def then_and_now(contract: Contract, was: Entry | None, now: Answer, change: Change) -> str:
    """ "RMSNorm was one kernel under torch 2.13.0 and is now three under 2.14.0". was: what was accepted."""
    name = now.of if contract.pattern else contract.name
    torch = f"under torch {public(now.torch)}"
    if was is None or not change.before or change.before == change.after:
        again = ", as when it was accepted" if was is not None and change.before else ""
        return f"{name} {change.verbs.has} {change.after} {torch}{again}"
    before, after = f"{name} {change.verbs.was} {change.before}", f"{change.verbs.now_has} {change.short}"
    edited = was.text_sha256 != hash_of(now.text)
    if software := _software(was, now):
        more = f", {_text_of(contract)} edited as well" if edited else ""
        return f"{before} under {software[0]} and {after} under {software[1]}{more}"
    if edited:
        return f"{before} and {after} since {_text_of(contract)} was edited ({torch})"
    if settings := _settings(was, now):
        return f"{before} {settings[0]} and {after} {settings[1]} ({torch})"
    if was.tritonworthy != __version__:
        return f"{before} as Tritonworthy {was.tritonworthy} asks and {after} as {__version__} does ({torch})"
    return f"{before} and {after} {torch}"


def _software(was: Entry, now: Answer) -> tuple[str, str] | None:
    """The versions that differ: torch's, else Triton's."""
    for name, old, new in (("torch", was.torch, now.torch), ("Triton", was.triton, now.triton)):
        if public(old) != public(new):
            return f"{name} {public(old)}", public(new)
    return None


def _text_of(contract: Contract) -> str:
    return "the code" if contract.module else "the trace's region" if contract.pattern else "the text"


def _settings(was: Entry, now: Answer) -> tuple[str, str] | None:
    """What the contract asked for then and now, where that differs."""
    for before, after in (
        (f"on {was.device}", f"on {now.device}"),
        (f"in mode {was.mode}", f"in mode {now.mode}"),
        (
            "in training" if was.training else "without gradients",
            "in training" if now.training else "without gradients",
        ),
    ):
        if before != after:
            return before, after
    return None
