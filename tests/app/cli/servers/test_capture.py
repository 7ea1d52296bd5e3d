"""tritonworthy capture: a server's traces are advised on, or handed over; statuses and words where there are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app import cli
from app.capture import written_traces
from tests.app.capture.engine_server import Behaviour, engine, name_of
from tests.app.web.conftest import serving


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_traces, "POLL_S", 0.02)
    monkeypatch.setattr(written_traces, "SETTLED_S", 0.1)


def arguments(kind: str, url: str, folder: Path) -> list[str]:
    return ["capture", f"--{kind}", url, "--output-dir", str(folder), "--seconds", "1", "--timeout", "30"]


def test_one_trace_is_advised_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with engine(Behaviour("sglang")) as url:
        assert cli.main([*arguments("sglang", url, tmp_path), "--oracle", "off", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["kernels"] == 136
    assert "send it requests meanwhile" in printed.err


def test_all_ranks_go_to_a_server_and_the_first_is_linked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "traces").mkdir()
    with serving(tmp_path / "data") as server, engine(Behaviour("vllm", tmp_path / "traces", ranks=2)) as url:
        address = str(server.client.base_url).rstrip("/")
        more = ["--ranks", "2", "--server", address]
        assert cli.main([*arguments("vllm", url, tmp_path / "traces"), *more]) == 0
        link = capsys.readouterr().out.strip()
        assert link.startswith(f"{address}/traces/")
        listed = server.client.get("/api/v1/traces").json()["items"]
        assert {item["name"] for item in listed} == {name_of("vllm", 0), name_of("vllm", 1)}
        assert link.rpartition("/")[2] in {item["id"] for item in listed}


def test_what_stands_in_the_way_is_status_2_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with engine(Behaviour("vllm", is_profiling_on=False)) as url:
        assert cli.main(arguments("vllm", url, tmp_path)) == 2
    said = capsys.readouterr().err
    assert said.startswith("tritonworthy: vLLM answers 404") and said.count("\n") == 1
