"""Counting a region's bytes, FLOPs and launches. The counting behind each headline number is spelled out."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

from profiler.region import op_kinds
from profiler.region.graph.cost_model import Cost, Count, KernelCost, OperationCost, Saving, Step
from profiler.region.graph.fusion import Group, groups, through_views
from profiler.region.graph.lowering import Graph
from profiler.region.graph.memory_traffic import Access, distinct, eager_extra, nothing, reads, total, writes
from profiler.region.graph.operation import Operation

EIGHT_BIT = frozenset({"f8e4m3", "f8e5m2"})


def cost(graph: Graph) -> Cost:
    """What the region costs unfused, fused as torch.compile would, and ideally fused.

    Bytes are counted as if nothing stayed in L2: for tensors well beyond it, that is what reaches memory.
    """
    operations = tuple(operation_cost(o) for o in graph.operations)
    by_name = {o.name: o for o in operations}
    fused_groups = groups(graph)
    memory = _Memory(graph, fused_groups)
    kernels = tuple(_kernel(g, by_name, memory) for g in fused_groups)
    ideal = _ideal(graph, operations)
    gemms = [o for o in graph.operations if o.kind in (op_kinds.GEMM, op_kinds.ATTENTION, op_kinds.CONVOLUTION)]
    heaviest = max(gemms, key=lambda o: o.flops, default=None)
    unfused = _total(operations)
    fused = Count(
        sum(k.bytes_read for k in kernels),
        sum(k.bytes_written for k in kernels),
        sum(k.flops for k in kernels),
        len(kernels),
    )
    return Cost(
        operations=operations,
        kernels=kernels,
        unfused=unfused,
        fused=fused,
        ideal=ideal,
        savings=_savings(graph, fused_groups, kernels, by_name, unfused, fused, ideal),
        matmul_dtype=_matmul_dtype(heaviest) if heaviest else None,
        gemm_flops=sum(o.flops for o in gemms),
        intensity=ideal.flops / ideal.bytes_moved if ideal.bytes_moved else 0.0,
        unfused_steps=tuple(_step(reads(o), writes(o)) for o in graph.operations if not nothing(o)),
        fused_steps=tuple(_step(memory.read(g), memory.written(g)) for g in fused_groups),
        limit_dtype=_limit_dtype(graph) if heaviest else None,
    )


def _limit_dtype(graph: Graph) -> str | None:
    """The 8-bit type of all matrices that come in: their product may be made in it, and scaled and widened after.

    F.scaled_mm took 359 µs for the products that a text makes in f32 of 8-bit numbers: 19 times the f32 rate (H200).
    """
    types = {t.dtype for _, t in graph.inputs if sum(size > 1 for size in t.shape) > 1}
    return next(iter(types)) if len(types) == 1 and types <= EIGHT_BIT else None


def _matmul_dtype(operation: Operation) -> str:
    """What the matrix units work in: f32 convolutions run in TF32, cuDNN's default; f32 products do not."""
    dtype = operation.reads[0].dtype
    return "tf32" if operation.kind == op_kinds.CONVOLUTION and dtype == "f32" else dtype


def traffic(operation: Operation) -> tuple[int, int]:
    """Bytes read and written by one operation on its own, as eager runs it."""
    return total(reads(operation)), total(writes(operation)) + eager_extra(operation)


def operation_cost(operation: Operation) -> OperationCost:
    """One operation on its own, as eager runs it."""
    read, written = traffic(operation)
    launches = 0 if nothing(operation) else 1
    return OperationCost(
        operation.name, operation.label, operation.kind, operation.line, read, written, operation.flops, launches
    )


def _step(read: Iterable[Access], written: Iterable[Access]) -> Step:
    return Step(tuple(distinct(read).items()), tuple(distinct(written).items()))


def _total(operations: Iterable[OperationCost]) -> Count:
    items = list(operations)
    return Count(
        sum(o.bytes_read for o in items),
        sum(o.bytes_written for o in items),
        sum(o.flops for o in items),
        sum(o.launches for o in items),
    )


