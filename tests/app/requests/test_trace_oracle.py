"""A trace is answered by rules, then Inductor is asked behind it: a real server, its children and Inductor itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.errors import Problem
from app.objects.region import Region
from app.objects.trace import Trace
from app.requests.trace_oracle import TraceOracle
from profiler.oracle.process import Oracle
from tests.app.objects.exact import differences
from tests.app.web.conftest import Serving, serving
from tests.app.web.streamed import until
from tests.conftest import ROOT

CONTENT = (ROOT / "app" / "examples" / "handrolled_blocks.json.gz").read_bytes()
ASKED = 5
"""Texts of that trace that hold 95 % of its regions' time."""

Json = dict[str, Any]


class Gate:
    """Lets one region after the other be asked about, when the test says so."""

    def __init__(self) -> None:
        self.open = threading.Semaphore(0)
        self.stopped = threading.Event()

    def give(self, number: int = 1) -> None:
        self.open.release(number)

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ask = TraceOracle._ask_region

        def gated(behind: TraceOracle, region: Region) -> None:
            while not self.open.acquire(timeout=0.05):
                if behind.stopping.is_set():
                    return
            ask(behind, region)

        monkeypatch.setattr(TraceOracle, "_ask_region", gated)


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server that asks about traces, with all that a user's has."""
    with serving(tmp_path_factory.mktemp("asking"), oracle="auto", advice_timeout_s=60) as server:
        until(lambda: server.client.get("/readyz").json()["advice_warm"])
        yield server


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    made = Gate()
    made.patch(monkeypatch)
    return made


def upload(server: Serving) -> Json:
    """A new trace of the same bytes, as it is answered first."""
    answer: Json = server.client.post("/api/v1/traces?wait=100&fresh=true", content=CONTENT, timeout=120).json()
    assert answer["status"] == "ready", answer
    return answer


def trace(server: Serving, trace_id: str) -> Json:
    answer: Json = server.client.get(f"/api/v1/traces/{trace_id}").json()
    return answer


def when_done(server: Serving, trace_id: str) -> Json:
    last: Json = until(lambda: body if (body := trace(server, trace_id))["oracle"]["done"] else None)
    return last


def answers(body: Json) -> int:
    return sum(r["prediction"] == "oracle" for r in body["regions"])


def test_rules_answer_first_and_each_region_is_advised_on_again_as_inductor_answers(
    asking: Serving, gate: Gate
) -> None:
    first = upload(asking)
    assert differences(Trace, first) == []
    of_time = first["oracle"]["of_time"]
    assert first["oracle"] == {"asked": ASKED, "answered": 0, "failed": 0, "of_time": of_time, "done": False}
    assert 0.95 <= of_time <= 1.0
    assert {r["prediction"] for r in first["regions"]} == {"rules"}
    assert all(r["advice"] for r in first["regions"]), "the first answer is whole without Inductor"
    heaviest = max(first["regions"], key=lambda r: r["time_us_per_step"])
    gate.give()
    second = until(lambda: body if (body := trace(asking, first["id"]))["oracle"]["answered"] else None)
    assert [r["name"] for r in second["regions"] if r["prediction"] == "oracle"] == [heaviest["name"]]
    gate.give(ASKED)
    last = when_done(asking, first["id"])
    assert differences(Trace, last) == []
    assert last["oracle"] == {"asked": ASKED, "answered": ASKED, "failed": 0, "of_time": of_time, "done": True}
    by_time = sorted(last["regions"], key=lambda r: -r["time_us_per_step"])
    assert [r["prediction"] for r in by_time] == ["oracle"] * ASKED + ["rules"] * (len(by_time) - ASKED)
    for region in by_time[:ASKED]:
        assert region["oracle"][0]["launches"] >= 1
    measured = [r for r in by_time[:ASKED] if r["advice"]["validation"]]
    assert last["gain"]["all"] != first["gain"]["all"] or len(measured) == ASKED, "what was measured stands"


def test_what_inductor_writes_is_read_on_the_regions_page_alone(asking: Serving) -> None:
    last = when_done(asking, upload(asking)["id"])
    fused = next(r for r in last["regions"] if any(p["kernels"] for p in r["oracle"]))
    assert all("source" not in k for p in fused["oracle"] for k in p["kernels"])
    whole = asking.client.get(f"/api/v1/regions/{fused['id']}").json()
    assert "@triton.jit" in next(k for p in whole["oracle"] for k in p["kernels"])["source"]
    aside = ("oracle", "archive", "advice")  # a trace's advice is by the archive's record, a region's has it beside
    assert {k: v for k, v in whole.items() if k not in aside} == {k: v for k, v in fused.items() if k not in aside}
    # Its page has the answer at once, and asks nobody for it.
    page = asking.client.get(f"/regions/{fused['id']}", headers={"Accept": "text/html"}).text
    assert 'hx-trigger="load' not in page.partition('id="oracle"')[2].partition("</section>")[0]


