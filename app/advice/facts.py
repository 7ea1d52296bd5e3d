"""RegionFacts: what the rule and the estimate need to know of a region, as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from app.advice.irregularity import irregularity
from profiler.oracle.model import Prediction, Recompiles
from profiler.region import kinds
from profiler.region.cost_model import Cost
from profiler.region.model import ITEMSIZE, Binding, Workload

if TYPE_CHECKING:
    from profiler.region.fusion import Group
    from profiler.region.graph import Graph, Operation, Tensor
    from profiler.region.patterns import Match
    from profiler.trace.obstacles import Obstacle

FALLBACKS = frozenset(
    """_addmm_activation _grouped_mm _embedding_bag embedding_bag segment_reduce topk sort kthvalue median mode
    multinomial nonzero masked_scatter masked_select _unique2 unique_consecutive unique bincount histc searchsorted
    cummax cummin logcumsumexp _fft_r2c _fft_c2r _fft_c2c _cdist_forward grid_sampler_2d_backward _cudnn_rnn
    _thnn_fused_lstm_cell resize_ to_sparse scatter_reduce""".split()
)
"""Calls that Inductor leaves to aten: nothing fuses across them (torch 2.13, torch/_inductor/lowering.py)."""

SPECIAL = frozenset({"gelu", "gelu_backward", "erf", "erfc", "erfinv", "lgamma", "digamma", "tan", "pow_tensor"})
"""Pointwise functions whose arithmetic, not their bytes, sets eager's pace in 16-bit types."""

PARALLEL_KINDS = frozenset({kinds.GEMM, kinds.ATTENTION, kinds.CONVOLUTION})
NARROW = frozenset({"i8", "u8", "f8e4m3", "f8e5m2"})
INTEGERS = frozenset({"i8", "u8", "i32", "i16"})


class Cover(Protocol):
    """What the rule reads of a `kernels.libraries.model.Cover`: one library call that may cover the region.

    candidate: "library:PACKAGE.CALL". call: code to paste. covers: every condition holds, as far as it is known.
    conditions: (text, holds or None where unknown). already: those operations are this call as they stand.
    operations: names of the operations that it replaces; whole: they are all there is. adapter: names the rewrite by
    which this program runs it, empty where a user has to write that. missing: why it cannot be called here, or "".
    """

    @property
    def candidate(self) -> str: ...
    @property
    def package(self) -> str: ...
    @property
    def call(self) -> str: ...
    @property
    def covers(self) -> bool: ...
    @property
    def conditions(self) -> tuple[tuple[str, bool | None], ...]: ...
    @property
    def installed(self) -> bool: ...
    @property
    def already(self) -> bool: ...
    @property
    def note(self) -> str: ...
    @property
    def operations(self) -> frozenset[str]: ...
    @property
    def whole(self) -> bool: ...
    @property
    def adapter(self) -> str | None: ...
    @property
    def missing(self) -> str: ...


