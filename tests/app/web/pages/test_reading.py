"""A trace while it is read: its page and the API have each part as soon as it is known, and nobody waits for the rest.

The child says one stage after the other, each when the test lets it: nothing here is a matter of time.
"""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.advice.evidence import without_figures
from app.requests import regions as submit
from tests.app.web.conftest import Serving, serving
from tests.app.web.streamed import Streamed, streamed, until

Json = dict[str, Any]
HTMX = {"HX-Request": "true"}
PAGE = {"Accept": "text/html"}
BROKEN = {"code": "trace-not-json", "message": "The file ends in the middle.", "remedy": "Copy it again."}

numbers = itertools.count()


class Reading:
    """One trace on its way, and the child that waits for `stages.give`."""

    def __init__(self, server: Serving, stages: Streamed) -> None:
        self.server, self.stages = server, stages
        body = b'{"number": %d}' % next(numbers)
        answer = server.client.post("/traces", files={"file": ("step.json", body)}, headers=PAGE)
        assert answer.status_code == 303, answer.text
        self.path = answer.headers["location"]
        self.id = self.path.rsplit("/", 1)[1]

    def api(self) -> Json:
        answer: Json = self.server.client.get(f"/api/v1{self.path}").json()
        return answer

    def page(self, query: str = "") -> str:
        answer = self.server.client.get(f"{self.path}{query}", headers=PAGE)
        assert answer.status_code == 200, answer.text
        return answer.text

    def poll(self, shown: str, **more: Any) -> Any:
        """What the page asks by itself."""
        return self.server.client.get(f"{self.path}/reading", params={"shown": shown, **more}, headers=HTMX)

    def give_parts(self) -> list[Json]:
        self.stages.give(0)
        until(lambda: self.api()["kernels"])
        regions: list[Json] = self.api()["regions"]
        return regions

    def give_advice(self, on: int) -> None:
        """On so many regions, the first ones."""
        for number in range(1, on + 1):
            self.stages.give(number)
        until(lambda: sum(bool(r["advice"]) for r in self.api()["regions"]) == on)

    def give_all(self) -> Json:
        self.give_parts()
        self.give_advice(len(self.stages.regions))
        self.stages.give("end")
        until(lambda: self.api()["status"] != "reading")
        return self.api()


Begin = Callable[..., Reading]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("reading"), "parts") as app_server:
        yield app_server


