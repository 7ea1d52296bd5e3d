"""What a run applies beside what is followed together, and what it says was predicted of that."""

from __future__ import annotations

import pytest

from benchmarks.traces.applied import followed_of, predicted_of
from tests.app.trace_report.reports import reported


def test_what_is_not_followed_is_applied_alone_and_in_the_place_that_it_stands_in() -> None:
    answer = followed_of(reported("timm_resnet50_train_fp32.json.gz"))
    actions = {a["option"]: a for a in answer["actions"]}
    others = {a["what"]: a["predicted_us"] for a in answer["alternatives"]}
    assert actions["bf16"]["adds_us"] is None and actions["bf16"]["saves_us"]
    assert others["bf16"] == actions["bf16"]["step_time_us"]
    together = next(what for what in others if what.endswith("+bf16"))
    assert set(together.split("+")) == {*answer["followed"], "bf16"}
    assert others[together]["mid"] < min(others["bf16"]["mid"], answer["predicted_us"]["mid"])
    replaced = actions["compile-model"]
    assert replaced["instead_of"] == "cuda-graphs" and "compile-model" in others
    assert not any({"compile-model", "cuda-graphs"} <= set(what.split("+")) for what in others)


def test_each_way_has_its_own_prediction() -> None:
    answer = followed_of(reported("timm_resnet50_train_fp32.json.gz"))
    assert predicted_of(answer, "+".join(answer["followed"])) == answer["predicted_us"]
    assert predicted_of(answer, "bf16") == pytest.approx(answer["alternatives"][0]["predicted_us"])
    assert predicted_of(answer, "no such option") is None
