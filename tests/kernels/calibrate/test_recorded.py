"""The recordings that are shipped hold what they claim to hold."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

import kernels.calibrate
from kernels.calibrate import matrix_programs, memory_programs, model_programs
from kernels.calibrate.points import Point, read_recording
from kernels.calibrate.programs import ALL, FUSED, KINDS, draw
from kernels.codegen.traits_model import GeneratedTraits
from profiler.hardware import DEVICES
from profiler.region.language.text import parse
from profiler.region.model import ITEMSIZE

FOLDER = Path(kernels.calibrate.__file__).parent / "recorded"
FIRST = {*memory_programs.FAMILIES, *matrix_programs.FAMILIES, *FUSED}
"""Families that every recording has; the others came later."""
RECORDINGS = {
    "h100": ("NVIDIA H100 80GB HBM3", 7700),
    "h200": ("NVIDIA H200", 5700),
    "later/h200": ("NVIDIA H200", 12_500),
}
"""`later` has points that the shipped atlases do not have yet (docs/corpus.md)."""


@pytest.fixture(scope="module", params=sorted(RECORDINGS))
def recorded(request: pytest.FixtureRequest) -> tuple[str, list[Point]]:
    name = str(request.param)
    device, at_least = RECORDINGS[name]
    conditions, points = read_recording(FOLDER / f"{name}.jsonl.gz")
    assert conditions["device"] == device
    assert {"torch", "triton", "date", "minutes"} <= set(conditions)
    assert len(points) >= at_least
    return name, points


def test_each_point_is_the_program_of_its_number(recorded: tuple[str, list[Point]]) -> None:
    """A generator that changes makes points of before into points of programs that nobody can draw again."""
    _, points = recorded
    assert [p["number"] for p in points[::7] if p["text"] != draw(p["family"], p["number"])] == []
    known = {family for shares in KINDS.values() for family in shares}
    assert FIRST <= {p["family"] for p in points} <= {*ALL, *model_programs.FAMILIES, *known}


def test_no_time_is_below_what_memory_allows(recorded: tuple[str, list[Point]]) -> None:
    """Inputs beyond L2 that one operation reads whole, at the datasheet's rate: faster is a fault of measuring."""
    name, points = recorded
    device = next(d for d in DEVICES if Path(name).name in d.matches)
    looked_at = 0
    for point in points:
        if point["family"] not in ("softmax", "reduce", "ternary", "loss"):
            continue
        region = parse(point["text"])
        read_bytes = 0
        for item in region.inputs:
            count = ITEMSIZE[item.dtype]
            for size in item.shape:
                count *= int(size)
            read_bytes += count
        if read_bytes > 2 * device.l2_bytes and "nll" not in point["text"]:
            looked_at += 1
            assert point["cold_us"] > 0.95e6 * read_bytes / device.memory_rate, point["text"]
    assert looked_at > 30


def test_what_lies_in_l2_is_no_slower(recorded: tuple[str, list[Point]]) -> None:
    """By more than noise, and in all but a few: or warm and cold are mixed up."""
    _, points = recorded
    slower = sum(p["warm_us"] > 1.15 * p["cold_us"] + 2 for p in points)
    assert slower < 0.03 * len(points)


def test_compiled_programs_have_their_kernels_with_times(recorded: tuple[str, list[Point]]) -> None:
    _, points = recorded
    fused = [p for p in points if p["family"] in FUSED]
    timed = [k for p in fused for k in p["kernels"] if k["times_us"]]
    assert len(timed) > 600
    assert all("@triton.jit" in k["source"] for k in timed)
    assert sum(bool(k["times_us"]) for p in fused for k in p["kernels"]) > 0.95 * sum(len(p["kernels"]) for p in fused)
    assert Counter(p["mode"] for p in fused) == {"compile": len(fused)}


def test_traits_of_generated_kernels_are_those_that_prices_read(recorded: tuple[str, list[Point]]) -> None:
    """Of the H200, where they were measured; each launch has its own times, and takes no less than its bytes do."""
    name, points = recorded
    kernels = [k for p in points if p["mode"] == "generated" for k in p["generated"]]
    assert len(kernels) > (2600 if name == "later/h200" else -1)
    device = next(d for d in DEVICES if Path(name).name in d.matches)
    for kernel in kernels:
        traits = msgspec.convert(kernel["traits"], GeneratedTraits)
        assert kernel["warm_us"] > 0 and kernel["cold_us"] > 0
        if traits.bytes_read > 4 * device.l2_bytes and not traits.placed_bytes:
            assert kernel["cold_us"] > 0.9e6 * traits.bytes_read / device.memory_rate, kernel
