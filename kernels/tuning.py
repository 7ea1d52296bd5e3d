"""Choosing a variant of a hand-written kernel: pruned by a model, timed once for each key, kept on disk.

Timed on copies of the arguments, so that tuning leaves nothing in the outputs of the call. A launcher says which
arguments need no copy: those that it only reads, which may fill half of a GPU. Nothing is timed in the interpreter.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
import triton
from triton import knobs

from kernels.measure.candidate.timing import DeviceClock, Flush, Rotation, cold_calls, warm
from kernels.tuning_cache import Tuned, TunedFile, source_hash

WARMUP_MS = 5.0
REPEAT_MS = 30.0
FLUSHED_BYTES = 64e6
ALIGNMENT = 16
"""Bytes of the widest access: a copy of a misaligned tensor is as misaligned."""


class BuildError(Exception):
    """A launcher's word that this Triton, or this GPU's, does not build a variant: the others are timed."""


REFUSALS = (
    triton.runtime.errors.OutOfResources, triton.runtime.errors.PTXASError, BuildError, torch.OutOfMemoryError
)  # fmt: skip
"""Of one variant, which is left out: a workspace of its own may be more than there is."""
REFUSING_WORDS = ("cooperative launch", "PassManager")
"""In a RuntimeError that is of one variant too: more programs than run at once, a fault of Triton's own passes."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to launch: which jit function, its constants, its warps and pipeline stages.

    tuned: names of the constants that are a choice; the others follow from the inputs. shared_bytes, registers: what
    a model of the kernel says that a program and a thread need; 0 where there is none.
    """

    kernel: Any
    constants: tuple[tuple[str, Any], ...]
    warps: int
    stages: int | None = None
    tuned: tuple[str, ...] = ()
    shared_bytes: int = 0
    registers: int = 0
    options: tuple[tuple[str, Any], ...] = ()

    def __getitem__(self, name: str) -> Any:
        return dict(self.constants)[name]

    @property
    def meta(self) -> dict[str, Any]:
        return dict(_meta(self))

    @property
    def choice(self) -> str:
        """What was chosen, without what follows from the inputs: the name that the cache on disk keeps."""
        names = self.tuned or tuple(name for name, _ in self.constants)
        parts = [f"{k}={v}" for k, v in self.constants if k in names] + [f"{k}={v}" for k, v in self.options]
        stages = "" if self.stages is None else f", {self.stages} stages"
        return f"{self.kernel.__name__}({', '.join(parts)}) x {self.warps} warps{stages}"

    def __str__(self) -> str:
        constants = ", ".join(f"{k}={v}" for k, v in self.constants)
        stages = "" if self.stages is None else f", {self.stages} stages"
        return f"{self.kernel.__name__}({constants}) x {self.warps} warps{stages}"


@cache
def _meta(variant: Variant) -> tuple[tuple[str, Any], ...]:
    """Kept, because every launch asks for it."""
    stages = () if variant.stages is None else (("num_stages", variant.stages),)
    return (
        *variant.constants, ("num_warps", variant.warps), ("enable_fp_fusion", True), *stages, *variant.options
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may have: bytes of shared memory, 32-bit registers a thread."""

    shared_bytes: int = 227 * 1024
    registers: int = 255
    file: int = 65536  # registers of a multiprocessor


def fitting(variants: Sequence[Variant], limits: Limits) -> list[Variant]:
    """Those whose model says that they fit, so that none is compiled to spill or to be refused; all if none does."""
    return [v for v in variants if not misfit(v, limits)] or list(variants)


def misfit(variant: Variant, limits: Limits) -> str:
    """Which resource this variant needs more of than there is, and how much, as its model says; "" where it fits."""
    file = variant.registers * variant.warps * 32
    if variant.shared_bytes > limits.shared_bytes:
        return f"{variant.shared_bytes:,} bytes of shared memory, a program may have {limits.shared_bytes:,}"
    if variant.registers > limits.registers:
        return f"{variant.registers} registers a thread, it may have {limits.registers}"
    if file > limits.file:
        return f"{file:,} registers for {variant.warps} warps, a multiprocessor has {limits.file:,}"
    return ""


@dataclass(frozen=True, slots=True)
class Pick:
    """One variant that a call asked a Tuner for: out of which, and how it was then launched."""

    tuner: str
    key: Hashable
    variants: tuple[Variant, ...]
    chosen: Variant
    launch: Callable[..., None]
    arguments: tuple[Any, ...]


