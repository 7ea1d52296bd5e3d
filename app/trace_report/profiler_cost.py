"""How much faster a step's host is when no profiler records it: what saves host time saves less of such a step.

A profiler writes down every operation, call and launch, and takes its time from the host. What the GPU takes stays.
"""

from __future__ import annotations

from app.objects.common import Range
from profiler.trace.model import NONE, Trace

SLOWS: Range = {"low": 1.7, "mid": 2.0, "high": 2.8}
"""By how many times torch.profiler slows the host, shapes recorded: eager steps of eight models on H200s that the host
paces under it, with it and without (tests/records/applied-h200.json, by which these were
chosen; a test holds them to it)."""
WITH_STACKS: Range = {"low": 1.0, "mid": 1.3, "high": 1.7}
"""By how many times more with Python's stacks. Found between 0.9 and 1.1 times for four of these models
(in-sample)."""

WITH_MODULES: Range = {"low": 2.8, "mid": 4.0, "high": 4.9}
"""By how many times in all with with_modules=True, as a trace's header says, with stacks or without. In-sample: of the
ten models of tests/records/program-h200.json, which were timed without the profiler and with all three, the host-paced
ones lie between 3.6 and 4.9 (a test holds them to it); the low end is 1.7 times what shapes take, as three pairs of
recorded traces have it (gpt2_train_autocast_eager, handrolled_blocks_bf16_eager, llama_prefill_bf16_eager)."""


def profiler_slows(trace: Trace) -> Range | None:
    """By how many times the recording slowed the host; None for what torch.profiler did not record, or nobody."""
    if trace.predicted is not None or not bool((trace.ops.external_id != NONE).any()):
        return None
    if trace.with_modules:
        return {**WITH_MODULES}
    if not trace.has_stacks:
        return {**SLOWS}
    more = WITH_STACKS
    return {"low": more["low"] * SLOWS["low"], "mid": more["mid"] * SLOWS["mid"], "high": more["high"] * SLOWS["high"]}
