"""The trace of a real run with a kernel for each operation, and the line that made each, from a second run."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from tests.browser.annotated import sample

Json = dict[str, Any]
SAMPLE = Path(sample.__file__)
COMPUTE = frozenset(
    "abs add add_ addmm bmm cat cos div exp gelu mean mm mul neg pow reciprocal rsqrt sigmoid silu sin _softmax tanh "
    "outer".split()
)
"""Operations that are given a kernel: one each, of those that are in no other."""
KERNEL_US = 10.0


def _run() -> tuple[torch.nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return sample.Model(32, 2).eval(), torch.randn(2, 8, 32)


class _Lines(TorchDispatchMode):
    """Counts, of each line of the sample, the operations that it launches by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: Counter[int] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in COMPUTE:
            frame = sys._getframe()
            while frame is not None and frame.f_code.co_filename != str(SAMPLE):
                frame = frame.f_back  # type: ignore[assignment]
            if frame is not None:
                self.lines[frame.f_lineno] += 1
        return func(*args, **(kwargs or {}))


def true_lines() -> dict[int, float]:
    """Of each line of the sample the time of the kernels that it launches by itself, in µs."""
    model, x = _run()
    with _Lines() as counted:
        sample.step(model, x)
    return {line: n * KERNEL_US for line, n in counted.lines.items()}


def record(path: Path) -> None:
    """Write the trace of one step, with stacks."""
    model, x = _run()
    sample.step(model, x)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=True) as recorded:
        sample.step(model, x)
    recorded.export_chrome_trace(str(path))
    trace = json.loads(path.read_text())
    ops = [e for e in trace["traceEvents"] if e.get("cat") == "cpu_op" and e["name"].removeprefix("aten::") in COMPUTE]
    number, end = 1, 0.0
    for op in sorted(ops, key=lambda e: (e["ts"], -e["dur"])):
        if op["ts"] < end:
            continue  # within another one
        end = op["ts"] + op["dur"]
        launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": op["pid"], "tid": op["tid"],
                  "ts": op["ts"], "dur": 0.0, "args": {"correlation": number}}  # fmt: skip
        kernel = {"ph": "X", "cat": "kernel", "name": f"{op['name']}_kernel", "pid": 0, "tid": 7,
                  "ts": op["ts"] + 1e3 + number * KERNEL_US, "dur": KERNEL_US,
                  "args": {"correlation": number, "stream": 7, "device": 0}}  # fmt: skip
        trace["traceEvents"] += [launch, kernel]
        number += 1
    trace["deviceProperties"] = [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0}]
    path.write_text(json.dumps(trace))
