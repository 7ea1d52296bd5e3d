"""What users see of a fleet: kinds on the device page and in Validate, one validation a kind, metrics, refusals."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.app.jobs.ray.cluster import H200, MI300X, Fleet, command
from tests.app.web.conftest import Serving, serving
from tests.processes import wait_for

REGION = "x: bf16[4096, 4096]\ny = F.relu(x) * 2\nreturn y\n"


@pytest.fixture(scope="module")
def web(fleet: Fleet, ray_runner: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server whose jobs run on the cluster; the driver is the tests' own, since a process has one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.main.join", lambda *_: ray_runner)
        patch.setattr(ray_runner, "close", lambda: None)
        folder = tmp_path_factory.mktemp("data")
        with serving(folder, runner="ray", ray_token_file=fleet.token_file, advice_timeout_s=120.0) as server:
            wait_for(lambda: server.state.service.warm)
            server.state.queue.command = lambda kind: command("ceilings" if kind == "ceilings" else "where")
            yield server


def wait(web: Serving, job_id: str) -> dict[str, Any]:
    deadline = time.monotonic() + 120
    while (job := web.client.get(f"/api/v1/jobs/{job_id}").json())["state"] not in ("done", "failed"):
        assert time.monotonic() < deadline, job
        time.sleep(0.1)
    answer: dict[str, Any] = job
    return answer


def test_one_validation_for_each_kind_that_was_asked_for(web: Serving, fleet: Fleet) -> None:
    asked = {"region": REGION, "device": ["H200", MI300X]}
    answer = web.client.post("/api/v1/validations", json=asked)
    assert answer.status_code == 202
    told = answer.json()["validations"]
    assert [v["device"] for v in told] == [H200, MI300X]
    assert told[0]["id"] == answer.json()["id"]
    for one, device in zip(told, (H200, MI300X), strict=True):
        job = wait(web, one["id"])
        assert job["state"] == "done", job
        assert job["result"]["conditions"]["raylet"] == fleet.raylet(device)
        # Each confirms or overturns the advice for its own device.
        request = web.state.store.job_request(one["id"])
        assert request["advice_before"]["device"] == device


def test_without_a_device_the_kind_that_the_advice_is_for(web: Serving) -> None:
    job = web.client.post("/api/v1/validations", json={"region": REGION}).json()
    assert [v["device"] for v in job["validations"]] == [H200]
    wait(web, job["id"])


def test_a_kind_that_is_not_there_is_refused_with_those_that_are(web: Serving) -> None:
    answer = web.client.post("/api/v1/validations", json={"region": REGION, "device": [H200, "NVIDIA B200"]})
    assert (answer.status_code, answer.json()["code"]) == (422, "device-not-here")
    assert answer.json()["known"] == [MI300X, H200]
    nothing_queued = web.client.get("/api/v1/validations").json()["items"]
    assert all(v["state"] != "queued" for v in nothing_queued)


def test_the_device_page_the_form_and_the_metrics_list_the_kinds(web: Serving) -> None:
    kinds = {kind["device"]: kind for kind in web.client.get("/api/v1/device").json()["fleet"]}
    assert set(kinds) == {H200, MI300X}
    assert (kinds[H200]["gpus"], kinds[H200]["slots"]) == (2, 1)
    assert kinds[H200]["ceilings"]["measured"]
    page = web.client.get("/device").text
    assert "The fleet" in page
    assert MI300X in page.split('id="fleet"')[1].split("</section>")[0]
    response = web.client.post("/regions", data={"text": REGION}, follow_redirects=True)
    assert f'name="on" value="{MI300X}"' in response.text
    metrics = web.client.get("/metrics").text
    assert f'tritonworthy_fleet_slots{{device="{H200}"}} 1' in metrics
    assert f'tritonworthy_fleet_run_seconds{{device="{H200}"}}' in metrics


def test_ceilings_are_measured_on_a_host_of_the_kind_and_shown_beside_it(web: Serving, fleet: Fleet) -> None:
    def of(device: str) -> dict[str, Any]:
        kinds = web.client.get("/api/v1/device").json()["fleet"]
        answer: dict[str, Any] = next(k["ceilings_here"] for k in kinds if k["device"] == device)
        return answer

    assert of(MI300X) == {"running": False, "error": "", "measured": None}
    asked = web.client.post("/device/ceilings", data={"on": MI300X})
    assert (asked.status_code, asked.headers["location"]) == (303, "/device#fleet")
    deadline = time.monotonic() + 120
    while of(MI300X)["running"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    told = of(MI300X)
    assert told["error"] == "", told
    assert told["measured"]["ceilings"][0]["how"] == f"raylet {fleet.raylet(MI300X)}"
    assert of(H200)["measured"] is None
    table = web.client.get("/device").text.split('id="fleet"')[1].split("</section>")[0]
    assert "4.25 TB/s" in table
    refused = web.client.post("/device/ceilings", data={"on": "NVIDIA B200"}, headers={"Accept": "application/json"})
    assert (refused.status_code, refused.json()["code"]) == (422, "device-not-here")
    assert web.client.post("/device/ceilings", headers={"Accept": "application/json"}).status_code == 409
