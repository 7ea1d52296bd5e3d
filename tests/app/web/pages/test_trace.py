"""The trace's page over HTTP: its filter as a form, a fragment and in the twin; its ranks; how reading is stopped."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from app.trace_report.report import report
from app.web.views import trace_page
from app.web.views.region_list import View
from tests.app.web.conftest import Serving, serving
from tests.conftest import DATA

TRACE = DATA / "traces" / "gpt2_train_autocast_eager_stack.json.gz"
ID, OTHER = "t" * 26, "u" * 26

Json = dict[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server with one real trace, and a second that is the same as rank 1 of a group, its times doubled."""
    with serving(tmp_path_factory.mktemp("page")) as app_server:
        whole = report(TRACE, TRACE.name)
        first = {**whole, "rank": 0, "group": "job", "id": ID, "sha256": "a"}
        first["regions"] = [{**r, "id": f"{n:026d}"} for n, r in enumerate(whole["regions"])]
        second = {**first, "id": OTHER, "rank": 1, "sha256": "b", "name": "rank1.json"}
        second["regions"] = [
            {**r, "id": f"1{n:025d}", "time_us_per_step": 2 * r["time_us_per_step"]}
            for n, r in enumerate(whole["regions"])
        ]
        traces = {t["id"]: {"status": "ready", **t} for t in (first, second)}
        app_server.state.store.trace = traces.get
        app_server.state.store.trace_group = lambda group: list(traces.values()) if group == "job" else []
        app_server.client.headers["Accept"] = "text/html"
        yield app_server


def listed(page: str) -> list[str]:
    """Ids of the regions in the list, in its order."""
    part = page[page.index('id="region-list"') :].partition('<div class="panel')[0]
    return re.findall(r'<th scope="row" class="w"><a href="/regions/(\d{26})"', part)


def get(server: Serving, query: str, **headers: str) -> str:
    response = server.client.get(f"/traces/{ID}?{query}", headers=headers)
    assert response.status_code == 200, response.text
    return response.text


def twin(server: Serving, query: str) -> Json:
    answer: Json = server.client.get(f"/traces/{ID}.json?{query}").json()
    return answer


SWAP = {"HX-Request": "true", "HX-Target": "region-list"}

QUERIES = (
    "q=conv1d",
    "tool=triton&tool=library",
    "min_share=2.5",
    "evidence=predicted&sort=name",
    "stream=7&sort=time",
    "q=nothing+has+this",
)


@pytest.mark.parametrize("query", QUERIES)
def test_page_fragment_and_twin_show_the_same_regions_in_one_order(server: Serving, query: str) -> None:
    whole, part, data = get(server, query), get(server, query, **SWAP), twin(server, query)
    assert listed(whole) == listed(part) == [r["id"] for r in data["regions"]]
    assert data["view"]["shown"] == len(data["regions"])
    assert "<html" in whole
    assert "<html" not in part
    assert part.lstrip().startswith('<div id="region-list"')


def test_an_edited_region_keeps_the_traces_place_and_share_only_as_those_before_the_edit(server: Serving) -> None:
    region = max(
        (
            r
            for r in twin(server, "")["regions"]
            if r["text"] and r["advice"]["tool"] != "skip" and r["source"]["module"]
        ),
        key=lambda r: r["share_of_step"],
    )
    stored = {**region, "validations": [], "source": {**region["source"], "trace": ID}}
    server.state.store.region = {region["id"]: stored}.get
    form = {
        "text": region["text"],
        "share_percent": f"{round(region['share_of_step'] * 100, 3):g}",
        "calls_per_step": f"{region['calls_per_step']:g}",
        "device": region["advice"]["device"],
        "region_id": region["id"],
    }
    headers = {"HX-Request": "true"}

    def preview(**fields: str) -> str:
        return server.client.post("/regions/preview", data={**form, **fields}, headers=headers).text

    place = f"in <code>{html.escape(region['source']['module'])}</code>"
    same, edited = preview(), preview(text=f"# other\n{region['text']}")
    assert place in same and "efore your edit" not in same
    assert 'data-quantity="step_speedup"' in same
    assert f"Before your edit: {place}" in edited and "of the step before your edit" in edited
    assert 'data-quantity="step_speedup"' not in edited
    own = preview(text=f"# other\n{region['text']}", share_percent="12")
    assert "of the step before your edit" not in own and 'data-quantity="step_speedup"' in own


@pytest.mark.parametrize("query", QUERIES)
def test_the_csv_has_the_rows_of_the_list_in_its_order(server: Serving, query: str) -> None:
    answer = server.client.get(f"/traces/{ID}/regions.csv?{query}")
    assert answer.headers["content-type"].startswith("text/csv")
    assert 'filename="gpt2-train' in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["id"] for row in rows] == listed(get(server, query))


def test_filters_are_what_they_say_against_the_data(server: Serving) -> None:
    every = twin(server, "")["regions"]
    assert "view" not in twin(server, "")
    shares = {r["id"] for r in every if r["share_of_step"] >= 0.025}
    assert {r["id"] for r in twin(server, "min_share=2.5")["regions"]} == shares
    tools = {r["id"] for r in every if r["advice"]["tool"] in ("triton", "library")}
    assert {r["id"] for r in twin(server, "tool=triton&tool=library")["regions"]} == tools
    times = [r["time_us_per_step"] for r in twin(server, "sort=time")["regions"]]
    assert times == sorted(times, reverse=True)
    assert len(times) == len(every)


