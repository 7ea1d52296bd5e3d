"""A user's own atlas: it counts before the shipped one, at once; what is refused is named and changes nothing."""

from __future__ import annotations

import gzip
import json
import logging
import math
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.analysis import service
from app.atlas import shipped, user_atlas
from app.atlas.atlas import Atlas, AtlasError, file_name, read, write
from app.atlas.shipped import SHIPPED, Launched, basis_of, prices_of
from app.estimate import predict
from profiler.hardware import Device, find_device
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse

REGION = "x: bf16[8192, 4096]\ny = gelu(x)\nreturn y\n"
SLOWER = 3.0


def device(name: str) -> Device:
    known = find_device(name)
    assert known is not None
    return known


H200 = device("H200")
FILE = file_name(H200)


def slower(atlas: Atlas, times: float = SLOWER) -> Atlas:
    """The same, measured on a card that takes so many times as long."""
    groups = {}
    for name, group in atlas.groups.items():
        known, more = group.interpolation, math.log(times)
        again = replace(known, cold=known.cold + more, warm=known.warm + more)
        groups[name] = replace(group, interpolation=again)
    return replace(atlas, groups=groups, date="2026-11-25")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with user_atlas.using_folder(tmp_path):
        yield tmp_path
    user_atlas.look_again()


@pytest.fixture(scope="module")
def users() -> Atlas:
    return slower(read(SHIPPED / FILE))


def put(path: Path, atlas: Atlas) -> None:
    write(path, atlas)
    user_atlas.look_again()


def eager_us(name: str = "H200") -> float:
    """What advice predicts of the region as it runs now."""
    advice = service.decide_region(service.prepare_region(REGION, device=name))["advice"]
    times = next(a["time_us"] for a in advice["alternatives"] if a["tool"] == "skip")
    assert times is not None
    return float(times["mid"])


def notes(name: str = "H200") -> list[str]:
    return list(service.decide_region(service.prepare_region(REGION, device=name))["advice"]["notes"])


def test_it_changes_the_prediction_at_once_and_so_does_its_end(folder: Path, users: Atlas) -> None:
    before = eager_us()
    put(folder / FILE, users)
    basis = basis_of(H200)
    assert basis is not None and basis.users and basis.own and basis.atlas.date == "2026-11-25"
    assert eager_us() > 1.5 * before
    (folder / FILE).unlink()
    user_atlas.look_again()
    assert eager_us() == before
    basis = basis_of(H200)
    assert basis is not None and not basis.users


def test_prices_are_not_those_of_a_file_that_was_replaced(folder: Path, users: Atlas) -> None:
    launched = Launched(tuple(lower(parse(REGION)).operations))
    put(folder / FILE, users)
    (one, _), *_ = prices_of(launched, H200).values()
    put(folder / FILE, slower(users, 2.0))
    (other, _), *_ = prices_of(launched, H200).values()
    assert other.cold_us == pytest.approx(2 * one.cold_us, rel=1e-4)


def test_a_running_process_sees_a_new_file_within_seconds_and_seldom_looks(
    folder: Path, users: Atlas, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Path] = []
    state = user_atlas._state
    monkeypatch.setattr(user_atlas, "_state", lambda path: (looks.append(path), state(path))[1])
    monkeypatch.setattr(user_atlas, "LOOK_EVERY_S", 0.5)
    for _ in range(1000):
        basis_of(H200)
    assert len(looks) <= 2
    write(folder / FILE, users)
    end = time.monotonic() + 30
    while not (basis := basis_of(H200)) or not basis.users:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_device_that_nobody_shipped_gets_its_own(folder: Path, users: Atlas) -> None:
    a100 = device("A100")
    put(folder / file_name(a100), replace(users, device="NVIDIA A100-SXM4-80GB"))
    basis = basis_of(a100)
    assert basis is not None and basis.own and basis.users
    rows = {row["device"]: row["because"] for row in service.on_devices(service.prepare_region(REGION, device="H200"))}
    assert rows["NVIDIA A100"] == "by your own atlas of this device, measured on 2026-11-25"
    assert rows["NVIDIA H100"].startswith("by this device's own atlas, measured on")


def _damaged(path: Path, users: Atlas) -> str:
    write(path, users)
    path.write_bytes(path.read_bytes()[:-2000])
    return "damaged"


def _no_atlas(path: Path, users: Atlas) -> str:
    path.write_bytes(gzip.compress(b'{"schema": 2, "device": "NVIDIA H200"}'))
    return "no whole atlas"


def _foreign(path: Path, users: Atlas) -> str:
    write(path, replace(users, device="NVIDIA H100 80GB HBM3"))
    return "is of NVIDIA H100 80GB HBM3, not of the NVIDIA H200 that its name says"


def _unknown(path: Path, users: Atlas) -> str:
    write(path, replace(users, device="NVIDIA X1"))
    return "NVIDIA X1, which is not in the table"


def _bomb(path: Path, users: Atlas) -> str:
    path.write_bytes(gzip.compress(b" " * (65 * 2**20), 1))
    return "larger than an atlas can be"


def _huge(path: Path, users: Atlas) -> str:
    with path.open("wb") as file:
        file.truncate(10 * 2**30)
    return "larger than an atlas can be"


