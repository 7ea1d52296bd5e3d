"""Predicted against measured, for one region: each candidate's predicted time beside what was then measured."""

from __future__ import annotations

from typing import Any

from app.web.accuracy import BAND
from app.web.charts import candidate_rows, intervals
from app.web.figure import Chart, Json
from app.web.units import duration
from profiler.hardware import find_device


def rows(validation: Json | None, advice: Json | None = None) -> list[dict[str, Any]]:
    """One row for each candidate that was predicted and measured on one kind of GPU, fastest measured first.

    Keys: name, tool, predicted {low, mid, high} and measured {low, median, high} in µs, ratio (predicted over
    measured), inside (whether within BAND of it), covered (whether the measured median lies in the predicted range).
    advice: where the validation has none of its own from before; of another device it says nothing here.
    """
    if not validation:
        return []
    before = validation.get("advice_before") or {}
    before = before if before.get("alternatives") else advice or {}
    device = find_device(validation.get("device"))
    if device is None or find_device(before.get("device")) != device:
        return []
    options = {o.get("candidate"): o["time_us"] for o in before.get("alternatives") or () if o.get("time_us")}
    found = []
    for row in candidate_rows(validation):
        predicted = options.get(row["name"])
        if predicted is None:
            continue
        measured = row["time_us"]
        ratio = predicted["mid"] / measured["median"]
        found.append(
            {
                "name": row["name"],
                "tool": row["tool"],
                "predicted": predicted,
                "measured": measured,
                "ratio": ratio,
                "inside": abs(ratio - 1) <= BAND,
                "covered": predicted["low"] <= measured["median"] <= predicted["high"],
            }
        )
    return found


def foretold(found: list[dict[str, Any]]) -> Chart | None:
    """Both times of each candidate on one axis: hollow with its range predicted, filled measured."""
    drawn = []
    for row in found:
        measured, predicted = row["measured"], row["predicted"]
        whole = {"low": measured["low"], "mid": measured["median"], "high": measured["high"]}
        for word, symbol, time in (("measured", "circle", whole), ("predicted", "circle-open", predicted)):
            drawn.append(
                {
                    "name": f"{row['name']} · {word}",
                    "tool": row["tool"],
                    "symbol": symbol,
                    "time_us": time,
                    "label": duration(time["mid"]),
                }
            )
    return intervals(drawn, "low", "mid", "high", None, "device time of one call, µs")
