"""The arguments of one recorded call as text: what is there, what is the default, what the trace lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from profiler.region.mining.output_shapes import Call
from profiler.region.mining.units import SCALAR_TYPES, Argument


class UnwritableError(Exception):
    """The operation cannot be written; the message says what the trace lacks."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one call as text. text[name] is set for tensors and numbers, not for what is absent."""

    base: str
    call: Call
    text: Mapping[str, str]

    def value(self, name: str) -> object:
        argument = self.call.arguments.get(name)
        return None if argument is None else argument.value

    def has(self, name: str) -> bool:
        return name in self.text

    def dtype(self, name: str = "dtype") -> str | None:
        number = self.value(name)
        return SCALAR_TYPES.get(number) if isinstance(number, int) and not isinstance(number, bool) else None

    def number(self, name: str) -> int | None:
        """The argument's value where that is a whole number."""
        value = self.value(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def rank(self, name: str) -> int:
        sigs = self.call.arguments[name].sigs
        return len(sigs[0].dims) if sigs else 0

    def first(self) -> str:
        return self.text[self.call.names[0]]

    def options(self, *names: str) -> str:
        """`, name=value` for each of names that is not the schema's default."""
        return "".join(f", {n}={self.text[n]}" for n in names if self.has(n) and not self.is_default(n))

    def is_default(self, name: str) -> bool:
        """The value is the schema's default. A tensor never is: where one may be absent, the default is None."""
        if self.call.arguments[name].kind in ("tensor", "tensors"):
            return False
        default, value = self.call.defaults.get(name, _ABSENT), self.value(name)
        if isinstance(default, list):
            default = tuple(default)
        if isinstance(value, tuple) and isinstance(default, tuple) and len(set(value)) == 1 == len(set(default)):
            return bool(value[0] == default[0])  # stride [1] of a 2-d convolution is [1, 1]
        return bool(value == default)

    def tensors(self, *names: str) -> str:
        """The tensors among names, up to the last that is there; absent ones between are None."""
        texts = [self.text.get(n) for n in names]
        while texts and texts[-1] is None:
            texts.pop()
        return ", ".join(t or "None" for t in texts)


_ABSENT = object()


def literal(argument: Argument) -> str:
    """A value as source text."""
    value = argument.value
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    if isinstance(value, tuple):
        return "[" + ", ".join(repr(v) for v in value) + "]"
    return repr(value)
