"""What a page calls a region that no pattern took: its operations, and what they do with the data. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from profiler.region.mining.unit_letters import COMPILED, OTHER
from profiler.region.mining.units import SCALAR_TYPES, Unit
from profiler.region.operations import TITLES, kind_of

NAMED: Mapping[str, tuple[str, str]] = {
    "L": ("gemm", "GEMM"),
    "M": ("gemm", "GEMM"),
    "G": ("grouped_gemm", "grouped GEMM"),
    "C": ("convolution", "convolution"),
    "A": ("attention", "SDPA attention"),
    "E": ("cross_entropy", "cross entropy"),
    "S": ("softmax", "softmax"),
    "l": ("softmax", "log-softmax"),
    "j": ("cross_entropy", "NLL loss"),
    "N": ("layer_norm", "LayerNorm"),
    "B": ("batch_norm", "batch norm"),
    "Z": ("embedding", "embedding"),
    "I": ("gather", "gather"),
    "W": ("scatter", "scatter"),
    "K": ("sort", "top-k"),
    "O": ("sort", "sort and scan"),
    "y": ("copy", "layout copy"),
    "c": ("copy", "concatenation"),
    "t": ("copy", "cast"),
    "F": ("copy", "fill"),
    "b": ("reduction", "reduction"),
    "m": ("reduction", "mean"),
    "v": ("reduction", "variance"),
    "D": ("pointwise", "dropout"),
    "g": ("pointwise", "GELU"),
    "i": ("pointwise", "SiLU"),
    "u": ("pointwise", "activation"),
    "H": ("reduction", "norm"),
    "h": ("pointwise", "tanh"),
    "o": ("pointwise", "sigmoid"),
    "w": ("pointwise", "where"),
    "J": ("communication", "communication"),
    "Y": ("optimizer", "optimizer step"),
}
"""letter -> (kind, title) of a region of one operation."""

CUSTOM = "custom operation"

RANK = (
    "scatter",
    "gather",
    "layer_norm",
    "rms_norm",
    "batch_norm",
    "softmax",
    "cross_entropy",
    "reduction",
    "embedding",
)
"""The kind of a chain: the first of these that one of its operations has; else pointwise, or copy where all are."""


def label(unit: Unit, symbol: str) -> str:
    """How a page names one operation."""
    if unit.base in TITLES:
        return TITLES[unit.base]
    if symbol == "y":
        return f"layout copy{copy_purpose(unit)}"
    if symbol == "x" and per_channel(unit):
        return "channel scale"
    if symbol == "C" and depthwise(unit):
        return "depthwise convolution"
    if symbol == OTHER and counter(unit):
        return "batch counter"
    if symbol in NAMED:
        return NAMED[symbol][1]
    if symbol == "a" and residual(unit):
        return "residual add"
    if symbol == OTHER and not unit.aten:
        return f"{CUSTOM} {unit.name}"
    return unit.base


def counter(unit: Unit) -> bool:
    """Batch norm adds one to the number of batches, a scalar on the GPU."""
    return unit.name == "add_" and bool(unit.args) and bool(unit.args[0].sigs) and not unit.args[0].sigs[0].dims


def per_channel(unit: Unit) -> bool:
    """One operand is an activation, the other a vector along one of its dimensions."""
    sigs = [a.sigs[0] for a in unit.args[:2] if a.kind == "tensor"]
    if len(sigs) != 2 or max(len(s.dims) for s in sigs) < 2:
        return False
    small, large = sorted(sigs, key=lambda s: s.elements)
    return small.elements > 1 and small.elements in large.dims and small.elements < large.elements


def copy_purpose(unit: Unit) -> str:
    """What a copy of a tensor is for, by the layout that it starts from: "" where that is plain."""
    sig = unit.args[0].sigs[0] if unit.args and unit.args[0].kind == "tensor" else None
    if sig is None or sig.strides is None or unit.base not in ("clone", "contiguous", "reshape", "flatten", "copy"):
        return ""
    if any(step == 0 and size > 1 for size, step in zip(sig.dims, sig.strides, strict=True)):
        return " (repeated heads)" if len(sig.dims) == 5 else " (expanded)"
    order = tuple(sorted(range(len(sig.dims)), key=lambda d: (-(sig.strides or ())[d], d)))
    return COPIED.get(order, "") if min(sig.dims, default=0) > 1 else ""


COPIED: Mapping[tuple[int, ...], str] = {
    (0, 3, 1, 2): " (to channels last)", (0, 2, 3, 1): " (from channels last)", (0, 2, 1, 3): " (heads)",
}  # fmt: skip
"""Dimensions of a tensor of four, from the slowest in memory to the fastest -> what making it contiguous does."""


def depthwise(unit: Unit) -> bool:
    """A convolution with one group for each channel."""
    tensors = [a.sigs[0].dims for a in unit.args if a.kind == "tensor"]
    return len(tensors) > 1 and len(tensors[1]) > 2 and tensors[1][1] == 1 and tensors[0][1] > 1


def kind_of_one(unit: Unit, symbol: str) -> str:
    """The kind of a region of this operation alone."""
    if symbol in NAMED:
        return NAMED[symbol][0]
    if symbol == OTHER and unit.aten:
        kind = kind_of(f"aten::{unit.base}")
        return kind if kind in KINDS else "other"
    return "other" if symbol == OTHER else "pointwise"


KINDS = frozenset({"reduction", "copy", "gather", "scatter", "sort", "scan", "pointwise", "gemm", "fft"})


def residual(unit: Unit) -> bool:
    """Its two operands are activations of equal sizes."""
    args = [a for a in unit.args if a.kind == "tensor"]
    if len(args) != 2:
        return False
    a, b = args[0].sigs[0], args[1].sigs[0]
    return a.dims == b.dims and len(a.dims) >= 2 and a.dtype in ("f32", "bf16", "f16", "f64")


MANY = 4
"""Labels that a title lists; a chain of more is named after its kind."""


def name(chain: Sequence[Unit], letters: str) -> tuple[str, str, bool]:
    """(kind, title, by hand) of units that no pattern took."""
    if len(chain) == 1:
        unit, symbol = chain[0], letters
        if symbol == COMPILED:
            return "compiled", f"torch.compile kernel {unit.name}", False
        return kind_of_one(unit, symbol), label(unit, symbol), False
    for named in NAMED_CHAINS:
        if named.expression.fullmatch(letters) and named.holds(chain):
            return named.kind, named.title, named.by_hand
    labels = [label(unit, symbol) for unit, symbol in zip(chain, letters, strict=True)]
    distinct = [n for n in dict.fromkeys(labels) if n != "fill"] or labels[:1]
    present = {NAMED.get(symbol, ("pointwise", ""))[0] for symbol in letters}
    kind = next((k for k in RANK if k in present), "copy" if present == {"copy"} else "pointwise")
    if len(distinct) <= MANY:
        return kind, ", ".join(distinct), False
    title = "pointwise chain" if kind in ("pointwise", "copy") else f"chain with {kind.replace('_', ' ')}"
    return kind, title, False


@dataclass(frozen=True, slots=True)
class _NamedChain:
    """A chain that has a name of its own."""

    kind: str
    title: str
    by_hand: bool
    expression: re.Pattern[str]
    holds: Callable[[Sequence[Unit]], bool]


def _scaled(chain: Sequence[Unit]) -> bool:
    return per_channel(chain[0]) and residual(chain[1])


def _quantises(chain: Sequence[Unit]) -> bool:
    """Its last cast is to a type of eight bits."""
    dtype_number = chain[-1].args[1].value if len(chain[-1].args) > 1 else None
    return isinstance(dtype_number, int) and SCALAR_TYPES.get(dtype_number) in ("f8e4m3", "f8e5m2", "i8", "u8")


def _softplus(chain: Sequence[Unit]) -> bool:
    return chain[0].base == "softplus"


def _always(chain: Sequence[Unit]) -> bool:
    return True


def _computes(*bases: str) -> Callable[[Sequence[Unit]], bool]:
    def holds(chain: Sequence[Unit]) -> bool:
        return set(bases) <= {u.base for u in chain}

    return holds


NAMED_CHAINS: tuple[_NamedChain, ...] = (
    _NamedChain("pointwise", "layer scale, residual add", False, re.compile("xa"), _scaled),
    _NamedChain("layer_norm", "layer scale, residual add, LayerNorm", False, re.compile("xaN"), _scaled),
    _NamedChain("pointwise", "sigmoid gate (SiLU or GLU by hand)", True, re.compile("ox"), _always),
    _NamedChain("pointwise", "Mish by hand", True, re.compile("uhx"), _softplus),
    _NamedChain("embedding", "relative position bias", True, re.compile(".*w.*Z"), _computes("log", "embedding")),
    _NamedChain("pointwise", "rotary table", False, re.compile(".*"), _computes("cos", "sin")),
    _NamedChain("reduction", "greedy sampling", False, re.compile("[^Z]*"), _computes("argmax")),
    _NamedChain("quantise", "quantise by row", True, re.compile(".*b.*t"), _quantises),
    _NamedChain("quantise", "quantise", True, re.compile(".*[dVxXfR].*t"), _quantises),
)
"""Earlier ones win."""
