"""What one kernel computes: its values, what it stores where, and the dimensions it walks over."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.fx

from kernels.codegen.budget import Budget, TooLong
from kernels.codegen.expressions import ops
from kernels.codegen.expressions.reductions import reduced_over, written_out
from kernels.codegen.expressions.rules import compute
from kernels.codegen.expressions.values import Builder, Operand, Value, to_store
from kernels.codegen.index import (
    Domain,
    Index,
    Linear,
    Split,
    Unsupported,
    address,
    column,
    contiguous_strides,
    from_the_end,
    reshape,
    row,
    spread,
    whole,
)
from kernels.codegen.memory_steps import memory_steps
from kernels.codegen.nodes import base, bind, dtype_of, fake

MAX_SPLITS = 8
PLACED = frozenset({"argmax", "argmin", *ops.SCANS, *ops.PICKS})
"""Operations for which the order of the columns is that of the dimensions."""
SECTOR = 8
"""Elements that memory reads at once, about: of 32 bytes."""
ROUNDED = (torch.bfloat16, torch.float16, torch.bool)
"""Results for which a quotient may be a little off: no step of a quantised one, which a little can change."""


@dataclass(frozen=True, slots=True)
class Start:
    """What an output holds before the kernel: a number everywhere, or an operand, or a view of it.

    view: shape, strides and offset within the operand's memory.
    """

    number: float | int | bool | None = None
    operand: str = ""
    view: tuple[tuple[int, ...], tuple[int, ...], int] | None = None


@dataclass(frozen=True, slots=True)
class Store:
    """One output: its name, the value, where each element goes, and the tensor to allocate.

    how: "" for a plain store; add, max, min or set at places that were read: `where` plus each of `spots` times its
    step, into an output that holds `start` before. within: whether such a place is one of the output's. count: `value`
    times how often a place occurs, where `chosen` holds.
    """

    name: str
    value: Value
    where: Linear
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    guard: Value | None = None  # stored only where this holds
    how: str = ""
    spots: tuple[Value, ...] = ()
    steps: tuple[int, ...] = ()
    within: Value | None = None
    chosen: Value | None = None
    start: Start | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """One kernel before its text. values are in an order in which they can be computed."""

    domain: Domain
    values: tuple[Value, ...]
    stores: tuple[Store, ...]
    operands: Mapping[str, Operand]
    helpers: tuple[str, ...]
    reduces: bool
    empty: bool = False

    @property
    def wide_addresses(self) -> bool:
        """Some element lies 2^31 elements or more into its tensor, or some number that counts places is as large."""
        reach = [o.reach for o in self.operands.values()] + [x.furthest(self.domain) for x in self.linears]
        reach += [sum((n - 1) * t for n, t in zip(s.shape, s.strides, strict=True)) for s in self.stores if s.how]
        return max([self.domain.rows * self.domain.width, *reach]) >= 2**31

    @property
    def wide_columns(self) -> bool:
        """A row's own part of some address is 2^31 or more: a large step from one column to the next."""
        first = self.domain.first_column
        parts = [replace(x, terms=tuple(t for t in x.terms if t[0] >= first)) for x in self.linears]
        return max([self.domain.width, *(p.furthest(self.domain) for p in parts)]) >= 2**31

    @property
    def linears(self) -> list[Linear]:
        """Every address and position in the text."""
        return [v.where for v in self.values if v.kind in ("load", "position")] + [s.where for s in self.stores]

    @property
    def seeded(self) -> bool:
        """It draws random numbers: the kernel takes a seed."""
        return any(v.kind == "expression" and "(seed + " in v.text for v in self.values)

    @property
    def strided(self) -> bool:
        """Neighbours in memory lie along the rows, in no small part of what is read and written: then several rows are
        walked side by side. One row alone would read a sector for each of its elements there, which costs more than
        several rows do where it is the columns that are neighbours.

        By elements: a row's few statistics say nothing of how the tensors lie that they are applied to.
        """
        first, sizes = self.domain.first_column, self.domain.sizes
        along_rows = along_columns = 0
        for x in self.linears:
            if any(d >= first for d, _ in x.terms) and any(d < first for d, _ in x.terms):
                elements = math.prod(sizes[d] for d, _ in x.terms)
                if min(x.terms, key=lambda t: abs(t[1]))[0] < first:
                    along_rows += elements
                else:
                    along_columns += elements
        return along_rows * SECTOR > along_columns

    @property
    def full_loads(self) -> int:
        """Loads that differ along rows and columns: the kernel's real traffic."""
        return sum(v.kind == "load" and v.columns and (v.rows or self.domain.rows == 1) for v in self.values)


