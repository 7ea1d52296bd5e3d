"""A cut trace is what the profiler would have written had it stopped earlier; its figures are counted, not copied."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from profiler.trace import read_trace
from tests.conftest import ROOT
from tests.profiler.trace.files import EXPECTED, TRACES, loaded
from tools.cut_trace import cut_after, write_json
from tools.docs.trace_figures import figures_of, trace_paths

TRAINING = "t5_train_autocast_eager.json.gz"


def test_a_cut_trace_has_the_kernels_that_its_steps_launched(tmp_path: Path) -> None:
    whole = read_trace(TRACES / TRAINING)
    write_json(tmp_path / "cut.json.gz", cut_after(loaded(TRAINING), 1))
    cut = read_trace(tmp_path / "cut.json.gz")
    assert (len(whole.steps), len(cut.steps)) == (2, 1)
    wanted = Counter(whole.kernels.duration_us[whole.kernels.launch_us < whole.steps[0].end_us].tolist())
    assert Counter(cut.kernels.duration_us.tolist()) == wanted
    assert 0 < len(cut.kernels.name) < len(whole.kernels.name)
    assert (cut.kernels.op >= 0).all()


def test_no_event_is_changed_and_no_arrow_lost_one_end() -> None:
    document = loaded(TRAINING)
    known = Counter(json.dumps(e, sort_keys=True) for e in document["traceEvents"])
    cut = cut_after(document, 1)
    kept = Counter(json.dumps(e, sort_keys=True) for e in cut["traceEvents"])
    assert kept <= known
    assert {k: v for k, v in cut.items() if k != "traceEvents"} == {
        k: v for k, v in document.items() if k != "traceEvents"
    }
    for flow in ("ac2g", "fwdbwd"):
        assert one_ended(cut, flow) <= one_ended(document, flow)  # the profiler leaves some itself


def one_ended(document: dict[str, Any], flow: str) -> set[int]:
    """Arrows without a beginning or without an end."""
    begun, ended = (
        {e["id"] for e in document["traceEvents"] if e.get("cat") == flow and e["ph"] == phase} for phase in "sf"
    )
    assert begun & ended
    return begun ^ ended


def test_more_steps_than_there_are_is_an_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.cut_trace", str(TRACES / TRAINING), str(tmp_path / "x.gz"), "--steps", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "the trace has 2 steps on the host, 3 were asked for\n")
    assert not (tmp_path / "x.gz").exists()


@pytest.mark.parametrize(
    "name", ["large_t5_train_autocast_2steps.json.gz", "hta_nccl.json.gz", "kineto_docs_before_fix.json"]
)
def test_the_figures_are_those_of_the_file(name: str) -> None:
    assert figures_of(TRACES / name) == EXPECTED[name]


def test_there_are_figures_of_every_trace_and_of_no_other() -> None:
    assert {p.name for p in trace_paths()} == set(EXPECTED)