class _Memory:
    """What fused kernels read from memory and write to it: only what does not stay inside one kernel."""

    def __init__(self, graph: Graph, fused_groups: tuple[Group, ...]) -> None:
        self.graph = graph
        self.names = {n for n, _ in graph.inputs}
        self.inputs = {t.storage for _, t in graph.inputs}
        self.outputs = {t.storage for t in graph.output_tensors}
        self.kernels: dict[str, list[frozenset[str]]] = {}  # operation -> operations of each kernel it reads in
        for group in fused_groups:
            inside = frozenset(group.operations)
            for name in group.operations:
                if name not in group.summed:
                    self.kernels.setdefault(name, []).append(inside)
        self.users: dict[int, list[str]] = {}  # storage -> operations that read it
        for operation in graph.operations:
            for access in reads(operation):
                self.users.setdefault(access.storage, []).append(operation.name)

    def read(self, group: Group) -> list[Access]:
        """From outside the kernel. Constants that are made on the fly are not read from memory."""
        inside = {*group.operations}
        return [a for n in group.operations if n not in group.summed for a in self.outside(n, inside)]

    def outside(self, name: str, inside: set[str]) -> Iterator[Access]:
        for access in reads(self.graph.operation(name)):
            source = through_views(self.graph, access.source)
            if source in inside:
                continue
            if source in self.names or self.graph.operation(source).kind != op_kinds.CONSTANT:
                yield access

    def written(self, group: Group) -> list[Access]:
        """Inputs that change, outputs, and what a kernel reads that does not compute it."""
        owned = [n for n in group.operations if n in group.owned]
        return [a for n in owned for a in writes(self.graph.operation(n)) if not group.fused or self.stored(a, n)]

    def stored(self, access: Access, name: str) -> bool:
        if access.storage in self.inputs or access.storage in self.outputs:
            return True
        users = (u for u in self.users.get(access.storage, ()) if u != name)
        return any(name not in inside for u in users for inside in self.kernels.get(u, [frozenset()]))


def _kernel(group: Group, by_name: Mapping[str, OperationCost], memory: _Memory) -> KernelCost:
    """Reads what comes from outside the group, writes what is needed outside of it; each tensor once.

    The partial results of a split reduction are not counted: at most one of them to 128 elements read.
    """
    flops = sum(by_name[n].flops for n in group.operations if n not in group.summed | group.applied)
    if not group.fused:
        item = by_name[group.operations[0]]
        return KernelCost(group.label, group.kind, group.operations, item.bytes_read, item.bytes_written, flops)
    read, written = total(memory.read(group)), total(memory.written(group))
    return KernelCost(group.label, "fused", group.operations, read, written, flops, group.stage)


def needed_outside(graph: Graph, name: str, inside: Container[str]) -> bool:
    """An output, or read by an operation outside, if only through views."""
    waiting = [name]
    while waiting:
        producer = waiting.pop()
        if producer in graph.outputs:
            return True
        for user in graph.users.get(producer, ()):
            if graph.operation(user).kind == op_kinds.VIEW:
                waiting.append(user)
            elif user not in inside:
                return True
    return False


def _ideal(graph: Graph, operations: tuple[OperationCost, ...]) -> Count:
    """What is used of every input once, every output once, inputs that change as outputs; gathers by their elements."""
    inputs = {n: t.storage for n, t in graph.inputs}
    read = [
        access
        for operation in graph.operations
        for access in reads(operation)
        if through_views(graph, access.source) in inputs
    ]
    changed = [a for o in graph.operations for a in writes(o) if a.storage in inputs.values()]
    returned = [
        Access(t.storage, (t.offset, t.shape, t.stride), t.bytes, t.extent)
        for t in graph.output_tensors
        if t.storage not in inputs.values()
    ]
    flops = sum(o.flops for o in operations)
    return Count(total(read), total(changed) + total(returned), flops, 1)


