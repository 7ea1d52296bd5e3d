"""The process that runs one kernel's points: each checked once against float64, then timed, its machine code read off.

`main(channel)` answers questions until the channel closes (`landscape.messages`). A point that faults or hangs ends
this process; the parent starts another and goes on with the next.
"""

from __future__ import annotations

import contextlib
import importlib
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from kernels.measure.candidate import inputs as tensors
from kernels.measure.candidate import timing
from kernels.measure.candidate.correctness import compare
from kernels.measure.candidate.task import WrongOutputError, as_call, check_kind, kept, owned
from kernels.measure.candidate.worker import Worker, fault_of, serve
from kernels.measure.judge import judge, judge_written
from kernels.measure.landscape.grid import Cell, cells, key_of
from kernels.measure.landscape.messages import (
    CompareOrders,
    Duel,
    DuelTimes,
    Machine,
    Open,
    Opened,
    OrderTimes,
    PointResult,
    RunPoint,
    SurveyRequest,
    survey_request,
)
from kernels.measure.landscape.tiles import remade
from kernels.measure.landscape.tuned_kernels import TunedKernel, tuned_kernels
from kernels.measure.messages import Case
from kernels.measure.processes.channel import Channel
from kernels.measure.turn import Turn
from kernels.tuning import REFUSALS, Limits, Variant, limits_of
from profiler.oracle.compiler.targets import TARGETS, residence
from profiler.region.language.text import parse

WARM_MS = 3.0
SAMPLE_MS = 20.0
FEWEST, MOST = 5, 40  # calls of one point
DUEL_MS = 4.0  # of one variant in one round
SPILL_BYTES = 4  # the driver counts spilled registers
MOST_REASON = 300


class NothingTunedError(NotImplementedError):
    """The candidate has no kernel that is tuned: its status is `unsupported`."""