def test_the_same_regions_in_another_trace_cost_nobody_a_question(
    asking: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = when_done(asking, upload(asking)["id"])
    monkeypatch.setattr(Oracle, "_wait", lambda *a: pytest.fail("a process was asked"))
    again = when_done(asking, upload(asking)["id"])
    assert again["id"] != known["id"]
    assert again["oracle"] == known["oracle"]
    assert [r["advice"] for r in again["regions"]] == [r["advice"] for r in known["regions"]]
    text = next(r["text"] for r in again["regions"] if r["prediction"] == "oracle")
    body = {"region": text, "device": again["estimates_for"]}
    assert asking.client.post("/api/v1/advice", json=body).json()["prediction"] == "oracle"


def test_who_asks_about_a_region_meanwhile_does_not_wait_for_the_trace(
    asking: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    ask = asking.state.service.predict_with

    def slow(oracle: Oracle, question: object) -> object:
        begun.set()
        assert oracle is not asking.state.service.oracle, "a process of its own"
        assert go_on.wait(60)
        return ask(oracle, question)

    monkeypatch.setattr(asking.state.service, "predict_with", slow)
    first = upload(asking)
    assert begun.wait(30)
    answer = asking.client.post("/api/v1/advice", json={"region": "x: f32[70, 128]\ny = gelu(x) * 2\nreturn y\n"})
    assert answer.json()["prediction"] == "oracle"
    assert trace(asking, first["id"])["oracle"]["answered"] == 0
    go_on.set()
    when_done(asking, first["id"])


def test_a_region_that_inductor_has_no_answer_for_keeps_its_advice_and_says_why(
    asking: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ask = asking.state.service.predict_with

    def refuses(oracle: Oracle, question: Any) -> object:
        asked.append(question.text)
        if len(asked) == 1:
            raise Problem(422, "advice-limit", "", "Advice on this region needs too much memory.")
        return ask(oracle, question)

    monkeypatch.setattr(asking.state.service, "predict_with", refuses)
    first = upload(asking)
    last = when_done(asking, first["id"])
    assert (last["oracle"]["answered"], last["oracle"]["failed"]) == (ASKED - 1, 1)
    heaviest = max(range(len(last["regions"])), key=lambda i: last["regions"][i]["time_us_per_step"])
    failed = last["regions"][heaviest]
    assert (failed["prediction"], failed["advice"]) == ("rules", first["regions"][heaviest]["advice"])
    assert failed["oracle"][0]["unavailable"] == "Advice on this region needs too much memory."
    assert differences(Trace, last) == []
    trace(asking, first["id"])
    assert len(asked) == ASKED == len(set(asked)), (
        "opening it asks for no answer that is there, nor for the missing one"
    )
    # On the region's own page it may be asked again.
    monkeypatch.undo()
    assert asking.client.post(f"/api/v1/regions/{failed['id']}/oracle").json()["prediction"] == "oracle"
    assert trace(asking, first["id"])["oracle"]["answered"] == ASKED


def test_a_restart_loses_no_answer_and_the_rest_is_asked_when_the_trace_is_opened(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path, oracle="auto") as server:
        first = upload(server)
        gate.give(2)
        until(lambda: trace(server, first["id"])["oracle"]["answered"] == 2)
    monkeypatch.undo()
    with serving(tmp_path, oracle="auto") as server:
        stored = server.state.store.trace(first["id"])
        assert sum(r["prediction"] == "oracle" for r in stored["regions"]) == 2
        assert not server.state.trace_oracle.waiting, "nobody has opened it"
        asked: list[str] = []
        ask = server.state.service.predict_with

        def counted(oracle: Oracle, question: Any) -> object:
            asked.append(question.text)
            return ask(oracle, question)

        monkeypatch.setattr(server.state.service, "predict_with", counted)
        assert server.client.get(f"/traces/{first['id']}", headers={"Accept": "text/html"}).status_code == 200
        until(lambda: len(asked) == ASKED - 2 and not server.state.trace_oracle.waiting)
        assert when_done(server, first["id"])["oracle"]["answered"] == ASKED


def test_a_server_that_stops_in_the_middle_of_a_question_keeps_no_answer_of_it(tmp_path: Path) -> None:
    with serving(tmp_path, oracle="auto") as server:
        first = upload(server)
        until(lambda: server.state.trace_oracle.oracle is not None)
    with serving(tmp_path, oracle="off") as server:
        stored = server.state.store.trace(first["id"])
        assert [p["unavailable"] for r in stored["regions"] for p in r["oracle"] if p["unavailable"]] == []


@pytest.mark.parametrize("settings", [{"oracle": "off"}, {"oracle": "auto", "oracle_share": 0.0}])
def test_where_nobody_is_asked_the_trace_says_so(
    tmp_path: Path, settings: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TraceOracle, "_ask_trace", lambda *a: pytest.fail("a trace was asked about"))
    with serving(tmp_path, **settings) as server:
        first = upload(server)
        assert first["oracle"] is None
        assert {r["prediction"] for r in first["regions"]} == {"rules"}
        page = server.client.get(f"/traces/{first['id']}", headers={"Accept": "text/html"}).text
        assert "Inductor asked" not in page
        assert "oracle-poll" not in page


def test_traces_wait_in_turn_and_not_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not started: what is asked of it stays in turn."""
    from types import SimpleNamespace

    from app.requests import trace_oracle

    service: Any = SimpleNamespace(oracle=object())
    state: Any = SimpleNamespace(service=service, settings=SimpleNamespace(oracle_share=0.95))
    behind = TraceOracle(state, Oracle)
    names = [f"trace-{number}" for number in range(trace_oracle.WAITING_CAP + 3)]
    for name in (*names, names[0]):
        behind.ask(name)
    assert list(behind.waiting) == names[: trace_oracle.WAITING_CAP]
    service.oracle = None
    other = TraceOracle(state, Oracle)
    other.ask("a")
    assert not other.waiting
