"""Between which whole numbers the values of an integer tensor lie, as far as the text says it.

What an input declares (`.below(64)`), what a type holds and what indices of torch point into go through the operations
that keep or bound numbers. Nothing is assumed: a tensor of which nothing is known has no range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from profiler.region.language.fanout import example_size
from profiler.region.language.signatures import Args, Call, Kwargs
from profiler.region.language.writes import written
from profiler.region.model import Input

Range = tuple[int, int]
"""The least and the largest value that may occur."""
Rule = Callable[["Ranges", Args, "Arguments"], Range | None]


class Arguments:
    """A call's arguments by name, or by place where its signature is not known (an operator)."""

    def __init__(self, call: Call | None, args: Args, kwargs: Kwargs) -> None:
        self.call, self.args, self.kwargs = call, args, kwargs

    def get(self, place: int, *names: str) -> Any:
        if self.call is not None:
            return self.call.first(*names)
        named = next((self.kwargs[n] for n in names if n in self.kwargs), None)
        return self.args[place] if place < len(self.args) else named


class Ranges:
    """Of every tensor of a program. Tensors are known by identity: who asks holds them."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[torch.Tensor, Range]] = {}

    def declare(self, tensor: torch.Tensor, item: Input) -> None:
        """What the input's line says."""
        if item.below is not None or item.offsets is not None:
            self._keep(tensor, (0, item.below - 1 if item.below is not None else item.offsets or 0))

    def of(self, value: object) -> Range | None:
        """Of a tensor, or of a whole number; None where nothing bounds it."""
        if isinstance(value, int | torch.SymInt) and not isinstance(value, bool):
            number = example_size(value)
            return number, number
        if not isinstance(value, torch.Tensor) or value.dtype.is_floating_point or value.dtype.is_complex:
            return None
        if id(value) in self._of:
            return self._of[id(value)][1]
        return _held_by(value.dtype) if value.dtype in SMALL else None

    def note(self, label: str, call: Call | None, args: Args, kwargs: Kwargs, result: object) -> None:
        """After a call: what is known of its result. What it writes into is no longer known."""
        if changed := written(label, call, args, kwargs):
            self._forget(changed)
        elif label in INDICES:
            self._note_indices(label, Arguments(call, args, kwargs), result)
        elif label in RULES and (known := RULES[label](self, args, Arguments(call, args, kwargs))) is not None:
            for part in result if isinstance(result, tuple | list) else [result]:
                self._keep(part, known)

    def _note_indices(self, label: str, given: Arguments, result: object) -> None:
        """Values and where they are from, or the places alone."""
        source = given.get(0, "self", "input")
        if not isinstance(source, torch.Tensor):
            return
        dim = given.get(INDICES[label], "dim", "other")
        if isinstance(dim, torch.Tensor):  # the larger one of two tensors
            if (known := RULES[f"{label}imum"](self, (source, dim), given)) is not None:
                self._keep(result, known)
            return
        sizes = [example_size(s) for s in source.shape] or [1]
        whole = dim is None and label in ("argmax", "argmin")
        dim = dim if isinstance(dim, int) else -1
        if not whole and not -len(sizes) <= dim < len(sizes):
            return
        places = (0, max(0, (torch.Size(sizes).numel() if whole else sizes[dim]) - 1))
        values = self.of(source)
        if isinstance(result, tuple | list):
            if values is not None:
                self._keep(result[0], values)
            self._keep(result[1], places)
        elif label.startswith("arg"):
            self._keep(result, places)
        elif values is not None:  # the largest of all: a value
            self._keep(result, values)

    def _keep(self, tensor: object, known: Range) -> None:
        """What does not fit the type has come round to other numbers."""
        if not isinstance(tensor, torch.Tensor) or tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            return
        low, high = _held_by(tensor.dtype)
        if low <= known[0] and known[1] <= high:
            self._of[id(tensor)] = tensor, known

    def _forget(self, changed: Sequence[torch.Tensor]) -> None:
        """What shares memory with these."""
        for tensor in changed:
            memory = tensor.untyped_storage()._cdata
            for key in [k for k, (t, _) in self._of.items() if t.untyped_storage()._cdata == memory]:
                del self._of[key]


SMALL = frozenset({torch.bool, torch.uint8, torch.int8, torch.int16})
"""Types that are a range by themselves."""
INDICES: Mapping[str, int] = MappingProxyType(
    {"argmax": 1, "argmin": 1, "argsort": 1, "sort": 1, "max": 1, "min": 1, "topk": 2, "kthvalue": 2}
)
"""What gives places along a dimension -> where that dimension stands among its arguments; else it is the last."""


def _held_by(dtype: torch.dtype) -> Range:
    if dtype == torch.bool:
        return 0, 1
    info = torch.iinfo(dtype)
    return info.min, info.max


def _same(ranges: Ranges, args: Args, given: Arguments) -> Range | None:
    """Its elements are elements of the first argument; a view in another type is of its bits."""
    bits = any(isinstance(a, torch.dtype) for a in args[1:]) or "dtype" in given.kwargs
    return ranges.of(args[0]) if args and not bits else None


