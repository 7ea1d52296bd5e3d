"""What validations of regions say, as a summary for the repository and as text. No torch.

`python benchmarks/validation/validate_table.py` writes docs/regions.md from tests/records/validations-h200.json.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent.parent
RECORD = ROOT / "tests" / "records" / "validations-h200.json"
PAGE = ROOT / "docs" / "regions.md"

AGREES = 0.03
"""Two runs' ratios to eager agree within this."""


def summary(validation: Json) -> Json:
    """A validation without its samples, sources and kernels: what a table needs."""
    if "failed" in validation:
        return {"failed": validation["failed"]}
    before, after = validation.get("advice_before") or {}, validation.get("advice_after") or {}
    return {
        "outcome": validation["outcome"],
        "best": validation["best"],
        "reason": validation["reason"],
        "floor_us": validation["floor_us"],
        "verdict_s": round(validation["verdict_s"], 2),
        "decided_by": validation["conditions"].get("decided_by"),
        "warnings": validation["conditions"].get("warnings", []),
        "advice_before": _advice(before),
        "advice_after": _advice(after),
        "candidates": {c["name"]: _candidate(c) for c in validation["candidates"]},
    }


def _advice(advice: Json) -> Json:
    return {key: advice.get(key) for key in ("tool", "mode", "headline", "call") if advice.get(key)}


def _candidate(candidate: Json) -> Json:
    if candidate["status"] != "ok":
        return {"status": candidate["status"], "message": candidate["message"][:300]}
    return {
        "status": "ok",
        "time_us": candidate["time_us"],
        "wall_us": candidate["wall_us"],
        "ratio_to_eager": candidate["ratio_to_eager"],
        "share_of_limit": candidate["share_of_limit"],
        "peak_bytes": candidate["peak_bytes"],
        "compile_s": candidate["compile_s"],
        "kernels": len(candidate["kernels"]),
    }


def repeatability(regions: Mapping[str, Sequence[Json]]) -> Json:
    """How the last two runs of each region agree: the ratios to eager, one a candidate; and the outcomes.

    moved: per candidate |ratio2 / ratio1 - 1|, largest first. outcomes: regions whose two outcomes or winners differ.
    """
    moved: list[tuple[float, str, str]] = []
    differ: list[str] = []
    pairs = 0
    for name, runs in regions.items():
        if len(runs) < 2 or any("failed" in run for run in runs[-2:]):
            continue
        first, second = runs[-2:]
        pairs += 1
        if first["outcome"] != second["outcome"]:
            differ.append(name)
        for candidate, one in first["candidates"].items():
            other = second["candidates"].get(candidate, {})
            both = one["status"] == other.get("status") == "ok" and one["ratio_to_eager"] and other["ratio_to_eager"]
            if candidate != "eager" and both:
                change = other["ratio_to_eager"]["median"] / one["ratio_to_eager"]["median"] - 1
                moved.append((abs(change), name, candidate))
    moved.sort(reverse=True)
    within = sum(change <= AGREES for change, _, _ in moved)
    return {
        "regions": pairs,
        "ratios": len(moved),
        "within": within,
        "share_within": round(within / len(moved), 4) if moved else None,
        "outcomes_differ": differ,
        "moved_most": [[round(change, 4), name, candidate] for change, name, candidate in moved[:20]],
    }


def table(body: Json) -> str:
    """A block a region: advice before and after, and every candidate by its time; a failed one with its reason."""
    lines = [f"{body.get('device')}  {body.get('date')}  torch {body.get('software', {}).get('torch')}"]
    for name, runs in body["regions"].items():
        first = runs[0]
        if "failed" in first:
            lines.append(f"{name}: {first['failed']}")
            continue
        spans = " ".join(f"{run['verdict_s']:.1f}" for run in runs if "failed" not in run)
        before, after = (_format_advice(first[key]) for key in ("advice_before", "advice_after"))
        lines.append(f"{name}: {before} -> {after}  [{first['outcome']}, best {first['best']}; verdicts {spans} s]")
        timed = {k: c for k, c in first["candidates"].items() if c["status"] == "ok"}
        for candidate, c in sorted(timed.items(), key=lambda item: item[1]["time_us"]["median"]):
            again = (
                f"  {c['ratio_to_eager']['median']:.3f} of eager{_format_repeat(runs, candidate)}"
                if c["ratio_to_eager"]
                else ""
            )
            lines.append(f"    {candidate:44} {c['time_us']['median']:10.1f} µs{again}")
        for candidate, c in first["candidates"].items():
            if c["status"] not in ("ok", "not_installed"):
                lines.append(f"    {candidate:44} {c['status']}: {c['message'][:150]}")
    twice = body["repeatability"]
    if twice["ratios"]:
        lines.append(
            f"twice: {twice['within']} of {twice['ratios']} ratios to eager agree within {AGREES:.0%} "
            f"({twice['share_within']:.1%}); outcomes differ: {', '.join(twice['outcomes_differ']) or 'none'}"
        )
    regret = regrets(body["regions"])
    if regret:
        mean = math.exp(sum(math.log(r) for r in regret.values()) / len(regret))
        worst = max(regret, key=lambda name: regret[name])
        lines.append(
            f"advice before, over the best measured: geomean {mean:.3f} over {len(regret)} regions, "
            f"worst {regret[worst]:.2f} ({worst})"
        )
    return "\n".join(lines)


def _format_repeat(runs: Sequence[Json], candidate: str) -> str:
    if len(runs) < 2 or "failed" in runs[1]:
        return ""
    other = runs[1]["candidates"].get(candidate, {})
    measured = other.get("status") == "ok" and other["ratio_to_eager"]
    return f", then {other['ratio_to_eager']['median']:.3f}" if measured else ""


def _format_advice(advice: Json) -> str:
    what = advice.get("mode") or (advice.get("call") or "").partition("\n")[0]
    return f"{advice.get('tool', '?')}{f' ({what[:60]})' if what else ''}"


TOOL_OF = {"skip": ("eager",), "compile": ("compile",), "triton": ("triton:",), "library": ("library:",)}


def regrets(regions: Mapping[str, Sequence[Json]]) -> dict[str, float]:
    """Time of the tool advised before (of its fastest candidate) over the best time, where both were measured."""
    by_region = {}
    for name, runs in regions.items():
        if not runs or "failed" in runs[0]:
            continue
        times = {k: c["time_us"]["median"] for k, c in runs[0]["candidates"].items() if c["status"] == "ok"}
        advised = [t for k, t in times.items() if k.startswith(TOOL_OF.get(runs[0]["advice_before"].get("tool"), ()))]
        if advised:
            by_region[name] = min(advised) / min(times.values())
    return by_region


HEAD = """# Every region of the tests, validated

Written by `python benchmarks/validation/validate_table.py` from a run of `make bench-validate`. A block a region: the
advice before and after measuring, the outcome, how long the verdict took with empty caches; then every candidate by its
device time, and those that have none with the reason. Packages that are not installed are left out.

Of two runs on one day. Five regions (depthwise_conv2d_k3, fp8_rowwise_gemm_naive, lm_head_ce_fits_memory,
lm_head_ce_memory_bound, manual_causal_attention) are of the first, in which what one process had just freed of the
GPU's memory was not there yet for the next: that cost lm_head_ce_memory_bound candidates. It was mended before the
second run, of the other 38. tiny_hidden_fused_mlp is of 2026-11-23, when it had a kernel of its own.
"""


def page(body: Json) -> str:
    """docs/regions.md."""
    return f"{HEAD}\n```\n{table(body)}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(RECORD.read_text())))