def results(nodes: Sequence[torch.fx.Node]) -> list[torch.fx.Node]:
    """The nodes whose values are needed outside of the kernel that computes `nodes`, views of them included."""
    inside = set(nodes)
    stored = []
    for node in nodes:
        if isinstance(node.meta["val"], tuple | list):
            continue
        pending = list(node.users)
        while pending:
            user = pending.pop()
            if user in inside:
                continue
            if is_view(user):
                pending.extend(user.users)
                if any(u.op == "output" for u in user.users):
                    stored.append(node)
                    break
                continue
            stored.append(node)
            break
    return stored


def is_view(node: torch.fx.Node) -> bool:
    """A view whose index the generator follows."""
    return node.op == "call_function" and node.target is not operator.getitem and base(node) in ops.VIEWS


def plan(
    nodes: Sequence[torch.fx.Node],
    names: Mapping[torch.fx.Node, str],
    budget: Budget | None = None,
    wanted: Sequence[torch.fx.Node] | None = None,
) -> Plan:
    """Plan one kernel for `nodes` (fx nodes of an aten graph, in order). Raises Unsupported with the reason.

    wanted: what it stores; without, whatever of it is used outside.
    """
    budget = budget or Budget()
    members = [n for n in nodes if not is_view(n)]
    wanted = results(members) if wanted is None else wanted
    if not wanted:
        raise Unsupported("nothing that is used elsewhere")
    precise = not all(fake(n).dtype in ROUNDED for n in wanted)
    if not any(fake(n).numel() for n in wanted):
        return _empty(wanted, names)
    frames = _frames(members, wanted)
    reason: Unsupported | None = None
    for frame in frames:
        try:
            return _settled(frame, frozenset(members), wanted, names, precise, budget)
        except TooLong:
            raise
        except Unsupported as why:
            reason = reason or why
    raise reason or Unsupported("no dimensions to walk over")


def _empty(wanted: Sequence[torch.fx.Node], names: Mapping[torch.fx.Node, str]) -> Plan:
    nothing = Value("number", "f32", number=0.0)
    stores = tuple(
        Store(names[n], nothing, Linear(), dtype_of(fake(n)), tuple(fake(n).shape), tuple(fake(n).stride()))
        for n in wanted
    )
    return Plan(Domain((0,)), (), stores, {}, (), False, empty=True)


