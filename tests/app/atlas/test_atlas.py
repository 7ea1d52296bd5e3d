"""The atlas file: what is shipped is what was recorded, and what is damaged is refused with its reason."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.atlas import fit, shipped
from app.atlas.atlas import Atlas, AtlasError, read, write
from app.atlas.fit import LEAST_POINTS, fit_atlas
from app.atlas.item import Item
from app.atlas.table import as_table
from kernels.calibrate import points
from profiler.hardware import DEVICES, find_device

RECORDED = Path(points.__file__).parent / "recorded"
NAMES = {"NVIDIA H200": "h200", "NVIDIA H100": "h100"}
H200, H100 = find_device("H200"), find_device("H100")


@pytest.fixture(scope="module")
def sorts() -> Atlas:
    """Of sorting alone, a small group, with the other device's points."""
    conditions, measured = points.read_recording(RECORDED / "h200.jsonl.gz")
    _, others = points.read_recording(RECORDED / "h100.jsonl.gz")
    assert H200 is not None and H100 is not None
    return fit_atlas(conditions, sorting(measured), H200, [(H100, sorting(others))])


def sorting(measured: list[points.Point]) -> list[points.Point]:
    return [p for p in measured if p["mode"] == "eager" and re.search(r"sort\(|topk|median", p["text"])]


def test_the_shipped_file_is_what_the_recording_makes(sorts: Atlas) -> None:
    assert H200 is not None
    basis = shipped.basis_of(H200)
    assert basis is not None and basis.own
    known, again = basis.atlas.groups["eager sort"], sorts.groups["eager sort"]
    assert known.interpolation.names == again.interpolation.names
    assert known.held_out.points == again.held_out.points >= 10
    assert np.allclose(known.interpolation.points, again.interpolation.points, rtol=1e-4)
    assert np.allclose(known.interpolation.cold, again.interpolation.cold, rtol=1e-3, atol=1e-4)
    assert np.allclose(known.interpolation.lengths, again.interpolation.lengths, rtol=0.2)  # another machine's sums


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_atlas_says_what_it_was_measured_on_and_how_far_off_it_is(name: str) -> None:
    device = find_device(name)
    assert device is not None
    basis = shipped.basis_of(device)
    assert basis is not None and basis.own
    assert find_device(basis.atlas.device) is device
    conditions, _ = points.read_recording(RECORDED / f"{NAMES[name]}.jsonl.gz")
    assert (basis.atlas.torch, basis.atlas.date) == (conditions["torch"], conditions["date"])
    held = [g.held_out for g in basis.atlas.groups.values()]
    assert len(held) >= 14
    tested = sum(h.points for h in held)
    inside = sum(h.points * h.inside_80 for h in held) / tested
    assert tested >= 900
    assert 0.75 <= inside <= 0.85  # an 80 % interval
    assert all(len(g.interpolation.cold) >= LEAST_POINTS for g in basis.atlas.groups.values())


def test_a_device_that_nobody_measured_is_priced_by_another_and_that_is_told() -> None:
    device = next(d for d in DEVICES if d.name not in NAMES)
    basis = shipped.basis_of(device)
    assert basis is not None
    assert not basis.own and basis.atlas.device == "NVIDIA H200"


@pytest.mark.parametrize(("name", "other"), [("NVIDIA H100", "NVIDIA H200"), ("NVIDIA H200", "NVIDIA H100")])
def test_a_device_with_its_own_atlas_can_be_priced_as_if_nobody_had_measured_it(name: str, other: str) -> None:
    device = find_device(name)
    assert device is not None
    scaled = shipped.basis_of(device, scaled=True)
    assert scaled is not None and not scaled.own
    assert find_device(scaled.atlas.device) == find_device(other)
    nobodys = next(d for d in DEVICES if d.name not in NAMES)
    assert shipped.basis_of(nobodys, scaled=True) == shipped.basis_of(nobodys)


def test_on_another_device_the_floor_is_scaled() -> None:
    slower = find_device("L4")
    assert H200 is not None and slower is not None
    basis = shipped.basis_of(H200)
    assert basis is not None
    numbers = {n: 20.0 for n in basis.atlas.groups["generated pointwise"].interpolation.names if "=" not in n}
    item = Item("generated pointwise", 1e9, numbers)
    here, there = basis.atlas.price(item, H200), basis.atlas.price(item, slower)
    assert here is not None and there is not None
    assert there.cold_us / here.cold_us == pytest.approx(item.floor_us(slower) / item.floor_us(H200), rel=1e-5)


def test_nothing_is_said_of_a_group_that_was_not_measured(sorts: Atlas) -> None:
    assert H200 is not None
    assert sorts.price(Item("eager fft", 1e6), H200) is None


def test_what_is_written_is_read_again_and_the_same_each_time(tmp_path: Path, sorts: Atlas) -> None:
    write(tmp_path / "one.json.gz", sorts)
    write(tmp_path / "two.json.gz", read(tmp_path / "one.json.gz"))
    assert (tmp_path / "one.json.gz").read_bytes() == (tmp_path / "two.json.gz").read_bytes()