@pytest.fixture
def begin(server: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """A trace whose reading has begun; ended with the test, as one is read at a time."""
    begun: list[Reading] = []

    def one(error: Json | None = None) -> Reading:
        stages = streamed(tmp_path / f"stages{len(begun)}", error)
        monkeypatch.setenv("PARTS", str(stages.path))
        begun.append(Reading(server, stages))
        return begun[-1]

    yield one
    for reading in begun:
        server.state.queue.cancel(reading.id)
        until(lambda reading=reading: reading.api()["status"] != "reading")


def listed(page: str) -> list[str]:
    part = page[page.index('id="region-list"') :].partition('<div class="panel')[0]
    return re.findall(r'<th scope="row" class="w"><a href="/regions/(\w{26})"', part)


def places(fragment: str) -> set[str]:
    """Which regions' cells an answer has."""
    return set(re.findall(r'id="r(\d+)-tool"', fragment))


@pytest.mark.parametrize("form", ["upload", "example", "again"])
def test_an_upload_waits_for_no_reader(
    server: Serving, begin: Begin, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Its page is answered before anything is read, and nothing has been waited for."""
    first = begin()
    waited: list[str] = []

    async def wait(job_id: str, _: float) -> None:
        waited.append(job_id)

    monkeypatch.setattr(server.state.queue, "wait", wait)
    if form == "upload":
        answer = server.client.post("/traces", files={"file": ("other.json", b"{}")}, headers=PAGE)
    elif form == "example":
        answer = server.client.post("/examples/handrolled_blocks", headers=PAGE)
    else:
        answer = server.client.post(f"{first.path}/again", files={"file": ("rank1.json", b"[]")}, headers=PAGE)
    path = answer.headers["location"]
    assert (answer.status_code, path.startswith("/traces/"), waited) == (303, True, [])
    page = server.client.get(path, headers=PAGE).text
    assert 'hx-get="' + path + "/reading?hold=" in page
    assert '<meta http-equiv="refresh"' in page, "it goes on without a script"
    for trace in server.client.get("/api/v1/traces").json()["items"]:
        if trace["id"] != first.id:
            server.state.queue.cancel(trace["id"])


def test_the_parts_are_shown_before_any_advice(begin: Begin) -> None:
    reading = begin()
    assert 'id="region-list"' not in reading.page()
    assert reading.poll("reading").status_code == 204
    regions = reading.give_parts()
    assert [r["advice"] for r in regions] == [None] * len(reading.stages.regions)
    for part in (reading.page(), reading.poll("reading").text):
        for name in ("trace-glance", "step-time", "timeline", "where", "region-list"):
            assert f'id="{name}"' in part, name
        assert "16.8 ms" in part
        assert listed(part) == [r["id"] for r in sorted(regions, key=lambda r: -r["time_us_per_step"])]
        assert f"Advice on 0 of {len(regions)} regions" in part
        assert 'class="tool skip' not in part, "nothing is said to be left as it is before anybody knows"
        assert "report.html" not in part
    assert reading.poll("advising-0").status_code == 204, "what the page has is not sent again"


def test_advice_comes_region_by_region_into_the_rows_that_wait_for_it(begin: Begin) -> None:
    reading = begin()
    regions = reading.give_parts()
    reading.give_advice(on=2)
    answer = reading.poll("advising-0", waiting=[0, 1, 2])
    assert places(answer.text) == {"0", "1"}
    assert f"Advice on 2 of {len(regions)} regions" in answer.text
    for region in reading.stages.regions[:2]:  # both were measured on this device before
        assert f"{region['name']}: confirmed by measurement" in answer.text
    assert 'id="timeline"' not in answer.text, "what a reader may have opened or moved is left alone"
    assert places(reading.poll("advising-1", waiting=[1, 2]).text) == {"1"}, "a row is filled once"
    assert places(reading.poll("advising-1").text) == set(), "a row that a filter leaves out has no place"
    assert [r["id"] for r in reading.api()["regions"]] == [r["id"] for r in regions]


def test_a_filter_works_while_advice_comes(begin: Begin) -> None:
    reading = begin()
    regions = reading.give_parts()
    swap = {**HTMX, "HX-Target": "region-list"}
    part = reading.server.client.get(f"{reading.path}?q=attention", headers=swap).text
    assert part.lstrip().startswith('<div id="region-list"')
    wanted = [r["id"] for r in regions if "attention" in r["name"]]
    assert listed(part) == wanted
    reading.give_advice(on=1)
    tool = reading.api()["regions"][0]["advice"]["tool"]
    again = reading.poll("advising-0", tool=tool, waiting=[3])
    assert listed(again.text) == [regions[0]["id"]], "whose advice is asked for is listed as soon as it is here"


def test_the_end_brings_what_needs_all_advice_and_stops_the_asking(begin: Begin) -> None:
    reading = begin()
    known = [r["id"] for r in reading.give_parts()]
    assert reading.api()["gain"] is None, "what all advice gains is not known from some of it"
    whole = reading.give_all()
    assert (whole["status"], [r["id"] for r in whole["regions"]]) == ("ready", known)
    assert whole["gain"]["all"]
    end = reading.poll("advising-3").text
    assert '<div id="reading-poll" hx-swap-oob="delete">' in end
    for name in ("gain", "advice", "region-list", "trace-glance", "timeline", "where", "trace-actions"):
        assert re.search(rf'id="{name}"[^>]* hx-swap-oob="true"', end), name
    assert "report.html" in end
    assert "coming" not in end
    assert 'href="/checks?trace=' in end, "what could not be done before is offered without a reload"
    page = reading.page()
    assert listed(end) == listed(page)
    assert "/reading" not in page
    late = reading.poll("reading").text
    assert re.search('id="trace-body"[^>]* hx-swap-oob', late), "a page that has shown nothing gets the whole"
    assert listed(late) == listed(page)


def test_a_reading_that_fails_after_its_parts_says_so_on_the_page_that_shows_them(begin: Begin) -> None:
    reading = begin(error=BROKEN)
    regions = reading.give_parts()
    reading.give_advice(on=1)
    region = f"/regions/{regions[2]['id']}"
    assert "Advice is coming" in reading.server.client.get(region, headers=PAGE).text
    assert reading.give_all()["status"] == "failed"
    end = reading.poll("advising-1").text
    assert BROKEN["message"] in end
    assert '<div id="reading-poll" hx-swap-oob="delete">' in end
    for shown in (end, reading.page()):
        assert BROKEN["message"] in shown and "Advice is coming" not in shown
        assert len(listed(shown)) == len(regions), "what was read until then stays"
    assert all(r["advice"] for r in reading.api()["regions"]), "and what was said in its last moment"
    assert len(listed(reading.page("?sort=name"))) == len(regions)
    assert reading.server.client.get(region, headers=PAGE).status_code == 200


def test_a_reading_that_is_cancelled_keeps_what_it_has_shown(begin: Begin) -> None:
    reading = begin()
    regions = reading.give_parts()
    reading.give_advice(on=1)
    reading.server.state.queue.cancel(reading.id)
    until(lambda: reading.api()["status"] == "failed")
    page = reading.page()
    assert "Reading was cancelled." in page and len(listed(page)) == len(regions)
    assert "not known, reading ended before" in page and "no saving predicted" not in page
    assert [bool(r["advice"]) for r in reading.api()["regions"]] == [True] + [False] * (len(regions) - 1)


@pytest.mark.parametrize("address", ["", "/advice"])
def test_advice_that_comes_while_its_page_is_made_is_on_it(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """The region is read, then its trace's state: reading ends between the two, on a busy machine it did."""
    reading = begin()
    region = reading.give_parts()[0]
    store = reading.server.state.store
    head = store.trace_head

    def end_and_tell(trace_id: str) -> Json | None:
        monkeypatch.setattr(store, "trace_head", head)
        assert reading.give_all()["status"] == "ready"
        return head(trace_id)

    monkeypatch.setattr(store, "trace_head", end_and_tell)
    page = reading.server.client.get(f"/regions/{region['id']}{address}", headers=HTMX if address else PAGE).text
    assert "no advice on this region" not in page
    assert 'class="card verdict' in page and "Advice is coming" not in page


def test_a_region_without_advice_answers_everywhere(begin: Begin) -> None:
    """Each of these reads the advice of a region that has none yet."""
    reading = begin()
    regions = reading.give_parts()
    region, client = regions[0], reading.server.client
    path = f"/regions/{region['id']}"
    page = client.get(path, headers=PAGE).text
    assert "Advice is coming" in page
    assert f'hx-get="{path}/advice"' in page
    assert client.get(f"{path}/advice", headers=HTMX).status_code == 204
    assert client.get(f"{path}.json").json()["advice"] is None
    assert client.get(f"/api/v1{path}").json()["cost"] is None
    assert client.get(f"{reading.path}.json").json()["regions"][0]["advice"] is None
    for address in ("/", "/history", "/compare", "/checks", f"{path}/triton", f"{path}/report.html"):
        assert client.get(address, headers=PAGE).status_code == 200, address
    assert client.get(f"{reading.path}/report.html", headers=PAGE).status_code == 409
    edited = client.post("/regions/preview", data={"text": region["text"], "region_id": region["id"]}, headers=HTMX)
    assert edited.status_code == 200
    assert 'class="card verdict' in edited.text


def test_the_page_of_a_region_gets_its_advice_when_it_comes(begin: Begin) -> None:
    reading = begin()
    regions = reading.give_parts()
    reading.give_advice(on=1)
    first, second = (f"/regions/{r['id']}" for r in regions[:2])
    answer = reading.server.client.get(f"{first}/advice", headers=HTMX)
    advice = reading.api()["regions"][0]["advice"]
    headline = without_figures(html.escape(advice["headline"], quote=False).replace("`", ""))
    assert headline in re.sub("</?code>|<wbr>", "", answer.text)
    assert 'id="tab-panel"' in answer.text
    assert reading.server.client.get(f"{second}/advice", headers=HTMX).status_code == 204
    assert reading.server.client.get(f"{first}/advice").headers["location"] == first


def test_what_is_measured_of_a_region_without_advice_makes_none_of_it(begin: Begin) -> None:
    """Its validation has no advice from before; the region goes on without, or gets its own when it comes."""
    reading = begin()
    region = reading.give_parts()[0]
    job, _ = submit.submit_validation(reading.server.state, region_id=region["id"])
    store = reading.server.state.store
    assert store.job_request(job["id"])["advice_before"] is None
    until(lambda: store.job_state(job["id"]) == "done")
    assert store.region(region["id"])["advice"] is None
    assert "Advice is coming" in reading.server.client.get(f"/regions/{region['id']}", headers=PAGE).text
    reading.give_advice(on=1)
    advice = store.region(region["id"])["advice"]
    assert advice["tool"] == reading.stages.regions[0]["advice"]["tool"]
    assert advice["validation"]["id"] == job["id"]


def test_the_oracle_is_asked_of_no_region_whose_advice_is_still_to_come(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = begin()
    region = reading.give_parts()[0]
    monkeypatch.setattr(submit, "oracle_is_on", lambda _: True)
    answer = reading.server.client.post(f"/api/v1/regions/{region['id']}/oracle")
    assert (answer.status_code, answer.json()["code"]) == (409, "trace-not-ready")


def test_a_page_is_told_little_while_nothing_comes(begin: Begin) -> None:
    """It asks several times a second: then no trace and no region is loaded."""
    reading = begin()
    reading.give_parts()
    store = reading.server.state.store
    loaded: list[str] = []
    for name in ("trace", "regions", "trace_group"):
        kept = getattr(store, name)
        setattr(store, name, lambda *a, name=name, kept=kept: (loaded.append(name), kept(*a))[1])
    try:
        assert reading.poll("advising-0", waiting=list(range(8))).status_code == 204
    finally:
        for name in ("trace", "regions", "trace_group"):
            delattr(store, name)
    assert loaded == []


def test_the_page_of_a_trace_that_is_gone_is_loaded_again(server: Serving) -> None:
    answer = server.client.get(f"/traces/{'x' * 26}/reading", headers=HTMX)
    assert (answer.status_code, answer.headers["hx-refresh"]) == (204, "true")
    assert server.client.get(f"/traces/{'x' * 26}/reading").status_code == 404
