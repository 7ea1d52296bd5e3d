"""The GPU in turns: while one child checks or autotunes, no other disturbs its clocks and caches."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

from kernels.measure.channel import Channel


class Turn:
    """A lock among the children of one validation (flock: a killed child frees it). Re-entrant in one thread.

    Waiting is told to the parent, whose time limits do not count it.
    """

    def __init__(self, path: str | None, channel: Channel) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) if path else None
        self._channel = channel
        self._depth = 0

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        if self._file is None:
            yield
            return
        if self._depth == 0:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._channel.send({"event": "waiting"})
                fcntl.flock(self._file, fcntl.LOCK_EX)
                self._channel.send({"event": "running"})
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give up the file; a held turn is freed."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _guarded(method: Callable[..., Any], turn: Turn) -> Callable[..., Any]:
    @functools.wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        with turn():
            return method(*args, **kwargs)

    return run


def _held_while_tuning(owner: Any, turn: Turn) -> None:
    """Triton's Autotuner keeps the turn from its first benchmark to the end of the call that it tunes for: all its
    configurations are compared under the same conditions. A call that does not tune takes no turn. What can be compiled
    before is compiled without it.

    A subclass with a `run` of its own (FlagGems has one) would never give the turn back: its benchmarks take it one by
    one.
    """
    run, bench = owner.run, owner._bench
    held: list[contextlib.ExitStack] = []

    @functools.wraps(bench)
    def benchmarked(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not held:
            _compile(self, args, kwargs, all_of_them=type(self).run is tuned)
        if type(self).run is not tuned:
            with turn():
                return bench(self, *args, **kwargs)
        if not held:
            held.append(contextlib.ExitStack())
            held[0].enter_context(turn())
        return bench(self, *args, **kwargs)

    @functools.wraps(run)
    def tuned(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        finally:
            if held:
                held.pop().close()

    owner.run, owner._bench = tuned, benchmarked


def _compile(tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any], all_of_them: bool) -> None:
    """Compile, without a launch, the configurations that this benchmark and its followers are about to time.

    By Triton's internals: what fails here is compiled, or fails, where it is benchmarked.
    """
    with contextlib.suppress(Exception):
        meta = {k: v for k, v in kwargs.items() if k != "config"}
        configs = list(tuner.prune_configs(dict(meta))) if all_of_them else [kwargs["config"]]
        for config in configs:
            with contextlib.suppress(Exception):
                tuner.fn.run(*args, **{**meta, **config.all_kwargs(), "warmup": True})


def exclusive_autotuning(turn: Turn) -> None:
    """Inductor's and Triton's benchmark calls wait for their turn; compiling goes on beside the others.

    Both are looked up by name: a version without them autotunes undisturbed only by luck, and still correctly.
    """
    with contextlib.suppress(ImportError):
        from torch._inductor.runtime import benchmarking

        for name in ("Benchmarker", "TritonBenchmarker", "InductorBenchmarker"):
            owner = getattr(benchmarking, name, None)
            if owner is not None and "benchmark_gpu" in vars(owner):
                owner.benchmark_gpu = _guarded(owner.benchmark_gpu, turn)
    with contextlib.suppress(ImportError):
        import triton.testing
        from triton.runtime.autotuner import Autotuner

        from kernels import tuning

        triton.testing.do_bench = _guarded(triton.testing.do_bench, turn)
        tuning.cold_us = _guarded(tuning.cold_us, turn)
        if {"run", "_bench"} <= set(vars(Autotuner)):
            _held_while_tuning(Autotuner, turn)
