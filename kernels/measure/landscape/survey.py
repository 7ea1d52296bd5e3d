"""landscape(): the time of one kernel over its tiles, warps and stages, measured in a process of its own.

A point that faults or hangs costs itself and that process; another one goes on behind it. This process never touches
CUDA.
"""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec
import numpy as np

from kernels.measure import conditions, stats
from kernels.measure.landscape.grid import MOST_POINTS
from kernels.measure.landscape.messages import (
    CompareOrders,
    Duel,
    DuelTimes,
    Open,
    Opened,
    OrderTimes,
    PointResult,
    RunPoint,
)
from kernels.measure.landscape.model import (
    Landscape,
    Order,
    Point,
    axes_of,
    best_of,
    ranked,
    worst_to_best,
)
from kernels.measure.messages import Request
from kernels.measure.model import Interval, to_json
from kernels.measure.plan import Plan
from kernels.measure.processes.poll import BudgetError, CancelledError
from kernels.measure.processes.processes import Child, ForkServer, ForkServerDied
from kernels.measure.request import Limits, Progress, ValidationRequest
from kernels.measure.session import MEMORY_SHARE, Modules, Session
from profiler.region.language.text import parse, to_text
from profiler.region.model import Binding, Region

WORKER, OFFLINE = "kernels.measure.landscape.worker", "kernels.measure.landscape.offline"
NEEDS_GPU = "an autotune landscape is measured, and that needs a GPU: this host has none"
ROUNDS = 7
LAST_SHARE = 0.1
"""Of the budget is kept for the two comparisons at the end."""
MOST_RESTARTS = 6
Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class LandscapeRequest:
    """One candidate's kernel to survey.

    sizes: of the region's symbols, () for none. device: as in ValidationRequest. budget_s: for the points; compiling
    the candidate and its own tuning come before. points: at most so many. point_s: of one, before it counts as hung.
    target: a GPU that is not here, such as "sm_90": points are compiled for it, and nothing is measured.
    """

    region_text: str
    candidate: str
    sizes: tuple[tuple[str, int], ...] = ()
    device: str | None = None
    budget_s: float = 60.0
    points: int = MOST_POINTS
    target: str | None = None
    point_s: float = 30.0
    seed: int = 0
    limits: Limits = field(default_factory=Limits)
    cache_dir: str | None = None


