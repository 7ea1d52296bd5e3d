"""The pages of the history of checks on a real server: what they answer, their filters, CSV, deletion, retention."""

from __future__ import annotations

import csv
import html
import io
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from app.web.server import retention
from app.web.views import check_history as view
from tests.app.check.hostile_trace import EXAMPLE
from tests.app.web.conftest import Serving, serving
from tools.checks.check_api import sample_runs

Json = dict[str, Any]
DAY_S = 24 * 3600.0


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("data"), keep_history_days=10) as server:
        yield server


@pytest.fixture
def web(real: Serving) -> Iterator[Serving]:
    """A server without a history."""
    yield real
    for item in real.client.get("/api/v1/history").json()["items"]:
        real.client.delete(f"/api/v1/history/{item['id']}")


def send(server: Serving, runs: list[Json]) -> str:
    """The id of the series."""
    assert server.client.post("/api/v1/history", json={"entries": runs}).status_code == 200
    return str(server.client.get("/api/v1/history").json()["items"][0]["id"])


def text_of(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page.split("<main", 1)[1])).split())


def other_hardware(runs: list[Json], start: int, factor: float) -> list[Json]:
    """The same, on another device from a run on."""
    for run in runs[start:]:
        run["environment"] = {**run["environment"], "device": "NVIDIA H100"}
        run["measures"] = [{**m, "value": m["value"] * factor} for m in run["measures"]]
    return runs


def test_without_a_history_the_page_says_how_one_is_made(web: Serving) -> None:
    page = web.client.get("/checks/history").text
    assert "No history yet" in page and "<form" not in page.split("<main", 1)[1]
    assert 'href="/checks/history"' in web.client.get("/checks").text


def test_the_first_screen_says_that_it_got_slower_since_when_and_since_which_commit(web: Serving) -> None:
    series, commit = send(web, sample_runs()), sample_runs()[16]["commit"]
    listed = text_of(web.client.get("/checks/history").text)
    assert re.search(rf"8\.\d % slower since {commit[:10]}, 2026-11-17", listed)
    page = web.client.get(f"/checks/history/{series}").text
    assert re.search(rf'<h2 id="answer-title">8\.\d % slower since {commit[:10]}, 2026-11-17</h2>', page)
    said = text_of(page)
    assert "Cause the commit" in said and "8 runs since" in said
    assert page.index("answer-title") < page.index("<svg")


def test_another_device_is_blamed_and_not_the_commit(web: Serving) -> None:
    runs = sample_runs(30)
    for at, run in enumerate(runs):  # one level, one commit
        run["measures"][0]["value"] = 4000.0 + 8.0 * (at * 37 % 5)
        run["commit"] = "e" * 40
    series = send(web, other_hardware(runs, 15, 1.2))
    page = web.client.get(f"/checks/history/{series}").text
    assert "slower with another device since 2026-11-16, not the commit" in page
    assert "NVIDIA H200 to NVIDIA H100" in page
    assert "slower since" not in page


def test_both_changed_and_the_page_says_what_tells_them_apart(web: Serving) -> None:
    series = send(web, other_hardware(sample_runs(), 16, 1.2))
    page = web.client.get(f"/checks/history/{series}").text
    assert "perhaps also the commit" in page
    assert f"git checkout {sample_runs()[15]['commit']}" in page


def test_too_few_runs_say_so(web: Serving) -> None:
    assert "Too few runs to tell: 2 runs" in web.client.get(f"/checks/history/{send(web, sample_runs(2))}").text


def test_a_new_environment_of_one_run_is_no_proof_that_nothing_changed(web: Serving) -> None:
    runs = sample_runs(30)[:16]
    page = web.client.get(f"/checks/history/{send(web, other_hardware(runs, 15, 1.003))}").text
    assert "Too few runs in this environment to tell: 1 run" in page


def test_filters_narrow_the_list_and_a_series(web: Serving) -> None:
    topic = [{**run, "id": f"t{n}", "branch": "topic/x & y"} for n, run in enumerate(sample_runs(6))]
    send(web, other_hardware(topic, 3, 1.0))
    send(web, sample_runs(6))
    page = web.client.get("/checks/history", params={"branch": "topic/x & y"}).text
    assert page.count('href="/checks/history/') == 1
    assert "<option selected>topic/x &amp; y</option>" in page
    assert "Nothing matches" in web.client.get("/checks/history", params={"check": "no such"}).text
    items = web.client.get("/api/v1/history").json()["items"]
    ids = {item["key"]["branch"]: item["id"] for item in items}
    page = web.client.get(f"/checks/history/{ids['main']}").text
    assert f'<option value="{ids["topic/x & y"]}">' in page
    moved = web.client.get(f"/checks/history/{ids['main']}", params={"on": ids["topic/x & y"], "device": ""})
    assert (moved.status_code, moved.headers["location"]) == (303, f"/checks/history/{ids['topic/x & y']}")
    one = web.client.get(f"/checks/history/{ids['topic/x & y']}", params={"device": "NVIDIA H100"})
    assert text_of(one.text).count("NVIDIA H200") == 1, "in the list of devices alone"
    assert "Runs 3 the newest on" in text_of(one.text), "of this device"
    none = web.client.get(f"/checks/history/{ids['main']}", params={"device": "no such"})
    assert none.status_code == 200 and "No run on this device" in none.text


