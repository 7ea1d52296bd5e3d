"""Two recordings of one attention: its order told by a flag in one, by a stored mask in the other. Pure functions.

Some models store their causal mask when torch.compile traces them, and SDPA's fastest kernels take none: the compiled
step then spends in attention what it saves elsewhere, and only the other recording shows what the mask hides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.objects.region import AnyRegion
from app.units import duration

CALL = re.compile(r"scaled_dot_product_\w*attention\(")
QUERY = re.compile(r"^q: \w+\[([\d, ]+)\]", re.MULTILINE)
CAUSAL, MASKED = "is_causal=True", "attn_mask="
WORTH = 1.05
"""How many times as long the masked one takes from where on it is worth a sentence."""


@dataclass(frozen=True, slots=True)
class _Called:
    """One region that calls SDPA: its queries' sizes, the flags of the call, its time in a step."""

    queries: str
    causal: bool
    masked: bool
    time_us: float


def masked_in_one(left: Sequence[AnyRegion], right: Sequence[AnyRegion], names: tuple[str, str]) -> str:
    """What to say of attention that is causal by its flag in one trace and reads a mask in the other, else ""."""
    for first, second in ((0, 1), (1, 0)):
        flagged, stored = (list(_calls((left, right)[i])) for i in (first, second))
        for a in flagged:
            b = next((s for s in stored if s.masked and s.queries == a.queries), None)
            if a.causal and not a.masked and b is not None and b.time_us > WORTH * a.time_us:
                return (
                    f"Attention that is causal by its flag in {names[first]} ({duration(a.time_us)}) reads a stored "
                    f"mask in {names[second]} ({duration(b.time_us)}): where the mask holds no more than that order, "
                    "pass is_causal=True there and no mask."
                )
    return ""


def _calls(regions: Sequence[AnyRegion]) -> Iterator[_Called]:
    for region in regions:
        text = region["text"] or ""
        queries = QUERY.search(text)
        if queries is not None and CALL.search(text):
            time_us = float(region.get("time_us_per_step") or 0.0)
            yield _Called(queries[1], CAUSAL in text, MASKED in text, time_us)
