"""Backward with forward inside compiled graphs: autograd has one node for all of a graph, so what an operation of its
backward computes the gradient of is told by sizes and names. Torch-free.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from profiler.region.mining.unit_letters import COMPILED, letter
from profiler.region.mining.units import Sig, Unit

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


def own_forward(unit: Unit, forward: Sequence[Unit]) -> Unit | None:
    """Of a compiled graph's forward units the one whose gradient the unit computes; None where nothing tells."""
    sizes = _product_sizes(unit)
    if sizes is not None:
        return next((u for u in forward if _product_sizes(u) == sizes), None)
    if letter(unit) == COMPILED:
        return _by_words(unit, [u for u in forward if letter(u) == COMPILED])
    for family in (ATTENTION, CONVOLUTION):
        if family in unit.base:
            return next((u for u in forward if family in u.base and _reads_operands_of(unit, u)), None)
    of = unit.base.removesuffix("_backward")
    if of == unit.base:
        return None
    return next((u for u in forward if u.base.endswith(of) and _reads_operands_of(unit, u)), None)


def _product_sizes(unit: Unit) -> tuple[int, ...] | None:
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


def _reads_operands_of(unit: Unit, forward: Unit) -> bool:
    """Tensors of the forward unit's sizes are among what it reads."""
    sizes = {s.dims for s in _tensors(unit)}
    wanted = [s.dims for s in _tensors(forward) if len(s.dims) > 1][:3]
    return bool(wanted) and all(dims in sizes for dims in wanted)


def _tensors(unit: Unit) -> list[Sig]:
    return [s for a in unit.args if a.kind == "tensor" for s in a.sigs]


def _by_words(unit: Unit, forward: Sequence[Unit]) -> Unit | None:
    """The compiled kernel whose name shares most words with the backward kernel's; the longest of several."""
    words = _words(unit)
    best = max(forward, key=lambda u: (len(words & _words(u)), u.time_us), default=None)
    return best if best is not None and words & _words(best) else None


def _words(unit: Unit) -> frozenset[str]:
    """The words of a compiled kernel's name that say what it computes."""
    return frozenset(w for w in KERNEL.sub("", unit.name).split("_") if w and w not in SILENT and not w.isdigit())
