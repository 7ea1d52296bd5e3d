"""Kernels of torch.compile as texts, where the operations in their names and the sizes of their operands leave one.

Inductor names a kernel after the operations it computes, each once and in alphabetical order, and passes it first what
it changes in place, then what it reads, then what it writes. For a few sets of operations that is enough to say what is
computed; what the order of operations and the role of an operand are is said to be assumed. All others have no text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from profiler.region.mining.partition import Part
from profiler.region.mining.texts.call_arguments import UnwritableError
from profiler.region.mining.units import Sig, Unit

NAME = re.compile(r"triton_(?:poi|red|per)_fused_(.+?)_\d+$")
OPERATIONS = (
    "prepare_softmax_online", "_unsafe_view", "_to_copy", "_softmax", "unsqueeze", "squeeze", "rsqrt", "addmm", "gelu",
    "mean", "silu", "view", "add", "div", "exp", "mul", "pow", "sub",
)  # fmt: skip
"""Operations that a name is read for, longer ones first where one begins like another."""
VIEWS = frozenset({"view", "_unsafe_view", "unsqueeze", "squeeze"})
ACTIVATIONS = frozenset({"gelu", "silu"})
ADDITIONS = (frozenset({"addmm"}), frozenset({"add"}))
SOFTMAX = frozenset({"_softmax", "exp", "prepare_softmax_online", "sub"})
RMS = frozenset({"add", "mean", "mul", "pow", "rsqrt"})
FACTOR = 8.0
"""Of scores before a softmax: it is in the kernel's code, which a trace lacks."""
NOTE = "what each operand is and the order of operations, by the kernel's name and their sizes; its numbers"


def operations_of(name: str) -> frozenset[str] | None:
    """The operations in a kernel's name without views; None where some are not known here."""
    match = NAME.match(name)
    rest = match[1] if match else ""
    present: set[str] = set()
    while rest:
        operation = next((o for o in OPERATIONS if rest == o or rest.startswith(f"{o}_")), None)
        if operation is None:
            return None
        present.add(operation)
        rest = rest[len(operation) + 1 :]
    return frozenset(present - VIEWS) or None


@dataclass(frozen=True, slots=True)
class _Operands:
    """The kernel's tensors in order: full ones, as large as its largest, and vectors of the last dimension."""

    full: tuple[int, ...]
    vectors: tuple[int, ...]
    sigs: tuple[Sig, ...]

    @property
    def columns(self) -> int:
        return self.sigs[self.full[0]].dims[-1]


def write_compiled(part: Part) -> tuple[str, Sequence[str]]:
    """(text, what it assumes) of a part that is one compiled kernel. Raises UnwritableError where there is none."""
    unit = part.units[0]
    present = operations_of(unit.name)
    operands = _operands(unit)
    if present is None or operands is None:
        raise UnwritableError("what a compiled kernel computes its name and operands do not tell")
    for holds, write in FORMS:
        if holds(present):
            written = write(present, operands)
            if written is not None:
                return written, [NOTE]
    raise UnwritableError("what a compiled kernel computes its name and operands do not tell")


def write_attention(part: Part) -> tuple[str, Sequence[str]]:
    """The same of two products with a compiled softmax between them; what its scores are divided by is
    assumed: the root of a head's length."""
    product, softmax, other = part.units
    present, operands = operations_of(softmax.name), _operands(softmax)
    if present is None or operands is None or (text := _softmax(present, operands)) is None:
        raise UnwritableError("what a compiled kernel computes its name and operands do not tell")
    q, k, v = (a.sigs[0] for a in (product.args[0], product.args[1], other.args[1]))
    scores = operands.sigs[operands.full[0]]
    batch = scores.dims[:-2]
    if not all(len(s.dims) == 3 and s.dims[0] == math.prod(batch) and _rows_in_order(s) for s in (q, k, v)):
        raise UnwritableError("operands of attention in compiled code are not in order in memory")
    heads = [_declare(n, s, (*batch, *s.dims[1:])) for n, s in (("q", q), ("k", k), ("v", v))]
    lines = text.splitlines()
    bias = [line for line in lines if line.startswith("bias:")]
    value = lines[-2].removeprefix("y = ").replace(repr(FACTOR), repr(round(math.sqrt(q.dims[-1]), 6)))
    return "\n".join([*heads, *bias, "scores = q @ k", f"p = {value}", "y = p @ v", "return y"]) + "\n", [NOTE]


