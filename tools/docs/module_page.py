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
        regions, matched = sum(r["regions"] for r in rows), sum(r["matched"] for r in rows)
        near = [r for r in rows if abs(step_error(r)) <= NEAR]
        unread = [r for r in rows if r["unread"]]
        share = sum(r["matched"] for r in unread) / sum(r["regions"] for r in unread)
        parts += [
            f"{len(rows)} models on one {record['device']}, {record['date']} ({_versions(record)}), each predicted "
            "from its code and recorded by `tritonworthy.capture` (`python -m benchmarks.program.recorded`). A region "
            "is the same where name, kind, text (operations, shapes, types, layouts) and calls are: "
            f"{matched} of {regions} recorded regions are in the predicted trace too ({matched / regions:.0%}), "
            f"{share:.0%} in the {len(unread)} models that nobody looked at before the recorder was done (unread). "
            f"The predicted step is within {NEAR:.0%} of the measured one, without a profiler, in {len(near)} of "
            f"{len(rows)}, {sum(r in near for r in unread)} of {len(unread)} unread.",
            "",
            "| model | | regions in both | of kernel time | launches, predicted and recorded | kernels, ms | step, ms "
            "| predicted to measured |",
            "|-|-|-:|-:|-:|-:|-:|-:|",
            *(
                f"| {r['name']} | {'unread' if r['unread'] else ''} | {r['matched']} of {r['regions']} | "
                f"{r['time_share']:.1%} | {r['predicted_launches']:,} and {r['recorded_launches']:,} | "
                f"{_ms(r['predicted_kernels_us'])} and {_ms(r['recorded_kernels_us'])} | "
                f"{_ms(r['predicted_step_us'])} and {_ms(r['recorded_step_us'])} | {step_error(r):+.0%} |"
                for r in rows
            ),
            "",
        ]
    return "\n".join(parts)


def step_error(row: Row) -> float:
    """Predicted over measured, less one."""
    return float(row["predicted_step_us"] / row["recorded_step_us"] - 1.0)


def cost_table(records: list[dict[str, Any]]) -> str:
    """The section on what a capture costs the program that it is in."""
    parts = []
    for record in records:
        rows: list[Row] = record["rows"]
        after = median(r["overhead"]["around_us"] / r["overhead"]["bare_us"] for r in rows)
        parts += [
            f"Of {len(rows)} models on one {record['device']}, {record['date']} ({_versions(record)}), medians of 20 "
            "steps that are waited for: behind the recording a step in the context takes "
            f"{after:.3f} times one without (median of the models). Recorded steps are the capture's own times. "
            "Writing is all that `step()` takes together: starting and ending the profiler and writing the files.",
            "",
            "| model | step without, ms | behind the recording | recorded | with stacks | writing, s |",
            "|-|-:|-:|-:|-:|-:|",
            *(
                f"| {r['name']} | {_ms(o['bare_us'])} | {_ms(o['around_us'])} | {_ms(o['plain_us'])} | "
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
