"""One candidate's process: builds it, checks it against float64, then times it whenever it is its turn.

`main(channel)` serves commands until the channel closes: prepare, warm, round, finish. Outputs are measured here
and judged by the parent. Only here, in a child, is CUDA ever initialised.
"""

from __future__ import annotations

import contextlib
import importlib
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from kernels.baselines import GRAPHED
from kernels.measure import inputs as tensors
from kernels.measure import timing
from kernels.measure.channel import Channel
from kernels.measure.correctness import compare
from kernels.measure.reference import NoReferenceError, Reference, random_outputs, reference
from kernels.measure.task import Task, WrongOutputError, as_call, check_kind, kept, owned
from kernels.measure.turn import Turn, exclusive_autotuning
from profiler.region.model import Region
from profiler.region.program import Program, program
from profiler.region.text import parse

MOST_CHANGED_INPUTS = 6
SLOW_CASE_S = 1.5  # a case slower than this is not repeated for every distribution
SAMPLES = 60_000  # random elements that are enough to tell a dropout rate of 0.30 from 0.32
MOST_SAMPLING_S = 2.0
MOST_MESSAGE = 1500
OUT_OF_MEMORY = ("CUDA out of memory", "DefaultCPUAllocator: can't allocate", "DefaultCPUAllocator: not enough memory")


