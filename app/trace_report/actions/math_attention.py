"""Attention that F.scaled_dot_product_attention computes step by step: none of its fast kernels takes what it got."""

from __future__ import annotations

from collections.abc import Sequence

from app.estimate import call_time
from app.trace_report.actions.model import Option, alternative_left
from app.trace_report.step_model import Change, Step, busy_us
from app.units import count, share
from profiler.trace.model import NONE, Trace

MATH = "_scaled_dot_product_attention_math"
"""The operation that PyTorch falls back to (aten/native/transformers/attention.cpp)."""
WORTH = 0.02
"""Of the kernels' time, from which it is told."""
CALL = (
    "bias = bias.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2]).contiguous(); "
    "y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)"
)
MODE = "sdpa"
SDPA = f"library:{call_time.SDPA}"


def called_within(trace: Trace, ops: Sequence[int]) -> tuple[str, ...]:
    """(MATH,) where one of these operations runs inside that fallback; () elsewhere."""
    for op in ops:
        while op != NONE:
            if trace.names[int(trace.ops.name[op])].endswith(MATH):
                return (MATH,)
            op = int(trace.ops.parent[op])
    return ()


def fast_kernels(step: Step) -> list[Option]:
    """One option for all attention that runs by the fallback; its time where the region's call has one."""
    places = tuple(i for i, r in enumerate(step.regions) if (s := r.get("source")) is not None and MATH in s["ops"])
    spent = sum(busy_us(step.regions[i]) for i in places)
    if not places or spent < WORTH * step.parts["kernels_us"]:
        return []
    time = {i: left for i in places if (left := alternative_left(step.regions[i], SDPA)) is not None}
    because = (
        f"{count(len(places), 'region')} of attention, {share(spent / step.parts['kernels_us'])} of the kernels' time, "
        f"run by aten::{MATH}, in f32 and with all scores stored, though they call SDPA: its fast kernels refuse what "
        "they get, most often a bias that is broadcast over the batch and has a gradient. Expanded, the "
        "memory-efficient kernel takes it; with torch.nn.attention.sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION) around "
        "the call PyTorch warns why it does not"
    )
    return [
        Option(
            "sdpa-math", "library", MODE, "Give SDPA's bias the form that its fast kernels take", CALL, because,
            {"kind": "predicted", "text": "from the call's predicted time over that of the steps" if time
             else "no time is predicted"},
            Change(time=time, own=True) if time else None, places, scope_is_step=False,
        )
    ]  # fmt: skip
