"""Facts of a lowered region: sizes of its operations and kernels, counted from its graph."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app.atlas.shipped import Launched
from app.estimate.dataflow import IDLE, backward, chained_sizes, groups_between, halves_bytes, read_again, roots_of
from app.estimate.facts import (
    ACCUMULATING,
    Cover,
    KernelFacts,
    OperationFacts,
    RegionFacts,
    ShapeFacts,
)
from app.estimate.irregularity import irregularity
from profiler.region import op_kinds
from profiler.region.graph.cost_model import Cost
from profiler.region.model import ITEMSIZE, Binding, Workload

if TYPE_CHECKING:
    from profiler.region.graph.fusion import Group
    from profiler.region.graph.lowering import Graph
    from profiler.region.graph.match_model import Match
    from profiler.region.graph.operation import Operation, Tensor

NARROW = frozenset({"i8", "u8", "f8e4m3", "f8e5m2"})
INTEGERS = frozenset({"i8", "u8", "i32", "i16"})
JOINING = frozenset({"stack", "cat", "concat"})
ADDED = frozenset({op_kinds.POINTWISE, op_kinds.GATHER})
"""Operations that a kernel computes itself where it adds their result to memory."""


def shape_facts(graph: Graph, cost: Cost, groups: Sequence[Group] = (), calls: float = 1.0) -> ShapeFacts:
    """The region at the graph's binding: sizes of every operation and kernel. groups: `fusion.groups(graph)`."""
    after = backward(graph)
    operations = tuple(operation_facts(o, o.name in after) for o in graph.operations if o.kind not in IDLE)
    by_name = {o.name: o for o in operations}
    roots = roots_of(graph)
    space = tuple(
        replace(_kernel(g, by_name), again=read_again(graph, g, after, roots), axes=_axes(graph, g, groups, after))
        for g in groups
    )
    return ShapeFacts(
        cost, operations, space, calls, tuple(sorted(graph.binding.items())),
        halves_bytes(graph, after, roots) if graph.region.requires_grad else None,
        sum(_count_joined(o, by_name) for o in graph.operations), *chained_sizes(graph, roots, by_name),
        groups_between(graph, groups, roots), Launched(tuple(o for o in graph.operations if o.kind not in IDLE)),
    )  # fmt: skip


def _count_joined(operation: Operation, computed: Mapping[str, OperationFacts]) -> int:
    """Computed tensors that it puts together into one."""
    joins = op_kinds.base_name(operation.target) in JOINING
    return sum(name in computed for name in operation.inputs) if joins else 0


def region_facts(
    graph: Graph,
    shapes: Sequence[ShapeFacts],
    kind: str,
    title: str,
    by_hand: bool,
    covers: Iterable[Cover] = (),
    **more: Any,
) -> RegionFacts:
    """Facts of a lowered region. `more` sets any other field by name: what the trace knows of its step."""
    real = [o for o in graph.operations if o.kind not in IDLE]
    gemms = [g for g in (operation_facts(o) for o in real) if g.kind == op_kinds.GEMM]
    present = frozenset(o.kind for o in real)
    counted: dict[str, Any] = {
        "name": graph.region.name,
        "kind": kind,
        "title": title,
        "by_hand": by_hand,
        "dtype": _main_dtype(graph),
        "shapes": tuple(shapes),
        "kinds": present,
        "externs": extern_calls(real),
        "covers": tuple(covers),
        "inputs": tuple(n for n, _ in graph.inputs),
        "requires_grad": graph.region.requires_grad,
        "random": op_kinds.RANDOM in present,
        "communication": op_kinds.COMMUNICATION in present,
        "copies": kind == "copy" and all(o.kind == op_kinds.COPY for o in real),
        "quantised": _quantised_type(graph),
        "gemm_rows": min((min(g.m, g.n) for g in gemms), default=None),
        "optimizer": kind == "optimizer",
        "irregularity": irregularity(graph.region, _workload(shapes)).score,
    }
    return RegionFacts(**(counted | more))


def _workload(shapes: Sequence[ShapeFacts]) -> Workload:
    return Workload(tuple(Binding(s.binding, s.calls) for s in shapes))


