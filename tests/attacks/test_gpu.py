"""Rows "GPU exhaustion", "hung kernel", "CUDA fault poisons the context" and "wrong verdict from a lying child"."""

from __future__ import annotations

import dataclasses
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from kernels.measure.processes.processes import ForkServer
from tests.app.web.conftest import Serving, serving
from tests.kernels.measure.test_session import below, measured
from tests.processes import wait_for

CHILDREN = Path(__file__).with_name("children.py")
REGION = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"
LIMIT_S, GRACE_S = 1.0, 0.5
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("gpu"), "trace", kill_grace_s=GRACE_S) as server:
        server.client.post("/api/v1/advice", json={"region": REGION, "oracle": "off"})
        yield server


def child(web: Serving, name: str, timeout_s: float = 60.0) -> None:
    """Let jobs be done by this child from now on."""
    queue = web.state.queue
    queue.context = dict
    queue.command = lambda _: [sys.executable, str(CHILDREN), name, "{fd}"]
    queue.limits = {kind: dataclasses.replace(limit, timeout_s=timeout_s) for kind, limit in queue.limits.items()}


def ended(web: Serving, job_id: str, seconds: float = 30.0) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while (job := web.client.get(f"/api/v1/jobs/{job_id}").json())["state"] in ("queued", "running"):
        assert time.monotonic() < deadline, job
        time.sleep(0.05)
    return dict(job)


def submit(web: Serving) -> str:
    response = web.client.post("/api/v1/validations", json={"region": REGION})
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


def of_children() -> list[str]:
    """Command lines of living processes that a job's child started, or is; children.py and what it starts alone."""
    collected = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            mine = b"TRITONWORTHY_CHILD=" in (folder / "environ").read_bytes()
            line, state = (folder / "cmdline").read_text(), (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if mine and state != "Z" and (str(CHILDREN) in line or "signal.SIG_IGN" in line):
            collected.append(line)
    return collected


# ------------------------------------------------------------------------------------------------------ GPU exhaustion


def test_gpu_exhaustion_a_flood_of_1000_submissions_is_held_at_the_cap(web: Serving) -> None:
    """As many wait as may, the rest are told when to come again, and the server goes on answering meanwhile."""
    child(web, "hang")
    region = web.state.store.add_region(
        {**web.client.post("/api/v1/advice", json={"region": REGION}).json(), "advice": {}}
    )
    body, cap = {"region_id": region}, web.state.settings.queue_cap
    waits: list[float] = []
    over = threading.Event()

    def watch() -> None:
        with httpx.Client(base_url=web.url, timeout=60, trust_env=False) as own:
            while not over.is_set():
                started = time.monotonic()
                assert own.get("/healthz").status_code == 200
                waits.append(time.monotonic() - started)
                time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: web.client.post("/api/v1/validations", json=body), range(1000)))
    finally:
        over.set()
        watcher.join()
    accepted = [a.json()["id"] for a in answers if a.status_code == 202]
    refused = [a for a in answers if a.status_code == 429]
    assert len(accepted) + len(refused) == 1000
    assert cap <= len(accepted) <= cap + 1  # one runs
    assert all(a.json()["code"] == "queue-full" and int(a.headers["retry-after"]) > 0 for a in refused)
    # Client and server share this process and its lock, so a tail is the test's own.
    assert sorted(waits)[len(waits) // 2] < 0.1
    for job_id in accepted:
        web.client.post(f"/api/v1/jobs/{job_id}/cancel")
    assert {ended(web, job_id)["state"] for job_id in accepted} == {"cancelled"}
    again = web.client.post("/api/v1/validations", json=body)
    assert again.status_code == 202
    assert web.client.post(f"/api/v1/jobs/{again.json()['id']}/cancel").status_code == 200
    ended(web, again.json()["id"])


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("x: f32[1099511627776]\ny = relu(x)\nreturn y\n", None),
        ("x: f32[1099511627776, 1099511627776]\ny = relu(x)\nreturn y\n", None),
        ("N: sizes[8]\nx: f32[N]\ny = relu(x)\nreturn y\n", [{"N": 2**40}]),
        ("N: sizes[8]\nx: f32[N, N]\ny = relu(x)\nreturn y\n", [{"N": 2**40}]),
        ("N: sizes[8]\nx: f32[N]\ny = relu(x)\nreturn y\n", [{"N": 2**62}]),
        ("N: sizes[8]\nx: f32[N]\ny = relu(x)\nreturn y\n", [{"N": 10**30}]),
        ("x: f32[1048576]\ny = x[:, None, None] + x[None, :, None] + x[None, None, :]\nreturn y\n", None),
    ],
)
def test_gpu_exhaustion_shapes_that_no_gpu_holds_are_422(web: Serving, text: str, shapes: Any) -> None:
    body = {"region": text} | ({"shapes": shapes} if shapes else {})
    before = [v["id"] for v in web.client.get("/api/v1/validations").json()["items"]]
    response = web.client.post("/api/v1/validations", json=body)
    assert response.status_code == 422, response.text
    assert [v["id"] for v in web.client.get("/api/v1/validations").json()["items"]] == before


