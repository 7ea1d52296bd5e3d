"""What fuzzing kept, run again: each input is answered or refused as documented, within its time and memory."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.fuzz import targets
from tests.fuzz.mutate import mutate
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS, Costly, Target, run_bounded

CORPUS = ROOT / "tests" / "fuzz" / "corpus"
RECORD = ROOT / "tests" / "records" / "fuzz.json"
MOST_BYTES = 300_000


def corpus(target: str) -> list[Path]:
    return sorted((CORPUS / target).iterdir())


@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs_are_answered_or_refused_as_documented(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _unpatched_afterwards(monkeypatch)
    paths = corpus(name)
    assert len(paths) >= 5
    for path in paths:
        try:
            run_bounded(TARGETS[name], path.read_bytes())
        except Exception as error:
            pytest.fail(f"{path.relative_to(ROOT)}: {error!r}")


@pytest.mark.parametrize("name", TARGETS)
def test_mutations_stay_within_their_length_and_reach_the_target(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutations of the fuzzer, forty of each, without being guided."""
    _unpatched_afterwards(monkeypatch)
    target, rng = TARGETS[name], random.Random(name)
    given = [s for s in seeds(name) if len(s) <= target.max_bytes]
    whole = 0
    for seed in range(40):
        data = mutate(target.kind, rng.choice(given), target.max_bytes, seed, lambda data, most: data[:most] or b"0")
        assert 0 < len(data) <= target.max_bytes
        whole += data not in given
        run_bounded(target, data)
    assert whole > 20


def test_an_input_that_takes_too_long_or_too_much_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(data: bytes) -> None:
        until = time.process_time() + 0.2
        while time.process_time() < until:
            pass

    def large(data: bytes) -> None:
        bytearray(b"x" * (600 * 2**20))

    with pytest.raises(Costly, match=r" bytes take [0-9]+ MiB"):
        run_bounded(Target(large, "query", 10), b"")
    run_bounded(Target(slow, "query", 10), b"")
    monkeypatch.setattr(targets, "CPU_S", 0.1)
    with pytest.raises(Costly, match=r" bytes take [0-9.]+ s"):
        run_bounded(Target(slow, "query", 10), b"")


def test_corpus_is_small() -> None:
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < MOST_BYTES


def test_record_says_an_hour_and_that_nothing_crashes_any_more() -> None:
    record = json.loads(RECORD.read_text())
    assert record["minutes"] >= 60
    assert record["minutes"] == pytest.approx(sum(r["minutes"] for r in record["runs"]), abs=0.1)
    assert {r["target"] for r in record["runs"]} == set(TARGETS)
    assert all(r["executions"] > 1000 and r["features"] > 100 and r["whole"] for r in record["runs"])
    found = {f"{target}/{name}" for target, names in record["crashes"].items() for name in names}
    assert found == {f"{p.parent.name}/{p.name}" for p in CORPUS.rglob("crash-*")}
    assert all(mended for names in record["crashes"].values() for mended in names.values())


def _unpatched_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target reads in chunks of its own size: other tests are not to."""
    from profiler.trace.read import gunzip, source, stream

    for module in (gunzip, source, stream):
        monkeypatch.setattr(module, "CHUNK_BYTES", module.CHUNK_BYTES)
    monkeypatch.setattr(stream, "_GROW_BYTES", stream._GROW_BYTES)
