"""Evidence from elsewhere: only for the same program, never from afar, always the same record for the same question."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.archive import nearness, record_store
from app.archive.program_fingerprint import fingerprint

Json = dict[str, Any]

SIZES = st.integers(1, 4096)
DEVICES = ("NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "Unheard-of 9000")
TORCHES = ("2.11.0+cu130", "2.11.0", "2.12.0a0+git1", "2.12.0", "2.13.1", "")


def chain(rows: int, columns: int, dtype: str = "bf16", names: tuple[str, str] = ("x", "w")) -> str:
    x, w = names
    return f"{x}: {dtype}[{rows}, {columns}]\n{w}: {dtype}[{columns}]\nreturn gelu({x}) * {w}\n"


def record(text: str, device: str = DEVICES[0], torch: str = TORCHES[0], date: str = "2026-11-21", **more: Any) -> Json:
    software = {"torch": torch, "triton": "3.6.0"}
    return {"id": "r", "region": text, "device": device, "software": software, "date": date, **more}


# --------------------------------------------------------------------------------------------------------- distance


def by_hand(one: tuple[int, int], other: tuple[int, int]) -> float:
    """The docstring's formula for `chain`, written out: bf16 [r, c] and [c]."""
    bytes_one, bytes_other = (2 * (r * c + c) for r, c in (one, other))
    each = [(one[0], other[0]), (one[1], other[1]), (one[1], other[1])]
    return abs(math.log2(bytes_one / bytes_other)) + sum(abs(math.log2(a / b)) for a, b in each) / 3


@given(SIZES, SIZES, SIZES, SIZES)
def test_distance_is_the_formula_of_its_docstring(a: int, b: int, c: int, d: int) -> None:
    (one,), (other,) = nearness.sizes(chain(a, b)), nearness.sizes(chain(c, d, names=("a", "b")))
    assert nearness.distance(one, other) == pytest.approx(by_hand((a, b), (c, d)))
    assert nearness.distance(one, other) == nearness.distance(other, one)
    assert (nearness.distance(one, other) == 0) == ((a, b) == (c, d))


@given(st.integers(2, 64), st.integers(2, 64), st.integers(1, 5), st.integers(1, 5))
def test_larger_and_larger_is_farther_and_farther(rows: int, columns: int, less: int, more: int) -> None:
    (here,) = nearness.sizes(chain(rows, columns))
    near, far = (nearness.sizes(chain(rows * 2**n, columns))[0] for n in (less, less + more))
    assert 0 < nearness.distance(here, near) < nearness.distance(here, far)


@given(st.permutations([("a", "[512, 64]"), ("b", "[64, 128]"), ("c", "[128]")]))
def test_inputs_are_paired_by_what_they_are_not_by_name_or_place(order: list[tuple[str, str]]) -> None:
    shuffled = "".join(f"{n}: f32{s}\n" for n, s in order) + "return a @ b + c\n"
    renamed = "q: f32[64, 128]\nr: f32[128]\np: f32[512, 64]\nreturn r + p @ q\n"
    assert nearness.fit(shuffled, renamed) == (0.0, 1.0)
    assert nearness.fit(shuffled, renamed.replace("512", "1024"))[0] > 0


def test_every_size_of_the_region_goes_to_its_closest_on_record() -> None:
    varying = "N: sizes[16, 1024]\n" + chain(1, 64).replace("[1, 64]", "[N, 64]")
    assert nearness.fit(chain(1024, 64), varying) == (0.0, 1.0)
    apart, ratio = nearness.fit(varying, chain(1024, 64))
    assert apart == pytest.approx(by_hand((16, 64), (1024, 64)) / 2)
    assert ratio == pytest.approx(1025 / 17)
    # One of its two sizes is 60 × away: no evidence for the whole.
    assert nearness.near(varying, record(chain(1024, 64))) is None


# -------------------------------------------------------------------------------------------------- what never matches


@given(st.sampled_from(["f32", "f16", "bf16", "f8e4m3"]), st.sampled_from(["f32", "f16", "bf16", "f8e4m3"]))
def test_another_dtype_is_no_evidence(one: str, other: str) -> None:
    near = nearness.near(chain(64, 64, one), record(chain(64, 64, other)))
    assert (near is not None) == (one == other)


@given(SIZES, SIZES, SIZES)
def test_much_another_size_is_refused_on_either_side(rows: int, other: int, columns: int) -> None:
    one, there = chain(rows + 1, columns + 1), chain(other + 1, columns + 1)
    ratio = (other + 2) / (rows + 2)
    near = nearness.near(one, record(there))
    assert (near is None) == (not 1 / 16 <= ratio <= 16)
    if near is not None:
        assert near.bytes_ratio == pytest.approx(ratio)


PROGRAMS = [
    ("x: f32[8, 6]\nreturn x.reshape(4, 12)\n", "x: f32[16, 6]\nreturn x.reshape(8, 12)\n", True),
    ("x: f32[8, 6]\nreturn x.reshape(4, 12)\n", "x: f32[8, 6]\nreturn x.reshape(48)\n", False),
    ("x: f32[8, 6]\nreturn x.sum(0)\n", "x: f32[16, 6]\nreturn x.sum(1)\n", False),
    ("x: f32[8, 6]\nreturn layer_norm(x, (6,))\n", "x: f32[8, 9]\nreturn layer_norm(x, (9,))\n", True),
    ("x: f32[8]\nreturn x + full((8,), 3.0)\n", "x: f32[9]\nreturn x + full((9,), 4.0)\n", False),
    ("x: f32[8, 6]\nb: f32[8, 6]\nreturn x + b\n", "x: f32[8, 6]\nb: f32[1, 6]\nreturn x + b\n", False),
    ("x: f32[8]\nfor i in range(3):\n    x = tanh(x)\nreturn x\n",
     "y: f32[16]\nfor j in range(3):\n    y = tanh(y)\nreturn y\n", True),
    ("x: f32[8]\nfor i in range(3):\n    x = tanh(x)\nreturn x\n", "x: f32[8]\nreturn tanh(tanh(tanh(x)))\n", True),
    ("x: f32[8]\nfor i in range(3):\n    x = x * i\nreturn x\n", "x: f32[8]\nreturn x * 0 * 1 * 3\n", False),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "alike"), PROGRAMS)
