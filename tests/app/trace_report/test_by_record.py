"""A record of the very program on the very device: list, row, region page, API, check and report say one thing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.archive import record_store
from app.check.config import from_mapping
from app.check.run import read
from app.thresholds import DEFAULTS
from app.trace_report.actions.listed import before_us
from app.trace_report.by_record import from_folders
from app.web.views.region.verdict import verdict_section
from app.web.views.report import trace_report
from app.web.views.trace_page import trace_page
from tests.app.trace_report.reports import reported
from tests.app.web.conftest import serving
from tests.profiler.trace.files import TRACES

Json = dict[str, Any]
EAGER = "handrolled_blocks_bf16_eager.json.gz"
FOLDERS = (record_store.FOLDER,)


def stored(name: str) -> Json:
    answer = from_folders(reported(name), FOLDERS)  # type: ignore[arg-type]
    regions = [{**r, "id": f"{n:026d}"} for n, r in enumerate(answer["regions"])]
    return {**answer, "id": "t" * 26, "status": "ready", "regions": regions}


def test_the_action_of_a_recorded_region_saves_what_was_measured_everywhere() -> None:
    trace = stored(EAGER)
    before = {r["key"]: r for r in reported(EAGER)["regions"]}
    measured = [a for a in trace["actions"] if a["evidence"]["kind"] == "measured"]
    assert [a["title"] for a in measured] == ["Call torch.nn.attention.flex_attention for attention by hand"]
    (action,) = measured
    record = record_store.nearest(before[action["region"]]["text"], *FOLDERS, device="NVIDIA H200")
    assert record is not None
    assert action["evidence"]["text"] == f"measured on H200, {record['date']}"
    # The region's time less what the recorded ratio leaves of it, and some launches.
    ratio = next(c for c in record["candidates"] if c["name"] == record["best"])["ratio_to_eager"]["median"]
    region = next(r for r in trace["regions"] if r["key"] == action["region"])
    assert region["advice"]["region_speedup"]["mid"] == pytest.approx(1 / ratio)
    assert action["saves_us"]["mid"] == pytest.approx(region["busy_us_per_step"] * (1 - ratio), rel=0.02)

    page = trace_page(trace)  # type: ignore[arg-type]
    row = next(r for r in (*page["regions"], *page["small"]) if r["key"] == action["region"])
    assert (row["level"], row["saves_us"]) == ("measured", pytest.approx(action["saves_us"]["mid"]))
    own = verdict_section(before[action["region"]], record, trace=trace)  # type: ignore[arg-type]
    assert own is not None and own["step"] is not None and not own["step_predicted"]
    assert own["step"]["mid"] == pytest.approx(before_us(trace) / action["step_time_us"]["mid"])
    assert own["advice"] == region["advice"]
    report = trace_report(trace, written="today")  # type: ignore[arg-type]
    assert action["evidence"]["text"].lower() in report.lower()

    source: Json = {"name": EAGER, "path": str(TRACES / EAGER)}
    checked = read(source, from_mapping({}), DEFAULTS, folders=FOLDERS)  # type: ignore[arg-type]
    kinds = {a["id"]: a["evidence"] for a in checked.body["actions"]}
    assert kinds[action["id"]] == action["evidence"]


def test_a_regions_own_object_says_what_its_trace_says_of_it(tmp_path: Path) -> None:
    with serving(tmp_path) as web:
        body = (TRACES / EAGER).read_bytes()
        told = web.client.post("/api/v1/traces?wait=60", files={"file": (EAGER, body)}).json()
        trace = web.client.get(f"/api/v1/traces/{told['id']}").json()
        recorded = [r for r in trace["regions"] if ((r["advice"] or {}).get("validation") or {}).get("archived")]
        assert recorded
        listed = {r["id"]: r for r in web.client.get("/api/v1/regions?limit=200").json()["items"]}
        for region in trace["regions"]:
            own = web.client.get(f"/api/v1/regions/{region['id']}").json()
            assert own["advice"] == region["advice"]
            assert region["id"] not in listed or listed[region["id"]]["advice"] == region["advice"]
        (first, *_) = recorded
        h200 = web.client.post("/api/v1/advice", json={"region": first["text"], "device": "H200"}).json()
        assert h200["validation"]["archived"] == first["advice"]["validation"]["archived"]
        elsewhere = web.client.get(f"/api/v1/regions/{first['id']}?device=A100").json()
        assert not elsewhere["advice"]["validation"]
