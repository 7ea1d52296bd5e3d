"""Embedding bags that a recommender runs eagerly are priced, and find FBGEMM's table batch: from a trace that has them,
recorded here of the CPU's operations with stand-ins for the kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from app.trace_report.actions import table_batch
from app.trace_report.report import report
from app.trace_report.speedup import with_actions
from app.trace_report.step_model import step_of
from benchmarks.traces.applied import WAYS, recorded_us
from benchmarks.traces.applied_models import recommender
from kernels import host
from tests.app.trace_report.reports import recording_host

Json = dict[str, Any]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Json:
    model, step = recommender(True, "cpu")
    path = tmp_path_factory.mktemp("bags") / "recommender.json"
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        step(model)
        recorded_us(lambda: step(model), "cpu", path, **WAYS["shapes"])
    finally:
        torch.set_num_threads(before)
    known = list(host._assumed)
    host.assume(recording_host())
    try:
        return report(path, "recommender")  # type: ignore[return-value]
    finally:
        host._assumed[:] = known


def bags(told: Json) -> list[Json]:
    return [r for r in told["regions"] if "embedding_bag" in (r["text"] or "")]


def test_bags_of_a_trace_are_priced_with_their_backward(told: Json) -> None:
    (bag,) = bags(told)
    assert bag["calls_per_step"] == 26.0 and bag["text"].count("requires_grad") == 1
    assert "offsets(256)" in bag["text"] and "mode='sum'" in bag["text"]
    times = {a["candidate"]: a["time_us"] for a in bag["advice"]["alternatives"]}
    for candidate in ("eager", "compile", table_batch.CANDIDATE):
        assert times[candidate] is not None and times[candidate]["mid"] > 0.0, candidate
    assert any("table-batched" in note for note in bag["advice"]["notes"])


def test_the_step_says_that_its_tables_are_worth_one_kernel(told: Json) -> None:
    (note,) = [n for n in told["notes"] if "FBGEMM" in n["message"]]
    assert note["code"] == "worth-installing" and "26 embedding bags of a step" in note["message"]
    assert note["remedy"].startswith("pip install fbgemm-gpu\n") and "PoolingMode.SUM" in note["remedy"]
    assert not any(a["id"] == table_batch.TABLE_BATCH for a in told["actions"])  # never advised where it is missing
    again = with_actions(told)  # type: ignore[arg-type]
    assert sum("FBGEMM" in n["message"] for n in again["notes"]) == 1


def test_where_it_is_installed_it_is_an_action_with_a_time(told: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_batch, "is_installed", lambda: True)
    again = with_actions(told)  # type: ignore[arg-type]
    (action,) = [a for a in again["actions"] if a["id"] == table_batch.TABLE_BATCH]
    assert action["tool"] == "library" and action["saves_us"]["mid"] > 0.0 and action["adds_us"] is None
    assert not any("FBGEMM" in n["message"] for n in again["notes"])


def test_one_table_is_no_batch(told: Json) -> None:
    one = [{**r, "calls_per_step": 1.0} if "embedding_bag" in (r["text"] or "") else r for r in told["regions"]]
    step = step_of({**told, "regions": one})  # type: ignore[arg-type,typeddict-item]
    assert step is not None and table_batch.table_batch(step) == []
