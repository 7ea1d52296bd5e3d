"""The plan of a scatter's kernel: a value and a place for each element of the source, added there by an atomic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
import torch.fx

from kernels.codegen.budget import Budget
from kernels.codegen.expressions import ops
from kernels.codegen.expressions.rules import compute
from kernels.codegen.expressions.values import Builder, Operand, Value
from kernels.codegen.index import ZERO, Domain, Index, Split, Unsupported, address, broadcast
from kernels.codegen.nodes import base, bind, computed, dtype_of, fake, root
from kernels.codegen.plan import MAX_SPLITS, Frame, Plan, Start, Store, merged, used

SCATTERS = frozenset({"scatter_add", "scatter_reduce", "scatter", "index_put"})
"""What `scatter_forms` leaves, each a kernel of its own."""
ADDED = frozenset({torch.float32, torch.float64, torch.int32, torch.int64})
"""Types that a GPU adds atomically."""
MOST_COUNTS = 256
"""Places of which a program counts how often each occurs before it adds to memory."""
ORDERED = ADDED - {torch.float64}
HOW = {"scatter_add": "add", "scatter": "set", "sum": "add", "amax": "max", "amin": "min"}


def scattered(node: torch.fx.Node) -> Sequence[torch.fx.Node]:
    """The source and the indices of a scatter that has a kernel; nothing for any other node."""
    if node.op != "call_function" or base(node) not in SCATTERS:
        return ()
    try:
        how_of(node)
    except Unsupported:
        return ()
    a = bind(node)
    indices = a["indices"] if base(node) == "index_put" else [a["index"]]
    given = [*indices, a.get("src"), a.get("value"), a.get("values")]
    if constant(a["self"]) is not None:
        return [n for n in (*given, a["self"]) if isinstance(n, torch.fx.Node)]
    return [n for n in given if isinstance(n, torch.fx.Node) and n is not a["self"]]


def how_of(node: torch.fx.Node) -> str:
    """add, max, min or set. Raises Unsupported for other reductions and for types without an atomic."""
    a, dtype = bind(node), fake(node).dtype
    name = base(node)
    if name == "index_put":
        how = "add" if a["accumulate"] else "set"
    else:
        how = HOW.get(a.get("reduce") or name, "")
    if not how or (name == "scatter_reduce" and not a["include_self"]):
        raise Unsupported(f"{node.target} with {a.get('reduce')}")
    if dtype not in {"add": ADDED, "max": ORDERED, "min": ORDERED}.get(how, {dtype}):
        raise Unsupported(f"an atomic {how} of {dtype}")
    return how


def constant(node: torch.fx.Node) -> float | int | bool | None:
    """The number that all elements are, behind casts and views of a fill; None for anything else."""
    while node.op == "call_function" and (base(node) in ops.CASTS or base(node) in ops.VIEWS):
        source = node.args[0]
        assert isinstance(source, torch.fx.Node)
        node = source
    if node.op != "call_function" or base(node) not in ops.FILLS or base(node) == "arange":
        return None
    if "zeros" in base(node) or "ones" in base(node):
        return int("ones" in base(node))
    a = bind(node)
    number = a.get("fill_value", a.get("s", a.get("value")))
    return number if isinstance(number, int | float) else None


def plan_scatter(
    node: torch.fx.Node, steps: Sequence[torch.fx.Node], names: Mapping[torch.fx.Node, str], budget: Budget
) -> Plan:
    """The kernel of a scatter and of the steps in front of it. Raises Unsupported with the reason."""
    how = how_of(node)
    shape = _shape(node)
    if not math.prod(shape):
        raise Unsupported("a scatter of nothing")
    like = _source(node)
    strides = fake(like).stride() if isinstance(like, torch.fx.Node) and fake(like).shape == shape else None
    order = tuple(sorted(range(len(shape)), key=lambda d: (-strides[d], d))) if strides else tuple(range(len(shape)))
    frame = Frame(Domain(tuple(shape[d] for d in order) or (1,)), shape, order, reduces=False)
    inside = frozenset(s for s in steps if base(s) not in ops.VIEWS)
    for _ in range(MAX_SPLITS):
        builder = Builder(inside, frame.domain, dict(names), True, compute, budget)
        try:
            store = _store(builder, frame.index(shape), node, how)
        except Split as split:
            frame = replace(frame, domain=frame.domain.split(split.dim, split.inner))
            continue
        start = _start(node, builder)
        values = used(builder.values, [store.value, *store.spots, *filter(None, (store.within, store.chosen))])
        operands = {v.operand: builder.operands[v.operand] for v in values if v.kind == "load"}
        if start.operand and start.operand not in operands:
            memory = root(bind(node)["self"])
            value = fake(memory)
            operands[start.operand] = Operand(memory, dtype_of(value), tuple(value.shape), tuple(value.stride()))
        stores = (replace(store, start=start),)
        return merged(Plan(frame.domain, values, stores, operands, tuple(builder.helpers), False))
    raise Unsupported("too many different reshapes")


def _source(node: torch.fx.Node) -> torch.fx.Node | float:
    a = bind(node)
    source: torch.fx.Node | float = a["values"] if base(node) == "index_put" else a["src"] if "src" in a else a["value"]
    return source


def _shape(node: torch.fx.Node) -> tuple[int, ...]:
    """The shape that is walked over: of the index, or of what index_put writes to."""
    a = bind(node)
    if base(node) != "index_put":
        return tuple(fake(a["index"]).shape)
    places, at = _places(node)
    target = fake(node).shape
    picked = torch.broadcast_shapes(*(fake(i).shape for i in places.values()))  # type: ignore[no-untyped-call]
    rest = [n for d, n in enumerate(target) if d not in places]
    return (*rest[:at], *picked, *rest[at:])


def _places(node: torch.fx.Node) -> tuple[dict[int, torch.fx.Node], int]:
    """Dimension -> its indices, and where their own dimensions stand in what is written."""
    places = {d: i for d, i in enumerate(bind(node)["indices"]) if i is not None}
    if any(fake(i).dtype not in (torch.int64, torch.int32) for i in places.values()):
        raise Unsupported("an index of booleans")
    dims = sorted(places)
    together = dims == list(range(dims[0], dims[-1] + 1))
    return places, dims[0] if together else 0


def _store(b: Builder, index: Index, node: torch.fx.Node, how: str) -> Store:
    target = fake(node)
    dtype, strides = dtype_of(target), target.stride()
    shape = _shape(node)
    a = bind(node)
    spots: list[tuple[int, Value]] = []
    if base(node) == "index_put":
        places, at = _places(node)
        rank = len(shape) - (target.dim() - len(places))
        picked = index[at : at + rank]
        rest = iter((*index[:at], *index[at + rank :]))
        where = tuple(ZERO if d in places else next(rest) for d in range(target.dim()))
        for d, node_ in places.items():
            own = broadcast(picked, shape[at : at + rank], tuple(fake(node_).shape))
            spot = b.cast(b.settled(node_, own), "i64")
            size = target.shape[d]
            spot = b.expression(f"tl.where({{0}} < 0, {{0}} + {size}, {{0}})", "i64", spot)
            spots.append((d, _named(spot, "spot")))
        source = b.operand_at(a["values"], index, shape, dtype)
    else:
        dim = a["dim"] % max(1, target.dim())
        where = tuple(ZERO if d == dim else part for d, part in enumerate(index))
        if target.dim():
            spots.append((dim, b.cast(b.settled(a["index"], index), "i64")))
        given = _source(node)
        source = b.number(given, computed(dtype)) if not isinstance(given, torch.fx.Node) else b.settled(given, index)
    value = b.rounded(source, dtype)
    if how in ("max", "min") and dtype.startswith("f"):
        value = _named(b.expression(f"for_atomic_{how}({{0}})", value.dtype, value), "compared")
    within: Value | None = None
    for d, spot in spots:
        low = b.expression(f"({{0}} >= 0) & ({{0}} < {target.shape[d]})", "bool", spot)
        _named(low, "in_range")
        within = low if within is None else b.expression("{0} & {1}", "bool", within, low)
    if within is not None:
        _named(within, "in_target")
    chosen: Value | None = None
    if how == "add" and target.dim() == 1 and target.shape[0] <= min(MOST_COUNTS, math.prod(shape) // 8):
        if value.kind == "number":
            how = "count"
        elif value.text.startswith("{0}.to(") and value.args[0].dtype == "bool":
            how, chosen, value = "count", value.args[0], b.number(1, value.dtype)
    return Store(
        b.names[node], value, address(where, strides), dtype, tuple(target.shape), tuple(strides), how=how,
        spots=tuple(spot for _, spot in spots), steps=tuple(int(strides[d]) for d, _ in spots), within=within,
        chosen=chosen,
    )  # fmt: skip


def _named(value: Value, name: str) -> Value:
    value.name = value.name or name
    return value


def _start(node: torch.fx.Node, b: Builder) -> Start:
    """What is in the target before."""
    self = bind(node)["self"]
    number = constant(self)
    if number is not None:
        return Start(number=number)
    memory, value, source = root(self), fake(self), fake(root(self))
    if value.dtype != source.dtype:
        raise Unsupported("a view as another dtype")
    offset = int(value.storage_offset()) - int(source.storage_offset())
    same = value.shape == source.shape and value.stride() == source.stride() and not offset
    view = None if same else (tuple(value.shape), tuple(value.stride()), offset)
    return Start(operand=b.names[memory], view=view)
