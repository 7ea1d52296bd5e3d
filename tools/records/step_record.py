"""What was claimed of a model's step and what was found, as data and as a table. Pure: no torch, no clock.

A record: {"device", "date", "software", "dry", "models": [...]}. A model: its "step" in eager mode, what its trace says
of the "profiled" step, its "regions" with a winner each, and all winners "together". "claimed": by Amdahl, from the
region's share of the profiled step and its winner's measured ratio. "found": eager's step over the replaced one's,
measured in turns. By "wall" the share is of the step's wall time, by "device" of the time that the GPU worked in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernels.measure.model import validation_from_json
from kernels.measure.outcome import Contender, decide

Json = dict[str, Any]
Span = Mapping[str, float]
"""{"median", "low", "high"}."""

RECORD = Path(__file__).resolve().parent.parent.parent / "tests" / "records" / "steps-h200.json"

CLOCKS = ("wall", "device")
HOST_BOUND = 1.1
"""Wall time of a step above this many times the GPU's own: the host sets its pace."""
OURS = frozenset({"advice_before", "advice_after"})


def claim_speedup(shares: Sequence[float], ratios: Sequence[Span]) -> Json:
    """How many times as fast the step should be: Amdahl over all the regions that were replaced.

    shares: of the step, 0 to 1. ratios: the winners' times over eager's.
    """

    def factor(bound: str) -> float:
        left = 1 - sum(share * (1 - ratio[bound]) for share, ratio in zip(shares, ratios, strict=True))
        return 1 / max(1e-9, left)

    return {"median": factor("median"), "low": factor("high"), "high": factor("low")}


def compare_claim(claim: Span | None, measured: Span | None) -> Json:
    """Both, and found / claimed - 1; None where one is missing."""
    difference = measured["median"] / claim["median"] - 1 if claim and measured else None
    return {"claimed": claim, "found": measured, "difference": difference}


def choose_regions(regions: Sequence[Json], count: int) -> list[Json]:
    """The regions to replace: advised otherwise than to be left, those first that are predicted to save the most.

    What is to be changed about a call itself (its layout, padding, mask: a remedy) is no other code in its place.
    """
    changed = [r for r in regions if r["text"] and r["advice"]["tool"] != "skip" and not _is_remedy(r["advice"])]
    return sorted(changed, key=lambda r: -_predicted(r))[:count]


def _is_remedy(advice: Json) -> bool:
    remedies = (a["mode"] for a in advice.get("alternatives") or () if a["candidate"].startswith("library:remedy."))
    return advice.get("mode") in remedies


def _predicted(region: Json) -> float:
    speedup = region["advice"]["step_speedup"]
    return 1 - 1 / float(speedup["mid"]) if speedup else 0.0


def winner_of(validation: Json, share: float | None) -> str | None:
    """The candidate that the decision rule takes: `eager` where none is worth it, None where none was timed."""
    measured = validation_from_json({k: v for k, v in validation.items() if k not in OURS})
    by = str(measured.conditions.get("decided_by", "device time"))
    contenders = [
        Contender(c.name, c.tool, c.wall_us if by.startswith("wall") and c.wall_us else c.time_us.median,
                  c.ratio_to_best_other)
        for c in measured.candidates if c.status == "ok" and c.time_us is not None
    ]  # fmt: skip
    decision = decide(measured.candidates, contenders, measured.advice_before, share, by)
    return decision.winner if len(contenders) > 1 else None


def first_correct(validation: Json) -> str | None:
    """For a dry run: the first candidate other than eager that is correct. It is not timed, and wins nothing."""
    names = (c["name"] for c in validation["candidates"] if c["status"] == "correct" and c["tool"] != "eager")
    return next(names, None)


def busy_share(region: Json, profiled: Json) -> float:
    """The region's share of the time in which the GPU worked in the profiled step."""
    busy_us = profiled["step_time_us"] * profiled["gpu_busy_share"]
    return float(min(1.0, region.get("busy_us_per_step", region["time_us_per_step"]) / busy_us))


