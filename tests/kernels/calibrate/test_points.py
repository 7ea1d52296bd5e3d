"""Points on disk: whole lines count, damage is told."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kernels.calibrate.points import Conditions, Point, append, finished, read, read_recording, write_recording

CONDITIONS = Conditions(device="NVIDIA X", torch="2.11", triton="3.6", date="2026-11-24", minutes=1.0)


def point(number: int, **more: object) -> Point:
    return {"family": "norm", "number": number, "mode": "eager", "text": "x", "cold_us": 3.5, **more}  # type: ignore[typeddict-item]


def test_a_half_written_line_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    append(path, point(1))
    append(path, point(2))
    with path.open("a") as file:
        file.write(json.dumps(point(3))[:20])
    assert [p["number"] for p in read(path)] == [1, 2]
    append(path, point(4))
    assert [p["number"] for p in read(path)] == [1, 2, 4], "what comes behind it is whole"
    assert list(read(tmp_path / "none.jsonl")) == []


def test_what_failed_is_left_out_and_what_was_measured_twice_is_there_once() -> None:
    several = [
        point(2),
        point(1, failed="not finished"),
        point(1),
        point(3, failed="out of memory"),
        point(2, cold_us=4.0),
    ]
    assert [(p["number"], p["cold_us"]) for p in finished(several)] == [(1, 3.5), (2, 4.0)]


def test_a_recording_is_read_as_it_was_written_and_has_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a.gz", tmp_path / "b.gz"
    write_recording(first, CONDITIONS, [point(2), point(1)])
    write_recording(second, CONDITIONS, [point(1), point(2), point(3, failed="no")])
    assert first.read_bytes() == second.read_bytes()
    assert read_recording(first) == (CONDITIONS, [point(1), point(2)])


@pytest.mark.parametrize(
    "damage", [b"", b"no gzip", gzip.compress(b"", mtime=0), gzip.compress(b"{}\n{", mtime=0), "cut"]
)
def test_a_damaged_recording_is_told_with_its_name(tmp_path: Path, damage: bytes | str) -> None:
    path = tmp_path / "card.jsonl.gz"
    write_recording(path, CONDITIONS, [point(n) for n in range(50)])
    path.write_bytes(path.read_bytes()[:40] if isinstance(damage, str) else damage)
    with pytest.raises(ValueError, match=r"card.jsonl.gz holds no whole recording"):
        read_recording(path)