def extern_calls(operations: Iterable[Operation]) -> tuple[str, ...]:
    """Names of calls that nothing fuses across, in order, each once: library calls and Inductor's fallbacks."""
    names = []
    for operation in operations:
        name = op_kinds.base_name(operation.target)
        if operation.extern:
            names.append(operation.label if operation.kind in op_kinds.MATRIX_KINDS else name)
    return tuple(dict.fromkeys(names))


def rewritten_to_sdpa(graph: Graph, matches: Iterable[Match]) -> frozenset[str]:
    """Attention by hand that torch.compile turns into scaled_dot_product_attention.

    torch._inductor.fx_passes.fuse_attention's plain forms for inference: 16-bit [B, H, L, D], scores scaled by a
    number as they leave the product, no mask, no dropout. A scale on q, none at all, a conversion in front of it, three
    dimensions and f32 without TF32 are left as they are (torch 2.13).
    """
    rewritten: frozenset[str] = frozenset()
    if graph.region.requires_grad:
        return rewritten
    tensors = dict(graph.inputs) | {o.name: o.writes[0] for o in graph.operations if o.writes}
    for match in matches:
        roles = match.roles
        if match.kind != "attention" or not match.by_hand or roles["causal"] or roles["mask"] or roles["dropout"]:
            continue
        q = tensors.get(str(roles["q"]))
        plain = q is not None and len(q.shape) == 4 and q.dtype in ("bf16", "f16")
        product = next(o for o in graph.operations if o.name in match.operations and o.kind == op_kinds.GEMM)
        if plain and _readers(graph, product.name) in (["mul"], ["div"]):
            rewritten |= match.operations
    return rewritten


def attention_density(matches: Iterable[Match]) -> float:
    """Share of the scores that attention by hand computes and a kernel has to look at: in causal order half."""
    return 0.5 if any(m.kind == "attention" and m.by_hand and m.roles.get("causal") for m in matches) else 1.0


def attends_in(graph: Graph, matches: Iterable[Match]) -> str:
    """The dtype of what attention by hand widens before it multiplies: PyTorch's own steps of SDPA do, and no call for
    it has to. "" where nothing is widened."""
    tensors = dict(graph.inputs) | {o.name: o.writes[0] for o in graph.operations if o.writes}
    for match in matches:
        q = tensors.get(str(match.roles.get("q"))) if match.kind == "attention" and match.by_hand else None
        products = (o for o in graph.operations if o.name in match.operations and o.kind == op_kinds.GEMM)
        product = next(products, None)
        if q is not None and product is not None and ITEMSIZE[q.dtype] < ITEMSIZE[product.reads[0].dtype]:
            return q.dtype
    return ""


def hidden_share(graph: Graph) -> float:
    """Share of the products' FLOPs that are of scores which masks of positions hide, as far as one kernel may go.

    graph: of what was written, without a backward.
    """
    from profiler.region.graph.scores import functions as score_functions
    from profiler.region.graph.scores.masks import kept_share

    flops = {o.name: o.flops for o in graph.operations if o.kind == op_kinds.GEMM}
    hidden = 0.0
    for match in score_functions.matches(graph):
        share = 1.0 - kept_share(str(match.roles["positions"]), score_functions.sizes_of(match))
        hidden += share * sum(flops.get(name, 0) for name in match.operations)
    return hidden / sum(flops.values()) if hidden else 0.0


def _readers(graph: Graph, name: str) -> list[str]:
    """Names of the functions that read a result, through views."""
    readers, waiting = [], [name]
    while waiting:
        users = [graph.operation(u) for u in graph.users.get(waiting.pop(), ())]
        waiting += [u.name for u in users if u.kind == op_kinds.VIEW]
        readers += [op_kinds.base_name(u.target) for u in users if u.kind != op_kinds.VIEW]
    return readers


