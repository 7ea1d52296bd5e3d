"""A library that is given the logits in f32 pays for the copy, and is not priced as if it read them as they are."""

from __future__ import annotations

import json

import pytest

from app.estimate import predict
from app.estimate.facts import RegionFacts
from app.estimate.rates import FITTED
from app.estimate.widened import NONE, widening
from tests.app.estimate.test_own_in_training import facts_of, h200
from tests.conftest import ROOT

LAUNCHED = json.loads((ROOT / "tests" / "records" / "launched-h200.json").read_text(encoding="utf-8"))["regions"]
LOSS = "x: {d}[8192, 32000]{g}\nt: i64[8192].below(32000)\nreturn F.cross_entropy({x}, t)\n"


def time_us(facts: RegionFacts, call: str) -> float:
    predicted = predict.library(facts, h200(), call)
    assert predicted is not None
    return predicted.time_us.mid


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("loss-cross-entropy", "flag_gems.cross_entropy_loss"),
        ("loss-by-hand", "flag_gems.cross_entropy_loss"),
        ("loss-by-hand", "torch.nn.functional.cross_entropy"),
    ],
)
def test_a_loss_on_widened_logits_takes_about_what_it_was_measured_to(name: str, call: str) -> None:
    measured = LAUNCHED[name]["candidates"][f"library:{call}"]["time_us"]["median"]
    assert time_us(facts_of(LAUNCHED[name]["text"]), call) == pytest.approx(measured, rel=0.25)


@pytest.mark.parametrize("gradients", ["", ".requires_grad"])
@pytest.mark.parametrize("call", ["liger_kernel.cross_entropy", "flag_gems.cross_entropy_loss"])
def test_widened_logits_cost_more_than_those_of_f32(call: str, gradients: str) -> None:
    """Without gradients too: the copy is written and read, where f32 logits are only read."""
    wide = facts_of(LOSS.format(d="bf16", g=gradients, x="x.float()"))
    plain = facts_of(LOSS.format(d="f32", g=gradients, x="x"))
    assert time_us(wide, call) > 1.05 * time_us(plain, call)


def test_nothing_is_added_where_the_call_reads_them_as_they_are() -> None:
    (wide,) = facts_of(LOSS.format(d="bf16", g=".requires_grad", x="x.float()")).shapes
    (plain,) = facts_of(LOSS.format(d="f32", g=".requires_grad", x="x")).shapes
    assert widening(wide, h200(), "quack.cross_entropy", FITTED) == NONE
    assert widening(plain, h200(), "liger_kernel.cross_entropy", FITTED) == NONE
    added = widening(wide, h200(), "liger_kernel.cross_entropy", FITTED)
    assert added.forward == 2 * 8192 * 32000
    assert added.backward == 2 * added.forward
