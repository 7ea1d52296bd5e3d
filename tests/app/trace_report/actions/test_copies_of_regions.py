"""Copies and sets are of the region whose operation asks for them, and of none where no region has that operation."""

from __future__ import annotations

import pytest

from app.trace_report.copies_of_regions import copies_of_regions
from profiler.region.mining.mine import mine
from profiler.trace import read_trace
from profiler.trace.model import NONE
from tests.profiler.trace.files import TRACES


@pytest.mark.parametrize("name", ["pyg_gcn_gat_train_fp32.json.gz", "timm_resnet50_train_fp32.json.gz"])
def test_each_copy_is_of_the_region_that_launches_kernels_from_its_operation(name: str) -> None:
    trace = read_trace(TRACES / name)
    mining = mine(trace)
    told = copies_of_regions(trace, mining.regions, mining.mined)
    steps = len(mining.mined)
    copies = [int(m) for s in mining.mined for m in s.memory]
    expected = []
    for region in mining.regions:
        ops = {int(trace.kernels.op[k]) for k in region.kernels} - {NONE}
        own = [m for m in copies if int(trace.memory.op[m]) in ops]
        expected.append((len(own) / steps, sum(float(trace.memory.duration_us[m]) for m in own) / steps))
    assert told == [pytest.approx(pair) for pair in expected]
    assert 0 < sum(many for many, _ in told) * steps <= len(copies)
