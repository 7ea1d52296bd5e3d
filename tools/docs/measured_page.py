"""docs/measured.md from the records of the H200: `python -m tools.docs.measured_page` writes it, a test holds it to
them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from app.objects.trace import TraceBody
from app.trace_report import profiler_cost
from app.trace_report.step_model import ENDS, End, step_of
from tools.docs.error_bounds import bounds
from tools.docs.generated_programs import new_operations
from tools.docs.tables import table
from tools.records.launched_record import lines as launched
from tools.records.launched_record import row_lines
from tools.records.step_record import lines as steps

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDS = ROOT / "tests" / "records"
PAGE = ROOT / "docs" / "measured.md"
HEAD = """# What the measurement was measured to do

Of the whole steps below, what was off and why: TF32 was counted for the first product of a name in a region only (its
gradients are `mm_1` and so on), and not for projections that `_native_multi_head_attention` makes itself. An earlier
run counted advice on regions that nobody followed: llama training was -22 % off by it. An earlier state had predicted
37.6 ms of vit inference and 29.2 ms of convnext training, before they were run (this page at 1144a8f5).

Written by `python -m tools.docs.measured_page` from `tests/records`; nothing below is typed in by hand. All on NVIDIA
H200s, with nothing else on the host where verdicts were timed.
"""
ASKED_S = {("RMSNorm by hand, 3 shapes", 0): 20, ("RMSNorm by hand, 3 shapes", 1): 5,
           ("GEMM, bias, GELU, mask", 0): 60, ("GEMM, bias, GELU, mask", 1): 10}  # fmt: skip


def load(name: str, card: str = "h200") -> Any:
    """A record by its name."""
    return json.loads((RECORDS / f"{name}-{card}.json").read_text())


def page() -> str:
    """The whole document."""
    parts = [HEAD, *verdicts(load("verdicts")), *repeatability(load("validations")), *in_place(load("steps")),
             *applied(load("applied")), *with_modules(load("program")), *landscapes(load("landscapes")),
             *chains(load("chains")),
             *kits(load("kits")), *launched(load("launched")), *row_lines(load("rows")),
             *new_operations(load("new-operations"), {}, load("new-operations", "h100")),
             *bounds(load("bounds")), *own_kernels(load("own-kernel"))]  # fmt: skip
    return "\n".join(parts) + "\n"


def verdicts(record: Json) -> Iterator[str]:
    """From the request to the answer."""
    cases = {name: runs for name, runs in record.items() if name != "other_hosts"}
    first = next(iter(cases.values()))[0]
    yield "## From the click to the verdict\n"
    yield (
        f"By the server's own runner, its spare process ready ({first['date']}, torch {first['software']['torch']}). "
        "Cold: caches of Inductor, Triton and the tuner empty. Seconds.\n"
    )
    rows = []
    for name, runs in cases.items():
        for number, run in enumerate(runs):
            phases = ", ".join(f"{key} {value:.1f}" for key, value in run["phases_s"].items())
            timed = sum(status == "ok" for status, _ in run["candidates"].values())
            rows.append([
                f"{name}, {'warm' if number else 'cold'}", f"{run['first_s']:.2f}", f"{run['verdict_s']:.1f}",
                _describe(run["verdict_s"] < ASKED_S[name, min(number, 1)], str(ASKED_S[name, min(number, 1)])),
                str(timed), phases,
            ])  # fmt: skip
    yield from table(["", "first progress", "verdict", "asked for", "candidates timed", "of which"], rows)
    yield "The same on other hosts with an H200, whose processors differ in speed (most of it is compiling), seconds:\n"
    for name in cases:
        for kind in ("cold", "warm"):
            seen = [f"{r['verdict_s']:.1f}" for r in record["other_hosts"] if (r["case"], r["kind"]) == (name, kind)]
            if seen:
                yield f"- {name}, {kind}: {', '.join(seen)}"
    yield ""


def own_kernels(record: Json) -> Iterator[str]:
    """`tritonworthy validate --kernel` on functions of `benchmarks/validation/users_kernels.py`."""
    yield "## Kernels of a user's\n"
    yield (
        "`python benchmarks/validation/own_kernel.py`: functions of `benchmarks/validation/users_kernels.py` judged by "
        f"`tritonworthy validate REGION --kernel FILE:FUNCTION` ({record['device']}, {record['date']}, torch "
        f"{record['software']['torch']}). The first four rest on no time: they ran side by side, next to eager.\n"
    )
    rows = [
        [f"`{r['function']}`", r["region"], str(r["exit_status"]), r["verdict"], f"{r['seconds']:.0f}"]
        for r in record["runs"]
    ]
    yield from table(["function", "region", "exit status", "verdict", "seconds"], rows)


def _describe(holds: bool, asked: str) -> str:
    return f"{asked}: {'met' if holds else 'missed'}"


def repeatability(record: Json) -> Iterator[str]:
    """How far two runs of one validation are apart."""
    twice = record["repeatability"]
    yield "## The same validation twice\n"
    met = "met" if twice["share_within"] >= 0.95 else "missed"
    yield (
        f"{twice['regions']} regions twice on the same GPU, cold and warm: {twice['within']} of {twice['ratios']} "
        f"ratios to eager agree within 3 % ({twice['share_within']:.1%}; asked for: 95 %, {met}). Outcomes differ: "
        f"{', '.join(twice['outcomes_differ']) or 'none'}. Farthest apart:\n"
    )
    yield from table(
        ["region", "candidate", "moved by"], [[name, c, f"{moved:.1%}"] for moved, name, c in twice["moved_most"][:8]]
    )


def in_place(record: Json) -> Iterator[str]:
    """Winners put back into their models."""
    yield "## The winner in its place\n"
    yield "The step's speed-up as a validation claims it, next to the one measured with the winner in the model.\n"
    yield from steps(record)
    yield ""


WITHIN = 0.15
"""How far a predicted step may be off the found one."""


def off_by(row: Json) -> float | None:
    """How much longer the predicted step is than the found one, as a share; None where none was found."""
    return row["predicted_us"]["mid"] / row["found_us"] - 1 if row["found_us"] else None


GROUPS = ("in-sample", "not looked at", "new")
"""Of models: the formula of a step was mended by the first; nothing by the others before they were predicted."""


def applied(record: Json) -> Iterator[str]:
    """The advice on whole steps, followed."""
    yield "## The advice on a whole step, followed\n"
    yield (
        "`python benchmarks/traces/applied.py`: each model's eager step recorded with shapes, advised on, all options "
        "for the whole step that are followed together applied at once, and timed without a profiler, medians of 20 "
        f"({record['date']}, torch {record['software']['torch']}). By the in-sample ones the formula of a step was "
        "mended before. Nothing was chosen by the others when they were predicted; the new ones no run had before. "
        "Eager: the step without a profiler. Predicted: in the run, for what was followed; where a column says mended, "
        "the same trace is advised on by what was mended after the run, so that this figure is in-sample. Rows with a "
        "load were recorded while other work of the machine was under way: how many processes wanted one of its "
        "processors. The last column has what stood among the first three pieces of advice and was not applied, with "
        "what it was predicted to save alone, and why not; of the oldest rows the title alone was kept.\n"
    )
    rows = []
    for m in record["models"]:
        off, after, again = off_by(m), m["found_us"], m.get("mended_us")
        rows.append([
            m["model"], m["group"], f"{m['recorded_us'] / 1e3:.2f}",
            f"{m['eager_us'] / 1e3:.2f}" if m["eager_us"] else "–", ", ".join(m["followed"]),
            f"{m['predicted_us']['mid'] / 1e3:.2f} ({m['predicted_us']['low'] / 1e3:.2f} to "
            f"{m['predicted_us']['high'] / 1e3:.2f})",
            f"{after / 1e3:.2f}" if after else "not run", f"{off:+.0%}" if off is not None else "–",
            f"{again['mid'] / 1e3:.2f} ({again['mid'] / after - 1:+.0%})" if again and after else "–",
            m["found_in"] + _where_found(m), "; ".join(not_applied(m)) or "–",
        ])  # fmt: skip
    yield from table(
        ["model", "", "recorded, ms", "eager, ms", "followed", "predicted, ms", "found, ms", "off by", "mended",
         "found in", "advised among the first three, not applied"], rows,
    )  # fmt: skip
    for group in GROUPS:
        yield f"- {group}: {_within([m for m in record['models'] if m['group'] == group])}"
    for day in sorted({m["date"] for m in record["models"] if "date" in m}):
        ran = _within([m for m in record["models"] if m.get("date") == day])
        yield f"- of the new, those of the run of {day}: {ran}"
    yield ""
    yield from applied_separately(record.get("separate", ()))
    yield from from_programs(load("applied-predicted"), record["models"])
    yield from profiled(record)


NUMERICS = ("bf16", "fp8")
"""Options that change what a step computes beyond TF32: they are advised and counted with nothing."""
SPELLED = {
    "compile-model": "Compile the whole model", "cuda-graphs": "Compile the whole model and replay it as CUDA graphs",
    "tf32": "Let f32 matrix products run in TF32", "bf16": "Run the model in bf16",
    "fp8": "Run large linear layers in fp8", "channels-last": "Keep images channels-last",
}  # fmt: skip
"""Titles of options that rows have which kept titles alone; an optimizer's names its region."""


