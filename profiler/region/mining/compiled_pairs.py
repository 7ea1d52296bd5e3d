"""Backward with forward inside compiled graphs: autograd has one node for all of a graph, so what an operation of its
backward computes the gradient of is told by sizes and names. Torch-free.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from profiler.region.mining.unit_letters import COMPILED, letter
from profiler.region.mining.units import Sig, Unit

Dims = tuple[int, ...]
NODE = "CompiledFunction"
"""In the names of autograd's nodes of compiled graphs."""
PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "matmul", "linear"})
ATTENTION, CONVOLUTION = "attention", "convolution"
KERNEL = re.compile(r"^triton_[a-z]+_fused_|_\d+$|\.\.\.$")
SILENT = frozenset(
    "add mul sub div sum view t to copy clone unsafe permute transpose reshape expand slice select squeeze unsqueeze "
    "backward native where full detach alias mm addmm bmm constant pad nd".split()
)
"""Words of a compiled kernel's name that say nothing of whose gradient it makes, or stand in most."""


def in_compiled_graph(unit: Unit) -> bool:
    """It runs in the backward of a compiled graph."""
    return NODE in unit.node


class GraphForward:
    """The forward units of one compiled graph, sorted once by what tells whose gradient a backward unit computes."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self._products: dict[Dims, Unit] = {}
        self._by_base: dict[str, dict[Dims, dict[frozenset[Dims], _Placed]]] = {}
        kernels: dict[frozenset[str], _Placed] = {}
        for place, unit in enumerate(units):
            sizes = _product_sizes(unit)
            if sizes is not None:
                self._products.setdefault(sizes, unit)
            if wanted := _operands(unit):
                alike = self._by_base.setdefault(unit.base, {}).setdefault(wanted[0], {})
                alike.setdefault(frozenset(wanted), _Placed(place, unit))
            if letter(unit) == COMPILED:
                words = _words(unit.name)
                longest = kernels.get(words)
                if longest is None or unit.time_us > longest.unit.time_us:
                    kernels[words] = _Placed(place, unit)
        self._kernels = tuple(kernels.values())
        self._with_word: dict[str, list[int]] = {}
        for number, words in enumerate(kernels):
            for word in words:
                self._with_word.setdefault(word, []).append(number)
        self._of_words: dict[frozenset[str], Unit | None] = {}
        self._of_operation: dict[tuple[str, frozenset[Dims]], Unit | None] = {}

    def own(self, unit: Unit) -> Unit | None:
        """The one whose gradient the unit computes; None where nothing tells."""
        sizes = _product_sizes(unit)
        if sizes is not None:
            return self._products.get(sizes)
        if letter(unit) == COMPILED:
            words = _words(unit.name)
            if words not in self._of_words:
                self._of_words[words] = self._sharing_most(words)
            return self._of_words[words]
        for family in (ATTENTION, CONVOLUTION):
            if family in unit.base:
                return self._first_read(unit, [b for b in self._by_base if family in b])
        of = unit.base.removesuffix("_backward")
        if of == unit.base:
            return None
        return self._first_read(unit, [b for b in self._by_base if b.endswith(of)])

    def _sharing_most(self, words: frozenset[str]) -> Unit | None:
        """The compiled kernel whose name shares most words; the longest of several, the first of those."""
        shared = Counter(number for word in words for number in self._with_word.get(word, ()))
        best = max(((n, (k := self._kernels[i]).unit.time_us, -k.place, i) for i, n in shared.items()), default=None)
        return None if best is None else self._kernels[best[-1]].unit

    def _first_read(self, unit: Unit, bases: Sequence[str]) -> Unit | None:
        """The first operation of these names whose operands' sizes are among those of what the unit reads."""
        sizes = frozenset(s.dims for s in _tensors(unit))
        key = (unit.base, sizes)
        if key not in self._of_operation:
            near = [alike for b in bases for dims in sizes if (alike := self._by_base[b].get(dims)) is not None]
            firsts = [placed for alike in near for wanted, placed in alike.items() if wanted <= sizes]
            self._of_operation[key] = min(firsts, key=lambda p: p.place).unit if firsts else None
        return self._of_operation[key]


@dataclass(frozen=True, slots=True)
class _Placed:
    """A unit with its place among a graph's forward units."""

    place: int
    unit: Unit


def _product_sizes(unit: Unit) -> Dims | None:
    """Of a matrix product the sizes that it and its two gradients share: rows, columns and what is summed over, with
    the number of products; None for other operations."""
    operands = [s.dims for s in _tensors(unit)][unit.base in ("addmm", "baddbmm") :][:2]
    if unit.base not in PRODUCTS or len(operands) < 2 or min(map(len, operands)) < 2:
        return None
    first, second = operands
    *batch, rows, summed = first
    if unit.base == "linear":
        batch, rows = [], rows * _times(batch)
        columns = second[0]
    else:
        columns = second[-1]
    return (_times(batch), *sorted((rows, summed, columns)))


def _times(sizes: Sequence[int]) -> int:
    count = 1
    for size in sizes:
        count *= size
    return count


def _operands(unit: Unit) -> list[Dims]:
    """Sizes of the first tensors of two dimensions and more that the unit reads; its gradient reads such ones again."""
    return [s.dims for s in _tensors(unit) if len(s.dims) > 1][:3]


def _tensors(unit: Unit) -> list[Sig]:
    return [s for a in unit.args if a.kind == "tensor" for s in a.sigs]


@functools.lru_cache(maxsize=20_000)
def _words(name: str) -> frozenset[str]:
    """The words of a compiled kernel's name that say what it computes."""
    return frozenset(w for w in KERNEL.sub("", name).split("_") if w and w not in SILENT and not w.isdigit())
