"""Under what a validation was measured, in words with units: the record's `conditions` as rows of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.units import amount, count, digits, plain

Json = Mapping[str, Any]

NAMES = {
    "before": "GPU before", "after": "GPU after", "phases_s": "Time it took", "rounds": "Rounds",
    "order_seed": "Seed of the order", "decided_by": "Decided by", "launch_bound": "Launch-bound",
    "device": "GPU", "warnings": "Warnings",
}  # fmt: skip
READINGS = (
    ("sm_clock_mhz", "clock", "MHz", "sm_clock_max_mhz"), ("memory_clock_mhz", "memory clock", "MHz", ""),
    ("temperature_c", "", "°C", ""), ("power_w", "", "W", "power_limit_w"),
)  # fmt: skip
"""What the driver reads, in the order in which it is told: key, word before, unit after, key of its limit."""


def rows(conditions: Json | None) -> list[tuple[str, str]]:
    """(name, value) of what was recorded; warnings are for the page to say first."""
    found = []
    for key, value in (conditions or {}).items():
        if key == "warnings":
            continue
        name = NAMES.get(key, key.replace("_", " ").capitalize())
        text = _condition_text(key, value)
        if text:
            found.append((name, text))
    return found


def warnings(conditions: Json | None) -> list[str]:
    """What makes the figures less certain."""
    return [str(w) for w in (conditions or {}).get("warnings") or ()]


def _condition_text(key: str, value: Any) -> str:
    if key in ("before", "after") and isinstance(value, Mapping):
        return reading(value)
    if key == "phases_s" and isinstance(value, Mapping):
        return ", ".join(f"{name} {digits(seconds)} s" for name, seconds in value.items())
    if key == "device" and isinstance(value, Mapping):
        return _device(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{k.replace('_', ' ')} {plain(v)}" for k, v in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value)) or "none"
    return plain(value)


def reading(state: Json) -> str:
    """Clocks, temperature and power of a GPU at one moment, and what held it back."""
    parts = []
    for key, word, unit, limit in READINGS:
        if state.get(key) is not None:
            most = f"of at most {plain(state[limit])}" if state.get(limit) is not None else ""
            parts.append(" ".join(p for p in (word, plain(state[key]), most, unit) if p))
    if state.get("memory_used_mib") is not None:
        parts.append(f"{amount(state['memory_used_mib'] * 2**20)} in use")
    if "throttle" in state:
        parts.append(f"slowed by {', '.join(state['throttle'])}" if state["throttle"] else "not slowed")
    if state.get("other_processes") is not None:
        others = state["other_processes"]
        parts.append(f"{count(others, 'other process', 'other processes')}" if others else "no other process")
    return ", ".join(parts)


def _device(device: Json) -> str:
    parts = [str(device["name"])] if device.get("name") else []
    if device.get("index") is not None:
        parts.append(f"number {device['index']}")
    if device.get("capability"):
        parts.append(f"capability {device['capability']}")
    if device.get("processors"):
        parts.append(count(device["processors"], "processor"))
    for key, word in (("memory_bytes", "of memory"), ("free_bytes", "free"), ("l2_bytes", "of L2")):
        if device.get(key):
            parts.append(f"{amount(device[key])} {word}")
    return ", ".join(parts)