def landscape(
    request: LandscapeRequest,
    on_progress: Callable[[Progress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    *,
    fork_server: ForkServer | None = None,
    modules: Modules | None = None,
) -> Landscape:
    """Measure the points of a candidate's kernel.

    Raises RegionError for a text that is no region. What else goes wrong is in the answer: a point's status, or outcome
    `unmeasured` with the reason. fork_server: one to reuse, which then stays open.
    """
    region = parse(request.region_text)
    survey = _Survey(request, region, on_progress, cancelled, modules or Modules(worker=WORKER))
    with contextlib.ExitStack() as stack:
        stack.callback(survey.close)
        try:
            survey.run_points(fork_server, stack)
        except CancelledError:
            survey.stop("cancelled")
        except BudgetError:
            survey.stop(f"the time limit of {survey.request.budget_s:.0f} s for the whole was reached")
        except (ForkServerDied, UnmeasuredError) as fault:
            survey.stop(str(fault))
        return survey.result()


class UnmeasuredError(Exception):
    """There is nothing to measure; the message says why."""


class _Survey(Session):
    """One landscape, from the text to the points."""

    def __init__(
        self,
        wanted: LandscapeRequest,
        region: Region,
        on_progress: Callable[[Progress], None] | None,
        cancelled: Callable[[], bool] | None,
        modules: Modules,
    ) -> None:
        binding = wanted.sizes or tuple(sorted(dict(next(iter(region.bindings), {})).items()))
        whole_s = wanted.budget_s + wanted.limits.start_s + wanted.limits.plan_s + wanted.limits.autotune_s
        super().__init__(
            ValidationRequest(
                wanted.region_text, (Binding(binding, 1.0, None),), (wanted.candidate,), wanted.device, whole_s,
                seed=wanted.seed, limits=wanted.limits, cache_dir=wanted.cache_dir,
            ),
            region, on_progress, cancelled, modules,
        )  # fmt: skip
        self.wanted = wanted
        self.began = time.monotonic()
        self.points: dict[str, Point] = {}
        self.opened: Opened | None = None
        self.duel: Interval | None = None
        self.order: Order | None = None
        self.warnings: list[str] = []
        self.reason = ""
        self.spent_s: float | None = None
        self.restarts = 0

    def run_points(self, fork_server: ForkServer | None, stack: contextlib.ExitStack) -> None:
        """Everything, into self.points, self.duel, self.order."""
        self.pool.tell("plan", 0.0, "starting")
        self.probe.start()
        if self.wanted.target is not None:
            self._compile(stack)
            return
        plan, fork_server = self.make_plan(fork_server, stack)
        self.plan = plan
        self._offered(plan)
        if plan.device is None:
            raise UnmeasuredError(NEEDS_GPU)
        self.pool.tell("plan", 0.03, "waiting for the GPU")
        stack.enter_context(self.pool.exclusive_gpu(plan.device.uuid or str(plan.device.index)))
        card = plan.device.index
        self.pool.tell("prepare", 0.05, "compiling, tuning, checking", self.wanted.candidate)
        child = self._open(fork_server, plan, chosen=None)
        if child.failure is not None:
            raise UnmeasuredError(child.failure[1])
        self.pool.conditions["before"] = self.read(card)
        began = time.monotonic()
        ends = began + self.wanted.budget_s * (1 - LAST_SHARE)
        last = self._walk(fork_server, plan, child, ends)
        if last is not None:
            self._compare(last)
        self.spent_s = time.monotonic() - began
        self.pool.conditions["after"] = self.read(card)

    def _compile(self, stack: contextlib.ExitStack) -> None:
        """Every point for the target, in a process that sees no GPU and whose Triton is no interpreter."""
        self.modules = replace(self.modules, worker=OFFLINE)
        fork_server = stack.enter_context(ForkServer(env={"CUDA_VISIBLE_DEVICES": ""}, start_s=self.limits.start_s))
        self.plan = plan = self.ask_plan(fork_server, execute=False)
        self._offered(plan)
        self.pool.tell("prepare", 0.05, f"compiling for {self.wanted.target}", self.wanted.candidate)
        child = self._open(fork_server, plan, chosen=None)
        if child.failure is not None:
            raise UnmeasuredError(child.failure[1])
        began = time.monotonic()
        self._walk(fork_server, plan, child, began + self.wanted.budget_s)
        self.spent_s = time.monotonic() - began
        self.reason = f"unmeasured: compiled for {self.wanted.target}, nothing was run"

    def _offered(self, plan: Plan) -> None:
        """Raises UnmeasuredError where the candidate is none of Triton's, or cannot run this region."""
        name = self.wanted.candidate
        item = next((c for c in plan.offered if c.name == name), None)
        if item is None:
            raise UnmeasuredError(f"no candidate {name} exists for this region")
        if item.tool != "triton":
            raise UnmeasuredError(f"{name} is no Triton kernel of this repository: what it chooses from is not known")
        if not item.available:
            raise UnmeasuredError(item.reason or "it is not available here")

    def _open(self, fork_server: ForkServer, plan: Plan, chosen: str | None) -> Child:
        """A process with the candidate built and its points listed; its failure says where that did not work."""
        name = self.wanted.candidate
        env, limit = self.cache_env(), self.limits.message_bytes
        child = fork_server.fork(name, self.modules.worker, env=env, execute=self.execute, limit=limit)
        if name in self.pool.children:
            self.pool.children[name].release()
        self.pool.children[name] = child
        card = plan.device
        request = Open(
            candidate=name,
            region=plan.region,
            sizes=plan.sizes[0],
            device=f"cuda:{card.index if card else 0}",
            seed=self.request.seed,
            memory_bytes=MEMORY_SHARE * card.free_bytes if card else 0.0,
            l2_bytes=card.l2_bytes if card else 0.0,
            registry=self.modules.registry,
            points=self.wanted.points,
            chosen=chosen,
            target=self.wanted.target,
        )
        child.ask(request, self.limits.autotune_s)
        self.pool.wait([child])
        opened = child.result(Opened)
        if opened is not None and chosen is None:
            self.opened = opened
            self.points = {p.key: p for p in opened.points}
        return child

    def _walk(self, fork_server: ForkServer, plan: Plan, child: Child, ends: float) -> Child | None:
        """All points that are not pruned, while there is time; the process that is left, None where none is."""
        todo = [p.key for p in self.points.values() if p.status == "not_run"]
        current: Child | None = child
        for done, key in enumerate(todo):
            point = self.points[key]
            left_s = ends - time.monotonic()
            if done and left_s <= 0:
                self._put(replace(point, reason=f"the budget of {self.wanted.budget_s:g} s was spent"))
                continue
            if current is None:
                current = self._again(fork_server, plan)
            if current is None:
                self._put(replace(point, reason=f"{MOST_RESTARTS} points before it lost their process"))
                continue
            self.pool.tell("points", 0.1 + 0.8 * done / len(todo), self._said(point), self.wanted.candidate)
            # What was chosen is timed whatever it takes: all else is held against it.
            limit_s = self.wanted.point_s if not done else min(self.wanted.point_s, max(1.0, left_s + 5.0))
            current.ask(RunPoint(key), limit_s)
            self.pool.wait([current])
            self._take(point, current, hurried=limit_s < self.wanted.point_s)
            current = current if current.failure is None else None
        return current or self._again(fork_server, plan, last=True)

    def _again(self, fork_server: ForkServer, plan: Plan, last: bool = False) -> Child | None:
        """Another process behind one that was lost. last: for the comparisons at the end, however many there were."""
        if self.restarts >= MOST_RESTARTS and not last:
            return None
        self.restarts += 1
        child = self._open(fork_server, plan, self.opened.chosen if self.opened else None)
        return child if child.failure is None else None

    def _said(self, point: Point) -> str:
        stages = "" if point.stages is None else f", {point.stages} stages"
        return f"{point.tile}, {point.warps} warps{stages}"

    def _put(self, point: Point) -> None:
        self.points[point.key] = point

    def _take(self, point: Point, child: Child, hurried: bool) -> None:
        """What became of a point. hurried: it had less time than a point may take, which is no proof that it hangs."""
        result = child.result(PointResult)
        if child.failure is not None:
            status, message = child.failure
            if status == "timeout" and hurried:
                budget = f"the budget of {self.wanted.budget_s:g} s was spent while it was under way"
                self._put(replace(point, reason=budget))
                return
            self._put(replace(point, status="timeout" if status == "timeout" else "fault", reason=message))
            return
        assert result is not None  # it owes no answer, and did not fail
        times = np.array(result.times_us, dtype=np.float64)
        time_us = stats.interval(times, self.request.seed) if result.times_us else None
        figures = msgspec.structs.asdict(result.machine)
        self._put(replace(point, status=result.status, reason=result.reason, time_us=time_us, **figures))

    def _compare(self, child: Child) -> None:
        """The chosen point against the fastest, and the two orders of programs, each in turns."""
        chosen, best = self.opened.chosen if self.opened else None, best_of(list(self.points.values()))
        if best is None or chosen is None or self.points[chosen].status != "ok":
            return
        self.pool.tell("points", 0.92, "the chosen and the fastest in turns", self.wanted.candidate)
        duel = self._reply(child, Duel([chosen, best.key], ROUNDS), DuelTimes)
        if duel and duel.wrong:
            self.warnings.append(f"what was chosen gave another result at the end than at first: {duel.wrong}")
        elif duel and best.key != chosen:
            self.duel = _ratio(duel.rounds_us, self.request.seed)
        orders = self._reply(child, CompareOrders(chosen, ROUNDS), OrderTimes) if child.alive else None
        if orders and orders.group is not None:
            grouped, plain = (stats.medians(r) for r in orders.rounds_us)
            self.order = Order(
                orders.group, stats.interval(grouped, self.request.seed), stats.interval(plain, self.request.seed),
                stats.ratio(grouped, plain, self.request.seed),
            )  # fmt: skip

    def _reply(self, child: Child, request: Request, form: type[Reply]) -> Reply | None:
        child.ask(request, self.limits.turn_s)
        self.pool.wait([child])
        return child.result(form)

    def stop(self, reason: str) -> None:
        """Points that were not run were not for this reason."""
        self.reason = reason
        for point in list(self.points.values()):
            if point.status == "not_run" and not point.reason:
                self._put(replace(point, reason=reason))

    def result(self) -> Landscape:
        """All that is known."""
        plan, opened = self.plan, self.opened
        points = ranked(list(self.points.values()))
        best = best_of(points)
        timed = sum(p.time_us is not None for p in points)
        self.pool.tell("done", 1.0, "unmeasured" if best is None else f"{timed} points")
        known = self.pool.conditions
        before, after = known.get("before", {}), known.get("after", {})
        unlocked = known.pop("unlocked", "")
        warnings = [*self.warnings, *conditions.warnings(before, after), *([unlocked] if unlocked else [])]
        return Landscape(
            outcome=self._outcome(points),
            candidate=self.wanted.candidate,
            region=to_text(self.region),
            binding=dict(plan.sizes[0]) if plan else dict(self.wanted.sizes),
            reason=self.reason or ("" if best else "no point was right and timed"),
            kernel=opened.kernel if opened else "",
            beside=tuple(opened.others) if opened else (),
            points=points,
            axes=axes_of(points),
            chosen=opened.chosen if opened else None,
            best=best.key if best else None,
            worst_to_best=worst_to_best(points),
            chosen_to_best=self.duel,
            order=self.order,
            device=plan.device.name if plan and plan.device else None,
            software=plan.software if plan else {},
            conditions={**known, "warnings": warnings},
            budget_s=self.wanted.budget_s,
            seconds=self.spent_s,
            date=datetime.date.today().isoformat(),
        )

    def _outcome(self, points: Sequence[Point]) -> str:
        states = {p.status for p in points}
        return "measured" if "ok" in states else "compiled" if "compiled" in states else "unmeasured"


def _ratio(rounds_us: Sequence[Sequence[Sequence[float]]], seed: int) -> Interval:
    first, second = (stats.medians(r) for r in rounds_us)
    return stats.ratio(first, second, seed)


__all__ = ["LandscapeRequest", "landscape", "to_json"]
