"""What holds for every region, found by trying many."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.advice.rule import advise
from profiler.hardware import DEVICES
from profiler.region.model import Workload
from tests.app.advice.cases import broken_chain, chain, cover, product, region

SHARES = st.floats(0, 1)
SHAPES = st.one_of(
    st.builds(
        chain, st.floats(0.001, 5000), st.integers(1, 80), st.sampled_from(["pointwise", "softmax", "reduction"])
    ),
    st.builds(
        product, st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 9000), st.sampled_from(["bf16", "f32"])
    ),
    st.builds(broken_chain, st.floats(0.01, 2000)),
)
COVERS = st.lists(
    st.builds(
        cover, st.sampled_from(["torch.softmax", "quack.softmax", "liger_kernel.rms_norm", "vllm.marlin_gemm"]),
        covers=st.booleans(), already=st.booleans(), installed=st.booleans(), whole=st.booleans(),
        conditions=st.just((("sm_90", None), ("bf16", True))),
    ),
    max_size=3,
)  # fmt: skip
FACTS = st.builds(
    lambda shapes, covers, more: region(*shapes, covers=tuple(covers), **more),
    st.lists(SHAPES, max_size=3),
    COVERS,
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["pointwise", "gemm", "attention", "softmax", "optimizer", "other", "convolution"]),
            "by_hand": st.booleans(), "requires_grad": st.booleans(), "compiled": st.booleans(),
            "communication": st.booleans(), "waits_for_host": st.booleans(),
            "quantised": st.sampled_from(["", "u8", "f8e4m3"]), "gemm_rows": st.sampled_from([None, 1, 4096]),
            "needs": st.sampled_from([(), ("grid-wide",)]), "bound": st.sampled_from([None, "memory", "compute"]),
            "fuses": st.sampled_from([None, True, False]), "irregularity": st.sampled_from([None, 0.0, 0.9]),
            "gpu_idle_share": st.sampled_from([None, 0.1, 0.95]), "mean_kernel_us": st.sampled_from([None, 2.0, 90.0]),
        }
    ),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(FACTS, st.one_of(st.none(), SHARES), st.sampled_from(DEVICES), st.sampled_from(["time", "memory"]))
def test_advice_hangs_together(facts, share, device, objective):
    advice = advise(facts, Workload(share_of_step=share), device, objective=objective)
    for span in (advice.region_speedup, advice.step_speedup, *(a.time_us for a in advice.alternatives)):
        if span is not None:
            assert 0 < span.low <= span.mid <= span.high < float("inf")
    assert advice.headline
    assert advice.action
    if share is not None and share < 0.01 and not (facts.gpu_idle_share and facts.gpu_idle_share > 0.5):
        assert advice.tool == "skip"
    if share is None:
        assert any("share of the step is not known" in n for n in advice.notes)


@settings(max_examples=150, deadline=None)
@given(FACTS, SHARES, SHARES)
def test_a_larger_share_never_turns_a_tool_into_skip(facts, one, other):
    less, more = sorted((one, other))
    device = DEVICES[3]
    before = advise(facts, Workload(share_of_step=less), device)
    after = advise(facts, Workload(share_of_step=more), device)
    if before.tool != "skip":
        assert after.tool != "skip"


@settings(max_examples=60, deadline=None)
@given(SHAPES, st.sampled_from(DEVICES))
def test_more_memory_rate_never_makes_anything_slower(shape, device):
    from dataclasses import replace

    faster = replace(device, memory_rate=device.memory_rate * 2, measured_copy_rate=device.copy_rate * 2)
    before, after = (advise(region(shape), Workload(), on) for on in (device, faster))
    # Where the host comes to set the pace, times are another thing: those of back-to-back calls, not the device's.
    assume(_is_host_bound(before) == _is_host_bound(after))
    slow = {a.candidate: a.time_us.mid for a in before.alternatives if a.time_us}
    fast = {a.candidate: a.time_us.mid for a in after.alternatives if a.time_us}
    assert all(fast[name] <= time * (1 + 1e-9) for name, time in slow.items() if name in fast)


def _is_host_bound(advice) -> bool:
    return next(c.holds for c in advice.criteria if c.name == "kernel-problem") is False
