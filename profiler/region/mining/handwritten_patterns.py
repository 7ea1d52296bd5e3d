"""What people write by hand, as sequences of operations.

Each unit of a step is one letter (see unit_letters); a pattern is a regular expression over the letters. A pattern's
groups, where it has any, are the units it takes; letters outside its groups are left for others. Earlier patterns win.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from profiler.region.mining.output_shapes import contiguous, outputs, same_layout
from profiler.region.mining.titles import residual
from profiler.region.mining.units import Sig, Unit

Check = Callable[[Sequence[Unit], str], Sequence[int]]

PACKED = frozenset({"i8", "u8", "i32", "f8e4m3", "f8e5m2"})
FLOATS = frozenset({"f32", "f16", "bf16", "f64"})


@dataclass(frozen=True, slots=True)
class Pattern:
    """kind and title as the page shows them; what it looks like.

    check: says which of the units taken are it, by sizes, data types and layouts, which letters cannot tell: from the
    units and their letters the indices of those that are it; none of them is no match.
    """

    kind: str
    title: str
    by_hand: bool
    expression: re.Pattern[str]
    check: Check


def _accept(units: Sequence[Unit], letters: str) -> Sequence[int]:
    return range(len(units))


def _check_norm(units: Sequence[Unit], letters: str) -> Sequence[int]:
    """Without the residual product or add behind it, unless it is the product with the inverse."""
    end = len(units)
    while end > 1 and letters[end - 1] in "xa" and residual(units[end - 1]) and letters[end - 2] not in "rR":
        end -= 1
    return range(end)


def _check_attention(units: Sequence[Unit], letters: str) -> Sequence[int]:
    """The softmax is of what the first product made, and the second reads it: as many elements, where known."""
    produced = outputs(units[letters.index("M")])
    at = next(i for i, symbol in enumerate(letters) if symbol in "Sb")
    read = _tensor(units[at])
    if produced and read and produced[0].elements != read.elements:
        return range(0)
    product = next(u for u, symbol in zip(reversed(units), reversed(letters), strict=True) if symbol == "M")
    operands = [s.elements for a in product.args for s in a.sigs]
    return range(len(units)) if read is None or not operands or read.elements in operands else range(0)


def _check_logits(units: Sequence[Unit], letters: str) -> Sequence[int]:
    """The casts and copies before a cross entropy that are of its logits: as wide, floating, and no fewer."""
    loss = _tensor(units[-1])
    return [i for i, unit in enumerate(units) if unit is units[-1] or loss is None or _covers(_tensor(unit), loss)]


def _covers(sig: Sig | None, loss: Sig) -> bool:
    if sig is None or not sig.dims or not loss.dims or sig.dtype not in FLOATS:
        return False
    return sig.elements == loss.elements or (sig.dims[-1] == loss.dims[-1] and sig.elements > loss.elements)


def _check_log_sum_exp(units: Sequence[Unit], letters: str) -> Sequence[int]:
    """logsumexp(x) - x[target]: no other reduction."""
    return range(len(units) if any(u.base == "logsumexp" for u in units) else 0)


def _check_dequantise(units: Sequence[Unit], letters: str) -> Sequence[int]:
    """A packed weight made floating, scaled, and read by the product."""
    cast = letters.index("t")
    packed, weight = _tensor(units[cast]), next((s for s in outputs(units[-2])), None)
    if packed is None or packed.dtype not in PACKED or len(packed.dims) < 2 or weight is None:
        return range(0)
    read = [s.elements for a in units[-1].args if a.kind == "tensor" for s in a.sigs]
    return range(len(units)) if weight.dtype in FLOATS and weight.elements in read else range(0)


def _check_halves(units: Sequence[Unit], letters: str) -> Sequence[int]:
    """gelu(a) * b of the two halves of one tensor: both are slices of it, laid out alike."""
    gate = _tensor(units[0])
    others = [s for a in units[1].args if a.kind == "tensor" for s in a.sigs]
    if gate is None or gate.strides is None or same_layout(gate.dims, gate.strides, contiguous(gate.dims)):
        return range(0)
    has_other_half = any(s.dims == gate.dims and s.strides == gate.strides for s in others)
    return range(len(units)) if has_other_half else range(0)


def _check_rotation(units: Sequence[Unit], letters: str) -> Sequence[int]:
    """Complex products with the casts and copies around them that are of the same numbers, taken as real ones."""
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


def _pattern(kind: str, title: str, expression: str, by_hand: bool = True, check: Check = _accept) -> Pattern:
    return Pattern(kind, title, by_hand, re.compile(expression), check)


_EPS = "[aP]"
_SOFTMAX = "(?:S|bsebd|sebd)"
_INVERSE = "(?:r[xX]|q(?:[dV]|RX?[xX]))"
PATTERNS: tuple[Pattern, ...] = (
    _pattern(
        "attention", "attention by hand",
        rf"t{{0,3}}[xX]?X?My?[xXdVaPTwfFhsty]{{0,16}}{_SOFTMAX}t?[wx]?D?t?y?Mt?", check=_check_attention,
    ),
    _pattern(
        "layer_norm", "LayerNorm by hand",
        rf"t?(?:m(?:t?s(?:[px]m|v)|v[sT]|sv){_EPS}{_INVERSE}|msx?v{_EPS}?[dV]|vs{_EPS}{_INVERSE}|v{_EPS}rs[xX])t?x?a?t?",
        check=_check_norm,
    ),
    _pattern("rms_norm", "RMSNorm by hand", rf"t?[px]m{_EPS}?r(?:xt|tx|x)(?:[Pa]?x)?t?", check=_check_norm),
    _pattern(
        "rms_norm", "RMSNorm by hand", rf"t?[px]m{_EPS}?q(?:RX?)?(?:dt|td|d|xt|tx|x)(?:[Pa]?x)?t?", check=_check_norm
    ),
    _pattern("rms_norm", "RMSNorm by hand", rf"t?H[XV]{_EPS}?(?:R?X?[xd])(?:t?x)?t?"),
    _pattern("normalisation", "L2 normalise by hand", r"t?H[uP]?d(?:t?x)?t?"),
    _pattern("gelu_tanh", "GELU (tanh) by hand", rf"[xX]?t?[xXpt]{{2,4}}{_EPS}[xX]{{1,2}}h{_EPS}[xX]{{1,2}}"),
    _pattern("pointwise", "GELU by hand", rf"[xX]?[VX]k{_EPS}[xX]{{1,2}}"),
    _pattern("rope", "RoPE", r"[xX]y?nc[xX][aP]"),
    _pattern("rope", "RoPE", r"nc[xX][xX][aP]"),
    _pattern("rope", "RoPE", r"xxsxxa[cy]"),
    _pattern("rope", "RoPE", r"[ty]{0,4}UU[ty]{0,2}", check=_check_rotation),
    _pattern("rope", "RoPE", r"[ty]{0,2}U[ty]?", check=_check_rotation),
    _pattern("scatter", "segment softmax by hand", r"(?:II[a]u?)?F?WI[sa]eF?W[aP]?Id"),
    _pattern("scatter", "segment mean by hand", r"F?WF{0,2}Wud"),
    _pattern("scatter", "gather, multiply and scatter-add", r"Iy?x[yF]*W"),
    _pattern("scatter", "gather and scatter-add", r"I[yF]*W"),
    _pattern("cross_entropy", "cross entropy", r"(t?)(y?)[yfFO]{0,5}(E)", by_hand=False, check=_check_logits),
    _pattern("cross_entropy", "cross entropy", r"t?lj", by_hand=False),
    _pattern("cross_entropy", "cross entropy by hand", r"t?lIn?[mb]?"),
    _pattern("cross_entropy", "cross entropy by hand", r"t?(?:bI|Ib)s[mb]?", check=_check_log_sum_exp),
    _pattern(
        "quantised_gemm", "dequantise and GEMM", r"(?:[f]{0,3}c)?t[sTaPxXdVt]{0,4}y?[LM]", check=_check_dequantise
    ),
    _pattern("routing", "routing", r"t?[So]t?K[^LMGCAJYQNZ_.]*"),
    _pattern("routing", "routing", r"K[^LMGCAJYQNZ_.]*S[^LMGCAJYQNZ_.]*"),
    _pattern("routing", "expert combine", r"(?<=G)w?x[tFf]*W?[tFfI]*I[ty]*b?t?"),
    _pattern("swiglu", "SwiGLU", r"(i)L?(x)"),
    _pattern("geglu", "GeGLU", r"(g)L(x)"),
    _pattern("geglu", "GeGLU", r"gx", by_hand=False, check=_check_halves),
    _pattern("softmax", "softmax by hand", r"bsebd"),
    _pattern("pointwise", "QuickGELU by hand", r"[xX]ox"),
)  # fmt: skip
"""Earlier ones win."""
