"""The API's shapes, codes and streams, with children that the test chooses in place of readers and measurers."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.objects.common import Problem
from app.objects.device import Device
from app.objects.job import Job
from app.objects.record import Validation, ValidationList
from app.objects.trace import Trace, TraceList
from tests.app.objects.exact import differences
from tests.app.web.conftest import Serving, serving

BODY = b'{"traceEvents": []}'
REGION = "x: bf16[1024, 4096]\ny = gelu(x) * 2\nreturn y\n"
JSON = {"Content-Type": "application/json"}


def upload(web: Serving, **params: Any) -> dict[str, Any]:
    response = web.client.post("/api/v1/traces", params={"wait": 20, "fresh": True, **params}, content=BODY)
    assert response.status_code == 201, response.text
    answer: dict[str, Any] = response.json()
    return answer


def code(response: httpx.Response) -> tuple[int, str]:
    """Status and code of a problem, which is checked to be a whole one."""
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    core = {key: problem.get(key) for key in Problem.__annotations__}
    assert differences(Problem, core) == []
    assert problem["status"] == response.status_code
    assert problem["title"]
    return response.status_code, str(problem["code"])


# --- traces and regions


def test_a_trace_with_its_regions(web: Serving) -> None:
    trace = upload(web, name="step")
    assert differences(Trace, trace) == []
    assert (trace["name"], trace["status"], trace["kernels"], trace["linked_share"]) == ("step", "ready", 3, 1.0)
    assert [r["name"] for r in trace["regions"]] == ["first", "second"]
    assert trace["regions"][0]["time_us_per_step"] is None  # NaN in the reader's answer; JSON has none
    region = web.client.get(f"/api/v1/regions/{trace['regions'][1]['id']}").json()
    assert region["source"] == {"trace": trace["id"], "module": "m", "line": "", "ops": []}
    assert region["share_of_step"] == 0.4
    assert web.client.get(f"/api/v1/traces/{trace['id']}").json() == trace


def test_lists_are_paged_newest_first(web: Serving) -> None:
    made = [upload(web)["id"] for _ in range(3)]
    seen, after = [], None
    while True:
        page = web.client.get("/api/v1/traces", params={"limit": 2} | ({"after": after} if after else {})).json()
        assert differences(TraceList, page) == []
        assert len(page["items"]) <= 2
        assert all("regions" not in item for item in page["items"])
        seen += [item["id"] for item in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert seen[:3] == made[::-1]
    assert len(set(seen)) == len(seen)


def test_a_file_that_is_no_trace(web: Serving) -> None:
    web.child("not_a_trace")
    waited = web.client.post("/api/v1/traces?fresh=true&wait=20", content=b"hello")
    assert code(waited) == (422, "trace-not-json")
    assert waited.json()["remedy"] == "Send a trace."
    trace = web.client.get(f"/api/v1/traces/{waited.json()['trace']}").json()
    assert trace["status"] == "failed"
    assert trace["error"] == {"code": "trace-not-json", "message": "This is not JSON.", "remedy": "Send a trace."}
    web.child("trace")
    upload(web)


def test_a_reader_that_crashes_or_hangs(web: Serving) -> None:
    web.child("crash")
    assert code(web.client.post("/api/v1/traces?fresh=true&wait=20", content=BODY)) == (422, "fault")
    web.child("hang", timeout_s=0.5)
    assert code(web.client.post("/api/v1/traces?fresh=true&wait=20", content=BODY)) == (422, "timeout")
    web.child("trace", timeout_s=60)
    upload(web)


@pytest.mark.parametrize("kind", ["traces", "regions", "validations", "jobs"])
@pytest.mark.parametrize("name", ["a" * 26, "A" * 26, "a" * 25, "..", "%00", "a'--", "é" * 26])
def test_unknown_ids(web: Serving, kind: str, name: str) -> None:
    assert code(web.client.get(f"/api/v1/{kind}/{name}/" if name == ".." else f"/api/v1/{kind}/{name}"))[0] == 404


# --- requests that cannot be answered


@pytest.mark.parametrize(
    ("body", "status", "wanted"),
    [
        (b"", 422, "invalid-request"),
        (b"{", 422, "invalid-json"),
        (b"[" * 100_000, 422, "invalid-json"),
        (b'{"region": ' + b"9" * 5000 + b"}", 422, "invalid-json"),
        (b'{"region": "x", "share_of_step": NaN}', 422, "invalid-request"),
        (b'{"region": "x", "share_of_step": 1e999}', 422, "invalid-request"),
        (b'{"region": "x", "share_of_step": 1.5}', 422, "invalid-request"),
        (b'{"region": "x", "step_time_us": 0}', 422, "invalid-request"),
        (b'{"region": "x", "objective": "beauty"}', 422, "invalid-request"),
        (b'{"region": "x", "shaeps": []}', 422, "invalid-request"),
        (b'{"region": 5}', 422, "invalid-request"),
        (b'{"region": ""}', 422, "invalid-request"),
        (b"{}", 422, "invalid-request"),
        (b"[]", 422, "invalid-request"),
        (b"null", 422, "invalid-request"),
        (b'{"region": "x", "widget": {"uniqueness": 0, "irregularity": 0}}', 422, "invalid-request"),
        (b'{"widget": {"uniqueness": 2, "irregularity": 0}}', 422, "invalid-request"),
        (b'{"widget": {"uniqueness": 1, "irregularity": 0, "kind": "magic"}}', 422, "invalid-request"),
        (b"\xff\xfe", 422, "invalid-json"),
        (b'"' + b"x" * 2_000_000 + b'"', 413, "body-too-large"),
        (json.dumps({"region": "x = 1\n" * 20_000}).encode(), 413, "region-too-large"),
    ],
)
def test_bodies_that_make_no_sense(web: Serving, body: bytes, status: int, wanted: str) -> None:
    assert code(web.client.post("/api/v1/advice", content=body, headers=JSON)) == (status, wanted)


def test_a_long_body_without_a_length(web: Serving) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * 50_000

    assert code(web.client.post("/api/v1/advice", content=chunks(), headers=JSON)) == (413, "body-too-large")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "multipart/form-data"])
@pytest.mark.parametrize("path", ["/api/v1/advice", "/api/v1/validations"])
def test_json_must_say_that_it_is_json(web: Serving, path: str, kind: str) -> None:
    response = web.client.post(path, content=b'{"region": "x"}', headers={"Content-Type": kind} if kind else {})
    assert code(response) == (415, "unsupported-media-type")


def test_problems_never_repeat_what_was_sent(web: Serving) -> None:
    response = web.client.post("/api/v1/advice", json={"region": 5, "device": ["my secret"]})
    assert "my secret" not in response.text
    assert {e["field"] for e in response.json()["errors"]} == {"region", "device"}


def test_methods_that_do_not_exist(web: Serving) -> None:
    assert code(web.client.put("/api/v1/traces")) == (405, "method-not-allowed")
    assert code(web.client.get("/api/v1/nothing")) == (404, "not-found")


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=x", "after=" + "x" * 99])
def test_bad_paging(web: Serving, query: str) -> None:
    assert code(web.client.get(f"/api/v1/traces?{query}")) == (422, "invalid-request")


@pytest.mark.parametrize("wait", ["-1", "nan", "inf", "soon"])
def test_a_wait_that_is_none(web: Serving, wait: str) -> None:
    assert code(web.client.post(f"/api/v1/traces?wait={wait}", content=BODY)) == (422, "invalid-request")


# --- validations and jobs


def region_id(web: Serving) -> str:
    return str(upload(web)["regions"][0]["id"])


def submit(web: Serving, **body: Any) -> dict[str, Any]:
    response = web.client.post("/api/v1/validations", json=body)
    assert response.status_code == 202, response.text
    job: dict[str, Any] = response.json()
    assert response.headers["location"] == f"/api/v1/jobs/{job['id']}"
    assert differences(Job, job) == []
    return job


def until(web: Serving, job_id: str, *states: str) -> dict[str, Any]:
    deadline = time.monotonic() + 120
    while True:
        job: dict[str, Any] = web.client.get(f"/api/v1/jobs/{job_id}").json()
        if job["state"] in states:
            return job
        assert time.monotonic() < deadline, job
        time.sleep(0.05)


def stream(web: Serving, job_id: str, last: int | None = None) -> list[tuple[int, str, Any]]:
    """(id, event, data) of the whole stream."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    with web.client.stream("GET", f"/api/v1/jobs/{job_id}/events", headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-accel-buffering"] == "no"
        text = "".join(response.iter_text())
    collected = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            collected.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return collected


