"""The routes that are declared to answer from what is here do: nothing is parsed, lowered, advised on or started."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.archive import record_store
from app.web.server.access import Access
from profiler.region.graph import lowering
from profiler.region.language import text
from tests.app.check.hostile_trace import EXAMPLE
from tests.app.web.conftest import serving
from tests.app.web.routes import ACCESS, CONTRACT
from tools.checks.check_api import sample_runs

REGION = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"


class Service:
    """The server's service, and what it was asked."""

    def __init__(self, service: Any, worked: list[str]) -> None:
        self._service = service
        self._worked = worked

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._service, name)
        return told(found, self._worked) if callable(found) else found


def told(function: Callable[..., Any], worked: list[str]) -> Callable[..., Any]:
    def call(*given: Any, **more: Any) -> Any:
        worked.append(function.__name__)
        return function(*given, **more)

    return call


def watch(monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], worked: list[str]) -> None:
    """Under every name that some module has for it."""
    watched = told(function, worked)
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items() if hasattr(module, "__dict__") else ()):
            if value is function:
                monkeypatch.setattr(module, name, watched)


def test_what_is_declared_to_read_does_not_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path) as web:
        trace = web.client.post("/api/v1/traces?wait=300", content=EXAMPLE.read_bytes(), timeout=400).json()
        check = web.client.post("/api/v1/checks?wait=300", json={"regions": [REGION]}, timeout=400).json()
        assert (trace["status"], check["state"]) == ("ready", "done")
        assert web.client.post("/api/v1/history", json={"entries": sample_runs()}).json()["added"]
        (series,) = web.client.get("/api/v1/history").json()["items"]
        ids = {
            "trace_id": trace["id"],
            "series_id": series["id"],
            "region_id": next(region["id"] for region in trace["regions"] if region.get("text")),
            "validation_id": next(iter(record_store.records(record_store.FOLDER)))["id"],
            "check_id": check["id"],
            "job_id": check["id"],
            "link_id": web.client.post("/api/v1/links", json={"region": REGION}, timeout=120).json()["id"],
        }
        worked: list[str] = []
        for function in (text.parse, lowering.lower):
            watch(monkeypatch, function, worked)
        monkeypatch.setattr(subprocess, "Popen", told(subprocess.Popen, worked))
        monkeypatch.setattr(web.state, "service", Service(web.state.service, worked))
        statuses = []
        for (method, template), access in ACCESS.items():
            if method != "GET" or access is not Access.READ:
                continue
            path = re.sub(r"\{(\w+)\}", lambda m: ids[m[1]], template)
            statuses.append(web.client.get(path, timeout=120).status_code)
            assert worked == [], path
        assert statuses.count(200) > 20
        # And who does work is seen to.
        assert web.client.get("/region.json", params={"text": REGION}, timeout=120).status_code == 200
        assert {"advise_region"} <= set(worked)


def test_paths_that_compute_are_those_that_are_declared_so() -> None:
    for (method, template), access in ACCESS.items():
        path = re.sub(r"\{\w+\}", "a" * 26, template)
        if access is Access.COMPUTE:
            assert method == "GET"
            assert CONTRACT.computes(path)
        elif access is Access.OPEN or template in ("/metrics", "/openapi.json", "/history", "/api/v1/traces"):
            assert not CONTRACT.computes(path), path
    assert not CONTRACT.computes("/static/app.css")
    assert not CONTRACT.computes("/nowhere")
