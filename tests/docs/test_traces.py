"""docs/traces.md is what the code says of the recorded traces today."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from kernels.host import Host
from tests.app.trace_report.reports import recording_host, reported
from tests.conftest import DATA
from tests.profiler.region.mined import mined
from tools.docs import text_coverage, trace_table
from tools.docs.text_coverage import Lack, TextCoverage, coverage_of, files, summary, table

TRACES = DATA / "traces"


def test_the_page_is_up_to_date(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As the command says it, with the reports that other tests have made as well."""
    hosts: list[Host] = []

    def report_as_assumed(path: Path, name: str) -> dict[str, object]:
        assert (path, hosts) == (TRACES / name, [recording_host()])
        return reported(name)

    monkeypatch.setattr(trace_table, "assume", hosts.append)
    monkeypatch.setattr(trace_table, "report", report_as_assumed)
    covered = [coverage_of(p.name, *mined(p.name)) for p in files(TRACES)]
    monkeypatch.setattr(trace_table, "coverages", lambda: covered)
    monkeypatch.setattr(sys, "argv", ["trace_table", "--check"])
    assert trace_table.main() == 0, capsys.readouterr().out
    monkeypatch.setattr(trace_table, "TOP", trace_table.TOP + 1)
    monkeypatch.setattr(trace_table, "read", lambda: {name: reported(name) for name in trace_table.names()})
    assert trace_table.main() == 1
    assert "is stale: python -m tools.docs.trace_table" in capsys.readouterr().out


def test_every_trace_of_the_manifests_first_table_is_on_it() -> None:
    there = {p.name for p in TRACES.glob("*.json.gz") if ".et." not in p.name}
    elsewhere = ("hta_", "tl_", "kineto_", "param_")
    assert set(trace_table.names()) == {name for name in there if not name.startswith(elsewhere)}
    page = trace_table.PAGE.read_text()
    for name in trace_table.names():
        assert f"\n## {name.removesuffix('.json.gz')}\n" in page


def _row(name: str, kernels_us: float, text_us: float, rest_us: float = 0.0, *lacks: Lack) -> TextCoverage:
    return TextCoverage(name, True, kernels_us, text_us, rest_us, lacks)


def test_the_share_with_a_text_is_of_kernel_time_and_traces_count_alike() -> None:
    lacks = Lack("no sizes", 400.0, ("GEMM", "GEMM", "sum")), Lack("odd", 4.0, ("add",))
    rows = [
        _row("half.json.gz", 1_000.0, 500.0, 0.0, *lacks),
        _row("graph.json.gz", 9_000.0, 0.0, 9_000.0), _row("none.json", 0.0, 0.0),
    ]  # fmt: skip
    lines = table(rows).splitlines()
    assert lines[2:4] == [
        "| half | 1.00 | 50.0 % |  | GEMM and 1 more 40.0 %: no sizes |", "| graph | 9.00 | 0.0 % | 100.0 % |  |",
    ]  # fmt: skip
    assert "none" not in table(rows)
    assert "Mean of 2 traces: 25.0 %" in summary(rows)
    assert "75.0 % of the kernel time that operations are behind" in summary(rows)


def test_what_an_earlier_commit_gave_has_a_column_next_to_todays(tmp_path: Path) -> None:
    kept = tmp_path / "before.json"
    then = [_row("half.json.gz", 2_000.0, 500.0), _row("none.json", 0.0, 0.0), _row("gone.json.gz", 10.0, 10.0)]
    text_coverage.record(kept, "0123456789abcdef", "2026-11-25", then)
    earlier = text_coverage.before(kept)
    assert earlier.shares == {"half.json.gz": 0.25, "gone.json.gz": 1.0}
    rows = [_row("half.json.gz", 1_000.0, 500.0), _row("new.json.gz", 1_000.0, 800.0)]
    lines = table(rows, earlier).splitlines()
    assert lines[0].split("|")[3:5] == [" had a text ", " has a text "]
    assert lines[2:4] == ["| half | 1.00 | 25.0 % | 50.0 % |  |  |", "| new | 1.00 |  | 80.0 % |  |  |"]
    assert (
        "commit 01234567 of 2026-11-25" in lines[-1]
        and "1 traces that are in both: 25.0 % then, 50.0 % now" in lines[-1]
    )


def test_what_was_before_is_known_of_every_trace_with_kernels() -> None:
    told = json.loads(text_coverage.BEFORE.read_text(encoding="utf-8"))
    assert set(told["traces"]) == {p.name for p in files(TRACES)}
    assert re.fullmatch("[0-9a-f]{40}", told["commit"])
    assert all(0.0 <= t["text_us"] <= t["kernel_time_us"] + 0.01 for t in told["traces"].values())
    earlier = text_coverage.before()
    for name in ("llama_decode_bf16_eager.json.gz", "gpt2_train_autocast_eager.json.gz", "tl_h100_qwen15.json.gz"):
        now = coverage_of(name, *mined(name))
        assert now.share is not None and now.share >= earlier.shares[name]


def test_kernel_time_with_and_without_a_text_and_the_rests_are_the_steps() -> None:
    for name in ("gpt2_train_autocast_eager.json.gz", "handrolled_blocks_bf16_compiled.json.gz", "hta_nccl.json.gz"):
        trace, mining = mined(name)
        covered = coverage_of(name, trace, mining)
        lacking = sum(lack.time_us for lack in covered.lacks)
        assert covered.text_us + covered.rest_us + lacking == pytest.approx(mining.kernel_time_us)
