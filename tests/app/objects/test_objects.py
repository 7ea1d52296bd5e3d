"""What a real server answers is exactly what app.objects says: a key that a builder fills and the type lacks fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.accuracy.corpus.corpus_figures import prediction_of, third_figures
from app.accuracy.corpus.looks import load_development, load_looks
from app.accuracy.corpus.measured import load_measured
from app.accuracy.figures import load_committed
from app.archive import record_store
from app.archive.landscapes import surveys
from app.archive.listing import row
from app.archive.merging import plan, step_json
from app.estimate.rates import FITTED
from app.jobs.host import describe
from app.jobs.ray.model import GpuType, gpu_type_json
from app.objects.accuracy import AccuracyFigures
from app.objects.advice import RegionDevices
from app.objects.check import Check, CheckList, Report
from app.objects.corpus import CorpusRun, Look, ThirdFigures
from app.objects.device import Device, FleetGpu, HostDevice
from app.objects.job import Job
from app.objects.landscape import LandscapeBody, Survey
from app.objects.record import (
    ArchiveRecord,
    ArchiveRow,
    ArchiveStep,
    MeasuredDevices,
    NearestRecord,
    RecordBody,
    Regression,
    Validation,
    ValidationList,
)
from app.objects.region import AdviceAnswer, Region, RegionList
from app.objects.trace import Comparison, Ranks, Trace, TraceList
from app.trace_report.comparison.compare import compare_traces
from kernels.host import Host
from tests.app.objects.exact import differences
from tests.app.requests.landscape_sample import sample
from tests.app.web.conftest import Serving, serving

EXAMPLES = Path(__file__).resolve().parents[3] / "app" / "examples"
REGION = (EXAMPLES / "rms_norm_by_hand.txt").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server whose jobs are done for real."""
    with serving(tmp_path_factory.mktemp("data")) as started:
        yield started


def get(server: Serving, path: str) -> Any:
    answer = server.client.get(f"/api/v1{path}", timeout=150)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture(scope="module")
def trace(server: Serving) -> dict[str, Any]:
    body = (EXAMPLES / "handrolled_blocks.json.gz").read_bytes()
    answer = server.client.post("/api/v1/traces?wait=120", content=body, timeout=150)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    assert made["status"] == "ready"
    return made


def test_a_trace_and_what_is_asked_about_it(server: Serving, trace: dict[str, Any]) -> None:
    assert differences(Trace, trace) == []
    assert differences(TraceList, get(server, "/traces")) == []
    assert differences(Ranks, get(server, f"/traces/{trace['id']}/ranks")) == []
    assert differences(Job, get(server, f"/jobs/{trace['job']}")) == []
    assert differences(Comparison, compare_traces(trace, trace)) == []  # type: ignore[arg-type]


def test_a_region_of_a_trace_and_one_of_a_text(server: Serving, trace: dict[str, Any]) -> None:
    with_text = next(r for r in trace["regions"] if r["text"])
    region = get(server, f"/regions/{with_text['id']}")
    assert differences(Region, region) == []
    assert differences(RegionDevices, get(server, f"/regions/{region['id']}/devices")) == []
    assert differences(MeasuredDevices, get(server, f"/regions/{region['id']}/measured-devices")) == []
    assert differences(RegionList, get(server, "/regions")) == []
    advice = server.client.post("/api/v1/advice", json={"region": REGION}, timeout=150).json()
    assert advice["archive"], "the Archive has this region"
    assert differences(AdviceAnswer, advice) == []
    widget = {"share_of_step": 0.2, "uniqueness": 0.9, "irregularity": 0.1}
    answered = server.client.post("/api/v1/advice", json={"widget": widget}).json()
    assert differences(AdviceAnswer, answered) == []


def test_a_failed_trace_has_nulls_where_nothing_is_known(server: Serving) -> None:
    answer = server.client.post("/api/v1/traces?wait=60", content=b'{"traceEvents": []}', timeout=90)
    failed = get(server, f"/traces/{answer.json()['trace']}")
    assert failed["status"] == "failed"
    assert differences(Trace, failed) == []


