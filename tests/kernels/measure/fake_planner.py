"""A plan for a GPU that is not there, so that the session's timed part runs against `fake_worker`. Imports no torch."""

from __future__ import annotations

import msgspec

from kernels.measure.messages import Answer, BindingCost, Card, MakePlan, Offered, PlanAnswer, Planned, Question

CARD = Card("NVIDIA H200", 7, "", 150_000_000_000, 100_000_000_000, 5e7, 132, "9.0")
COST = BindingCost(  # 480 MB at 4.8 TB/s: 89.6 µs beyond L2
    bytes_touched=480_000_000, flops=0, matmul_dtype=None, working_bytes=1, set_bytes=1, floor_us=50.0
)


def offered(name):
    return Offered(name, name.split(":")[0].split("-")[0], f"call {name}", "", True, "", "", False, False)


def plan(request):
    names = request.region.split("# candidates: ")[1].split()
    costs = [COST] * len(request.bindings)
    return Planned(request.region, CARD, {"torch": "none"}, list(map(offered, names)), "no library covers it", costs)


def main(channel):
    question = msgspec.convert(channel.receive(), Question)
    channel.send(Answer(question.id, PlanAnswer(plan(msgspec.convert(question.request, MakePlan)))))