@dataclass(frozen=True, slots=True)
class Frame:
    """A domain and the order of the dimensions of the shape it stands for, outermost in memory first.

    flipped: the columns are walked from their end, for scans that run backwards. picked: how many elements of each row
    another output has, 0 where there is none. columns: the dimensions that are reduced, in the order of their walk.
    """

    domain: Domain
    shape: tuple[int, ...]
    order: tuple[int, ...]
    reduces: bool
    flipped: bool = False
    picked: int = 0
    columns: tuple[int, ...] = ()

    def index(self, shape: tuple[int, ...]) -> Index:
        """The index into an output of this shape for each point of the domain."""
        count = math.prod(shape)
        if count == self.domain.rows * self.domain.width and count == math.prod(self.shape):
            parts = spread(whole(self.domain), [self.shape[d] for d in self.order], self.domain)
            index = tuple(parts[self.order.index(d)] for d in range(len(self.shape)))
            if self.flipped:
                index = self.turned(index)
            if shape == self.shape:
                return index
            return spread(address(index, contiguous_strides(self.shape)), shape, self.domain)
        if self.picks(shape):
            kept = self.order[:-1]
            rows = dict(zip(kept, spread(row(self.domain), [self.shape[d] for d in kept], self.domain), strict=True))
            return tuple(rows.get(d, column(self.domain)) for d in range(len(shape)))
        if self.reduces and count == self.domain.rows:
            kept = self.order[: len(self.order) - len(self.columns)]
            if list(kept) == sorted(kept):
                return spread(row(self.domain), shape, self.domain)
            parts = spread(row(self.domain), [self.shape[d] for d in kept], self.domain)
            own = tuple(parts[kept.index(d)] for d in sorted(kept))
            return reshape(own, [self.shape[d] for d in sorted(kept)], shape, self.domain)
        raise Unsupported("outputs of different shapes in one kernel")

    def turned(self, index: Index) -> Index:
        """The index with the walked dimension counted from its end."""
        last = self.order[-1]
        return (*index[:last], from_the_end(index[last], self.shape[last]), *index[last + 1 :])

    def picks(self, shape: tuple[int, ...]) -> bool:
        """A tensor of this shape has the picked elements of each row."""
        if not self.picked:
            return False
        last = self.order[-1]
        return shape == (*self.shape[:last], self.picked, *self.shape[last + 1 :])


def _frames(members: Sequence[torch.fx.Node], wanted: Sequence[torch.fx.Node]) -> list[Frame]:
    """Domains to try: the reductions' rows and columns, or the largest output in the order of its memory."""
    inside = frozenset(members)
    frames: list[Frame] = []
    flipped: list[Frame] = []
    in_memory: list[Frame] = []
    for node in members:
        if node.target is operator.getitem or base(node) not in ops.ROWWISE:
            continue
        shape, dims = reduced_over(node)
        if not math.prod(shape):
            raise Unsupported("a reduction of nothing")
        kept = tuple(d for d in range(len(shape)) if d not in dims)
        rows, columns = [shape[d] for d in kept], [shape[d] for d in dims]
        domain = Domain((*rows, *columns) if dims else (*rows, 1), max(1, len(columns)))
        picked = bind(node)["k"] if base(node) == "topk" and dims else 0
        frame = Frame(domain, shape, (*kept, *dims), True, picked=0 if [picked] == columns else picked, columns=dims)
        if base(node) not in PLACED:
            in_memory.append(_as_in_memory(frame, kept, node, inside))
        frames.append(frame)
        if base(node) in ops.SCANS and dims:
            flipped.append(replace(frames[-1], flipped=True))
    rowwise = [n for n in members if n.target is not operator.getitem and base(n) in ops.ROWWISE]
    pointwise: list[Frame] = []
    top = max(wanted, key=lambda n: fake(n).numel())
    # Rows of few elements are written out where nothing is given for each of these.
    if all(written_out(n) and fake(n).numel() == fake(top).numel() for n in rowwise):
        shape, strides = tuple(fake(top).shape), fake(top).stride()
        order = tuple(sorted(range(len(shape)), key=lambda d: (-strides[d], d)))
        pointwise.append(Frame(Domain(tuple(shape[d] for d in order) or (1,)), shape, order, reduces=False))
    picking = [f for f in frames if f.picked]  # these know what the others know
    first = picking or (in_memory if len(in_memory) == len(frames) else [])
    return list(dict.fromkeys([*pointwise, *first, *frames, *flipped]))


def _as_in_memory(frame: Frame, kept: tuple[int, ...], node: torch.fx.Node, inside: frozenset[torch.fx.Node]) -> Frame:
    """The frame with its rows and columns in the order in which they lie in memory."""
    source = next(n for n in node.all_input_nodes if tuple(fake(n).shape) == frame.shape)
    strides = memory_steps(source, inside)

    def ordered(dims: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(dims, key=lambda d: (-strides[d], d)))

    rows, columns = ordered(kept), ordered(frame.columns)
    if (rows, columns) == (kept, frame.columns):
        return frame
    sizes = tuple(frame.shape[d] for d in (*rows, *columns)) + ((1,) if not columns else ())
    return replace(frame, domain=Domain(sizes, frame.domain.columns), order=(*rows, *columns), columns=columns)


