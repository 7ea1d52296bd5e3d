"""Writes app/analysis/kernel_line_counts.json: how many lines each kernel is of a file that can be downloaded.

`python -m tools.records.own_lines`, after a kernel has changed by more than a few lines.
"""

from __future__ import annotations

import json

from app.analysis.kernel_line_counts import COUNTED
from kernels.hand_written import WRITTEN
from kernels.starter_kit.lines import counted


def main() -> None:
    """Count all kernels with a file of their own."""
    line_counts = {w.name: counted(w.call) for w in WRITTEN}
    COUNTED.write_text(json.dumps(line_counts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
