"""The API's cost object: counts, operations, kernels, savings with their counting, floor and roofline class."""

from __future__ import annotations

from app.estimate.compiled_bytes import libraries, predicted_bytes, replaces_attention
from app.objects import cost as objects
from profiler.hardware import Device
from profiler.oracle.model import Prediction
from profiler.region import op_kinds
from profiler.region.graph.cost_model import (
    DRAM_COUNTING,
    INTENSITY_COUNTING,
    Cost,
    Count,
    KernelCost,
    Traffic,
    bound,
    dram,
    floor_counting,
    floor_us,
    without_hidden,
)

BY_INDUCTOR = "the bytes of Inductor's own kernels, by its count, and those of its library calls by ours"


def cost_json(
    cost: Cost, device: Device, prediction: Prediction | None = None, attention: frozenset[str] = frozenset(),
    attention_bytes: int = 0, hidden_share: float = 0.0,
) -> objects.Cost:  # fmt: skip
    """The cost on a device. prediction: then what is fused is what Inductor says, where our rules say otherwise.

    attention, attention_bytes: as `predicted_bytes` takes them. hidden_share: as in `RegionFacts`.
    """
    by_rules = _by_rules(cost, device, without_hidden(cost, hidden_share))
    if prediction is None:
        return by_rules
    moved = predicted_bytes(cost, prediction, attention, attention_bytes)
    agree = prediction.launches == cost.fused.launches and abs(moved - cost.fused.bytes_moved) <= 0.02 * moved
    if agree:
        return by_rules
    fused: objects.Count = {**by_rules["fused"], "bytes_read": None, "bytes_written": None, "bytes_moved": moved,
             "launches": prediction.launches}  # fmt: skip
    # What our rules say of single tails and of the L2 is about other kernels than Inductor's.
    kept = [s for s in by_rules["savings"] if not s["name"].startswith("tail-")]
    return {
        **by_rules,
        "fused": fused,
        "kernels": _kernels(cost, prediction, attention, attention_bytes),
        "savings": [_saving(s, moved, prediction.launches) if s["name"] == "region-fused" else s for s in kept],
        "dram": {**by_rules["dram"], "fused": None},
    }


def _saving(saving: objects.Saving, moved: int, launches: int) -> objects.Saving:
    share = 1 - moved / saving["bytes_before"] if saving["bytes_before"] else 0.0
    counting = f"every operation's own reads and writes, against {BY_INDUCTOR}"
    return {**saving, "bytes_after": moved, "launches_after": launches, "share_saved": share, "counting": counting}


def _kernels(
    cost: Cost, prediction: Prediction, attention: frozenset[str], attention_bytes: int
) -> list[objects.CostKernel]:
    """Inductor's kernels, then the calls that it leaves to libraries."""
    kernels: list[objects.CostKernel] = [
        {
            "label": " + ".join(o.split(".")[-1].strip("_") for o in k.operations) or k.name, "kind": "fused",
            "operations": [k.name], "bytes_read": None, "bytes_written": None,
            "bytes_moved": (k.bytes_moved or 0) * k.calls, "flops": None,
        }
        for k in prediction.kernels
    ]  # fmt: skip
    replaced = replaces_attention(prediction)
    if replaced:
        flops = sum(o.flops for o in cost.operations if o.name in attention and o.kind == op_kinds.GEMM)
        kernels.append(
            {
                "label": "attention", "kind": op_kinds.ATTENTION, "operations": sorted(attention), "bytes_read": None,
                "bytes_written": None, "bytes_moved": attention_bytes, "flops": flops,
            }
        )  # fmt: skip
    return kernels + [_kernel(k) for k in libraries(cost, attention if replaced else frozenset())]


def _kernel(kernel: KernelCost) -> objects.CostKernel:
    return {
        "label": kernel.label, "kind": kernel.kind, "operations": list(kernel.operations),
        "bytes_read": kernel.bytes_read, "bytes_written": kernel.bytes_written, "bytes_moved": kernel.bytes_moved,
        "flops": kernel.flops,
    }  # fmt: skip


def _by_rules(cost: Cost, device: Device, least: Cost) -> objects.Cost:
    """least: what no kernel can do without."""
    return {
        "unfused": _count(cost.unfused),
        "fused": _count(cost.fused),
        "ideal": _count(cost.ideal),
        "operations": [
            {
                "name": o.name, "label": o.label, "kind": o.kind, "line": o.line, "bytes_read": o.bytes_read,
                "bytes_written": o.bytes_written, "bytes_moved": o.bytes_moved, "flops": o.flops,
                "launches": o.launches,
            }
            for o in cost.operations
        ],
        "kernels": [_kernel(k) for k in cost.kernels],
        "savings": [
            {
                "name": s.name, "title": s.title, "bytes_before": s.bytes_before, "bytes_after": s.bytes_after,
                "share_saved": s.share_saved, "launches_before": s.launches_before,
                "launches_after": s.launches_after, "counting": s.counting,
            }
            for s in cost.savings
        ],
        "intensity": cost.intensity,
        "matmul_dtype": cost.matmul_dtype,
        "limit_dtype": cost.limit_dtype,
        "gemm_flops": cost.gemm_flops,
        "bound": "memory" if bound(cost, device) == "memory" else "compute",
        "floor_us": floor_us(least, device),
        "floor_counting": floor_counting(least, device),
        "intensity_counting": INTENSITY_COUNTING,
        "dram": {
            "unfused": _traffic(dram(cost.unfused_steps, device)),
            "fused": _traffic(dram(cost.fused_steps, device)),
            "counting": DRAM_COUNTING,
        },
        "device": device.name,
        "ceilings": {
            "copy_bytes_per_s": device.copy_rate,
            "matmul_flops_per_s": device.matmul_rate(cost.matmul_dtype or "bf16"),
            "vector_flops_per_s": device.f32_rate,
            "measured": device.ceilings_measured,
            "source": device.measured_source or device.source,
        },
    }  # fmt: skip


def _traffic(traffic: Traffic) -> objects.Traffic:
    return {
        "bytes_read": traffic.bytes_read, "bytes_written": traffic.bytes_written, "bytes_moved": traffic.bytes_moved,
    }  # fmt: skip


def _count(count: Count) -> objects.Count:
    return {
        "bytes_read": count.bytes_read, "bytes_written": count.bytes_written, "bytes_moved": count.bytes_moved,
        "flops": count.flops, "launches": count.launches,
    }  # fmt: skip
