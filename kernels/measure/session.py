"""validate(): one child process per candidate, taking turns on the GPU. This process never touches CUDA.

What a child does to itself (a fault, a hang, a wrong result, nonsense on its channel) costs that candidate alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import math
import os
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial

import msgspec

from kernels.host import probe_host
from kernels.measure import alone, conditions, memory, outcome, records, rounds
from kernels.measure.conditions import Reading
from kernels.measure.gpu_lock import somebody_measures
from kernels.measure.messages import MakePlan, PlanAnswer, Prepare, Prepared
from kernels.measure.model import Validation, is_users_kernel
from kernels.measure.plan import Plan
from kernels.measure.processes.child_pool import ChildPool
from kernels.measure.processes.poll import BudgetError, CancelledError
from kernels.measure.processes.processes import Child, EarlyChildren, ForkServer, ForkServerDied
from kernels.measure.processes.warm_workers import LEAST_CORES, WarmWorkers
from kernels.measure.records import Record
from kernels.measure.request import WORK_FOLDER, Limits, Progress, ValidationRequest, cores
from kernels.measure.wider_check import check_wider
from profiler.child.limits import Limits as ChildLimits
from profiler.child.limits import host_memory_bytes, impose
from profiler.region.language.text import parse, to_text
from profiler.region.model import Region, RegionError

__all__ = ["Limits", "Modules", "Progress", "ValidationRequest", "open_fork_server", "validate"]

MEMORY_SHARE = 0.8  # of the free memory, for all children's input sets and checks together
CHECKING = 8  # a check holds the region's values in float64, and the candidate's own
NEEDS_GPU = "needs a GPU: torch.compile's kernels for the GPU cannot run here"


@dataclasses.dataclass(frozen=True, slots=True)
class Modules:
    """Which modules the children run, and whether a GPU may be there: tests put others in their place."""

    worker: str = "kernels.measure.candidate.worker"
    plan: str = "kernels.measure.planner"
    registry: str = "kernels.candidates"
    gpu_present: Callable[[], bool] = conditions.gpu_present
    read: Callable[[int, list[int]], Reading] = conditions.read


def validate(
    request: ValidationRequest,
    on_progress: Callable[[Progress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    *,
    fork_server: ForkServer | None = None,
    modules: Modules | None = None,
) -> Validation:
    """Measure a region's candidates and say what that means for the advice.

    Raises RegionError for a text that is no region. Everything else that goes wrong is in the Validation: a
    candidate's status, or outcome `unmeasured` with the reason. fork_server: one to reuse, which then stays open.
    """
    region = parse(request.region_text)  # a text that is no region raises before any process starts
    session = Session(request, region, on_progress, cancelled, modules or Modules())
    with contextlib.ExitStack() as stack:
        stack.callback(session.close)
        try:
            return session.run(fork_server, stack)
        except CancelledError:
            return session.unmeasured("cancelled", remaining="cancelled")
        except BudgetError:
            return session.unmeasured(f"the time budget of {request.budget_s:.0f} s is used up", remaining="timeout")
        except ForkServerDied as fault:
            return session.unmeasured(str(fault), remaining="error")


def open_fork_server(device: str | None = None) -> ForkServer:
    """The process to keep between validations on this host, so that each starts in milliseconds. Close it at the end.

    device: as in ValidationRequest; "cpu", or a host without a GPU, gives one whose children run Triton's interpreter.
    """
    return ForkServer(interpret=device == "cpu" or not conditions.gpu_present())


def get_ready(fork_server: ForkServer) -> None:
    """What any validation will need, while nobody waits for one: the packages' imports. Leaves the GPU alone."""
    if fork_server.interpret or cores() < LEAST_CORES:
        return
    with fork_server.lock, contextlib.suppress(ForkServerDied):  # told where it is used
        fork_server.warm_workers = fork_server.warm_workers or WarmWorkers(fork_server, Modules().worker)
        fork_server.warm_workers.import_packages()


