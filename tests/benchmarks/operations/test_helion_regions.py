"""Every region of the benchmark has a Helion source, and a region that fails says so in its file."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from benchmarks.operations.helion_regions import REGIONS, main
from kernels.codegen.helion.source import write
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse


def test_there_are_twenty_regions_of_all_forms() -> None:
    forms = [write(lower(parse(text))).form for text in REGIONS.values()]
    assert len(forms) == 20
    assert set(forms) == {"chain", "rows", "product"}


def test_a_region_that_cannot_run_here_leaves_its_reason(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        return
    assert main(["--out", str(tmp_path), "--only", "row-dot", "--seconds", "100", "--tuning", "1"]) == 0
    result = json.loads((tmp_path / "row-dot.json").read_text())
    assert "see row-dot.log" in result["failed"]
    assert "CUDA" in (tmp_path / "row-dot.log").read_text()
