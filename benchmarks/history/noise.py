"""Run-to-run noise of an H200, from regions that were validated twice: tests/records/validations-h200.json.

Both runs of a region timed the same candidates, in other processes and minutes or hours apart. Of each candidate that
both timed, the logarithm of the two medians' ratio over the root of 2 is one draw of a run's noise; the bootstrap
interval of each median, its width over 2 * 1.96, is what the samples within the run leave open.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

RECORD = Path(__file__).resolve().parents[2] / "tests" / "records" / "validations-h200.json"
INTERVAL_SDS = 2 * 1.96


@dataclass(frozen=True, slots=True)
class Pair:
    """One candidate of one region, timed in two runs. noise: of one run, signed; within: standard error of a median."""

    region: str
    noise: float
    within: float


def read_pairs(path: Path = RECORD) -> list[Pair]:
    """Every candidate that both runs timed."""
    pairs = []
    for region, (one, other) in sorted(json.loads(path.read_text(encoding="utf-8"))["regions"].items()):
        for name, candidate in one["candidates"].items():
            times = [c["time_us"] for c in (candidate, other["candidates"].get(name, {})) if c.get("time_us")]
            if len(times) < 2:
                continue
            within = [math.log(t["high"] / t["low"]) / INTERVAL_SDS for t in times]
            noise = math.log(times[1]["median"] / times[0]["median"]) / math.sqrt(2)
            pairs.append(Pair(region, noise, math.sqrt(sum(w * w for w in within) / 2)))
    return pairs


def halves(pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Every other region by name: those by which parameters were chosen, and those by which they are judged."""
    names = sorted({pair.region for pair in pairs})
    chosen = set(names[::2])
    return [p for p in pairs if p.region in chosen], [p for p in pairs if p.region not in chosen]


def figures(pairs: Sequence[Pair]) -> Mapping[str, float | int]:
    """What the noise is, as shares: both parts by their root mean square, and the whole by quantiles of |noise|."""
    noise = np.array([pair.noise for pair in pairs])
    total = float(np.mean(noise**2))
    within = float(np.mean([pair.within**2 for pair in pairs]))
    size = np.abs(noise)
    return {
        "regions": len({pair.region for pair in pairs}),
        "pairs": len(pairs),
        "run": round(math.sqrt(total), 5),
        "within_run": round(math.sqrt(within), 5),
        "between_runs": round(math.sqrt(max(0.0, total - within)), 5),
        **{f"p{q}": round(float(np.quantile(size, q / 100)), 5) for q in (50, 75, 90, 95, 99)},
    }
