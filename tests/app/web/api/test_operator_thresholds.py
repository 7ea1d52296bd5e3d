"""The operator's numbers of the rule reach everything that the server advises on: regions, the widget, traces."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.app.web.conftest import Serving, serving
from tests.conftest import DATA

REGION = "x: f32[4096, 4096]\ny = gelu(x) * 2 + x\nreturn y\n"
TRACE = DATA / "traces" / "handrolled_blocks_bf16_eager_stack.json.gz"
HTMX = {"HX-Request": "true", "Accept": "text/html"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    file = tmp_path_factory.mktemp("rule") / "rule.toml"
    file.write_text("worth_share = 0.5\n")
    with serving(tmp_path_factory.mktemp("thresholds"), thresholds=str(file)) as app_server:
        yield app_server


def worth_it(advice: dict[str, Any]) -> dict[str, Any]:
    return next(c for c in advice["criteria"] if c["name"] == "worth-it")


def test_a_region_and_the_widget_go_by_them(server: Serving) -> None:
    region = server.client.post("/api/v1/advice", json={"region": REGION, "share_of_step": 0.4}).json()
    widget = {"share_of_step": 0.4, "uniqueness": 0.9, "irregularity": 0.9}
    for advice in (region, server.client.post("/api/v1/advice", json={"widget": widget}).json()):
        assert advice["tool"] == "skip"
        assert worth_it(advice)["threshold"] == 0.5
        assert any(c["of"] == "share_of_step" and c["at"] >= 0.5 for c in advice["would_change"])


def test_the_widgets_table_goes_by_them(server: Serving) -> None:
    table = server.client.get("/widget/table").json()
    row = next(r for r in table["rows"] if r["name"] == "worth-it")
    assert row["states"].index("1") * table["steps"]["share_of_step"] == pytest.approx(0.5)


def test_a_trace_goes_by_them_in_its_own_process(server: Serving) -> None:
    with TRACE.open("rb") as file:
        trace = server.client.post("/api/v1/traces", params={"wait": 60}, files={"file": (TRACE.name, file)}).json()
    deadline = time.monotonic() + 120
    while trace["status"] == "reading" and time.monotonic() < deadline:
        time.sleep(0.2)
        trace = server.client.get(f"/api/v1/traces/{trace['id']}").json()
    assert trace["regions"]
    assert {worth_it(r["advice"])["threshold"] for r in trace["regions"]} == {0.5}
    # What was measured has nothing that would change it: the advice that is kept is the predicted one.
    kept = [server.state.store.region(r["id"]) for r in trace["regions"]]
    assert any(r["advice"]["would_change"] for r in kept if r and r["advice"])


def test_a_regions_page_says_what_would_change_its_advice(server: Serving) -> None:
    page = server.client.post("/regions", data={"text": REGION, "share_percent": "70"}, headers=HTMX)
    path = page.headers["hx-push-url"]
    twin = server.client.get(f"{path}.json").json()
    shown = server.client.get(f"{path}?tab=evidence", headers={"Accept": "text/html"}).text
    assert twin["advice"]["would_change"]
    changes = shown.partition('id="would-change"')[2].partition("</ul>")[0]
    assert changes.count("<li>") == len(twin["advice"]["would_change"])
    assert "What would change it" in changes
    assert "and what would change it" in server.client.get(path, headers={"Accept": "text/html"}).text


def test_unknown_words_for_the_table_count_as_not_known(server: Serving) -> None:
    plain = server.client.get("/widget/table").json()
    assert server.client.get("/widget/table", params={"bound": "<b>", "kind": "../x"}).json() == plain
