"""This project's kernels and max-autotune in an atlas. Its points are reckoned here, not measured: none of it ships."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from app.atlas import price
from app.atlas.atlas import Atlas
from app.atlas.describe import describe, measured_point
from app.atlas.fit import fit_atlas, items_of
from app.atlas.generated_items import generated_item
from app.atlas.kernel_items import autotuned_item, kernel_item
from app.atlas.own_items import own_item
from kernels.calibrate.points import Conditions, Point
from kernels.codegen.generated import attempt
from kernels.codegen.traits_model import GeneratedLaunch, GeneratedTraits, Traffic
from profiler.hardware import find_device
from profiler.oracle.kernel_traits import read_traits
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse

DEVICE = find_device("NVIDIA H200")
assert DEVICE is not None
CONDITIONS = Conditions(device="NVIDIA H200", torch="2.11.0", triton="3.6.0", date="2026-11-26", minutes=1.0)
EVENTS_US = 2.0
SLOWER = 1.5
"""Than its floor each kernel is reckoned to be."""


def texts() -> Iterator[str]:
    for n in range(30):
        yield f"x: f32[{64 << n % 6}, {96 + 32 * n}]\nreturn softmax(x * 2.0, -1)"


def reckoned(time_us: float) -> float:
    return round(SLOWER * time_us + EVENTS_US, 3)


def generated_points() -> list[Point]:
    points = []
    for number, text in enumerate(texts()):
        kernels = []
        for launch in attempt(lower(parse(text))).kernels:
            floor_us = generated_item(launch.traits).floor_us(DEVICE)
            kernels.append(
                {"name": launch.kernel, "traits": msgspec.structs.asdict(launch.traits),
                 "cold_us": reckoned(floor_us), "warm_us": reckoned(floor_us / 2), "host_us": 1.0}
            )  # fmt: skip
        points.append(Point(
            family="generated_chain", number=number, mode="generated", text=text, events_us=EVENTS_US, kept=[],
            generated=kernels, cold_us=1.0, warm_us=1.0, host_us=1.0,
        ))  # fmt: skip
    return points


def own_points() -> list[Point]:
    points = []
    for number, text in enumerate(t.replace(" * 2.0", "") for t in texts()):
        item = own_item("triton:softmax", lower(parse(text)).operations)
        assert item is not None
        time_us = reckoned(item.floor_us(DEVICE))
        points.append(Point(
            family="own_softmax", number=number, mode="own", text=text, events_us=EVENTS_US,
            candidates={"triton:softmax": {"cold_us": time_us, "warm_us": time_us, "host_us": 1.0}},
        ))  # fmt: skip
    return points


@pytest.fixture(scope="module")
def atlas() -> Atlas:
    return fit_atlas(CONDITIONS, [*generated_points(), *own_points()], DEVICE)


def test_a_kernel_between_those_that_were_measured_is_priced_by_them(atlas: Atlas) -> None:
    launches = attempt(lower(parse("x: f32[600, 500]\nreturn softmax(x * 2.0, -1)"))).kernels
    total = price.generated(launches, (), atlas, DEVICE)
    assert total is not None and total.known == 1.0
    floor_us = sum(generated_item(launch.traits).floor_us(DEVICE) for launch in launches)
    assert total.time_us - price.CALL_US == pytest.approx(SLOWER * floor_us, rel=0.1)


def test_a_form_that_was_not_measured_has_no_price(atlas: Atlas) -> None:
    launches = attempt(lower(parse("x: f32[600, 500]\nreturn gelu(x)"))).kernels
    assert price.generated(launches, (), atlas, DEVICE) is None
    traits = msgspec.structs.replace(launches[0].traits, form="segments")
    assert price.generated([msgspec.structs.replace(launches[0], traits=traits)], (), atlas, DEVICE) is None


def test_what_another_kernel_has_just_written_is_read_from_l2(atlas: Atlas) -> None:
    (launch,) = attempt(lower(parse("x: f32[600, 500]\nreturn softmax(x * 2.0, -1)"))).kernels
    first = GeneratedLaunch("one", launch.traits, (Traffic("x", 10_000),), (Traffic("y", 10_000),))
    behind = [GeneratedLaunch("two", launch.traits, (Traffic(name, 10_000),), ()) for name in ("y", "z")]
    warm, cold = (price.generated([first, other], (), atlas, DEVICE) for other in behind)
    assert warm is not None and cold is not None
    assert warm.parts[1].time_us == pytest.approx(cold.parts[1].time_us / 2, rel=0.1)


def test_calls_that_stay_are_added_with_their_own_times(atlas: Atlas) -> None:
    launches = attempt(lower(parse("x: f32[600, 500]\nreturn softmax(x * 2.0, -1)"))).kernels
    alone, with_call = (price.generated(launches, calls, atlas, DEVICE) for calls in ((), [("mm", 40.0, None)]))
    assert alone is not None and with_call is not None
    assert with_call.time_us == pytest.approx(alone.time_us + 40.0)
    assert with_call.known < 1.0


def test_a_kernel_of_its_own_is_priced_by_the_region_that_it_takes(atlas: Atlas) -> None:
    operations = lower(parse("x: f32[600, 500]\nreturn softmax(x, -1)")).operations
    item = own_item("triton:softmax", operations)
    assert item is not None
    priced = atlas.price(item, DEVICE)
    assert priced is not None and priced.cold_us == pytest.approx(SLOWER * item.floor_us(DEVICE), rel=0.1)
    other = own_item("triton:layer_norm", operations)
    assert other is not None and atlas.price(other, DEVICE) is None, "of another kernel nothing was measured"


def test_points_are_described_by_what_they_were(atlas: Atlas) -> None:
    launch = attempt(lower(parse("x: f32[600, 500]\nreturn softmax(x * 2.0, -1)"))).kernels[0]
    assert describe(generated_item(launch.traits)).startswith("generated kernel of whole rows, 600 rows of 500")
    for group in atlas.groups:
        point = measured_point(atlas, group, 0)
        assert point.time_us > 1.0 and ("of whole rows" in point.description or "softmax of f32" in point.description)


SOURCE = """
@triton_heuristics.pointwise(
    size_hints={'x': 1048576},
    inductor_meta={'kernel_name': 'k', 'mutated_arg_names': []},
)
@triton.jit
def k(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 1000000
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tmp1 = tmp0 + tmp0
    tl.store(out_ptr0 + (x0), tmp1, xmask)
"""


def test_a_product_alone_under_max_autotune_is_a_point_and_one_with_kernels_around_it_is_none() -> None:
    kernel = {"name": "k", "source": SOURCE, "bytes_moved": 8_000_000, "stage": "forward", "times_us": [9.0]}
    times = {"cold_us": 42.0, "warm_us": 40.0, "host_us": 1.0}
    alone = Point(
        family="autotuned_product", number=0, mode="max-autotune", events_us=EVENTS_US, kernels=[], externs=[],
        text="x: bf16[512, 512]\nw: bf16[512, 512]\nreturn x @ w", default={**times, "kernels": []}, **times,
    )  # fmt: skip
    (one,) = items_of([alone], DEVICE)
    assert one.item.group == "autotuned gemm" and one.cold_us == 40.0 and one.item.flops == 2 * 512**3
    template = {**kernel, "source": "no kernel that can be read"}
    chosen = items_of([{**alone, "kernels": [template]}], DEVICE)
    assert [m.item.group for m in chosen] == ["autotuned gemm"], "a template in the library's place"
    around = {**alone, "kernels": [kernel], "default": {**times, "kernels": [kernel]}}
    groups = [(m.item.group, m.cold_us) for m in items_of([around], DEVICE)]
    assert groups == [("autotuned pointwise", 7.0), ("generated pointwise", 7.0)]


def test_what_is_tuned_keeps_its_description_and_is_a_group_of_its_own() -> None:

    item = kernel_item(read_traits(SOURCE), 8_000_000)
    assert item is not None
    tuned = autotuned_item(item)
    assert tuned.group == "autotuned pointwise" and tuned == replace(item, group=tuned.group)
    assert describe(tuned) == describe(item)


def test_traits_are_read_again_as_they_were_written() -> None:
    traits = attempt(lower(parse("x: f32[600, 500]\nreturn softmax(x * 2.0, -1)"))).kernels[0].traits
    again = msgspec.convert(msgspec.to_builtins(traits), GeneratedTraits)
    assert again == traits and math.isfinite(generated_item(again).floor_us(DEVICE))
