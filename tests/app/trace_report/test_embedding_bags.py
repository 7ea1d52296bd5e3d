"""Embedding bags that a recommender runs eagerly are priced, and find FBGEMM's table batch: from a trace that has them,
recorded here of the CPU's operations with stand-ins for the kernels."""

from __future__ import annotations

import ast
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


def in_modes(told: Json, *modes: tuple[str, float]) -> list[Json]:
    """The regions with its bag in each of these modes, as written, so many times a step; "" for a text without one."""
    (bag,) = bags(told)
    made = [
        {**bag, "text": bag["text"].replace(", mode='sum'", f", mode='{m}'" if m else ""), "calls_per_step": n}
        for m, n in modes
    ]
    return [r for r in told["regions"] if r is not bag] + made


def batched(told: Json, *modes: tuple[str, float]) -> list[table_batch.Option]:
    step = step_of({**told, "regions": in_modes(told, *modes)})  # type: ignore[arg-type,typeddict-item]
    assert step is not None
    return table_batch.table_batch(step)


def test_bags_that_pool_in_two_ways_are_two_modules(told: Json) -> None:
    (both,) = batched(told, ("sum", 14.0), ("mean", 12.0))
    assert "y_mean = bags_mean(" in both.call and "y_sum = bags_sum(" in both.call
    assert both.call.count("PoolingMode.MEAN") == both.call.count("PoolingMode.SUM") == 1
    assert both.because.startswith("26 embedding bags") and "each way of pooling (mean and sum)" in both.because
    ast.parse(both.call)
    (one,) = batched(told, ("sum", 26.0))
    assert both.change is not None and one.change is not None
    fewest = [min(left.mid for left in o.change.launches.values()) for o in (both, one) if o.change is not None]
    assert fewest[0] > fewest[1]  # two modules launch twice as much


def test_a_text_without_a_mode_takes_the_mean(told: Json) -> None:
    (option,) = batched(told, ("", 26.0))
    assert "PoolingMode.MEAN" in option.call and "PoolingMode.SUM" not in option.call


def test_one_table_that_pools_in_another_way_stays_as_it_is(told: Json) -> None:
    (option,) = batched(told, ("sum", 25.0), ("mean", 1.0))
    assert option.because.startswith("25 embedding bags") and "PoolingMode.MEAN" not in option.call
    assert batched(told, ("sum", 1.0), ("mean", 1.0)) == []
    assert batched(told, ("max", 26.0)) == []
