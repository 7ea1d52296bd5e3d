"""Counting a region's bytes, FLOPs and launches. The counting behind each headline number is spelled out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from profiler.hardware import Device
from profiler.region import kinds
from profiler.region.cost_model import Cost, Count, KernelCost, OperationCost, Saving
from profiler.region.fusion import Group, groups, through_views
from profiler.region.graph import Graph, Operation, Tensor

FREE = frozenset({"empty", "new_empty", "empty_like", "empty_strided", "constant", "detach"})


def cost(graph: Graph) -> Cost:
    """What the region costs unfused, fused as torch.compile would, and ideally fused.

    Bytes are counted as if nothing stayed in L2: for tensors well beyond it, that is what reaches memory.
    """
    operations = tuple(_operation(o) for o in graph.operations)
    by_name = {o.name: o for o in operations}
    fused_groups = groups(graph)
    readers = _readers(fused_groups)
    kernels = tuple(_kernel(graph, g, by_name, readers) for g in fused_groups)
    ideal = _ideal(graph, operations)
    gemms = [o for o in graph.operations if o.kind in (kinds.GEMM, kinds.ATTENTION, kinds.CONVOLUTION)]
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
    )


def _matmul_dtype(operation: Operation) -> str:
    """What the matrix units work in: f32 convolutions run in TF32, cuDNN's default; f32 products do not."""
    dtype = operation.reads[0].dtype
    return "tf32" if operation.kind == kinds.CONVOLUTION and dtype == "f32" else dtype


def floor_us(counted: Cost, device: Device) -> float:
    """The least time the region can take: max(bytes / copy rate, FLOPs / rate), in µs.

    Measured ceilings where the device has them, the datasheet's otherwise; one launch cannot be had for nothing, but
    the floor does not count it.
    """
    memory = counted.ideal.bytes_moved / device.copy_rate
    matrix = counted.gemm_flops / device.matmul_rate(counted.matmul_dtype or "f32")
    vector = (counted.ideal.flops - counted.gemm_flops) / device.f32_rate
    return 1e6 * max(memory, matrix, vector)


def bound(counted: Cost, device: Device) -> str:
    """ "memory" or "compute": which side of the roofline's ridge the ideally fused region is on."""
    memory = counted.ideal.bytes_moved / device.copy_rate
    matrix = counted.gemm_flops / device.matmul_rate(counted.matmul_dtype or "f32")
    vector = (counted.ideal.flops - counted.gemm_flops) / device.f32_rate
    return "compute" if max(matrix, vector) > memory else "memory"


def traffic(operation: Operation) -> tuple[int, int]:
    """Bytes read and written by one operation on its own."""
    name = kinds.base_name(operation.target)
    if operation.kind == kinds.VIEW or name in FREE:
        return 0, 0
    distinct = {(t.storage, t.shape, t.stride): t.bytes for t in operation.reads}
    written = sum(t.bytes for t in operation.writes)
    if operation.kind == kinds.GATHER and operation.reads:
        # the elements that are picked, not the table they are picked from
        indices = sum(t.bytes for t in operation.reads if t.dtype in ("i64", "i32"))
        return indices + written, written
    if name == "nll_loss_forward":  # one element per target
        targets = operation.reads[-1]
        return targets.bytes + targets.elements * 4, written
    if operation.kind == kinds.SCATTER and name.endswith("_") and operation.reads:
        # in place: only the touched elements are read and written
        sources = operation.reads[1:]
        touched = max((t.bytes for t in sources if t.dtype not in ("i64", "i32")), default=0)
        return sum(t.bytes for t in sources) + touched, touched
    if operation.kind == kinds.CONSTANT or name in ("fill_", "zero_"):
        return 0, written
    if name == "copy_" and len(operation.reads) > 1:
        return operation.reads[1].bytes, written
    return sum(distinct.values()), written