def test_a_validation_from_queue_to_result(web: Serving) -> None:
    wanted = region_id(web)
    job = submit(web, region_id=wanted)
    events = stream(web, job["id"])
    assert [e[0] for e in events] == list(range(1, len(events) + 1))
    assert {e[1] for e in events[:-1]} == {"progress"}
    assert events[-1][1] == "done"
    assert events[-1][2]["state"] == "done"
    assert events[-1][2]["result"]["outcome"] == "unmeasured"
    phases = [e[2]["phase"] for e in events[:-1]]
    assert phases[0] == "queued"
    assert phases[-1] == "measure"
    validation = web.client.get(f"/api/v1/validations/{job['id']}").json()
    assert differences(Validation, validation) == []
    assert (validation["state"], validation["region_id"]) == ("done", wanted)
    region = web.client.get(f"/api/v1/regions/{wanted}").json()
    assert region["validations"] == [job["id"]]
    assert region["advice"]["validation"]["outcome"] == "unmeasured"
    listed = web.client.get("/api/v1/validations", params={"region_id": wanted}).json()
    assert differences(ValidationList, listed) == []
    assert [v["id"] for v in listed["items"]] == [job["id"]]


def test_a_stream_resumes_and_ends(web: Serving) -> None:
    job = submit(web, region_id=region_id(web))
    whole = stream(web, job["id"])
    assert stream(web, job["id"], last=2) == whole[2:]
    assert stream(web, job["id"], last=whole[-1][0]) == []
    assert code(web.client.get(f"/api/v1/jobs/{'a' * 26}/events"))[0] == 404


