"""Files given with a trace: other ranks, a trace that lends operations, an execution trace; what is wrong with them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.objects.trace import Trace
from app.trace_report.companions import Companion
from app.trace_report.report import report
from tests.app.objects.exact import differences
from tests.app.web.conftest import Serving, serving
from tests.profiler.trace.analyze.test_ranks import rank_file
from tests.profiler.trace.files import TRACES

GRAPH, EAGER = "handrolled_blocks_bf16_cudagraph.json.gz", "handrolled_blocks_bf16_eager.json.gz"
OTHER_MODEL = "mixtral_prefill_bf16_eager.json.gz"
LLAMA, LLAMA_ET = "llama_eager_attention_prefill.json.gz", "llama_eager_attention_prefill.et.json.gz"

Files = list[tuple[str, tuple[str | None, Any]]]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("beside")) as server:
        yield server


@pytest.fixture(scope="module")
def faked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server whose traces are read by children.py, with room for two that wait."""
    with serving(tmp_path_factory.mktemp("faked"), "trace", queue_cap=2) as server:
        yield server


@pytest.fixture
def fake(faked: Serving) -> Serving:
    """The same without any trace."""
    for trace in faked.client.get("/api/v1/traces").json()["items"]:
        assert faked.client.delete(f"/api/v1/traces/{trace['id']}").status_code == 204
    assert faked.files() == []
    return faked


def part(field: str, name: str) -> tuple[str, tuple[str | None, Any]]:
    return field, (name, (TRACES / name).read_bytes())


def post(server: Serving, files: Files, path: str = "/api/v1/traces", query: str = "?wait=60") -> dict[str, Any]:
    response = server.client.post(path + query, files=files)
    assert response.status_code == 201, response.text
    answer: dict[str, Any] = response.json()
    assert differences(Trace, answer) == []
    return answer


