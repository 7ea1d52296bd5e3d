"""/metrics in Prometheus' text format, read by a parser that follows its specification and nothing of ours."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.jobs.stats import JobStats
from tests.app.storage.validations import add_validation
from tests.app.web.conftest import Serving, serving
from tests.conftest import ROOT

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)(?: (-?\d+))?")


def parse(text: str) -> tuple[dict[str, str], Samples]:
    """Type of each metric, and its samples; AssertionError for what the format (version 0.0.4) does not allow."""
    assert text.endswith("\n")
    kinds: dict[str, str] = {}
    helped: set[str] = set()
    samples: Samples = {}
    group = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in helped, "HELP comes once"
            helped.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds, "TYPE comes once, before the samples"
            assert kind in ("counter", "gauge", "histogram", "summary", "untyped")
            kinds[name] = kind
            group = name
        elif line and not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match, line
            name, labels, value, _ = match.groups()
            assert name == group, "the samples of a metric stand together"
            pairs, rest = [], labels or ""
            while rest:
                label = LABEL.match(rest)
                assert label, rest
                pairs.append((label[1], label[2]))
                rest = rest[label.end() :]
            key = (name, tuple(sorted(pairs)))
            assert key not in samples, f"{key} twice"
            samples[key] = float(value)
    assert helped == set(kinds)
    return kinds, samples


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("metrics"), "trace") as server:
        yield server


def read(web: Serving) -> Samples:
    answer = web.client.get("/metrics")
    assert re.fullmatch(r"text/plain; version=\d+\.\d+\.\d+; charset=utf-8", answer.headers["content-type"])
    return parse(answer.text)[1]


def test_the_format_and_the_names(web: Serving) -> None:
    kinds, samples = parse(web.client.get("/metrics").text)
    assert all((kind == "counter") == name.endswith("_total") for name, kind in kinds.items())
    assert all(math.isfinite(value) and value >= 0 for value in samples.values())
    assert all(name.startswith(("tritonworthy_", "process_")) for name in kinds)


def test_every_metric_is_documented_and_no_other(web: Serving) -> None:
    kinds, _ = parse(web.client.get("/metrics").text)
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `((?:tritonworthy|process)_[a-z_]+)` \| (\w+) \|", page, re.M))
    assert rows == kinds


def test_no_start_of_the_server_waits_for_the_client_of_prometheus() -> None:
    """It takes 20 ms to import; the first question for /metrics does it."""
    code = "import sys, app.main; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_what_was_done_is_counted(web: Serving) -> None:
    before = read(web)
    content = b"trace of metrics" * 100
    trace = web.client.post("/api/v1/traces?wait=20", content=content).json()
    assert trace["status"] == "ready"
    now = read(web)

    def more(name: str, **labels: str) -> float:
        key = (f"tritonworthy_{name}", tuple(sorted(labels.items())))
        return now[key] - before.get(key, 0)

    deadline = time.monotonic() + 120
    while not more("read_bytes_total") and time.monotonic() < deadline:  # it is counted after it is stored
        now = read(web)
    assert more("jobs", kind="read", state="done") == 1
    assert more("jobs_ended_total", kind="read", reason="ok") == 1
    assert more("read_bytes_total") == len(content)
    assert 0 < more("read_seconds_total") < 20
    assert more("job_seconds_total", kind="read") > 0
    assert more("http_responses_total", method="POST", status="2xx") == 1
    assert more("gpu_busy_seconds_total") == 0, "reading is no work of the GPU"


def test_waiting_jobs_have_an_age_and_measuring_counts_as_the_gpus_time(web: Serving) -> None:
    web.child("hang")
    for _ in range(2):
        add_validation(web.state.store, name="v", region="x", region_id=None, request={}, cap=9)
    web.state.queue.wake("validate")
    time.sleep(1.2)
    now = read(web)
    assert now[("tritonworthy_queue_depth", (("kind", "validate"),))] == 1
    assert now[("tritonworthy_queue_depth", (("kind", "read"),))] == 0
    assert 1 <= now[("tritonworthy_oldest_waiting_seconds", (("kind", "validate"),))] < 60
    assert now[("tritonworthy_oldest_waiting_seconds", (("kind", "read"),))] == 0
    assert now[("tritonworthy_gpu_busy", ())] == 1
    assert now[("tritonworthy_gpu_busy_seconds_total", ())] > 0.5
    assert now[("tritonworthy_gpu_suspect", ())] == 0


def test_memory_and_descriptors_are_the_processes_own(web: Serving) -> None:
    now = read(web)
    status = Path("/proc/self/status").read_text()
    resident = int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]
    assert now[("process_resident_memory_bytes", ())] == pytest.approx(resident, rel=0.1)
    assert 5 < now[("process_open_fds", ())] < 500


def test_two_measurements_at_once_count_once() -> None:
    stats = JobStats()
    with stats.running("validate"), stats.running("landscape"), stats.running("read"):
        time.sleep(0.1)
    figures = stats.figures()
    assert 0.1 <= figures.gpu_busy_seconds < 0.15
    assert not figures.gpu_busy
    assert all(0.1 <= figures.seconds[kind] < 0.2 for kind in ("validate", "landscape", "read"))
