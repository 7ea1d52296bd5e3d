"""The plan of a matrix product's kernel: what is computed of each operand's element, and of the product's.

Three domains: [batch, row, k] of the left operand, [batch, k, column] of the right one, [batch, row, column] of the
result. What is in front of the operands is computed as they are loaded, what is behind while the result is in
registers; a reduction over the columns where one program holds a whole row.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.fx

from kernels.codegen.budget import Budget
from kernels.codegen.expressions import ops
from kernels.codegen.expressions.rules import compute
from kernels.codegen.expressions.values import Builder, Value, to_store
from kernels.codegen.index import Domain, Index, Linear, Split, Unsupported, address, reshape, spread, whole
from kernels.codegen.nodes import Arguments, base, bind, dtype_of, fake, first_input
from kernels.codegen.plan import MAX_SPLITS, ROUNDED, Frame, Plan, Store, results, used
from kernels.codegen.stages import is_reduction

PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "_int_mm"})
OPERANDS = frozenset({torch.float32, torch.float16, torch.bfloat16, torch.int8})
WIDEST_ROW = 256
"""Columns of a result that a program holds whole, so that it can reduce over them."""


@dataclass(frozen=True, slots=True)
class Space:
    """A domain in three parts, each of one dimension or of what reshapes split it into. counts: dimensions of each."""

    domain: Domain
    counts: tuple[int, int, int]

    @staticmethod
    def of(batch: int, rows: int, columns: int) -> Space:
        return Space(Domain((batch, rows, columns), 1), (1, 1, 1))

    def split(self, split: Split) -> Space:
        """With one dimension as two."""
        counts = list(self.counts)
        counts[self.part(split.dim)] += 1
        return Space(self.domain.split(split.dim, split.inner), (counts[0], counts[1], counts[2]))

    def part(self, dim: int) -> int:
        """0 for a dimension of the batch, 1 for one of the rows, 2 for one of the columns."""
        return 0 if dim < self.counts[0] else 1 if dim < self.counts[0] + self.counts[1] else 2

    def dims(self, part: int) -> tuple[int, ...]:
        return tuple(d for d in range(len(self.domain.sizes)) if self.part(d) == part)

    def index(self, shape: tuple[int, ...]) -> Index:
        """The index into a tensor of all its elements."""
        return spread(whole(self.domain), shape, self.domain)


@dataclass(frozen=True, slots=True)
class Side:
    """One operand: the values of an element of it, the last of which is it. dtype: what is multiplied."""

    space: Space
    plan: Plan
    value: Value
    dtype: str

    @property
    def plain(self) -> bool:
        """Only loaded."""
        return self.value.kind == "load" and self.value.stored == self.dtype and not self.value.args


@dataclass(frozen=True, slots=True)
class Product:
    """A product with what is around it. acc: the value that stands for the sum, in f32, or i32 of integers.

    plan: all of it, for the file around the kernel; result: what is computed of the sum and stored.
    """

    batch: int
    m: int
    n: int
    k: int
    left: Side
    right: Side
    space: Space
    result: Plan
    acc: Value
    plan: Plan

    @property
    def wide(self) -> bool:
        """Some address does not fit in 32 bits."""
        return any(p.wide_addresses for p in (self.left.plan, self.right.plan, self.result))


def operands_of(node: torch.fx.Node) -> tuple[torch.fx.Node, torch.fx.Node]:
    """The two that are multiplied."""
    a = bind(node)
    names = ("batch1", "batch2") if base(node) == "baddbmm" else ("mat1", "mat2") if base(node) == "addmm" else None
    if names is None:
        names = ("self", "mat2")
    return a[names[0]], a[names[1]]


def is_product(node: torch.fx.Node) -> bool:
    """A matrix product that the generator can compute."""
    if node.op != "call_function" or node.target is operator.getitem or base(node) not in PRODUCTS:
        return False
    left, right = operands_of(node)
    integers = base(node) == "_int_mm"
    same = fake(left).dtype == fake(right).dtype and fake(left).dtype in OPERANDS
    made = fake(node).dtype in (fake(left).dtype, torch.int32 if integers else torch.float32)
    some = fake(left).numel() > 0 and fake(right).numel() > 0
    return same and made and some and (fake(left).dtype == torch.int8) == integers


def plan_product(
    node: torch.fx.Node, steps: Sequence[torch.fx.Node], behind: Sequence[torch.fx.Node],
    names: Mapping[torch.fx.Node, str], budget: Budget,
) -> Product:  # fmt: skip
    """The kernel of a product, the steps in front of it, and a group behind it. Raises Unsupported with the reason."""
    left_node, right_node = operands_of(node)
    (m, k), n = fake(left_node).shape[-2:], fake(right_node).shape[-1]
    batch = fake(node).shape[0] if fake(node).dim() == 3 else 1
    inside = frozenset(s for s in steps if base(s) not in ops.VIEWS)
    left = plan_side(left_node, Space.of(batch, m, k), inside, names, budget)
    right = plan_side(right_node, Space.of(batch, k, n), inside, names, budget)
    acc = Value("given", "i32" if base(node) == "_int_mm" else "f32", "acc", columns=True, rows=True, name="acc")
    space, result = plan_result(node, Space.of(batch, m, n), acc, behind, names, budget, WIDEST_ROW)
    plans = (left.plan, right.plan, result)
    operands = {name: o for p in plans for name, o in p.operands.items()}
    values = tuple(v for p in plans for v in p.values)
    helpers = tuple(dict.fromkeys(h for p in plans for h in p.helpers))
    if left.dtype == "bf16":
        helpers = (*helpers, "round_to", "dot_bf16") if "round_to" not in helpers else (*helpers, "dot_bf16")
    whole_plan = Plan(space.domain, values, result.stores, operands, helpers, False)
    return Product(batch, m, n, k, left, right, space, result, acc, whole_plan)


def plan_side(
    node: torch.fx.Node, space: Space, inside: frozenset[torch.fx.Node], names: Mapping[torch.fx.Node, str],
    budget: Budget,
) -> Side:  # fmt: skip
    """What is computed of each element of an operand as it is loaded."""
    tensor = fake(node)
    dtype = dtype_of(tensor)
    for _ in range(MAX_SPLITS):
        builder = Builder(inside, space.domain, dict(names), dtype == "f32", compute, budget)
        try:
            value = builder.settled(node, space.index(tuple(tensor.shape)))
        except Split as split:
            space = space.split(split)
            continue
        needed = used(builder.values, [value])
        if any(v.kind == "reduce" for v in needed):
            raise Unsupported("a reduction in front of a product")
        space, _ = joined(space, needed, ())
        mark(needed, space)
        return Side(space, _plan(builder, space, needed, ()), value, dtype)
    raise Unsupported("too many different reshapes")


def _plan(builder: Builder, space: Space, needed: tuple[Value, ...], stores: tuple[Store, ...]) -> Plan:
    operands = {v.operand: builder.operands[v.operand] for v in needed if v.kind == "load"}
    return Plan(space.domain, needed, stores, operands, tuple(builder.helpers), any(v.kind == "reduce" for v in needed))


def joined(space: Space, values: Sequence[Value], stores: tuple[Store, ...]) -> tuple[Space, tuple[Store, ...]]:
    """Neighbouring dimensions of a part that every address walks through as one are one again. Changes the values."""
    there = [v for v in values if v.kind in ("load", "position")]
    linears = [v.where for v in there] + [s.where for s in stores]
    sizes = space.domain.sizes
    groups: list[list[int]] = []
    for dim, size in enumerate(sizes):
        last = groups[-1][-1] if groups else None
        if last is not None and space.part(last) == space.part(dim):
            if all(x.coefficient(last) == x.coefficient(dim) * size for x in linears):
                groups[-1].append(dim)
                continue
        groups.append([dim])
    home = {group[-1]: i for i, group in enumerate(groups)}

    def moved(linear: Linear) -> Linear:
        return Linear(linear.offset, tuple(sorted((home[d], c) for d, c in linear.terms if d in home)))

    for value in there:
        value.where = moved(value.where)
    kept = [sum(space.part(g[0]) == part for g in groups) for part in range(3)]
    domain = Domain(tuple(math.prod(sizes[d] for d in g) for g in groups), kept[2])
    return Space(domain, (kept[0], kept[1], kept[2])), tuple(replace(s, where=moved(s.where)) for s in stores)


def mark(values: Sequence[Value], space: Space) -> None:
    """Whether each value differs along the rows and along the columns; the batch is one number for a program."""
    for value in values:
        if value.kind == "given":
            continue
        parts = {space.part(d) for d, _ in value.where.terms if space.domain.sizes[d] > 1}
        below = [*value.args, *([value.guard] if value.guard is not None else [])]
        value.rows = 1 in parts or any(v.rows for v in below)
        value.columns = value.kind != "reduce" and (2 in parts or any(v.columns for v in below))


def plan_result(
    node: torch.fx.Node, space: Space, acc: Value, behind: Sequence[torch.fx.Node],
    names: Mapping[torch.fx.Node, str], budget: Budget, widest: int,
) -> tuple[Space, Plan]:  # fmt: skip
    """What is computed of a result while it is in registers, and stored. acc: stands for the result itself.

    widest: columns that a program holds whole.
    """
    members = [node, *(n for n in behind if base_of(n) not in ops.VIEWS)]
    wanted = results(members)
    reduces = any(is_reduction(n) for n in members)
    if reduces and space.domain.sizes[-1] > widest:
        raise Unsupported(f"a reduction over a row of more than {widest} results")
    shape = tuple(fake(node).shape)
    inside = frozenset(members)
    precise = not all(fake(n).dtype in ROUNDED for n in wanted)
    for _ in range(MAX_SPLITS):
        frame = Frame(space.domain, shape, tuple(range(len(shape))), reduces)
        try:
            given = functools.partial(_compute, node, _plain(space.index(shape), space), space, acc)
            builder = Builder(inside, space.domain, dict(names), precise, given, budget)
            stores = tuple(_store(builder, frame, n, _laid_out(n, node, frame, space)) for n in wanted)
        except Split as split:
            space = space.split(split)
            continue
        needed = used([acc, *builder.values], [s.value for s in stores])
        space, stores = joined(space, needed, stores)
        mark(needed, space)
        return space, _plan(builder, space, needed, stores)
    raise Unsupported("too many different reshapes")


def base_of(node: torch.fx.Node) -> str:
    """The operation's name, "getitem" for one of several results."""
    return "getitem" if node.target is operator.getitem else base(node)


