"""The commands that a brief names, as a shell takes them. Pure functions."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from app.agents.brief.tokens import token_bound
from app.objects.brief import BriefProof

BEFORE, AFTER = "BEFORE.json.gz", "AFTER.json.gz"
KERNEL = "FILE.py:FUNCTION"
TRACE, REGION, PREDICTED, PROGRAM = "TRACE.json.gz", "REGION.txt", "PREDICTED.json.gz", "FILE.py:FUNCTION"
"""What the reader puts in."""
LONGEST_PATH, LONGEST_WORDS = 60, 120
"""Tokens of a path, and of a program with its options, beyond which a word stands for it, and dots for the options."""


def given(file: str, stand_in: str = TRACE) -> str:
    """The file's path, or a word for one that is too long, or came from stdin."""
    return file if file != "-" and token_bound(file) <= LONGEST_PATH else stand_in


def given_program(words: Sequence[str]) -> tuple[str, ...]:
    """The words that `advise` takes for a program, the source first."""
    source = given(words[0], PROGRAM)
    return (source, *words[1:]) if token_bound(" ".join((source, *words[1:]))) <= LONGEST_WORDS else (source, "...")


def command(*words: str) -> str:
    """A command of ours, quoted."""
    return shlex.join(("tritonworthy", *words))


def trace_proofs(file: str, region: int | None) -> list[BriefProof]:
    """How to prove a change of a trace's step, and of one of its regions."""
    step: BriefProof = {
        "proves": f"the step is faster: record it again, the same way, as {AFTER}",
        "command": command("check", AFTER, "--baseline", file),
    }
    if region is None:
        return [step]
    return [step, *_region_proofs(("--trace", file, "--region", str(region)))]


def module_proofs(file: str, program: Sequence[str], region: int | None) -> list[BriefProof]:
    """The same of a step that nobody recorded. file: its predicted trace, "" where none is kept; program: the words
    that `advise` takes for it, none where the trace alone is known."""
    step: BriefProof = {
        "proves": f"the step is faster: record it before and after the change, as {BEFORE} and {AFTER}",
        "command": command("check", AFTER, "--baseline", BEFORE),
    }
    if region is None:
        return [step]
    saved: list[BriefProof] = [
        {
            "proves": f"nothing by itself: writes {PREDICTED}",
            "command": command("advise", *program, "--save", PREDICTED),
        }
    ]
    regions = _region_proofs(("--trace", file or PREDICTED, "--region", str(region)))
    return [step, *([] if file else saved), *regions]


def text_proofs(file: str) -> list[BriefProof]:
    """How to prove a change of a region's text."""
    return _region_proofs((file,))


def _region_proofs(region: Sequence[str]) -> list[BriefProof]:
    return [
        {
            "proves": "the advice holds on this GPU: right, and faster",
            "command": command("validate", *region, "--json"),
        },
        {
            "proves": "your own kernel is right and pays: exit status 0",
            "command": command("validate", *region, "--kernel", KERNEL, "--json"),
        },
    ]
