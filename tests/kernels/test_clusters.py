"""Kernels by clusters: in machine code every warp sends once what it alone knows of its row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch
from triton.runtime.errors import PTXASError

from kernels.ops.shared import cluster
from kernels.ops.softmax.softmax_backward import space
from kernels.ops.softmax.softmax_backward_cluster import variant_of
from kernels.tuning import Variant
from profiler.oracle.compiler.machine import Machine
from profiler.oracle.compiler.machine_code import compile_for

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
STRIDES = ("dy_stride", "y_stride", "dx_stride")


def compiled(variant: Variant) -> Machine:
    kinds = dict.fromkeys(("dy_ptr", "y_ptr", "dx_ptr"), f"*{variant['DTYPE']}")
    kinds |= dict.fromkeys(("rows", *STRIDES, "zero"), "i32")
    return compile_for(
        variant.kernel, kinds, dict(variant.constants), "sm_90", variant.warps, divisible=STRIDES,
        options=dict(variant.options),
    )  # fmt: skip


MADE = [
    variant_of(65536, BF16, 2, 8), variant_of(65536, BF16, 2, 4), variant_of(65536 - 32, F16, 2, 8),
    variant_of(32768 + 32, F16, 2, 4), variant_of(32768, F32, 1, 4), variant_of(32768 - 16, F32, 1, 8),
]  # fmt: skip


@pytest.mark.parametrize("variant", MADE, ids=[f"{v.choice}-{v['WORDS']}-{v['DTYPE']}" for v in MADE])
def test_every_warp_sends_once_what_it_alone_knows_and_fits_as_its_model_says(variant: Variant) -> None:
    made = compiled(variant)
    text, sass = made.texts["ttgir"], made.texts["sass"]
    layouts = re.findall(r"#ttg\.blocked<\{(.*?)\}>", text)
    assert len(layouts) == 1, "a tile in another layout would be sent by other warps"
    assert f"warpsPerCTA = [1, {variant['WARPS']}, 1]" in layouts[0]
    assert f"CGALayout = {[[1 << i, 0, 0] for i in range(variant['CTAS'].bit_length() - 1)]}" in layouts[0]
    assert "convert_layout" not in text
    assert made.texts["ptx"].count("st.async") == sass.count("STAS.64") == 1

    assert made.spill_bytes == 0
    assert made.registers is not None
    assert made.registers <= variant.registers
    assert made.shared_bytes + cluster.STATIC_BYTES <= variant.shared_bytes
    assert len(re.findall(r"STG\.E\.128", sass)) == variant["HELD"]
    assert len(re.findall(r"LDG\.E\.128", sass)) == 2 * variant["HELD"]
    assert not re.search(r"MEMBAR|BAR\.SYNC.*CLUSTER", sass), "a fence waits for all that was stored"


def test_where_there_are_no_clusters_none_is_among_the_variants() -> None:
    assert not cluster.takes([torch.empty(2, 65536, dtype=BF16)]), "no GPU here"
    others = space(4096, 65536, BF16, True)
    assert all("cluster" not in v.kernel.__name__ for v in others)
    first = space(4096, 65536, BF16, True, True)
    assert [(v.kernel.__name__, v["CTAS"]) for v in first[:2]] == [("softmax_backward_cluster", n) for n in (8, 4)]
    assert first[2:] == others
    alone = space(4096, 32768, F32, False, True)
    assert alone[2:] == space(4096, 32768, F32, False), "the loops stay where the compiler refuses clusters"


@pytest.mark.parametrize(
    ("rows", "vectors", "taken"),
    [
        ([(65536, 65536, 0)], [], True), ([(65536, 65536 + 32, 0)], [], True),
        ([(32768 + 32, 32768 + 32, 0)], [], True),
        ([(65536, 65536 + 8, 0)], [], False), ([(65536, 65536, 4)], [], False), ([(65536 - 2, 65536, 0)], [], False),
        ([(32768, 32768, 0)], [], False), ([(65536 + 32, 65536 + 32, 0)], [], False),
        ([(65536, 65536, 0), (65536, 65540, 0)], [], False), ([(65536, 65536, 0)], [0], True),
        ([(65536, 65536, 0)], [1], False),
    ],
)  # fmt: skip
def test_rows_that_are_not_loaded_by_128_bits_are_left_to_others(
    rows: Sequence[tuple[int, int, int]], vectors: Sequence[int], taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "clusters_on", lambda device: True)
    made = []
    for columns, stride, skipped in rows:
        memory = torch.zeros(2 * stride + 16, dtype=BF16)
        assert memory.data_ptr() % 16 == 0
        made.append(memory.as_strided((2, columns), (stride, 1), skipped))
    assert cluster.takes(made, [torch.zeros(65536 + 1, dtype=BF16)[s:] for s in vectors]) is taken


def test_a_tile_that_would_be_sent_twice_is_refused_before_it_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    launched = []

    class Kernel:
        __name__ = "one"

        def warmup(self, *arguments: object, **options: object) -> SimpleNamespace:
            return SimpleNamespace(asm={"ptx": "st.async " * sent})

        def __getitem__(self, grid: tuple[int]) -> object:
            return lambda *arguments, **options: launched.append(grid)

    def variant(ctas: int, warps: int) -> Variant:
        return Variant(Kernel(), (("CTAS", ctas), ("WARPS", 32 // ctas)), warps)

    tried = variant(8, 4)
    for sent in (4, 0):
        with pytest.raises(PTXASError, match=f"{sent} words a warp"):
            cluster.launch(tried, 7)
    assert not launched
    sent = 1
    cluster.launch(tried, 7)
    assert launched == [(7,)]
    monkeypatch.setattr(Kernel, "warmup", lambda *arguments, **options: (_ for _ in ()).throw(RuntimeError("pass")))
    with pytest.raises(PTXASError, match="pass"):
        cluster.launch(variant(4, 8), 7)
    with pytest.raises(ValueError, match="32 warps"):
        cluster.launch(variant(8, 8), 7)