class Session:
    """One validation, from the text to the outcome."""

    def __init__(
        self,
        request: ValidationRequest,
        region: Region,
        on_progress: Callable[[Progress], None] | None,
        cancelled: Callable[[], bool] | None,
        modules: Modules,
    ) -> None:
        self.request = request
        self.limits = request.limits
        self.pool = ChildPool(request, on_progress, cancelled, self.give_way)
        self.region = region
        self.modules = modules
        self.plan: Plan | None = None
        self.probe = threading.Thread(target=probe_host, daemon=True)
        self.execute = False
        self.early: EarlyChildren | None = None
        self.asked: dict[str, Prepare] = {}
        self.turn_file = ""
        self.fork_server: ForkServer | None = None
        self.made: memory.Schedule | None = None
        self.waiting: list[str] = []  # names of those that are timed when the others have left the card

    def run(self, fork_server: ForkServer | None, stack: contextlib.ExitStack) -> Validation:
        self.pool.tell("plan", 0.0, "starting")
        self.probe.start()  # a process of its own, during the imports
        plan, fork_server = self.make_plan(fork_server, stack)
        self.plan = plan
        advised = outcome.candidate_of_advice(self.request.advice_before)
        self.pool.records = plan.records(self.request.candidates, advised, self.request.kernel)
        shared = self.request.shared
        if plan.device is not None and shared is None:
            self.pool.tell("plan", 0.04, "waiting for the GPU")
            stack.enter_context(self.pool.exclusive_gpu(plan.device.uuid or str(plan.device.index)))
        with tempfile.TemporaryDirectory(prefix=WORK_FOLDER) as folder:
            self.turn_file = shared.turn if shared else os.path.join(folder, "turn")
            if refused := self.too_large(plan):
                for record in self.pool.records:
                    record.message = record.message or "not tried: the region alone exceeds the card"
                return self.unmeasured(refused, remaining="not_run")
            self.start(fork_server, plan)
            self.prepare(plan)
            self.judge(plan)
            if plan.device is None:
                return self.without_gpu(plan)
            card = plan.device.index
            with self.pool.turn_alone(shared):
                self.pool.conditions["before"] = self.read(card)
                unfit = self.measure(plan, lambda: self.read(card))
                self.pool.conditions["after"] = self.read(card)
            if unfit:
                for record in self.pool.records:
                    record.status = "correct" if record.status == "ok" else record.status
                return self.unmeasured(f"this machine is not fit to measure, because {unfit}", remaining="not_run")
            rounds.finish(self.pool, plan, self.made)
            self.measure_alone(plan)
        return self.with_gpu(plan)

    def measure(self, plan: Plan, read: Callable[[], conditions.Reading] = conditions.Reading) -> str:
        """Time those that stand, together or in turns. Why this machine is not fit to measure, "" where it is."""
        made = self.made = self.schedule(plan)
        for name in made.alone if made is not None else ():
            self.pool.children.pop(name).release()
            self.waiting.append(name)
        if made is not None and made.remark:
            self.pool.conditions.setdefault("warnings", []).append(made.remark)
        return rounds.measure(self.pool, plan, read, made)

    def schedule(self, plan: Plan) -> memory.Schedule | None:
        """Who holds memory while they are timed, by what each measured that it needs; None where nothing limits it."""
        needs = [plan.need(r) for r in self.pool.standing()]
        if self.limits.card_bytes is not None:
            return memory.schedule(needs, self.limits.card_bytes)
        if plan.device is None:
            return None
        card = plan.device
        used = self.modules.read(card.index, []).get("memory_used_mib")
        free = memory.free_of(card.memory_bytes, used, card.free_bytes, needs)
        if self.request.shared is not None:
            free = min(free, MEMORY_SHARE * card.free_bytes / self.request.shared.parts)
        return memory.schedule(needs, free)

    def too_large(self, plan: Plan) -> str:
        """Why the region cannot be measured on this card, "" where it may fit."""
        if plan.device is None:
            return ""
        free = self.limits.card_bytes if self.limits.card_bytes is not None else plan.device.free_bytes
        return memory.too_large(plan.costs, [records.label_of(s) for s in plan.sizes], free)

    def measure_alone(self, plan: Plan) -> None:
        """What did not fit on the card next to the others, once these have left it."""
        late = [r for r in self.pool.records if r.name in self.waiting or r.status == "out_of_memory"]
        if not late:
            return
        reference = alone.reference_of(self.pool.records)
        for name in [n for n in self.pool.children if reference is None or n != reference.name]:
            self.pool.children.pop(name).release()
        for record in late:
            if self.pool.deadline - time.monotonic() < alone.LEAST_S:
                told = f": {record.message}" if record.message else ""
                record.fail("out_of_memory", f"{alone.NO_ROOM}, and no time was left to try it alone{told}")
            elif self.prepare_again(plan, record, rounds.FINISH_RESERVE_S):
                self.judge_one(plan, record)
                if record.standing:
                    self.time_alone(plan, record, reference)
            elif record.status == "out_of_memory":
                record.remark(alone.ALONE)
            if record.name in self.pool.children:
                self.pool.children.pop(record.name).release()

    def time_alone(self, plan: Plan, record: Record, reference: Record | None) -> None:
        """The budget that it uses up costs it alone: the others have their times."""
        try:
            alone.measure(self.pool, plan, record, reference)
        except BudgetError:
            for child in self.pool.asked():
                child.fail("timeout", alone.TOO_LONG)
            record.fail("timeout", alone.TOO_LONG)

    def prepare_again(self, plan: Plan, record: Record, reserve_s: float) -> bool:
        """In a new process, with nobody else at work on the card. Whether it came through.

        reserve_s: of the budget, left for what comes after.
        """
        if record.name in self.pool.children:
            self.pool.children.pop(record.name).release()
        record.status, record.message = "not_run", ""
        self.fork(record)
        until = self.pool.deadline - reserve_s
        self.ask_prepare(plan, record, 1, until)
        child = self.pool.children[record.name]
        try:
            self.pool.wait([child], until)
        except BudgetError:
            child.fail("timeout", alone.TOO_LONG)
        prepared = self.pool.answer(record, Prepared)
        if prepared is not None:
            record.take_prepared(prepared)
        return prepared is not None

    def begin_early(self, fork_server: ForkServer) -> None:
        """Workers for the candidates that there will be, made while these are not known yet."""
        if cores() < LEAST_CORES or self.request.candidates or self.request.device or self.modules != Modules():
            return
        get_ready(fork_server)
        self.early = fork_server.warm_workers
        if self.early is not None and not somebody_measures():
            self.early.open_contexts("cuda:0", self.request.compile_workers)

    def give_way(self) -> None:
        """Another measures on the GPU: what is held of it for later is given up."""
        if self.early is not None:
            self.early.close_contexts()

    def close(self) -> None:
        self.pool.close()
        self.give_way()

    def read(self, card: int) -> conditions.Reading:
        """The GPU's state now. Of a shared one the other processes are not told: they are its owner's, and wait."""
        reading = self.modules.read(card, [c.pid for c in self.pool.children.values()])
        if self.request.shared is not None:
            reading.pop("other_processes", None)
        return reading

    def make_plan(self, fork_server: ForkServer | None, stack: contextlib.ExitStack) -> tuple[Plan, ForkServer]:
        """Ask for the plan where a GPU may be; where none is, again from a parent in interpreter mode."""
        hopeful = self.request.device != "cpu" and self.modules.gpu_present()
        own: ForkServer | None = None
        if hopeful:
            if fork_server is None or not fork_server.alive or fork_server.interpret:
                fork_server = own = stack.enter_context(ForkServer(start_s=self.limits.start_s))
            self.begin_early(fork_server)
            plan = self.ask_plan(fork_server, execute=False)
            if plan.device is None:  # a fork can be refused CUDA where a fresh interpreter is not
                fresh = self.ask_plan(fork_server, execute=True)
                if fresh.device is not None:
                    plan, self.execute = fresh, True
            if plan.device is not None:
                return plan, fork_server
            if own is not None:
                own.close()
            fork_server = None
        if fork_server is None or not fork_server.alive or not fork_server.interpret:
            fork_server = ForkServer(interpret=True, start_s=self.limits.start_s)
            stack.enter_context(fork_server)
        return self.ask_plan(fork_server, execute=False), fork_server

    def ask_plan(self, fork_server: ForkServer, execute: bool) -> Plan:
        planner = fork_server.fork("plan", self.modules.plan, execute=execute, limit=self.limits.message_bytes)
        self.pool.spare.append(planner)
        sizes = [dict(b.sizes) for b in self.request.bindings] or [dict(b) for b in self.region.bindings]
        calls = [b.calls_per_step for b in self.request.bindings] or [1.0] * len(sizes)
        self.probe.join()
        request = MakePlan(
            region=self.request.region_text,
            bindings=sizes,
            device="cpu" if fork_server.interpret else self.request.device,
            registry=self.modules.registry,
            host=probe_host(),
        )
        planner.ask(request, self.limits.plan_s)
        self.pool.wait([planner])
        answer = planner.result(PlanAnswer)
        if answer is None or planner.failure is not None:
            why = planner.failure[1] if planner.failure is not None else "no answer"
            raise ForkServerDied(f"the region could not be planned: {why}")
        planner.kill()
        if answer.plan is None:
            raise self.region_error(answer)
        return Plan(answer.plan, sizes, calls)

    def region_error(self, answer: PlanAnswer) -> RegionError:
        """What the planner says is wrong with the region, with its place in the text."""
        fault = answer.region_error
        if fault is None:
            raise ForkServerDied("the region could not be planned: neither a plan nor why there is none")
        return RegionError(
            fault.message, code=fault.code, line=fault.line, column=fault.column, end_column=fault.end_column,
            hint=fault.hint, text=self.request.region_text,
        )  # fmt: skip

    def cache_env(self) -> dict[str, str]:
        folder = self.request.cache_dir
        if folder is None:
            return {}
        names = {
            "TORCHINDUCTOR_CACHE_DIR": "inductor",
            "TRITON_CACHE_DIR": "triton",
            "TRITONWORTHY_TUNING_DIR": "tuning",
        }
        return {k: os.path.join(folder, v) for k, v in names.items()}

    def fork(self, record: Record, early: Child | None = None) -> None:
        """A process for the candidate. early: one that was made before it was known for whom."""
        assert self.fork_server is not None
        child = early or self.fork_server.fork(
            record.name,
            self.modules.worker,
            env=self.cache_env(),
            execute=self.execute,
            limit=self.limits.message_bytes,
        )
        self.pool.children[record.name] = child
        if is_users_kernel(record.name):
            memory_bytes = min(self.limits.kernel_memory_bytes, host_memory_bytes() // 2)
            impose(child.pid, ChildLimits(self.limits.kernel_s, memory_bytes=memory_bytes))

    def start(self, fork_server: ForkServer, plan: Plan) -> None:
        self.fork_server = fork_server
        warm_workers, fork_server.warm_workers = fork_server.warm_workers, None
        usable = warm_workers is not None and plan.device is not None and plan.device.index == 0 and not self.execute
        for record in self.pool.records:
            if record.status != "not_run" or record.message:
                continue
            if plan.device is None and record.tool == "compile":
                record.fail("not_run", NEEDS_GPU)
                continue
            if plan.device is None and not plan.tasks(record.checked_as):
                record.fail(
                    "not_run", "not checked: no smaller sizes at which the region still fits together were found"
                )
                continue
            self.fork(record, warm_workers.take(record.name) if warm_workers is not None and usable else None)
        if warm_workers is not None:
            warm_workers.close()

    def ask_prepare(self, plan: Plan, record: Record, count: int, until: float = math.inf) -> None:
        """count: how many prepare at once. Where not all fit into memory, each waits until it has the GPU alone.

        until: when an answer is of no use any more.
        """
        device = plan.device
        parts = self.request.shared.parts if self.request.shared else 1
        memory_bytes = MEMORY_SHARE * device.free_bytes / parts if device else 0.0
        request = Prepare(
            candidate=record.name,
            tasks=plan.tasks(record.checked_as),
            device=f"cuda:{device.index}" if device else "cpu",
            seed=self.request.seed,
            turn=self.turn_file,
            memory_bytes=memory_bytes / count if device else float(2**31),
            l2_bytes=device.l2_bytes if device else 0.0,
            compile_workers=self.request.compile_workers,
            crowded=device is not None and count * plan.working_bytes > memory_bytes,
            free_bytes=memory_bytes,
            env=self.cache_env(),
            roomy=device is not None and CHECKING * count * plan.working_bytes < memory_bytes,
            registry=self.modules.registry,
            kernel=self.request.kernel if is_users_kernel(record.name) else None,
            refilled=self.request.kernel is not None,
        )
        autotunes = "autotune" in record.name or "autotune" in record.note
        limit_s = self.limits.autotune_s if autotunes else self.limits.prepare_s
        limit_s = self.limits.kernel_s if is_users_kernel(record.name) else limit_s
        self.pool.children[record.name].ask(request, min(limit_s, max(0.0, until - time.monotonic())))
        self.asked[record.name] = request

    def prepare(self, plan: Plan) -> None:
        """All at once: compiling is the CPU's work; checks and autotuning take turns on the GPU by the lock `turn`."""
        count = max(1, len(self.pool.children))
        for record in self.pool.alive():
            self.ask_prepare(plan, record, count)
        done = 0

        def told(child: Child) -> None:
            nonlocal done
            done += 1
            what = "ready" if child.alive else child.failure[0].replace("_", " ")  # type: ignore[index]
            self.pool.tell("prepare", 0.05 + 0.45 * done / count, f"{child.name}: {what}", child.name)

        self.pool.tell("prepare", 0.05, f"building and checking {count} candidates")
        reserve_s = min(0.3 * self.request.budget_s, 60.0)  # compiling leaves time to measure what is ready
        try:
            self.pool.wait(self.pool.asked(), self.pool.deadline - reserve_s, told)
        except BudgetError:
            for child in self.pool.asked():
                child.fail("timeout", "building and checking took too long for the time budget")
        for record in self.pool.records:
            if record.name in self.pool.children:
                prepared = self.pool.answer(record, Prepared)
                if prepared is not None:
                    record.take_prepared(prepared)
        for record in [r for r in self.pool.records if r.status == "out_of_memory" and r.name in self.pool.children]:
            if self.pool.deadline - time.monotonic() > alone.LEAST_S + reserve_s:
                self.prepare_again(plan, record, reserve_s)  # the others are done, and have given back what they could
        self.pool.conditions["prepare_s"] = {r.name: r.spent_s for r in self.pool.records if r.spent_s}

    def judge(self, plan: Plan) -> None:
        """Eager first: the others' errors are held against its own."""
        eager = next((r for r in self.pool.records if r.tool == "eager"), None)
        if eager is not None and eager.cases:
            self.pool.guarded(eager, lambda r: records.judge_record(r, r.cases, None, plan.labels(r.tool)))
            self.pool.guarded(eager, self.warn_of_blind_spot)
        for record in self.pool.records:
            if record is not eager and record.cases:
                self.judge_one(plan, record)
        for record in self.pool.records:
            if record.name in self.pool.children and not record.standing:
                self.pool.children[record.name].kill()

    def judge_one(self, plan: Plan, record: Record) -> None:
        """Against eager's errors; those of eager itself by its type's rounding alone."""
        base = next((r for r in self.pool.records if r.tool == "eager" and r.cases and r is not record), None)
        picks = plan.eager_tasks(record.checked_as)
        cases = [base.cases[n] for n in picks] if base else None
        mutated = [base.mutated[n] for n in picks] if base else None
        self.pool.guarded(
            record,
            partial(
                records.judge_record, eager=cases, eager_mutated=mutated, labels=plan.labels(record.checked_as),
                loosest=plan.loosest(record.checked_as),
            ),
        )  # fmt: skip
        if base is not None and is_users_kernel(record.name) and record.status == "mismatch":
            check_wider(self.pool, plan, record, base, self.asked[record.name])
        records.prove_needed(record)
        if base is None and record.standing and record.tool != "eager":
            record.remark("eager gave no result to compare errors with: judged by the type's rounding alone")

    def warn_of_blind_spot(self, eager: Record) -> None:
        """What the check of this region could not see."""
        if text := records.blind_spot(records.insensitive(eager.cases[0])):
            self.pool.conditions["warnings"] = [text]

    def with_gpu(self, plan: Plan) -> Validation:
        summary = records.summarise(
            self.pool.records, plan.sizes, plan.calls, plan.floors_us, plan.least_us, self.request.launch_bound,
            self.request.seed,
        )  # fmt: skip
        decided = outcome.decide(
            summary.results, summary.contenders, self.request.advice_before, self.request.share_of_step, summary.by,
            self.request.decision,
        )  # fmt: skip
        self.pool.conditions["decided_by"] = summary.by
        self.pool.conditions["launch_bound"] = summary.launch_bound
        paced = outcome.host_paced(summary.results, decided.winner) if summary.by == "device time" else ""
        self.pool.conditions["warnings"] = [
            *self.pool.conditions.get("warnings", ()),
            *conditions.warnings(self.pool.conditions.get("before", {}), self.pool.conditions.get("after", {})),
            *(text for text in (paced, self.pool.conditions.pop("unlocked", "")) if text),
        ]
        self.pool.tell("done", 1.0, decided.outcome)
        assert plan.device is not None
        return Validation(
            outcome=decided.outcome,
            reason=decided.reason,
            region=to_text(self.region),
            candidates=summary.results,
            device=plan.device.name,
            software=plan.software,
            conditions={**self.pool.conditions, "device": msgspec.to_builtins(plan.device)},
            best=outcome.fastest_of(summary.results, summary.by),
            floor_us=plan.floor_us,
            date=datetime.date.today().isoformat(),
            coverage=plan.coverage,
            advice_before=self.request.advice_before,
        )

    def without_gpu(self, plan: Plan) -> Validation:
        for record in self.pool.records:
            if record.status == "correct":
                record.remark(plan.checked_how(record))
        device = self.request.device
        other = device is not None and self.modules.gpu_present()
        wanted = f"this host has no {device[:40]} that can be used" if device and other else "this host has none"
        wanted = "none was wanted" if device == "cpu" else wanted
        unchecked = records.advised_unchecked(self.pool.records, self.request.advice_before)
        return self.unmeasured(f"nothing was timed: that needs a GPU, and {wanted}{unchecked}", remaining="not_run")

    def unmeasured(self, reason: str, remaining: str) -> Validation:
        """Outcome unmeasured; candidates that were under way get the status `remaining`."""
        for record in self.pool.records:
            if record.name in self.pool.children and record.status == "not_run" and not record.message:
                child = self.pool.children[record.name]
                record.fail(*(child.failure or (remaining, reason)))
        self.pool.tell("done", 1.0, "unmeasured")
        plan = self.plan
        sizes = plan.sizes if plan else [{}]
        calls = plan.calls if plan else [1.0]
        # Without a GPU the checks ran at other sizes than these bindings.
        checked_here = plan is not None and plan.device is not None
        results = tuple(records.untimed(r, sizes if checked_here else [], calls) for r in self.pool.records)
        return Validation(
            outcome="unmeasured",
            reason=reason,
            region=to_text(self.region),
            candidates=results,
            device=plan.device.name if plan and plan.device else None,
            software=plan.software if plan else {},
            conditions={**self.pool.conditions},
            date=datetime.date.today().isoformat(),
            coverage=plan.coverage if plan else "",
            advice_before=self.request.advice_before,
        )
