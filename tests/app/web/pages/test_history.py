"""The history on the real application: found, sorted, renamed, deleted and brought back, by forms and by the API."""

from __future__ import annotations

import csv
import html
import io
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.requests.uploads import MULTIPART_OVERHEAD
from app.web.pages.history import NAME_CHARS
from app.web.server import retention
from tests.app.web.conftest import Serving, serving
from tests.app.web.pages.test_pages import REGION, TRACE


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """The application with a trace that was really read, a region, and a trace that is none."""
    with serving(tmp_path_factory.mktemp("history")) as server:
        server.client.headers["Accept"] = "text/html"
        yield server


@pytest.fixture(scope="module")
def trace(web: Serving) -> dict[str, Any]:
    answer = web.client.post("/api/v1/traces?wait=120&name=real", content=TRACE.read_bytes(), timeout=180)
    assert answer.json()["status"] == "ready"
    web.client.post("/api/v1/traces?wait=60&name=broken", content=b"nothing", timeout=90)
    assert web.client.post("/regions", data={"text": REGION}).status_code == 303
    found: dict[str, Any] = answer.json()
    return found


def rows(page: str) -> list[str]:
    return re.findall(r'<tr id="([a-z0-9]{26})">', page)


def row_of(page: str, row_id: str) -> str:
    found = re.search(rf'<tr id="{row_id}">.*?</tr>', page, re.S)
    assert found
    return html.unescape(re.sub(r"<[^>]+>", " ", found[0]))


def test_a_trace_says_what_the_trace_page_says_first(web: Serving, trace: dict[str, Any]) -> None:
    stored = web.client.get(f"/api/v1/traces/{trace['id']}").json()
    first = stored["actions"][0]
    row = row_of(web.client.get("/history").text, trace["id"])
    assert first["title"] in re.sub(r"\s+", " ", row)
    assert f"saves {first['saves_us']['mid'] / 1e3:.2f} ms" in row
    assert f"{stored['critical']['share'] * 100:.1f} % of the step" in row
    assert stored["device"] in row
    entry = next(e for e in web.client.get("/history.json").json()["items"] if e["id"] == trace["id"])
    assert entry["finding"]["saves_us"] == first["saves_us"]
    assert entry["finding"]["step_time_us"] == stored["step_time_us"]


def test_a_trace_that_failed_says_why(web: Serving, trace: dict[str, Any]) -> None:
    page = web.client.get("/history?q=broken").text
    (row_id,) = rows(page)
    assert "failed" in row_of(page, row_id)
    assert "JSON" in row_of(page, row_id)


def test_a_search_is_in_the_address_and_says_when_nothing_matches(web: Serving, trace: dict[str, Any]) -> None:
    assert rows(web.client.get("/history?q=REAL&kind=trace").text) == [trace["id"]]
    page = web.client.get("/history", params={"q": '<script>"'}).text
    assert rows(page) == []
    assert "Nothing matches" in page
    assert "<script>&#34;" not in page.replace("&lt;", "") and '<script>"' not in page
    assert "Nothing yet" not in page


def test_sorted_by_name_the_names_rise(web: Serving, trace: dict[str, Any]) -> None:
    names = [e["name"] for e in web.client.get("/history.json?sort=name").json()["items"]]
    assert names == sorted(names, key=str.lower)
    assert len(names) >= 3
    assert web.client.get("/history.json?sort=no-such&kind=nothing").json() == web.client.get("/history.json").json()


def test_the_csv_has_the_rows_of_the_page_and_runs_no_formula(web: Serving, trace: dict[str, Any]) -> None:
    api = f"/api/v1/traces/{trace['id']}"
    assert web.client.patch(api, json={"name": '=HYPERLINK("x")'}).status_code == 200
    answer = web.client.get("/history.csv?kind=trace")
    assert answer.headers["content-type"].startswith("text/csv")
    table = list(csv.DictReader(io.StringIO(answer.text)))
    assert [line["id"] for line in table] == rows(web.client.get("/history?kind=trace").text)
    line = next(line for line in table if line["id"] == trace["id"])
    assert line["name"].startswith("'=")
    assert float(line["step_time_us"]) == trace["step_time_us"]
    assert web.client.patch(api, json={"name": "real"}).json()["name"] == "real"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"name": "  after  "}, 200),
        ({"name": "x" * NAME_CHARS}, 200),
        ({"name": "x" * (NAME_CHARS + 1)}, 422),
        ({"name": "   "}, 422),
        ({"name": None}, 422),
        ({}, 422),
        ({"name": "a", "file": "b"}, 422),
    ],
)
def test_a_name_has_bounds_and_nothing_else_can_be_patched(
    web: Serving, trace: dict[str, Any], body: dict[str, Any], status: int
) -> None:
    region = trace["regions"][0]
    for address in (f"/api/v1/traces/{trace['id']}", f"/api/v1/regions/{region['id']}"):
        answer = web.client.patch(address, json=body)
        assert answer.status_code == status, answer.text
        if status == 200:
            assert web.client.get(address).json()["name"] == body["name"].strip()


def test_the_form_renames_and_leads_back_to_the_row(web: Serving, trace: dict[str, Any]) -> None:
    answer = web.client.post(f"/traces/{trace['id']}/rename", data={"name": " before <b> "})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/history#{trace['id']}")
    assert "before &lt;b&gt;" in web.client.get("/history").text
    assert web.client.post(f"/traces/{trace['id']}/rename", data={"name": " "}).status_code == 422
    assert web.client.post(f"/regions/{'a' * 26}/rename", data={"name": "x"}).status_code == 404


