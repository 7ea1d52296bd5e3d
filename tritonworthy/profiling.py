"""torch.profiler as the reader wants it, and how long steps take: generators that wait at `yield` for a step's end."""

from __future__ import annotations

import gc
import gzip
import shutil
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torch.profiler import ExecutionTraceObserver, profile

T = TypeVar("T")

Steps = Generator[None, None, float]
"""Yields once a step and returns µs of one."""
MakeWay = Callable[[], AbstractContextManager[None]]
"""What is done, while the program runs, where another profiler begins: `making_way`."""


class ProfilerBusyError(RuntimeError):
    """The program records itself."""


class StepFailedError(Exception):
    """Thrown into a part: a step ended with an error."""


def has_gpu() -> bool:
    """Whether torch can record a GPU's work here."""
    import torch

    return torch.cuda.is_available()


def wait_for_gpu() -> None:
    """Until what was launched has run; nothing without a GPU."""
    import torch

    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()


def rank_here() -> int | None:
    """This process's number where several train together."""
    import torch.distributed as distributed

    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        return distributed.get_rank()
    return None


def require_free() -> None:
    """Raises ProfilerBusyError where another profiler runs: torch has one at a time, and a second one ends the process.

    One whose schedule still waits counts too: it would start in the midst of a recording.
    """
    from torch._C._autograd import _profiler_enabled
    from torch.autograd import profiler
    from torch.profiler import profile

    running = _profiler_enabled() or profiler._is_profiler_enabled
    # gone once a profiler with a schedule has ended; the search takes longer
    begun = "ProfilerStep" in profiler.KinetoStepTracker._step_dict
    if running or (begun and any(type(one) is profile and one.step_rec_fn is not None for one in gc.get_objects())):
        raise ProfilerBusyError("another profiler is running")


def repeated(part: Callable[[], Generator[None, None, T]]) -> Generator[None, None, T]:
    """A part that begins again where a step in it fails."""
    while True:
        try:
            return (yield from part())
        except StepFailedError:
            continue


def passed(steps: int) -> Generator[None, None, None]:
    """Steps that nothing is done about."""
    for _ in range(steps):
        yield


def timed(steps: int) -> Steps:
    """Steps as they are. The GPU is waited for before the first and after the last alone, as between no others."""
    wait_for_gpu()
    start = time.perf_counter()
    for _ in range(steps):
        yield
    wait_for_gpu()
    return (time.perf_counter() - start) * 1e6 / steps


def recorded(steps: int, path: Path, make_way: MakeWay, *, stacks: bool, execution_trace: Path | None = None) -> Steps:
    """One step to warm the profiler up, then steps in a trace. make_way: entered while the program runs."""
    from torch.profiler import schedule

    require_free()
    with observing(execution_trace) as observer:
        with profiler(stacks, schedule(wait=0, warmup=1, active=steps, repeat=1), observer) as running:
            with make_way():
                yield
            wait_for_gpu()
            running.step()
            start = time.perf_counter()
            for number in range(steps):
                with make_way():
                    yield
                if number < steps - 1:
                    running.step()
            wait_for_gpu()
            step_us = (time.perf_counter() - start) * 1e6 / steps
        running.export_chrome_trace(str(path))
    return step_us


def recorded_block(path: Path, make_way: MakeWay) -> Steps:
    """One step, from its first line on: nothing is warmed up, and stacks, which would slow compiling, are left out."""
    import torch

    require_free()
    with profiler(False, None, None) as running:
        start = time.perf_counter()
        with torch.profiler.record_function("ProfilerStep#0"), make_way():
            yield
        wait_for_gpu()
        step_us = (time.perf_counter() - start) * 1e6
    running.export_chrome_trace(str(path))
    return step_us


def profiler(
    stacks: bool, schedule: Callable[[int], object] | None, observer: ExecutionTraceObserver | None
) -> profile:
    """The profiler with shapes; with stacks, modules come too: they are Python calls."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if has_gpu() else [])]
    return profile(
        activities=activities,
        schedule=schedule,  # type: ignore[arg-type]
        record_shapes=True,
        with_stack=stacks,
        with_modules=stacks,
        execution_trace_observer=observer,
    )


@contextmanager
def observing(path: Path | None) -> Iterator[ExecutionTraceObserver | None]:
    """An observer whose execution trace is at the path (.json.gz) in the end; None without one."""
    if path is None:
        yield None
        return
    from torch.profiler import ExecutionTraceObserver

    written = path.with_suffix("")
    observer = ExecutionTraceObserver()
    observer.register_callback(str(written))
    try:
        yield observer
        observer.unregister_callback()
        with written.open("rb") as plain, gzip.open(path, "wb", compresslevel=5) as packed:
            shutil.copyfileobj(plain, packed)
    finally:
        observer.unregister_callback()
        written.unlink(missing_ok=True)