def _settled(
    frame: Frame,
    inside: frozenset[torch.fx.Node],
    wanted: Sequence[torch.fx.Node],
    names: Mapping[torch.fx.Node, str],
    precise: bool,
    budget: Budget,
) -> Plan:
    """Build the values; where a reshape asks for it, split a dimension and start again."""
    for _ in range(MAX_SPLITS):
        walked = tuple(sorted(frame.columns).index(d) for d in frame.columns)
        builder = Builder(
            inside, frame.domain, dict(names), precise, compute, budget, picked=frame.picked, walked=walked
        )
        try:
            stores = [_store(builder, frame, node) for node in wanted]
        except Split as split:
            frame = replace(frame, domain=frame.domain.split(split.dim, split.inner))
            continue
        needed = used(builder.values, [v for s in stores for v in (s.value, s.guard) if v is not None])
        operands = {v.operand: builder.operands[v.operand] for v in needed if v.kind == "load"}
        done = Plan(frame.domain, needed, tuple(stores), operands, tuple(builder.helpers), frame.reduces)
        return merged(done)
    raise Unsupported("too many different reshapes")


def _store(builder: Builder, frame: Frame, node: torch.fx.Node) -> Store:
    tensor = fake(node)
    dtype = dtype_of(tensor)
    index = frame.index(tuple(tensor.shape))
    guard = builder.first_picked() if frame.picks(tuple(tensor.shape)) else None
    value = builder.settled(node, index, () if guard is None else (guard,))
    value = to_store(builder, value, dtype)
    where = address(index, tensor.stride())
    if value.columns and not any(d >= frame.domain.first_column for d, _ in where.terms) and frame.domain.width > 1:
        raise Unsupported("a value of every column where a row has one")
    return Store(builder.names[node], value, where, dtype, tuple(tensor.shape), tuple(tensor.stride()), guard)


def used(values: Sequence[Value], wanted: Sequence[Value]) -> tuple[Value, ...]:
    """Those of `values` that `wanted` are computed from, in order."""
    seen: set[int] = set()
    pending = list(wanted)
    while pending:
        value = pending.pop()
        if id(value) not in seen:
            seen.add(id(value))
            pending.extend(value.args)
            if value.guard is not None:
                pending.append(value.guard)
    return tuple(v for v in values if id(v) in seen)


def merged(plan: Plan) -> Plan:
    """Drop dimensions of size 1 and join neighbours that every address walks through as one."""
    domain = plan.domain
    linears = [v.where for v in plan.values if v.kind in ("load", "position")] + [s.where for s in plan.stores]
    groups: list[list[int]] = []
    for dim, size in enumerate(domain.sizes):
        if size == 1:
            continue
        last = groups[-1][-1] if groups else None
        side = last is not None and (last < domain.first_column) == (dim < domain.first_column)
        if last is not None and side and all(x.coefficient(last) == x.coefficient(dim) * size for x in linears):
            groups[-1].append(dim)
        else:
            groups.append([dim])
    if plan.reduces and not any(g[0] >= domain.first_column for g in groups):
        groups.append([len(domain.sizes) - 1])  # a column of size 1 stays a column
    sizes = tuple(math.prod(domain.sizes[d] for d in group) for group in groups) or (1,)
    columns = sum(g[0] >= domain.first_column for g in groups)
    home = {group[-1]: i for i, group in enumerate(groups)}

    def moved(linear: Linear) -> Linear:
        return Linear(linear.offset, tuple(sorted((home[d], c) for d, c in linear.terms if d in home)))

    for value in plan.values:
        if value.kind in ("load", "position"):
            value.where = moved(value.where)
    stores = tuple(replace(s, where=moved(s.where)) for s in plan.stores)
    return replace(plan, domain=Domain(sizes, columns), stores=stores)
