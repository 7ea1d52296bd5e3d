"""Numbers as people read them: µs, bytes, shares and factors with a sensible count of digits. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MISSING = "–"


def digits(value: float, significant: int = 3) -> str:
    """The value with so many significant digits, thousands separated, without an exponent."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return MISSING
    places = max(0, significant - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if places and significant > 3 else text


def duration(value_us: float | None) -> str:
    """A time given in µs, in the unit that keeps it between 1 and 1000."""
    if value_us is None:
        return MISSING
    size = abs(value_us)
    if size < 1 and size > 0:
        return f"{digits(value_us * 1e3)} ns"
    if size < 1e3:
        return f"{digits(value_us)} µs"
    if size < 1e6:
        return f"{digits(value_us / 1e3)} ms"
    return f"{digits(value_us / 1e6)} s"


def amount(value: float | None, unit: str = "B") -> str:
    """Bytes or FLOPs in decimal prefixes (1 GB = 1e9 B)."""
    if value is None:
        return MISSING
    for prefix, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale:
            return f"{digits(value / scale)} {prefix}{unit}"
    return f"{value:,.0f} {unit}"


def share(value: float | None) -> str:
    """A share, 0 to 1, as per cent."""
    if value is None:
        return MISSING
    percent = value * 100
    if percent and abs(percent) < 0.1:
        return "< 0.1 %" if percent > 0 else "0 %"
    return f"{percent:.0f} %" if abs(percent) >= 99.95 or percent == round(percent) else f"{percent:.1f} %"


def percent(value: float) -> str:
    """A share, 0 to 1, as whole per cent."""
    return f"{value * 100:.0f} %"


def factor(value: float | None) -> str:
    """A speed-up: 1.19×."""
    if value is None:
        return MISSING
    return f"{value:.2f}×" if value < 10 else f"{value:.0f}×"


def span(values: Mapping[str, Any] | None, kind: str = "factor") -> str:
    """low to high of a Range or an Interval; one number where both ends read the same."""
    if not values:
        return MISSING
    show = {"factor": factor, "duration": duration, "share": share, "ratio": ratio}[kind]
    low, high = show(values["low"]), show(values["high"])
    return low if low == high else f"{low} to {high}"


def ratio(value: float | None) -> str:
    """A ratio of two times; under 1 is faster."""
    return MISSING if value is None else f"{value:.3f}" if value < 10 else f"{value:.1f}"


def plain(value: object) -> str:
    """Anything a Criterion may carry as value or threshold."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    if isinstance(value, float):
        return digits(value) if abs(value) >= 1e-4 or value == 0 else f"{value:.2g}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def sentence(text: str | None) -> str:
    """With a capital letter and a full stop, as a paragraph begins and ends."""
    if not text:
        return ""
    first = text.split(maxsplit=1)[0]
    is_code = any(mark in first.rstrip(".,:;") for mark in "._(`")  # torch.compile stays as it is written
    whole = text if is_code else text[0].upper() + text[1:]
    return whole if whole[-1] in ".!?:" else whole + "."


def count(number: float, one: str, many: str = "") -> str:
    """1 step, 3 steps."""
    return f"{plain(number)} {one if number == 1 else many or one + 's'}"


def change(value: float | None, of: str) -> str:
    """Where a number of `would_change` stands: a share, a time, or the number itself."""
    if value is None:
        return "unknown"
    if of == "share_of_step":
        return share(value)
    return (
        duration(value)
        if of.endswith("_us") or ":" in of or of in ("eager", "cuda") or of.startswith("compile")
        else plain(value)
    )
