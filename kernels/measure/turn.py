"""The GPU in turns: while one child checks or autotunes, no other disturbs its clocks and caches."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import msgspec
import torch

from kernels.measure.gpu_lock import door_of
from kernels.measure.messages import Running, Waiting


class Teller(Protocol):
    """Who is told of waiting: a Channel to the parent, or what stands for it where nobody listens."""

    def send(self, message: msgspec.Struct) -> None:
        """Pass it on."""


class Turn:
    """A lock among the children of one validation (flock: a killed child frees it). Re-entrant in one thread.

    Alone by default; shared: with others that share it, never with one that is alone. One that asks to be alone
    while it shares gives up its share first, so that two of them cannot wait for each other. Whoever comes takes the
    turn's door first and waits behind it: those that share come one upon the other without end, and without the door
    one that would be alone may never have its turn.

    Waiting is told to the parent, whose time limits do not count it, and added up in `waited_s`.
    """

    def __init__(self, path: str | None, channel: Teller) -> None:
        self._file: int | None = None
        self._door: int | None = None
        self._channel = channel
        self._held = fcntl.LOCK_UN
        self.waited_s = 0.0
        self.open(path)

    @property
    def held(self) -> bool:
        """Whether this process has the turn, alone."""
        return self._held == fcntl.LOCK_EX

    def open(self, path: str | None) -> None:
        """From now on the turns of this file; None: of none."""
        self.close()
        if path:
            self._file, self._door = _opened(path), _opened(door_of(path))

    @contextlib.contextmanager
    def __call__(self, shared: bool = False, to_the_end: bool = False) -> Iterator[None]:
        """to_the_end: what fails in it keeps the turn until the process has ended, and its memory is free."""
        if self._file is None:
            yield
            return
        before = self._held
        if before != fcntl.LOCK_EX:
            self._take(fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        try:
            yield
        except BaseException:
            if not to_the_end:
                self._take(before)
            raise
        self._take(before)

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Others may have it meanwhile; then it is taken again as it was held."""
        before = self._held
        self._take(fcntl.LOCK_UN)
        try:
            yield
        finally:
            self._take(before)

    def _take(self, kind: int) -> None:
        if kind == self._held or self._file is None or self._door is None:
            return
        if kind == fcntl.LOCK_UN or self._held == fcntl.LOCK_EX:
            self._flock(self._file, kind)
        else:
            self._flock(self._file, fcntl.LOCK_UN)  # who waits at the door must not hold what its holder waits for
            self._flock(self._door, fcntl.LOCK_EX)
            self._flock(self._file, kind)
            self._flock(self._door, fcntl.LOCK_UN)
        self._held = kind

    def _flock(self, file: int, kind: int) -> None:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            self._channel.send(Waiting())
            started = time.monotonic()
            fcntl.flock(file, kind)
            self.waited_s += time.monotonic() - started
            self._channel.send(Running())

    def close(self) -> None:
        """Give up the files; a held turn is freed."""
        for file in (self._file, self._door):
            if file is not None:
                os.close(file)
        self._file = self._door = None


LAST_FILE = 900


def _opened(path: str) -> int:
    """A high number, so that a process that ends gives the turn back behind the GPU's files, not before them."""
    low = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, LAST_FILE)
    except OSError:  # the limit on open files is lower
        return low
    os.close(low)
    return high


def _guarded(method: Callable[..., Any], turn: Turn) -> Callable[..., Any]:
    @functools.wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        with turn():
            return method(*args, **kwargs)

    return _untraced(run)


def _untraced(method: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled code calls it while Dynamo looks on, which knows no generator and would refuse the region for ours."""
    with contextlib.suppress(ImportError, AttributeError):
        untraced: Callable[..., Any] = torch.compiler.disable(method)  # type: ignore[no-untyped-call]
        return untraced
    return method


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

    owner.run, owner._bench = tuned, _untraced(benchmarked)


def _compile(tuner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], all_of_them: bool) -> None:
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
    """Inductor's and Triton's benchmark calls wait for their turn; compiling goes on meanwhile.

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