def operation_facts(operation: Operation, after: bool = False) -> OperationFacts:
    """What its time depends on. after: it is of the backward pass."""
    tensors = (*operation.reads, *operation.writes)
    elements = max((t.elements for t in tensors), default=1)
    written = max((t.elements for t in operation.writes), default=1)
    rows, columns, strided = written, 1, False
    if (
        operation.kind in (op_kinds.REDUCTION, op_kinds.NORMALISATION, op_kinds.SOFTMAX, op_kinds.SCAN)
        and operation.reads
    ):
        source = max(operation.reads, key=lambda t: t.elements)
        rows, columns, strided = _rows(operation, source)
    elif operation.kind == op_kinds.SORT and operation.reads and operation.reads[0].shape:
        columns = operation.reads[0].shape[-1]
        rows = max(1, operation.reads[0].elements // max(1, columns))
    m = n = k = 0
    batch = 1
    if operation.kind == op_kinds.GEMM:
        batch, m, n, k = gemm_sizes(operation)
    widest = max(tensors, key=lambda t: (t.elements, ITEMSIZE.get(t.dtype, 4)), default=None)
    return OperationFacts(
        operation.name, op_kinds.base_name(operation.target), operation.kind, elements, rows, columns, strided,
        _broadcasts(operation), m, n, k, batch, widest.dtype if widest else "f32",
        ITEMSIZE.get(widest.dtype, 4) if widest else 4,
        operation.writes[0].dtype if operation.writes else "f32",
        any(t.dtype in NARROW and t.elements == elements for t in tensors),
        _widens(operation), after, _in_pieces(operation),
        len(operation.reads[0].shape) - 2 if operation.kind == op_kinds.CONVOLUTION and operation.reads else 0,
    )  # fmt: skip


SHORT_RUN = 4096
"""Bytes that lie side by side of one piece of a cat or stack, below which the copy does not stream."""


def _in_pieces(operation: Operation) -> bool:
    """cat or stack along an axis, behind which the pieces have fewer bytes than a run that streams."""
    if op_kinds.base_name(operation.target) not in JOINING or not operation.writes or not operation.reads:
        return False
    whole, piece = operation.writes[0].shape, operation.reads[0].shape
    axis = next((n for n, (a, b) in enumerate(zip(whole, piece, strict=False)) if a != b), len(piece))
    run = math.prod(piece[axis:]) * ITEMSIZE.get(operation.writes[0].dtype, 4)
    return run < SHORT_RUN


def _widens(operation: Operation) -> bool:
    sizes = {ITEMSIZE.get(t.dtype, 4) for t in (*operation.reads, *operation.writes)}
    return op_kinds.base_name(operation.target) in ("_to_copy", "to") and len(sizes) > 1


def _rows(operation: Operation, source: Tensor) -> tuple[int, int, bool]:
    if operation.kind == op_kinds.NORMALISATION:
        small = [t.elements for t in operation.writes if 0 < t.elements < source.elements]
        columns = source.elements // small[0] if small else (source.shape[-1] if source.shape else 1)
        return max(1, source.elements // max(1, columns)), max(1, columns), False
    axes = operation.axes or tuple(range(len(source.shape)))
    columns = math.prod(source.shape[a] for a in axes) if source.shape else 1
    last = bool(source.shape) and all(source.stride[a] >= 1 for a in axes) and min(
        (source.stride[a] for a in axes if source.shape[a] > 1), default=1
    ) == 1  # fmt: skip
    return max(1, source.elements // max(1, columns)), max(1, columns), not last


def gemm_sizes(operation: Operation) -> tuple[int, int, int, int]:
    """Batch, M, N, K of a matrix product; K from its FLOPs, which torch's own registry counts as 2·M·N·K."""
    out = max(operation.writes, key=lambda t: t.elements)
    m, n = (out.shape[-2], out.shape[-1]) if len(out.shape) > 1 else (1, out.elements)
    batch = max(1, out.elements // max(1, m * n))
    return batch, m, n, max(1, operation.flops // max(1, 2 * out.elements))


def _broadcasts(operation: Operation) -> bool:
    """A pointwise operation that does not read all its tensors in the order that it writes."""
    if operation.kind not in (op_kinds.POINTWISE, op_kinds.COPY) or not operation.writes:
        return False
    out = max(operation.writes, key=lambda t: t.elements)
    large = [t for t in operation.reads if t.elements > 1]
    if operation.kind == op_kinds.POINTWISE and any(t.shape != out.shape for t in large):
        return True
    return any(_order(t) != _order(out) or _gaps(t) for t in large if t.shape == out.shape)


def _order(tensor: Tensor) -> tuple[int, ...]:
    wide = [d for d, size in enumerate(tensor.shape) if size > 1]
    return tuple(sorted(wide, key=lambda d: -tensor.stride[d]))


def _gaps(tensor: Tensor) -> bool:
    """Its elements do not lie side by side."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride, strict=True))
    return span != tensor.elements


def _kernel(group: Group, by_name: Mapping[str, OperationFacts]) -> KernelFacts:
    if group.stage in ("final", "apply"):  # no long rows: partial results are few, and applying them is pointwise
        return KernelFacts(group.operations, group.domain.rows, 1, stage=group.stage)
    inside = [by_name[n] for n in group.operations if n in by_name]
    rowwise = [o for o in inside if o.columns > 1]
    widest = max(rowwise, key=lambda o: o.rows * o.columns, default=None)
    rows, columns = (widest.rows, widest.columns) if widest else (group.domain.rows, 1)
    return KernelFacts(
        group.operations, rows, columns, widest.strided if widest else False, tuple(o.target for o in rowwise),
        group.stage,
    )  # fmt: skip


def _axes(graph: Graph, group: Group, groups: Sequence[Group], after: frozenset[str]) -> int:
    """Axes of the tiles by which a kernel adds to memory, as Inductor's tiling counts them; 1 where it does not.

    By all tensors that are broadcast to it, those of what it adds among them; where that is reduced in the same pass
    too, the kernel goes over rows, and has one axis.
    """
    inside = [graph.operation(n) for n in group.operations]
    if not any(op_kinds.base_name(o.target) in ACCUMULATING for o in inside):
        return 1
    added = [o for o in graph.operations if o.kind in ADDED and any(o.name in i.inputs for i in inside)]
    names, passes = {o.name for o in added}, {o.name in after for o in added}
    grouped = (n for g in groups if not names.isdisjoint(g.operations) for n in g.operations)
    if any(graph.operation(n).kind == op_kinds.REDUCTION and (n in after) in passes for n in grouped):
        return 1
    inside += added
    tensors = [t for o in inside for t in (*o.reads, *o.writes)]
    whole = max(tensors, key=lambda t: t.elements, default=None)
    if whole is None or not whole.shape:
        return 1
    steps = []
    for tensor in tensors:
        pairs = list(zip(tensor.shape, whole.shape, strict=False))
        if len(tensor.shape) == len(whole.shape) and all(a in (1, b) for a, b in pairs):
            steps.append([s if a == b else 0 for s, (a, b) in zip(tensor.stride, pairs, strict=True)])
    together = sum(
        all(step[n] == step[n + 1] * whole.shape[n + 1] for step in steps) for n in range(len(whole.shape) - 1)
    )
    return len(whole.shape) - together


def _main_dtype(graph: Graph) -> str:
    """The floating type that most bytes of the inputs are in."""
    sizes: dict[str, int] = {}
    for _, tensor in graph.inputs:
        if tensor.dtype.startswith(("f", "bf")):
            sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.bytes
    return max(sizes, key=lambda d: sizes[d], default="")


def _quantised_type(graph: Graph) -> str:
    """The type of the weights that a matrix product unpacks before it multiplies; "" where none does."""
    if not any(o.kind == op_kinds.GEMM for o in graph.operations):
        return ""
    inputs = dict(graph.inputs)
    sources = {n for o in graph.operations for n in o.inputs if n in inputs}
    for name in sources:
        tensor = inputs[name]
        small = tensor.dtype in INTEGERS or tensor.dtype.startswith("f8")
        if small and len(tensor.shape) == 2 and min(tensor.shape) > 1 and _feeds_gemm(graph, name):
            return tensor.dtype
    return ""


def _feeds_gemm(graph: Graph, name: str) -> bool:
    """Reaches a matrix product through conversions and arithmetic only, not as an index."""
    waiting, seen = [name], {name}
    while waiting:
        for user in graph.users.get(waiting.pop(), ()):
            operation = graph.operation(user)
            if operation.kind == op_kinds.GEMM:
                return not op_kinds.base_name(operation.target).startswith(("_scaled_mm", "_int_mm"))
            if operation.kind in (op_kinds.POINTWISE, op_kinds.VIEW, op_kinds.COPY) and user not in seen:
                seen.add(user)
                waiting.append(user)
    return False
