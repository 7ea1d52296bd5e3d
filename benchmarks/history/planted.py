"""Planted changes in synthetic histories of 500 runs, at the noise of an H200: what is told, when, and as what.

    python -m benchmarks.history.planted [--seeds N]

writes tests/records/history.json and the tables of docs/history.md. Parameters of `app.history` were chosen with the
first half of the regions that the noise is of and other seeds; the record is of the second half.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from app.history.noise import Logs
from app.history.shifts import USUAL
from benchmarks.history.causes import PLANTED, told_as
from benchmarks.history.detectors import DETECTORS, Alarms
from benchmarks.history.noise import Pair, figures, halves, read_pairs

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "tests" / "records" / "history.json"
PAGE = ROOT / "docs" / "history.md"
MODELS = ("one candidate", "one region", "all")
"""Of noise, see `noises`."""
WORKERS = 4
RUNS = 500
CHANGES = 4
SIZES = (0.0, 0.02, 0.05, 0.10)
PATIENCE_RUNS = 60
"""An alarm in the right direction up to so many runs after a change tells of it; any other is false."""
GAP_RUNS = 3
"""Alarms in one direction with no more runs between them are one."""
FIRST_SEED = 1000
OUTLIER_SHARE, OUTLIER = 0.01, (0.05, 0.30)
"""Of the robustness row: so many runs are slower by so much, which nobody measured."""


def noises(model: str, pairs: Sequence[Pair], seed: int, series: int) -> list[tuple[Logs, list[float]]]:
    """(noise, standard errors of the runs' medians) of so many series of 500 runs.

    "one candidate": each series has the noise of one pair, normal. "one region": drawn from all pairs of a region,
    either sign. "all": from all pairs, the longest tail of the three.
    """
    made = []
    regions = sorted({pair.region for pair in pairs})
    for number in range(series):
        rng = np.random.default_rng([seed, number])
        region = regions[number % len(regions)]
        pool = [p for p in pairs if model == "all" or p.region == region]
        if model == "one candidate":
            pool = [pool[int(rng.integers(len(pool)))]]
        drawn = rng.integers(len(pool), size=RUNS)
        size = np.array([abs(pool[n].noise) for n in drawn])
        sign = rng.normal(size=RUNS) if model == "one candidate" else rng.choice([-1.0, 1.0], size=RUNS)
        made.append((size * sign, [pool[n].within for n in drawn]))
    return made


def plant(rng: np.random.Generator, size: float) -> list[tuple[int, float]]:
    """(run, share) of each change: up and down by turns, so that the series ends where it began."""
    if not size:
        return []
    stretch = RUNS // (CHANGES + 1)
    places = [stretch * (n + 1) + int(rng.integers(-15, 16)) for n in range(CHANGES)]
    return [(place, size if n % 2 == 0 else 1 / (1 + size) - 1) for n, place in enumerate(places)]


def events(alarms: Alarms) -> list[list[tuple[int, int]]]:
    """Alarms in one direction that follow each other are one."""
    grouped: list[list[tuple[int, int]]] = []
    for alarm in alarms:
        last = grouped[-1][-1] if grouped else None
        if last and last[1] == alarm[1] and alarm[0] - last[0] <= GAP_RUNS:
            grouped[-1].append(alarm)
        else:
            grouped.append([alarm])
    return grouped


def score(alarms: Alarms, planted: Sequence[tuple[int, float]]) -> tuple[dict[int, int], int]:
    """(change -> runs until it was told, the run of the change counted; false alarms)."""
    delays: dict[int, int] = {}
    false = 0
    for event in events(alarms):
        told = [
            (run, place) for run, sign in event for place, share in planted
            if place <= run < place + PATIENCE_RUNS and (share > 0) == (sign > 0)
        ]  # fmt: skip
        for run, place in told:
            delays.setdefault(place, run - place + 1)
        false += not told
    return delays, false


def detection(
    pairs: Sequence[Pair], seeds: Sequence[int], model: str, size: float, outliers: bool = False
) -> list[Row]:
    """A row for each detector."""
    series = len({pair.region for pair in pairs})
    counted = {name: Counted() for name in DETECTORS}
    for number, (noise, errors) in enumerate(one for seed in seeds for one in noises(model, pairs, seed, series)):
        rng = np.random.default_rng([seeds[0], number, round(size * 100)])
        planted = plant(rng, size)
        logs = noise.copy()
        for place, share in planted:
            logs[place:] += np.log1p(share)
        if outliers:
            logs += (rng.random(RUNS) < OUTLIER_SHARE) * np.log1p(rng.uniform(*OUTLIER, size=RUNS))
        for name, detector in DETECTORS.items():
            counted[name].add(*score(detector(logs, errors), planted), len(planted))
    return [one.row(model, size, name) for name, one in counted.items()]


Row = Mapping[str, str | float | int | None]


class Counted:
    """Of all series of one row."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.delays: list[int] = []

    def add(self, delays: Mapping[int, int], false: int, planted: int) -> None:
        self.counts.update(series=1, planted=planted, detected=len(delays), false=false, clean=not false)
        self.delays += delays.values()

    def row(self, noise: str, size: float, detector: str) -> Row:
        counts = self.counts
        middle, late = np.quantile(self.delays, [0.5, 0.9]) if self.delays else (None, None)
        return {
            "noise": noise,
            "size": size,
            "detector": detector,
            "series": counts["series"],
            "planted": counts["planted"],
            "detected": counts["detected"],
            "delay_runs_median": None if middle is None else float(middle),
            "delay_runs_p90": None if late is None else float(late),
            "false_alarms": counts["false"],
            "false_alarms_per_500_runs": round(counts["false"] / counts["series"], 3),
            "series_without_false_alarm": counts["clean"],
        }


def record(seeds: int) -> dict[str, object]:
    """All of it, as tests/records/history.json has it."""
    pairs = read_pairs()
    chosen, judged = halves(pairs)
    numbers = [FIRST_SEED + n for n in range(seeds)]
    with ProcessPoolExecutor(WORKERS) as pool:
        causes = {name: pool.submit(told_as, judged, numbers[:1], name) for name in PLANTED}
        rows = [pool.submit(detection, judged, numbers, model, size) for model in MODELS for size in SIZES]
        spoilt = [pool.submit(detection, judged, numbers[:1], MODELS[0], size, True) for size in SIZES]
        detected = [row for made in rows for row in made.result()]
        with_outliers = [row for made in spoilt for row in made.result()]
        causes_told = {name: made.result() for name, made in causes.items()}
    return {
        "command": f"python -m benchmarks.history.planted --seeds {seeds}",
        "device": "NVIDIA H200",
        "noise_file": "tests/records/validations-h200.json",
        "noise": {"chosen_by": figures(chosen), "judged_by": figures(judged)},
        "runs": RUNS,
        "patience_runs": PATIENCE_RUNS,
        "seeds": numbers,
        "sensitivity": {
            "confidence": USUAL.confidence, "min_change": USUAL.min_change, "min_runs": USUAL.min_runs,
        },
        "detection": detected,
        "with_outliers": with_outliers,
        "causes": causes_told,
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- the tables


def tables(body: Mapping[str, object]) -> str:
    """The record as docs/history.md shows it."""
    lines = [
        "| noise | change | by | told | runs until told, median (90 %) | false alarms in 500 runs |",
        "|-|-|-|-|-|-|",
    ]
    rows = body["detection"]
    assert isinstance(rows, list)
    for row in rows:
        counted, of, late = row["detected"], row["planted"], row["delay_runs_p90"]
        told = f"{counted} of {of} ({counted / of:.1%})" if of else "–"
        delay = "–" if late is None else f"{row['delay_runs_median']:.0f} ({late:.0f})"
        size = f"{row['size']:.0%}" if row["size"] else "none"
        false = f"{row['false_alarms_per_500_runs']:.2f}"
        lines.append(f"| {row['noise']} | {size} | {row['detector']} | {told} | {delay} | {false} |")
    causes = body["causes"]
    assert isinstance(causes, dict)
    told_as = list(dict.fromkeys(name for row in causes.values() for name in row["told_as"]))
    lines += ["", f"| planted | series | {' | '.join(told_as)} | says how to tell apart |"]
    lines.append("|-|-|" + "-|" * len(told_as) + "-|")
    for planted, row in causes.items():
        counts = " | ".join(str(row["told_as"].get(name, 0)) for name in told_as)
        lines.append(f"| {planted} | {row['series']} | {counts} | {row['how_to_separate']} |")
    return "\n".join(lines)


def write_page(text: str, made: str) -> str:
    """The page with its tables anew."""
    pattern = re.compile(r"(?<=<!-- planted -->\n).*?(?=\n<!-- end of planted -->)", re.S)
    return pattern.sub(lambda _: made, text)


def main(arguments: Sequence[str] | None = None) -> None:
    """Hook for the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=2)
    made = record(parser.parse_args(arguments).seeds)
    RECORD.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if PAGE.exists():
        PAGE.write_text(write_page(PAGE.read_text(encoding="utf-8"), tables(made)), encoding="utf-8")
    print(tables(made))


if __name__ == "__main__":
    main()
