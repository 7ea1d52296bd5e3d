"""How far a reading is said to be: never back, never done before it is, by bytes and regions that are done."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path

import pytest

from app.trace_report.progress import TELL_EVERY_S, Progress, StageName, packed_mb, spans
from app.trace_report.report import DRAWN, stages
from profiler.trace import read_trace
from tests.conftest import ROOT
from tests.profiler.trace.files import TRACES

TRACE = ROOT / "app" / "examples" / "handrolled_blocks.json.gz"


@pytest.mark.parametrize("mb", [0.0, 0.04, 4.0, 500.0])
def test_the_stages_fill_the_whole_one_after_the_other(mb: float) -> None:
    of_all = list(spans(mb).values())
    assert of_all[0][0] == 0.0
    assert of_all[-1][1] == pytest.approx(1.0)
    assert [end for _, end in of_all[:-1]] == [begin for begin, _ in of_all[1:]]
    assert all(begin < end for begin, end in of_all)


def test_a_large_file_is_read_for_a_larger_part_of_the_whole() -> None:
    parts = [spans(mb)["reading"] for mb in (0.04, 4.0)]
    assert parts[0][1] < parts[1][1]


def test_a_share_never_shrinks_where_a_file_is_read_a_second_time() -> None:
    now, told = [0.0], list[tuple[str, float]]()
    progress = Progress(4.0, lambda stage, share: told.append((stage, share)), clock=lambda: now[0])
    for share in (0.0, 0.4, 0.9, 0.1, 0.5, 1.0):
        now[0] += TELL_EVERY_S
        progress.at("reading", share)
    progress.at("regions")
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert told[-1][0] == "regions", "a stage's first is told at once"


def test_it_is_not_done_before_the_end_and_little_is_told() -> None:
    now, told = [0.0], list[float]()
    progress = Progress(0.04, lambda _, share: told.append(share), clock=lambda: now[0])
    for region in range(1000):
        now[0] += TELL_EVERY_S / 10
        progress.at("advice", (region + 1) / 1000)
    assert told[-1] <= 0.99
    assert len(told) <= 100


def test_a_plain_file_counts_as_what_it_would_be_compressed(tmp_path: Path) -> None:
    plain = tmp_path / "plain.json"
    plain.write_bytes(gzip.decompress(TRACE.read_bytes()))
    assert packed_mb(TRACE) == TRACE.stat().st_size / 1e6
    assert packed_mb(TRACE) / 3 < packed_mb(plain) < packed_mb(TRACE) * 3


@pytest.mark.parametrize("packed", [True, False])
def test_all_bytes_of_a_file_are_told(tmp_path: Path, packed: bool) -> None:
    file = TRACE
    if not packed:
        file = tmp_path / "plain.json"
        file.write_bytes(gzip.decompress(TRACE.read_bytes()))
    told: list[float] = []
    read_trace(file, on_read=told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_a_reading_tells_of_each_stage_in_turn() -> None:
    told: list[tuple[str, float]] = []
    for _ in stages(TRACE, TRACE.name, tell=lambda stage, share: told.append((stage, share))):
        pass
    assert list(dict.fromkeys(stage for stage, _ in told)) == ["reading", "regions", "callers", "parts", "advice"]
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert shares[-1] < 1.0


def test_no_stage_before_the_advice_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, list[float]] = {}
    at = Progress.at

    def heard(self: Progress, stage: StageName, share: float = 0.0) -> None:
        told.setdefault(stage, []).append(share)
        at(self, stage, share)

    monkeypatch.setattr(Progress, "at", heard)
    file = TRACES / "handrolled_blocks_bf16_eager_stack.json.gz"
    next(stages(file, file.name))
    for stage in ("regions", "parts"):
        assert told[stage] == sorted(told[stage])
        # Nothing that is told of at once is a large part of the stage.
        assert max(after - before for before, after in pairwise(told[stage])) <= 0.2, stage
    assert sum(DRAWN < share < 1.0 for share in told["parts"]) > 50
