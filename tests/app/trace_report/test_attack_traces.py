"""Traces that once lost all of their regions to one, or filled the memory: each is read, each region has advice."""

from __future__ import annotations

import gzip
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from app import cli
from app.analysis.service import advise_region
from app.trace_report.report import report
from tests.conftest import ROOT

FOLDER = ROOT / "tests" / "data" / "attacks" / "traces"
TRACES = sorted(p.name.removesuffix(".json.gz") for p in FOLDER.iterdir() if p.name.endswith(".json.gz"))
HUGE = "w_us_big"
NOT_WRITTEN = ("s_einsum_dot", "s_tensordot")
"""One of their regions has no text: a trace lacks the equation of an einsum."""
GIB = 2**30


def test_the_traces_are_here() -> None:
    assert len(TRACES) == 21


@pytest.mark.parametrize("name", [t for t in TRACES if t != HUGE])
def test_every_region_has_advice_and_a_text_that_can_be_asked_again(name: str) -> None:
    trace = report(FOLDER / f"{name}.json.gz", name, strict=False)
    json.dumps(trace, allow_nan=False)
    assert trace["regions"]
    for region in trace["regions"]:
        assert region["advice"]["tool"] in ("skip", "library", "compile", "triton", "cuda")
        if name in NOT_WRITTEN and region["missing"]:
            continue
        assert advise_region(region["text"])["text"] == region["text"]
    assert not [n for n in trace["notes"] if n["code"] == "region-failed"]


def test_a_reshape_of_the_loss_costs_no_other_region() -> None:
    plain, reshaped = (report(FOLDER / f"{name}.json.gz", name, strict=False) for name in ("m_plain", "m_reshape"))
    products = [{r["name"] for r in t["regions"] if "GEMM" in r["name"]} for t in (plain, reshaped)]
    assert products[0] == products[1] == {"GEMM", "GEMM with GELU tail"}


@pytest.mark.parametrize("rows", [2**30, 2**22])
def test_a_split_into_millions_is_not_run(rows: int, tmp_path: Path) -> None:
    """In a process of its own, held to 12 GiB: 2^30 rows took more than 20, 2^22 more than 1."""
    recorded = gzip.decompress((FOLDER / f"{HUGE}.json.gz").read_bytes())
    assert str(2**30).encode() in recorded
    path = tmp_path / "split.json"
    path.write_bytes(recorded.replace(str(2**30).encode(), str(rows).encode()))
    code = (
        "import json, sys\n"
        "from app.trace_report.report import report\n"
        "from profiler.child.peak_memory import peak_bytes\n"
        "trace = report(sys.argv[1], 'huge', strict=False)\n"
        "print(json.dumps([[r['advice']['tool'] for r in trace['regions']], peak_bytes()]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True, text=True, check=True, cwd=ROOT, timeout=800,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (12 * GIB, 12 * GIB)),
    )  # fmt: skip
    tools, peak = json.loads(done.stdout)
    assert len(tools) == 2
    assert peak < GIB


@pytest.mark.parametrize("name", ["m_reshape", "s_zero_mm", "s_head0"])
def test_a_check_of_them_judges_and_does_not_crash(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["check", str(FOLDER / f"{name}.json.gz"), "--device", "H200"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("passed")
