"""Region: a small program with typed inputs, a straight line of operations, and outputs. Torch-free.

A Region is its text: two regions are equal when their canonical texts are. `profiler.region.language.text` parses and
prints, `profiler.region.graph.lowering` lowers to aten, `profiler.region.graph.cost` counts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

ITEMSIZE: Mapping[str, int] = {
    "f64": 8, "f32": 4, "bf16": 2, "f16": 2, "f8e4m3": 1, "f8e5m2": 1, "f8e8m0": 1, "f4e2m1x2": 1,
    "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "bool": 1,
}  # fmt: skip
"""Bytes per element of every dtype of the language. An element of f4e2m1x2 is two numbers of half a byte, as torch
stores them: a row of 4096 numbers is f4e2m1x2[2048]."""

FLOATING = frozenset({"f64", "f32", "bf16", "f16", "f8e4m3", "f8e5m2"})
"""Floating-point numbers that have a gradient and are drawn like any other."""

PACKED = frozenset({"f4e2m1x2"})
"""Two numbers an element."""
SCALE = "f8e8m0"
"""A power of two, the scale of a block of mxfp8 or mxfp4 numbers."""

Size = int | str
"""A dimension: a number, or the name of a Symbol."""


class RegionError(Exception):
    """A region that cannot be read or does not fit together.

    line and column are 1-based, in the text as given; end_column is exclusive. code is stable and kebab-case.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "region-invalid",
        line: int = 1,
        column: int = 1,
        end_column: int | None = None,
        hint: str = "",
        text: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.line = line
        self.column = column
        self.end_column = end_column if end_column is not None else column + 1
        self.hint = hint
        self.text = text

    def __str__(self) -> str:
        """The message with the line it is about and a caret under the spot."""
        where = f"line {self.line}, column {self.column}: {self.message}"
        lines = re.split(r"\r\n|\r|\n", self.text)  # as Python counts them; str.splitlines knows more ends
        if 1 <= self.line <= len(lines):
            start = max(0, self.column - 120)
            source = lines[self.line - 1][start : start + 200]
            printable = "".join(c if c.isprintable() else " " if c == "\t" else "\ufffd" for c in source)
            caret = " " * (self.column - 1 - start) + "^" * max(1, min(self.end_column - self.column, 80))
            where += f"\n  {printable}\n  {caret}"
        return where + (f"\n  hint: {self.hint}" if self.hint else "")


@dataclass(frozen=True, slots=True)
class Symbol:
    """A size that varies: `N: sizes[37, 911]`. All symbols of a region vary together (zipped)."""

    name: str
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Input:
    """One typed input. shape () is a scalar tensor."""

    name: str
    dtype: str
    shape: tuple[Size, ...]
    requires_grad: bool = False
    channels_last: bool = False
    strides: tuple[int, ...] | None = None
    below: int | None = None  # index inputs: values are in [0, below)
    offsets: int | None = None  # sorted offsets of a jagged tensor, from 0 to this
    ones: float | None = None  # .mask(0.9): share of ones
    distinct: bool = field(
        default=False, compare=False
    )  # no value twice; not in the text: chosen by what it is used for
    line: int = field(default=0, compare=False, repr=False)  # 1-based line of the source; 0 where unknown


@dataclass(frozen=True, slots=True)
class Region:
    """inputs, statements, outputs. `nodes` are the statements as Python ast, with the line numbers of `source`.

    `profiler.region.language.text.parse` makes them; who changes a statement prints and parses the new text.
    """

    inputs: tuple[Input, ...]
    statements: tuple[str, ...]  # canonical source lines, loops with their indented bodies
    outputs: tuple[str, ...]  # canonical source of each returned expression
    symbols: tuple[Symbol, ...] = ()
    name: str = field(default="region", compare=False)
    nodes: tuple[ast.stmt, ...] = field(default=(), compare=False, repr=False)
    returned: tuple[ast.expr, ...] = field(default=(), compare=False, repr=False)
    source: str = field(default="", compare=False, repr=False)
    output_tuple: bool = False  # `return a,` and `return a, b` give a tuple; `return a` a tensor

    @property
    def bindings(self) -> tuple[dict[str, int], ...]:
        """Every zipped assignment of the symbols; one empty dict where nothing varies."""
        if not self.symbols:
            return ({},)
        count = len(self.symbols[0].sizes)
        return tuple({s.name: s.sizes[i] for s in self.symbols} for i in range(count))

    @property
    def requires_grad(self) -> bool:
        return any(i.requires_grad for i in self.inputs)

    def named(self, name: str) -> Region:
        return replace(self, name=name)


@dataclass(frozen=True, slots=True)
class Binding:
    """One assignment of the symbols in use: how often per step, and the observed time where a trace has it."""

    sizes: tuple[tuple[str, int], ...] = ()
    calls_per_step: float = 1.0
    time_us_per_step: float | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """How a region is used. share_of_step is None when unknown: then it counts as worth it, and says so."""

    bindings: tuple[Binding, ...] = (Binding(),)
    step_time_us: float | None = None
    share_of_step: float | None = None
    target_step_time_us: float | None = None
    launches_per_step: float | None = None
    observed: bool = False  # times come from a trace