def not_applied(model: Json) -> list[str]:
    """Of the first three pieces of advice, those that the run did not apply, each with the reason."""
    if "listed" not in model:
        done = [SPELLED.get(option, "") for option in model["followed"]]
        optimizer = "fused-optimizer" in model["followed"]
        return [t for t in model["advised"] if t not in done and not (optimizer and "optimizer step" in t)]
    return [
        f"{a['title']} ({_saving_alone(a)}{_why_not(a)})"
        for a in model["listed"]
        if a["option"] not in model["followed"]
    ]


def _saving_alone(advised: Json) -> str:
    saves = advised["saves_us"]
    return f"{saves['mid'] / 1e3:.2f} ms; " if saves else "no time predicted; "


def _why_not(advised: Json) -> str:
    """Why the run did not apply it; one reason, the first that holds."""
    if advised["instead_of"]:
        return f"in the place of: {advised['instead_of']}"
    if advised["option"] in NUMERICS:
        return "changes numerics: counted with nothing"
    return "unproven" if advised["title"].startswith("Unproven") else "of a region, not of the whole step"


def applied_separately(rows: Sequence[Json]) -> Iterator[str]:
    """Options that stand in another's place or change numerics, applied all the same."""
    if not rows:
        return
    yield (
        "Options that were advised and are not followed with the others, applied all the same: alone, and with the "
        "others (`applied.py --alternatives`). Predicted in the run, before they were applied.\n"
    )
    cells = []
    for r in rows:
        after = r["predicted_us"]
        cells.append([
            r["model"], str(r["date"]), ", ".join(r["applied"]), f"{r['eager_us'] / 1e3:.2f}",
            f"{after['mid'] / 1e3:.2f} ({after['low'] / 1e3:.2f} to {after['high'] / 1e3:.2f})",
            f"{r['found_us'] / 1e3:.2f}", f"{off_by(r) or 0.0:+.0%}",
        ])  # fmt: skip
    yield from table(["model", "run", "applied", "eager, ms", "predicted, ms", "found, ms", "off by"], cells)
    yield f"- {_within(rows)}\n"