def test_validations_waiting_and_recorded(server: Serving) -> None:
    job = server.client.post("/api/v1/validations", json={"region": REGION}, timeout=60).json()
    assert differences(Job, job) == []
    cancelled = server.client.post(f"/api/v1/jobs/{job['id']}/cancel").json()
    assert differences(Job, cancelled) == []
    assert differences(Validation, get(server, f"/validations/{job['id']}")) == []
    assert differences(ValidationList, get(server, "/validations")) == []
    for record in record_store.records()[:10]:
        assert differences(Validation, get(server, f"/validations/{record['id']}")) == []
        assert differences(Regression, get(server, f"/validations/{record['id']}/regression")) == []


def test_a_check_and_its_report(server: Serving) -> None:
    body = {"regions": [REGION], "assertions": {"compile": "error", "library": "warn", "worth-it": "warn"}}
    job = server.client.post("/api/v1/checks?wait=120", json=body, timeout=150).json()
    assert differences(Job, job) == []
    check = get(server, f"/checks/{job['id']}")
    assert check["errors"] or check["warnings"]
    assert differences(Check, check) == []
    assert differences(CheckList, get(server, "/checks")) == []
    assert differences(Report, get(server, f"/checks/{job['id']}.json")) == []


def test_the_device_with_and_without_a_gpu(server: Serving) -> None:
    assert differences(Device, get(server, "/device")) == []
    for host in (Host(), Host(gpu="NVIDIA H200", capability=(9, 0), versions={"torch": "2.11.0"})):
        assert differences(HostDevice, describe(host)) == []
    fleet = GpuType("NVIDIA H200", 1, 8, 1, 0, ("node-1: it is gone",), {"torch": ("2.11.0",)})
    assert differences(FleetGpu, gpu_type_json(fleet)) == []


def test_the_archive() -> None:
    record_files = record_store.list_record_files()
    records = record_store.records()
    assert [d for r in records for d in differences(ArchiveRecord, r)] == []
    assert [d for r in records for d in differences(ArchiveRow, row(r))] == []
    assert differences(NearestRecord, record_store.nearest(REGION)) == []
    bodies = [record_store.schema.read(json.loads(s.path.read_bytes())) for s in record_files[:5]]
    assert [d for b in bodies for d in differences(RecordBody, b)] == []
    steps = plan([("a file", bodies[0]), ("another", bodies[1])], record_files[1:])
    assert [d for s in steps for d in differences(ArchiveStep, step_json(s))] == []


def test_landscapes() -> None:
    assert [d for s in surveys() for d in differences(Survey, s)] == []
    assert differences(LandscapeBody, sample()) == []


def test_the_accuracy_of_the_advice() -> None:
    committed: Any = load_committed()
    points = [{**s, "calibration": [tuple(p) for p in s["calibration"]]} for s in committed["scores"]]
    memory = [{**s, "calibration": [tuple(p) for p in s["calibration"]]} for s in committed["memory_scores"]]
    assert differences(AccuracyFigures, {**committed, "scores": points, "memory_scores": memory}) == []


def test_the_accuracy_on_the_corpus() -> None:
    development = load_development()
    assert development is not None
    assert differences(ThirdFigures, development) == []
    assert [d for look in load_looks() for d in differences(Look, look)] == []
    few = third_figures("development", prediction_of(FITTED, False), None, load_measured("development")[:3])
    for outcome in few["outcomes"]:
        if outcome["score"] is not None:
            outcome["score"]["calibration"] = [(n, p, m) for n, p, m in outcome["score"]["calibration"]]
    assert differences(CorpusRun, few) == []


def test_a_key_more_or_less_or_of_another_kind_is_told() -> None:
    criterion = {"name": "a", "holds": None, "value": 1.0, "threshold": None, "because": "", "source": ""}
    record = {**record_store.records()[0]}
    assert differences(ArchiveRecord, {**record, "extra": 1}) == ["extra: Extra inputs are not permitted"]
    lacking = {key: value for key, value in record.items() if key != "outcome"}
    assert differences(ArchiveRecord, lacking) == ["outcome: Field required"]
    advice = {**record["advice_before"], "criteria": [{**criterion, "holds": "yes"}]}  # type: ignore[dict-item]
    (told,) = differences(ArchiveRecord, {**record, "advice_before": advice})
    assert told.startswith("advice_before.criteria.0.holds: ")
