"""A recording on the CPU, from the command to the packed traces; a row that fails costs itself alone."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.traces.recording import with_kernels
from profiler.region.mining.mine import mine
from profiler.trace import read_trace
from profiler.trace.execution_trace import read_execution
from tests.conftest import ROOT
from tools.corpus import record_models
from tools.corpus.mined import programs_of
from tools.corpus.record_models import pack
from tools.corpus.recording.child import with_modules

ROWS = ("wavenet_infer", "pyg_GCNConv")
"""One of plain torch, and one of a library that the project does not install."""


def test_what_was_recorded_is_packed_and_mined_and_what_failed_is_told(tmp_path: Path) -> None:
    only = [part for row in ROWS for part in ("--only", row)]
    command = [sys.executable, "-m", "tools.corpus.record_models", "--device", "cpu", "--tiny", "--workers", "2"]
    subprocess.run([*command, "--seconds", "100", "--out", str(tmp_path), *only], cwd=ROOT, check=True, timeout=200)
    report = {line["name"]: line for line in json.loads((tmp_path / "report.json").read_text())}
    assert report["wavenet_infer"]["state"] == "done"
    if find_spec("torch_geometric") is None:
        assert report["pyg_GCNConv"]["state"] == "failed"
        assert "torch_geometric" in report["pyg_GCNConv"]["error"]
    with tarfile.open(tmp_path / "traces_0.tar") as tar:
        tar.extractall(tmp_path, filter="data")
    trace = tmp_path / "wavenet_infer.json.gz"
    body = with_kernels(json.loads(gzip.decompress(trace.read_bytes())))
    assert body["corpus"]["name"] == "wavenet_infer"
    with gzip.open(trace, "wt") as out:
        json.dump(body, out)
    read = read_trace(trace)
    assert len(read.steps) == 1
    assert any("Conv1d" in path for path in read.modules)
    execution = read_execution(tmp_path / "wavenet_infer.et.json.gz")
    assert mine(read, execution=execution).joined_share == 1.0
    texts = [p.text for p in programs_of(trace)]
    assert any("conv1d(" in text for text in texts)
    assert any("* sigmoid(" in text for text in texts)


def test_annotations_of_modules_become_frames_and_leave_the_gpus_side() -> None:
    name = "nn.Module: Linear_0"
    events = [
        {"name": name, "cat": "user_annotation", "ts": 1, "dur": 2},
        {"name": name, "cat": "gpu_user_annotation", "ts": 1, "dur": 2},
        {"name": "ProfilerStep#1", "cat": "user_annotation", "ts": 0, "dur": 9},
    ]
    made = with_modules({"traceEvents": events, "schemaVersion": 1})
    assert made["schemaVersion"] == 1
    assert [(e["name"], e["cat"]) for e in made["traceEvents"]] == [
        (name, "python_function"), ("ProfilerStep#1", "user_annotation"),
    ]  # fmt: skip


def test_tars_stay_below_their_limit_and_what_no_longer_fits_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_models, "MAX_TAR_BYTES", 20_000)
    monkeypatch.setattr(record_models, "MAX_TARS", 2)
    traces, out = tmp_path / "traces", tmp_path / "out"
    traces.mkdir()
    out.mkdir()
    for number in range(7):
        (traces / f"row{number}.json.gz").write_bytes(b"x" * 3000)
        (traces / f"row{number}.et.json.gz").write_bytes(b"y" * 2000)
    (traces / "torn.et.json.gz").write_bytes(b"y")
    left_out = pack(traces, out)
    packed: list[str] = []
    for tar in sorted(out.iterdir()):
        with tarfile.open(tar) as archive:
            names = archive.getnames()
        assert tar.stat().st_size <= 20_000 + 10_240  # tar's own padding
        packed += names
    rows = {f"row{n}" for n in range(7)}
    assert {n.split(".")[0] for n in packed} == rows - set(left_out)
    assert len(packed) == len(set(packed)) == 2 * (7 - len(left_out))
    assert 0 < len(left_out) < 7
