"""From aten nodes to the values of one kernel: loads, constants, expressions, reductions, at linear indices."""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from kernels.codegen.budget import Budget
from kernels.codegen.expressions import ops
from kernels.codegen.index import ZERO, Domain, Index, Linear, Unsupported, address, broadcast, column, spread
from kernels.codegen.nodes import base, computed, dtype_of, fake, first_input, is_fill, is_number, root, view_index

MAX_VALUES = 400
"""Steps of one kernel."""
EIGHT_BITS = ("f8e4m3", "f8e5m2")
"""Floats that no GPU casts to as every torch does: what is beyond the largest number is its own in some versions."""
SCAN_HELPERS: Mapping[str, tuple[str, ...]] = {
    "nan_max": ("nan_max",), "nan_min": ("nan_min",), "log_sums": ("log_sums",),
    "latest_largest": ("latest_largest",), "latest_smallest": ("latest_smallest",),
}  # fmt: skip
"""Device functions of a scan that has no name in Triton."""
MAX_DEPTH = 24
"""Operations between one that is asked for and one that is computed on the way, each several Python calls deep."""


class Deeper(Exception):  # noqa: N818 - control flow: compute this first, then start again
    """A value too far below the one asked for to be computed inside it."""

    def __init__(self, node: torch.fx.Node, index: Index, guards: tuple[Value, ...]) -> None:
        super().__init__(node.name)
        self.node = node
        self.index = index
        self.guards = guards


def is_power_of_two(value: Value) -> bool:
    """A number by which dividing and multiplying by its reciprocal round alike."""
    fraction, exponent = math.frexp(float(value.number or 0)) if value.kind == "number" else (0.0, 0)
    return abs(fraction) == 0.5 and abs(exponent) < 126


@functools.cache
def _helpers(text: str) -> tuple[str, ...]:
    """The helper functions that an expression calls."""
    called = [helper for helper in ops.HELPERS if re.search(rf"\b{helper}\(", text)]
    inner = [name for helper in called for name in ops.HELPERS_OF.get(helper, ())]
    return tuple(dict.fromkeys([*inner, *called]))


def _result_name(node: torch.fx.Node) -> str:
    """A node's name; of one of several results, after the operation that gives it: topk_0."""
    if node.target is operator.getitem:
        source, place = node.args
        return f"{source}_{place}"
    return node.name


@functools.cache
def _saturates(dtype: str) -> bool:
    """Whether this torch casts what is too large to the largest number."""
    large = torch.tensor(1e6).to(getattr(torch, ops.TORCH_DTYPES[dtype][6:])).float()
    return bool(torch.isfinite(large))


def rounding(dtype: str) -> str:
    """The expression that rounds to a dtype of 16 or 8 bits."""
    if dtype in EIGHT_BITS:
        return f"round_to_f8({{0}}, {ops.TRITON_DTYPES[dtype]}, {_saturates(dtype)})"
    return f"round_to({{0}}, {ops.TRITON_DTYPES[dtype]})"


def to_store(b: Builder, value: Value, dtype: str) -> Value:
    """The value as it is handed to a store, which rounds to 16 bits by itself."""
    if value.text != rounding(dtype):
        return value
    if dtype in EIGHT_BITS:
        return b.expression(rounding(dtype).replace("round_to_f8", "to_f8"), value.dtype, value.args[0])
    return value.args[0]


@dataclass(eq=False, slots=True)
class Value:
    """One value of the kernel. kind: load, number, position, expression, reduce, scan, sort.

    dtype is what it is computed in: f64, f32, bool, or an integer type. columns: it differs along the columns;
    level: how many reductions, one after the other, it takes to know it.
    """

    kind: str
    dtype: str
    text: str = ""  # expression: with {0}, {1}; reduce and scan: how (writer.py); sort: how many come first
    args: tuple[Value, ...] = ()
    number: float | int | bool | None = None
    operand: str = ""  # load: name of the node or input read
    where: Linear = ZERO  # load: address in elements; position: its value
    guard: Value | None = None  # load: read only where this holds; reduce: taken in only where it does
    stored: str = ""  # load: dtype in memory
    stride: int = 0  # load: the address is also stride * args[0], an index that was itself read
    columns: bool = False
    rows: bool = False
    level: int = 0
    limit: int = 0  # only so many columns hold something, 0: all
    width: int = 0  # reduce: columns that it takes in
    name: str = ""
    line: int = 0


