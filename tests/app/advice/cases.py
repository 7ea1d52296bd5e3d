"""Facts for the rule's tests, made by hand, with numbers whose arithmetic can be done on paper."""

from __future__ import annotations

from typing import Any

from app.advice.library_defaults import Known
from app.estimate.facts import KernelFacts, OperationFacts, RegionFacts, ShapeFacts
from profiler.hardware import find_device
from profiler.region.graph.cost_model import Cost, Count, KernelCost, OperationCost

H200 = find_device("H200")
assert H200 is not None
MB = 10**6


def cover(name: str = "torch.nn.functional.rms_norm", **more: Any) -> Known:
    """A call that covers a region."""
    package = name.split(".")[0]
    given: dict[str, Any] = {
        "candidate": f"library:{name}", "package": package, "call": f"y = {name}(x)", "covers": True, "conditions": (),
        "installed": True, "already": False, "note": "",
    }  # fmt: skip
    return Known(**(given | more))


def chain(megabytes: float = 100, operations: int = 6, kind: str = "pointwise") -> ShapeFacts:
    """Operations that each read and write one tensor of so many MB; torch.compile makes one kernel of them."""
    size = int(megabytes * MB)
    names = tuple(f"op{i}" for i in range(operations))
    each = tuple(OperationCost(n, n, kind, i, size, size, size // 2, 1) for i, n in enumerate(names))
    total = Count(operations * size, operations * size, operations * size // 2, operations)
    once = Count(size, size, operations * size // 2, 1)
    fused = (KernelCost("chain", "fused", names, size, size, operations * size // 2),)
    cost = Cost(each, fused, total, once, once, (), None, 0, once.flops / once.bytes_moved)
    columns = 4096 if kind in ("softmax", "reduction", "normalisation") else 1
    facts = tuple(
        OperationFacts(n, "mul", kind, size // 2, max(1, size // 2 // columns), columns, dtype="bf16", itemsize=2)
        for n in names
    )
    rows = max(1, size // 2 // columns)
    return ShapeFacts(cost, facts, (KernelFacts(names, rows, columns, False, ("softmax",) if columns > 1 else ()),))


def product(m: int = 8192, n: int = 8192, k: int = 8192, dtype: str = "bf16") -> ShapeFacts:
    """One matrix product."""
    itemsize = 4 if dtype == "f32" else 2
    read, written, flops = (m * k + k * n) * itemsize, m * n * itemsize, 2 * m * n * k
    item = OperationCost("mm", "matmul", "gemm", 1, read, written, flops, 1)
    count = Count(read, written, flops, 1)
    kernel = KernelCost("matmul", "gemm", ("mm",), read, written, flops)
    cost = Cost((item,), (kernel,), count, count, count, (), dtype, flops, flops / count.bytes_moved)
    facts = OperationFacts("mm", "mm", "gemm", max(m * n, m * k, k * n), m=m, n=n, k=k, dtype=dtype, itemsize=itemsize)
    return ShapeFacts(cost, (facts,), (KernelFacts(("mm",), m * n, 1),))


def broken_chain(megabytes: float = 100) -> ShapeFacts:
    """Pointwise, a fallback that nothing fuses across, pointwise: three kernels where one would do."""
    size = int(megabytes * MB)
    names = ("softmax", "topk", "div")
    kinds = ("softmax", "sort", "pointwise")
    each = tuple(
        OperationCost(n, n, k, i, size, size, size, 1) for i, (n, k) in enumerate(zip(names, kinds, strict=True))
    )
    kernels = tuple(
        KernelCost(o.label, "sort" if o.kind == "sort" else "fused", (o.name,), size, size, size) for o in each
    )
    total = Count(3 * size, 3 * size, 3 * size, 3)
    cost = Cost(each, kernels, total, total, Count(size, size // 16, 3 * size, 1), (), None, 0, 1.0)
    facts = tuple(OperationFacts(o.name, o.name, o.kind, size // 4, size // 512, 128, dtype="f32") for o in each)
    return ShapeFacts(cost, facts, tuple(KernelFacts((n,), size // 512, 128) for n in names))


def region(*shapes: ShapeFacts, **more: Any) -> RegionFacts:
    """A region with these shapes."""
    fields: dict[str, Any] = {
        "name": "tail", "kind": "pointwise", "title": "pointwise chain", "dtype": "bf16", "shapes": shapes,
        "kinds": frozenset(o.kind for s in shapes for o in s.operations), "irregularity": 0.0,
    }  # fmt: skip
    return RegionFacts(**(fields | more))
