"""A server shows the user's records and the shipped ones, and says which of several it shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from app.archive import record_store
from app.jobs.host import HostFacts
from kernels.host import Host
from tests.app.web.conftest import serving
from tests.app.web.views.test_evidence import rendered

SHIPPED = next(s.path for s in record_store.list_record_files() if "swiglu" in s.path.name)


def test_the_users_records_are_served_and_the_hosts_torch_is_preferred(tmp_path: Path) -> None:
    body: dict[str, Any] = json.loads(SHIPPED.read_text())
    own = record_store.record(body | {"software": body["software"] | {"torch": "2.12.0"}}, "mine", tmp_path / "own")
    with serving(tmp_path / "data", archive_dir=tmp_path / "own") as web:
        page = web.client.get(f"/validations/{own.stem}")
        assert page.status_code == 200 and "2.12.0" in page.text
        assert web.client.get(f"/api/v1/validations/{own.stem}").json()["software"]["torch"] == "2.12.0"
        assert web.client.get(f"/api/v1/validations/{SHIPPED.stem}").json()["software"]["torch"] == "2.11.0+cu130"
        assert "mine" in web.client.get("/accuracy").text
        for torch, chosen in (("2.11.0", "2.11.0+cu130"), ("2.12.0", "2.12.0"), (None, "2.12.0")):
            web.state.host = HostFacts()
            if torch is not None:
                web.state.host.probe.set_result(Host(versions={"torch": torch}))
            asked = web.client.post("/api/v1/advice", json={"region": body["region"]})
            told = asked.json()["archive"]["elsewhere"]
            assert told["torch"] == chosen
            assert told["because"].startswith("From elsewhere: the same region, on NVIDIA H200 with torch " + chosen)


def test_the_page_says_which_record_it_shows() -> None:
    nearest_record = record_store.nearest(json.loads(SHIPPED.read_text())["region"].replace("8192", "4096"))
    assert nearest_record is not None
    page = rendered("nearest", nearest=nearest_record, nearest_chart=None, nearest_rows=[])
    assert "at other sizes (2 × the bytes), on NVIDIA H200 with torch 2.11.0+cu130, 2026-11-21." in page
