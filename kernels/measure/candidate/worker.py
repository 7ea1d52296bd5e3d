"""One candidate's process: builds it, checks it against float64, then times it whenever it is its turn.

`main(channel)` answers questions until the channel closes (`messages`). Outputs are measured here
and judged by the parent. Only here, in a child, is CUDA ever initialised.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import msgspec
import torch

from kernels.baselines import GRAPHED
from kernels.measure.candidate import inputs as tensors
from kernels.measure.candidate import integrity, interpreter, timing
from kernels.measure.candidate.checker import Checker, check_threads
from kernels.measure.candidate.indices import with_distinct
from kernels.measure.candidate.random_values import random_gradients, random_inputs, random_outputs
from kernels.measure.candidate.samples import Sample, Sampling, below
from kernels.measure.candidate.task import Task, Upstream, WrongOutputError, as_call, check_kind, kept, owned
from kernels.measure.candidate.user_kernel import builder, place_of
from kernels.measure.memory import MOVING
from kernels.measure.messages import (
    MOST_SAMPLES,
    Answer,
    CandidateRequest,
    Case,
    Failed,
    Fault,
    Finish,
    Finished,
    GetReady,
    Prepare,
    Prepared,
    PreparedTask,
    Question,
    Round,
    RoundTimes,
    Running,
    TimingBegins,
    TimingEnds,
    ToldStatus,
    Waiting,
    Warm,
    Warmed,
    candidate_request,
)
from kernels.measure.model import USERS_KERNEL
from kernels.measure.processes.channel import Channel
from kernels.measure.turn import exclusive_autotuning
from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.model import Region

MOST_RENEWED = 8  # input sets of one turn: small ones cost the host more time than the device
MOST_MESSAGE = 1500
STEADY_S = 1.0  # without more memory becoming free, none is on its way
OUT_OF_MEMORY = ("CUDA out of memory", "DefaultCPUAllocator: can't allocate", "DefaultCPUAllocator: not enough memory")


class Spans:
    """Seconds by what they went to, each from the end of the one before."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.monotonic()

    def end(self, name: str) -> None:
        now = time.monotonic()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now