@dataclass(slots=True)
class Operand:
    """A tensor read from outside: its node, and what the kernel may assume of it."""

    node: torch.fx.Node
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    reach: int = 0  # largest element offset that is read


def _refuse_negated(value: Value) -> None:
    """Of negated integers below 64 bits the least came out wrong in 1,184 of 16,384 rows and the largest in all, on an
    H200 by Triton 3.6.0: with tl.min, tl.max, or a comparison behind a cast to 64 bits alike, and right where the
    negation itself was in 64 bits or where another number was subtracted from. Raises Unsupported."""
    while value.kind == "expression" and value.text.startswith("{0}.to("):
        (value,) = value.args
    if value.kind == "expression" and value.text == "-{0}" and value.dtype != "i64":
        raise Unsupported("the least or largest of negated integers, which Triton's compiler gets wrong")


def _of_rows(b: Builder, guard: Value) -> Value | None:
    """What a guard says of the rows, None where it says nothing. Raises Unsupported where it cuts through them."""
    if guard.text == "{0} & {1}":
        parts = [part for each in guard.args if (part := _of_rows(b, each)) is not None]
        return b.expression("{0} & {1}", "bool", *parts) if len(parts) == 2 else next(iter(parts), None)
    if guard.columns and guard.rows:
        raise Unsupported("a walk along a row of which other elements are asked for")
    return None if guard.columns else guard


def _elements(memory: torch.Tensor) -> int:
    """Elements of a tensor's dtype in its memory."""
    return int(memory.untyped_storage().size()) // memory.element_size()


def literal(number: float | bool, dtype: str) -> str:
    """A number as Triton text, in the dtype it is computed in."""
    if dtype == "bool":
        return repr(bool(number))
    if dtype.startswith("f"):
        number = float(number)
        if math.isnan(number) or math.isinf(number):
            return f'float("{number!r}")'
        return repr(number)
    if isinstance(number, float) and not number.is_integer():
        raise Unsupported("a fraction where an integer is computed")
    return repr(int(number))


Compute = Callable[["Builder", torch.fx.Node, Index], Value]
"""The value of one node at an index. Raises Unsupported where it is not in the generator's table."""