def _operation(operation: Operation) -> OperationCost:
    read, written = traffic(operation)
    launches = 0 if operation.kind == kinds.VIEW or kinds.base_name(operation.target) in FREE else 1
    return OperationCost(
        operation.name, operation.label, operation.kind, operation.line, read, written, operation.flops, launches
    )


def _total(operations: Iterable[OperationCost]) -> Count:
    items = list(operations)
    return Count(
        sum(o.bytes_read for o in items),
        sum(o.bytes_written for o in items),
        sum(o.flops for o in items),
        sum(o.launches for o in items),
    )


Readers = Mapping[str, list[frozenset[str]]]


def _readers(fused_groups: Iterable[Group]) -> Readers:
    """Operation -> operations of each kernel in which it reads its inputs."""
    found: dict[str, list[frozenset[str]]] = {}
    for group in fused_groups:
        for name in group.operations:
            if name not in group.summed:
                found.setdefault(name, []).append(frozenset(group.operations))
    return found


def _kernel(graph: Graph, group: Group, by_name: Mapping[str, OperationCost], readers: Readers) -> KernelCost:
    """Reads what comes from outside the group, writes what is needed outside of it; each tensor once.

    The partial results of a split reduction are not counted: at most one of them to 128 elements read.
    """
    flops = sum(by_name[n].flops for n in group.operations if n not in group.summed | group.applied)
    if not group.fused:
        item = by_name[group.operations[0]]
        return KernelCost(group.label, group.kind, group.operations, item.bytes_read, item.bytes_written, flops)
    inside = set(group.operations)
    read: dict[object, int] = {}
    written = 0
    for name in group.operations:
        operation = graph.operation(name)
        if name in group.summed:
            pass
        elif operation.kind == kinds.GATHER or (operation.kind == kinds.SCATTER and operation.target.endswith("_")):
            read[name] = by_name[name].bytes_read
        else:
            for source, tensor in _sources(graph, operation):
                if through_views(graph, source) not in inside:
                    read[(tensor.storage, tensor.shape, tensor.stride)] = tensor.bytes
        if name in group.owned and (_stored(graph, name, readers) or _in_place(operation)):
            written += by_name[name].bytes_written
    return KernelCost(group.label, "fused", group.operations, sum(read.values()), written, flops, group.stage)


def _stored(graph: Graph, name: str, readers: Readers) -> bool:
    """An output, or some kernel reads it that does not compute it."""
    return name in graph.outputs or any(_reads_stored(graph, name, user, readers) for user in graph.users.get(name, ()))


def _reads_stored(graph: Graph, name: str, user: str, readers: Readers) -> bool:
    if graph.operation(user).kind == kinds.VIEW:
        return user in graph.outputs or any(
            _reads_stored(graph, name, after, readers) for after in graph.users.get(user, ())
        )
    return user not in readers or any(name not in inside for inside in readers[user])


def _sources(graph: Graph, operation: Operation) -> list[tuple[str, Tensor]]:
    """Inputs with the tensor that stands for each; constants made on the fly are not read from memory."""
    pairs = list(zip(operation.inputs, operation.reads, strict=False))
    inputs = {n for n, _ in graph.inputs}
    return [
        (name, tensor)
        for name, tensor in pairs
        if name in inputs or graph.operation(through_views_or(graph, name, inputs)).kind != kinds.CONSTANT
    ]


def through_views_or(graph: Graph, name: str, inputs: set[str]) -> str:
    """through_views, but the last view itself where an input stands behind it."""
    source = through_views(graph, name)
    return name if source in inputs else source


def _needed_outside(graph: Graph, name: str, inside: set[str]) -> bool:
    if name in graph.outputs:
        return True
    for user in graph.users.get(name, ()):
        if user in inside:
            continue
        if graph.operation(user).kind != kinds.VIEW or _needed_outside(graph, user, inside):
            return True
    return False


