"""A region on other devices: ceilings scale it, architectures change its calls, ranges are wider, the trace's time is
carried over; the same in the API, on the page and in the shell."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

import profiler.hardware
from app.analysis import other_devices, service
from app.analysis.analyze import AnalyzedRegion
from app.analysis.device_host import as_host
from app.analysis.other_devices import carry_workload, move_to_device, side_by_side
from app.cli import main
from app.trace_report.report import report
from kernels.host import Host
from profiler.hardware import DEVICES, Device, find_device
from profiler.region.model import Binding, Workload
from tests.app.web.conftest import serving
from tests.profiler.trace.files import TRACES

Json = dict[str, Any]

CHAIN = "x: f32[4096, 8192]\ny = relu(x * 2.0 + 1.0)\nreturn y\n"
ATTENTION = """q: bf16[4, 16, 2048, 128]
k: bf16[4, 16, 2048, 128]
v: bf16[4, 16, 2048, 128]
s = q @ k.transpose(-2, -1) / 11.3137085
y = softmax(s, dim=-1) @ v
return y
"""


def device(name: str) -> Device:
    gpu = find_device(name)
    assert gpu is not None
    return gpu


def prepared(text: str, **more: Any) -> AnalyzedRegion:
    return service.prepare_region(text, device="H200", share_of_step=0.2, **more)


def test_every_device_of_the_table_has_a_row_and_one_is_here() -> None:
    rows = side_by_side(prepared(CHAIN))
    assert [r["device"] for r in rows] == [d.name for d in DEVICES]
    assert [r["device"] for r in rows if r["here"]] == ["NVIDIA H200"]
    for row in rows:
        assert row["step_speedup"]["mid"] <= 1 / (1 - 0.2) + 1e-9
        assert row["region_speedup"]["low"] <= row["region_speedup"]["mid"] <= row["region_speedup"]["high"]


def test_a_row_of_the_table_is_all_that_a_device_needs_for_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    added = replace(device("A100"), name="NVIDIA A1000", matches=("a1000",), memory_rate=9e12)
    monkeypatch.setattr(profiler.hardware, "DEVICES", (added, *DEVICES))
    monkeypatch.setattr(other_devices, "DEVICES", (added, *DEVICES))
    asked = service.prepare_region(CHAIN, device="NVIDIA A1000 80GB", share_of_step=0.2)
    rows = {row["device"]: row for row in side_by_side(asked)}
    assert rows["NVIDIA A1000"]["here"]
    assert rows["NVIDIA A1000"]["time_us"]["mid"] < rows["NVIDIA A100"]["time_us"]["mid"]


def test_on_a_device_that_is_named_nothing_says_that_none_was() -> None:
    unnamed = service.prepare_region(CHAIN, share_of_step=0.2)
    assert any("no device was named" in n for n in service.decide_region(unnamed)["advice"]["notes"])
    for name in ("A100", "H200"):  # another one, and the very one that it was estimated for
        there = service.on_device(unnamed, name)["advice"]
        assert (there["device"], [n for n in there["notes"] if "no device was named" in n]) == (f"NVIDIA {name}", [])


def test_a_chain_bound_by_memory_goes_by_each_devices_own_rate() -> None:
    by_name = {r["device"]: r for r in side_by_side(prepared(CHAIN))}
    one, other = by_name["NVIDIA H200"], by_name["NVIDIA L4"]
    rates = device("H200").copy_rate / device("L4").copy_rate
    assert other["now_us"]["mid"] / one["now_us"]["mid"] == pytest.approx(rates, rel=0.1)
    assert other["floor_us"] / one["floor_us"] == pytest.approx(rates, rel=0.01)


def test_ranges_are_wider_where_nothing_was_measured_and_the_row_says_so() -> None:
    rows = side_by_side(prepared(CHAIN))
    fitted = [r for r in rows if r["fitted"]]
    assert {r["device"] for r in fitted} == {"NVIDIA H200", "NVIDIA H100"}

    def width(row: Json) -> float:
        return float(row["now_us"]["high"] / row["now_us"]["low"])

    for row in rows:
        if row["fitted"]:
            assert "by this device's own atlas, measured on 2026-" in row["because"]
            continue
        assert width(row) > 1.01 * min(width(f) for f in fitted), row["device"]
        assert "what NVIDIA H200 was measured to do" in row["because"]
        assert "the range is wider" in row["because"]
        assert row["device"] in row["because"]


def test_the_architecture_decides_which_calls_there_are() -> None:
    asked = prepared(ATTENTION)

    def calls(name: str) -> set[str]:
        return {c.candidate.rpartition(".")[2] for c in move_to_device(asked, device(name)).facts.covers if c.covers}

    assert {"flash", "cudnn"} <= calls("A100")
    assert not {"flash", "cudnn"} & calls("V100")  # from sm_80 on
    assert not {"flash", "cudnn"} & calls("MI300X")  # conditions on CUDA's capabilities do not hold there
    assert as_host(Host("NVIDIA H200", (9, 0)), device("B200")).capability == (10, 0)


def test_an_observed_time_is_carried_over_and_keeps_its_share() -> None:
    asked = prepared(CHAIN)
    seen = Workload((Binding((), 2.0, 500.0),), step_time_us=5000.0, share_of_step=0.1, observed=True)
    here = replace(asked, workload=seen)
    there = carry_workload(here, replace(here, device=device("L4")))
    assert there.share_of_step == 0.1
    ratio = (there.bindings[0].time_us_per_step or 0.0) / 500.0
    assert ratio == pytest.approx(device("H200").copy_rate / device("L4").copy_rate, rel=0.1)
    by_name = {r["device"]: r for r in side_by_side(here)}
    assert by_name["NVIDIA H200"]["now_us"]["mid"] == pytest.approx(250.0)
    there_us = by_name["NVIDIA L4"]["now_us"]
    assert there_us["mid"] == pytest.approx(250.0 * ratio)
    assert there_us["low"] < there_us["mid"] < there_us["high"]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serving(tmp_path_factory.mktemp("devices")) as server:
        server.client.headers["Accept"] = "text/html"
        yield server.client


@pytest.fixture(scope="module")
def region(client: httpx.Client) -> str:
    answer = client.post("/regions", data={"text": CHAIN, "share_percent": "20", "device": "H200"})
    assert answer.status_code == 303
    return answer.headers["location"].rsplit("/", 1)[1]


def test_the_api_gives_all_devices_and_the_region_on_one(client: httpx.Client, region: str) -> None:
    items = client.get(f"/api/v1/regions/{region}/devices").json()["items"]
    assert [i["device"] for i in items] == [d.name for d in DEVICES]
    assert client.get(f"/regions/{region}/devices.json").json()["items"] == items
    own = client.get(f"/api/v1/regions/{region}").json()
    there = client.get(f"/api/v1/regions/{region}", params={"device": "A100"}).json()
    assert (own["advice"]["device"], there["advice"]["device"]) == ("NVIDIA H200", "NVIDIA A100")
    assert there["cost"]["device"] == "NVIDIA A100"
    row = next(i for i in items if i["device"] == "NVIDIA A100")
    assert there["advice"]["region_speedup"] == row["region_speedup"]
    assert client.get(f"/api/v1/regions/{region}").json() == own  # nothing of it was kept


def test_an_unknown_device_or_region_is_a_problem_in_words(client: httpx.Client, region: str) -> None:
    unknown = client.get(f"/api/v1/regions/{region}", params={"device": "abacus"})
    assert (unknown.status_code, unknown.json()["code"]) == (422, "device-unknown")
    assert client.get("/api/v1/regions/01J00000000000000000000000/devices").status_code == 404


def test_the_page_works_as_a_plain_form_and_as_a_part(client: httpx.Client, region: str) -> None:
    page = client.get(f"/regions/{region}?tab=devices").text
    assert f'action="/regions/{region}/devices"' in page
    whole = client.get(f"/regions/{region}/devices", params={"device": "NVIDIA A100"}).text
    assert "<html" in whole
    assert "predicted for NVIDIA A100" in " ".join(re.sub(r"<[^>]+>", " ", whole).split())
    part = client.get(f"/regions/{region}/devices", headers={"HX-Request": "true"}).text
    assert "<html" not in part
    for known in DEVICES:
        assert re.search(rf'<th scope="row">{known.name}\b', part)
    assert "No atlas of" in part
    assert "ranges are wider" in part


def test_the_shell_prints_the_apis_rows(
    tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "region.txt"
    file.write_text(CHAIN)
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["advise", str(file), "--device", "all", "--share", "0.2", "--json"]) == 0
    assert [r["device"] for r in json.loads(capsys.readouterr().out)["items"]] == [d.name for d in DEVICES]
    assert main(["advise", str(file), "--device", "all"]) == 0
    text = capsys.readouterr().out
    assert "NVIDIA L40S" in text
    assert "scaled by the datasheet ceilings" in text


def test_a_trace_on_another_device_keeps_its_shares_and_says_no_step_time() -> None:
    name = "handrolled_blocks_bf16_eager.json.gz"
    here, there = report(TRACES / name, name), report(TRACES / name, name, what_if="L40S")
    assert (here["estimates_for"], there["estimates_for"]) == ("NVIDIA H200", "NVIDIA L40S")
    assert [r["share_of_step"] for r in there["regions"]] == [r["share_of_step"] for r in here["regions"]]
    assert there["gain"] is None
    assert any("as recorded" in n["message"] for n in there["notes"])
    for own, moved_to in zip(here["regions"], there["regions"], strict=True):
        assert moved_to["advice"]["device"] == "NVIDIA L40S"
        assert moved_to["advice"]["floor_us"] is None or moved_to["advice"]["floor_us"] > own["advice"]["floor_us"]
