"""Medians, ratios and their bootstrap intervals over rounds, and the gate against impossible times. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kernels.measure.model import Interval
from profiler.hardware import Device

RESAMPLES = 2000
CONFIDENCE = 0.95
GATE = 0.95
"""A time below this share of what the datasheet's rates allow did not do the work."""

Rounds = NDArray[np.float64]
"""One number per round: the candidate's median in it, in µs."""


def medians(rounds: Sequence[Sequence[float]]) -> Rounds:
    """The median of each round's samples, in µs."""
    return np.array([np.median(r) for r in rounds], dtype=np.float64)


def weighted(per_binding: Sequence[Rounds], calls: Sequence[float]) -> Rounds:
    """Per round, the mean time of one call over all bindings, weighted by their calls per step."""
    weights = np.asarray(calls, dtype=np.float64)
    weights = weights if weights.sum() > 0 else np.ones_like(weights)
    return np.average(np.vstack(per_binding), axis=0, weights=weights)


def interval(values: Rounds, seed: int = 0) -> Interval:
    """Median over rounds with its percentile bootstrap interval."""
    picks = values[_picks(len(values), seed)]
    return _interval(float(np.median(values)), np.median(picks, axis=1))


def ratio(values: Rounds, base: Rounds, seed: int = 0) -> Interval:
    """median(values) / median(base) with its bootstrap interval. Rounds are resampled in pairs: drift hits both."""
    chosen = _picks(len(values), seed)
    ratios = np.median(values[chosen], axis=1) / np.median(base[chosen], axis=1)
    return _interval(float(np.median(values) / np.median(base)), ratios)


def _picks(count: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, count, size=(RESAMPLES, count))


def _interval(middle: float, resampled: Rounds) -> Interval:
    low, high = np.percentile(resampled, [50 * (1 - CONFIDENCE), 100 - 50 * (1 - CONFIDENCE)])
    return Interval(middle, min(float(low), middle), max(float(high), middle))


def least_possible_us(bytes_touched: float, flops: float, matmul_dtype: str | None, device: Device) -> float:
    """µs below which a call cannot have done its work: datasheet rates, and only the bytes beyond L2.

    bytes_touched: bytes that must be read or written; flops: of the matrix units, on inputs of matmul_dtype.
    TF32 counts for f32, as convolutions may use it; a structured-sparse rate never does.
    """
    beyond = max(0.0, bytes_touched - device.l2_bytes)
    rates = {
        "f16": device.f16_rate,
        "bf16": device.bf16_rate or device.f32_rate,
        "f32": max(device.f32_rate, device.tf32_rate),
        "f8e4m3": device.f8_rate or device.f16_rate,
        "f8e5m2": device.f8_rate or device.f16_rate,
        "f4e2m1x2": device.f4_rate or device.f8_rate or device.f16_rate,
    }
    # An unlisted type (int8, f64) is held to the fastest rate of all: never a false alarm.
    rate = rates.get(matmul_dtype or "", max(device.f4_rate, device.f8_rate, device.f16_rate))
    return max(beyond / device.memory_rate, flops / rate if flops and rate else 0.0) * 1e6


def impossible(time_us: float, least_us: float) -> bool:
    """The time is below 0.95 of the least possible."""
    return time_us < GATE * least_us