class Worker:
    """State between commands. checker: what a candidate is called with and held against."""

    def __init__(self, channel: Channel, clock: timing.Clock | None = None) -> None:
        self.channel = channel
        self.checker = Checker(channel)
        self.clock = clock or timing.DeviceClock()
        self.tasks: list[Task] = []
        self.l2_bytes = 0.0
        self.candidate = ""
        self.evict: timing.Flush | None = None
        self.untouched: dict[str, integrity.Stood] = {}
        self.recompiled = 0
        self.opened = False
        self.roomy = False
        self.turn_bytes = 0.0  # that must be free before a turn, where all that others hold is given back between them

    def prepare(self, request: Prepare) -> Prepared:
        """Build, call once, check."""
        self.checker.device, self.checker.seed = request.device, request.seed
        self.checker.memory_bytes, self.l2_bytes = request.memory_bytes, request.l2_bytes
        os.environ.update(request.env)
        self.candidate, self.roomy = request.candidate, request.roomy
        spans = Spans()
        self._begin(tunes=self.checker.on_gpu)
        self.checker.turn.open(request.turn)
        if self.checker.on_gpu:
            self._open_gpu(self.checker.device, request.compile_workers if self.candidate.startswith("compile") else 0)
            spans.end("context")
        own = request.kernel
        build = importlib.import_module(request.registry).build if own is None else builder(own)
        # All built before any is called: torch.compile's registration resets Dynamo, which would throw away what
        # the first calls compiled.
        self.tasks = [self._build(build, request.candidate, parse(t.region), t.sizes) for t in request.tasks]
        spans.end("build")
        interpreted = not self.checker.on_gpu and self._may_launch_triton()
        results = []
        for number, task in enumerate(self.tasks):
            # Where all first calls together would not fit into memory, each has the GPU to itself.
            with self.checker.turn(to_the_end=True) if request.crowded else contextlib.nullcontext():
                self._await_memory(request)
                with interpreter.watched() if interpreted else contextlib.nullcontext(set[str]()) as wrong:
                    compile_s = self._first_call(task)
                if request.crowded:
                    task.upstream.give_back()
                    self.checker.free()
            spans.end("first calls")
            if wrong:
                results.append(PreparedTask(compile_s, [], [], None, ", ".join(sorted(wrong))))
                continue
            # Checks are not timed: they run side by side where memory is enough. Autotuning waits until it is alone.
            with self.checker.turn(shared=self.roomy, to_the_end=request.crowded):
                self._await_memory(request)
                sensitivity = number == 0 and self.candidate == "eager"
                cases = self.checker.cases(task, number == 0, sensitivity, request.refilled)
                peak = self._peak_bytes(task)
                task.upstream.give_back()
                self.checker.free()
            spans.end("checks")
            results.append(PreparedTask(compile_s, cases, task.mutated, peak))
        integrity.check(self.untouched)
        spent = {**spans.seconds, "waited": self.checker.turn.waited_s}
        ablation = self.checker.ablate_launches(self.tasks[0]) if interpreted else ""
        held = torch.cuda.memory_reserved() if self.checker.on_gpu else 0
        return Prepared(results, {k: round(v, 3) for k, v in spent.items()}, ablation, held)

    def _may_launch_triton(self) -> bool:
        """Whether its own kernels are left out once, to see that they compute the result."""
        return self.candidate.startswith(("triton", USERS_KERNEL))

    def get_ready(self, request: GetReady) -> None:
        """Before it is known which candidate this will be."""
        self._begin(tunes=True)
        if request.imports:
            importlib.import_module(request.imports)
        if request.device:
            self._open_gpu(request.device, request.workers)

    def _begin(self, tunes: bool) -> None:
        """Once, before any code of the candidate's: what it may not replace, and whose benchmarks take turns."""
        if self.untouched:
            return
        if tunes:
            exclusive_autotuning(self.checker.turn)
        self.untouched = integrity.snapshot()

    def _open_gpu(self, device: str, workers: int) -> None:
        """Its context, once. workers: of torch.compile's pool, which has to be there before."""
        if not self.opened:
            compile_in_parallel(workers)
            torch.cuda.set_device(device)
            torch.cuda.synchronize()
            self.opened = True

    def _build(self, build: Callable[..., timing.Call], name: str, region: Region, sizes: Mapping[str, int]) -> Task:
        torch.set_grad_enabled(region.requires_grad)
        built = program(region, sizes, self.checker.device)
        make = partial(self.checker.upstream, built) if region.requires_grad else None
        upstream = Upstream(len(built.outputs), make)
        started = time.perf_counter()
        call = as_call(build(name, region, dict(sizes), self.checker.device), region, upstream)
        seconds = time.perf_counter() - started
        random = random_outputs(built.module)
        if region.requires_grad and random:
            drawn = random_gradients(built.module)
            trained = [n for n, i in enumerate(region.inputs) if i.requires_grad]
            random |= frozenset(len(built.outputs) + place for place, n in enumerate(trained) if n in drawn)
        scales = tensors.weight_scales(built.module)
        region = with_distinct(region, built.module)
        return Task(
            region, sizes, built, call, scales, random, random_inputs(built.module), upstream, build_s=seconds,
            graphed=name in GRAPHED,
        )  # fmt: skip

    def _first_call(self, task: Task) -> float:
        """Seconds that building and the first call took: compiling, and autotuning where the candidate does."""
        self.checker.note("compiling")
        with self.checker.turn(shared=True):
            values = self.checker.inputs(task.region, task.sizes, task.scales)
            self.checker.synchronize()
        started = time.perf_counter()
        results = task.call(*values)
        self.checker.synchronize()
        seconds = task.build_s + time.perf_counter() - started
        outputs = owned(kept(results, task), task)
        check_kind(outputs, task, self.checker.device)
        if sum(o.numel() * o.element_size() for o in outputs) < max(self.checker.memory_bytes, 2**26) / 8:
            task.first = outputs
        return seconds

    def _await_memory(self, request: Prepare) -> None:
        """In a crowd, until what one that has just ended held is free: the driver takes its time over that.

        Where the others' contexts leave less than was free before them, until it gets no more.
        """
        if request.crowded:
            self._await_bytes(request.free_bytes)

    def _await_bytes(self, wanted: float) -> None:
        most, since = 0, time.monotonic()
        self.channel.send(Waiting())
        while (free := torch.cuda.mem_get_info()[0]) < wanted and time.monotonic() - since < STEADY_S:
            if free > most:
                most, since = free, time.monotonic()
            time.sleep(0.05)
        self.channel.send(Running())

    def _peak_bytes(self, task: Task) -> int | None:
        """Bytes allocated at the height of one call, its inputs included."""
        if not self.checker.on_gpu:
            return None
        values = self.checker.inputs(task.region, task.sizes, task.scales)
        task.upstream.give_back()  # counts as the call's: it is made anew for a turn
        self.checker.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        results = task.call(*values)
        self.checker.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
        del results
        return peak + tensors.set_bytes(task.region, task.sizes)

    def warm(self, request: Warm) -> Warmed:
        """Make the input sets and run; the estimated times of one call, per task."""
        told = request.sets_bytes if request.sets_bytes is not None else self.checker.memory_bytes
        share = told / max(1, len(self.tasks))
        self.turn_bytes = request.turn_bytes
        for task in self.tasks:
            task.upstream.as_in_a_step()
            size = tensors.set_bytes(task.region, task.sizes)
            task.sets = tensors.set_count(size, self.l2_bytes, share)
            task.lean = request.in_turns or size > share
            outputs = sum(t.numel() * t.element_size() for t in task.built.outputs)
            written = outputs + sum(task.built.inputs[n].untyped_storage().nbytes() for n in task.written)
            task.samples.room = request.samples
            if task.written:  # in the memory that was planned for so many copies of outputs
                task.samples.room = max(0, (request.samples + MOVING) * outputs // max(1, written) - MOVING)
            if request.sets_bytes is None:
                fitting = int(max(1, min(MOST_SAMPLES, share / 8 // max(1, written))))
                task.samples.room = 0 if task.lean else fitting
            touches_little = tensors.has_index(task.region) or task.sets * size < 3 * self.l2_bytes
            if touches_little and (request.in_turns or not task.lean):
                task.flush = timing.Flush(self.l2_bytes, self.checker.device)
            with self._rotating(task) as rotation:
                task.estimate = timing.warm(task.call, rotation, request.ms / len(self.tasks), self.clock)
        self.recompiled = compilations()
        return Warmed([t.estimate.cold_us for t in self.tasks], [t.sets for t in self.tasks])

    def _await_turn(self, task: Task) -> None:
        """Until what a turn takes is free: what another has just given back is not so at once."""
        if task.lean and self.checker.on_gpu:
            self._await_bytes(self.turn_bytes)

    @contextlib.contextmanager
    def _rotating(self, task: Task) -> Iterator[Sampling]:
        """The task's input sets. Those of a lean task are there for this turn alone, with all that it can give back."""
        self._await_turn(task)
        if self.evict is None:
            self.evict = timing.Flush(self.l2_bytes, self.checker.device)
        if task.rotation is None:
            task.secrets = [below(2**60) for _ in range(task.sets)]
            task.former.clear()
            task.rotation = Sampling(
                [self.checker.timed_inputs(task, n, secret) for n, secret in enumerate(task.secrets)]
            )
        try:
            yield task.rotation
        finally:
            if task.lean:
                task.rotation.release()  # who called still has the rotation itself
                task.rotation = self.evict = None
                task.upstream.give_back()
                self.checker.free()

    def _renew(self, task: Task, rotation: Sampling, watched: Sequence[int]) -> list[int]:
        """New contents at the old addresses: of the sets of the watched calls (counted from the next) and of others.

        Those used next are written first; what all that left in L2 is evicted. Returns which of the coming calls will
        be the first on such contents.
        """
        count, secret = len(rotation.sets), below(2**60)
        chosen = {(rotation.position + w) % count for w in watched}
        start = rotation.position + max(0, watched[0] - below(MOST_RENEWED))
        chosen |= {(start + n) % count for n in range(min(count, MOST_RENEWED))}
        for n in sorted(chosen, key=lambda n: (n - rotation.position) % count):
            tensors.refill(rotation.sets[n], self.checker.timed_one_by_one(task, n, secret))
            task.former.setdefault(n, []).append(task.secrets[n])
            task.secrets[n] = secret
        if self.evict is not None:
            self.evict()
        return sorted((n - rotation.position) % count for n in chosen)

    def round(self, request: Round) -> RoundTimes:
        """One turn: a short warm-up, cold calls, as many back to back.

        Inputs are new behind the warm-up, of a seed drawn then: no earlier call can have read either.
        """
        task, calls = self.tasks[request.task], request.calls
        running = integrity.threads()
        with self._rotating(task) as rotation:
            host_us = timing.enqueued(task.call, rotation, request.warm_calls)
            estimate = replace(task.estimate, host_us=max(host_us, task.estimate.host_us))
            rotation.watched = task.written
            # Of what a call has written into before, nothing says what it should leave there.
            picked = below(min(calls, len(rotation.sets)) if task.written else calls)
            fresh = self._renew(task, rotation, (picked, 2 * calls - 1))
            rotation.taken, rotation.pick = None, picked + 2 if task.samples.room else 0
            times = timing.cold_calls(task.call, rotation, calls, estimate, self.clock, task.flush)
            if rotation.pick:
                rotation.pick = 0
                rotation.take()
            self.channel.send(TimingBegins())
            together = timing.back_to_back(task.call, rotation, calls, self.clock)
            self.channel.send(TimingEnds())
            if task.samples.room:
                self._keep(task, rotation, 2 * calls)
            rotation.last, rotation.taken, rotation.left = None, None, {}
        integrity.check(self.untouched)
        check_threads(running)
        return RoundTimes(times, together.wall_us, together.drain_us, [n for n in fresh if n < calls])

    def _keep(self, task: Task, rotation: Sampling, calls: int) -> None:
        """The picked cold call and the last of all, for the check after timing; of a candidate that writes into its
        inputs the last only where so many calls are each the first on their contents."""
        self._offer(task, rotation)
        if rotation.last is not None and (not task.written or calls <= len(rotation.sets)):
            rotation.take()
            self._offer(task, rotation)

    def _offer(self, task: Task, rotation: Sampling) -> None:
        number = rotation.taken_set
        if rotation.taken is not None:
            task.samples.offer(Sample(rotation.taken, number, task.secrets[number], rotation.left))

    def finish(self, request: Finish) -> Finished:
        """Check outputs of timed calls, and ask the profiler which kernels ran."""
        cases: list[list[Case]] = []
        names: list[str] = []
        launched: list[str] = []
        recompiled = compilations() - self.recompiled
        for task in self.tasks:
            with self.checker.turn(shared=self.roomy and not task.lean):
                self._await_turn(task)
                cases.append(self.checker.timed_case(task))
                task.samples.clear()
                task.upstream.give_back()
                self.checker.free()
        replays = ""
        if request.profile and self.checker.on_gpu:
            task = self.tasks[0]
            with self.checker.turn(shared=not task.lean), self._rotating(task) as rotation:
                launched = timing.triton_launches(task.call, rotation.next())
                names = self._kernel_names(task, rotation)
            if self._may_launch_triton():
                with self.checker.turn():
                    self._await_turn(task)
                    replays = self.checker.ablate_launches(task)
                    task.upstream.give_back()
                    with contextlib.suppress(RuntimeError):  # of a context that this has cost
                        self.checker.free()
        return Finished(cases, [n[:300] for n in names[:200]], launched, replays, recompiled)

    def _kernel_names(self, task: Task, rotation: timing.Rotation) -> list[str]:
        """[] where this host does not let us profile: that takes nothing from the times."""
        try:
            return timing.kernel_names(task.call, rotation.next())
        except (RuntimeError, OSError) as fault:
            if fault_of(fault).status != "error":
                raise
            self.checker.note(f"the profiler failed: {fault}")
            return []


def compile_in_parallel(workers: int) -> None:
    """Inductor's compile pool, forked from here before CUDA starts rather than as fresh interpreters.

    Such workers stay in this process's group, so they end with it.
    """
    if workers < 2:
        return
    from torch._inductor import async_compile, config

    # Inductor's internals: without them it compiles in this process, slower and as well.
    with contextlib.suppress(AttributeError, RuntimeError, OSError):
        config.compile_threads = workers
        config.worker_start_method = "fork"
        async_compile.AsyncCompile.warm_pool()
        # Asks for the first worker; later calls find it ready.
        async_compile.AsyncCompile.use_process_pool()  # type: ignore[no-untyped-call]


def compilations() -> int:
    """How many graphs torch.compile has compiled in this process so far."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return int(dynamo.counters["stats"]["unique_graphs"]) if dynamo is not None else 0


def fault_of(fault: BaseException) -> Fault:
    """An exception as what is told of it. A CUDA error leaves the context broken: `fault`."""
    text = " ".join(str(fault).split())[:MOST_MESSAGE] or type(fault).__name__
    status = _status_of(fault, text)
    if status == "error" and not isinstance(fault, integrity.TamperedError):
        text = f"{type(fault).__name__}: {text}"
    return Fault(status, text + place_of(fault))


def _status_of(fault: BaseException, text: str) -> ToldStatus:
    if isinstance(fault, WrongOutputError):
        return "mismatch"
    if isinstance(fault, integrity.TamperedError):
        return "error"
    kinds = [c.__name__ for c in type(fault).__mro__]
    if isinstance(fault, torch.OutOfMemoryError | MemoryError) or any(w in text for w in OUT_OF_MEMORY):
        return "out_of_memory"
    if "AcceleratorError" in kinds or "CUDA error" in text:
        return "fault"
    if any(k.startswith("Unsupported") for k in kinds) or isinstance(fault, NotImplementedError):
        return "unsupported"
    return "not_installed" if isinstance(fault, ImportError) else "error"


def main(channel: Channel) -> None:
    """Answer questions until the parent closes the channel, or the GPU's context is lost."""
    worker = Worker(channel)

    def answer(request: CandidateRequest) -> msgspec.Struct | None:
        match request:
            case GetReady():
                worker.get_ready(request)
                return None
            case Prepare():
                return worker.prepare(request)
            case Warm():
                return worker.warm(request)
            case Round():
                return worker.round(request)
            case Finish():
                return worker.finish(request)

    serve(channel, candidate_request, answer)


Asked = TypeVar("Asked")


def serve(channel: Channel, read: Callable[[object], Asked], answer: Callable[[Asked], msgspec.Struct | None]) -> None:
    """Answer questions until the channel closes or the GPU's context is lost. read: of a question's request.

    A hint has no answer.
    """
    while (message := channel.receive()) is not None:
        question = msgspec.convert(message, Question)
        if question.id is None:
            with contextlib.suppress(Exception):  # fails again, and is told, where it is asked for
                answer(read(question.request))
            continue
        told: Answer | Failed
        try:
            told = Answer(question.id, answer(read(question.request)))
        except Exception as fault:
            told = Failed(question.id, fault_of(fault))
        channel.send(told)
        if isinstance(told, Failed) and told.fault.status == "fault":
            return


if __name__ == "__main__":
    main(Channel(socket.socket(fileno=int(sys.argv[1]))))
