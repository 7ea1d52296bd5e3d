"""The survey of real processes: points that go wrong in every way, what is best, what was not run and why.

Timed by the host's clock on the CPU: no figure here says anything of a GPU.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace

import pytest
import torch

from kernels.measure.landscape import model as landscape_model
from kernels.measure.landscape.messages import RunPoint
from kernels.measure.landscape.model import landscape_from_json
from kernels.measure.landscape.survey import LandscapeRequest, landscape
from kernels.measure.model import Interval, to_json
from kernels.measure.processes.processes import ForkServer
from kernels.measure.session import Modules
from profiler.region.model import RegionError
from tests.kernels.measure.landscape.landscape_host import CARD
from tests.kernels.measure.limits import ANSWER_S, Clock, clock_of, short_for

REAL = Modules(
    "tests.kernels.measure.landscape.landscape_host",
    "tests.kernels.measure.landscape.landscape_plan",
    gpu_present=lambda: False,
    read=lambda index, pids: {},
)
MIXED = replace(REAL, registry="tests.kernels.measure.landscape.landscape_registry")
HANGS = "x 16 warps"
"""In the key of a point whose launch does not return."""

LINEAR = "x: f32[9, 8]\nreturn x * 2 + 1"


def surveyed(fork_server, candidate="triton:mixed", text=LINEAR, modules=MIXED, told=None, **more):
    request = LandscapeRequest(text, candidate, **{"budget_s": 3600.0, "points": 60, "point_s": ANSWER_S, **more})
    return landscape(request, told, fork_server=fork_server, modules=modules)


@pytest.fixture(scope="module")
def mixed(fork_server):
    with short_for(lambda _, request: isinstance(request, RunPoint) and HANGS in request.key):
        return surveyed(fork_server)


def by(found, **wanted):
    return [p for p in found.points if all(getattr(p, k) == v for k, v in wanted.items())]


def test_the_fastest_of_the_right_points_is_best_and_a_wrong_one_never(mixed):
    assert mixed.outcome == "measured", mixed.reason
    assert mixed.device == CARD.name
    best = next(p for p in mixed.points if p.key == mixed.best)
    wrong = by(mixed, tile="BLOCK=4096", warps=4)
    assert [p.status for p in wrong] == ["wrong"]
    assert "relative error" in wrong[0].reason
    assert wrong[0].time_us is None
    timed = [p for p in mixed.points if p.time_us]
    assert best.time_us.median == min(p.time_us.median for p in timed)
    assert best.ratio_to_best == 1.0
    slow = by(mixed, tile="BLOCK=64", warps=4)[0]
    assert slow.time_us.median > 4000, "the launch sleeps for 4 ms"
    assert slow.ratio_to_best == pytest.approx(slow.time_us.median / best.time_us.median)
    assert mixed.worst_to_best == pytest.approx(max(p.time_us.median for p in timed) / best.time_us.median)


def test_what_was_chosen_stands_first_and_is_compared_with_the_best_in_turns(mixed):
    first = mixed.points[0]
    assert mixed.chosen == first.key
    assert (first.tile, first.status) == ("BLOCK=256", "ok")
    # It sleeps a millisecond longer than the best of them.
    assert mixed.chosen_to_best is not None
    assert mixed.chosen_to_best.low > 1.0


def test_a_point_that_kills_or_hangs_its_process_costs_itself(mixed):
    dead, hung = by(mixed, warps=8), by(mixed, warps=16)
    assert {p.status for p in dead} <= {"fault", "not_run", "pruned"}
    assert "SIGABRT" in next(p.reason for p in dead if p.status == "fault")
    assert {p.status for p in hung} <= {"timeout", "not_run", "pruned"}
    assert any(p.status == "timeout" for p in hung)
    after = mixed.points[[p.status for p in mixed.points].index("fault") :]
    assert any(p.status in ("ok", "refused") for p in after), "nothing was measured behind it"


def test_processes_are_not_started_again_without_end(mixed):
    lost = Counter(p.status for p in mixed.points)
    assert lost["fault"] + lost["timeout"] <= 7
    assert any("lost their process" in p.reason for p in by(mixed, status="not_run"))


def test_what_a_launch_refuses_is_told_in_its_words(mixed):
    refused = by(mixed, status="refused")
    assert refused
    assert {p.warps for p in refused} == {2}
    assert {p.reason for p in refused} == {"no such instruction"}


def test_what_the_model_prunes_is_never_launched(mixed):
    pruned = by(mixed, tile="BLOCK=16384", own=True)
    assert [p.status for p in pruned] == ["pruned"]
    assert pruned[0].reason == ("the kernel's model: 1,000,000 bytes of shared memory, a program may have 232,448")


def test_the_kernel_of_the_most_bytes_is_surveyed_and_the_other_named(mixed):
    assert mixed.kernel == "main"
    assert mixed.beside == ("small",)


def test_it_survives_the_way_through_json(mixed):
    assert landscape_from_json(to_json(mixed)) == mixed
    assert {p.status for p in mixed.points} <= set(landscape_model.STATUSES)


def test_points_behind_the_budget_are_not_run_and_say_so(fork_server):
    found = surveyed(fork_server, budget_s=0.05)
    assert found.outcome == "measured", "what was chosen is timed whatever it takes"
    late = by(found, status="not_run")
    assert {p.reason for p in late} == {"the budget of 0.05 s was spent"}
    assert len(late) >= len(found.points) - 3


def test_a_point_cut_off_by_the_budget_is_not_said_to_hang(fork_server):
    clock = Clock(held=True)

    def told(progress):
        """The budget is spent in a point that hangs, whatever the others took."""
        if progress.message.endswith("16 warps"):
            clock.passed_s = 3600.0

    with clock_of(sys.modules[landscape.__module__], clock):
        found = surveyed(fork_server, told=told, budget_s=4.0, points=30)
    assert by(found, status="timeout") == []
    assert any("under way" in p.reason for p in by(found, status="not_run", warps=16))


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        ("triton:untuned", "no kernel that is tuned"),
        ("triton:elsewhere", "takes no f32"),
        ("triton:nowhere", "no candidate triton:nowhere"),
        ("library:some", "is no Triton kernel"),
    ],
)
def test_what_cannot_be_surveyed_says_why(fork_server, candidate, reason):
    found = surveyed(fork_server, candidate)
    assert found.outcome == "unmeasured"
    assert reason in found.reason
    assert found.points == ()


def test_without_a_gpu_nothing_is_measured(fork_server):
    found = surveyed(fork_server, modules=Modules("kernels.measure.landscape.worker", gpu_present=lambda: False),
                     candidate="triton:softmax", text="x: f32[4, 8]\nreturn F.softmax(x, dim=-1)")  # fmt: skip
    assert found.outcome == "unmeasured"
    assert "needs a GPU" in found.reason
    assert found.device is None


def test_a_cancelled_survey_keeps_what_it_has(fork_server):
    asked = []
    request = LandscapeRequest(LINEAR, "triton:mixed", budget_s=30.0, points=20)

    def told(progress):
        asked.append(progress.phase)

    drawn = landscape(request, told, lambda: asked.count("points") > 2, fork_server=fork_server, modules=MIXED)
    assert drawn.reason == "cancelled"
    assert drawn.outcome == "measured"
    assert by(drawn, status="ok")
    assert {p.reason for p in by(drawn, status="not_run")} == {"cancelled"}


def test_a_text_that_is_no_region_raises(fork_server):
    with pytest.raises(RegionError):
        surveyed(fork_server, text="x: f32[4]\nreturn y")


def test_a_matrix_product_is_timed_in_both_orders_of_programs(fork_server):
    text = "x: f16[64, 32]\nw: f16[32, 64]\nreturn F.relu(x @ w)"
    found = surveyed(fork_server, "triton:matmul_epilogue", text, REAL, points=7, budget_s=20.0)
    assert found.outcome == "measured", found.reason
    assert found.order is not None
    assert found.order.group == 8
    assert isinstance(found.order.plain_us, Interval)
    ratio = found.order.grouped_us.median / found.order.plain_us.median
    assert found.order.grouped_to_plain.median == pytest.approx(ratio)


def test_a_generated_kernel_has_a_landscape_down_to_a_tile_of_four(fork_server):
    found = surveyed(
        fork_server,
        "triton:generated",
        "x: f32[4, 64]\nb: f32[64]\nreturn F.gelu(x + b)",
        REAL,
        points=8,
        budget_s=20.0,
    )
    assert found.outcome == "measured", found.reason
    tiny = by(found, tile="BLOCK=4")
    assert tiny[0].status == "ok"
    assert not tiny[0].own
    assert found.order is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_points_have_registers_and_the_smallest_tile_is_far_off():
    text = "x: bf16[16384, 4096]\nreturn torch.softmax(x.float(), -1).to(bf16)"  # 16 x between its 30 points there
    with ForkServer() as made:
        drawn = landscape(LandscapeRequest(text, "triton:softmax", budget_s=30.0), fork_server=made)
    assert drawn.outcome == "measured", drawn.reason
    timed = [p for p in drawn.points if p.time_us]
    assert all(p.registers and p.shared_bytes is not None and p.spill_bytes is not None for p in timed)
    assert drawn.worst_to_best > 5
    assert drawn.chosen_to_best is None or drawn.chosen_to_best.low < 1.2
