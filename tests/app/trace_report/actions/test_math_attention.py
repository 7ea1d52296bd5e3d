"""Attention that falls back to PyTorch's own steps is found by the operation around them, and its cure named once."""

from __future__ import annotations

import pytest

from app.trace_report.actions.math_attention import MATH
from tests.app.trace_report.reports import reported


@pytest.mark.parametrize(("name", "falls_back"), [
    ("t5_train_autocast_eager.json.gz", True),
    ("llama_eager_attention_prefill.json.gz", False),  # written out in the model
])  # fmt: skip
def test_only_what_sdpa_itself_computes_by_steps_is_told_of(name: str, falls_back: bool) -> None:
    told = reported(name)
    actions = [a for a in told["actions"] if a["id"] == "sdpa-math"]
    assert bool(actions) == falls_back
    places = [r["key"] for r in told["regions"] if MATH in r["source"]["ops"]]
    assert bool(places) == falls_back
    for action in actions:
        assert action["regions"] == places
        assert "attn_mask=bias" in action["call"]
        compile(action["call"], "advice", "exec")