def test_clocks_and_other_processes_are_kept_and_files_without_them_are_read(tmp_path: Path, sorts: Atlas) -> None:
    assert (sorts.sm_clock_mhz, sorts.memory_clock_mhz, sorts.others) == (1980.0, 3201.0, 0)
    write(tmp_path / "without.json.gz", replace(sorts, sm_clock_mhz=None, memory_clock_mhz=None, others=None))
    assert "clock" not in gzip.decompress((tmp_path / "without.json.gz").read_bytes()).decode()
    told = replace(sorts, sm_clock_mhz=1980.0, memory_clock_mhz=2619.5, others=2)
    write(tmp_path / "with.json.gz", told)
    again = read(tmp_path / "with.json.gz")
    assert (again.sm_clock_mhz, again.memory_clock_mhz, again.others) == (1980.0, 2619.5, 2)
    assert "processors at 1980 MHz and memory at 2620 MHz, 2 other processes on the GPU" in as_table(again, 1)


def test_a_calibrations_conditions_come_into_its_atlas() -> None:
    conditions, measured = points.read_recording(RECORDED / "h200.jsonl.gz")
    assert H200 is not None
    told = points.Conditions(**{**conditions, "sm_clock_mhz": 1755.0, "memory_clock_mhz": 3201.0, "others": 1})  # type: ignore[typeddict-item]
    atlas = fit_atlas(told, [p for p in measured if p["family"] == "triangle"], H200)
    assert (atlas.sm_clock_mhz, atlas.memory_clock_mhz, atlas.others) == (1755.0, 3201.0, 1)


def test_a_group_of_more_points_than_a_file_may_have_is_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A calibration of an hour has them; a file with all of them would be refused."""
    monkeypatch.setattr(fit, "MOST_POINTS", 60)
    conditions, measured = points.read_recording(RECORDED / "h200.jsonl.gz")
    assert H200 is not None
    atlas = fit_atlas(conditions, [p for p in measured if p["family"] == "order"], H200)
    assert len(atlas.groups["eager sort"].interpolation.cold) == 60


def _nothing(body: dict[str, Any]) -> None:
    body.clear()


def _other_schema(body: dict[str, Any]) -> None:
    body["schema"] = 99


def _not_finite(body: dict[str, Any]) -> None:
    body["groups"]["eager sort"]["cold"][3] = 1e999


def _ragged(body: dict[str, Any]) -> None:
    body["groups"]["eager sort"]["points"][2].pop()


def _short(body: dict[str, Any]) -> None:
    body["groups"]["eager sort"]["cold"].pop()


def _no_length(body: dict[str, Any]) -> None:
    body["groups"]["eager sort"]["lengths"][0] = 0


def _no_group(body: dict[str, Any]) -> None:
    body["groups"] = [1, 2]


def _control_characters(body: dict[str, Any]) -> None:
    body["device"] = "NVIDIA H200\x1b[2J"


def _no_clock(body: dict[str, Any]) -> None:
    body["sm_clock_mhz"] = "fast"


def _negative_others(body: dict[str, Any]) -> None:
    body["others"] = -1


def _long_name(body: dict[str, Any]) -> None:
    body["device"] = "x" * 1000


@pytest.mark.parametrize(
    "damage",
    [
        _nothing, _other_schema, _not_finite, _ragged, _short, _no_length, _no_group, _long_name, _control_characters,
        _no_clock, _negative_others,
    ],
)  # fmt: skip
def test_a_foreign_or_damaged_body_is_refused_by_its_name(tmp_path: Path, sorts: Atlas, damage: Any) -> None:
    path = tmp_path / "mine.json.gz"
    write(path, sorts)
    body = json.loads(gzip.decompress(path.read_bytes()))
    damage(body)
    path.write_bytes(gzip.compress(json.dumps(body).encode()))
    with pytest.raises(AtlasError, match=r"mine\.json\.gz"):
        read(path)


@pytest.mark.parametrize(
    "content", [b"", b"no gzip", gzip.compress(b"{}", mtime=0)[:-4], gzip.compress(b"[1, 2", mtime=0), b"\x1f\x8b"]
)
def test_bytes_that_are_no_atlas_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mine.json.gz"
    path.write_bytes(content)
    with pytest.raises(AtlasError, match=r"mine\.json\.gz"):
        read(path)


def test_an_expanding_file_is_refused_before_it_fills_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.atlas.atlas.MOST_BYTES", 1000)
    path = tmp_path / "mine.json.gz"
    path.write_bytes(gzip.compress(b" " * 100_000))
    with pytest.raises(AtlasError, match="larger than an atlas"):
        read(path)


def test_a_damaged_shipped_file_leaves_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    h100 = find_device("H100")
    assert h100 is not None
    for file in shipped.SHIPPED.glob("*.json.gz"):
        (tmp_path / file.name).write_bytes(b"no atlas" if "h100" in file.name else file.read_bytes())
    monkeypatch.setattr(shipped, "SHIPPED", tmp_path)
    for cache in (shipped.basis_on, shipped._read):
        cache.cache_clear()
    try:
        basis = shipped.basis_of(h100)
        assert basis is not None and not basis.own
        assert "nvidia-h100.json.gz" in caplog.text
    finally:
        for cache in (shipped.basis_on, shipped._read):
            cache.cache_clear()
