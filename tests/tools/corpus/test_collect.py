"""Validations become what was measured of the corpus; what is of no program is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.accuracy.corpus.measured import read_measured
from app.accuracy.corpus.programs import FIT, load_programs
from tools.corpus import collect as command
from tools.corpus.collect import collect, main


def record(folder: Path, name: str, text: str, median: float) -> None:
    body = {
        "region": text, "device": "NVIDIA H200", "date": "2026-11-24", "software": {"torch": "2.11"}, "outcome": "tie",
        "conditions": {"decided_by": "device time", "clocks": [1, 2, 3]}, "advice_after": {"tool": "skip"},
        "candidates": [{"name": "eager", "status": "ok", "time_us": {"median": median}, "kernels": [{"source": "x"}]}],
    }  # fmt: skip
    (folder / name).write_text(json.dumps(body))


def test_a_programs_validation_is_trimmed_and_named_after_it(tmp_path: Path) -> None:
    program = load_programs(FIT)[0]
    record(tmp_path, "a.json", program.text, 12.345678)
    record(tmp_path, "b.json", "x: f32[8]\ny = x + 1\nreturn y\n", 1.0)
    (records,), others = collect(tmp_path)
    assert others == ["b.json"]
    assert (records["name"], records["region"]) == (program.name, program.text)
    assert records["candidates"][0]["time_us"] == {"median": 12.346}
    assert records["conditions"] == {"decided_by": "device time"}
    assert "kernels" not in records["candidates"][0]
    assert "advice_after" not in records


def test_the_command_adds_counts_and_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "measured.jsonl.gz"
    monkeypatch.setattr(command, "FILE", file)
    monkeypatch.setattr(command, "read_measured", lambda: read_measured(file))
    folder = tmp_path / "records"
    folder.mkdir()
    first, second = load_programs(FIT)[:2]
    record(folder, "a.json", first.text, 1.0)
    assert main([str(folder)]) == 0
    record(folder, "b.json", second.text, 2.0)
    record(folder, "c.json", "return 1", 2.0)
    assert main([str(folder)]) == 1
    told = capsys.readouterr()
    assert told.out.split() == ["fit", "NVIDIA", "H200", "1", "fit", "NVIDIA", "H200", "2"]
    assert "c.json: no program of the corpus" in told.err
    assert {r["name"] for r in read_measured(file)} == {first.name, second.name}
