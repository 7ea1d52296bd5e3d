"""Pages on the real application: forms without JavaScript, fragments for htmx, errors in words, the API's commands."""

from __future__ import annotations

import html
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from app.web.api.examples import calls
from app.web.pages.examples import examples
from tests.app.web.conftest import serving
from tests.app.web.routes import ACCESS
from tests.conftest import DATA

REGION = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"
TRACE = DATA / "traces" / "handrolled_blocks_bf16_eager_stack.json.gz"
HTMX = {"HX-Request": "true"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """The application with an empty data folder, its queue running."""
    with serving(tmp_path_factory.mktemp("pages"), budget_s=5) as server:
        server.client.headers["Accept"] = "text/html"
        yield server.client


def settled(client: httpx.Client, path: str) -> str:
    """The page of a trace once it is read, or has failed."""
    deadline = time.monotonic() + 120
    while client.get(f"{path}.json").json()["status"] == "reading":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return client.get(path).text


@pytest.fixture(scope="module")
def region(client: httpx.Client) -> str:
    """The path of a stored region."""
    answer = client.post("/regions", data={"text": REGION})
    assert answer.status_code == 303
    return str(answer.headers["location"])


@pytest.fixture(scope="module")
def trace(client: httpx.Client) -> str:
    """The path of a trace that has been read."""
    with TRACE.open("rb") as file:
        answer = client.post("/traces", files={"file": (TRACE.name, file)})
    assert answer.status_code == 303
    settled(client, answer.headers["location"])
    return str(answer.headers["location"])


@pytest.mark.parametrize(
    "path", ["/", "/compare", "/history", "/history?kind=region", "/device", "/accuracy", "/learn", "/api", "/sign-in"]
)
def test_every_page_answers_whole_and_is_kept_by_nobody(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.text.rstrip().endswith("</html>")
    assert answer.headers["vary"] == "HX-Request, Accept-Encoding"
    assert answer.headers["cache-control"] == "no-store"


def test_the_trace_page_shows_the_trace_and_its_twin(client: httpx.Client, trace: str) -> None:
    page = client.get(trace).text
    twin = client.get(f"{trace}.json").json()
    assert twin == client.get(f"/api/v1{trace}").json()
    assert twin["kernels"] == 136
    assert "136 kernels" in page
    for found in twin["regions"]:
        assert f'href="/regions/{found["id"]}"' in page
        assert html.escape(found["name"], quote=False) in page


def test_a_trace_without_operators_shows_what_its_time_is_and_one_recipe(client: httpx.Client) -> None:
    path = DATA / "traces" / "handrolled_blocks_bf16_cudagraph.json.gz"
    with path.open("rb") as file:
        answer = client.post("/traces", files={"file": (path.name, file)})
    page = settled(client, answer.headers["location"])
    twin = client.get(f"{answer.headers['location']}.json").json()
    assert sum("train_step()" in n["remedy"] for n in twin["notes"]) > 1
    assert page.count("train_step()") == 1
    assert "Profile the same step without CUDA graphs" in page
    rows = re.findall(r'<tr><th scope="row">CUDA graph.*?</tr>', page)
    assert len(rows) == 1
    assert "98.8 %" in rows[0]
    assert "without CUDA graphs, with record_shapes=True" in rows[0]


def test_regions_stand_in_the_order_of_what_the_advice_saves(client: httpx.Client, trace: str) -> None:
    twin = client.get(f"{trace}.json").json()

    def saves(found: dict[str, Any]) -> float:
        own = (a for a in twin["actions"] if a["scope"] == "region" and a["region"] == found["key"] and a["saves_us"])
        return float(next((a["saves_us"]["mid"] for a in own), 0.0))

    listed = client.get(trace).text.partition('id="region-list"')[2].partition('<div class="panel')[0]
    shown = re.findall(r'<a href="/regions/([a-z0-9]{26})">', listed)
    by_id = {r["id"]: saves(r) for r in twin["regions"]}
    order = [by_id[i] for i in shown]
    assert order == sorted(order, reverse=True)
    assert order[0] > 0


def test_the_region_page_shows_every_criterion_candidate_and_operation(client: httpx.Client, region: str) -> None:
    page = client.get(f"{region}?tab=all").text
    twin = client.get(f"{region}.json").json()
    assert twin["advice"]["criteria"]
    for criterion in twin["advice"]["criteria"]:
        assert f'data-criterion="{criterion["name"]}"' in page
    for option in twin["advice"]["alternatives"]:
        assert option["candidate"] in page
    for operation in twin["cost"]["operations"]:
        assert f"<code>{operation['label']}</code>" in page


def test_each_chart_is_drawn_and_has_its_numbers_as_a_table(client: httpx.Client, region: str, trace: str) -> None:
    by_plotly: dict[str, int] = {}
    of_region = f"{region}?tab=all"
    for path in (of_region, trace, "/learn", "/accuracy"):
        page = client.get(path).text
        figures = re.findall(r"<figure.*?</figure>", page, re.S)
        assert figures
        for figure in figures:
            assert "<table" in figure
            drawn_by_plotly = "data-figure" in figure
            assert drawn_by_plotly is ("showSendToCloud&#34;:false" in figure)
            assert drawn_by_plotly is not ("<svg" in figure or '<div class="treemap' in figure)
        by_plotly[path] = sum("data-figure" in figure for figure in figures)
    assert by_plotly[trace] == by_plotly["/accuracy"] == 0
    assert by_plotly[of_region] <= 1, "the landscape alone"


def test_a_mistake_comes_back_in_its_form_with_a_caret(client: httpx.Client) -> None:
    wrong = REGION.replace("gelu", "gelo")
    answer = client.post("/regions", data={"text": wrong, "share_percent": "12"})
    assert answer.status_code == 422
    assert "gelo(x)" in answer.text
    assert re.search(r"<pre>y = gelo\(x\) \* 2\n +\^+", answer.text)
    assert 'value="12"' in answer.text
    fragment = client.post("/regions", data={"text": wrong}, headers=HTMX)
    assert fragment.status_code == 422
    assert "<html" not in fragment.text
    assert fragment.headers["hx-retarget"] == "#region-error"


def test_editing_costs_again_and_stores_nothing(client: httpx.Client, region: str) -> None:
    before = client.get("/history?kind=region").text.count('href="/regions/')
    text = REGION.replace("* 2", "* 2 + x")
    form = {"text": text, "region_id": region.rsplit("/", 1)[1], "share_percent": "0,5"}
    answer = client.post("/regions/preview", data=form, headers=HTMX)
    assert answer.status_code == 200
    assert 'id="tab-panel"' in answer.text
    assert "0.5 %" in answer.text
    assert "not validated yet" in answer.text
    assert client.get("/history?kind=region").text.count('href="/regions/') == before


def test_a_number_that_is_none_is_named(client: httpx.Client) -> None:
    answer = client.post("/regions", data={"text": REGION, "calls_per_step": "many"})
    assert answer.status_code == 422
    assert "many" in answer.text


def test_user_text_is_escaped_everywhere(client: httpx.Client) -> None:
    evil = '</textarea><script>alert(1)</script>"'
    answer = client.post("/regions", data={"text": evil})
    assert answer.status_code == 422
    assert "<script>alert" not in answer.text
    upload = client.post("/traces", files={"file": ("<script>alert(1)</script>.json", b'{"traceEvents": []}')})
    assert "<script>alert" not in upload.text


@pytest.mark.parametrize(
    "body", [b"", b"Dear profiler,", b'{"traceEvents": [{"ph": "X", "na', b"\x1f\x8b\x08\x00broken"]
)
def test_files_that_are_no_trace_get_words_and_the_server_stays(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/traces", files={"file": ("x.json", body)}, headers=HTMX)
    assert answer.status_code in (204, 422)
    shown = answer.text if answer.status_code == 422 else settled(client, answer.headers["hx-redirect"])
    assert re.search('class="note (error|warning)"', shown)
    assert "What helps:" in shown or not body
    assert "Traceback" not in shown
    assert client.get("/").status_code == 200


@pytest.mark.parametrize(
    "path", ["/traces/nope", "/regions/nope", "/validations/nope", "/no-such-page", "/traces/../x"]
)
def test_what_is_not_there_is_a_page_that_says_so(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert "<h1>" in answer.text
    assert "not-found" in answer.text


def test_the_widget_is_a_link_and_a_fragment(client: httpx.Client) -> None:
    query = "share_of_step=0.002&uniqueness=0.9&irregularity=0.9"
    fragment = client.get(f"/widget?{query}", headers=HTMX).text
    assert "<html" not in fragment
    assert "Leave it" in fragment
    answer = client.get(f"/widget?{query}")
    assert answer.status_code == 303
    assert "Leave it" in client.get(answer.headers["location"]).text
    bad = client.get("/?share_of_step=nan&uniqueness=7&bound=<b>")
    assert bad.status_code in (200, 422)
    assert "<b>" not in bad.text


@pytest.mark.parametrize("name", sorted(examples()))
def test_every_example_opens(client: httpx.Client, name: str) -> None:
    answer = client.post(f"/examples/{name}")
    assert answer.status_code == 303
    path = answer.headers["location"]
    page = settled(client, path) if examples()[name].kind == "trace" else client.get(path).text
    assert 'class="note error"' not in page
    assert 'class="chart' in page or '<table class="bars">' in page


def run(client: httpx.Client, command: str, files: dict[str, Path]) -> Any:
    """Send what a curl command would send."""
    words = shlex.split(command)
    assert words[0] == "curl"
    method, headers, body, url = "GET", {"Accept": "*/*"}, None, ""
    parts: list[tuple[str, tuple[str, bytes]]] = []
    rest = iter(words[1:])
    for word in rest:
        if word == "-X":
            method = next(rest)
        elif word == "-H":
            name, _, value = next(rest).partition(": ")
            headers[name] = value
        elif word == "-d":
            method, body = "POST" if method == "GET" else method, next(rest).encode()  # -X stands, as to curl
        elif word == "--data-binary":
            method, body = "POST", files[next(rest).removeprefix("@")].read_bytes()
            headers["Content-Type"] = "application/x-www-form-urlencoded"  # what curl sends unasked
        elif word == "-F":
            field, _, name = next(rest).partition("=@")
            method = "POST"
            parts.append((field, (name, files[name].read_bytes())))
        elif word != "-N":
            url = word
    place = urlsplit(url)
    return client.request(method, place.path, params=place.query, headers=headers, content=body, files=parts or None)


def test_every_command_of_the_api_page_works(client: httpx.Client, trace: str, region: str) -> None:
    page = html.unescape(client.get("/api").text)
    base = re.search(r"http://127\.0\.0\.1:\d+", page)
    assert base
    ids = {"TRACE_ID": trace.rsplit("/", 1)[1], "REGION_ID": region.rsplit("/", 1)[1]}
    for call in calls(base[0]):
        assert call.curl in page
        command = call.curl
        for placeholder, value in ids.items():
            command = command.replace(placeholder, value)
        names = ("trace.json.gz", "rank0.json.gz", "rank1.json.gz", "eager.json.gz")
        answer = run(client, command, dict.fromkeys(names, TRACE))
        if "/oracle" in call.path or "/kernels/" in call.path:  # test_oracle.py has a server with it
            assert answer.status_code in (404, 503), call.curl
            continue
        if call.path.endswith("/landscape"):  # tests/app/requests/test_landscapes.py has a Triton candidate
            assert (answer.status_code, answer.json()["code"]) == (422, "candidate-unknown"), call.curl
            continue
        assert answer.status_code < 300, (call.curl, answer.text)
        if call.path == "/api/v1/checks":
            ids["CHECK_ID"] = answer.json()["id"]
        if call.path == "/api/v1/links":
            ids["LINK_ID"] = answer.json()["id"]
        if call.path == "/api/v1/validations":
            ids["JOB_ID"] = answer.json()["id"]
            # The stream of the job ends only with the job: stop it, the browser's test waits for a whole one.
            client.post(f"/api/v1/jobs/{ids['JOB_ID']}/cancel")


def test_every_call_of_the_api_page_names_a_route() -> None:
    def unnamed(path: str) -> str:
        return re.sub(r"\{\w+\}", "{}", path)

    routes = {(method, unnamed(path)) for method, path in ACCESS}
    assert {(call.method, unnamed(call.path)) for call in calls("")} <= routes


def test_a_region_that_could_not_be_written_down_has_a_page_that_says_why(client: httpx.Client) -> None:
    path = DATA / "traces" / "handrolled_blocks_noshapes.json.gz"
    with path.open("rb") as file:
        answer = client.post("/traces", files={"file": (path.name, file)})
    page = settled(client, answer.headers["location"])
    assert "record_shapes=True" in page
    first = re.search(r'href="(/regions/[a-z0-9]{26})"', page)
    assert first
    shown = client.get(first[1])
    assert shown.status_code == 200
    assert "The cost is unknown" in shown.text
    region_id = first[1].rsplit("/", 1)[1]
    refused = client.post("/validations", data={"text": "", "region_id": region_id})
    assert refused.status_code == 422
    api = client.post("/api/v1/validations", json={"region_id": region_id}, headers={"Accept": "application/json"})
    assert (api.status_code, api.json()["code"]) == (422, "region-without-text")