def test_gpu_exhaustion_more_shapes_or_candidates_than_may_be_are_422(web: Serving) -> None:
    many = [{"N": n} for n in range(1, 66)]
    text = "N: sizes[8]\nx: f32[N]\ny = relu(x)\nreturn y\n"
    for body in ({"region": text, "shapes": many}, {"region": REGION, "candidates": ["eager"] * 33}):
        assert web.client.post("/api/v1/validations", json=body).status_code == 422


# --------------------------------------------------------------------------------------------------------- hung kernel


def test_hung_kernel_that_ignores_sigterm_and_forks_ends_in_limit_and_grace(web: Serving) -> None:
    child(web, "stubborn", LIMIT_S)
    started = time.monotonic()
    job = ended(web, submit(web))
    assert (job["state"], job["error"]["code"]) == ("failed", "timeout")
    assert time.monotonic() - started < LIMIT_S + GRACE_S + 30  # it would sleep for ever
    deadline = time.monotonic() + 120
    while left := of_children():
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    child(web, "validation")
    assert ended(web, submit(web))["state"] == "done", "the lane goes on"


# ---------------------------------------------------------------------------------------------------------- CUDA fault


@pytest.mark.parametrize("name", ["abort", "segv"])
def test_cuda_fault_of_a_jobs_process_costs_that_job_only(web: Serving, name: str) -> None:
    child(web, name)
    job = ended(web, submit(web))
    assert (job["state"], job["error"]["code"]) == ("failed", "fault")
    assert "SIG" in job["error"]["message"]
    child(web, "validation")
    assert ended(web, submit(web))["state"] == "done"


def test_cuda_fault_of_one_candidate_costs_that_candidate_only() -> None:
    """Every candidate has its own process: one that dies leaves the others' contexts whole."""
    bad = {"library:300.abort-at-prepare": "fault", "library:310.abort-at-round": "fault",
           "library:312.holder-at-round": "fault"}  # fmt: skip
    with ForkServer(warm=False) as parent:
        _, by_name = measured(parent, "eager", "compile:400", *bad)
        assert {name: by_name[name].status for name in bad} == bad
        assert by_name["eager"].status == by_name["compile:400"].status == "ok"
        deadline = time.monotonic() + 120
        while below(parent._process.pid):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_cuda_never_starts_in_the_web_process(web: Serving) -> None:
    """A fault there would end the server: torch is loaded, and its CUDA half is not."""
    import torch

    assert web.client.post("/api/v1/advice", json={"region": REGION, "oracle": "off"}).status_code == 200
    assert not torch.cuda.is_initialized()


# --------------------------------------------------------------------------------------------------------- lying child


@pytest.mark.parametrize("name", ["garbage", "partial", "twice", "deep", "no_object", "lie"])
def test_wrong_verdict_of_a_lying_child_is_bad_output(web: Serving, name: str) -> None:
    child(web, name)
    job = ended(web, submit(web))
    assert (job["state"], job["error"]["code"]) == ("failed", "bad-output"), job["error"]
    assert web.client.get(f"/api/v1/validations/{job['id']}").json()["outcome"] in (None, "unmeasured")


def test_wrong_verdict_of_2_gb_is_cut_off(web: Serving) -> None:
    child(web, "flood")
    before = peak_bytes()
    job = ended(web, submit(web), 60)
    assert (job["state"], job["error"]["code"]) == ("failed", "bad-output")
    assert peak_bytes() - before < 1024 * MIB  # a quarter of a GB is taken, and looked at once


def test_wrong_verdict_of_2_gb_on_stdout_fills_no_disk(web: Serving) -> None:
    child(web, "chatter")
    job_id = submit(web)
    largest = 0
    deadline = time.monotonic() + 120
    log = web.folder / "logs" / f"{job_id}.log"
    while web.client.get(f"/api/v1/jobs/{job_id}").json()["state"] in ("queued", "running"):
        assert time.monotonic() < deadline
        if log.exists():
            largest = max(largest, log.stat().st_blocks * 512)
        time.sleep(0.02)
    assert ended(web, job_id)["state"] == "done"
    wait_for(lambda: log.stat().st_size <= 9 * MIB)  # cut after the job has ended


def peak_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