@dataclass(frozen=True, slots=True)
class OperationFacts:
    """What one operation's time depends on beside its bytes.

    elements: of its largest tensor. rows, columns: independent results and elements per result; columns 1 is pointwise.
    strided: reduces over another axis than the last. broadcast: reads a tensor of another shape than it writes.
    m, n, k, batch: a matrix product's sizes, 0 elsewhere. dtype, itemsize: of its largest tensor.
    """

    name: str
    target: str
    kind: str
    elements: int
    rows: int = 1
    columns: int = 1
    strided: bool = False
    broadcast: bool = False
    m: int = 0
    n: int = 0
    k: int = 0
    batch: int = 1
    dtype: str = "f32"
    itemsize: int = 4
    written: str = "f32"  # dtype of its result
    narrow: bool = False  # reads or writes one-byte numbers


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One kernel of the fused region: iteration space, reductions over rows in order, stage as in KernelCost."""

    operations: tuple[str, ...]
    rows: int
    columns: int
    strided: bool = False
    reductions: tuple[str, ...] = ()
    stage: str = ""


@dataclass(frozen=True, slots=True)
class ShapeFacts:
    """The region at one binding of its sizes. calls: how often per step at this binding."""

    cost: Cost
    operations: tuple[OperationFacts, ...] = ()
    kernels: tuple[KernelFacts, ...] = ()
    calls: float = 1.0
    binding: tuple[tuple[str, int], ...] = ()

    def operation(self, name: str) -> OperationFacts | None:
        return next((o for o in self.operations if o.name == name), None)


@dataclass(frozen=True, slots=True)
class RegionFacts:
    """A region as the rule sees it.

    shapes: one per binding, () where no sizes are known. kinds: of its operations, without views and constants.
    externs: names of calls inside that torch.compile does not fuse across. bound: "memory" or "compute" where
    somebody said so and there is no cost to tell. fuses: whether torch.compile makes one pass of it, where an oracle
    or an answer says so. uniqueness: the widget's answer. irregularity: 0 to 1, see `irregularity`.
    gpu_idle_share, mean_kernel_us: of the step that the region is from; launches: kernel launches in one call.
    already_tuned: it runs on a hand-written Triton or CUDA kernel. needs: what Triton does not give ("grid-wide",
    "nvlink", "last per cent"). not_generated: why the generator of Triton refuses the region, "" where it takes it or
    was not asked. sdpa: operations that torch.compile turns into scaled_dot_product_attention; sdpa_bytes: what that
    moves. obstacles: what would stop torch.compile between its operations (`inside`) or elsewhere in its module, as its
    trace shows. prediction, recompiles: the oracle's answers, None where it was not asked or had none.
    """

    name: str = "region"
    kind: str = "other"
    title: str = "region"
    by_hand: bool = False
    dtype: str = ""
    shapes: tuple[ShapeFacts, ...] = ()
    kinds: frozenset[str] = frozenset()
    externs: tuple[str, ...] = ()
    covers: tuple[Cover, ...] = ()
    inputs: tuple[str, ...] = ()
    requires_grad: bool = False
    random: bool = False
    compiled: bool = False
    communication: bool = False
    copies: bool = False
    waits_for_host: bool = False
    already_tuned: bool = False
    quantised: str = ""
    gemm_rows: int | None = None
    optimizer: bool = False
    needs: tuple[str, ...] = ()
    bound: str | None = None
    fuses: bool | None = None
    uniqueness: float | None = None
    irregularity: float | None = None
    gpu_idle_share: float | None = None
    mean_kernel_us: float | None = None
    launches: float | None = None
    not_generated: str = ""
    sdpa: frozenset[str] = frozenset()
    sdpa_bytes: int = 0
    prediction: Prediction | None = None
    recompiles: Recompiles | None = None
    obstacles: tuple[Obstacle, ...] = ()

    @property
    def cost(self) -> Cost | None:
        """The cost at the binding that moves most bytes per step."""
        shape = self.heaviest
        return None if shape is None else shape.cost

    @property
    def heaviest(self) -> ShapeFacts | None:
        return max(self.shapes, key=lambda s: s.calls * s.cost.unfused.bytes_moved, default=None)

    @property
    def calls(self) -> float:
        """Calls per step over all bindings."""
        return sum(s.calls for s in self.shapes)


def shape_facts(graph: Graph, cost: Cost, groups: Sequence[Group] = (), calls: float = 1.0) -> ShapeFacts:
    """The region at the graph's binding: sizes of every operation and kernel. groups: `fusion.groups(graph)`."""
    found = tuple(_operation(o) for o in graph.operations if o.kind not in (kinds.VIEW, kinds.CONSTANT))
    by_name = {o.name: o for o in found}
    return ShapeFacts(
        cost, found, tuple(_kernel(g, by_name) for g in groups), calls, tuple(sorted(graph.binding.items()))
    )


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
    real = [o for o in graph.operations if o.kind not in (kinds.VIEW, kinds.CONSTANT)]
    gemms = [g for g in (_operation(o) for o in real) if g.kind == kinds.GEMM]
    present = frozenset(o.kind for o in real)
    found: dict[str, Any] = {
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
        "random": kinds.RANDOM in present,
        "communication": kinds.COMMUNICATION in present,
        "copies": kind == "copy" and all(o.kind == kinds.COPY for o in real),
        "quantised": _quantised(graph),
        "gemm_rows": min((min(g.m, g.n) for g in gemms), default=None),
        "optimizer": kind == "optimizer",
        "irregularity": irregularity(graph.region, _workload(shapes)).score,
    }
    return RegionFacts(**(found | more))


def _workload(shapes: Sequence[ShapeFacts]) -> Workload:
    return Workload(tuple(Binding(s.binding, s.calls) for s in shapes))


def extern_calls(operations: Iterable[Operation]) -> tuple[str, ...]:
    """Names of calls that nothing fuses across, in order, each once: library calls and Inductor's fallbacks."""
    names = []
    for operation in operations:
        name = kinds.base_name(operation.target)
        if operation.kind in (*PARALLEL_KINDS, kinds.SORT, kinds.FFT, kinds.OTHER) or name in FALLBACKS:
            names.append(operation.label if operation.kind in PARALLEL_KINDS else name)
    return tuple(dict.fromkeys(names))


