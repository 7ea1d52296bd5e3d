"""What the timed part says of a candidate's own kernels, and of the outputs that were not checked again."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kernels.measure.messages import BindingCost, Planned
from kernels.measure.plan import Plan
from kernels.measure.records import Record, prove_kernels
from tests.kernels.measure.fake_planner import CARD, offered

ANSWER = Planned("x: f32[8]\nreturn x", CARD, {}, [], "", [BindingCost(1, 0, None, 1, 1, None)])


@pytest.mark.parametrize(
    ("seen", "status"),
    [(("first", "aten", "second"), "ok"), (("first", "aten"), "error"), (("aten",), "error"), ((), "ok")],
)
def test_all_of_its_kernels_must_have_run(seen, status):
    record = Record("triton:generated", "triton", status="ok", kernels=seen, expected_kernels=("first", "second"))
    prove_kernels(record)
    assert record.status == status
    if status == "error":
        assert "second" in record.message


def planned(*candidates):
    return Plan(replace(ANSWER, candidates=list(candidates)), [{}], [1.0])


def test_a_candidate_on_request_is_measured_when_named_or_advised():
    plan = planned(offered("eager"), replace(offered("compile-reduce-overhead"), on_request=True))
    names = lambda *a: [r.name for r in plan.records(*a)]  # noqa: E731
    assert names(None) == ["eager"]
    assert names(None, "compile-reduce-overhead") == ["eager", "compile-reduce-overhead"]
    assert names(["compile-reduce-overhead"]) == ["eager", "compile-reduce-overhead"]


def test_a_call_that_cannot_be_tried_here_was_not_run():
    found = planned(
        replace(offered("library:a"), available=False, reason="no adapter", untried=True),
        replace(offered("library:b"), available=False, reason="needs fp16"),
    ).records(None)
    assert [(r.status, r.message) for r in found] == [("not_run", "no adapter"), ("unsupported", "needs fp16")]