def _operands(unit: Unit) -> _Operands | None:
    sigs = tuple(a.sigs[0] for a in unit.args if a.kind == "tensor")
    if not sigs or any(not s.dims for s in sigs):
        return None
    largest = max(s.elements for s in sigs)
    full = tuple(i for i, s in enumerate(sigs) if s.elements == largest)
    columns = sigs[full[0]].dims[-1]
    vectors = tuple(i for i, s in enumerate(sigs) if s.dims == (columns,) and i not in full)
    alike = all(sigs[i].dims[-1] == columns and _rows_in_order(sigs[i]) for i in full)
    return _Operands(full, vectors, sigs) if alike else None


def _rows_in_order(sig: Sig) -> bool:
    """Contiguous, so that a tensor of rows and the same in more dimensions are one in memory."""
    expected = 1
    for size, stride in zip(reversed(sig.dims), reversed(sig.strides or ()), strict=False):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return sig.strides is not None


def _declare(name: str, sig: Sig, shape: Sequence[int] | None = None) -> str:
    return f"{name}: {sig.dtype}[{', '.join(map(str, shape or sig.dims))}]"


def _gated(present: frozenset[str], operands: _Operands) -> str | None:
    """silu(gate) * up: two tensors, or two and the result."""
    if operands.vectors or len(operands.full) not in (2, 3) or len(operands.full) != len(operands.sigs):
        return None
    sig = operands.sigs[operands.full[0]]
    lines = [_declare("gate", sig), _declare("up", operands.sigs[operands.full[1]], sig.dims)]
    return "\n".join([*lines, "y = silu(gate) * up", "return y"]) + "\n"


def _bias_activation(present: frozenset[str], operands: _Operands) -> str | None:
    """gelu(x + b): a product's result and its bias, and perhaps where the result goes."""
    if len(operands.vectors) != 1 or operands.full[0] != 0 or len(operands.sigs) != len(operands.full) + 1 > 3:
        return None
    x, b = operands.sigs[0], operands.sigs[operands.vectors[0]]
    return (
        "\n".join([_declare("x", x), _declare("b", b), f"y = {min(present & ACTIVATIONS)}(x + b)", "return y"]) + "\n"
    )


def _rms_norm(present: frozenset[str], operands: _Operands) -> str | None:
    """The norm of a sum: full tensors, the weight, and behind it perhaps where the result goes."""
    if len(operands.vectors) != 1 or len(operands.full) + 1 != len(operands.sigs):
        return None
    weight = operands.vectors[0]
    if weight == 0 or len(operands.sigs) - weight > 2:
        return None
    sig, w = operands.sigs[0], operands.sigs[weight]
    names = ["x", *(f"r{i}" for i in range(1, weight))]
    heads = [_declare(n, operands.sigs[i], sig.dims) for i, n in enumerate(names)]
    total = f"z = ({' + '.join(names)}).to(f32)"
    norm = "z = z * rsqrt(z.pow(2).mean(-1, keepdim=True) + 1e-06)"
    result = f"y = (z.to({sig.dtype}) * w).to({sig.dtype})"
    return "\n".join([*heads, _declare("w", w), total, norm, result, "return y"]) + "\n"


def _softmax(present: frozenset[str], operands: _Operands) -> str | None:
    """softmax(scores / c + bias), where the bias is as large as the scores but for leading dimensions."""
    others = [i for i in range(len(operands.sigs)) if i not in operands.full]
    scores = operands.sigs[operands.full[0]]
    if operands.vectors or operands.full[0] != 0 or len(others) != ("add" in present) or len(operands.full) > 2:
        return None
    lines, value = [_declare("scores", scores)], "scores"
    if present & {"div", "mul"}:
        value += f" / {FACTOR!r}"
    if others:
        bias = operands.sigs[others[0]]
        if bias.dims != scores.dims[len(scores.dims) - len(bias.dims) :]:
            return None
        lines.append(_declare("bias", bias))
        value += " + bias"
    return "\n".join([*lines, f"y = softmax({value}, dim=-1)", "return y"]) + "\n"


Form = tuple[Callable[[frozenset[str]], bool], Callable[[frozenset[str], _Operands], str | None]]
FORMS: tuple[Form, ...] = (
    (lambda present: present == {"mul", "silu"}, _gated),
    (lambda present: len(present & ACTIVATIONS) == 1 and present - ACTIVATIONS in ADDITIONS, _bias_activation),
    (lambda present: present - {"_to_copy"} == RMS, _rms_norm),
    (lambda present: "_softmax" in present and present - SOFTMAX <= {"add", "div", "mul"}, _softmax),
)
"""Sets of operations -> the text of what they are."""
