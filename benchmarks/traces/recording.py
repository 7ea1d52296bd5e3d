"""A trace of a model's steps: by torch.profiler on a GPU; for a dry run on the CPU, with operations in the place of
kernels."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

Json = dict[str, Any]

WITHOUT_KERNEL = frozenset(
    f"aten::{name}"
    for name in """_reshape_alias _unsafe_view alias as_strided contiguous detach detach_ dropout empty empty_like
    empty_strided expand flatten lift_fresh linear permute promote_types reshape resize_ resolve_conj resolve_neg
    result_type select slice t to transpose unbind unsqueeze view""".split()
)
"""Operations that launch nothing themselves."""

KERNEL_US = 1000.0
"""Of every stand-in for a kernel: long compared with what a busy host takes to launch it, so that regions rank the same
in every dry run."""


def record(model: torch.nn.Module, inputs: Sequence[torch.Tensor], device: str, target: Path, steps: int = 2) -> None:
    """Warms up, then writes `steps` steps with shapes to target (.json.gz), as tests/data/traces were recorded."""
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device != "cpu" else [])]
    written = target.with_suffix("")  # torch.profiler's own compression is its slowest part
    with torch.no_grad():
        for _ in range(3):
            model(*inputs)
        plan = schedule(wait=0, warmup=1, active=steps, repeat=1)
        with profile(activities=kinds, record_shapes=True, schedule=plan, acc_events=True) as seen:
            for _ in range(steps + 1):
                model(*inputs)
                if device != "cpu":
                    torch.cuda.synchronize()
                seen.step()
        seen.export_chrome_trace(str(written))
    body = json.loads(written.read_bytes())
    written.unlink()
    if device == "cpu":
        body = with_kernels(body)
    with gzip.open(target, "wt", compresslevel=1) as out:
        json.dump(body, out)


def with_kernels(body: Json) -> Json:
    """A CPU's trace in which every operation that does work has launched one kernel, all of them KERNEL_US long.

    They queue, as on a GPU that has enough to do. For a dry run alone: the times are nobody's.
    """
    ops = sorted((e for e in body["traceEvents"] if e.get("cat") == "cpu_op"), key=lambda e: (e["ts"], -e["dur"]))
    added: list[Json] = []
    free_us = 0.0
    for op, following in zip(ops, [*ops[1:], {"ts": float("inf"), "name": ""}], strict=True):
        innermost = following["ts"] >= op["ts"] + op["dur"] or following["name"] in WITHOUT_KERNEL
        if op["name"] in WITHOUT_KERNEL or not innermost or not op["name"].startswith("aten::"):
            continue
        link = {"correlation": len(added) // 2 + 1}
        start = max(free_us, op["ts"] + op["dur"])
        launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": op["pid"], "tid": op["tid"], "args": link}
        kernel = {"cat": "kernel", "name": op["name"], "pid": 0, "tid": 7, "args": {"stream": 7, "device": 0, **link}}
        added += [
            {"ph": "X", "ts": op["ts"], "dur": op["dur"] / 2} | launch,
            {"ph": "X", "ts": start, "dur": KERNEL_US} | kernel,
        ]
        free_us = start + KERNEL_US
    return body | {"traceEvents": [*body["traceEvents"], *added]}
