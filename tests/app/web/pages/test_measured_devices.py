"""The same region on several kinds of GPU side by side: API, pages, twin; asking for what is measured already."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.archive import record_store
from tests.app.samples import candidate
from tests.app.storage.test_store import run
from tests.app.storage.validations import add_validation
from tests.app.web.conftest import Serving, serving
from tests.processes import wait_for

Json = dict[str, Any]

SHIPPED: Json = json.loads(
    next(s.path for s in record_store.list_record_files() if "swiglu" in s.path.name).read_text()
)
REGION = SHIPPED["region"]
NOBODYS = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"
MI300X = "AMD Instinct MI300X"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server whose queue stands still: what it has measured is put into its store."""
    with serving(tmp_path_factory.mktemp("data")) as server:
        wait_for(lambda: server.state.service.warm)
        server.state.queue.stop()
        yield server


def measured(web: Serving, region_id: str | None = None, **body: Any) -> str:
    store = web.state.store
    made, _ = add_validation(store, name="v", region=REGION, region_id=region_id, request={"region": REGION}, cap=99)
    held = {k: v for k, v in SHIPPED.items() if k not in ("schema", "name", "region")}
    assert store.finish_validation(**run(store, "validate"), validation={**held, **body})
    return str(made)


def written(web: Serving, text: str) -> str:
    answer = web.client.post("/regions", data={"text": text})
    return str(answer.headers["location"].rpartition("/")[2])


def test_api_pages_and_twins_have_each_kind_once_with_every_candidate(web: Serving) -> None:
    region = written(web, REGION)
    slow = [candidate("eager", "eager", 4000.0, 4000.0), candidate("compile-default", "compile", 1600.0, 4000.0)]
    made = measured(web, device=MI300X, candidates=slow, best="compile-default", date="2026-11-22")
    for path in (f"regions/{region}", f"validations/{made}"):
        answer = web.client.get(f"/api/v1/{path}/measured-devices").json()
        assert [i["device"] for i in answer["items"]] == ["NVIDIA H200", MI300X]
        assert answer["items"][1]["id"] == made
        assert [c["name"] for c in answer["items"][1]["candidates"]] == ["eager", "compile-default"]
        assert answer["items"][1]["here"] is True
        assert answer["said"] == "The advice is the same on all 2 kinds of GPU: torch.compile."
        one = web.client.get(f"/api/v1/{path}/measured-devices", params={"device": "MI300X, NVIDIA L40S"}).json()
        assert [i["device"] for i in one["items"]] == [MI300X]
        assert web.client.get(f"/{path}/measured-devices.json").json() == answer
        page = web.client.get(f"/{path}", params={"tab": "devices"}).text.split('id="kinds"')[1]
        assert "2.50×" in page and MI300X in page
        whole = web.client.get(f"/{path}/measured-devices").text
        assert "<html" in whole and MI300X in whole
        part = web.client.get(f"/{path}/measured-devices", headers={"HX-Request": "true"}).text
        assert "<html" not in part and MI300X in part


def test_the_old_path_answers_as_the_new_one_and_is_described_as_the_old_one(web: Serving) -> None:
    region, made = written(web, REGION), measured(web, device=MI300X, date="2026-11-22")
    described = web.client.get("/openapi.json").json()["paths"]
    for noun, one in (("region", region), ("validation", made)):
        for path in (f"/api/v1/{noun}s/{one}", f"/{noun}s/{one}"):
            new = web.client.get(f"{path}/measured-devices", params={"device": "MI300X"})
            old = web.client.get(f"{path}/kinds", params={"device": "MI300X"})
            assert MI300X in new.text
            assert (old.status_code, old.text) == (new.status_code, new.text)
        twins = [web.client.get(f"/{noun}s/{one}/{last}.json") for last in ("kinds", "measured-devices")]
        assert twins[0].json() == twins[1].json() != {"items": [], "said": ""}
        template = f"/api/v1/{noun}s/{{{noun}_id}}"
        assert described[f"{template}/kinds"]["get"]["deprecated"] is True
        assert "deprecated" not in described[f"{template}/measured-devices"]["get"]


def test_one_kind_alone_makes_no_section_and_an_unknown_region_is_404(web: Serving) -> None:
    region = written(web, NOBODYS)
    assert 'id="kinds"' not in web.client.get(f"/regions/{region}?tab=all").text
    assert web.client.get(f"/api/v1/regions/{region}/measured-devices").json() == {"items": [], "said": ""}
    assert "Nothing was measured" in web.client.get(f"/regions/{region}/measured-devices").text
    for path in ("regions", "validations"):
        assert web.client.get(f"/api/v1/{path}/{'z' * 26}/measured-devices").status_code == 404
    many = web.client.get(f"/api/v1/regions/{region}/measured-devices", params={"device": "x" * 501})
    assert many.status_code == 422


def test_another_region_of_the_same_program_is_shown_what_was_measured_here(web: Serving) -> None:
    measured(web, device="NVIDIA H200", date="2026-11-30")
    text = REGION.replace("\nreturn", "\n\nreturn")
    told = web.client.post("/api/v1/advice", json={"region": text}).json()["archive"]
    assert told["elsewhere"]["because"].startswith("Measured by this server: the same region, on NVIDIA H200")
    page = web.client.get(f"/regions/{written(web, text)}?tab=evidence").text
    assert "measured by this server before: NVIDIA H200" in page
    assert "not measured by this server" not in page


def test_a_validation_is_no_evidence_for_itself_and_its_answer_can_be_recorded(web: Serving, tmp_path: Path) -> None:
    text = NOBODYS.replace("64", "96")
    store, region = web.state.store, written(web, text)
    made, _ = add_validation(store, name="v", region=text, region_id=region, request={"region": text}, cap=99)
    eager = [c for c in SHIPPED["candidates"] if c["name"] == "eager"]
    held = {k: v for k, v in SHIPPED.items() if k not in ("schema", "name", "region")}
    body = {**held, "candidates": eager, "outcome": "unmeasured", "best": "eager"}
    assert store.finish_validation(**run(store, "validate"), validation=body)
    answer = web.client.get(f"/api/v1/validations/{made}").json()
    assert (answer["archive"] or {}).get("id") != made
    assert "before: NVIDIA H200" not in web.client.get(f"/regions/{region}?tab=evidence").text
    assert record_store.record(answer, "own", tmp_path).exists()


def test_reuse_answers_what_waits_and_says_what_stands_before_it(tmp_path: Path) -> None:
    with serving(tmp_path, "hang") as web:
        asked = {"region": NOBODYS, "reuse": True}
        first = web.client.post("/api/v1/validations", json=asked)
        again = web.client.post("/api/v1/validations", json=asked)
        assert (first.status_code, again.status_code) == (202, 200)
        assert again.json()["id"] == first.json()["id"]
        assert again.headers["location"] == first.headers["location"]
        other = web.client.post("/api/v1/validations", json={**asked, "candidates": ["eager"]})
        own = web.client.post("/api/v1/validations", json={"region": NOBODYS})
        assert len({a.json()["id"] for a in (first, other, own)}) == 3
        assert (other.status_code, own.status_code) == (202, 202)
        wait_for(lambda: web.client.get(first.headers["location"]).json()["state"] == "running", 20)
        jobs = [web.client.get(a.headers["location"]).json()["ahead"] for a in (first, other, own)]
        assert jobs == [None, 0, 1]
        assert "1 before it" in web.client.get(f"/validations/{own.json()['id']}").text
        assert "next in line" in web.client.get(f"/validations/{other.json()['id']}/progress").text