def _plain(index: Index, space: Space) -> Index:
    """The index without dimensions of one place, which are there or not."""
    sizes = space.domain.sizes
    return tuple(Linear(part.offset, tuple(t for t in part.terms if sizes[t[0]] > 1)) for part in index)


def _compute(
    product: torch.fx.Node, own: Index, space: Space, acc: Value, b: Builder, node: torch.fx.Node, index: Index
) -> Value:
    """As `rules.compute`, and of the product itself the sum."""
    if node is not product:
        return compute(b, node, index)
    if _plain(index, space) != own:
        raise Unsupported("a product's result that is read at another place than its own")
    a: Arguments = bind(node)
    if "beta" not in a:
        return acc
    value = _scaled(b, acc, a["alpha"])
    if a["beta"] == 0:
        return value
    added = b.operand_at(a["self"], index, tuple(fake(node).shape), "f32")
    return b.expression("{0} + {1}", "f32", value, _scaled(b, added, a["beta"]))


def _scaled(b: Builder, value: Value, by: float) -> Value:
    """The value times a number; by zero, as torch has it, zero also where it is NaN or infinite."""
    if by == 0:
        return b.expression("tl.zeros_like({0})", "f32", value)
    return value if by == 1 else b.expression("{0} * {1}", "f32", value, b.number(by, "f32"))


