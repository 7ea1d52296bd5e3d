"""What is asked of a measurement, and how it tells of its progress. No torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernels.measure.messages import UserKernel
from kernels.measure.outcome import Thresholds
from profiler.region.model import Binding


def cores() -> int:
    """That this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2


WORK_FOLDER = "tritonworthy-turn-"
"""How the temporary folder of a validation begins: a validation that is killed leaves it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds a child may take in each phase (waiting for the GPU not counted) before it counts as hung.

    card_bytes: take the card for one with so many bytes free; None for what it has.
    """

    start_s: float = 60.0  # imports of the process that the children are forked from
    plan_s: float = 60.0
    prepare_s: float = 120.0  # build, first call, correctness: everything but autotuning candidates
    autotune_s: float = 240.0  # the same where the candidate tunes itself (compile-max-autotune)
    turn_s: float = 30.0  # warm-up, or one round
    finish_s: float = 30.0
    kernel_s: float = 120.0  # as prepare_s, for the user's own kernel
    kernel_memory_bytes: int = 32 * 2**30  # private memory of the host, for the same
    card_bytes: int | None = None
    log_bytes: int = 64 * 1024  # kept of what a child prints
    message_bytes: int = 8 * 1024 * 1024  # one answer; more is a broken protocol


@dataclass(frozen=True, slots=True)
class SharedGpu:
    """A GPU that several validations of one owner use side by side: they compile together and take turns at it.

    turn: the file whose lock is the turn, the same for all. parts: how many share; each plans with that part of the
    free memory. cores: kept free by all of them for the candidates of the one that times, or another's compiling would
    move its wall times. Who starts them holds the card's own lock (`kernels.measure.gpu_lock`).
    """

    turn: str
    parts: int
    cores: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ValidationRequest:
    """A region to measure.

    bindings: the symbols' sizes in use with their calls per step; () means each of the region's own once.
    candidates: names, or None for everything that the registry offers. device: None takes the first GPU of the
    host, "cpu" none. budget_s bounds the whole; timing_s is what all timed rounds together aim at.
    share_of_step: 0 to 1, None when unknown. advice_before: Advice as JSON.
    launch_bound: True decides by wall time; None finds out from eager's own times. decision: when one tool wins.
    shared: with whom the GPU is shared; None has it alone. kernel: of the user's own file, measured among the others:
    for the command line alone, since it runs with the rights of who asks.
    """

    region_text: str
    bindings: tuple[Binding, ...] = ()
    candidates: tuple[str, ...] | None = None
    device: str | None = None
    budget_s: float = 300.0
    timing_s: float = 1.5
    rounds: int = 9
    seed: int = 0
    share_of_step: float | None = None
    advice_before: Mapping[str, object] | None = None
    launch_bound: bool | None = None
    decision: Thresholds = field(default_factory=Thresholds)
    limits: Limits = field(default_factory=Limits)
    shared: SharedGpu | None = None
    kernel: UserKernel | None = None
    cache_dir: str | None = None  # of torch.compile, Triton and the tuner; None leaves their own defaults
    compile_workers: int = field(default_factory=lambda: max(1, min(8, cores() // 2)))


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of the way: phase is plan, prepare, time, finish or done; fraction 0 to 1 over the whole."""

    phase: str
    candidate: str | None
    fraction: float
    message: str