def _in_place(operation: Operation) -> bool:
    """Writes memory that it also reads: an input of the region, or a value that stays."""
    read = {t.storage for t in operation.reads}
    return operation.kind != kinds.VIEW and any(t.storage in read for t in operation.writes)


def _ideal(graph: Graph, operations: tuple[OperationCost, ...]) -> Count:
    """Every input that is used once, every output once; gathered tables by the elements accessed."""
    names = {n for n, _ in graph.inputs}
    used = {through_views(graph, s) for o in graph.operations if o.kind != kinds.VIEW for s in o.inputs}
    used |= {through_views(graph, o) for o in graph.outputs}
    read = 0
    for name, tensor in graph.inputs:
        if name in used:
            picked = _gathered(graph, name)
            read += tensor.bytes if picked is None else min(picked, tensor.bytes)
    written = {t.storage: t.bytes for n, t in zip(graph.outputs, graph.output_tensors, strict=True) if n not in names}
    by_name = {o.name: o for o in operations}
    mutated = sum(
        by_name[o.name].bytes_written
        for o in graph.operations
        if _in_place(o) and any(through_views(graph, i) in names for i in o.inputs[:1])
        and not {t.storage for t in o.writes} & set(written)
    )  # fmt: skip
    flops = sum(o.flops for o in operations)
    return Count(read, sum(written.values()) + mutated, flops, 1)


def _gathered(graph: Graph, name: str) -> int | None:
    """Bytes picked from an input that is only ever gathered from; None where something reads all of it."""
    users = [graph.operation(u) for u in graph.users.get(name, ())]
    tables = [u for u in users if u.kind == kinds.GATHER and u.inputs and u.inputs[0] == name]
    if not users or len(tables) != len(users):
        return None
    return sum(t.bytes for u in tables for t in u.writes)


def _savings(
    graph: Graph,
    fused_groups: tuple[Group, ...],
    kernels: tuple[KernelCost, ...],
    by_name: Mapping[str, OperationCost],
    unfused: Count,
    fused: Count,
    ideal: Count,
) -> tuple[Saving, ...]:
    found: list[Saving] = []
    for group, kernel in zip(fused_groups, kernels, strict=True):
        gemm = _feeding_gemm(graph, group)
        if gemm is not None:
            found += _tail_savings(graph, group, kernel, gemm, by_name, unfused.launches, fused.launches)
    found.append(
        Saving(
            "region-fused", "the region as torch.compile would fuse it", unfused.bytes_moved, fused.bytes_moved,
            unfused.launches, fused.launches,
            "every operation's own reads and writes, against those of the fused kernels; matrix products included",
        )
    )  # fmt: skip
    found.append(
        Saving(
            "region-ideal", "the region in one kernel", unfused.bytes_moved, ideal.bytes_moved, unfused.launches, 1,
            "every operation's own reads and writes, against each input read once and each output written once",
        )
    )  # fmt: skip
    return tuple(found)


def _feeding_gemm(graph: Graph, group: Group) -> Operation | None:
    """The matrix product whose result only this group reads: the group is its tail."""
    if not group.fused:
        return None
    inside = set(group.operations)
    for name in group.operations:
        for source in graph.operation(name).inputs:
            behind = through_views(graph, source)
            if behind in inside or behind in {n for n, _ in graph.inputs}:
                continue
            operation = graph.operation(behind)
            if operation.kind == kinds.GEMM and not _needed_outside(graph, behind, inside):
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
    rowwise = any(graph.operation(n).kind not in (kinds.POINTWISE, kinds.VIEW) for n in group.operations)
    if rowwise:
        return [alone]
    epilogue = Saving(
        "tail-epilogue", f"the tail ({tail}) as the epilogue of the matrix product",
        before, kernel.bytes_moved - intermediate, launches, fused_launches - 1,
        "bytes of the tail's operations only, before without the product's own write, after without reading its result,"
        " which stays in registers; launches of the whole region",
    )  # fmt: skip
    return [alone, epilogue]