def _cast(ranges: Ranges, args: Args, given: Arguments) -> Range | None:
    return ranges.of(args[0]) if args else None


def _of_all(ranges: Ranges, args: Args, given: Arguments) -> Range | None:
    """Its elements are elements of any argument but a condition."""
    several = args[0] if args and isinstance(args[0], tuple | list) else args
    known = [ranges.of(a) for a in several]
    if not known or any(r is None for r in known):
        return None
    return min(r[0] for r in known if r), max(r[1] for r in known if r)


def _of_two(choose: Callable[[int, int], int]) -> Rule:
    def rule(ranges: Ranges, args: Args, given: Arguments) -> Range | None:
        known = [ranges.of(a) for a in args[:2]]
        if len(known) < 2 or known[0] is None or known[1] is None:
            return None
        return choose(known[0][0], known[1][0]), choose(known[0][1], known[1][1])

    return rule


def _where(ranges: Ranges, args: Args, given: Arguments) -> Range | None:
    return _of_all(ranges, (given.get(1, "self", "input"), given.get(2, "other")), given)


def _clamped(ranges: Ranges, args: Args, given: Arguments) -> Range | None:
    """The smaller one of the upper bound and the larger one of the lower bound and the value."""
    if not args or not isinstance(args[0], torch.Tensor) or args[0].dtype.is_floating_point:
        return None
    least, most = ranges.of(args[0]) or _held_by(args[0].dtype)
    if (low := ranges.of(given.get(1, "min"))) is not None:
        least, most = max(least, low[0]), max(most, low[1])
    if (high := ranges.of(given.get(2, "max"))) is not None:
        least, most = min(least, high[0]), min(most, high[1])
    return least, most


def _remainder(ranges: Ranges, args: Args, given: Arguments) -> Range | None:
    """With the divisor's sign, as torch and Python have it."""
    divisor = ranges.of(given.get(1, "other"))
    return (0, divisor[1] - 1) if divisor and divisor[0] > 0 else None


def _floored(ranges: Ranges, args: Args, given: Arguments) -> Range | None:
    known, divisor = ranges.of(args[0]) if args else None, ranges.of(given.get(1, "other"))
    if known is None or divisor is None or divisor[0] <= 0:
        return None
    ends = [k // d for k in known for d in divisor]
    return min(ends), max(ends)


def _ends(combine: Callable[[int, int], int]) -> Rule:
    """The ends of a sum, difference or product are among those of its operands' ends."""

    def rule(ranges: Ranges, args: Args, given: Arguments) -> Range | None:
        known, other = ranges.of(given.get(0, "self", "input")), ranges.of(given.get(1, "other"))
        scaled = given.call is not None and given.call.first("alpha", default=1) != 1
        if known is None or other is None or scaled:
            return None
        ends = [combine(a, b) for a in known for b in other]
        return min(ends), max(ends)

    return rule


def _masked(ranges: Ranges, args: Args, given: Arguments) -> Range | None:
    """Bits of both: no more than the smaller of two that are not negative."""
    both = [ranges.of(given.get(0, "self", "input")), ranges.of(given.get(1, "other"))]
    positive = [r[1] for r in both if r is not None and r[0] >= 0]
    return (0, min(positive)) if positive else None


def _looked_up(ranges: Ranges, args: Args, given: Arguments) -> Range | None:
    """How many of the sorted numbers are smaller."""
    borders = given.get(1, "boundaries")
    return (0, example_size(borders.shape[-1])) if isinstance(borders, torch.Tensor) and borders.dim() else None


def _drawn(ranges: Ranges, args: Args, given: Arguments) -> Range | None:
    """Places along the last dimension, by their weights."""
    weights = given.get(0, "self", "input")
    return (0, example_size(weights.shape[-1]) - 1) if isinstance(weights, torch.Tensor) and weights.dim() else None


def _uniform(ranges: Ranges, args: Args, given: Arguments) -> Range | None:
    if given.call is None:
        return None
    low, high = ranges.of(given.call.first("low", default=0)), ranges.of(given.call.first("high", "n"))
    return None if low is None or high is None else (low[0], high[1] - 1)


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        name: rule
        for names, rule in {
            """view reshape flatten unflatten ravel contiguous clone squeeze unsqueeze permute transpose t swapaxes
            swapdims movedim moveaxis expand expand_as broadcast_to index index_select gather take take_along_dim
            select narrow chunk split tensor_split unbind unfold flip roll repeat tile msort amax
            amin detach diagonal view_as reshape_as""": _same,
            "to long int short type": _cast,
            "cat concat stack hstack vstack": _of_all,
            "minimum": _of_two(min),
            "maximum": _of_two(max),
            "where": _where,
            "clamp clip": _clamped,
            "mod remainder": _remainder,
            "floordiv floor_divide": _floored,
            "add": _ends(lambda a, b: a + b),
            "sub": _ends(lambda a, b: a - b),
            "mul": _ends(lambda a, b: a * b),
            "and_ bitwise_and": _masked,
            "bucketize": _looked_up,
            "multinomial": _drawn,
            "randint randperm": _uniform,
        }.items()
        for name in names.split()
    }
)
"""By the operation's name."""
