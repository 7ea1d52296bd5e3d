"""A region's text in the making: inputs, lines, and a generator of random numbers that all choices come from."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

FLOATS = frozenset({"f32", "bf16", "f16"})


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the draft by its name."""

    name: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return self.name

    @property
    def width(self) -> int:
        return self.shape[-1]


@dataclass
class Draft:
    """dtype: what tensors are stored in. autocast: f32 is stored, products and convolutions are of bf16."""

    rng: random.Random
    dtype: str
    autocast: bool
    training: bool
    inputs: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    used: dict[str, int] = field(default_factory=dict)

    def name(self, wish: str) -> str:
        """The wish, numbered from its second use on."""
        self.used[wish] = self.used.get(wish, 0) + 1
        return wish if self.used[wish] == 1 else f"{wish}{self.used[wish]}"

    def input(self, wish: str, *shape: int, dtype: str = "", suffix: str = "", grad: bool = True) -> Value:
        """A new input. grad: it has a gradient in training, where it is floating."""
        name, dtype = self.name(wish), dtype or self.dtype
        gradient = ".requires_grad" if self.training and grad and dtype in FLOATS else ""
        sizes = ", ".join(map(str, shape)) if shape else "()"
        self.inputs.append(f"{name}: {dtype}[{sizes}]{gradient}{suffix}")
        return Value(name, shape)

    def let(self, expression: str, shape: Sequence[int], wish: str = "z") -> Value:
        """A new line `name = expression` whose result has this shape."""
        name = self.name(wish)
        self.lines.append(f"{name} = {expression}")
        return Value(name, tuple(shape))

    def line(self, text: str) -> None:
        self.lines.append(text)

    def low(self, value: Value) -> Value:
        """As autocast hands it to a product."""
        return self.let(f"{value}.to(bf16)", value.shape, "h") if self.autocast else value

    def pick(self, *options: T) -> T:
        return options[self.rng.randrange(len(options))]

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def some(
        self, options: Sequence[Callable[[Draft, Value], Value]], most: int
    ) -> list[Callable[[Draft, Value], Value]]:
        """Up to so many of them, in the order given."""
        count = self.rng.randint(0, min(most, len(options)))
        chosen = sorted(self.rng.sample(range(len(options)), count))
        return [options[i] for i in chosen]

    def text(self, *results: Value) -> str:
        returned = ", ".join(r.name for r in results)
        return "\n".join([*self.inputs, *self.lines, f"return {returned}"]) + "\n"


Stage = Callable[[Draft, Value], Value]
Block = Callable[[Draft], str]
