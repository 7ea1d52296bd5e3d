"""Writes the table of recorded architectures into docs/module.md: python -m tools.docs.module_page."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE, RECORD = ROOT / "docs" / "module.md", ROOT / "tests" / "records" / "architectures.json"
HEADING = "## Recorded architectures\n"
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


def page(text: str, record: dict[str, Any]) -> str:
    """The page with the section anew."""
    before, heading, _ = text.partition(HEADING)
    return f"{before}{heading}\n{table(record)}"


def main() -> None:
    """Write it."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")


if __name__ == "__main__":
    main()