class Surveyor(Worker):
    """State between commands."""

    def __init__(self, channel: Channel, clock: timing.Clock | None = None) -> None:
        super().__init__(channel, clock)
        self.cells: dict[str, Cell] = {}
        self.limits = Limits()

    def open(self, request: Open) -> Opened:
        """Build the candidate, let it tune itself, list the points of its kernel that is launched on the most bytes."""
        self.checker.device, self.checker.seed = request.device, request.seed
        self.checker.memory_bytes, self.l2_bytes = request.memory_bytes, request.l2_bytes
        self.checker.turn = Turn(None, self.channel)
        if self.checker.on_gpu:
            torch.cuda.set_device(self.checker.device)
        build = importlib.import_module(request.registry).build
        self.task = self._build(build, request.candidate, parse(request.region), request.sizes)
        self.checker.note("compiling and tuning")
        self.task.call(*self._given())
        kernels = tuned_kernels(self.task.call, self._given())
        if not kernels:
            raise NothingTunedError("it has no kernel that is tuned: nothing was chosen for these sizes")
        self.kernel = kernels[0]
        self.limits = limits_of(torch.device(self.checker.device))
        chosen = next((v for v in self.kernel.variants if key_of(v) == request.chosen), self.kernel.chosen)
        listed = cells(
            self.kernel.variants, chosen, self.kernel.arguments, self.limits, self.kernel.more, request.points
        )
        self.cells = {key_of(c.variant): c for c in listed}
        self.evict = timing.Flush(self.l2_bytes, self.checker.device) if self.l2_bytes else None
        self._expect()
        return Opened(self.kernel.name, [k.name for k in kernels[1:]], key_of(chosen), [c.point for c in listed])

    def _given(self) -> list[torch.Tensor]:
        return self.checker.inputs(self.task.region, self.task.sizes, self.task.scales)

    def _expect(self) -> None:
        """The reference of one set of inputs, and how far eager is from it: all points are held against both."""
        self.seen = self.checker.reference(self.task, self._given())
        eager = as_call(self.task.built.module, self.task.region, self.task.upstream)
        torch.manual_seed(self._random_seed)
        given = self._given()
        outputs = owned(kept(eager(*given), self.task), self.task)
        self.eager = self._case_of(outputs, given)
        self.checker.free()

    @property
    def _random_seed(self) -> int:
        return tensors.seed_of(self.checker.seed, "random", "{}")

    def _case_of(self, outputs: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> Case:
        """given: the inputs behind the call."""
        left = {n: value.detach() for n, value in enumerate(given)}
        errors = compare(self.seen.of(outputs, left), self.seen.expected, self.seen.random())
        return self.seen.case("normal", errors)

    def point(self, request: RunPoint) -> PointResult:
        """Compiled, checked once, timed."""
        variant = self.cells[request.key].variant
        try:
            with compiled() as made:
                self.kernel.run(variant)
                self.checker.synchronize()
            taken = machine(made, variant, self._arch)
            wrong = self._wrong(variant)
            if wrong:
                return PointResult("wrong", wrong, machine=taken)
            return PointResult("ok", times_us=self._times(variant), machine=taken)
        except REFUSALS as fault:
            return PointResult("refused", said(fault))
        except WrongOutputError as fault:
            return PointResult("wrong", said(fault))
        except Exception as fault:
            if fault_of(fault).status == "fault":
                raise
            return PointResult("refused", said(fault))

    def _wrong(self, variant: Variant) -> str:
        """What is wrong with the candidate's outputs when its kernel is launched so; "" where nothing is."""
        given = self._given()
        self.checker.poison(self.task)
        torch.manual_seed(self._random_seed)
        with self.kernel.force(variant):
            outputs = owned(kept(self.task.call(*given), self.task), self.task)
        self.checker.synchronize()
        check_kind(outputs, self.task, self.checker.device)
        case = self._case_of(outputs, given)
        for verdict in (judge([case], [self.eager]), judge_written([case], [self.eager])):
            if not verdict.ok:
                return verdict.message
        return ""

    def _times(self, variant: Variant) -> list[float]:
        """Device time of cold calls, in µs."""
        call, rotation = _call(self.kernel, variant), timing.Rotation([()])
        estimate = timing.warm(call, rotation, WARM_MS, self.clock)
        count = max(FEWEST, min(MOST, int(SAMPLE_MS * 1e3 / estimate.device_us)))
        return timing.cold_calls(call, rotation, count, estimate, self.clock, self.evict)

    def duel(self, request: Duel) -> DuelTimes:
        """Points in turns, checked once more: one that wrote where it should not may have spoilt what came after."""
        variants = [self.cells[k].variant for k in request.keys]
        wrong = next((w for v in variants if (w := self._wrong(v))), "")
        return DuelTimes(wrong, [] if wrong else self._duel(variants, request.rounds))

    def _duel(self, variants: Sequence[Variant], rounds: int) -> list[list[list[float]]]:
        rotation = timing.Rotation([()])
        calls = [_call(self.kernel, v) for v in variants]
        estimates = [timing.warm(c, rotation, WARM_MS, self.clock) for c in calls]
        times_us: list[list[list[float]]] = [[] for _ in variants]
        for _ in range(rounds):
            for n, (call, estimate) in enumerate(zip(calls, estimates, strict=True)):
                count = max(3, min(MOST, int(DUEL_MS * 1e3 / estimate.device_us)))
                times_us[n].append(timing.cold_calls(call, rotation, count, estimate, self.clock, self.evict))
        return times_us

    def order(self, request: CompareOrders) -> OrderTimes:
        """The chosen tile in groups of rows of tiles and in plain order, in turns; no group for kernels without."""
        chosen = self.cells[request.key].variant
        group = dict(chosen.constants).get("GROUP_M")
        if group is None:
            return OrderTimes()
        group = group if group > 1 else GROUP
        both = [remade(chosen, {"GROUP_M": g}, self.kernel.arguments, chosen.warps, None) for g in (group, 1)]
        if any(self._wrong(v) for v in both):
            return OrderTimes()
        return OrderTimes(group, self._duel(both, request.rounds))

    @property
    def _arch(self) -> str:
        if not self.checker.on_gpu or torch.version.hip:
            return ""
        major, minor = torch.cuda.get_device_capability(self.checker.device)
        return f"sm_{major}{minor}"


GROUP = 8
"""Rows of tiles of a group, where the chosen variant has the plain order."""


def _call(kernel: TunedKernel, variant: Variant) -> timing.Call:
    def call() -> tuple[torch.Tensor, ...]:
        kernel.run(variant)
        return ()

    return call


@contextlib.contextmanager
def compiled() -> Iterator[list[Any]]:
    """The kernels that Triton launches meanwhile, as it compiled them. Its interpreter compiles none."""
    from triton.runtime.jit import JITFunction

    original = JITFunction.run
    seen: list[Any] = []

    def run(function: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(function, *args, **kwargs)
        seen.append((function.fn.__name__, made))
        return made

    JITFunction.run = run
    try:
        yield seen
    finally:
        JITFunction.run = original


def machine(made: Sequence[Any], variant: Variant, arch: str) -> Machine:
    """Registers and spilled bytes of a thread, shared memory of a program, and the occupancy that these allow."""
    own = [k for name, k in made if name == variant.kernel.__name__] or [k for _, k in made]
    if not own or own[0] is None:
        return Machine()
    kernel = own[0]
    registers, spills = getattr(kernel, "n_regs", None), getattr(kernel, "n_spills", None)
    shared = int(kernel.metadata.shared)
    share = residence(TARGETS[arch], registers, variant.warps, shared).share if arch in TARGETS and registers else None
    spilled = None if spills is None else SPILL_BYTES * spills
    return Machine(registers, spilled, shared, share)


def said(fault: BaseException) -> str:
    """The last line of a compiler's account, which names the error; others' whole text."""
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()] or [type(fault).__name__]
    return (lines[-1] if "CompilationError" in type(fault).__name__ else " ".join(lines))[:MOST_REASON]


def main(channel: Channel) -> None:
    """Answer questions until the parent closes the channel, or the GPU's context is lost."""
    surveyor = Surveyor(channel)

    def answer(request: SurveyRequest) -> Opened | PointResult | DuelTimes | OrderTimes:
        match request:
            case Open():
                return surveyor.open(request)
            case RunPoint():
                return surveyor.point(request)
            case Duel():
                return surveyor.duel(request)
            case CompareOrders():
                return surveyor.order(request)

    serve(channel, survey_request, answer)


if __name__ == "__main__":
    main(Channel(socket.socket(fileno=int(sys.argv[1]))))
