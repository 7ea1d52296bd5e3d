"""A mask stored once for all heads is SDPA's; a bias of every head is FlexAttention's, which was measured faster."""

from __future__ import annotations

import pytest

from app.advice.model import Advice
from app.advice.shared_mask import FLEX, MAY_BE_CAUSAL, NOTHING_TO_SKIP
from app.analysis.analyze import AdviceContext, decide, prepare
from profiler.hardware import find_device
from profiler.region.language.text import parse
from profiler.region.model import Binding, Workload
from tests.kernels.libraries.hosts import BARE_H200

BY_HAND = """q: bf16[2, 32, 1024, 64]
k: bf16[2, 32, 1024, 64]
bias: bf16[{bias}]
v: bf16[2, 32, 1024, 64]
scores = q @ k.transpose(-2, -1)
p = softmax(scores * 0.125 + bias, dim=-1, dtype=f32)
y = p.to(bf16) @ v
return y
"""
OF_HEADS = """q: bf16[4, 16, 2048, 128]
k: bf16[4, 16, 2048, 128]
bias: bf16[16, 2048, 2048]
v: bf16[4, 16, 2048, 128]
scores = q @ k.transpose(-2, -1)
p = softmax(scores / 11.313708498984761 + bias, dim=-1)
y = p @ v
return y
"""


def advised(text: str, time_us: float) -> Advice:
    """The advice on a region that a trace saw take so long, a fifth of its step."""
    card = find_device("H200")
    assert card is not None
    workload = Workload((Binding((), 1.0, time_us),), 5 * time_us, 0.2, observed=True)
    return decide(prepare(parse(text), workload, card, AdviceContext(host=BARE_H200))).advice


@pytest.mark.parametrize("bias", ["2, 1, 1024, 1024", "1024, 1024"])
def test_a_mask_of_all_heads_goes_to_sdpa_and_may_be_the_causal_one(bias: str) -> None:
    advice = advised(BY_HAND.format(bias=bias), 784.0)
    assert "scaled_dot_product_attention(" in advice.call and "attn_mask=bias" in advice.call
    assert MAY_BE_CAUSAL in advice.notes
    flex = next(a for a in advice.alternatives if a.candidate == FLEX)
    assert not flex.admitted and NOTHING_TO_SKIP in flex.note


def test_a_bias_of_every_head_stays_with_what_was_measured_to_be_faster() -> None:
    """354.9 against 473.9 µs (H200, the Archive)."""
    advice = advised(OF_HEADS, 2077.0)
    assert advice.mode == FLEX.removeprefix("library:")
    assert MAY_BE_CAUSAL not in advice.notes
