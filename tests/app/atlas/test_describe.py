"""What a measured point was, read back from its numbers, against the recording that the atlas was made of; and what the
numbers of an item say in words."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from app.atlas.atlas import Atlas
from app.atlas.describe import describe, measured_point, point_item, reasons, size
from app.atlas.fit import EVENTS_US, FLUSHED_US, LEAST_US, Measured, items_of
from app.atlas.item import Item
from app.atlas.operation_items import operation_item
from app.atlas.shipped import basis_of
from kernels.calibrate import points
from profiler.hardware import Device, find_device
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse

RECORDED = Path(points.__file__).parent / "recorded"


def device(name: str) -> Device:
    known = find_device(name)
    assert known is not None
    return known


def atlas(name: str = "H200") -> Atlas:
    basis = basis_of(device(name))
    assert basis is not None and basis.own
    return basis.atlas


def item(text: str) -> Item:
    operation = next(o for o in lower(parse(text)).operations if o.kind not in ("view", "constant"))
    described = operation_item(operation)
    assert described is not None
    return described


@pytest.fixture(scope="module")
def some() -> list[Measured]:
    """Every fiftieth program of the recording."""
    return items_of(points.read_recording(RECORDED / "h200.jsonl.gz")[1][::50], device("H200"))


def test_a_program_that_was_measured_is_its_own_nearest_point_with_its_recorded_time(some: list[Measured]) -> None:
    known, off, groups = atlas(), [], set()
    for one in some:
        group = known.groups.get(one.item.group)
        if group is None:
            continue
        estimate = group.interpolation.at(one.item.numbers)
        assert estimate.correlation > 0.999
        point = measured_point(known, one.item.group, estimate.nearest)
        off.append(abs(point.time_us / one.cold_us - 1))
        groups.add(one.item.group)
    assert len(off) >= 100 and len(groups) >= 12
    # A few programs were drawn twice, and their times are not the same.
    assert sum(error < 0.005 for error in off) >= 0.95 * len(off)


def test_a_points_item_is_the_programs_own(some: list[Measured]) -> None:
    known = atlas()
    for one in some:
        if one.item.group not in known.groups:
            continue
        nearest = known.groups[one.item.group].interpolation.at(one.item.numbers).nearest
        again = point_item(known, one.item.group, nearest)
        assert again.bytes_moved == pytest.approx(one.item.bytes_moved, rel=1e-3)
        assert again.flops == pytest.approx(one.item.flops, rel=3e-3)
        assert again.dtype == one.item.dtype or not one.item.flops


def test_a_time_is_without_what_the_events_add() -> None:
    """By a program of the recording whose point can be known by its size alone."""
    known = atlas()
    recorded = points.read_recording(RECORDED / "h200.jsonl.gz")[1]
    program = next(p for p in recorded if p["mode"] == "eager" and p["family"] == "order")
    (one,) = items_of([program], device("H200"))
    point = measured_point(known, "eager sort", known.groups["eager sort"].interpolation.at(one.item.numbers).nearest)
    added_us = program["events_us"] - FLUSHED_US if "events_us" in program else EVENTS_US
    assert point.time_us == pytest.approx(max(LEAST_US, program["cold_us"] - added_us), rel=0.005)


@pytest.mark.parametrize("name", ["H200", "H100"])
def test_every_point_of_a_shipped_atlas_is_described_with_a_size_and_a_time(name: str) -> None:
    known = atlas(name)
    for group, members in known.groups.items():
        for number in range(0, len(members.interpolation.cold), 25):
            point = measured_point(known, group, number)
            assert point.time_us > 0 and math.isfinite(point.time_us)
            assert re.search(r": [\d,.]+ ([kMGTP]?B|[kMGTP]?FLOP)$", point.description), (group, point.description)
            assert re.match(r"[a-z]", point.description), (group, point.description)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x: f32[4096, 1024]\nreturn x.sum(0)\n", ("1,024 rows of 4,096", "strided by 4.10 kB")),
        ("x: bf16[4096, 1024]\nreturn x.sum(1)\n", ("4,096 rows of 1,024",)),
        ("x: f32[12, 1000000]\nreturn softmax(x, dim=-1)\n", ("12 rows of 1.00 million", "few rows")),
        ("x: f32[1024, 512]\nb: f32[512]\nreturn x + b\n", ("broadcast",)),
        ("x: f32[1024, 512]\nreturn relu(x)\n", ()),
        ("x: f32[512, 1024]\nreturn x.t().contiguous()\n", ("read or written out of order",)),
        ("x: f32[512, 1024]\nreturn relu(x.t())\n", ()),
        (
            "x: bf16[256, 512]\nw: bf16[512, 257]\nreturn x @ w\n",
            ("256 × 257 × 512", "only 6 output tiles", "rows begin off multiples of 16 bytes"),
        ),
        (
            "t: f32[50257, 768]\ni: i64[4096]\nreturn F.embedding(i, t)\n",
            ("4,096 places, rows of 3.07 kB",),
        ),
    ],
)  # fmt: skip
def test_what_sets_a_time_is_said_by_the_programs_own_numbers(text: str, told: tuple[str, ...]) -> None:
    assert reasons(item(text)) == told


def test_a_description_names_the_operation_its_type_and_its_work() -> None:
    assert describe(item("x: bf16[4096, 1024]\nreturn x.sum(1)\n")).startswith("sum of bf16, 4,096 rows of 1,024: 8.4")
    product = describe(item("x: bf16[512, 1024]\nw: bf16[1024, 256]\nreturn x @ w\n"))
    assert product == "mm of bf16, 512 × 256 × 1,024, only 8 output tiles: 268 MFLOP"


@pytest.mark.parametrize("exact", [1, 7, 128, 12288, 50257, 65536, 1_000_000])
def test_a_size_comes_back_exactly_and_from_five_figures_of_its_logarithm_as_near_as_they_allow(exact: int) -> None:
    assert size(math.log2(exact)) == exact
    rounded = float(f"{math.log2(exact):.5g}")
    assert size(rounded) == pytest.approx(exact, rel=7e-4)
    if exact & (exact - 1) == 0 or exact == 12288:
        assert size(rounded) == exact