def _laid_out(node: torch.fx.Node, product: torch.fx.Node, frame: Frame, space: Space) -> Index:
    """The index into a result for each element of the product: through the views between the two, where that is so."""
    views = None if frame.reduces else _views_between(node, product, set())
    shape = tuple(fake(node).shape)
    if views is None or math.prod(shape) != fake(product).numel():
        return frame.index(shape)
    index = space.index(tuple(fake(product).shape))
    for view in reversed(views):
        index = _through(view, index, space.domain)
    return index


def _views_between(node: torch.fx.Node, product: torch.fx.Node, seen: set[torch.fx.Node]) -> list[torch.fx.Node] | None:
    """The views on a way from a node up to the product, the nearest first; None where there is no way."""
    if node is product:
        return []
    if node in seen or node.op != "call_function" or base_of(node) == "getitem":
        return None
    seen.add(node)
    own = [node] if base(node) in ops.VIEWS else []
    for source in [first_input(node)] if own else node.all_input_nodes:
        alike = bool(own) or fake(source).shape == fake(node).shape
        above = _views_between(source, product, seen) if alike else None
        if above is not None:
            return own + above
    return None


def _through(view: torch.fx.Node, index: Index, domain: Domain) -> Index:
    """The index into a view for an index into what it is of."""
    old, new, a = tuple(fake(first_input(view)).shape), tuple(fake(view).shape), bind(view)
    if base(view) in ("t", "numpy_T"):
        return tuple(reversed(index))
    if base(view) == "permute":
        return tuple(index[d] for d in a["dims"])
    if base(view) == "transpose":
        order = list(range(len(old)))
        order[a["dim0"]], order[a["dim1"]] = order[a["dim1"]], order[a["dim0"]]
        return tuple(index[d] for d in order)
    if base(view) in ("slice", "select"):
        raise Unsupported("a part of a product's result")
    return reshape(index, old, new, domain)


def _store(builder: Builder, frame: Frame, node: torch.fx.Node, index: Index) -> Store:
    tensor = fake(node)
    dtype, shape = dtype_of(tensor), tuple(tensor.shape)
    value = builder.settled(node, index)
    value = to_store(builder, value, dtype)
    if value.columns and math.prod(shape) != frame.domain.rows * frame.domain.width:
        raise Unsupported("a value of every column where a row has one")
    return Store(builder.names[node], value, address(index, tensor.stride()), dtype, shape, tuple(tensor.stride()))