def test_a_stream_of_a_trace_that_fails(web: Serving) -> None:
    web.child("not_a_trace")
    trace = web.client.post("/api/v1/traces?fresh=true", content=BODY).json()
    last = stream(web, trace["id"])[-1]
    assert (last[1], last[2]["state"], last[2]["error"]["code"]) == ("done", "failed", "trace-not-json")
    web.child("trace")


def test_cancel_running_and_queued(web: Serving) -> None:
    wanted = region_id(web)
    web.child("hang")
    running, waiting = submit(web, region_id=wanted), submit(web, region_id=wanted)
    until(web, running["id"], "running")
    assert web.client.post(f"/api/v1/jobs/{waiting['id']}/cancel").json()["state"] == "cancelled"
    ended: list[Any] = []
    follower = threading.Thread(target=lambda: ended.extend(stream(web, running["id"])))
    follower.start()
    web.client.post(f"/api/v1/jobs/{running['id']}/cancel")
    job = until(web, running["id"], "cancelled")
    follower.join(60)
    assert ended[-1][1:] == ("done", job)
    assert web.client.get(f"/api/v1/validations/{running['id']}").json()["state"] == "cancelled"
    assert code(web.client.post(f"/api/v1/jobs/{'a' * 26}/cancel"))[0] == 404
    web.child("trace")


def test_the_queue_is_capped_and_the_server_stays_quick(web: Serving) -> None:
    wanted = region_id(web)
    web.child("hang")
    cap = web.state.settings.queue_cap
    made = []
    for _ in range(cap + 2):
        response = web.client.post("/api/v1/validations", json={"region_id": wanted})
        if response.status_code == 429:
            break
        made.append(response.json()["id"])
    assert code(response) == (429, "queue-full")
    assert int(response.headers["retry-after"]) > 0
    assert cap <= len(made) <= cap + 1
    started = time.monotonic()
    assert web.client.get("/healthz").status_code == 200
    assert time.monotonic() - started < 10
    for job_id in reversed(made):
        web.client.post(f"/api/v1/jobs/{job_id}/cancel")
    until(web, made[0], "cancelled")
    web.child("trace")


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({}, (422, "invalid-request")),
        ({"region": REGION, "region_id": "a" * 26}, (422, "invalid-request")),
        ({"region_id": "a" * 26}, (404, "not-found")),
        ({"region_id": "REAL", "candidates": []}, (422, "invalid-request")),
        ({"region_id": "REAL", "candidates": ["eager", "nope"]}, (422, "candidate-unknown")),
        ({"region_id": "REAL", "device": ["NVIDIA B200"]}, (422, "device-not-here")),
        ({"region_id": "REAL", "device": ["cpu", "H200"]}, (422, "one-device")),
        ({"region_id": "REAL", "shapes": [{"N": 4}] * 65}, (422, "too-many-shapes")),
        ({"region_id": "REAL", "shapes": [{"N": 2**50}]}, (422, "invalid-request")),
        ({"region_id": "REAL", "shapes": [{"N": -1}]}, (422, "invalid-request")),
    ],
)
def test_validations_that_cannot_be(web: Serving, body: dict[str, Any], wanted: tuple[int, str]) -> None:
    sent = {k: region_id(web) if v == "REAL" else v for k, v in body.items()}
    assert code(web.client.post("/api/v1/validations", json=sent)) == wanted