@dataclass
class Builder:
    """Values of one kernel over `domain`, asked for by node and index. `inside` are the nodes that it computes.

    compute: gives the value of such a node from those of its arguments (kernels.codegen.rules).
    """

    inside: frozenset[torch.fx.Node]
    domain: Domain
    names: dict[torch.fx.Node, str]
    precise: bool
    compute: Compute
    budget: Budget = field(default_factory=Budget)
    picked: int = 0  # columns of what is picked from each row
    walked: tuple[int, ...] = ()  # the order of the reduced dimensions along the columns; (): as they are
    values: list[Value] = field(default_factory=list)
    operands: dict[str, Operand] = field(default_factory=dict)
    helpers: dict[str, None] = field(default_factory=dict)
    _memo: dict[Any, Value] = field(default_factory=dict)
    _guards: list[Value] = field(default_factory=list)
    _node: torch.fx.Node | None = None
    _depth: int = 0

    # values

    def made(self, value: Value, *key: Any) -> Value:
        """Add a value, or give the equal one that is there already."""
        full = (value.kind, value.dtype, value.text, tuple(map(id, value.args)), repr(value.number), value.operand,
                value.where, value.stride, id(value.guard), value.limit, *key)  # fmt: skip
        if full in self._memo:
            return self._memo[full]
        value.columns = value.columns or any(a.columns for a in value.args)
        value.rows = value.rows or any(a.rows for a in value.args)
        value.level = max([value.level, *(a.level for a in value.args)])
        value.limit = value.limit or min((a.limit for a in value.args if a.limit), default=0)
        if value.guard is not None:
            value.columns, value.rows = value.columns or value.guard.columns, value.rows or value.guard.rows
        if self._node is not None and value.kind != "load":
            value.name = value.name or _result_name(self._node)
            value.line = int((self._node.meta.get("custom") or {}).get("line", 0))
        self._memo[full] = value
        self.values.append(value)
        if len(self.values) > MAX_VALUES:
            raise Unsupported(f"more than {MAX_VALUES} steps in one kernel")
        return value

    def number(self, number: float | bool, dtype: str) -> Value:
        literal(number, dtype)
        return self.made(Value("number", dtype, number=number))

    def position(self, linear: Linear, dtype: str = "i64") -> Value:
        """A linear index as an integer value."""
        if not linear.terms:
            return self.number(linear.offset, dtype)
        columns, rows = self.reach(linear)
        return self.made(Value("position", dtype, where=linear, columns=columns, rows=rows, name="place"))

    def place(self, linear: Linear) -> Value:
        """A position that is only compared: in 32 bits where it fits."""
        return self.position(linear, "i32" if abs(linear.offset) + linear.largest(self.domain) < 2**31 else "i64")

    def reach(self, linear: Linear) -> tuple[bool, bool]:
        """Whether an address differs along the columns, and along the rows."""
        first = self.domain.first_column
        dims = [d for d, _ in linear.terms]
        return any(d >= first for d in dims), any(d < first for d in dims)

    def expression(self, text: str, dtype: str, *args: Value, name: str = "") -> Value:
        self.helpers.update(dict.fromkeys(_helpers(text)))
        return self.made(Value("expression", dtype, text, args, name=name))

    def named(self, value: Value, name: str) -> Value:
        """A step inside an operation under a name of its own, instead of the operation's."""
        if self._node is not None and value.name == _result_name(self._node) and value.kind != "load":
            value.name = name
        return value

    def cast(self, value: Value, dtype: str) -> Value:
        """The value in another computed dtype."""
        if value.dtype == dtype:
            return value
        if value.kind == "number":
            return self.number(value.number or 0 if value.number == value.number else math.nan, dtype)
        if dtype == "bool":
            return self.expression("{0} != 0", "bool", value)
        return self.expression(f"{{0}}.to({ops.TRITON_DTYPES[dtype]})", dtype, value)

    def rounded(self, value: Value, dtype: str) -> Value:
        """The value as a tensor of this dtype would hold it, computed on in `computed(dtype)`."""
        value = self.cast(value, computed(dtype))
        if computed(dtype) == dtype or (value.kind == "load" and value.stored == dtype):
            return value
        if value.kind == "number":
            exact = torch.tensor(float(value.number or 0), dtype=getattr(torch, ops.TORCH_DTYPES[dtype][6:]))
            return self.number(float(exact), "f32")
        already = rounding(dtype)
        return value if value.text == already else self.expression(already, "f32", value)

    def apply(self, name: str, dtype: str, *args: Value | float | int | bool) -> Value:
        """A table entry on operands that are cast to its domain. dtype: of the result, as aten has it."""
        entry = ops.POINTWISE[name]
        if entry.domain == ops.COMPARE:
            inner = computed(dtype)  # the promoted dtype of the operands
        elif entry.domain == ops.LOGICAL:
            inner = "bool"
        else:
            inner = computed(dtype)
        text = entry.form(inner, self.precise)
        if text is None:
            raise Unsupported(f"{name} of {inner}")
        operands = [self.cast(a, inner) if isinstance(a, Value) else self.number(a, inner) for a in args]
        if name in ("div", "true_divide") and inner == "f32":
            if not self.precise:
                return self.quotient(*operands)
            if self.of_a_row(*operands):
                text = "over_row({0}, {1})"
            elif is_power_of_two(operands[1]):  # whose reciprocal is exact
                return self.quotient(*operands)
        result = "bool" if entry.domain in (ops.COMPARE, ops.LOGICAL) else inner
        return self.expression(text, result, *operands)

    def of_a_row(self, top: Value, bottom: Value) -> bool:
        """All of a row is divided by one value that the kernel has computed."""
        return top.columns and not bottom.columns and bottom.kind != "number" and self.domain.columns > 0

    def quotient(self, top: Value, bottom: Value) -> Value:
        """top / bottom. One reciprocal for a whole row or number, where a product per element will do."""
        if bottom.kind == "number" and bottom.number:
            return self.expression("{0} * {1}", top.dtype, top, self.number(1.0 / bottom.number, top.dtype))
        if self.of_a_row(top, bottom):
            inverse = self.named(self.expression("1.0 / {0}", top.dtype, bottom), "inverse")
            return self.expression("{0} * {1}", top.dtype, top, inverse)
        return self.expression("{0} / {1}", top.dtype, top, bottom)

    def gathered(self, node: torch.fx.Node, index: Index, dim: int, position: Value) -> Value:
        """Read node's element at `index`, but at `found` along dim: an index that was itself read. May be negative."""
        source = root(node)
        if source is node and is_fill(source) and base(source) == "arange":
            size = fake(node).shape[0]
            spot = self.expression(f"tl.where({{0}} < 0, {{0}} + {size}, {{0}})", "i64", self.cast(position, "i64"))
            if len(source.args) > 1:
                raise Unsupported("an index into a range that does not begin at 0")
            return self.cast(spot, computed(dtype_of(fake(node))))
        if source in self.inside or is_fill(source) or is_number(source):
            raise Unsupported("an index into what the same kernel computes")
        return self.gathered_at(node, (*index[:dim], ZERO, *index[dim + 1 :]), {dim: position})

    def gathered_at(
        self, node: torch.fx.Node, fixed: Index, positions: Mapping[int, Value], from_the_end: bool = True
    ) -> Value:
        """Read node's element at an index that was itself read or computed in some dimensions.

        fixed: the index in the others, zero in these. from_the_end: it may be negative.
        """
        source = root(node)
        if source in self.inside or is_fill(source) or is_number(source):
            raise Unsupported("an index into what the same kernel computes")
        spots = []
        near = _elements(fake(source)) < 2**31 and all(position.dtype == "i32" for position in positions.values())
        dtype = "i32" if near else "i64"
        for dim, position in positions.items():
            spot = self.cast(position, dtype)
            if from_the_end:
                size = fake(node).shape[dim]
                spot = self.expression(f"tl.where({{0}} < 0, {{0}} + {size}, {{0}})", dtype, spot)
            spots.append((self.named(spot, "spot"), int(fake(node).stride(dim))))
        if len(spots) == 1:
            return self.load(node, source, fixed, (spots[0][0],), spots[0][1])
        text = " + ".join(f"{{{i}}} * {stride}" for i, (_, stride) in enumerate(spots))
        spot = self.expression(text, dtype, *(s for s, _ in spots))
        return self.load(node, source, fixed, (self.named(spot, "spot"),), 1)

    def load(
        self, node: torch.fx.Node, source: torch.fx.Node, index: Index, args: tuple[Value, ...] = (), stride: int = 0
    ) -> Value:
        """Read node's element at `index` from the memory of `source`, of which it is a view (or itself)."""
        tensor, memory = fake(node), fake(source)
        dtype = dtype_of(memory)
        if tensor.dtype != memory.dtype:
            raise Unsupported("a view as another dtype")
        offset = int(tensor.storage_offset()) - int(memory.storage_offset())
        where = address(index, tensor.stride(), offset)
        name = self.names[source]
        if name not in self.operands:
            self.operands[name] = Operand(source, dtype, tuple(memory.shape), tuple(memory.stride()))
        furthest = where.largest(self.domain) if not args else _elements(memory)
        self.operands[name].reach = max(self.operands[name].reach, int(furthest))
        guard = self._guards[-1] if self._guards else None
        columns, rows = self.reach(where)
        value = Value(
            "load", computed(dtype), args=args, operand=name, where=where, guard=guard, stored=dtype, stride=stride,
            columns=columns, rows=rows, name=name,
        )  # fmt: skip
        return self.made(value)

    # nodes

    def value(self, node: torch.fx.Node, index: Index) -> Value:
        """The node's element at an index. The value is in `computed(dtype)` of the node's dtype."""
        key = (node, index, id(self._guards[-1]) if self._guards else None)
        if key not in self._memo:
            self.budget.spend()
            if self._depth >= MAX_DEPTH:
                raise Deeper(node, index, tuple(self._guards))
            outer, self._node = self._node, node
            self._depth += 1
            try:
                self._memo[key] = self.find(node, index)
            finally:
                self._node = outer
                self._depth -= 1
        return self._memo[key]

    def settled(self, node: torch.fx.Node, index: Index, guards: tuple[Value, ...] = ()) -> Value:
        """`value`, for a node however many operations deep: what lies too far below is computed first."""
        pending: list[tuple[torch.fx.Node, Index, tuple[Value, ...]]] = [(node, index, guards)]
        while True:
            current, at, guards = pending[-1]
            self._guards = list(guards)
            try:
                value = self.value(current, at)
            except Deeper as deeper:
                pending.append((deeper.node, deeper.index, deeper.guards))
                continue
            pending.pop()
            if not pending:
                self._guards = []
                return value

    def find(self, node: torch.fx.Node, index: Index) -> Value:
        source = root(node)
        if source in self.inside or is_fill(source) or is_number(source):
            if node is source:
                return self.compute(self, node, index)
            return self.value(first_input(node), view_index(node, index, self.domain))
        if source.op not in ("placeholder", "call_function", "get_attr"):
            raise Unsupported(f"a value from {source.op}")
        return self.load(node, source, index)

    def operand_at(self, argument: Any, index: Index, shape: Sequence[int], dtype: str) -> Value:
        """A tensor or number argument of a broadcasting operation, cast to `computed(dtype)`."""
        if isinstance(argument, torch.fx.Node):
            part = self.value(argument, broadcast(index, shape, tuple(fake(argument).shape)))
            return self.cast(part, computed(dtype))
        return self.number(argument, computed(dtype))

    def reduced(self, argument: torch.fx.Node, dims: Sequence[int], keep: bool, index: Index, dtype: str) -> Value:
        """The full-width value that a reduction at `index` reads, over `dims` of its argument."""
        shape = tuple(fake(argument).shape)
        wide = sorted(d % max(1, len(shape)) for d in dims) if shape else []
        width = math.prod(shape[d] for d in wide)
        if width not in (self.domain.width, self.picked) or (width != self.domain.width and len(wide) != 1):
            raise Unsupported("reductions of different widths in one kernel")
        kept = [d for d in range(len(shape)) if d not in wide]
        parts = dict(zip(range(len(shape)) if keep else kept, index, strict=True))
        if any(self.reach(parts[d])[0] for d in kept):
            raise Unsupported("a result of a whole row that is used across rows")
        if width != self.domain.width:
            across: Index = (column(self.domain),)
        else:
            order = self.walked if len(self.walked) == len(wide) else tuple(range(len(wide)))
            parts_of = spread(column(self.domain), [shape[wide[place]] for place in order], self.domain)
            across = tuple(parts_of[order.index(place)] for place in range(len(wide)))
        full = tuple(across[wide.index(d)] if d in wide else parts[d] for d in range(len(shape)))
        if width != self.domain.width:
            value = self.cast(self.within_picked(argument, full), computed(dtype))
            return self.made(Value("expression", value.dtype, "{0}", (value,), limit=width))
        return self.cast(self.whole_row(argument, full), computed(dtype))

    def first_picked(self) -> Value:
        """Whether a column is one of those that are picked."""
        outer, self._node = self._node, None
        try:
            spot = self.place(column(self.domain))
            return self.expression("{0} < {1}", "bool", spot, self.number(self.picked, spot.dtype), name="is_picked")
        finally:
            self._node = outer

    def within_picked(self, node: torch.fx.Node, index: Index) -> Value:
        """The node's element, read only where something is picked."""
        guard = self.first_picked()
        return self.value(node, index) if guard in self._guards else self.guarded(guard, node, index)

    def whole_row(self, node: torch.fx.Node, index: Index) -> Value:
        """The node's element in every column of the rows that are asked for, whichever columns of the result are."""
        kept = [_of_rows(self, guard) for guard in self._guards[-1:]]
        outer, self._guards = self._guards, [guard for guard in kept if guard is not None]
        try:
            return self.value(node, index)
        finally:
            self._guards = outer

    def reduce(self, how: str, value: Value, mean: Value | None = None) -> Value:
        """sum, prod, max, min, nan_max, nan_min, mean or m2 (sum of squares around the mean) over the columns."""
        width = value.limit or self.domain.width
        if not value.columns:
            constant = {"sum": f"{{0}} * {width}", "m2": "{0} * 0"}.get(how)
            if how == "prod" and width > 1:
                raise Unsupported("a product of one number that is repeated")
            return value if constant is None else self.expression(constant, value.dtype, value)
        if how in ("nan_max", "nan_min", "max", "min") and not value.dtype.startswith("f"):
            _refuse_negated(value)
            how = f"whole_{how[-3:]}"
        if how in ops.HELPERS:
            self.helpers[how] = None
        elif how == "prod":
            self.helpers["product"] = None
        args = (value,) if mean is None else (value, mean)
        guard = self.first_picked() if value.limit else None
        made = Value("reduce", value.dtype, how, args, level=value.level + 1, guard=guard, width=width)
        made = self.made(made)
        made.columns, made.limit = False, 0
        return made

    def reduce_place(self, how: str, value: Value) -> Value:
        """argmax or argmin: the place of the first largest or smallest element of each row; NaN is before all."""
        place = self.place(column(self.domain))
        if not value.columns:
            return self.number(0, "i64")
        if value.limit:
            raise Unsupported("a place in what is picked")
        if not value.dtype.startswith("f"):
            _refuse_negated(value)
        self.helpers["first_largest" if how == "argmax" else "first_smallest"] = None
        pair = Value("reduce", place.dtype, how, (value, place), level=value.level + 1, width=self.domain.width)
        made = self.made(pair)
        made.columns = False
        return self.cast(made, "i64")

    def scan(self, how: str, *args: Value) -> Value:
        """The running sum, product or largest element along the columns; of a pair the second part."""
        if how in SCAN_HELPERS:
            self.helpers.update(dict.fromkeys(SCAN_HELPERS[how]))
        return self.made(Value("scan", args[-1].dtype, how, args, columns=True))

    def spread_out(self, value: Value) -> Value:
        """The value, with one element for each column."""
        if value.columns:
            return value
        spot = self.place(column(self.domain))
        return self.expression("tl.where({0} >= 0, {1}, {1})", value.dtype, spot, value)

    def mean(self, value: Value) -> Value:
        return self.reduce("mean", value)

    def guarded(self, guard: Value, node: torch.fx.Node, index: Index) -> Value:
        """The node's element, read only where `guard` holds."""
        both = self.expression("{0} & {1}", "bool", self._guards[-1], guard) if self._guards else guard
        self._guards.append(both)
        try:
            return self.value(node, index)
        finally:
            self._guards.pop()
