"""Candidates that did not fit on the card next to the others: timed when these have left it.

One of those that were timed, the reference, stays and takes turns with each, giving its memory back behind every turn.
What its times have become since its own rounds is the drift of the card, and is taken out of the late ones' times.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kernels.measure import rounds, stats
from kernels.measure.memory import Need, Schedule
from kernels.measure.plan import Plan
from kernels.measure.processes.child_pool import ChildPool
from kernels.measure.records import Record

LEAST_S = 30.0
"""Of the budget that must be left for a candidate to be tried alone."""
ALONE = "it was tried with the card to itself"
NO_ROOM = "out of memory with the others' processes on the card"
TOO_LONG = "it was tried with the card to itself, and took too long for the time budget"
NO_REFERENCE = "timed after the others, with none of them to compare the card's clocks with"


def reference_of(records: Sequence[Record]) -> Record | None:
    """Eager, or the fastest that was timed and launches no kernel of ours: their last check may cost the context."""
    timed = [r for r in records if r.status == "ok" and r.tool != "triton"]
    eager = next((r for r in timed if r.tool == "eager"), None)
    return eager or min(timed, key=lambda r: float(np.sum([stats.medians(t) for t in r.times_us])), default=None)


def measure(pool: ChildPool, plan: Plan, record: Record, reference: Record | None) -> None:
    """Rounds of one that is prepared, with the reference where there is one, as many as the reference had."""
    stays = reference is not None and reference.name in pool.children and pool.children[reference.name].alive
    again = replace(reference, status="correct") if reference is not None and stays else None
    own = copy.copy(pool)
    own.records = [record] if again is None else [record, again]
    own.conditions = {}
    need: Need = plan.need(record)
    sets = {r.name: float(need.inputs_bytes) for r in own.records}
    turns = {r.name: float(plan.need(r).turn_bytes) for r in own.records}
    made = Schedule(True, sets, 0, need.turn_bytes, need.turn_bytes, turn_bytes=turns)
    with pool.turn_alone(pool.request.shared):  # of the rounds alone: its own process takes the turn for its checks
        unfit = rounds.measure(own, plan, schedule=made)
    if unfit:
        record.status = "correct"
        record.remark(f"not timed: this machine is not fit to measure, because {unfit}")
    if record.status != "ok":
        if record.status == "out_of_memory":
            record.remark(ALONE)
        return
    rounds.finish(own, plan, made)
    if again is None or reference is None or again.status != "ok":
        record.remark(NO_REFERENCE)
        return
    join(record, again, reference)
    record.remark(f"timed after the others, alone but for {reference.name}, by whose times it is compared with them")


def join(late: Record, again: Record, reference: Record) -> None:
    """The late candidate's times as they would have been in the reference's own rounds.

    again: the reference next to it. Each round's times are scaled by what the reference took in that round of its own
    over what it took in this one; where there are fewer rounds than the reference had, they are gone through again.
    """
    for number, then in enumerate(reference.times_us):
        count, now = len(then), again.times_us[number]
        scales = stats.medians(then) / stats.medians([now[r % len(now)] for r in range(count)])
        late.times_us[number] = [
            [t * scales[r] for t in late.times_us[number][r % len(late.times_us[number])]] for r in range(count)
        ]
        late.walls_us[number] = _scaled(late.walls_us[number], scales)
        late.drains_us[number] = _scaled(late.drains_us[number], scales)
        spans = late.spans_us[number]
        late.spans_us[number] = [
            None if (span := spans[r % len(spans)]) is None else span * scales[r] for r in range(count)
        ]
        fresh = late.fresh[number]
        late.fresh[number] = [fresh[r % len(fresh)] for r in range(count)]


def _scaled(values: Sequence[float], scales: stats.Rounds) -> list[float]:
    return [values[r % len(values)] * float(scale) for r, scale in enumerate(scales)]
