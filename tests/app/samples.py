"""API-shaped dictionaries for tests of pages and charts: the four-line example with round numbers."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

REGION = """x: bf16[8192, 4096]
w: bf16[4096, 16384]
b: bf16[16384]
mask: bf16[8192, 16384]
z = x @ w
z = z + b
z = gelu(z)
y = z * mask
return y
"""

Z = 8192 * 16384 * 2  # bytes of z
GEMM = (8192 * 4096 + 4096 * 16384) * 2  # bytes that the GEMM reads


def operation(label: str, kind: str, read: int, written: int, flops: int) -> Json:
    return {
        "name": label,
        "label": label,
        "kind": kind,
        "line": 1,
        "bytes_read": read,
        "bytes_written": written,
        "bytes_moved": read + written,
        "flops": flops,
        "launches": 1,
    }


def count(read: int, written: int, flops: int, launches: int) -> Json:
    return {
        "bytes_read": read, "bytes_written": written, "bytes_moved": read + written, "flops": flops,
        "launches": launches,
    }  # fmt: skip


def cost() -> Json:
    operations = [
        operation("@", "gemm", GEMM, Z, 2 * 8192 * 4096 * 16384),
        operation("+", "pointwise", Z, Z, 8192 * 16384),
        operation("gelu", "pointwise", Z, Z, 8192 * 16384),
        operation("*", "pointwise", 2 * Z, Z, 8192 * 16384),
    ]
    flops = sum(o["flops"] for o in operations)
    kernels = [
        {"label": "mm", "kind": "extern", "operations": ["@"], "bytes_read": GEMM, "bytes_written": Z, "flops": 1},
        {
            "label": "tail",
            "kind": "fused",
            "operations": ["+", "gelu", "*"],
            "bytes_read": 2 * Z,
            "bytes_written": Z,
            "flops": 1,
        },
    ]
    return {
        "operations": operations,
        "kernels": kernels,
        "unfused": count(GEMM + 4 * Z, 4 * Z, flops, 4),
        "fused": count(GEMM + 2 * Z, 2 * Z, flops, 2),
        "ideal": count(GEMM + Z, Z, flops, 1),
        "savings": [],
        "matmul_dtype": "bf16",
        "gemm_flops": operations[0]["flops"],
        "intensity": 1.0,
    }


def interval(median: float, share: float = 0.01) -> Json:
    return {"median": median, "low": median * (1 - share), "high": median * (1 + share)}


def candidate(name: str, tool: str, time_us: float | None, eager_us: float = 2200.0, status: str = "ok") -> Json:
    return {
        "name": name,
        "tool": tool,
        "status": status,
        "message": "",
        "call": "",
        "error_vs_eager": 1.0,
        "time_us": interval(time_us) if time_us else None,
        "wall_us": time_us,
        "ratio_to_eager": interval(time_us / eager_us) if time_us else None,
        "ratio_to_best_other": None,
        "share_of_limit": None,
        "peak_bytes": None,
        "compile_s": None,
        "kernels": [],
        "shapes": [],
        "source": "",
    }


def alternative(tool: str, name: str, mid: float, **more: Any) -> Json:
    return {
        "tool": tool,
        "candidate": name,
        "time_us": {"low": mid * 0.9, "mid": mid, "high": mid * 1.1},
        "effort_lines": 0,
        "note": "",
        "admitted": True,
        "call": "",
        "mode": "",
        **more,
    }


def advice(tool: str = "compile") -> Json:
    return {
        "tool": tool,
        "mode": "",
        "headline": f"Use {tool}",
        "action": "",
        "call": "",
        "criteria": [],
        "alternatives": [
            alternative("skip", "eager", 2200.0),
            alternative("compile", "compile", 1800.0),
            alternative("triton", "triton:generated", 1700.0),
        ],
        "region_speedup": {"low": 1.1, "mid": 1.25, "high": 1.3},
        "step_speedup": {"low": 1.01, "mid": 1.05, "high": 1.06},
        "floor_us": 1400.0,
        "device": "NVIDIA H200",
        "validation": None,
        "notes": [],
    }


def region(name: str, tool: str = "compile", time_us: float | None = 1000.0, share: float | None = 0.1) -> Json:
    return {
        "id": name.replace(" ", "").ljust(26, "0")[:26],
        "name": name,
        "text": REGION,
        "source": {"trace": "t" * 26, "module": "", "ops": []},
        "calls_per_step": 4,
        "time_us_per_step": time_us,
        "share_of_step": share,
        "shapes": [],
        "cost": cost(),
        "advice": advice(tool),
        "created_at": "2026-11-21T06:34:12.123Z",
        "validations": [],
    }


def trace(regions: list[Json], **more: Any) -> Json:
    return {
        "id": "t" * 26,
        "name": "sample.json",
        "status": "ready",
        "events": 10,
        "kernels": 3,
        "profiler_steps": 1,
        "steps": 1,
        "step_time_us": 10000.0,
        "kernel_time_us": 8000.0,
        "gpu_busy_share": 0.8,
        "linked_share": 1.0,
        "device": "NVIDIA H200",
        "notes": [],
        "regions": regions,
        "error": None,
        **more,
    }


def validation(**more: Any) -> Json:
    return {
        "id": "v" * 26,
        "state": "done",
        "outcome": "confirmed",
        "reason": "",
        "region": REGION,
        "device": "NVIDIA H200",
        "software": {},
        "conditions": {},
        "candidates": [
            candidate("eager", "eager", 2200.0),
            candidate("compile", "compile", 1800.0),
            candidate("triton:generated", "triton", 1750.0),
            candidate("library:torch.x", "library", None, status="unsupported"),
        ],
        "best": "triton:generated",
        "floor_us": 1400.0,
        "date": "2026-11-21",
        "advice_before": advice("compile"),
        "advice_after": advice("compile"),
        **more,
    }
