"""Units of a step: the outermost aten operations of a trace, in order, with their kernels. Torch-free.

A unit is what a person wrote as one call. Wrappers that are no aten operation (autograd nodes, record_function,
compiled functions) are looked through, and so is an operation that autocast entered again with its arguments cast.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from profiler.trace.model import NONE, Detail, Ints, Longs, Step, Trace

DTYPES: Mapping[str, str] = {
    "double": "f64", "float": "f32", "c10::BFloat16": "bf16", "c10::Half": "f16", "c10::Float8_e4m3fn": "f8e4m3",
    "c10::Float8_e5m2": "f8e5m2", "c10::Float8_e8m0fnu": "f8e8m0", "c10::Float4_e2m1fn_x2": "f4e2m1x2",
    "long int": "i64", "long": "i64", "int": "i32", "short int": "i16", "short": "i16",
    "signed char": "i8", "unsigned char": "u8", "bool": "bool", "__int64": "i64",
    "c10::complex<float>": "c64", "c10::complex<double>": "c128",
}  # fmt: skip
"""The trace's spelling of a tensor's dtype -> the region language's; complex ones live inside a region only."""

SCALAR_TYPES: Mapping[int, str] = {
    0: "u8", 1: "i8", 2: "i16", 3: "i32", 4: "i64", 5: "f16", 6: "f32", 7: "f64", 11: "bool", 15: "bf16",
    23: "f8e5m2", 24: "f8e4m3", 44: "f8e8m0", 45: "f4e2m1x2",
}  # fmt: skip
"""c10::ScalarType numbers, as the trace writes a dtype argument."""

MATH = "aten::_scaled_dot_product_attention_math"
"""SDPA where no fused kernel takes its arguments: many operations, so its parts are units."""

COMMUNICATION = ("c10d::", "nccl:", "_c10d_functional::", "record_param_comms", "gloo:", "rccl:")
"""Operations that are one unit though they are not aten."""