def rewritten_to_sdpa(graph: Graph, matches: Iterable[Match]) -> frozenset[str]:
    """Attention by hand that torch.compile turns into scaled_dot_product_attention.

    torch._inductor.fx_passes.fuse_attention's plain forms for inference: 16-bit [B, H, L, D], scores scaled by a
    number as they leave the product, no mask, no dropout. A scale on q, none at all, a conversion in front of it, three
    dimensions and f32 without TF32 are left as they are (torch 2.13).
    """
    found: frozenset[str] = frozenset()
    if graph.region.requires_grad:
        return found
    tensors = dict(graph.inputs) | {o.name: o.writes[0] for o in graph.operations if o.writes}
    for match in matches:
        roles = match.roles
        if match.kind != "attention" or not match.by_hand or roles["causal"] or roles["mask"] or roles["dropout"]:
            continue
        q = tensors.get(str(roles["q"]))
        plain = q is not None and len(q.shape) == 4 and q.dtype in ("bf16", "f16")
        product = next(o for o in graph.operations if o.name in match.operations and o.kind == kinds.GEMM)
        if plain and _readers(graph, product.name) in (["mul"], ["div"]):
            found |= match.operations
    return found


def _readers(graph: Graph, name: str) -> list[str]:
    """Names of the functions that read a result, through views."""
    found, waiting = [], [name]
    while waiting:
        users = [graph.operation(u) for u in graph.users.get(waiting.pop(), ())]
        waiting += [u.name for u in users if u.kind == kinds.VIEW]
        found += [kinds.base_name(u.target) for u in users if u.kind != kinds.VIEW]
    return found


def _operation(operation: Operation) -> OperationFacts:
    tensors = (*operation.reads, *operation.writes)
    elements = max((t.elements for t in tensors), default=1)
    written = max((t.elements for t in operation.writes), default=1)
    rows, columns, strided = written, 1, False
    if operation.kind in (kinds.REDUCTION, kinds.NORMALISATION, kinds.SOFTMAX, kinds.SCAN) and operation.reads:
        source = max(operation.reads, key=lambda t: t.elements)
        rows, columns, strided = _rows(operation, source)
    elif operation.kind == kinds.SORT and operation.reads and operation.reads[0].shape:
        columns = operation.reads[0].shape[-1]
        rows = max(1, operation.reads[0].elements // max(1, columns))
    m = n = k = 0
    batch = 1
    if operation.kind == kinds.GEMM:
        batch, m, n, k = gemm_sizes(operation)
    widest = max(tensors, key=lambda t: (t.elements, ITEMSIZE.get(t.dtype, 4)), default=None)
    return OperationFacts(
        operation.name, kinds.base_name(operation.target), operation.kind, elements, rows, columns, strided,
        _broadcasts(operation), m, n, k, batch, widest.dtype if widest else "f32",
        ITEMSIZE.get(widest.dtype, 4) if widest else 4,
        operation.writes[0].dtype if operation.writes else "f32",
        any(t.dtype in NARROW and t.elements == elements for t in tensors),
    )  # fmt: skip


def _rows(operation: Operation, source: Tensor) -> tuple[int, int, bool]:
    if operation.kind == kinds.NORMALISATION:
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
    if operation.kind not in (kinds.POINTWISE, kinds.COPY) or not operation.writes:
        return False
    out = max(operation.writes, key=lambda t: t.elements)
    large = [t for t in operation.reads if t.elements > 1]
    if operation.kind == kinds.POINTWISE and any(t.shape != out.shape for t in large):
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


def _main_dtype(graph: Graph) -> str:
    """The floating type that most bytes of the inputs are in."""
    sizes: dict[str, int] = {}
    for _, tensor in graph.inputs:
        if tensor.dtype.startswith(("f", "bf")):
            sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.bytes
    return max(sizes, key=lambda d: sizes[d], default="")


def _quantised(graph: Graph) -> str:
    """The type of the weights that a matrix product unpacks before it multiplies; "" where none does."""
    if not any(o.kind == kinds.GEMM for o in graph.operations):
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
            if operation.kind == kinds.GEMM:
                return not kinds.base_name(operation.target).startswith(("_scaled_mm", "_int_mm"))
            if operation.kind in (kinds.POINTWISE, kinds.VIEW, kinds.COPY) and user not in seen:
                seen.add(user)
                waiting.append(user)
    return False
