"""The user's own kernel in a type that Triton's interpreter can compute, where it is wrong in one that it cannot.

The interpreter cuts f32 to bf16 where a GPU rounds (Triton 3.7.1): what comes out says nothing of the kernel. A kernel
with a product of bf16 does not come here: it is not checked (`kernels/measure/candidate/interpreter.py`).
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from kernels.measure import records
from kernels.measure.messages import Prepare, Prepared
from kernels.measure.plan import Plan
from kernels.measure.processes.child_pool import ChildPool
from kernels.measure.records import Record

IN_ITS_PLACE = "checked in f32 in the place of bf16, which Triton's interpreter computes otherwise than a GPU"


def check_wider(pool: ChildPool, plan: Plan, record: Record, eager: Record, asked: Prepare) -> None:
    """Right in f32, the record stands and says so. Wrong there as well, it stays as it is.

    asked: what its process was asked to check.
    """
    tasks = plan.wider_task()
    child = pool.children[record.name]
    if not tasks or not child.alive:
        return
    again = Record(record.name, record.tool, record.call, record.note)
    child.ask(replace(asked, tasks=tasks), pool.limits.kernel_s)
    pool.wait([child])
    prepared = pool.answer(again, Prepared)
    if prepared is None:
        return
    again.take_prepared(prepared)
    number = plan.tasks("eager").index(tasks[0])
    cases, mutated = [eager.cases[number]], [eager.mutated[number]]
    pool.guarded(again, partial(records.judge_record, eager=cases, eager_mutated=mutated, labels=[""]))
    if again.standing:
        record.status, record.message = again.status, again.message
        record.cases, record.errors, record.ablation = again.cases, again.errors, again.ablation
        record.remark(IN_ITS_PLACE)