class Worker:
    """State between commands."""

    def __init__(self, channel: Channel, clock: timing.Clock | None = None) -> None:
        self.channel = channel
        self.clock = clock or timing.DeviceClock()
        self.tasks: list[Task] = []
        self.device = "cpu"
        self.seed = 0
        self.memory_bytes = 0.0
        self.l2_bytes = 0.0
        self.turn = Turn(None, channel)

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"

    def prepare(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Build, call once, check. spec: candidate, tasks [{region, sizes}], device, seed, turn, memory_bytes, ..."""
        self.device, self.seed = spec["device"], spec["seed"]
        self.memory_bytes, self.l2_bytes = spec["memory_bytes"], spec["l2_bytes"]
        self.turn = Turn(spec["turn"], self.channel)
        if self.on_gpu:
            _compile_in_parallel(spec["candidate"], spec["compile_workers"])
            exclusive_autotuning(self.turn)
            torch.cuda.set_device(self.device)
        build = importlib.import_module(spec["registry"]).build
        # All built before any is called: torch.compile's registration resets Dynamo, which would throw away what
        # the first calls compiled.
        self.tasks = [self._build(build, spec["candidate"], parse(t["region"]), t["sizes"]) for t in spec["tasks"]]
        results = []
        for number, task in enumerate(self.tasks):
            compile_s = self._first_call(task)
            with self.turn():
                cases = self._cases(task, thorough=number == 0)
                peak = self._peak_bytes(task)
                self._free()
            results.append({"compile_s": compile_s, "cases": cases, "mutated": task.mutated, "peak_bytes": peak})
        return {"tasks": results}

    def _build(self, build: Callable[..., Any], name: str, region: Region, sizes: Mapping[str, int]) -> Task:
        torch.set_grad_enabled(region.requires_grad)
        built = program(region, sizes, self.device)
        upstream = self._upstream(built) if region.requires_grad else tuple(None for _ in built.outputs)
        started = time.perf_counter()
        call = as_call(build(name, region, dict(sizes), self.device), region, upstream)
        seconds = time.perf_counter() - started
        random = random_outputs(built.module)
        if region.requires_grad and random:
            random |= frozenset(range(len(built.outputs), len(built.outputs) + len(region.inputs)))
        scales = tensors.weight_scales(built.module)
        return Task(region, sizes, built, call, scales, random, upstream, build_s=seconds, graphed=name in GRAPHED)

    def _first_call(self, task: Task) -> float:
        """Seconds that building and the first call took: compiling, and autotuning where the candidate does."""
        self._note("compiling")
        with self.turn():
            values = self._inputs(task.region, task.sizes, task.scales)
            self._synchronize()
        started = time.perf_counter()
        task.call(*values)
        self._synchronize()
        return task.build_s + time.perf_counter() - started

    def _upstream(self, built: Program) -> tuple[torch.Tensor | None, ...]:
        """One fixed random gradient per floating output, the same in every process."""
        found: list[torch.Tensor | None] = []
        for number, fake in enumerate(built.outputs):
            if not fake.dtype.is_floating_point:
                found.append(None)
                continue
            seed = tensors.seed_of(self.seed, "upstream", number, tuple(fake.shape))
            generator = torch.Generator(device=self.device).manual_seed(seed)
            wide = torch.randn(tuple(fake.shape), device=self.device, generator=generator)
            found.append(wide.to(fake.dtype))
        return tuple(found)

    def _inputs(
        self,
        region: Region,
        sizes: Mapping[str, int],
        scales: Mapping[str, float],
        number: int = 0,
        distribution: str = "normal",
        fresh: Mapping[str, int] | None = None,
    ) -> list[torch.Tensor]:
        made = tensors.input_set(region, sizes, self.device, self.seed, number, distribution, scales, fresh)
        if region.requires_grad:
            for value, item in zip(made, region.inputs, strict=True):
                value.requires_grad_(item.requires_grad)
        return made

    def _cases(self, task: Task, thorough: bool) -> list[dict[str, Any]]:
        """Errors on several inputs: two seeds, all distributions, and each input changed alone (does it matter?)."""
        self._note("checking against float64")
        plan: list[tuple[str, dict[str, Any]]] = [("normal", {}), ("normal again", {"number": 1})]
        plan += [(d, {"distribution": d}) for d in tensors.DISTRIBUTIONS[1 : 4 if thorough else 2]]
        if thorough and not task.region.requires_grad and not task.random:
            plan.append((tensors.SPECIAL, {"distribution": tensors.SPECIAL}))
        if thorough and len(task.region.inputs) > 1:
            names = [i.name for i in task.region.inputs][:MOST_CHANGED_INPUTS]
            plan += [(f"changed {name}", {"fresh": {name: 2}}) for name in names]
        cases: list[dict[str, Any]] = []
        for name, arguments in plan:
            started = time.perf_counter()
            cases.append({"distribution": name, **self._case(task, arguments)})
            if time.perf_counter() - started > SLOW_CASE_S and len(cases) >= 2:
                break
        return cases

    def _case(self, task: Task, arguments: Mapping[str, Any]) -> dict[str, Any]:
        given = self._inputs(task.region, task.sizes, task.scales, **arguments)
        self._poison(task)
        torch.manual_seed(tensors.seed_of(self.seed, "random", str(arguments)))
        outputs = owned(kept(task.call(*given), task), task)
        self._synchronize()
        check_kind(outputs, task, self.device)
        fresh = self._inputs(task.region, task.sizes, task.scales, **arguments)
        for item, used, original in zip(task.region.inputs, given, fresh, strict=True):
            if item.name not in task.mutated and not tensors.same_bits(used, original):
                task.mutated.append(item.name)
        del given
        expected, against = self._reference(task, fresh)
        if task.random and not arguments:
            outputs, expected = self._more_samples(task, arguments, outputs, expected)
        found = [asdict(e) for e in compare(outputs, expected, task.random)]
        return {"precision": expected.precision, "against": against, "outputs": found}

    def _more_samples(
        self, task: Task, arguments: Mapping[str, Any], outputs: tuple[torch.Tensor, ...], expected: Reference
    ) -> tuple[tuple[torch.Tensor, ...], Reference]:
        """Random outputs of few elements, drawn again until a distribution can be told from another."""
        ends = time.perf_counter() + MOST_SAMPLING_S
        drawn = {n: ([outputs[n].flatten()], [expected.outputs[n].flatten()]) for n in task.random}
        fewest = min((outputs[n].numel() for n in task.random), default=0)
        for number in range(SAMPLES // max(1, fewest)):
            if time.perf_counter() > ends:
                break
            torch.manual_seed(tensors.seed_of(self.seed, "random", str(arguments), number))
            values = self._inputs(task.region, task.sizes, task.scales, **arguments)
            made = owned(kept(task.call(*values), task), task)
            again, _ = self._reference(task, self._inputs(task.region, task.sizes, task.scales, **arguments))
            for n, (own, right) in drawn.items():
                own.append(made[n].flatten())
                right.append(again.outputs[n].flatten())
        joined = {n: (torch.cat(own), torch.cat(right)) for n, (own, right) in drawn.items()}
        return (
            tuple(joined[n][0] if n in joined else o for n, o in enumerate(outputs)),
            replace(
                expected,
                outputs=tuple(joined[n][1] if n in joined else o for n, o in enumerate(expected.outputs)),
            ),
        )

    def _reference(self, task: Task, values: Sequence[torch.Tensor]) -> tuple[Reference, str]:
        """float64; float32 where that does not fit; the program as written where neither can be had."""
        needs = [i.requires_grad for i in task.region.inputs]
        for wide, text in ((torch.float64, ""), (torch.float32, "float64 did not fit: compared with float32")):
            try:
                return reference(task.built.module, values, needs, task.upstream, wide), text
            except torch.OutOfMemoryError:
                self._free()
            except NoReferenceError as fault:
                why = f"no float64 form ({fault}): compared with eager"
                break
        else:
            why = "neither float64 nor float32 fit: compared with eager"
        plain = as_call(task.built.module, task.region, task.upstream)
        outputs = owned(plain(*[v.detach().clone().requires_grad_(v.requires_grad) for v in values]), task)
        return Reference(outputs, {}, "eager"), why

    def _poison(self, task: Task) -> None:
        """Memory that the outputs are likely to get holds NaN: an element that is never written shows."""
        blocks = [
            tensors.poisoned(t.numel() * t.element_size(), self.device)
            for t in task.built.outputs
            for _ in range(2)
            if t.numel() * t.element_size() < max(self.memory_bytes, 2**26) / 8
        ]
        self._synchronize()
        del blocks

    def _peak_bytes(self, task: Task) -> int | None:
        """Bytes allocated at the height of one call, its inputs included."""
        if not self.on_gpu:
            return None
        values = self._inputs(task.region, task.sizes, task.scales)
        self._synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        results = task.call(*values)
        self._synchronize()
        peak = torch.cuda.max_memory_allocated() - before
        del results
        return peak + tensors.set_bytes(task.region, task.sizes)

    def warm(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Make the input sets and run for spec["ms"] of GPU time; the estimated times of one call, per task."""
        share = self.memory_bytes / max(1, len(self.tasks))
        for task in self.tasks:
            size = tensors.set_bytes(task.region, task.sizes)
            task.sets = tensors.set_count(size, self.l2_bytes, share)
            task.lean = size > share
            touches_little = tensors.has_index(task.region) or task.sets * size < 3 * self.l2_bytes
            if touches_little and not task.lean:
                task.flush = timing.Flush(self.l2_bytes, self.device)
            with self._rotating(task) as rotation:
                task.estimate = timing.warm(task.call, rotation, spec["ms"] / len(self.tasks), self.clock)
        return {"estimates": [asdict(t.estimate) for t in self.tasks], "sets": [t.sets for t in self.tasks]}

    @contextlib.contextmanager
    def _rotating(self, task: Task) -> Any:
        if task.rotation is None:
            made = [self._inputs(task.region, task.sizes, task.scales, number=n) for n in range(task.sets)]
            task.rotation = timing.Rotation(made)
        try:
            yield task.rotation
        finally:
            if task.lean:
                task.rotation = None
                self._free()

    def round(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """One turn: a short warm-up, spec["calls"] cold calls, as many back to back."""
        task, calls = self.tasks[spec["task"]], spec["calls"]
        with self._rotating(task) as rotation:
            for _ in range(spec["warm_calls"]):
                task.call(*rotation.next())
            times = timing.cold_calls(task.call, rotation, calls, task.estimate, self.clock, task.flush)
            wall = timing.wall_us(task.call, rotation, calls, self.clock)
            if rotation.last is not None:
                rotation.last = kept(rotation.last, task)
        return {"times_us": times, "wall_us": wall}

    def finish(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Check the last timed outputs, and ask the profiler which kernels ran."""
        cases: list[list[dict[str, Any]]] = []
        names: list[str] = []
        launched: list[str] = []
        for task in self.tasks:
            rotation = task.rotation
            if rotation is None or rotation.last is None or task.mutated:
                cases.append([])
                continue
            with self.turn():
                outputs = owned(rotation.last, task)
                fresh = self._inputs(task.region, task.sizes, task.scales, number=rotation.last_set)
                expected, against = self._reference(task, fresh)
                found = [asdict(e) for e in compare(outputs, expected, task.random)]
                self._free()
            cases.append([{"distribution": "after timing", "precision": expected.precision, "against": against,
                           "outputs": found}])  # fmt: skip
        if spec.get("profile") and self.on_gpu:
            task = self.tasks[0]
            with self._rotating(task) as rotation:
                launched = timing.triton_launches(task.call, rotation.next())
                names = self._kernel_names(task, rotation)
        return {"cases": cases, "kernels": [n[:300] for n in names[:200]], "triton_kernels": launched}

    def _kernel_names(self, task: Task, rotation: timing.Rotation) -> list[str]:
        """[] where this host does not let us profile: that takes nothing from the times."""
        try:
            return timing.kernel_names(task.call, rotation.next())
        except (RuntimeError, OSError) as fault:
            if fault_of(fault)["status"] != "error":
                raise
            self._note(f"the profiler failed: {fault}")
            return []

    def _synchronize(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def _free(self) -> None:
        if self.on_gpu:
            torch.cuda.empty_cache()

    def _note(self, message: str) -> None:
        self.channel.send({"event": "note", "message": message})


def _compile_in_parallel(candidate: str, workers: int) -> None:
    """Inductor's compile pool, forked from here before CUDA starts rather than as fresh interpreters.

    Such workers stay in this process's group, so they end with it.
    """
    if not candidate.startswith("compile") or workers < 2:
        return
    from torch._inductor import async_compile, config

    # Inductor's internals: without them it compiles in this process, slower and as well.
    with contextlib.suppress(AttributeError, RuntimeError, OSError):
        config.compile_threads = workers
        config.worker_start_method = "fork"
        async_compile.AsyncCompile.warm_pool()
        async_compile.AsyncCompile.use_process_pool()  # asks for the first worker; later calls find it ready


def fault_of(fault: BaseException) -> dict[str, str]:
    """An exception as {status, message}. A CUDA error leaves the context broken: `fault`."""
    text = " ".join(str(fault).split())[:MOST_MESSAGE] or type(fault).__name__
    if isinstance(fault, WrongOutputError):
        return {"status": "mismatch", "message": text}
    kinds = [c.__name__ for c in type(fault).__mro__]
    if isinstance(fault, torch.OutOfMemoryError | MemoryError) or any(w in text for w in OUT_OF_MEMORY):
        return {"status": "out_of_memory", "message": text}
    if "AcceleratorError" in kinds or "CUDA error" in text:
        return {"status": "fault", "message": text}
    if any(k.startswith("Unsupported") for k in kinds) or isinstance(fault, NotImplementedError):
        return {"status": "unsupported", "message": text}
    if isinstance(fault, ImportError):
        return {"status": "not_installed", "message": text}
    return {"status": "error", "message": f"{type(fault).__name__}: {text}"}


def main(channel: Channel) -> None:
    """Answer commands until the parent closes the channel, or the GPU's context is lost."""
    worker = Worker(channel)
    commands = {"prepare": worker.prepare, "warm": worker.warm, "round": worker.round, "finish": worker.finish}
    while (message := channel.receive()) is not None:
        try:
            answer: dict[str, Any] = {"result": commands[message["command"]](message)}
        except Exception as fault:
            answer = {"error": fault_of(fault)}
        channel.send({"id": message["id"], **answer})
        if answer.get("error", {}).get("status") == "fault":
            return


if __name__ == "__main__":
    main(Channel(socket.socket(fileno=int(sys.argv[1]))))