@dataclass(frozen=True, slots=True)
class Sig:
    """What a trace says of a tensor. dtype is "" and strides None where it says nothing (dtypes in a TensorList)."""

    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...] | None = None

    @property
    def elements(self) -> int:
        count = 1
        for size in self.dims:
            count *= size
        return count

    @property
    def complex(self) -> bool:
        return self.dtype.startswith("c")


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument. kind: tensor, tensors, value, lost (a Python number without its value), none."""

    kind: str
    sigs: tuple[Sig, ...] = ()
    value: object = None


@dataclass(slots=True)
class Unit:
    """One outermost aten operation. name is without `aten::`; base also without the underscore of an in-place call."""

    op: int
    name: str
    aten: bool
    thread: int
    args: tuple[Argument, ...]  # () where shapes were not recorded
    module: int
    sequence: int
    start_us: float
    node: str = ""  # the autograd node it runs in: "MulBackward0"
    node_sequence: int = NONE
    cast: bool = False  # autocast put it there
    calls: str = ""  # for an autocast cast: the operation that wanted it
    inner: bool = False  # it has operations inside
    optimizer: bool = False
    written: str = ""  # the operation as which it is written where the recorded one lacks an argument: "index_select"
    guessed: str = ""  # what was inferred of its arguments
    overload: str = ""  # as an execution trace names it; "" where only the arguments tell
    kernels: list[int] = field(default_factory=list)
    time_us: float = 0.0

    @property
    def base(self) -> str:
        name = self.written or self.name
        return name[:-1] if name.endswith("_") and not name.startswith("__") else name

    @property
    def backward(self) -> bool:
        """Runs in an autograd node; what activation checkpointing computes again there counts as forward."""
        return bool(self.node) and self.sequence == NONE


@functools.lru_cache(maxsize=20_000)
def arguments(detail: Detail | None) -> tuple[Argument, ...]:
    """The arguments of an operation in the order of its schema; () where shapes were not recorded."""
    if detail is None:
        return ()
    return tuple(_arguments(detail))


def _arguments(detail: Detail) -> Iterator[Argument]:
    for i, kind in enumerate(detail.types):
        dims = detail.dims[i] if i < len(detail.dims) else ()
        strides = detail.strides[i] if i < len(detail.strides) else None
        text = detail.concrete[i] if i < len(detail.concrete) else ""
        if kind in DTYPES:
            dtype = DTYPES[kind]
            if not dims and i > 0 and kind in ("double", "long int", "long", "bool", "__int64"):
                yield Argument("lost", (Sig(dtype, ()),))  # a Python number wrapped into a tensor
            elif all(isinstance(d, int) for d in dims):
                yield Argument("tensor", (_sig(dtype, dims, strides),))
            else:
                yield Argument("none")
        elif kind in ("TensorList", "GenericList") and dims and all(isinstance(d, tuple) for d in dims):
            inner = strides if isinstance(strides, tuple) and len(strides) == len(dims) else (None,) * len(dims)
            yield Argument("tensors", tuple(_sig("", d, s) for d, s in zip(dims, inner, strict=True)))  # type: ignore[arg-type]
        elif kind in ("Scalar", "ScalarList", "") and text:
            value = _literal(text)
            yield Argument("none") if value is None else Argument("value", (), value)
        else:
            yield Argument("none")


def _sig(dtype: str, dims: tuple[object, ...], strides: object) -> Sig:
    sizes = tuple(d for d in dims if isinstance(d, int))
    has_strides = isinstance(strides, tuple) and len(strides) == len(sizes) and all(isinstance(s, int) for s in strides)
    return Sig(dtype, sizes, tuple(s for s in strides if isinstance(s, int)) if has_strides else None)  # type: ignore[attr-defined]


def _literal(text: str) -> object:
    """The value behind "2", "[-1]", "True", "0.10000000000000001", "inf", "[]"; None where it is no plain value."""
    if text in ("inf", "-inf", "nan"):
        return float(text)
    if len(text) > 2_000:
        return None
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    is_plain = isinstance(value, int | float | bool) or (
        isinstance(value, list) and all(isinstance(v, int | float | bool) for v in value)
    )
    if not is_plain:
        return None
    return tuple(value) if isinstance(value, list) else value


def short(name: str) -> str:
    """`aten::mul_` -> `mul_`; other names as they are."""
    return name.removeprefix("aten::")


@dataclass(frozen=True, slots=True)
class Units:
    """Units by thread, in order; the kernels of the step that no unit has; where each operation of the step went."""

    units: tuple[Unit, ...]
    unlinked: tuple[int, ...]
    of_op: Mapping[int, Unit]


def collect_units(trace: Trace, step: Step) -> Units:
    """The units of one step. Every kernel of the step is in exactly one unit or in `unlinked`."""
    parent, names = trace.ops.parent, trace.names
    roots = set(step.ops.tolist())
    linked = step.kernels[trace.kernels.op[step.kernels] != NONE]
    above = _roots(parent, np.unique(trace.kernels.op[linked]))
    roots.update(above.tolist())
    walk = _Walk(trace, _optimizer_windows(trace))
    outermost = np.flatnonzero(parent == NONE)
    for root in sorted(roots):
        after = int(np.searchsorted(outermost, root, side="right"))
        end = int(outermost[after]) if after < len(outermost) else len(parent)
        walk.visit(root, end)
    unlinked = []
    durations = trace.kernels.duration_us
    for kernel in step.kernels.tolist():
        op = int(trace.kernels.op[kernel])
        if op == NONE:
            unlinked.append(kernel)
            continue
        unit = walk.of_op.get(op)
        if unit is None:
            unit = walk.add(op, names[int(trace.ops.name[op])], aten=False)
        unit.kernels.append(kernel)
        unit.time_us += float(durations[kernel])
    ordered = sorted(walk.units, key=lambda u: (u.thread, u.start_us, u.op))
    return Units(tuple(ordered), tuple(unlinked), walk.of_op)


def _roots(parent: Ints, ops: Ints) -> Longs:
    """The outermost operation above each of ops."""
    current = ops.astype(np.int64)
    while len(current):
        up = parent[current]
        if (up == NONE).all():
            break
        current = np.where(up == NONE, current, up).astype(np.int64)
    return np.unique(current)


def _optimizer_windows(trace: Trace) -> list[tuple[float, float]]:
    notes = trace.annotations
    window_names = {i for i, n in enumerate(trace.names) if n.startswith(("Optimizer.step", "Optimizer.zero_grad"))}
    return [
        (float(notes.start_us[i]), float(notes.end_us[i]))
        for i in range(len(notes.name))
        if int(notes.name[i]) in window_names
    ]


class _Walk:
    """Goes over operations in trace order (parents before children) and opens units."""

    def __init__(self, trace: Trace, windows: list[tuple[float, float]]) -> None:
        self.trace = trace
        self.windows = windows
        self.units: list[Unit] = []
        self.of_op: dict[int, Unit] = {}

    def add(self, op: int, name: str, aten: bool) -> Unit:
        ops = self.trace.ops
        start, detail = float(ops.start_us[op]), int(ops.detail[op])
        args = arguments(None if detail == NONE else self.trace.details[detail])
        unit = Unit(
            op, short(name), aten, int(ops.thread[op]), args,
            int(ops.module[op]), int(ops.sequence[op]), start, optimizer=any(a <= start < b for a, b in self.windows),
        )  # fmt: skip
        self.units.append(unit)
        self.of_op[op] = unit
        return unit

    def visit(self, root: int, end: int) -> None:
        ops, names = self.trace.ops, self.trace.names
        parents = ops.parent[root:end].tolist()
        labels = [names[i] for i in ops.name[root:end].tolist()]
        children: dict[int, list[int]] = {}
        for offset, above in enumerate(parents):
            if above != NONE:
                children.setdefault(above, []).append(root + offset)
        node: dict[int, tuple[str, int]] = {}
        casts: dict[int, str] = {}  # operations that autocast entered again
        math: dict[int, bool] = {}  # attention calls that ran operation by operation
        for offset, name in enumerate(labels):
            op, above = root + offset, parents[offset]
            if above in self.of_op:
                self.of_op[op] = self.of_op[above]
                self.of_op[above].inner = True
                continue
            if above in node:
                node[op] = node[above]
            if name.startswith("aten::"):
                if name.endswith("_attention_math") or self._runs_math(children.get(op, ())):
                    math[op] = True
                    continue
                if self._entered_again(op, children.get(op, ())):
                    casts[op] = name
                    continue
            elif not name.startswith(COMMUNICATION) and not name.startswith("triton_"):
                if "evaluate_function" in name or "Backward" in name:
                    sequence = int(ops.sequence[op])
                    label = name.split(": ")[-1]
                    node[op] = (label, sequence if sequence != NONE else node.get(op, ("", NONE))[1])
                continue
            unit = self.add(op, name, aten=name.startswith("aten::"))
            unit.node, unit.node_sequence = node.get(op, ("", NONE))
            if above in casts:
                unit.cast = name != casts[above]
                unit.calls = short(casts[above])

    def _runs_math(self, inside: Sequence[int]) -> bool:
        """scaled_dot_product_attention without a fused kernel for these arguments."""
        return any(self.trace.names[int(self.trace.ops.name[i])] == MATH for i in inside)

    def _entered_again(self, op: int, inside: Sequence[int]) -> bool:
        """autocast: `aten::to` for each argument that is cast (none where all are cached), then the operation again."""
        ops, names = self.trace.ops, self.trace.names
        if not inside or ops.name[inside[-1]] != ops.name[op]:
            return False
        if len(inside) > 1:
            return all(names[int(ops.name[i])] in ("aten::to", "aten::_to_copy") for i in inside[:-1])
        outer, again = int(ops.detail[op]), int(ops.detail[inside[0]])
        if NONE in (outer, again):
            return False
        types = zip(self.trace.details[outer].types, self.trace.details[again].types, strict=False)
        return any(a != b and a in DTYPES and b in DTYPES for a, b in types)
