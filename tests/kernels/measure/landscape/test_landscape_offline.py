"""Points compiled for a GPU that is not here: the same figures as the kernel compiled by its own list of builds."""

from __future__ import annotations

import pytest

from kernels.builds import build
from kernels.measure.landscape.offline import limits_of, type_of
from kernels.measure.landscape.survey import LandscapeRequest, landscape
from kernels.ops.norm import rms_norm

REGION = "x: bf16[2048, 4096]\nw: bf16[4096]\nreturn F.rms_norm(x, (4096,), w, 1e-6)"


def test_a_point_has_the_figures_of_the_kernels_own_build():
    operation = next(o for o in rms_norm.OPERATIONS if o.name == "rms_norm")
    item = next(b for b in operation.builds if b.variant["BLOCK"] == 512 and b.variant["STAGES"] == 1)
    expected = build(operation, item, "sm_90")
    assert expected.refused == ""
    request = LandscapeRequest(REGION, "triton:rms_norm", target="sm_90", points=1, budget_s=60.0)
    drawn = landscape(request)
    assert drawn.outcome == "compiled", drawn.reason
    assert (drawn.chosen, drawn.best, drawn.device) == (None, None, None)
    assert all(p.time_us is None for p in drawn.points)
    point = next(p for p in drawn.points if (p.constants["BLOCK"], p.stages, p.warps) == (512, 1, item.variant.warps))
    assert (point.registers, point.spill_bytes, point.shared_bytes) == (
        expected.registers, expected.spill_bytes, expected.shared_bytes,
    )  # fmt: skip
    assert point.occupancy == pytest.approx(expected.occupancy, abs=1e-3)


def test_arguments_are_specialised_as_a_launch_would():
    assert [type_of(v) for v in (1, None, 7, 2**31, 2.5, True)] == ["", "", "i32", "i64", "fp32", "i1"]


def test_limits_are_the_targets():
    assert limits_of("sm_120").shared_bytes < limits_of("sm_90").shared_bytes == 227 * 1024