def test_sizes_are_set_aside_and_nothing_else(one: str, other: str, alike: bool) -> None:
    assert (fingerprint(one, "other-sizes") == fingerprint(other, "other-sizes")) is alike


def test_a_loop_that_is_long_ends() -> None:
    endless = "x: f32[8]\nfor i in range(1000000000):\n    for j in range(0):\n        x = x + 1\nreturn x\n"
    assert fingerprint(endless, "same") != fingerprint(endless.replace("+", "-"), "same")


# ------------------------------------------------------------------------------------------------------------- order

RECORDS = st.lists(
    st.builds(
        lambda rows, columns, device, torch, day: record(chain(rows, columns), device, torch, f"2026-11-{day:02}"),
        st.sampled_from([32, 64, 128, 4096]), st.sampled_from([64, 96]), st.sampled_from(DEVICES),
        st.sampled_from(TORCHES), st.integers(1, 3),
    ),
    max_size=7,
).map(lambda found: [{**r, "id": f"r{n}"} for n, r in enumerate(found)])  # fmt: skip


def better(one: Json, other: Json, text: str, device: str | None, torch: str | None) -> bool:
    """Whether `one` comes before `other` by the docstring, criterion after criterion, without a key."""
    a, b = (nearness.near(text, r, device, torch) for r in (one, other))
    assert a is not None and b is not None
    levels = ("same", "other-layout", "other-sizes")
    if a.match != b.match:
        return levels.index(a.match) < levels.index(b.match)
    if device is not None and (one["device"] == device) != (other["device"] == device):
        return bool(one["device"] == device)
    if a.distance != b.distance:
        return a.distance < b.distance
    if a.device_gap != b.device_gap:
        return a.device_gap < b.device_gap
    versions = [r["software"]["torch"] for r in (one, other)]
    if torch:
        if (versions[0] == torch) != (versions[1] == torch):
            return bool(versions[0] == torch)
        released = [v.partition("+")[0] == torch.partition("+")[0] for v in versions]
        if released[0] != released[1]:
            return bool(released[0])
    ages = ["", "2.11.0", "2.12.0a0", "2.12.0", "2.13.1"]
    age = [ages.index(v.partition("+")[0]) for v in versions]
    if age[0] != age[1]:
        return bool(age[0] > age[1])
    if one["date"] != other["date"]:
        return bool(one["date"] > other["date"])
    return bool(one["id"] < other["id"])


@settings(max_examples=150, deadline=None)
@given(RECORDS, st.sampled_from([None, *DEVICES]), st.sampled_from([None, *TORCHES[:5]]))
def test_the_nearest_is_the_one_that_brute_force_finds(
    found: list[Json], device: str | None, torch: str | None
) -> None:
    text = chain(64, 64)
    evidence = [r for r in found if nearness.near(text, r, device, torch) is not None]
    assert evidence == [r for r in found if not r["region"].startswith("x: bf16[4096")]
    first = [r for r in evidence if all(better(r, o, text, device, torch) for o in evidence if o is not r)]
    chosen = nearness.choose(text, found, device, torch)
    assert [r["id"] for r in first] == ([chosen[0]["id"]] if chosen else [])
    for one, other in itertools.permutations(evidence, 2):
        assert better(one, other, text, device, torch) != better(other, one, text, device, torch)


@settings(max_examples=60, deadline=None)
@given(
    RECORDS.flatmap(lambda found: st.tuples(st.just(found), st.permutations(found))), st.sampled_from([None, *DEVICES])
)
def test_the_order_of_the_files_does_not_count(both: tuple[list[Json], list[Json]], device: str | None) -> None:
    one, other = (nearness.choose(chain(64, 64), found, device) for found in both)
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert (one[0]["id"], one[1]) == (other[0]["id"], other[1])


def test_a_device_close_in_its_rates_comes_before_a_far_one() -> None:
    h100, a100 = (nearness.device_gap("NVIDIA H200", d) for d in DEVICES[1:3])
    assert 0 < h100 < a100 < nearness.device_gap("NVIDIA H200", DEVICES[3]) == math.inf
    assert nearness.same_device("H200", "NVIDIA H200") and not nearness.same_device("H200", "H100")


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("2.9.1", "2.10.0"),
        ("2.12.0a0+git1", "2.12.0"),
        ("2.12.0.dev20261101", "2.12.0"),
        ("", "2.0"),
        ("2.11", "2.11.1"),
    ],
)
def test_versions_sort_as_numbers(older: str, newer: str) -> None:
    assert nearness.version(older) < nearness.version(newer)


def test_the_page_and_the_api_are_told_which_of_several_versions() -> None:
    gemm = next(r for r in record_store.records() if r["name"] == "SwiGLU")
    nearest_record = record_store.nearest(gemm["region"], device="NVIDIA H100 80GB HBM3", torch="2.11.0+cpu")
    assert nearest_record is not None
    assert nearest_record["elsewhere"]["same_device"] is False
    assert nearest_record["elsewhere"]["torch"] == "2.11.0+cu130"
    assert nearest_record["elsewhere"]["because"].startswith(
        "From elsewhere: the same region, on NVIDIA H200 with torch 2.11.0"
    )