def test_an_answer_for_htmx_has_the_address_of_its_view(server: Serving) -> None:
    query = "q=gelu&tool=&evidence=&min_share=&sort=saving"
    response = server.client.get(f"/traces/{ID}?{query}", headers=SWAP)
    assert response.headers["hx-replace-url"] == f"/traces/{ID}?q=gelu"
    assert "HX-Request" in response.headers["vary"]
    # Going back asks with the same header, and for the whole page.
    back = {**SWAP, "HX-History-Restore-Request": "true"}
    assert "<html" in get(server, query, **back)


def test_the_address_fills_the_form(server: Serving) -> None:
    page = get(server, "q=%22%3Cb%3E&tool=triton&min_share=3&evidence=predicted&sort=name&start=1000&end=9000")
    assert 'value="&#34;&lt;b&gt;"' in page
    assert re.search(r'value="triton" checked', page)
    assert not re.search(r'value="library" checked', page)
    assert re.search(r'name="min_share"[^>]*value="3"', page)
    assert '<option value="predicted" selected>' in page
    assert '<option value="name" selected>' in page
    assert '<input type="hidden" name="start" value="1000.0" form="region-filter">' in page


def test_nothing_found_says_which_filter_to_take_away(server: Serving) -> None:
    page = get(server, "q=nothing+has+this&min_share=1")
    assert "No region fits." in page
    for words in ("“nothing has this”", "at least 1 % of the step"):
        assert f"Without {words}" in html.unescape(page)
    links = [html.unescape(x) for x in re.findall(r'href="(/traces/[^"]*)#regions">Without', page)]
    assert f"/traces/{ID}?min_share=1" in links
    assert f"/traces/{ID}?q=nothing+has+this" in links


@pytest.mark.parametrize(
    "query", ["min_share=nan", "stream=x", "start=9&end=1", "start=1e9&end=2e9", "sort=;drop", "rank=77"]
)
def test_an_address_that_asks_for_nonsense_shows_everything(server: Serving, query: str) -> None:
    assert len(twin(server, query)["regions"]) == len(twin(server, "")["regions"])
    assert "<h2>Timeline of " in get(server, query)


def test_the_list_of_another_rank_is_that_ranks(server: Serving) -> None:
    page = get(server, "rank=1")
    assert all(region.startswith("1") for region in listed(page))
    assert "rank1.json" in page
    assert '<option value="1" selected>' in page
    assert (
        twin(server, "rank=1&sort=time")["regions"][0]["time_us_per_step"]
        > twin(server, "sort=time")["regions"][0]["time_us_per_step"]
    )


def test_a_view_of_the_timeline_has_an_address_and_keeps_the_filter(server: Serving) -> None:
    page = get(server, "q=gelu&start=20000&end=30000")
    assert "20.0 ms to 30.0 ms of" in page
    links = [html.unescape(x) for x in re.findall(r'href="(/traces/[^"]*)#timeline"', page)]
    assert len(links) >= 4
    assert all("q=gelu" in link for link in links)
    part = get(server, "start=20000&end=30000", **{"HX-Request": "true", "HX-Target": "timeline"})
    assert part.lstrip().startswith('<section class="card stack" id="timeline">')
    drawn = json.loads(html.unescape(re.search(r'data-timeline="([^"]*)"', part)[1]))  # type: ignore[index]
    assert drawn["window"] == [20000, 30000]
    assert all(span[0] < 30000 and span[0] + span[1] > 20000 for lane in drawn["lanes"] for span in lane)


def test_a_closer_view_shows_more_of_less(server: Serving) -> None:
    trace = server.state.store.trace(ID)
    whole = trace_page.timeline_part(trace, View())["timeline"]
    close = trace_page.timeline_part(trace, View(start_us=0.0, end_us=6000.0))["timeline"]
    seen = [s for lane in whole["data"]["lanes"] for s in lane if s[0] < 6000]
    closer = [s for lane in close["data"]["lanes"] for s in lane]
    assert len(closer) > len(seen)
    assert sum(s[3] for s in closer) >= sum(s[3] for s in seen) - seen[-1][3]


def test_reading_is_stopped_by_a_plain_form(server: Serving) -> None:
    asked: list[str] = []
    queue = server.state.queue

    def cancel(job: str) -> str | None:
        asked.append(job)
        return "cancelled" if job == ID else None

    before, queue.cancel = queue.cancel, cancel
    try:
        origin = {"Origin": server.url}
        assert server.client.post(f"/traces/{ID}/cancel", headers=origin).headers["location"] == f"/traces/{ID}"
        assert server.client.post("/traces/nobody/cancel", headers=origin).status_code == 404
    finally:
        queue.cancel = before
    assert asked == [ID, "nobody"]


def test_lists_of_traces_leave_out_what_only_the_page_draws(server: Serving) -> None:
    page = {"items": [server.state.store.trace(ID)], "next": None}
    before, server.state.store.traces = server.state.store.traces, lambda *_: page
    try:
        item = server.client.get("/api/v1/traces").json()["items"][0]
    finally:
        server.state.store.traces = before
    assert item["kernels"]
    assert "timeline" not in item
    assert "where" not in item