# --- the server


def test_an_unknown_candidate_is_answered_with_the_known_ones(web: Serving) -> None:
    body = {"region_id": region_id(web), "candidates": ["compile-max"]}
    refused = web.client.post("/api/v1/validations", json=body).json()
    assert "'compile-max'" in refused["detail"]
    assert {"eager", "compile-max-autotune", "triton:softmax", "triton:generated"} <= set(refused["known"])
    assert "library:torch.nn.functional.rms_norm" in refused["known"]


def test_health_metrics_and_openapi(web: Serving) -> None:
    upload(web)
    assert web.client.get("/healthz").json() == {"status": "ok"}
    assert web.client.get("/readyz").status_code == 200
    text = web.client.get("/metrics").text
    done = re.search(r'^tritonworthy_jobs\{kind="read",state="done"\} (\S+)$', text, re.M)
    assert done
    assert float(done[1]) >= 1
    assert re.search(r'^tritonworthy_http_responses_total\{method="POST",status="2xx"\} [1-9]', text, re.M)
    for line in text.splitlines():
        assert line.startswith("# ") or re.fullmatch(r'[a-z_]+(\{[a-z]+="[^"]+"(,[a-z]+="[^"]+")*\})? [0-9.e+]+', line)
    schema = web.client.get("/openapi.json").json()
    wanted = {
        "/api/v1/traces", "/api/v1/traces/{trace_id}", "/api/v1/regions/{region_id}", "/api/v1/advice",
        "/api/v1/validations", "/api/v1/validations/{validation_id}", "/api/v1/jobs/{job_id}",
        "/api/v1/jobs/{job_id}/events", "/api/v1/jobs/{job_id}/cancel", "/api/v1/device", "/healthz", "/readyz",
        "/metrics",
    }  # fmt: skip
    assert wanted <= set(schema["paths"])
    assert all(path.startswith(("/api/", "/healthz", "/readyz", "/metrics")) for path in schema["paths"])


def test_the_device_of_this_host(web: Serving) -> None:
    device = web.client.get("/api/v1/device").json()
    assert differences(Device, device) == []
    assert {"NVIDIA H200", "AMD Instinct MI300X"} <= {d["name"] for d in device["devices"]}


def test_a_restart_keeps_everything_and_open_streams_say_bye(tmp_path: Path) -> None:
    with serving(tmp_path, "trace") as first:
        trace = upload(first)
        first.child("hang")
        job = submit(first, region_id=trace["regions"][0]["id"])
        until(first, job["id"], "running")
        events: list[Any] = []
        follower = threading.Thread(target=lambda: events.extend(stream(first, job["id"])))
        follower.start()
        time.sleep(0.5)
        started = time.monotonic()
        first.server.should_exit = True
        follower.join(60)
        assert time.monotonic() - started < 30  # the job would sleep a minute
        assert events[-1][1] == "bye"
    with serving(tmp_path, "trace") as second:
        kept = second.client.get(f"/api/v1/traces/{trace['id']}").json()
        advice = kept["regions"][0]["advice"]  # with the validation, where the job is done again by now
        region = trace["regions"][0] | {"validations": [job["id"]], "advice": advice}
        assert kept == trace | {"regions": [region, trace["regions"][1]]}
        assert advice | {"validation": None} == trace["regions"][0]["advice"] | {"validation": None}
        assert until(second, job["id"], "done")["attempt"] == 1


def test_descriptors_and_threads_do_not_leak(web: Serving) -> None:
    def count() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    job = submit(web, region_id=region_id(web))
    stream(web, job["id"])
    for _ in range(45):  # fill the thread pool first: it keeps its threads
        web.client.get("/api/v1/traces")
    pool = web.state.store.database.engine.pool
    for connection in [pool.connect() for _ in range(pool.size())]:  # and the database's, which keeps its files
        connection.close()
    web.state.service.tables_maker.join(120)  # both children that answer have started by then
    before = count()
    for _ in range(60):
        web.client.get("/api/v1/traces")
        web.client.get("/static/favicon.svg")
    for _ in range(10):
        stream(web, job["id"])
    after = count()
    assert after[0] <= before[0] + 3
    assert after[1] <= before[1] + 2
