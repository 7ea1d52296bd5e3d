"""The file: the same traces give the same bytes; what is told of it are counts and sources, no text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.accuracy.corpus.programs import read_corpus
from tests.tools.corpus.recorded import recorded
from tools.corpus import build
from tools.corpus.dtypes import main_dtype
from tools.corpus.grammar import generate


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    quotas = {name: (block, 1) for name, (block, _) in generate.QUOTAS.items()}
    monkeypatch.setattr(generate, "QUOTAS", quotas)
    monkeypatch.setattr(build, "QUOTAS", quotas)


@pytest.mark.usefixtures("few")
def test_the_same_traces_give_the_same_bytes_and_both_origins(tmp_path: Path) -> None:
    recorded(tmp_path)
    files = [tmp_path / "one.json.gz", tmp_path / "two.json.gz"]
    for file in files:
        traces = tmp_path / "traces"
        traces.mkdir(exist_ok=True)
        recorded(traces)
        assert build.main(["--traces", str(traces), "--out", str(file)]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    programs = read_corpus(files[0]).programs
    assert {p.origin.kind for p in programs} == {"trace", "generated"}
    assert [p.name for p in programs] == sorted({p.name for p in programs})
    told = json.loads((tmp_path / "manifest.json").read_text())
    assert told["programs"] == len(programs) == sum(told["third"].values()) == sum(told["mode"].values())
    assert told["models"] == {"torch": ["handrolled"]}
    assert all(line not in json.dumps(told) for p in programs for line in p.text.splitlines() if "=" in line)


@pytest.mark.usefixtures("few")
def test_a_program_that_both_make_is_there_once() -> None:
    one = build.build(None).programs
    assert build.unique([*one, *one]) == list(one)
    assert len(one) == len(generate.QUOTAS)


@pytest.mark.parametrize(
    ("inputs", "dtype"),
    [
        ("x: bf16[64, 64]\nw: f32[8]", "bf16"),
        ("x: bf16[64]\nw: f32[64]", "f32"),
        ("i: i64[4096]\nx: f16[8]", "f16"),
        ("i: i64[4096]\nx: i8[8]", "i64"),
    ],
)
def test_the_dtype_is_that_of_most_floating_bytes(inputs: str, dtype: str) -> None:
    assert main_dtype(f"{inputs}\nreturn x + 1\n") == dtype