def _within(models: Sequence[Json]) -> str:
    """Of those that were run, how many were predicted near enough."""
    known = [off for m in models if (off := off_by(m)) is not None]
    return f"{sum(abs(off) <= WITHIN for off in known)} of {len(known)} within {WITHIN:.0%}"


def _where_found(model: Json) -> str:
    """The run's day, where it is another than the record's, and how busy its host was."""
    told = f" of {model['date']}" if "date" in model else ""
    return told + (f", load {model['host']['load']:.0f} of {model['host']['processors']}" if "host" in model else "")


def from_programs(record: Json, measured: Sequence[Json]) -> Iterator[str]:
    """What was predicted of models from their programs alone, before a run, and what the run measured.

    The same options are followed in both where the row has a figure for them; else its trace was advised otherwise.
    """
    yield (
        "Of the newest models, what was predicted from the program alone, by the product as it was on that day, before "
        "any of them was run (`python -m benchmarks.traces.predicted`). Anew: predicted once more, still before a run, "
        "as a compiled step has the host's least time and rates know newer rows of kernels; the middle moved by less "
        "than 0.2 %, the ranges grew.\n"
    )
    rows = []
    for m in record["models"]:
        ran = next((f for f in measured if f["model"] == m["model"]), None)
        after = m["predicted_us"]
        ends = f"({after['low'] / 1e3:.2f} to {after['high'] / 1e3:.2f})"
        row = [m["model"], m["date"], f"{m['eager_us'] / 1e3:.2f}", ", ".join(m["followed"]),
               f"{after['mid'] / 1e3:.2f} {ends}"]  # fmt: skip
        if ran is None:
            rows.append([*row, "–", "not run"])
            continue
        same = set(ran["followed"]) == set(m["followed"])
        then = (
            f"{ran['found_us'] / 1e3:.2f} ({after['mid'] / ran['found_us'] - 1:+.0%})" if same else "followed otherwise"
        )
        eager = f"{ran['eager_us'] / 1e3:.2f} ({m['eager_us'] / ran['eager_us'] - 1:+.0%})"
        rows.append([*row, eager, then])
    yield from table(
        ["model", "predicted on", "eager, predicted, ms", "to follow", "then, predicted, ms", "eager, found, ms",
         "then, found, ms"], rows,
    )  # fmt: skip