def model_of(name: str, trace: Json, regions: Sequence[Json], placed: Json) -> Json:
    """One model's part of the record. regions: as `region_of` made them; placed: what the child answered."""
    times, numbers = placed["times"], [n for n, r in enumerate(regions) if r["placed_as"] is not None]
    rows = []
    for region in regions:
        number = region["placed_as"]
        where = placed["placed"][number] if number is not None else {}
        step_times = times.get(str(number), {})
        row = {**region, "part": where.get("part", ""), "missing_outputs": where.get("missing_outputs", 0),
               "check": placed["checks"].get(str(number)), "why": where.get("why") or region["why"]}  # fmt: skip
        row |= {
            by: {**region[by], **compare_claim(region[by]["claimed"], step_times.get(f"{by}_speedup"))} for by in CLOCKS
        }
        rows.append({**row, "step_us": {by: step_times.get(f"{by}_us") for by in CLOCKS}})
    done = [regions[n] for n in numbers if str(regions[n]["placed_as"]) in times]
    both = times.get("together", {})
    together: Json | None = None
    if both:
        claims = {
            by: claim_speedup([r[by]["share"] for r in done], [r["ratio"] for r in done])
            if all(r["ratio"] for r in done) else None
            for by in CLOCKS
        }  # fmt: skip
        together = {by: compare_claim(claims[by], both[f"{by}_speedup"]) for by in CLOCKS}
        together |= {"check": placed["checks"]["together"], "step_us": {by: both[f"{by}_us"] for by in CLOCKS}}
    eager = times["eager"]
    step = {"wall_us": eager["wall_us"], "device_us": eager["device_us"]}
    return {
        "model": name, "step": {**step, "pace": describe_pace(step)}, "profiled": trace, "regions": rows,
        "together": together,
        "conditions": placed["conditions"], "eager_error": placed["checks"]["eager"]["error"],
    }  # fmt: skip


def describe_pace(step: Json) -> str:
    """Whether the GPU or the host sets the pace of the eager step."""
    device_us, wall_us = step["device_us"]["median"], step["wall_us"]["median"]
    if wall_us <= HOST_BOUND * device_us:
        return "the GPU sets the pace"
    return f"the host sets the pace: the GPU works {device_us / wall_us:.0%} of the wall time"


def lines(record: Json) -> Iterator[str]:
    """The record as Markdown, a table for each model."""
    where = "a dry run on the CPU: none of its times says anything" if record["dry"] else record["device"]
    yield f"{where}, {record['date']}, torch {record['software'].get('torch', '?')}"
    for model in record["models"]:
        step = model["step"]
        yield ""
        yield (
            f"**{model['model']}**: a step takes {step['wall_us']['median'] / 1e3:.2f} ms, the GPU works"
            f" {step['device_us']['median'] / 1e3:.2f} ms; {step['pace']}."
        )
        yield ""
        yield "| region | share | winner | region's time | claimed | found | found of the GPU's time | difference |"
        yield "|-|-|-|-|-|-|-|-|"
        for region in model["regions"]:
            yield _row(region)
        if model["together"]:
            yield _row({**model["together"], "name": "all of them", "winner": "", "ratio": None, "why": ""})


def _row(region: Json) -> str:
    def span(value: Span | None) -> str:
        return f"{value['median']:.3f} [{value['low']:.3f}, {value['high']:.3f}]" if value else "-"

    wall, device = region["wall"], region["device"]
    share = f"{wall['share']:.1%}" if wall.get("share") is not None else ""
    difference = f"{wall['difference']:+.1%}" if wall["difference"] is not None else "-"
    check = region.get("check")
    wrong = "" if check is None or check["ok"] else f"wrong: {check['message']}"
    extra_outputs = f"{region['missing_outputs']} output computed as well" if region.get("missing_outputs") else ""
    notes = "".join(f" ({text})" for text in (region["why"], extra_outputs, wrong) if text)
    return (
        f"| {region['name']}{notes} | {share} | {region['winner'] or '-'} | {span(region['ratio'])} "
        f"| {span(wall['claimed'])} | {span(wall['found'])} | {span(device['found'])} | {difference} |"
    )
