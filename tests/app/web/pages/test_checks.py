"""The pages of checks on a real server: by a plain form and by htmx, what is wrong with it, and that names are text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.check.config import DEFAULTS, read_toml
from app.check.formats import FORMATS
from app.web.views import check_page
from tests.app.check.hostile_trace import EXAMPLE, write_hostile_trace
from tests.app.web.conftest import Serving, serving
from tests.processes import wait_for

Json = dict[str, Any]

HTMX = {"HX-Request": "true"}
FAILS = '[check]\nname = "nightly"\n[assertions]\ncompile = "error"\nregression = "warn"\n'


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture(scope="module")
def trace(real: Serving) -> str:
    answer = real.client.post("/api/v1/traces?wait=120&name=step.json.gz", content=EXAMPLE.read_bytes(), timeout=150)
    return str(answer.json()["id"])


def make(server: Serving, headers: dict[str, str] | None = None, **fields: str) -> httpx.Response:
    return server.client.post("/checks", data=fields, headers=headers, timeout=60)


def done(server: Serving, path: str) -> Json:
    answer: Json = server.client.get(f"/api/v1{path}?wait=120", timeout=150).json()
    assert answer["state"] == "done", answer
    return answer


def test_the_form_begins_with_what_no_configuration_means() -> None:
    config = read_toml(check_page.CONFIG)
    assert config.assertions == DEFAULTS.assertions
    # The lines to take are right too.
    taken = read_toml(re.sub(r"^# (?=[a-z-]+ = )", "", check_page.CONFIG, flags=re.M))
    assert {a.check for a in taken.active} == {a.check for a in DEFAULTS.active} | {"compile-fuses", "regression"}


def test_without_a_trace_there_is_no_form_but_the_way_to_one(tmp_path: Path) -> None:
    with serving(tmp_path, "hang") as server:
        page = server.client.get("/checks").text
        assert "<textarea" not in page
        assert re.search(r'<a [^>]*href="/#upload">Upload one', page)
        assert "No check yet" in page
        # One process traces with torch.fx in one thread at a time: the next server of this module waits for this one.
        wait_for(lambda: server.state.service.warm)


def test_a_plain_form_makes_a_check_and_its_page_says_what_the_api_says(real: Serving, trace: str) -> None:
    page = real.client.get("/checks", params={"trace": trace}).text
    assert f'<option value="{trace}" selected>step.json.gz' in page
    assert 'href="/checks" aria-current="page"' in page
    answer = make(real, trace=trace, baseline=trace, config=FAILS)
    assert answer.status_code == 303
    path = answer.headers["location"]
    reply = done(real, path)
    assert (reply["name"], reply["exit_code"]) == ("nightly", 1)
    page = real.client.get(path).text
    assert "<h1>nightly</h1>" in page
    assert "An assertion does not hold" in page
    for finding in reply["errors"]:
        assert f'<a href="/regions/{finding["region_id"]}">{html.escape(finding["region"])}</a>' in page
        assert html.escape(finding["assertion"]) in page
        assert real.client.get(f"/regions/{finding['region_id']}").status_code == 200
    assert page.count(f'<a href="/traces/{trace}">') == 3, "trace and baseline, and where all that can be done is"
    shown = [a["title"] for a in reply["subjects"][0]["actions"] if not a["instead_of"]][:5]
    assert shown
    assert all(html.escape(title).replace("`", "") in page for title in shown)
    assert "The baseline has one step" in page
    for unmeasured in reply["unmeasured"]:
        assert html.escape(unmeasured["reason"].partition("`")[0][1:]) in page, (
            "what could not be measured has its reason"
        )
    for name in (*check_page.REPORTS, "json"):
        assert f"/checks/{reply['id']}.{FORMATS[name].suffix}" in page
        assert real.client.get(f"/api/v1/checks/{reply['id']}.{FORMATS[name].suffix}").status_code == 200
    assert real.client.get(f"{path}.json").json() == reply
    listed = real.client.get("/checks").text
    assert f'<a href="{path}">nightly</a>' in listed
    assert real.client.get("/checks.json").json() == real.client.get("/api/v1/checks").json()


def test_htmx_is_sent_to_the_page_and_may_ask_for_its_changing_part(real: Serving, trace: str) -> None:
    answer = make(real, HTMX, trace=trace, config="")
    assert answer.status_code == 204
    assert "HX-Request" in answer.headers["vary"].split(", ")
    path = answer.headers["hx-redirect"]
    assert done(real, path)["exit_code"] == 0
    part = real.client.get(f"{path}?body=1", headers=HTMX).text
    assert part.lstrip().startswith('<div id="check-body"')
    assert "Every error-level assertion holds" in part


@pytest.mark.parametrize(
    ("config", "said", "line"),
    [
        ("[assertions]\ncompil = 'warn'\n", "did you mean compile?", "2: compil = &#39;warn&#39;"),
        ("[assertions]\ntriton = { level = 'warn', min_shar = 0.1 }\n", "min_shar", "2: triton"),
        ("[assertions\n", "not TOML", "1: [assertions"),
        ("[check]\ndevice = 'Voodoo'\n", "Voodoo", ""),
        ("#" * 70_000, "65536 characters", ""),
    ],
)
def test_a_wrong_configuration_is_told_with_its_line_and_keeps_what_was_typed(
    real: Serving, trace: str, config: str, said: str, line: str
) -> None:
    before = len(real.client.get("/checks.json").json()["items"])
    plain = make(real, trace=trace, config=config)
    part = make(real, HTMX, trace=trace, config=config)
    assert (plain.status_code, part.status_code) == (422, 422)
    assert html.escape(config.splitlines()[0])[:60] in plain.text
    assert "<textarea" in plain.text
    assert "<textarea" not in part.text
    for text in (plain.text, part.text):
        assert 'role="alert"' in text
        assert said in text
        assert line in text
    assert len(real.client.get("/checks.json").json()["items"]) == before


def test_a_trace_that_is_not_there_is_told_beside_the_form(real: Serving, trace: str) -> None:
    for fields in ({"trace": ""}, {"trace": "a" * 26}, {"trace": trace, "baseline": "../x"}):
        answer = make(real, None, **fields)
        assert answer.status_code in (404, 422)
        assert 'role="alert"' in answer.text
        assert "<textarea" in answer.text


def test_hostile_names_are_text_on_both_pages(real: Serving, tmp_path: Path) -> None:
    write_hostile_trace(tmp_path / "t.json.gz")
    name = "</option><img src=x onerror=alert(1)>"
    data = (tmp_path / "t.json.gz").read_bytes()
    hostile = real.client.post("/api/v1/traces", params={"wait": 120, "name": name}, content=data, timeout=150).json()
    answer = make(real, trace=hostile["id"], config='[assertions]\ncompile = "error"\n"library:</textarea>" = "warn"\n')
    done(real, answer.headers["location"])
    for path in (answer.headers["location"], "/checks"):
        page = real.client.get(path).text
        assert "<img src=x" not in page
        assert "<script>" not in page
    refused = make(real, trace=hostile["id"], config="</textarea><script>alert(1)</script>")
    assert refused.status_code == 422
    assert "<script>alert" not in refused.text


def test_a_running_check_is_followed_and_can_be_stopped(tmp_path: Path) -> None:
    with serving(tmp_path, "hang") as server:
        job = server.client.post("/api/v1/checks", json={"regions": ["x: f32[8]\ny = gelu(x)\nreturn y\n"]}).json()
        path = f"/checks/{job['id']}"
        page = server.client.get(path).text
        assert f'sse-connect="/api/v1/jobs/{job["id"]}/events"' in page
        assert '<noscript><meta http-equiv="refresh"' in page
        assert "<progress" in server.client.get(f"{path}/progress", headers=HTMX).text
        assert server.client.post(f"{path}/cancel").status_code == 303
        server.client.get(f"/api/v1{path}?wait=20")
        page = server.client.get(path).text
        assert "Cancelled: could not be measured" in page
        assert 'http-equiv="refresh"' not in page.split("</head>")[0]
        assert "cancelled" in server.client.get("/checks").text


def test_unknown_checks_are_404(real: Serving) -> None:
    for path in (f"/checks/{'a' * 26}", "/checks/x", f"/checks/{'a' * 26}.json", f"/checks/{'a' * 26}/progress"):
        assert real.client.get(path).status_code == 404
    assert real.client.post(f"/checks/{'a' * 26}/cancel").status_code == 404


def test_another_site_cannot_make_or_stop_a_check(real: Serving, trace: str) -> None:
    evil = {"Origin": "http://evil.test"}
    assert make(real, evil, trace=trace, config=FAILS).status_code == 403