def test_what_the_page_deletes_comes_back_whole(web: Serving, trace: dict[str, Any]) -> None:
    path, files = f"/traces/{trace['id']}", web.files()
    before = web.client.get(f"/api/v1{path}").json()
    answer = web.client.post(f"{path}/delete")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/history?deleted={trace['id']}")
    page = web.client.get(answer.headers["location"]).text
    assert trace["id"] not in rows(page)
    assert f'action="{path}/undelete"' in page
    gone = web.client.get(path)
    assert gone.status_code == 404
    assert f'action="{path}/undelete"' in gone.text
    assert web.client.get(f"/api/v1{path}").status_code == 404
    assert web.client.get(f"/api/v1/regions/{trace['regions'][0]['id']}").status_code == 404
    assert retention.sweep(web.state, time.time()).deleted == 0
    assert web.files() == files
    back = web.client.post(f"{path}/undelete")
    assert (back.status_code, back.headers["location"]) == (303, path)
    assert web.client.get(f"/api/v1{path}").json() == before
    assert web.client.post(f"{path}/undelete").status_code == 404


def test_after_the_time_to_undo_the_sweep_takes_it_with_its_file(web: Serving) -> None:
    made = web.client.post("/api/v1/traces?wait=60&fresh=true", content=b"{}", timeout=90).json()
    trace_id = made.get("trace") or made["id"]
    assert trace_id in web.files()
    assert web.client.post(f"/traces/{trace_id}/delete").status_code == 303
    assert retention.sweep(web.state, time.time() + retention.UNDO_S + 60).deleted == 1
    assert trace_id not in web.files()
    assert web.client.post(f"/traces/{trace_id}/undelete").status_code == 404


def test_the_apis_delete_is_final(web: Serving) -> None:
    made = web.client.post("/api/v1/traces?wait=60&fresh=true", content=b"[]", timeout=90).json()
    trace_id = made.get("trace") or made["id"]
    assert web.client.delete(f"/api/v1/traces/{trace_id}").status_code == 204
    assert trace_id not in web.files()
    assert web.client.post(f"/traces/{trace_id}/undelete").status_code == 404


def test_what_was_deleted_makes_room_before_an_upload_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path, "trace", max_stored_bytes=1000) as full:
        first = full.client.post("/api/v1/traces?wait=20", content=b"x" * 700).json()
        assert full.client.post("/api/v1/traces", content=b"y" * 700).status_code == 507
        assert full.client.post(f"/traces/{first['id']}/delete").status_code == 303
        assert full.client.post("/api/v1/traces?wait=20", content=b"y" * 700).status_code == 201
        assert full.client.post(f"/traces/{first['id']}/undelete").status_code == 404


def test_an_upload_that_is_refused_anyway_takes_no_undo(tmp_path: Path) -> None:
    with serving(tmp_path, "trace", max_stored_bytes=1000, max_upload_bytes=4000) as full:
        first = full.client.post("/api/v1/traces?wait=20", content=b"x" * 300).json()
        full.client.post("/api/v1/traces?wait=20", content=b"y" * 300)
        assert full.client.post(f"/traces/{first['id']}/delete").status_code == 303
        for size, status in ((5000 + MULTIPART_OVERHEAD, 413), (900, 507)):
            assert full.client.post("/api/v1/traces", content=b"z" * size).status_code == status
        assert full.client.post(f"/traces/{first['id']}/undelete").status_code == 303


def test_room_is_made_of_the_oldest_deletions_alone(tmp_path: Path) -> None:
    with serving(tmp_path, "trace", max_stored_bytes=1000) as full:
        ids = [full.client.post("/api/v1/traces?wait=20", content=c * 300).json()["id"] for c in (b"a", b"b", b"c")]
        for trace_id in (ids[1], ids[0], ids[2]):
            assert full.client.post(f"/traces/{trace_id}/delete").status_code == 303
        assert full.client.post("/api/v1/traces?wait=20", content=b"d" * 350).status_code == 201
        undone = [full.client.post(f"/traces/{trace_id}/undelete").status_code for trace_id in ids]
        assert undone == [303, 404, 303]


def test_the_same_bytes_again_bring_a_deleted_trace_back_and_make_no_second(
    web: Serving, trace: dict[str, Any]
) -> None:
    path, files = f"/traces/{trace['id']}", web.files()
    before = web.client.get(f"/api/v1{path}").json()
    assert web.client.post(f"{path}/delete").status_code == 303
    again = web.client.post("/api/v1/traces?wait=60&name=other", content=TRACE.read_bytes(), timeout=90)
    assert (again.status_code, again.json()["id"]) == (200, trace["id"])
    assert web.client.get(f"/api/v1{path}").json() == before
    assert web.client.post(f"{path}/undelete").status_code == 404
    assert web.files() == files


def test_an_old_link_to_a_later_page_says_that_there_is_no_more_of_it(web: Serving, trace: dict[str, Any]) -> None:
    page = web.client.get("/history?kind=trace&sort=name&after=zzz~z").text
    main = html.unescape(page.partition("<main")[2])
    assert "No more rows" in main
    assert "Nothing yet" not in main
    (first,) = re.findall(r'href="([^"]+)">First page', main)
    assert trace["id"] in rows(web.client.get(first).text)


def test_a_page_that_is_gone_promises_an_undo_only_of_what_a_page_deleted(web: Serving) -> None:
    page = web.client.get(f"/traces/{'a' * 26}").text
    assert "what a page's Delete removed in the last hour can be brought back" in html.unescape(page)


def test_empty_it_says_what_to_do_first(tmp_path: Path) -> None:
    with serving(tmp_path, "trace") as empty:
        page = empty.client.get("/history", headers={"Accept": "text/html"}).text
        assert "Nothing yet" in page
        assert 'href="/"' in page.partition("<main")[2]
