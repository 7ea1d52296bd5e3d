"""Attention by hand that adds one mask for all heads: SDPA takes it as it is, and FlexAttention has nothing to skip."""

from __future__ import annotations

from collections.abc import Sequence

from app.advice.case import Case
from app.advice.options import Option, refuse
from app.estimate import call_time
from app.estimate.remedies import adds_shared_square

SDPA, FLEX = f"library:{call_time.SDPA}", f"library:{call_time.FLEX}"
SKIPS = "block_mask="
"""In FlexAttention's call where it leaves out blocks that a mask of positions hides."""
NOTHING_TO_SKIP = (
    "SDPA takes the whole of it, and the mask is one for all heads, which FlexAttention reads for each score without "
    "knowing what it hides"
)
MAY_BE_CAUSAL = (
    "where the mask is the causal one, is_causal=True in its place reads none and computes half of the scores"
)


def adds_shared_mask(case: Case) -> bool:
    """The region adds a square as large as its scores that all heads share: it may be the causal mask, stored."""
    shape = case.facts.heaviest
    if case.facts.kind != "attention" or shape is None or shape.launched is None:
        return False
    return any(map(adds_shared_square, shape.launched.operations))


def without_flex(judged: Sequence[Option], case: Case) -> tuple[Option, ...]:
    """FlexAttention refused where SDPA does all of such a region and is not predicted to be slower for certain.

    Rates of both with a mask stored were measured with one for every head, where FlexAttention was 1.3 times as fast
    (`app.estimate.rates`); of one that all heads share nothing was, and the mask may be the causal one, which SDPA has
    a kernel for.
    """
    flex = next((o for o in judged if o.alternative.candidate == FLEX and o.alternative.admitted), None)
    sdpa = next((o for o in judged if o.alternative.candidate == SDPA and o.alternative.admitted), None)
    if flex is None or sdpa is None or not (sdpa.installed and sdpa.part is None) or not adds_shared_mask(case):
        return tuple(judged)
    times = flex.alternative.time_us, sdpa.alternative.time_us
    if SKIPS in flex.alternative.call or times[0] is None or times[1] is None or times[0].high < times[1].low:
        return tuple(judged)
    return tuple(refuse(o, NOTHING_TO_SKIP) if o is flex else o for o in judged)