_forced: dict[tuple[str, Hashable], Variant] = {}
_watching: list[list[Pick]] = []


@contextmanager
def forced(pick: Pick, variant: Variant) -> Iterator[None]:
    """Calls that ask for this pick's kernel, sizes and dtypes get this variant; nothing is remembered of it."""
    where = (pick.tuner, pick.key)
    before = _forced.get(where)
    _forced[where] = variant
    try:
        yield
    finally:
        if before is None:
            del _forced[where]
        else:
            _forced[where] = before


@contextmanager
def watched() -> Iterator[list[Pick]]:
    """The picks of all calls inside, in order."""
    seen: list[Pick] = []
    _watching.append(seen)
    try:
        yield seen
    finally:
        _watching.pop()


def limits_of(device: torch.device) -> Limits:
    """Of this GPU; of sm_90 where there is none."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return Limits()
    properties = torch.cuda.get_device_properties(device)
    shared = getattr(properties, "shared_memory_per_block_optin", 0) or 64 * 1024
    registers = getattr(properties, "regs_per_multiprocessor", 65536)
    return Limits(shared_bytes=shared, registers=512 if torch.version.hip else 255, file=registers)


@cache
def multiprocessors(device: torch.device) -> int:
    """Of this GPU; 2 in the interpreter, so that programs that walk over rows or tiles go round there."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def bucket(size: int) -> int:
    """Sizes that share a choice: up to the next power of two."""
    return int(triton.next_power_of_2(max(1, size)))


@dataclass
class Tuner:
    """Remembers the fastest variant for each key, in this process and on disk.

    chosen, times_us, seconds: by key: what was picked, the median of every variant that was timed here, and how long
    that took, compilation included.
    """

    name: str
    chosen: dict[Hashable, Variant] = field(default_factory=dict)
    times_us: dict[Hashable, Mapping[str, float]] = field(default_factory=dict)
    seconds: dict[Hashable, float] = field(default_factory=dict)
    _one_at_a_time: threading.RLock = field(default_factory=threading.RLock, repr=False, compare=False)

    def pick(
        self,
        key: Hashable,
        space: Sequence[Variant] | Callable[[], Sequence[Variant]],
        launch: Callable[..., None],
        *arguments: Any,
        uncopied: Sequence[Any] = (),
    ) -> Variant:
        """The variant for this key (sizes and dtypes; integers are put in buckets on disk, not here).

        launch(variant, *arguments) runs one, and records nothing for autograd. The first call for a key times what the
        model leaves of `space`, on copies; a variant that does not compile or needs more than the GPU has is left out.
        uncopied: those of the arguments that are timed as they are, because launch only reads them, or because nobody
        needs what is in them before and after this call. What stands twice among the arguments is copied once.
        Raises RuntimeError where none is left, or where a gradient is wanted, ValueError for tensors that are not all
        on the current device.
        """
        device = placed(arguments)
        full: Hashable = (key, device)
        variant = _forced.get((self.name, key)) if _forced else None
        variant = (
            variant or self.chosen.get(full) or self._settled(full, key, space, launch, arguments, device, uncopied)
        )
        for seen in _watching:
            variants = tuple(space() if callable(space) else space)
            seen.append(Pick(self.name, key, variants, variant, launch, arguments))
        return variant

    def _settled(
        self,
        full: Hashable,
        key: Hashable,
        space: Sequence[Variant] | Callable[[], Sequence[Variant]],
        launch: Callable[..., None],
        arguments: Sequence[Any],
        device: torch.device,
        uncopied: Sequence[Any],
    ) -> Variant:
        with self._one_at_a_time:
            if full not in self.chosen:
                variants = list(space() if callable(space) else space)
                chosen = variants[0]
                if len(variants) > 1 and not knobs.runtime.interpret:
                    chosen = self._remembered(
                        full, key, fitting(variants, limits_of(device)), launch, arguments, device, uncopied
                    )
                self.chosen[full] = chosen
            return self.chosen[full]

    def _remembered(
        self,
        full: Hashable,
        key: Hashable,
        variants: Sequence[Variant],
        launch: Callable[..., None],
        arguments: Sequence[Any],
        device: torch.device,
        uncopied: Sequence[Any],
    ) -> Variant:
        """From disk where one of these was chosen there before, by this text of the kernels."""
        file = TunedFile(self.name, device, source_hash([v.kernel for v in variants]))
        entry = file.get(_bucketed(key))
        if entry is not None:
            for variant in variants:
                if variant.choice == entry.choice:
                    return variant
        began = time.perf_counter()
        chosen, time_us = self._timed(full, variants, launch, lent(arguments, uncopied))
        self.seconds[full] = time.perf_counter() - began
        file.put(_bucketed(key), Tuned(chosen.choice, time_us, self.seconds[full]))
        return chosen

    def _timed(
        self, full: Hashable, variants: Sequence[Variant], launch: Callable[..., None], own: Sequence[Any]
    ) -> tuple[Variant, float]:
        times: dict[str, float] = {}
        best: tuple[float, Variant] | None = None
        refused: list[str] = []
        for variant in variants:
            try:
                took_us = cold_us(lambda v=variant: launch(v, *own))  # type: ignore[misc]
            except REFUSALS as fault:
                refused.append(f"{variant}: {fault}")
                continue
            except RuntimeError as fault:
                if not any(words in str(fault) for words in REFUSING_WORDS):
                    raise
                refused.append(f"{variant}: {fault}")
                continue
            times[str(variant)] = took_us
            if best is None or took_us < best[0]:
                best = (took_us, variant)
        if best is None:
            raise RuntimeError("no variant runs: " + "; ".join(refused)[:500])
        self.times_us[full] = times
        return best[1], best[0]


