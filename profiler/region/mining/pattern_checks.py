"""What letters cannot tell: whether the units that an expression took are the pattern, by sizes, types and layouts.

Each function takes the units and their letters and gives the indices of those that are it; none of them: no match.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from profiler.region.mining.output_shapes import contiguous, outputs, same_layout
from profiler.region.mining.titles import residual
from profiler.region.mining.units import Sig, Unit

Check = Callable[[Sequence[Unit], str], Sequence[int]]

PACKED = frozenset({"i8", "u8", "i32", "f8e4m3", "f8e5m2"})
FLOATS = frozenset({"f32", "f16", "bf16", "f64"})


def norm(units: Sequence[Unit], letters: str) -> Sequence[int]:
    """Without the residual product or add behind it, unless it is the product with the inverse."""
    end = len(units)
    while end > 1 and letters[end - 1] in "xa" and residual(units[end - 1]) and letters[end - 2] not in "rR":
        end -= 1
    return range(end)


def attention(units: Sequence[Unit], letters: str) -> Sequence[int]:
    """The softmax is of what the first product made: as many elements, where both are known."""
    made = outputs(units[letters.index("M")])
    at = next(i for i, symbol in enumerate(letters) if symbol in "Sb")
    read = _tensor(units[at])
    if made and read and made[0].elements != read.elements:
        return range(0)
    return range(len(units))


def logits(units: Sequence[Unit], letters: str) -> Sequence[int]:
    """The casts and copies before a cross entropy that are of its logits: as wide, floating, and no fewer."""
    loss = _tensor(units[-1])
    return [i for i, unit in enumerate(units) if unit is units[-1] or loss is None or _covers(_tensor(unit), loss)]


def _covers(sig: Sig | None, loss: Sig) -> bool:
    if sig is None or not sig.dims or not loss.dims or sig.dtype not in FLOATS:
        return False
    return sig.elements == loss.elements or (sig.dims[-1] == loss.dims[-1] and sig.elements > loss.elements)


def log_sum_exp(units: Sequence[Unit], letters: str) -> Sequence[int]:
    """logsumexp(x) - x[target]: no other reduction."""
    return range(len(units) if any(u.base == "logsumexp" for u in units) else 0)


def dequantise(units: Sequence[Unit], letters: str) -> Sequence[int]:
    """A packed weight made floating, scaled, and read by the product."""
    cast = letters.index("t")
    packed, weight = _tensor(units[cast]), next((s for s in outputs(units[-2])), None)
    if packed is None or packed.dtype not in PACKED or len(packed.dims) < 2 or weight is None:
        return range(0)
    read = [s.elements for a in units[-1].args if a.kind == "tensor" for s in a.sigs]
    return range(len(units)) if weight.dtype in FLOATS and weight.elements in read else range(0)


def halves(units: Sequence[Unit], letters: str) -> Sequence[int]:
    """gelu(a) * b of the two halves of one tensor: both are slices of it, laid out alike."""
    gate = _tensor(units[0])
    others = [s for a in units[1].args if a.kind == "tensor" for s in a.sigs]
    if gate is None or gate.strides is None or same_layout(gate.dims, gate.strides, contiguous(gate.dims)):
        return range(0)
    beside = any(s.dims == gate.dims and s.strides == gate.strides for s in others)
    return range(len(units)) if beside else range(0)


def rotation(units: Sequence[Unit], letters: str) -> Sequence[int]:
    """Complex products with the casts and copies beside them that are of the same numbers, taken as real ones."""
    first, last = letters.index("U"), letters.rindex("U")
    sizes = {2 * s.elements for u in units[first : last + 1] for s in outputs(u)}
    begin, end = first, last + 1
    while begin and _is_of(outputs(units[begin - 1]), sizes):
        begin -= 1
    while end < len(units) and _is_of([s for s in [_tensor(units[end])] if s is not None], sizes):
        end += 1
    if not sizes:  # not recorded: a cast for each product, where there is one
        count = last + 1 - first
        begin, end = max(0, first - count), min(len(units), last + 1 + count)
    return range(begin, end)


def _is_of(sigs: Sequence[Sig], sizes: Set[int]) -> bool:
    return any(s.dtype in ("f32", "f64") and s.elements in sizes for s in sigs)


def _tensor(unit: Unit) -> Sig | None:
    return next((a.sigs[0] for a in unit.args if a.kind == "tensor"), None)


CHECKS: Mapping[str, Check] = {
    "norm": norm, "attention": attention, "logits": logits, "log_sum_exp": log_sum_exp, "dequantise": dequantise,
    "halves": halves, "rotation": rotation, "": lambda units, letters: range(len(units)),
}  # fmt: skip