def errors(trace: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {n["code"]: n for n in trace["notes"] if n["level"] == "error"}


def texts(trace: dict[str, Any]) -> list[str | None]:
    return sorted((r["text"] for r in trace["regions"]), key=str)


def test_an_execution_trace_of_the_form_says_what_it_says_in_the_shell(real: Serving) -> None:
    answer = post(real, [part("file", LLAMA), part("execution_trace", LLAMA_ET)])
    assert answer["companions"] == {"execution_trace": LLAMA_ET}
    assert errors(answer) == {}
    assert "execution-trace" in {n["code"] for n in answer["notes"]}
    known = report(TRACES / LLAMA, LLAMA, execution=Companion(TRACES / LLAMA_ET, LLAMA_ET))
    assert texts(answer) == texts(known)
    assert LLAMA_ET in real.client.get(f"/traces/{answer['id']}").text


@pytest.mark.parametrize(
    ("beside", "code"), [(LLAMA_ET, "execution-trace-other-run"), (EAGER, "execution-trace-not-one")]
)
def test_an_execution_trace_that_does_not_belong_costs_nothing_and_says_why(
    real: Serving, beside: str, code: str
) -> None:
    answer = post(real, [part("file", EAGER), part("execution_trace", beside)])
    told = errors(answer)[code]
    assert "read without it" in told["message"]
    assert told["remedy"]
    assert texts(answer) == texts(report(TRACES / EAGER, EAGER))
    page = real.client.get(f"/traces/{answer['id']}").text
    assert page.index('class="note error"') < page.index("Where the step")


def test_a_trace_of_another_model_lends_nothing_and_the_right_one_is_sent_alone(real: Serving) -> None:
    wrong = post(real, [part("file", GRAPH), part("companion", OTHER_MODEL)])
    told = errors(wrong)["nothing-borrowed"]
    assert OTHER_MODEL in told["message"]
    assert told["remedy"]
    assert (wrong["linked_share"], wrong["regions"]) == (0.0, [])
    assert f'action="/traces/{wrong["id"]}/again"' in real.client.get(f"/traces/{wrong['id']}").text

    right = post(real, [part("companion", EAGER)], f"/api/v1/traces/{wrong['id']}/again")
    assert right["id"] != wrong["id"]
    assert right["sha256"] == wrong["sha256"]
    assert right["linked_share"] == 1.0
    assert right["companions"] == {"beside": EAGER}
    borrowed = next(n["message"] for n in right["notes"] if n["code"] == "borrowed")
    assert EAGER in borrowed, "by the name that people know it by"
    assert real.client.get(f"/api/v1/traces/{wrong['id']}").json()["linked_share"] == 0.0

    assert real.client.delete(f"/api/v1/traces/{wrong['id']}").status_code == 204
    more = post(real, [part("execution_trace", LLAMA_ET)], f"/api/v1/traces/{right['id']}/again")
    assert more["linked_share"] == 1.0, "its companions are kept, whatever else is deleted"
    assert set(more["companions"]) == {"beside", "execution_trace"}
    for trace in (right, more):
        assert real.client.delete(f"/api/v1/traces/{trace['id']}").status_code == 204
        assert [f for f in real.files() if f.startswith(trace["id"])] == []


def test_a_trace_without_graphs_needs_none_beside_it(real: Serving) -> None:
    answer = post(real, [part("file", EAGER), part("companion", EAGER)])
    assert "nothing-to-borrow" in errors(answer)
    assert answer["regions"]


def test_an_id_that_is_none_is_said_with_the_trace_kept(real: Serving) -> None:
    answer = post(real, [part("file", EAGER), ("companion", (None, "nosuchtrace"))])
    told = errors(answer)["beside-unknown"]
    assert "nosuchtrace" in told["message"]
    assert told["remedy"]
    assert answer["regions"]
    before = real.files()
    refused = real.client.post("/api/v1/traces?companion=nosuchtrace", content=b"{}")
    assert (refused.status_code, refused.json()["code"]) == (404, "not-found")
    assert refused.json()["remedy"]
    assert real.files() == before


def test_ranks_come_at_once_and_reading_one_again_does_not_double_it(real: Serving, tmp_path: Path) -> None:
    paths = [rank_file(tmp_path, rank, us) for rank, us in ((2, 500.0), (1, 880.0))]
    first = post(real, [("file", (p.name, p.read_bytes())) for p in paths])
    assert first["rank"] == 2
    assert first["group"], "what came in one form is one group"
    later = rank_file(tmp_path, 0, 600.0)
    again = post(real, [("file", (later.name, later.read_bytes()))], f"/api/v1/traces/{first['id']}/again")
    deadline = time.monotonic() + 120
    while len(ranks := real.client.get(f"/api/v1/traces/{again['id']}/ranks").json()["ranks"]) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert [r["rank"] for r in ranks] == [0, 1, 2]
    assert [round(r["own_us"]) for r in ranks] == [620, 900, 520]
    assert ranks[2]["id"] == again["id"]


def test_the_old_name_of_a_companion_is_taken_as_the_new_one_is(tmp_path: Path) -> None:
    """As a file of the form, as an id in it, and as an id in the query."""
    asked = []
    with serving(tmp_path, queue_cap=20) as web:
        web.state.queue.stop()
        lender = post(web, [("file", ("lender.json", b"{}"))], query="")["id"]
        for name in ("companion", "beside"):
            as_file = post(web, [("file", ("a.json", b"{1}")), (name, ("b.json", b"{}"))], query="?fresh=true")
            as_text = post(web, [("file", ("a.json", b"{1}")), (name, (None, lender))], query="?fresh=true")
            as_query = post(web, [("file", ("a.json", b"{1}"))], query=f"?fresh=true&{name}={lender}")
            jobs = [web.state.store.job_request(found["id"]) for found in (as_file, as_text, as_query)]
            asked.append([[(field, c["name"]) for field, c in job["companions"].items()] for job in jobs])
            assert web.client.post(f"/api/v1/traces?{name}=nosuchtrace", content=b"{}").status_code == 404
    assert asked[0] == asked[1] == [[("beside", "b.json")], [("beside", "lender.json")], [("beside", "lender.json")]]


def test_fields_of_a_form_that_were_left_empty_are_none(fake: Serving) -> None:
    files: Files = [
        ("file", ("a.json", b"{}")),
        ("companion", ("", b"")),
        ("execution_trace", ("", b"")),
        ("group", (None, "")),
    ]
    answer = post(fake, files)
    asked = fake.state.store.job_request(answer["id"])
    assert (asked["companions"], asked["group"], asked["beside_unknown"]) == ({}, None, None)
    assert fake.files() == [answer["id"]]


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ([("file", ("", b""))], "upload-not-a-file"),
        ([("companion", ("a.json", b"{}"))], "upload-not-a-file"),
        ([("file", ("a.json", b"{}")), ("file", ("b.json", b""))], "trace-empty"),
        ([("file", ("a.json", b"{}")), *[("companion", ("b.json", b"{}"))] * 2], "invalid-request"),
        ([("file", ("a.json", b"{}")), ("group", (None, "g" * 500))], "invalid-request"),
        ([("file", ("a.json", b"{}"))] * 65, "too-many-files"),
    ],
)
def test_forms_that_make_no_sense_leave_nothing_behind(fake: Serving, files: Files, code: str) -> None:
    response = fake.client.post("/api/v1/traces", files=files)
    assert (response.status_code, response.json()["code"]) == (422, code)
    assert fake.files() == []


def test_reading_again_needs_a_trace_and_something_new(fake: Serving) -> None:
    assert fake.client.post("/api/v1/traces/nothing/again", files=[("companion", ("a", b"{}"))]).status_code == 404
    known = post(fake, [("file", ("a.json", b"{}"))])
    refused = fake.client.post(f"/api/v1/traces/{known['id']}/again", files=[("file", ("", b""))])
    assert (refused.status_code, refused.json()["code"]) == (422, "upload-not-a-file")
    assert fake.files() == [known["id"]]


def test_ranks_for_which_there_is_no_room_do_not_cost_the_others(fake: Serving) -> None:
    fake.child("hang")
    running = post(fake, [("file", ("a.json", b"{}"))], query="")
    deadline = time.monotonic() + 120
    while fake.state.store.job_state(running["id"]) != "running":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    full = fake.client.post("/api/v1/traces", files=[("file", (f"{i}.json", b"[%d]" % i)) for i in range(4)])
    assert (full.status_code, full.json()["code"]) == (429, "queue-full")
    assert full.json()["detail"].startswith("2 of 4 traces were taken.")
    listed = [t["id"] for t in fake.client.get("/api/v1/traces").json()["items"]]
    assert len(listed) == 3
    assert full.json()["trace"] in listed
    assert fake.files() == sorted(listed)