def test_the_table_the_csv_and_the_json_have_the_same_runs(web: Serving) -> None:
    series = send(web, sample_runs())
    detail = web.client.get(f"/checks/history/{series}.json").json()
    assert detail == web.client.get(f"/api/v1/history/{series}").json()
    rows = list(csv.DictReader(io.StringIO(web.client.get(f"/checks/history/{series}.csv").text)))
    assert tuple(rows[0]) == view.CSV_HEADER
    assert [float(row["value"]) for row in rows] == [point["value"] for point in detail["points"]]
    assert [row["cause"] for row in rows if row["cause"]] == ["regression"]
    page = web.client.get(f"/checks/history/{series}").text
    for point in detail["points"]:
        assert page.count(point["run"]["commit"][:10]) >= 2, "in the chart and in the table"
    listed = web.client.get("/checks/history.json").json()
    assert listed == web.client.get("/api/v1/history").json()


def test_names_of_runs_are_text(web: Serving) -> None:
    runs = sample_runs(8)
    hostile = "<script>alert(1)</script>\u202e"
    for run in other_hardware(runs, 4, 1.3):
        run.update(check=hostile, branch=hostile)
        run["measures"][0].update(subject=hostile, unit=hostile, metric=hostile)
        run["environment"]["software"][hostile] = hostile
    series = send(web, runs)
    for path in ("/checks/history", f"/checks/history/{series}"):
        page = web.client.get(path).text
        assert "<script>alert" not in page and "\u202e" not in page and "alert(1)" in page


def test_a_series_is_deleted_from_its_page(web: Serving) -> None:
    series = send(web, sample_runs(3))
    answer = web.client.post(f"/checks/history/{series}/delete")
    assert (answer.status_code, answer.headers["location"]) == (303, "/checks/history")
    gone = web.client.get(f"/checks/history/{series}", headers={"Accept": "text/html"})
    assert gone.status_code == 404 and "There is no such series" in gone.text
    assert web.client.post(f"/checks/history/{series}/delete").status_code == 404


def test_a_check_of_the_form_with_a_commit_leads_to_its_history_and_back(web: Serving) -> None:
    trace = web.client.post("/api/v1/traces?wait=120&name=step", content=EXAMPLE.read_bytes(), timeout=150).json()
    sent = {"trace": trace["id"], "commit": "f" * 40, "branch": "", "config": '[check]\nname = "form"\n'}
    path = web.client.post("/checks", data=sent, timeout=60).headers["location"]
    assert web.client.get(f"/api/v1{path}?wait=120", timeout=150).json()["state"] == "done"
    link = re.search(r'href="(/checks/history/[a-z0-9]{26})">Its history', web.client.get(path).text)
    assert link
    assert f'<a href="{path}"' in web.client.get(link[1]).text
    without = web.client.post("/checks", data={**sent, "commit": ""}, timeout=60).headers["location"]
    assert "Its history" not in web.client.get(without).text
    wrong = web.client.post("/checks", data={**sent, "commit": "x" * 201})
    assert wrong.status_code == 422 and "at most 200" in wrong.text and f'value="{"x" * 201}"' in wrong.text


def test_runs_are_kept_as_long_as_the_setting_says(web: Serving) -> None:
    series = send(web, sample_runs(3))
    now = time.time()
    assert retention.sweep(web.state, now + 9 * DAY_S).runs == 0
    assert web.client.get(f"/checks/history/{series}").status_code == 200
    assert retention.sweep(web.state, now + 11 * DAY_S).runs == 3
    assert web.client.get(f"/checks/history/{series}").status_code == 404


def test_a_time_is_read_as_a_time_and_a_count_as_a_count() -> None:
    assert view.quantity(4321.0, "µs") == view.quantity(4321.0, "us") == "4.32 ms"
    assert view.quantity(3.0, "kernels") == "3 kernels"
    assert view.quantity(1.25, "bytes/byte") == "1.25×"
    assert view.quantity(2.5e6, "bytes") == "2.50 MB"
    assert view.quantity(7.0, "") == "7"


def test_letters_of_environments_go_on_after_z() -> None:
    assert [view.letter(n) for n in (0, 25, 26, 51, 52)] == ["A", "Z", "AA", "AZ", "BA"]