def placed(arguments: Sequence[Any]) -> torch.device:
    """The one device of these tensors.

    Raises RuntimeError where one wants a gradient, ValueError where they are on several devices, or on a GPU that is
    not the current one, on which Triton would launch.
    """
    devices = {a.device for a in arguments if isinstance(a, torch.Tensor)}
    if len(devices) > 1:
        raise ValueError(f"tensors on {', '.join(sorted(map(str, devices)))}: all must be on one device")
    if torch.is_grad_enabled() and any(a.requires_grad for a in arguments if isinstance(a, torch.Tensor)):
        raise RuntimeError("kernels record nothing for autograd: call under torch.no_grad(), or detach the inputs")
    device = next(iter(devices), torch.device("cpu"))
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        raise ValueError(
            f"tensors on {device}, the current GPU is another: use `with torch.cuda.device({device.index})`"
        )
    return device


def cold_us(call: Callable[[], None]) -> float:
    """Median device time of cold calls, in µs. Benchmarks that share a GPU take turns by replacing this function.

    triton.testing.do_bench leaves the GPU waiting for the host where a launch takes longer than its flush: a kernel of
    13 µs read 34 to 44 there (H200), and the wrong variant was chosen.
    """
    clock, rotation = DeviceClock(), Rotation([()])

    def once() -> tuple[torch.Tensor, ...]:
        call()
        return ()

    estimate = warm(once, rotation, WARMUP_MS, clock)
    count = max(5, min(50, int(REPEAT_MS * 1e3 / estimate.device_us)))
    return float(statistics.median(cold_calls(once, rotation, count, estimate, clock, _flush())))


@cache
def _flush() -> Flush:
    return Flush(FLUSHED_BYTES, "cuda")


def lent(arguments: Sequence[Any], uncopied: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments to time with: copies, one of each, and those that need none as they are."""
    ours = {id(a): a for a in uncopied}
    for argument in arguments:
        if id(argument) not in ours:
            ours[id(argument)] = copied(argument)
    return tuple(ours[id(a)] for a in arguments)


def copied(argument: Any) -> Any:
    """A tensor of the same strides, alignment and contents elsewhere; anything else as it is."""
    if not isinstance(argument, torch.Tensor) or not argument.numel():
        return argument
    # The span of its memory, not element by element: an expanded tensor has many in one place.
    span = 1 + sum((n - 1) * s for n, s in zip(argument.shape, argument.stride(), strict=True))
    skipped = argument.data_ptr() % ALIGNMENT // argument.element_size()
    made = torch.empty(skipped + span, dtype=argument.dtype, device=argument.device)
    made[skipped:].copy_(argument.detach().as_strided((span,), (1,)))
    return made.as_strided(argument.shape, argument.stride(), skipped)


def _bucketed(key: Hashable) -> str:
    parts = key if isinstance(key, tuple) else (key,)
    return " ".join(str(bucket(p)) if isinstance(p, int) and not isinstance(p, bool) else str(p) for p in parts)