def _folder(path: Path, users: Atlas) -> str:
    path.mkdir()
    return "is no file"


def _pipe(path: Path, users: Atlas) -> str:
    os.mkfifo(path)
    return "is no file"


@pytest.mark.parametrize("make", [_damaged, _no_atlas, _foreign, _unknown, _bomb, _huge, _folder, _pipe])
def test_what_is_no_atlas_of_the_device_is_refused_by_name_and_the_shipped_one_is_used(
    folder: Path, users: Atlas, caplog: pytest.LogCaptureFixture, make: object
) -> None:
    before = eager_us()
    assert callable(make)
    why = make(folder / FILE, users)
    user_atlas.look_again()
    with caplog.at_level(logging.WARNING):
        basis = basis_of(H200)
        user_atlas.look_again()
        basis_of(H200)
    assert basis is not None and basis.own and not basis.users
    assert basis.refused.startswith(FILE) and why in basis.refused
    assert sum(FILE in record.getMessage() for record in caplog.records) == 1, "said once, not at each look"
    assert eager_us() == before
    told = [note for note in notes() if FILE in note]
    assert len(told) == 1 and "this device's shipped one" in told[0]


def test_a_shared_gpu_is_told_to_whoever_reads_a_prediction(folder: Path, users: Atlas) -> None:
    put(folder / FILE, replace(users, others=2))
    assert [note for note in notes() if "2 other processes were on its GPU" in note]
    put(folder / FILE, replace(users, others=0))
    assert not [note for note in notes() if "other process" in note]


def test_a_refused_atlas_of_a_device_without_a_shipped_one_leaves_the_references(folder: Path) -> None:
    a100 = device("A100")
    (folder / file_name(a100)).write_bytes(b"no atlas")
    user_atlas.look_again()
    basis = basis_of(a100)
    assert basis is not None and not basis.own
    assert "that of NVIDIA H200 instead" in basis.notes[0]
    row = next(r for r in service.on_devices(service.prepare_region(REGION)) if r["device"] == a100.name)
    assert "no atlas of this device" in row["because"] and file_name(a100) in row["because"]


def test_the_folder_is_the_settings(tmp_path: Path) -> None:
    from app.settings import Settings

    assert user_atlas.folder_of({}) == Path(".data/atlas")
    assert user_atlas.folder_of({"TRITONWORTHY_DATA_DIR": "/d"}) == Path("/d/atlas")
    assert user_atlas.folder_of({"TRITONWORTHY_DATA_DIR": "/d", user_atlas.VARIABLE: "/a"}) == Path("/a")
    assert user_atlas.folder_of({user_atlas.VARIABLE: ""}) == Path(".data/atlas")
    assert Settings(data_dir=tmp_path).atlases_dir == tmp_path / "atlas"
    assert Settings(data_dir=tmp_path, atlas_dir=Path("mine")).atlases_dir == Path("mine").absolute()


def test_a_folders_state_changes_with_each_of_its_files(tmp_path: Path, users: Atlas) -> None:
    states = [user_atlas.state_of(tmp_path / "none"), user_atlas.state_of(tmp_path)]
    assert len(set(states)) == 1
    for number in range(3):
        write(tmp_path / FILE, replace(users, others=number))
        states.append(user_atlas.state_of(tmp_path))
    (tmp_path / FILE).unlink()
    states.append(user_atlas.state_of(tmp_path))
    assert len(set(states)) == 4 and states[-1] == states[0]


def test_published_figures_rest_on_the_shipped_atlases(tmp_path: Path, users: Atlas) -> None:
    with user_atlas.using_folder(tmp_path):
        put(tmp_path / FILE, users)
        with user_atlas.using_folder(None):
            basis = basis_of(H200)
            assert basis is not None and not basis.users
        user_atlas.look_again()
        again = basis_of(H200)
        assert again is not None and again.users


def test_warm_reads_the_users_as_well(folder: Path, users: Atlas) -> None:
    put(folder / FILE, users)
    shipped.warm()
    basis = basis_of(H200)
    assert basis is not None and basis.users
    assert all("_placed" in vars(group.interpolation) for group in basis.atlas.groups.values())


def test_check_says_what_a_file_is_or_why_it_is_refused(tmp_path: Path, users: Atlas) -> None:
    write(tmp_path / "any.json.gz", users)
    assert user_atlas.check(tmp_path / "any.json.gz").device == "NVIDIA H200"
    (tmp_path / "any.json.gz").write_bytes(json.dumps({}).encode())
    with pytest.raises(AtlasError, match=r"any\.json\.gz"):
        user_atlas.check(tmp_path / "any.json.gz")
    assert [u.refused for u in user_atlas.all_in(tmp_path)] == ["any.json.gz is named as no device of the table"]


def test_predictions_of_other_devices_stay(folder: Path, users: Atlas) -> None:
    prepared = service.prepare_region(REGION, device="H100")
    one = predict.eager(prepared.facts, prepared.device)
    put(folder / FILE, users)
    other = predict.eager(prepared.facts, prepared.device)
    assert one is not None and other is not None and one.time_us == other.time_us
