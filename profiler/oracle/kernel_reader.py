"""Follow a generated kernel's statements once: what each name stands for, and what is read, written and computed."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from profiler.oracle.index_expressions import (
    Axis,
    Bounds,
    Linear,
    Opaque,
    add,
    constant,
    count,
    divide,
    multiply,
    reach,
    remainder,
    restricts,
    run_length,
    single,
    step,
)
from profiler.oracle.traits_model import LOAD, STORE, Access, FunctionCount, KernelTraits, Template
from profiler.region.language import trees

POINTED = {
    "fp64": "f64", "fp32": "f32", "bf16": "bf16", "fp16": "f16", "fp8e4nv": "f8e4m3", "fp8e5": "f8e5m2", "i1": "bool",
    "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64", "u1": "bool", "u8": "u8", "u16": "u16", "u32": "u32",
    "u64": "u64",
}  # fmt: skip
"""Triton's names of types -> the region language's."""

REDUCTIONS = {
    "tl.sum": "sum", "tl.max": "max", "tl.min": "min", "tl.argmax": "argmax", "tl.argmin": "argmin",
    "tl.xor_sum": "xor_sum", "tl.reduce": "custom", "tl.associative_scan": "scan", "tl.cumsum": "scan",
    "tl.cumprod": "scan", "tl.sort": "sort", "triton_helpers.max2": "max", "triton_helpers.min2": "min",
    "triton_helpers.prod": "prod", "triton_helpers.any": "any", "triton_helpers.welford": "welford",
    "triton_helpers.max_with_index": "argmax", "triton_helpers.min_with_index": "argmin",
    "triton_helpers.online_softmax_reduce": "online_softmax", "triton_helpers.sort_with_index": "sort",
    "triton_helpers.cumsum": "scan",
}  # fmt: skip
ACCUMULATED = frozenset(
    """welford_reduce welford_combine online_softmax_combine online_softmax_combine_with_sum maximum_with_index
    minimum_with_index select_one exclusive_scan_decoupled_lookback exclusive_scan_decoupled_lookback_64""".split()
)
"""Helpers that prepare or finish a reduction that is counted where its result is made."""

KEPT_LONG = frozenset({"scan", "sort"})
"""Reductions whose result is as long as what they read."""

DEAR_IN_TL = frozenset(
    "exp exp2 log log2 sin cos tan tanh sqrt sqrt_rn rsqrt sigmoid erf div_rn softmax cdiv_float fdiv".split()
)
"""Functions of triton.language that cost more than an addition; all of libdevice and tl_math do, but for CHEAP."""

CHEAP = frozenset(
    """abs fabs fma floor ceil trunc rint nearbyint round isnan isinf isfinited finitef signbit max min maximum minimum
    fmin fmax llrint copysign""".split()
)

SAME_VALUE = frozenset(
    """to broadcast_to reshape expand_dims view trans permute max_contiguous multiple_of max_constancy
    promote_to_tensor cast join""".split()
)
"""Methods and functions of triton.language that hand a value on."""

NO_WORK = frozenset(
    """device_assert static_assert assume debug_barrier device_print static_print program_id num_programs arange
    zeros range static_range cdiv""".split()
)

BLOCK_POINTERS = frozenset({"make_block_ptr", "make_tensor_descriptor", "advance"})
"""Addresses of whole tiles: what they point into is known, not where."""

NUMEL = re.compile(r"^([xyz]|r\d+_?|r)numel$")
INDEX = re.compile(r"^([xyz]|r\d+_)index$")
REDUCTION_LOOP = re.compile(r"^r\d*_?offset$")
TEMPLATE_AXES: Mapping[str, tuple[str, ...]] = {
    "idx_m": ("M",), "idx_n": ("N", "BATCH"), "idx_q": ("BATCH",), "idx_c": ("OUT_C", "CHANNELS"),
    "idx_h": ("OUT_H",), "idx_w": ("OUT_W",), "idx_d": ("OUT_D",), "idx_l": ("OUT_L",),
}  # fmt: skip
"""Indices of a template's result -> the constants that can be their size; a convolution's idx_n is its batch."""


def kernel_function(source: str) -> ast.FunctionDef | None:
    """The function that a heuristic decorates, else the last one that Triton compiles. Raises SyntaxError."""
    functions = [n for n in trees.module(source).body if isinstance(n, ast.FunctionDef) and n.decorator_list]
    chosen = [f for f in functions if _heuristic(f) is not None]
    candidates = chosen or functions
    return candidates[-1] if candidates else None


def _heuristic(function: ast.FunctionDef) -> ast.Call | None:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and trees.dotted_name(decorator.func).startswith("triton_heuristics."):
            return decorator
    return None


@dataclass(frozen=True, slots=True)
class Value:
    """What an expression stands for.

    linear: as a sum over indices, where it is one. axes: that it depends on. moving: those of them along which a step
    of one changes it, within their lowest digit. read: it depends on memory. data: it is a value that the kernel
    computes with, no index. pointer: the argument that it points into. bounds: what holds where it is true. truth:
    where it is a known constant.
    """

    linear: Linear | None = None
    axes: frozenset[str] = frozenset()
    moving: frozenset[str] = frozenset()
    read: bool = False
    data: bool = False
    pointer: str = ""
    bounds: tuple[Bounds, ...] = ()
    truth: bool | None = None


NOTHING = Value()


@dataclass(slots=True)
class _Count:
    """Calls of a function, and how often they are executed; None: not known."""

    calls: int = 0
    executions: int | None = 0

    def add(self, executions: int | None) -> None:
        self.calls += 1
        total = self.executions
        self.executions = None if total is None or executions is None else total + executions


@dataclass(slots=True)
class KernelReader:
    """Reads one kernel's function. Make it, then ask for its traits."""

    function: ast.FunctionDef
    names: dict[str, Value] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    constants: dict[str, int | float | bool | str] = field(default_factory=dict)
    accesses: list[Access] = field(default_factory=list)
    reductions: Counter[str] = field(default_factory=Counter)
    functions: dict[str, _Count] = field(default_factory=dict)
    arithmetic: _Count = field(default_factory=_Count)
    index_divisions: int = 0
    loops: int = 0
    loop: int = 0
    depth: int = 0
    opaque: int = 0
    pointed: dict[str, str] = field(default_factory=dict)
    settings: dict[str, object] = field(default_factory=dict)
    kind: str | None = None  # the heuristic's name

    def __post_init__(self) -> None:
        heuristic = _heuristic(self.function)
        self.kind = None if heuristic is None else trees.dotted_name(heuristic.func).removeprefix("triton_heuristics.")

    @property
    def _in_template_loop(self) -> bool:
        return bool(self.depth) and self.kind == "template"

    def traits(self) -> KernelTraits:
        """Everything that the text says."""
        kind = self.kind
        given = self._decorated()
        arguments = [a.arg for a in self.function.args.args]
        for name in arguments:
            if name in self.pointed or "ptr" in name:
                self.names[name] = Value(constant(0), pointer=name)
            elif not name.endswith("BLOCK"):  # a number, the same in the whole launch
                self.opaque += 1
                self.names[name] = Value(single(Opaque(self.opaque, frozenset(), 1)))
        self._run(self.function.body)
        hints = given.get("size_hints")
        size_hints = tuple((_axis(str(a)), n) for a, n in hints.items()) if isinstance(hints, dict) else ()
        template = self._template(given) if kind == "template" else None
        static = () if template or kind == "foreach" else tuple(self.sizes.items())
        blocks = [a for a in arguments if re.fullmatch(r"[XYZ]BLOCK", a)]
        mutated = self.settings.get("mutated_arg_names")
        return KernelTraits(
            kind=kind,
            sizes=static,
            size_hints=tuple((a, n) for a, n in size_hints if isinstance(n, int)),
            reduction_hint=_text(given.get("reduction_hint")),
            tiles=None if kind is None or template or kind == "foreach" else max(1, len(blocks)),
            loops=self.loops,
            accesses=tuple(self.accesses),
            reductions=tuple(self.reductions.items()),
            functions=tuple(FunctionCount(n, t.calls, t.executions) for n, t in self.functions.items()),
            arithmetic=self.arithmetic.executions,
            index_divisions=self.index_divisions,
            num_load=_number(self.settings.get("num_load")),
            num_store=_number(self.settings.get("num_store")),
            num_reduction=_number(self.settings.get("num_reduction")),
            min_split_scan_block=_number(self.settings.get("min_split_scan_rblock")),
            mutated=tuple(map(str, mutated)) if isinstance(mutated, list | tuple) else (),
            num_warps=_number(given.get("num_warps")),
            num_stages=_number(given.get("num_stages")),
            template=template,
        )

    def _decorated(self) -> dict[str, object]:
        """Arguments of the heuristic that are plain values; what the pointers point to; inductor_meta."""
        heuristic = _heuristic(self.function)
        given: dict[str, object] = {}
        for keyword in heuristic.keywords if heuristic is not None else ():
            if keyword.arg == "triton_meta":
                signature = _entries(keyword.value).get("signature")
                kinds = signature if isinstance(signature, dict) else {}
                self.pointed = {str(n): POINTED.get(str(t)[1:], "") for n, t in kinds.items() if str(t)[:1] == "*"}
            elif keyword.arg == "inductor_meta":
                self.settings = _entries(keyword.value)
            elif keyword.arg is not None:
                given[keyword.arg] = _literal(keyword.value)
        return given

    def _template(self, given: Mapping[str, object]) -> Template:
        """Sizes and tile of a template."""

        def number(name: str) -> int | None:
            return _number(self.constants.get(name))

        m, n, k, batch = number("M"), number("N"), number("K"), number("BATCH")
        output = [number(name) for name in ("OUT_D", "OUT_H", "OUT_W") if name in self.constants]
        groups, channels = number("GROUPS"), number("IN_C")
        if output and batch and groups and channels:
            filters = [number(name) for name in ("KERNEL_D", "KERNEL_H", "KERNEL_W") if name in self.constants]
            out_channels = number("OUT_C")
            m = math.prod(size for size in output if size is not None) * batch
            n = None if out_channels is None else out_channels // groups
            k = math.prod(size for size in filters if size is not None) * (channels // groups)
            batch = groups
        elif batch and "KERNEL_SIZE" in self.constants and (length := number("OUT_L")) is not None:
            m, n, k, batch = batch * length, 1, number("KERNEL_SIZE"), number("CHANNELS")  # depthwise, along one axis
        elif k is None and (half := number("K1")) is not None:  # the sum of two products, of one inner size
            k, batch = 2 * half, 1
        elif batch is None and m is not None and "stride_aq" not in self.constants:
            batch = 1
        tf32 = self.constants.get("ALLOW_TF32")
        return Template(
            m, n, k, batch, number("BLOCK_M"), number("BLOCK_N"), number("BLOCK_K"),
            _number(given.get("num_stages")), _number(given.get("num_warps")),
            tf32 if isinstance(tf32, bool) else None, tuple(self.constants.items()),
        )  # fmt: skip

    def _run(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._assign(name, value)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self._assign(name, value)
                case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
                    result = replace(self._value(value), linear=None, bounds=(), pointer="")
                    self.names |= {t.id: result for t in targets if isinstance(t, ast.Name)}
                case ast.AugAssign(target=ast.Name(id=name), value=value):
                    if not INDEX.match(name):
                        before, added = self.names.get(name, NOTHING), self._value(value)
                        self.names[name] = replace(self._joined((before, added)), pointer=before.pointer)
                        self._count_arithmetic(self.names[name])
                case ast.Expr(value=value):
                    self._value(value)
                case ast.For(target=target, iter=iterated, body=inside):
                    self._run_loop(target, iterated, inside)
                case ast.While(body=inside) | ast.With(body=inside):
                    self._run(inside)
                case ast.If(test=test, body=yes, orelse=no):
                    self._run_branches(test, yes, no)
                case _:
                    pass

    def _run_loop(self, target: ast.expr, iterated: ast.expr, body: Sequence[ast.stmt]) -> None:
        """A loop over the reduction, or over the inner axis of a template; its body is followed once."""
        name = target.id if isinstance(target, ast.Name) else ""
        reduces = bool(REDUCTION_LOOP.match(name)) or self.kind == "template"
        outermost = reduces and not self.loop
        if outermost:
            self.loops += 1
            self.loop = self.loops
        self.depth += 1
        self.names[name] = NOTHING
        self._run(body)
        self.depth -= 1
        if outermost:
            self.loop = 0

    def _run_branches(self, test: ast.expr, yes: Sequence[ast.stmt], no: Sequence[ast.stmt]) -> None:
        """The branch that is taken where that is known, else each for itself: a foreach kernel has one per tensor."""
        truth = self._value(test).truth
        if truth is not None:
            self._run(yes if truth else no)
            return
        names, sizes = dict(self.names), dict(self.sizes)
        self._run(yes)
        after = self.names
        self.names, self.sizes = dict(names), dict(sizes)
        self._run(no)
        self.names = after | self.names
        if self.kind != "template":
            self.sizes = sizes

    def _assign(self, name: str, value: ast.expr) -> None:
        """A name gets a value; the names of sizes and indices mean what Inductor means by them."""
        literal = _literal(value)
        if (size := NUMEL.match(name)) and isinstance(literal, int):
            self.sizes[_axis(size.group(1))] = literal
        template = self.kind == "template"
        if template and not self.depth and isinstance(literal, int | float | bool | str):
            self.constants.setdefault(name, literal)
        index = INDEX.match(name)
        if index and not template:
            self.names[name] = _index(_axis(index.group(1)))
        elif name == "rindex" and "rbase" in ast.unparse(value):  # before torch named the axes of a reduction
            self.names[name] = _index("r0")
        elif template and name in TEMPLATE_AXES:
            self.names[name] = self._template_index(name)
        else:
            made = self._value(value)
            self.names[name] = replace(made, truth=literal) if isinstance(literal, bool) else made
            if template and not self.depth and made.linear is not None and not made.linear.terms and not made.pointer:
                self.constants.setdefault(name, made.linear.const)  # tl.full([], 32768, tl.int64), and what follows

    def _template_index(self, name: str) -> Value:
        """An index of a template's result; within the loop the same names stand for others."""
        if self.depth:
            return NOTHING
        choices = TEMPLATE_AXES[name]
        size = next((self.constants[c] for c in choices if c in self.constants), None)
        axis = name.removeprefix("idx_")
        if isinstance(size, int):
            self.sizes[axis] = size
        return _index(axis)

    def _value(self, node: ast.expr) -> Value:
        """What an expression stands for; what it does is counted on the way."""
        match node:
            case ast.Constant(value=bool() as truth):
                return Value(truth=truth)
            case ast.Constant(value=int() as number):
                return Value(constant(number))
            case ast.Constant(value=float()):
                return Value(data=True)
            case ast.Name(id=name):
                if name == "acc" and self.kind == "template" and not self.depth:
                    return Value(axes=frozenset(self.sizes), moving=frozenset(self.sizes), data=True)
                return self.names.get(name, NOTHING)
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(op, self._value(left), self._value(right))
            case ast.UnaryOp(op=op, operand=operand):
                return self._unary(op, self._value(operand))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._compare(op, self._value(left), self._value(right))
            case ast.Call():
                return self._call(node)
            case ast.Subscript(value=base):
                return self._value(base)
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return replace(self._joined([self._value(i) for i in items]), linear=None)
            case ast.IfExp(body=yes, orelse=no):
                return self._joined([self._value(yes), self._value(no)])
        return NOTHING

    def _joined(self, values: Iterable[Value]) -> Value:
        """A result of these values, of which no more is known."""
        parts = tuple(values)
        axes = frozenset[str]().union(*(v.axes for v in parts))
        moving = frozenset[str]().union(*(v.moving for v in parts))
        read = any(v.read for v in parts)
        numbers = [self._different(v) for v in parts if v.axes and v.read == read]
        known = [n for n in numbers if n is not None]
        data = any(v.data for v in parts)
        if not axes and not read:
            return Value(data=data)
        together = max(known, default=1) if read else math.prod(known)  # what is read comes from one place as a rule
        return self._opaque_value(axes, moving, together if len(known) == len(numbers) else None, read, data or read)

    def _lanes(self, axes: Iterable[str]) -> int | None:
        """The product of the axes' sizes."""
        sizes = [self.sizes.get(a) for a in axes]
        return None if None in sizes else math.prod(s for s in sizes if s is not None)

    def _different(self, value: Value, bounds: Iterable[Bounds] = ()) -> int | None:
        """How many different numbers a value takes, at most one for each element of its axes."""
        if value.linear is None:
            return None
        number, lanes = count(value.linear, self.sizes, bounds), self._lanes(value.axes)
        return number if number is None or lanes is None else min(number, lanes)

    def _opaque_value(
        self, axes: frozenset[str], moving: frozenset[str], values: int | None, read: bool = True, data: bool = True
    ) -> Value:
        self.opaque += 1
        return Value(single(Opaque(self.opaque, moving, values)), axes, moving, read, data)

    def _binary(self, op: ast.operator, left: Value, right: Value) -> Value:
        joined = self._joined((left, right))
        if isinstance(op, ast.FloorDiv | ast.Mod):
            return self._divided(op, left, right, joined)
        if left.pointer or right.pointer:
            return self._moved(left, right) if isinstance(op, ast.Add) else replace(joined, pointer=left.pointer)
        self._count_arithmetic(joined, "divide" if isinstance(op, ast.Div) else "")
        if isinstance(op, ast.BitAnd):
            return replace(joined, bounds=left.bounds + right.bounds)
        linear: Linear | None = None
        if left.linear is not None and right.linear is not None:
            if isinstance(op, ast.Add | ast.Sub):
                linear = add(left.linear, right.linear, 1 if isinstance(op, ast.Add) else -1)
            elif isinstance(op, ast.Mult):
                linear = multiply(left.linear, right.linear)
        return joined if linear is None else _with_linear(joined, linear)

    def _divided(self, op: ast.operator, left: Value, right: Value, joined: Value) -> Value:
        """Integer division or remainder."""
        if joined.axes:
            self.index_divisions += 1
        if left.linear is None or right.linear is None or right.linear.terms:
            return joined
        operation = divide if isinstance(op, ast.FloorDiv) else remainder
        linear = operation(left.linear, right.linear.const, self.sizes)
        return joined if linear is None else _with_linear(joined, linear)

    def _moved(self, left: Value, right: Value) -> Value:
        """A pointer and an offset."""
        pointer, offset = (left, right) if left.pointer else (right, left)
        linear = (
            add(pointer.linear, offset.linear) if pointer.linear is not None and offset.linear is not None else None
        )
        axes, moving = pointer.axes | offset.axes, pointer.moving | offset.moving
        return Value(linear, axes, moving, pointer.read or offset.read, False, pointer.pointer)

    def _unary(self, op: ast.unaryop, operand: Value) -> Value:
        if isinstance(op, ast.Not) and operand.truth is not None:
            return Value(truth=not operand.truth)
        if isinstance(op, ast.USub) and operand.linear is not None:
            negated = multiply(constant(-1), operand.linear)
            self._count_arithmetic(operand)
            return replace(operand, linear=negated, bounds=())
        self._count_arithmetic(operand)
        return replace(operand, bounds=(), linear=operand.linear if isinstance(op, ast.UAdd) else None)

    def _compare(self, op: ast.cmpop, left: Value, right: Value) -> Value:
        """A condition; of an index against a number it bounds the index."""
        joined = self._joined((left, right))
        self._count_arithmetic(joined)
        if left.linear is None or right.linear is None or right.linear.terms or left.read:
            return joined
        number = right.linear.const
        limits: tuple[int | None, int | None]
        match op:
            case ast.Lt():
                limits = (None, number)
            case ast.LtE():
                limits = (None, number + 1)
            case ast.Gt():
                limits = (number + 1, None)
            case ast.GtE():
                limits = (number, None)
            case ast.Eq():
                limits = (number, number + 1)
            case _:
                return joined
        return replace(joined, bounds=(Bounds(left.linear, *limits),))

    def _call(self, node: ast.Call) -> Value:
        full = trees.dotted_name(node.func)
        short = node.func.attr if isinstance(node.func, ast.Attribute) else full
        if full == "tl.load":
            return self._load(node)
        if full == "tl.store" or short.startswith("atomic_"):
            return self._write(node, STORE if full == "tl.store" else short)
        if short == "device_assert" and node.args:
            self._bound_indices(node.args[0])
        if short in NO_WORK:
            return NOTHING
        if short in BLOCK_POINTERS and node.args:
            return Value(pointer=self._value(node.args[0]).pointer)
        if full in ("tl.full", "tl.zeros_like"):
            return self._value(node.args[1]) if len(node.args) > 1 else NOTHING
        if short in SAME_VALUE:
            is_function = full.startswith("tl.")
            held = node.args[0] if is_function and node.args else node.func
            return self._value(held.value if isinstance(held, ast.Attribute) and not is_function else held)
        values = [self._value(a) for a in node.args] + [self._value(k.value) for k in node.keywords]
        joined = self._joined(values)
        if full in REDUCTIONS:
            return self._reduced(node, REDUCTIONS[full], joined)
        if short in ("div_floor_integer", "remainder_integer") and len(values) == 2:
            left, right = values
            return self._divided(ast.FloorDiv() if short.startswith("div") else ast.Mod(), left, right, joined)
        if short in ACCUMULATED:
            return replace(joined, linear=None, data=True)
        dear = _dear(full, short)
        made = replace(joined, data=joined.data or bool(dear))
        self._count_arithmetic(made, dear)
        return made

    def _bound_indices(self, asserted: ast.expr) -> None:
        """An index that was read and is asserted to be below a number takes at most so many values."""
        for part in ast.walk(asserted):
            match part:
                case ast.Compare(
                    left=ast.Name(id=name), ops=[ast.Lt()], comparators=[ast.Constant(value=int() as size)]
                ):
                    index = self.names.get(name, NOTHING)
                    known = self._different(index)
                    if index.read and (known is None or size < known):
                        self.names[name] = self._opaque_value(index.axes, index.moving, size)

    def _reduced(self, node: ast.Call, kind: str, joined: Value) -> Value:
        """A reduction: what comes out depends on the axes that are left."""
        self.reductions[kind] += 1
        if kind in KEPT_LONG:
            return replace(joined, linear=None, data=True)
        dimension = _literal(node.args[-1]) if node.args else None
        if kind == "online_softmax":
            dimension = 1
        tiled = any(a.arg == "XBLOCK" for a in self.function.args.args) and not self.settings.get("no_x_dim")
        over_rows = tiled and dimension == 0 and any(not a.startswith("r") for a in joined.axes)
        left = frozenset(a for a in joined.axes if a.startswith("r") == over_rows)
        return Value(None, left, joined.moving & left, joined.read, True)

    def _load(self, node: ast.Call) -> Value:
        """A read of memory."""
        address = self._value(node.args[0]) if node.args else NOTHING
        self._access(node, LOAD, address, 1)
        return self._opaque_value(address.axes, address.moving, self._different(address))

    def _write(self, node: ast.Call, kind: str) -> Value:
        """A write, or a read and a write in one."""
        address = self._value(node.args[0]) if node.args else NOTHING
        for value in node.args[1:2]:
            self._value(value)
        self._access(node, kind, address, 2)
        return self._opaque_value(address.axes, address.moving, None)

    def _access(self, node: ast.Call, kind: str, address: Value, mask_place: int) -> None:
        keywords = {k.arg: k.value for k in node.keywords}
        masks = [*node.args[mask_place : mask_place + 1], *([keywords["mask"]] if "mask" in keywords else [])]
        arithmetic = replace(self.arithmetic)
        mask = self._joined_mask([self._value(m) for m in masks])
        self.arithmetic = arithmetic  # what a mask costs is no arithmetic on values
        bounds = tuple(b for b in mask.bounds if restricts(b, self.sizes))
        if self._in_template_loop:  # a tile of an operand, along an axis that only the loop has
            address = Value(pointer=address.pointer)
        linear = address.linear
        ends = None if linear is None or address.read else reach(linear, self.sizes, bounds)
        axes = tuple(sorted(address.axes))
        eviction = _literal(keywords["eviction_policy"]) if "eviction_policy" in keywords else ""
        self.accesses.append(
            Access(
                kind=kind,
                pointer=address.pointer,
                dtype=self.pointed.get(address.pointer) or None,
                axes=axes,
                strides=tuple(step(linear, a) if linear is not None else None for a in axes),
                indirect=address.read,
                conditional=bool(bounds) or mask.read,
                loop=self.loop,
                lanes=None if linear is None else self._lanes(axes),
                elements=self._different(address, bounds),
                run=None if linear is None else run_length(linear, self.sizes, bounds),
                offset=None if ends is None else ends[0],
                span=None if ends is None else ends[1] - ends[0] + 1,
                eviction=str(eviction or ""),
            )
        )

    def _joined_mask(self, masks: Sequence[Value]) -> Value:
        return masks[0] if masks else NOTHING

    def _count_arithmetic(self, result: Value, function: str = "") -> None:
        """One operation on values, or one execution of a dearer function."""
        if not result.data or not (result.axes or function) or (self._in_template_loop and not function):
            return
        executions = None if self._in_template_loop else self._lanes(result.axes)
        if function:
            self.functions.setdefault(function, _Count()).add(executions)
        else:
            self.arithmetic.add(executions)


def _dear(full: str, short: str) -> str:
    """The name of a function that costs more than an addition, "" for others."""
    if "rand" in short or "philox" in short:
        return "rand"
    if short in CHEAP:
        return ""
    if full.startswith(("libdevice.", "tl_math.", "tl.math.", "tl.extra.")) or (
        full.startswith("tl.") and short in DEAR_IN_TL
    ):
        return short
    return short if short in ("dot", "dot_scaled", "bucketize_binary_search") else ""


def _index(axis: str) -> Value:
    return Value(single(Axis(axis)), frozenset({axis}), frozenset({axis}))


def _with_linear(value: Value, linear: Linear) -> Value:
    """The value as the sum that it is, which says what moves it."""
    return replace(value, linear=linear, moving=frozenset(a for a in value.axes if step(linear, a) != 0))


def _axis(name: str) -> str:
    """Inductor's "r0_", and "r" of before there were several -> "r0"."""
    short = name.removesuffix("_")
    return "r0" if short == "r" else short


def _literal(node: ast.expr) -> object:
    """A plain value; of torch's hints their name; None for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _entries(node: ast.expr) -> dict[str, object]:
    """The entries of a dictionary whose values are plain."""
    if not isinstance(node, ast.Dict):
        return {}
    pairs = zip(node.keys, node.values, strict=True)
    return {str(k.value): _literal(v) for k, v in pairs if isinstance(k, ast.Constant)}


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
