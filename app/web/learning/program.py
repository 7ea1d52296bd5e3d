"""One Triton program's life, step by step, with numbers: which addresses, which mask, what is loaded and stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from app.web.learning.ladder import FOLDER

X = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3)
Y = (2, 7, 1, 8, 2, 8, 1, 8, 2, 8)
BLOCK = 4
PROGRAMS = -(-len(X) // BLOCK)
BEYOND = PROGRAMS * BLOCK
"""Elements that the programs together would touch without a mask."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step. lines: of the code, from 1; lanes: what each of the BLOCK lanes holds; masked: lanes that are off."""

    name: str
    text: str
    lines: tuple[int, ...]
    lanes: tuple[tuple[str, tuple[str, ...]], ...]
    masked: tuple[bool, ...]


def code() -> list[str]:
    """The kernel, line by line."""
    return (FOLDER / "program.txt").read_text(encoding="utf-8").rstrip().splitlines()


def _line(*words: str) -> tuple[int, ...]:
    """Numbers of the lines that begin with these words."""
    return tuple(i for i, line in enumerate(code(), 1) if line.strip().startswith(words))


def offsets(program: int) -> list[int]:
    """The elements of one program."""
    return [program * BLOCK + lane for lane in range(BLOCK)]


def stores_of(program: int) -> dict[int, int]:
    """Element -> what this program stores there."""
    return {at: X[at] + Y[at] for at in offsets(program) if at < len(X)}


class Cell(TypedDict):
    """An element of the vectors, or beyond their end. own: the program touches it; x, y, z: values, "" for none."""

    at: int
    own: bool
    there: bool
    x: int | str
    y: int | str
    z: int | str


class Life(TypedDict):
    """Context of partials/learn/program.html."""

    program: int
    programs: int
    block: int
    n: int
    steps: tuple[Step, ...]
    cells: list[Cell]
    program_code: list[str]


def describe_life(program: int) -> Life:
    """One program step by step, 0 to PROGRAMS - 1."""
    at = offsets(program)
    inside = [i < len(X) for i in at]
    off = tuple(not i for i in inside)
    x, y = ([values[i] if i < len(values) else 0 for i in at] for values in (X, Y))

    def format_values(values: Sequence[object]) -> tuple[str, ...]:
        return tuple(str(v) for v in values)

    steps = (
        Step("Pointers", f"Program {program} works out which elements are its own: {program} × {BLOCK} and the next "
             f"{BLOCK - 1}. All lanes do it at once.", _line("at ="), (("at", format_values(at)),), (False,) * BLOCK),
        Step("Mask", f"n is {len(X)}: " + (f"{sum(off)} of its lanes would read beyond the end, so they are off."
             if any(off) else "all of its lanes are inside."), _line("inside ="),
             (("at", format_values(at)), ("inside", tuple("yes" if i else "no" for i in inside))), off),
        Step("Load", "From HBM to the chip, once. A lane that is off asks for nothing and holds `other`.",
             _line("x = tl.load", "y = tl.load"), (("x", format_values(x)), ("y", format_values(y))), off),
        Step("Compute", "In registers: nothing goes through memory here, however much is computed.", _line("z = x"),
             (("z", format_values([a + b for a, b in zip(x, y, strict=True)])),), off),
        Step("Store", "Back to HBM, once, under the same mask: elements that are not there are not written.",
             _line("tl.store"), (("z", format_values([stores_of(program).get(i, "–") for i in at])),), off),
    )  # fmt: skip
    cells: list[Cell] = [
        {"at": i, "own": i in at, "there": i < len(X), "x": X[i] if i < len(X) else "", "y": Y[i] if i < len(X) else "",
         "z": stores_of(program).get(i, "")}
        for i in range(BEYOND)
    ]  # fmt: skip
    return {"program": program, "programs": PROGRAMS, "block": BLOCK, "n": len(X), "steps": steps, "cells": cells,
            "program_code": code()}  # fmt: skip
