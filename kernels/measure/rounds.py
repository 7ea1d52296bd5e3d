"""The timed part: warm-up, rounds in which every candidate has its turn, and the checks after them."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kernels.measure import conditions, records, stats
from kernels.measure.conditions import Reading, RoundReading
from kernels.measure.crosscheck import scatter
from kernels.measure.memory import Schedule
from kernels.measure.messages import Case, Finish, Finished, Round, RoundTimes, Warm, Warmed
from kernels.measure.plan import Plan
from kernels.measure.processes.child_pool import ChildPool
from kernels.measure.processes.poll import BudgetError
from kernels.measure.records import Record

WARM_MS = 200.0  # of GPU work before the first round, over all candidates: clocks are up then
LEAST_CALLS, MOST_CALLS = 3, 200
LEAST_ROUNDS = 5
FINISH_RESERVE_S = 20.0
SLOW_CALL_US = 20_000.0
TURN_WARM_US = 10_000.0  # under a power cap the clock is still the one that the candidate before has brought about
FEWER_ROUNDS = 2  # of several shapes: each has its own turns, and what they share drifts alike
MOST_WARM_CALLS = 100
JITTER = 0.2  # of the calls of a turn: their number must not tell which call is the last
QUICK_READING_S = 0.02
READ_EVERY = 3  # rounds, where a reading takes longer
NOT_CHECKED_AGAIN = "the timed calls' outputs were not checked again"


def measure(
    pool: ChildPool, plan: Plan, read: Callable[[], Reading] = Reading, schedule: Schedule | None = None
) -> str:
    """Rounds over all standing candidates, in a new order each round; those that came through get status ok.

    read: the GPU's state now; rounds in which it was slowed are left out. schedule: who holds memory meanwhile; None:
    each as it was told when it was prepared. Returns why this machine is not fit to measure, "" where it is.
    """
    estimates = _warm(pool, len(plan.sizes), schedule)
    readings: list[tuple[int, Reading]] = []
    every = 1
    count = len(plan.sizes)
    timed = [r for r in pool.standing() if r.name in estimates]
    for record in timed:
        record.times_us = [[] for _ in range(count)]
        record.walls_us = [[] for _ in range(count)]
        record.drains_us = [[] for _ in range(count)]
        record.spans_us = [[] for _ in range(count)]
        record.fresh = [[] for _ in range(count)]
    rounds = max(LEAST_ROUNDS, pool.request.rounds if count == 1 else pool.request.rounds - FEWER_ROUNDS)
    # half of a turn is for cold calls, half for the wall time of back-to-back ones
    turn_us = pool.request.timing_s * 1e6 / max(1, rounds * len(timed) * count) / 2
    shuffled = random.Random(pool.request.seed)
    done = 0
    while done < rounds and pool.standing():
        if done >= LEAST_ROUNDS and pool.deadline - time.monotonic() < FINISH_RESERVE_S:
            break
        for number in range(count):
            order = [r for r in pool.standing() if r.name in estimates]
            shuffled.shuffle(order)
            for record in order:
                _turn(pool, record, number, turn_us, estimates[record.name][number])
        done += 1
        if done % every == 0 or done == rounds:
            started = time.monotonic()
            readings.append((done, read()))
            every = 1 if time.monotonic() - started < QUICK_READING_S else READ_EVERY
        pool.tell("time", 0.5 + 0.4 * done / rounds, f"round {done} of {rounds}")
    pool.conditions["rounds"], pool.conditions["order_seed"] = done, pool.request.seed
    for record in timed:
        if record.standing and done and all(len(t) == done for t in record.times_us):
            record.status = "ok"
    told: list[RoundReading] = [{"rounds": n, **reading} for n, reading in readings if reading]
    if told:
        pool.conditions["during"] = told
    return _weed(pool, readings, done)


def _weed(pool: ChildPool, readings: list[tuple[int, Reading]], done: int) -> str:
    """Leave out the rounds in which the GPU was slowed; why nothing is left, if so."""
    came = [r for r in pool.records if r.status == "ok"]
    spreads = [scatter(list(stats.medians(times))) for r in came for times in r.times_us]
    unfit = conditions.fitness(readings, done, min(spreads, default=None))
    if not unfit.reason:
        for record in came:
            record.leave_out(unfit.bad)
    pool.conditions.setdefault("warnings", []).extend(unfit.warnings)
    return unfit.reason


def _warm(pool: ChildPool, count: int, schedule: Schedule | None) -> dict[str, list[float]]:
    """Input sets made, clocks up: candidate -> µs that one call takes of a turn, per binding."""
    times_us: dict[str, list[float]] = {}
    standing = pool.standing()
    for record in standing:
        request = Warm(WARM_MS / len(standing))
        if schedule is not None:
            sets = schedule.sets_bytes.get(record.name)
            turn_bytes = schedule.turn_bytes.get(record.name, 0.0)
            request = Warm(request.ms, sets, schedule.in_turns, schedule.samples, turn_bytes)
        warmed = pool.ask_one(record, request, Warmed)
        if warmed is not None:
            pool.guarded(record, partial(_take_estimates, warmed=warmed, count=count, times_us=times_us))
    return times_us


def _jittered(count: int) -> int:
    return count + secrets.randbelow(1 + int(JITTER * count))


def _turn(pool: ChildPool, record: Record, number: int, turn_us: float, estimate_us: float) -> None:
    calls = int(min(MOST_CALLS, max(LEAST_CALLS, turn_us / max(1.0, estimate_us))))
    warm_us = min(TURN_WARM_US, turn_us / 2)
    warm = 1 if estimate_us > SLOW_CALL_US else int(min(MOST_WARM_CALLS, max(3, warm_us / max(1.0, estimate_us))))
    answer = pool.ask_one(record, Round(number, _jittered(calls), _jittered(warm)), RoundTimes)
    if answer is not None:
        span_us = pool.children[record.name].span_us
        pool.guarded(record, lambda r: _take(r, number, answer, span_us))


def _take(record: Record, number: int, answer: RoundTimes, span_us: float | None) -> None:
    if not answer.times_us or not all(0 < t < float("inf") for t in [*answer.times_us, answer.wall_us]):
        raise ValueError("times that are none")
    record.times_us[number].append(answer.times_us)
    record.walls_us[number].append(answer.wall_us)
    record.drains_us[number].append(answer.drain_us)
    record.spans_us[number].append(span_us)
    record.fresh[number].append(answer.fresh)


def finish(pool: ChildPool, plan: Plan, schedule: Schedule | None = None) -> None:
    """Outputs of the timed calls checked, kernels named.

    All children at once, since nothing is timed any more; one by one where they were timed so, for the card does not
    hold what two of them need. schedule: as in `measure`.
    """
    pool.tell("finish", 0.92, "checking the timed results again")
    standing = [pool.children[r.name] for r in pool.standing()]
    together = schedule is None or not schedule.in_turns
    for children in [standing] if together else [[child] for child in standing]:
        for child in children:
            child.ask(Finish(profile=True), pool.limits.finish_s)
        try:
            pool.wait(children)
        except BudgetError:
            for child in children:
                if child.pending is not None:
                    child.fail("timeout", "checking the timed results took too long for the time budget")
    answers: dict[str, Finished] = {}
    for record in pool.records:
        if record.name not in pool.children or not record.standing:
            continue
        answer = pool.answer(record, Finished)
        if answer is not None:
            answers[record.name] = answer
            _take_kernels(record, answer)
    _judge_again(pool, plan, answers)
    for record in pool.records:
        records.prove_kernels(record)


def _take_estimates(record: Record, warmed: Warmed, count: int, times_us: dict[str, list[float]]) -> None:
    if len(warmed.cold_us) != count:
        raise ValueError("estimates of other tasks than there are")
    times_us[record.name] = warmed.cold_us


def _judge(record: Record, eager: Sequence[Sequence[Case]] | None, plan: Plan) -> None:
    records.judge_record(record, eager, None, plan.labels(record.checked_as))


def _take_kernels(record: Record, answer: Finished) -> None:
    record.kernels = tuple(answer.kernels)
    record.expected_kernels = tuple(answer.triton_kernels)
    record.ablation = answer.ablation
    if answer.recompiled:
        record.remark(f"torch.compile compiled {answer.recompiled} graphs more while it was timed")


def _judge_again(pool: ChildPool, plan: Plan, answers: Mapping[str, Finished]) -> None:
    """The last timed outputs, by the same bound: a candidate that goes wrong after many calls is wrong."""
    eager = next((r for r in pool.records if r.tool == "eager" and r.name in answers), None)
    for record in pool.records:
        if record.name not in answers or record.status != "ok":
            continue
        kept = record.cases, record.errors
        record.cases = answers[record.name].cases
        base = answers[eager.name].cases if eager is not None else None
        pool.guarded(record, partial(_judge, eager=base, plan=plan))
        if record.status == "mismatch":
            record.remark("found in the timed calls' outputs")
        elif record.status == "correct":
            record.status = "ok"
        if record.status == "ok" and not all(record.cases):
            record.remark(NOT_CHECKED_AGAIN)
        record.cases, record.errors = kept
