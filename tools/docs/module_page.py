"""Writes what was recorded into docs/module.md and docs/capture.md: python -m tools.docs.module_page.

The recorded architectures, and ten models that ran on a GPU against what was predicted of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE, RECORD = ROOT / "docs" / "module.md", ROOT / "tests" / "records" / "architectures.json"
HEADING = "## Recorded architectures\n"
CAPTURE = ROOT / "docs" / "capture.md"
STEPS = "program-*.json"
"""Records of `benchmarks.program.recorded`, one a device."""
STEPS_HEADING, COST_HEADING = "## Against recorded steps\n", "## What it costs\n"
NEAR = 0.2
"""How far a predicted step may be from the measured one to be called near."""
FIRST, TWO, WAYS = ("events",), ("events", "waited"), ("events", "waited", "capture")
"""How a step was measured."""
Row = dict[str, Any]


def table(record: dict[str, Any]) -> str:
    """The section below the heading."""
    rows: list[Row] = record["rows"]
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    whole = [r for r in rows if not r["failure"]]
    shares = [r["flops_share"] for r in whole if r["flops_share"] is not None]
    slowest = max(r["seconds"] for r in whole)
    largest = max(whole, key=lambda r: r["peak_mb"])
    head = (
        f"{len(rows)} runs of {len({r['name'] for r in rows})} architectures, recorded on {record['date']} on a CPU "
        f"({versions}; batch {record['batch']}, sequence {record['sequence']}, 224 x 224 images): {len(whole)} whole, "
        f"{median(shares):.1%} of torch's own count of FLOPs in the median, at most {slowest:g} s "
        f"and {largest['peak_mb']:,} MB ({largest['name']}). torch's counter has no grouped matrix products, which are "
        "the experts' (above 100 %), and counts each group of a grouped convolution's backward as a whole (below). It "
        "counts the same run without memory: the share says that no product is lost on the way from that run to the "
        "record, and proves nothing of how much of a run on a GPU is recorded."
    )
    lines = [
        "| architecture | step | operations | launches | FLOPs of torch's count | s | MB | |",
        "|-|-|-:|-:|-:|-:|-:|-|",
    ]
    for r in rows:
        share = "" if r["flops_share"] is None else f"{r['flops_share']:.1%}"
        told = r["failure"] or "; ".join(r["gaps"])
        step = "training" if r["training"] else "forward"
        lines.append(
            f"| {r['name']} | {step} | {r['operations']:,} | {r['launches']:,} | {share} | {r['seconds']:g} | "
            f"{r['peak_mb']:,} | {told.replace('|', '/')} |"
        )
    return "\n".join([head, "", *lines, ""])


def steps_table(records: list[dict[str, Any]]) -> str:
    """The section on predicted against recorded steps."""
    parts = []
    for record in records:
        rows: list[Row] = record["rows"]
        by_names = sum(r["matched_by_names"] for r in rows)
        unread, others = [r for r in rows if r["unread"]], [r for r in rows if not r["gave_host_times"]]
        parts += [
            f"{len(rows)} models on one {record['device']}, recorded on {record['date']} by `tritonworthy.capture` "
            f"({_versions(record)}; `python -m benchmarks.program.recorded`), each predicted from its code "
            f"{_when(record)}. A region is the same where name, kind, text (operations, shapes, types, layouts), "
            "passes "
            "and calls are. Two things are forgiven: sizes of a text's symbols are compared in their order by size, "
            "not "
            "by the time that each took, and regions without a text match by the reason and their operations' names: "
            f"{by_names} of those below. {_in_both(rows)} recorded regions are in the predicted trace too, which has "
            f"{sum(r['predicted_regions'] for r in rows)}; in the models that nobody looked at before the recorder was "
            f"done (unread), {_in_both(unread)}.",
            "",
            "The step was measured without a profiler in three ways, and they disagree: launched one behind the "
            "other, by "
            "the device's events; each waited for (median of 20; spread: longest less shortest over it); and by the "
            f"capture, before its profiler. The predicted step is within {NEAR:.0%} of the first in "
            f"{_near(rows, FIRST)} "
            f"({_near(unread, FIRST)} unread), of the first and of the second in {_near(rows, TWO)} "
            f"({_near(unread, TWO)} unread), of all three in {_near(rows, WAYS)} ({_near(unread, WAYS)} unread). The "
            "host's "
            "times are from the recordings of the models marked so; without these it is "
            f"{_near(others, FIRST)}, {_near(others, TWO)} and {_near(others, WAYS)}.",
            "",
            "| model | | regions in both | predicted | of kernel time | launches, predicted and recorded | kernels, ms "
            "| step predicted, ms | by events | waited for (spread) | in capture |",
            "|-|-|-:|-:|-:|-:|-:|-:|-:|-:|-:|",
            *(
                f"| {r['name']} | {_marks(r)} | {r['matched']} of {r['regions']} | {r['predicted_regions']} | "
                f"{r['time_share']:.1%} | {r['predicted_launches']:,} and {r['recorded_launches']:,} | "
                f"{_ms(r['predicted_kernels_us'])} and {_ms(r['recorded_kernels_us'])} | "
                f"{_ms(r['predicted_step_us'])} | "
                f"{_against(r, 'events')} | {_against(r, 'waited')} ({r['spread']:.0%}) | {_against(r, 'capture')} |"
                for r in rows
            ),
            "",
        ]
    return "\n".join(parts)


def measured_us(row: Row, way: str) -> float:
    """The step without a profiler, as one of WAYS has it."""
    if way == "events":
        return float(row["recorded_step_us"])
    return float(row["waited_us"] if way == "waited" else row["overhead"]["its_bare_us"])


def step_error(row: Row, way: str) -> float:
    """Predicted over measured, less one."""
    return float(row["predicted_step_us"]) / measured_us(row, way) - 1.0


def _near(rows: list[Row], ways: tuple[str, ...]) -> str:
    near = sum(all(abs(step_error(r, way)) <= NEAR for way in ways) for r in rows)
    return f"{near} of {len(rows)}"


def _in_both(rows: list[Row]) -> str:
    regions, matched = sum(r["regions"] for r in rows), sum(r["matched"] for r in rows)
    return f"{matched} of {regions}" + (f" ({matched / regions:.0%})" if regions else "")


def _against(row: Row, way: str) -> str:
    """Measured, and how far the prediction is from it."""
    return f"{_ms(measured_us(row, way))} ({step_error(row, way):+.0%})"


def _marks(row: Row) -> str:
    marks = ("unread" if row["unread"] else "", "host fitted by it" if row["gave_host_times"] else "")
    return ", ".join(m for m in marks if m)


def _when(record: dict[str, Any]) -> str:
    if not record["predicted_anew"]:
        return "before that"
    versions = record["rows"][0]["predicted_by"] if record["rows"] else {}
    by = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"anew on {record['compared']} (by {by})"


def cost_table(records: list[dict[str, Any]]) -> str:
    """The section on what a capture costs the program that it is in."""
    parts = []
    for record in records:
        rows: list[Row] = record["rows"]
        after = {r["name"]: r["overhead"]["around_us"] / r["overhead"]["its_bare_us"] for r in rows}
        before = [r["overhead"]["around_us"] / r["overhead"]["bare_us"] for r in rows]
        least, most = min(after, key=lambda n: after[n]), max(after, key=lambda n: after[n])
        parts += [
            f"Of {len(rows)} models on one {record['device']}, {record['date']} ({_versions(record)}): behind the "
            "recording "
            f"a step in the context takes {median(after.values()):.2f} times one that the capture timed without its "
            f"profiler (median of the models; {after[least]:.2f} of {least} to {after[most]:.2f} of {most}). Steps "
            "before "
            f"the context are not steady enough to tell: over them it is {min(before):.2f} to {max(before):.2f}. "
            "Before "
            "the context and behind the recording: medians of 20 steps that are waited for; the others are the "
            "capture's "
            "own times. Writing is all that `step()` takes together: starting and ending the profiler and writing the "
            "files.",
            "",
            "| model | step before, ms | timed by the capture | behind the recording | recorded | with stacks | "
            "writing, s |",
            "|-|-:|-:|-:|-:|-:|-:|",
            *(
                f"| {r['name']} | {_ms(o['bare_us'])} | {_ms(o['its_bare_us'])} | {_ms(o['around_us'])} | "
                f"{_ms(o['plain_us'])} | "
                f"{_ms(o['stacks_us'])} | {sum(o['ends_s']):.1f} |"
                for r in rows
                for o in [r["overhead"]]
            ),
            "",
        ]
    return "\n".join(parts)


def _versions(record: dict[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in record["versions"].items())


def _ms(time_us: float) -> str:
    return f"{time_us / 1e3:.2f}"


def step_records() -> list[dict[str, Any]]:
    """Of every device, the one that was measured last first."""
    read = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RECORD.parent.glob(STEPS))]
    return sorted(read, key=lambda record: str(record["date"]), reverse=True)


def page(text: str, record: dict[str, Any], steps: list[dict[str, Any]]) -> str:
    """The page with its two sections anew, of which the architectures are last."""
    before, heading, _ = text.partition(HEADING)
    return f"{section(before, STEPS_HEADING, steps_table(steps))}{heading}\n{table(record)}"


def section(text: str, heading: str, body: str) -> str:
    """The text with the section anew: up to the next heading of its rank, else the end. At the end where it is new."""
    before, _, after = text.partition(heading)
    _, mark, rest = after.partition("\n## ")
    return f"{before.rstrip()}\n\n{heading}\n{body.rstrip()}\n" + (f"{mark}{rest}" if mark else "\n")


def capture_page(text: str, steps: list[dict[str, Any]]) -> str:
    """docs/capture.md with its section anew."""
    return section(text, COST_HEADING, cost_table(steps)).rstrip() + "\n"


def main() -> None:
    """Write them."""
    record, steps = json.loads(RECORD.read_text(encoding="utf-8")), step_records()
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), record, steps), encoding="utf-8")
    CAPTURE.write_text(capture_page(CAPTURE.read_text(encoding="utf-8"), steps), encoding="utf-8")


if __name__ == "__main__":
    main()
