"""The benchmark goes on behind a row that its process does not survive, and loses none."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("triton")

import torch

from benchmarks.operations.kernel_rows import SPENT, distance
from benchmarks.operations.kernels import rows
from kernels.operations import operation

CHILD = """
import json, os, subprocess, sys, time
for name, number in json.loads(sys.argv[1])["items"]:
    if number == 1:
        os._exit(9)
    if number == 2:
        # Its own child holds the pipe that the rows come by.
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        time.sleep(60)
    print("noise")
    print(json.dumps({"operation": name, "case": str(number), "pid": os.getpid()}), flush=True)
"""


def test_a_crash_and_a_hang_cost_one_row_each(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    items = [("softmax", n) for n in (0, 1, 2, 3)] + [("softmax", 0)]
    found = list(rows([sys.executable, str(script)], items, {}, 1.5, time.monotonic() + 60))
    assert [("pid" in r, r["case"]) for r in found] == [
        (True, "0"),
        (False, str(operation("softmax").cases[1])),
        (False, str(operation("softmax").cases[2])),
        (True, "3"),
        (True, "0"),
    ]
    assert all("its process ended" in r["left_out"] for r in found[1:3])
    assert found[0]["pid"] != found[3]["pid"] == found[4]["pid"]


def test_a_process_that_a_candidate_spoilt_costs_no_further_row(tmp_path: Path) -> None:
    """Its row is there already; the next is measured by another process."""
    script = tmp_path / "child.py"
    script.write_text(
        "import json, os, sys\n"
        "for name, number in json.loads(sys.argv[1])['items']:\n"
        "    print(json.dumps({'operation': name, 'case': str(number), 'pid': os.getpid()}), flush=True)\n"
        f"    if number == 1:\n        sys.exit({SPENT})\n"
    )
    items = [("softmax", n) for n in (0, 1, 2, 3)]
    told = list(rows([sys.executable, str(script)], items, {}, 5, time.monotonic() + 60))
    assert [r["case"] for r in told] == ["0", "1", "2", "3"]
    assert [r["pid"] for r in told[:2]] != [r["pid"] for r in told[2:]]
    assert told[0]["pid"] == told[1]["pid"] and told[2]["pid"] == told[3]["pid"]


def test_what_there_is_no_time_for_is_said(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    found = list(rows([sys.executable, str(script)], [("softmax", 0), ("softmax", 3)], {}, 5, time.monotonic() - 1))
    assert [r["left_out"] for r in found] == ["no time left", "no time left"]


def test_the_distance_of_codes_and_infinities() -> None:
    """8-bit floats take no arithmetic in torch, and infinity minus infinity is no number."""
    codes = torch.tensor([1.0, -2.0, 448.0]).to(torch.float8_e4m3fn)
    other = torch.tensor([1.0, 2.0, 448.0]).to(torch.float8_e4m3fn)
    assert distance(codes, (codes,)) == 0.0
    assert distance(other, (codes,)) == pytest.approx(4 / math.hypot(1, 2, 448))
    largest = torch.tensor([3.0, -math.inf, math.nan, 4.0])  # of a segment, of none, unknown
    assert distance(largest.clone(), (largest,)) == 0.0
    assert distance(torch.tensor([3.0, -math.inf, 5.0, 5.0]), (largest,)) == pytest.approx(1 / 5)
    assert distance(torch.tensor([3.0, 0.0, 0.0, 4.0]), (largest,)) == math.inf
    assert distance(torch.tensor([3.0, -math.inf, 0.0, math.nan]), (largest,)) == math.inf
