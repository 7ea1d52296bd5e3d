"""The product of f32 by FMA: what it reads and writes, on numpy; what the compiler makes of it for a Hopper."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
import torch
import triton

from kernels.ops.matmul import fma, matmul
from kernels.tuning import BuildError, Tuner, Variant
from profiler.oracle.compiler.machine_code import compile_for
from tests.kernels.ops import gluon_emulator

SMALL = ((64, 64, 8, (2, 2), 2), (64, 64, 16, (1, 2), 3), (128, 32, 4, (2, 1), 4))
"""Tiles that a test can walk over."""
OFFERED = [pytest.param(v, copy, id=f"{copy}-{v['SLOTS']}") for copy, some in fma.FASTER.items() for v in some]


def product(a: torch.Tensor, b: torch.Tensor, tile: Any, copy: str, late: bool) -> torch.Tensor:
    m, k, n = *a.shape, b.shape[1]
    v = fma.tile(*tile, copy)
    c = torch.full((m, n), torch.nan)
    gluon_emulator.run(
        fma.fma_product, (fma.addresses,), (a, b, c, m, n, k, *a.stride(), *b.stride(), n),
        -(-m // v["BM"]) * -(-n // v["BN"]), late, **dict(v.constants),
    )  # fmt: skip
    return c


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("tile", SMALL)
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 4), (64, 64, 64), (130, 37, 100), (65, 8, 132), (200, 70, 36)])
def test_every_size_is_right_whenever_copies_are_done(tile: Any, m: int, k: int, n: int, late: bool) -> None:
    a, b = torch.randn(m, k), torch.randn(k, n)
    torch.testing.assert_close(product(a, b, tile, "depth", late), a @ b, atol=1e-4, rtol=1e-4)
    if m % 4 == 0:
        a = torch.randn(k, m).T
        torch.testing.assert_close(product(a, b, tile, "wide", late), a @ b, atol=1e-4, rtol=1e-4)


def test_no_depth_gives_zeros_and_reads_nothing() -> None:
    assert not product(torch.empty((70, 1))[:, :0], torch.empty((1, 40))[:0], SMALL[0], "depth", True).any()


def test_rows_apart_are_right() -> None:
    a, b = torch.randn(140, 90)[::2, 3:33], torch.randn(60, 90)[::2, :44]
    torch.testing.assert_close(product(a, b, SMALL[0], "depth", True), a @ b, atol=1e-4, rtol=1e-4)


def test_offsets_beyond_32_bits_are_right() -> None:
    # Of 2^32 elements only those that are read exist: A is read along rows 2^25 apart, in steps of 2^24.
    room = torch.empty((1 << 25) * 69 + (1 << 24) * 99 + 1)
    a = room.as_strided((70, 100), (1 << 25, 1 << 24)).copy_(torch.randn(70, 100))
    b = torch.randn(100, 40)
    torch.testing.assert_close(product(a, b, SMALL[0], "depth", True), a @ b, atol=1e-4, rtol=1e-4)


def test_the_emulator_sees_a_slot_that_is_read_before_its_copy() -> None:
    late, to = gluon_emulator.Copies(True), gluon_emulator.Shared(np.full(4, np.nan))
    late.async_copy_global_to_shared(to, gluon_emulator.memory_of(torch.ones(4)) + np.arange(4))
    late.commit_group()
    late.wait_group(1)
    assert np.isnan(to.load(None)).all()
    late.wait_group(0)
    assert (to.load(None) == 1).all()
    with pytest.raises(IndexError, match="1 to 4 of 4"):
        late.async_copy_global_to_shared(to, gluon_emulator.memory_of(torch.ones(4)) + np.arange(1, 5))


@pytest.mark.parametrize("tile", [*SMALL, (128, 256, 8, (4, 2), 2)])
def test_every_number_of_a_tile_has_one_place(tile: Any) -> None:
    bm, bn, _, (down, across), _ = tile
    layout = fma.accumulator(bm, bn, down, across)
    bases = [*layout.reg_bases, *layout.lane_bases, *layout.warp_bases]
    assert (len(layout.lane_bases), 1 << len(layout.warp_bases)) == (5, down * across)
    places = {
        tuple(np.sum([b for b, on in zip(bases, bits, strict=True) if on] or [[0, 0]], axis=0))
        for bits in itertools.product((0, 1), repeat=len(bases))
    }
    assert places == set(itertools.product(range(bm), range(bn)))


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize(("variant", "copy"), OFFERED)
def test_a_step_of_128_products_a_thread_is_six_loads_of_16_bytes(variant: Variant, copy: str, even: bool) -> None:
    ones = ("a_col" if copy == "depth" else "a_row", "b_col")
    constants = {**dict(variant.constants), **dict.fromkeys(ones, 1)}
    signature = {n: "*fp32" if n in "abc" else "i32" for n in variant.kernel.arg_names if n not in constants}
    odd = ("M", "K", "a_row") if copy == "depth" else ("M", "N", "K")
    divisible = [n for n, kind in signature.items() if kind == "i32" and (even or n not in odd)]
    made = compile_for(variant.kernel, signature, constants, "sm_90", variant.warps, divisible=divisible)
    assert made.spill_bytes == 0
    assert made.shared_bytes == variant.shared_bytes
    code = made.texts["sass"]
    steps = variant["BK"] * variant["SLOTS"]
    assert len(re.findall(r"\bFFMA\b", code)) == 128 * steps, "each step of every slot once, nothing behind the loop"
    assert len(re.findall(r"\bLDS\.128\b", code)) == 6 * (steps + 1), "and the first one before it"
    wide = len(re.findall(r"\bLDGSTS\.E\.BYPASS\.128\b", code)) / (2 * variant["SLOTS"])
    narrow = len(re.findall(r"\bLDGSTS\.E\b(?!\.)", code)) / (2 * variant["SLOTS"])
    assert (wide, narrow) == ((2, 4) if copy == "depth" else (3, 0)), "B, and A where it can be, 16 bytes at a time"


@pytest.mark.parametrize(("variant", "copy"), OFFERED)
def test_a_slot_is_read_and_copied_over_only_behind_the_barrier_of_its_wait(variant: Variant, copy: str) -> None:
    # The emulator has one thread: what holds those of a program together is looked for in the machine code.
    item = fma.builds()[copy == "wide"]
    constants = {**dict(item.variant.constants), "SLOTS": variant["SLOTS"]}
    made = compile_for(
        variant.kernel, item.signature, constants, "sm_90", variant.warps, divisible=item.divisible
    )  # fmt: skip
    told = re.findall(r"\b(?:LDGSTS|LDS\.128|DEPBAR|BAR\.SYNC)(?![A-Z])", made.texts["sass"])
    groups = [name for name, _ in itertools.groupby(told)]
    slot = ["DEPBAR", "BAR.SYNC", "LDS.128", "LDGSTS"]
    first = groups.index("DEPBAR")
    assert groups[:first] == ["LDGSTS"]
    # Of the last slot a tile is left behind the loop's end; the first is read before it, and waited for once more.
    wanted = [*slot[:3], *([*slot, "LDS.128"] * variant["SLOTS"])[:-1], "DEPBAR", "BAR.SYNC"]
    assert groups[first:] == wanted


def test_none_is_offered_where_it_cannot_run() -> None:
    a = torch.empty((4096, 4096), device="meta")
    assert not fma.tiles(a, a), "no GPU"
    assert not any(v.kernel is fma.fma_product for v in matmul.space(a, a, False, "tf32"))


def test_large_products_of_f32_alone_are_offered_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fma, "_copies_itself", lambda device: True)
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)

    def offered(
        m: int, k: int, n: int, dtype: torch.dtype = torch.float32, precision: str = "ieee", across: str = ""
    ) -> list[Variant]:
        a, b = (torch.empty(shape, dtype=dtype, device="meta") for shape in ((m, k), (k, n)))
        a = torch.empty((k, m), dtype=dtype, device="meta").T if "a" in across else a
        b = torch.empty((n, k), dtype=dtype, device="meta").T if "b" in across else b
        return [v for v in matmul.space(a, b, False, precision) if v.kernel is fma.fma_product]

    assert offered(4096, 4096, 4096) == list(fma.FASTER["depth"])
    assert offered(4095, 4001, 4096) == list(fma.FASTER["depth"]), "4 bytes can lie anywhere"
    assert offered(4096, 4095, 4096, across="a") == list(fma.FASTER["wide"])
    assert not offered(4096, 4096, 4096, across="b") and not offered(4096, 4096, 4096, across="ab")
    assert not offered(4096, 4096, 4095)
    assert not offered(4096, 4096, 4096, torch.bfloat16)
    assert not offered(4096, 4096, 4096, precision="tf32x3")
    assert not offered(512, 4096, 512), "too few tiles for the multiprocessors"
    assert offered(4096, 8, 4096) and not offered(4096, 4, 4096)
    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
    assert not offered(4096, 4096, 4096)


def test_a_copy_of_16_bytes_is_for_what_has_them() -> None:
    a, b = torch.empty((64, 64)), torch.empty((64, 64))
    assert fma.copy_of_a(a, b) == "depth"
    assert fma.copy_of_a(a.T, b) == "wide"
    assert fma.copy_of_a(a[:, :63], b[:63]) == "depth"
    assert fma.copy_of_a(a.T[:63], b) == "", "the last four are torn"
    assert fma.copy_of_a(torch.empty((64, 68))[:, :64].T, b) == "", "16 bytes lie there, but Triton is not told so"
    assert fma.copy_of_a(a[:, ::2], b[:32]) == ""
    assert fma.copy_of_a(a, b.T) == ""
    assert fma.copy_of_a(a, b[:, :62]) == ""
    assert fma.copy_of_a(a, torch.empty(64 * 64 + 1)[1:].view(64, 64)) == "", "the base is no multiple of 16 bytes"


def test_a_choice_is_not_kept_for_operands_of_another_alignment(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def pick(self: Tuner, key: Any, space: Any, launch: Any, *tensors: torch.Tensor) -> None:
        asked.append(key)
        raise InterruptedError

    monkeypatch.setattr(Tuner, "pick", pick)
    a, b = torch.empty((64, 64)), torch.empty((64, 64))
    for other in (b, torch.empty(64 * 64 + 1)[1:].view(64, 64)):
        for precision in ("ieee", "tf32"):
            with pytest.raises(InterruptedError):
                matmul.matmul(a, other, precision)
    assert asked[0] != asked[2] and asked[1] == asked[3]


def test_what_this_triton_does_not_build_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    a = torch.ones((4, 4))
    first, other = fma.FASTER["depth"][0], matmul.space(a, a, False)[0]
    if not torch.cuda.is_available():  # for no GPU nothing can be built
        with pytest.raises(BuildError, match="fma_product"):
            fma.launch(first, a, a, a)

    def launch(variant: Variant, *given: torch.Tensor) -> None:
        if variant is first:
            raise BuildError("no Gluon")

    monkeypatch.setattr("kernels.tuning.cold_us", lambda call: (call(), 1.0)[1])
    tuner = Tuner("fma_test")
    assert tuner._timed("key", [first, other], launch, (a, a, a)) == (other, 1.0)
    with pytest.raises(RuntimeError, match="no Gluon"):
        tuner._timed("key", [first], launch, (a, a, a))
