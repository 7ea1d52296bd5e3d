"""Write docs/trace-files.md: which files are read, and one run's figures from each: `python -m tools.docs.trace_files`.

No export of nsys and no recording of rocprofv3 is at hand: recorded torch traces are written as these tools would have
(tests/profiler/trace/nsys_export.py, rocprofv3_file.py), from the published schemas. --check only compares.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.trace_report.report import report
from tests.profiler.trace.files import TRACES, loaded
from tests.profiler.trace.nsys_export import export
from tests.profiler.trace.rocprofv3_file import recorded

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "trace-files.md"
BEGIN, END = "<!-- figures: python -m tools.docs.trace_files -->", "<!-- end of figures -->"

NSYS = (
    "handrolled_blocks_bf16_eager", "llama_prefill_bf16_eager", "gpt2_train_autocast_eager",
    "timm_convnext_train_channels_last", "handrolled_blocks_bf16_compiled", "handrolled_blocks_bf16_cudagraph",
)  # fmt: skip
ROCPROFV3 = ("tl_mi300_resnet_actckpt", "hta_mi250_minitoy", "tl_sglang_prefilldecode")
PARTS = "llama_prefill_bf16_eager"

COLUMNS = ("run", "file", "step, ms", "kernels", "kernel time, ms", "launches", "GPU busy", "waiting for launches, ms",
           "with an operation", "has a text")  # fmt: skip
HEAD = f"| {' | '.join(COLUMNS)} |\n|{'-|' * len(COLUMNS)}\n"
PARTS_HEAD = """| part of {run} | torch.profiler, ms | nsys, ms | text from torch.profiler | text from nsys |
|-|-|-|-|-|
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a file says of a run, as the page prints it; times per step."""

    step_ms: str
    kernels: int
    kernel_time_ms: str
    launches: str
    busy: str
    waiting_ms: str
    linked: str
    text: str

    def cells(self) -> str:
        return " | ".join(str(getattr(self, name)) for name in self.__slots__)


def figures_of(path: Path) -> tuple[Figures, dict[str, Any]]:
    """The figures of a file, and its report."""
    told: dict[str, Any] = dict(report(path, path.name))
    parts = told["step_parts"]
    kernel_us = sum(region["time_us_per_step"] for region in told["regions"])
    text_us = sum(region["time_us_per_step"] for region in told["regions"] if region["text"])
    pace = told["pace"]
    return Figures(
        step_ms=f"{told['step_time_us'] / 1e3:.3f}",
        kernels=told["kernels"],
        kernel_time_ms=f"{(parts['kernels_us'] + parts['communication_us']) / 1e3:.3f}",
        launches=f"{pace['launches']:.0f}" if pace else "",
        busy=f"{told['gpu_busy_share']:.2%}",
        waiting_ms=f"{parts['idle_launch_us'] / 1e3:.3f}",
        linked=f"{told['linked_share']:.2%}",
        text=f"{text_us / kernel_us:.1%}" if kernel_us else "",
    ), told


def table() -> str:
    """Both tables, in the page's form."""
    lines: list[str] = []
    parts = ""
    with tempfile.TemporaryDirectory() as folder:
        for run in (*NSYS, *ROCPROFV3):
            document = loaded(f"{run}.json.gz")
            ours, of_torch = figures_of(TRACES / f"{run}.json.gz")
            if run in NSYS:
                tool, path = "nsys", export(document, Path(folder) / "run.sqlite")
            else:
                tool, path = "rocprofv3", Path(folder) / "results.json"
                path.write_text(json.dumps(recorded(document)))
            theirs, of_tool = figures_of(path)
            lines += [f"| {run} | torch.profiler | {ours.cells()} |", f"| | {tool} | {theirs.cells()} |"]
            if run == PARTS:
                parts = PARTS_HEAD.format(run=run) + "\n".join(_parts(of_torch, of_tool)) + "\n"
    return HEAD + "\n".join(lines) + "\n\n" + parts


def _parts(of_torch: dict[str, Any], of_tool: dict[str, Any]) -> Iterator[str]:
    """The regions of both, those of one title in the order of their times."""
    rest = list(of_tool["regions"])
    for region in of_torch["regions"]:
        same = next((r for r in rest if r["title"] == region["title"]), None)
        if same is not None:
            rest.remove(same)
        cells = (
            region["title"],
            f"{region['time_us_per_step'] / 1e3:.3f}",
            f"{same['time_us_per_step'] / 1e3:.3f}" if same else "",
            "yes" if region["text"] else "no",
            "" if not same else "no" if not same["text"] else "the same" if same["text"] == region["text"] else "yes",
        )
        yield f"| {' | '.join(cells)} |"
    for region in rest:
        told = "yes" if region["text"] else "no"
        yield f"| {region['title']} |  | {region['time_us_per_step'] / 1e3:.3f} |  | {told} |"


def page(text: str, tables: str) -> str:
    """The page with these tables between its marks."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{tables}\n{END}{rest.partition(END)[2]}"


def main() -> int:
    """Writes or compares the page."""
    old = PAGE.read_text(encoding="utf-8")
    new = page(old, table())
    if "--check" in sys.argv[1:]:
        print(f"docs/trace-files.md is {'up to date' if new == old else 'stale: python -m tools.docs.trace_files'}")
        return int(new != old)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