def _savings(
    graph: Graph,
    fused_groups: tuple[Group, ...],
    kernels: tuple[KernelCost, ...],
    by_name: Mapping[str, OperationCost],
    unfused: Count,
    fused: Count,
    ideal: Count,
) -> tuple[Saving, ...]:
    savings: list[Saving] = []
    for group, kernel in zip(fused_groups, kernels, strict=True):
        gemm = _feeding_gemm(graph, group)
        if gemm is not None:
            savings += _tail_savings(graph, group, kernel, gemm, by_name, unfused.launches, fused.launches)
    savings.append(
        Saving(
            "region-fused", "the region as torch.compile would fuse it", unfused.bytes_moved, fused.bytes_moved,
            unfused.launches, fused.launches,
            "every operation's own reads and writes, against those of the fused kernels; matrix products included",
        )
    )  # fmt: skip
    savings.append(
        Saving(
            "region-ideal", "the region in one kernel", unfused.bytes_moved, ideal.bytes_moved, unfused.launches, 1,
            "every operation's own reads and writes, against each input read once and each output written once",
        )
    )  # fmt: skip
    return tuple(savings)


def _feeding_gemm(graph: Graph, group: Group) -> Operation | None:
    """The matrix product whose result only this group reads: the group is its tail."""
    if not group.fused:
        return None
    inside, inputs = set(group.operations), {n for n, _ in graph.inputs}
    for name in group.operations:
        for source in graph.operation(name).inputs:
            behind = through_views(graph, source)
            if behind in inside or behind in inputs:
                continue
            operation = graph.operation(behind)
            if operation.kind == op_kinds.GEMM and not needed_outside(graph, behind, inside):
                return operation
    return None


def _tail_savings(
    graph: Graph,
    group: Group,
    kernel: KernelCost,
    gemm: Operation,
    by_name: Mapping[str, OperationCost],
    launches: int,
    fused_launches: int,
) -> list[Saving]:
    """The tail of a matrix product: fused by itself, and fused into the product as its epilogue."""
    before = sum(by_name[n].bytes_moved for n in group.operations)
    intermediate = sum(t.bytes for t in gemm.writes[:1])
    tail = " + ".join(by_name[n].label for n in group.operations)
    alone = Saving(
        "tail-fused", f"the tail ({tail}) in one kernel, the matrix product left to the library",
        before, kernel.bytes_moved, launches, fused_launches,
        "bytes of the tail's operations only, the product's own write not counted; launches of the whole region",
    )  # fmt: skip
    rowwise = any(graph.operation(n).kind not in (op_kinds.POINTWISE, op_kinds.VIEW) for n in group.operations)
    if rowwise:
        return [alone]
    epilogue = Saving(
        "tail-epilogue", f"the tail ({tail}) as the epilogue of the matrix product",
        before, kernel.bytes_moved - intermediate, launches, fused_launches - 1,
        "bytes of the tail's operations only, before without the product's own write, after without reading its result,"
        " which stays in registers; launches of the whole region",
    )  # fmt: skip
    return [alone, epilogue]


def bytes_through(graph: Graph, operations: frozenset[str]) -> int:
    """Bytes that one call in the place of these operations would read and write: each tensor once, constants free."""
    inputs = dict(graph.inputs)
    read_bytes: dict[str, int] = {}
    written_bytes = 0
    for name in operations:
        operation = graph.operation(name)
        for source in operation.inputs:
            behind = through_views(graph, source)
            if behind in inputs:
                read_bytes[behind] = inputs[behind].bytes
            elif behind not in operations and graph.operation(behind).kind != op_kinds.CONSTANT:
                read_bytes[behind] = sum(t.bytes for t in graph.operation(behind).writes)
        if operation.kind != op_kinds.VIEW and needed_outside(graph, name, operations):
            written_bytes += sum(t.bytes for t in operation.writes)
    return sum(read_bytes.values()) + written_bytes