def profiled(record: Json) -> Iterator[str]:
    """What the profiler costs."""
    yield "### What the profiler takes\n"
    yield (
        "The same eager steps without it and with it: plain, with shapes, with shapes and stacks, one after another in "
        "one process; milliseconds of a step. Estimated: what a page says that the step takes without the profiler, "
        "from the recording with shapes (`app/trace_report/profiler_cost.py`). In-sample: the factor was chosen by "
        "these models.\n"
    )
    rows = []
    for m in record["models"]:
        if m["eager_us"]:
            told = m.get("profiled") or {"shapes": {"wall_us": m["recorded_us"]}}
            ways = [f"{told[w]['wall_us'] / 1e3:.2f}" if w in told else "–" for w in ("plain", "shapes", "stacks")]
            guess = unprofiled_us(m)
            rows.append([m["model"], f"{m['eager_us'] / 1e3:.2f}", *ways, f"{guess / 1e3:.2f}",
                         f"{guess / m['eager_us'] - 1:+.0%}"])  # fmt: skip
    yield from table(["model", "without", "plain", "shapes", "stacks", "estimated", "off by"], rows)


def with_modules(record: Json) -> Iterator[str]:
    """What the profiler costs where modules are recorded."""
    yield "With modules (`with_stack=True, with_modules=True`, which the header tells) it takes more. In-sample:\n"
    rows = []
    for r in record["rows"]:
        bare, guess = r["overhead"]["its_bare_us"], of_modules_us(r, "mid")
        rows.append([r["name"], *(f"{us / 1e3:.2f}" for us in (bare, r["overhead"]["stacks_us"], guess)),
                     f"{guess / bare - 1:+.0%}"])  # fmt: skip
    yield from table(["model", "without", "shapes, stacks and modules", "estimated", "off by"], rows)


