"""One model on this host's GPU: timed without a profiler, recorded by `tritonworthy.capture`, and what that costs.

Without a GPU the same is done on the CPU, to try it out: the result says so, and its trace has no kernels.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch
from torch.utils._pytree import tree_leaves

import tritonworthy
from benchmarks.program.recorded_models import Model, maker
from benchmarks.program.recorded_results import Overhead, Run

WARM_S, WARM_STEPS = 2.0, 5
"""At least, before anything is timed: clocks, the allocator, cuDNN's and cuBLAS's choices."""
TIMED = 20
GPU, CPU = "cuda", "cpu"


def run(model: Model, folder: Path, steps: int = TIMED) -> Run:
    """Time, record and time again. Writes the capture's traces into the folder."""
    began = time.perf_counter()
    device = GPU if torch.cuda.is_available() else CPU
    step = step_of(model, device)
    warm(step, WARM_S if device == GPU else 0.0)
    events_us, wall_us = launched_in_turn(step, steps, device)
    waited = [waited_for(step, device) for _ in range(steps)]
    captured, around = _captured(step, folder / f"{model.name}.json.gz", steps, device)
    recording = captured.recording
    if recording is None:
        raise RuntimeError(f"{model.name}: {captured.problem}")
    return Run(
        name=model.name,
        device=torch.cuda.get_device_name() if device == GPU else "no GPU",
        versions=_versions(),
        events_us=median(events_us) if events_us else None,
        wall_us=wall_us,
        waited_us=median(waited),
        spread=(max(waited) - min(waited)) / median(waited),
        peak_bytes=torch.cuda.max_memory_allocated() if device == GPU else 0,
        overhead=Overhead(
            median(waited), median(around.steps_us), recording.bare_us or 0.0, recording.plain_us or 0.0,
            recording.stacks_us or 0.0, tuple(round(s, 4) for s in around.ends_s),
        ),
        slowdown=recording.slowdown,
        problem=captured.problem,
        trace=recording.path.name,
        plain=recording.plain.name if recording.plain is not None else "",
        seconds=time.perf_counter() - began,
    )  # fmt: skip


def step_of(model: Model, device: str) -> Callable[[], None]:
    """What one step runs, as the recorder of a program does: forward, or forward and backward into fresh gradients."""
    with torch.device(device):
        module, args, kwargs = maker(model.name)()
    module = module.to(device).train(model.training)

    def forward() -> None:
        with torch.no_grad():
            module(*args, **kwargs)

    parameters = [p for p in module.parameters() if p.requires_grad]
    upstream: list[torch.Tensor] = []

    def training() -> None:
        for parameter in parameters:
            parameter.grad = None
        result = module(*args, **kwargs)
        roots = _roots(result)
        if not upstream:
            upstream.extend(torch.ones_like(root) for root in roots)
        torch.autograd.backward(roots, upstream)

    return training if model.training else forward


def _roots(result: object) -> list[torch.Tensor]:
    """The loss where there is one, else all floating results, as profiler/program/record.py has it."""
    loss = getattr(result, "loss", None)
    if isinstance(loss, torch.Tensor):
        return [loss]
    values = dict(result) if isinstance(result, Mapping) else result
    return [v for v in tree_leaves(values) if isinstance(v, torch.Tensor) and v.requires_grad]


def warm(step: Callable[[], None], seconds: float) -> None:
    """Run steps for so long."""
    end = time.perf_counter() + seconds
    done = 0
    while done < WARM_STEPS or time.perf_counter() < end:
        step()
        _wait()
        done += 1


def launched_in_turn(step: Callable[[], None], steps: int, device: str) -> tuple[list[float], float]:
    """Steps one behind the other, none waited for but the last: µs of each between the device's events (none without a
    GPU), and µs of one on the host's clock."""
    marks = []
    _wait()
    start = time.perf_counter()
    for _ in range(steps):
        marks += _mark(device)
        step()
    marks += _mark(device)
    _wait()
    wall_us = (time.perf_counter() - start) * 1e6 / steps
    return [a.elapsed_time(b) * 1e3 for a, b in pairwise(marks)], wall_us


def _mark(device: str) -> list[torch.cuda.Event]:
    """An event behind what was launched so far; none without a GPU."""
    if device != GPU:
        return []
    mark = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    mark.record()
    return [mark]


def waited_for(step: Callable[[], None], device: str) -> float:
    """µs of a step on the host's clock, until the GPU has done it."""
    start = time.perf_counter()
    step()
    _wait()
    return (time.perf_counter() - start) * 1e6


@dataclass(frozen=True, slots=True)
class _Around:
    steps_us: Sequence[float]
    ends_s: Sequence[float]


def _captured(step: Callable[[], None], path: Path, steps: int, device: str) -> tuple[tritonworthy.Capture, _Around]:
    """The capture of a script, with as many steps more in its context."""
    after, ends = [], []
    with tritonworthy.capture(path, quiet=True) as captured:
        for _ in range(captured.steps_wanted):
            step()
            start = time.perf_counter()
            captured.step()
            ends.append(time.perf_counter() - start)
        for _ in range(steps):
            start = time.perf_counter()
            step()
            _wait()
            captured.step()
            after.append((time.perf_counter() - start) * 1e6)
    return captured, _Around(after, ends)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _versions() -> dict[str, str]:
    names = ("torch", "torchvision", "transformers", "triton")
    return {name: str(sys.modules[name].__version__) for name in names if name in sys.modules}
