"""Programs of traces: what the miner cut, each once, at its own sizes, with what the trace says about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.archive.program_fingerprint import fingerprint
from profiler.region.language.text import parse
from profiler.region.mining.mine import mine
from profiler.trace import read_trace
from tests.tools.corpus.recorded import recorded
from tools.corpus import mined
from tools.corpus.mined import MIN_US, MinedProgram, at_sizes, joined, mined_programs, programs_of


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("traces"))


@pytest.fixture(scope="module")
def programs(trace: Path) -> list[MinedProgram]:
    return mined_programs(trace.parent)


def test_the_programs_are_the_miners_regions_that_compute(trace: Path, programs: list[MinedProgram]) -> None:
    regions = [r for r in mine(read_trace(trace)).regions if r.text is not None]
    texts = {fingerprint(at_sizes(r.text or "", dict(s.sizes)), "same") for r in regions for s in r.shapes}
    chosen = {fingerprint(p.text, "same") for p in programs}
    assert len(chosen) == len(programs) >= 3
    assert chosen <= texts
    assert {"attention", "rms_norm"} <= {p.kind for p in programs}
    assert "copy" not in {p.kind for p in programs}


def test_a_program_has_no_symbols_and_costs_what_the_trace_says(trace: Path, programs: list[MinedProgram]) -> None:
    attention = next(p for p in programs if p.kind == "attention")
    region = next(r for r in mine(read_trace(trace)).regions if r.kind == "attention")
    for program in programs:
        assert not parse(program.text).symbols
        assert program.source.time_us >= MIN_US
        assert "H200" in program.source.device
    assert attention.source.time_us == pytest.approx(region.time_us_per_step / region.calls_per_step, rel=1e-3)


def test_short_regions_are_left_out(trace: Path, programs: list[MinedProgram], monkeypatch: pytest.MonkeyPatch) -> None:
    longest = max(p.source.time_us for p in programs)
    monkeypatch.setattr(mined, "MIN_US", longest)
    assert [p.source.time_us for p in programs_of(trace)] == [longest]


def test_sizes_take_the_place_of_symbols_and_of_nothing_else() -> None:
    text = "N: sizes[4, 8]\nM: sizes[6, 2]\nx: f32[N, M]\nMN: f32[M]\ny = x.view(M, N).t() + MN\nreturn y\n"
    assert at_sizes(text, {"N": 8, "M": 2}) == "x: f32[8, 2]\nMN: f32[2]\ny = x.view(2, 8).t() + MN\nreturn y\n"


def test_a_program_of_two_models_is_one_with_both(programs: list[MinedProgram]) -> None:
    one = programs[0]
    costlier = replace(one.source, model="other", calls=one.source.calls + 1)
    other = replace(one, source=costlier, models=frozenset({"other"}))
    both = joined(one, other)
    assert both == joined(other, one)
    assert (both.source.model, both.models) == ("other", frozenset({"handrolled", "other"}))
