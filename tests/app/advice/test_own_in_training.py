"""A region in training is advised the kernel of ours that was timed fastest, and one that nobody timed has to be sure.

The measurements are those of the regions that were launched as advised on an H200: tests/records/launched-h200.json.
"""

from __future__ import annotations

import json

import pytest

from app.advice.model import Advice
from app.advice.rule import advise
from app.analysis.analyze import AdviceContext, prepare
from app.estimate import predict
from kernels.host import Host, probe_host
from profiler.region.language.text import parse
from profiler.region.model import Workload
from tests.app.estimate.test_own_in_training import facts_of, h200
from tests.conftest import ROOT

LAUNCHED = json.loads((ROOT / "tests" / "records" / "launched-h200.json").read_text(encoding="utf-8"))["regions"]
TRAINED = ("loss-nll", "loss-cross-entropy", "loss-by-hand", "rms-norm-training", "layer-norm-training")
NORM = "x: {d}[{rows}, {n}].requires_grad\nw: {d}[{n}].requires_grad\nreturn rms_norm(x, [{n}], w, 1e-06)\n"


def advice_on(text: str, *packages: str) -> Advice:
    host = Host("NVIDIA H200", (9, 0), {}, frozenset({"torch", "triton", *packages}), probe_host().features)
    use = Workload(share_of_step=1.0)
    return advise(prepare(parse(text), use, h200(), AdviceContext(host=host)).facts, use, h200())


@pytest.mark.parametrize("packages", [(), ("liger_kernel", "flag_gems")], ids=["torch alone", "with libraries"])
@pytest.mark.parametrize("name", TRAINED)
def test_a_region_in_training_is_advised_the_kernel_of_ours_that_was_timed_fastest(
    name: str, packages: tuple[str, ...]
) -> None:
    times = {n: c["time_us"]["median"] for n, c in LAUNCHED[name]["candidates"].items() if "time_us" in c}
    fastest = min(times, key=lambda n: times[n])
    assert fastest.startswith("triton:")
    advice = advice_on(LAUNCHED[name]["text"], *packages)
    assert (advice.tool, f"triton:{advice.mode}") == ("triton", fastest)


@pytest.mark.parametrize("name", TRAINED)
def test_the_range_of_our_kernel_holds_what_it_was_measured_to_take(name: str) -> None:
    own = LAUNCHED[name]["best"]
    measured = LAUNCHED[name]["candidates"][own]["time_us"]["median"]
    (predicted,) = (a for a in advice_on(LAUNCHED[name]["text"]).alternatives if a.candidate == own)
    assert predicted.time_us is not None
    assert predicted.time_us.low <= measured <= predicted.time_us.high


def test_rows_of_another_length_than_any_that_was_timed_are_not_read_off() -> None:
    recorded = {
        n: predict.own_recorded(facts, next(k for k in facts.kernels if k.candidate == "triton:rms_norm"))
        for n in (256, 4096, 16384, 65536)
        if (facts := facts_of(NORM.format(d="bf16", rows=8192, n=n)))
    }
    assert recorded == {256: False, 4096: True, 16384: True, 65536: True}


def test_a_part_of_a_region_is_not_read_off_since_its_backward_is_in_no_row() -> None:
    facts = facts_of(NORM.format(d="bf16", rows=8192, n=4096).replace("return ", "y = ") + "return y.tanh() @ x.t()\n")
    parts = [k for k in facts.kernels if k.part is not None]
    assert parts
    assert not any(predict.own_recorded(facts, k) for k in parts)


def test_our_kernels_range_is_wider_with_gradients_than_without() -> None:
    spans = []
    for text in (NORM, NORM.replace(".requires_grad", "")):
        facts = facts_of(text.format(d="bf16", rows=8192, n=16384))
        predicted = predict.own(facts, h200(), next(k for k in facts.kernels if k.candidate == "triton:rms_norm"))
        assert predicted is not None
        spans.append(predicted.time_us.high / predicted.time_us.low)
    assert spans[0] > 1.1 * spans[1]