def of_modules_us(row: Json, end: End) -> float:
    """What a step is estimated to take without the profiler, of its time with modules and that of its kernels: all
    that the GPU waits is for launches, which are made just before they are needed."""
    wall, kernels = row["overhead"]["stacks_us"], row["recorded_kernels_us"]
    idle = max(0.0, wall - kernels)
    parts = {
        "wall_us": wall, "kernels_us": kernels, "communication_us": 0.0, "copies_us": 0.0, "idle_us": idle,
        "idle_share": idle / wall, "idle_launch_us": idle, "idle_host_us": 0.0, "idle_communication_us": 0.0,
        "idle_device_us": 0.0,
    }  # fmt: skip
    pace = {"launches": row["recorded_launches"], "gpu_us": 0.0, "lead_us": 0.0}
    slows = dict.fromkeys(ENDS, profiler_cost.WITH_MODULES[end])
    step = step_of(cast("TraceBody", {"step_parts": parts, "pace": pace, "regions": [], "profiler_slows": slows}))
    assert step is not None
    wall_us: float = step.parts["wall_us"]
    return wall_us


def unprofiled_us(model: Json) -> float:
    """What the step is estimated to take without the profiler."""
    told: Json = {
        "step_parts": model["parts"], "pace": model["pace"], "regions": [], "profiler_slows": profiler_cost.SLOWS,
    }  # fmt: skip
    step = step_of(cast("TraceBody", told))
    assert step is not None
    wall_us: float = step.parts["wall_us"]
    return wall_us


def landscapes(records: Sequence[Json]) -> Iterator[str]:
    """How much tuning is worth."""
    yield "## Autotune landscapes\n"
    rows = []
    for one in records:
        timed = [p for p in one["points"] if p["time_us"]]
        best, worst = (pick(timed, key=lambda p: p["time_us"]) for pick in (min, max))
        order = one["order"]
        grouped = (
            f"{order['grouped_us']['median']:.0f} / {order['plain_us']['median']:.0f} µs" if order else "not a product"
        )
        rows.append([
            f"`{one['candidate']}`", str(len(timed)), _point(best), _point(worst), f"{one['worst_to_best']:.1f}",
            f"{one['chosen_to_best']['median']:.3f}", grouped, f"{one['seconds']:.0f}",
        ])  # fmt: skip
    yield from table(
        [
            "candidate",
            "points timed",
            "best",
            "worst",
            "worst / best",
            "chosen / best",
            "grouped / plain order",
            "seconds",
        ],
        rows,
    )


def _point(point: Json) -> str:
    stages = f", {point['stages']} stages" if point["stages"] else ""
    return f"{point['tile']}, {point['warps']} warps{stages}: {point['time_us']:,.1f} µs"


def chains(record: Json) -> Iterator[str]:
    """Generated kernels."""
    yield "## Generated kernels\n"
    done = [
        f"{len(c['seeds'])} {c['family']} chains at {c['size']} sizes, {c['right']} right" for c in record["checks"]
    ]
    yield f"Random chains against float64 on the GPU: {'; '.join(done)}. Compared with torch.compile:\n"
    rows = [
        [
            r["case"],
            f"{r['bytes'] / 1e6:,.0f}",
            f"{r['generated_us']:.1f}",
            f"{r['compile_us']:.1f}",
            f"{r['ratio']:.3f}",
        ]
        for r in record["times"]
    ]
    yield from table(["case", "MB", "generated, µs", "torch.compile, µs", "ratio"], rows)


def kits(record: Json) -> Iterator[str]:
    """Starter kits."""
    yield "## Starter kits\n"
    yield "Each run in an empty folder with torch and Triton alone: its test, then its benchmark.\n"
    rows = [
        [name, kit["test"], *(f"{kit['median_us'][who]:.1f}" for who in ("eager", "torch.compile", "this kernel"))]
        for name, kit in record["kits"].items()
    ]
    yield from table(["region", "test", "eager, µs", "torch.compile, µs", "the kernel, µs"], rows)


if __name__ == "__main__":
    PAGE.write_text(page())
