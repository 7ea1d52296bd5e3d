"""Kernels by clusters: in machine code every warp sends once what it alone knows of its row."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
import torch
from triton.runtime.errors import PTXASError

from kernels.ops.norm import forward as norms
from kernels.ops.norm.forward import Form
from kernels.ops.norm.rms_norm import SIGNATURE
from kernels.ops.norm.rms_norm_cluster import variant_of as rms_norm
from kernels.ops.shared import cluster
from kernels.ops.softmax import softmax, softmax_backward
from kernels.ops.softmax.softmax_backward_cluster import variant_of as gradient
from kernels.ops.softmax.softmax_cluster import variant_of as forward
from kernels.tuning import Variant
from profiler.oracle.compiler.machine import Machine
from profiler.oracle.compiler.machine_code import compile_for

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
GRADIENT = {**dict.fromkeys(("dy_ptr", "dx_ptr"), "*bf16"), **dict.fromkeys(("dy_stride", "dx_stride"), "i32")}


def compiled(variant: Variant) -> Machine:
    kinds = {**SIGNATURE, **GRADIENT}
    names = [n for n in variant.kernel.arg_names if n in kinds]
    return compile_for(
        variant.kernel, {n: kinds[n].replace("bf16", str(variant["DTYPE"])) for n in names}, dict(variant.constants),
        "sm_90", variant.warps, divisible=[n for n in names if n.endswith("stride")], options=dict(variant.options),
    )  # fmt: skip


MADE: list[tuple[Variant, int, int]] = [
    (forward(65536, BF16, 2), 1, 1), (forward(65536 - 32, F16, 2), 1, 1), (forward(32768 - 16, F32, 1), 1, 1),
    (gradient(65536, BF16, 2, 8), 2, 1), (gradient(65536, BF16, 2, 4), 2, 1), (gradient(65536 - 32, F16, 2, 8), 2, 1),
    (gradient(32768 + 32, F16, 2, 4), 2, 1), (gradient(32768, F32, 1, 4), 2, 1),
    (gradient(32768 - 16, F32, 1, 8), 2, 1),
    (rms_norm(65536, BF16, 2, False, True, 4), 2, 1), (rms_norm(65536, BF16, 2, False, True, 8), 2, 1),
    (rms_norm(65536 - 32, F16, 2, False, False, 8), 1, 1), (rms_norm(65536, BF16, 2, True, True, 8), 3, 2),
    (rms_norm(65536 - 32, F16, 2, True, True, 4), 3, 2), (rms_norm(32768 - 16, F32, 1, True, True, 4), 3, 2),
    (rms_norm(32768, F32, 1, True, False, 8), 2, 2),
]  # fmt: skip
"""A variant, how many rows it reads and how many it writes."""


@pytest.mark.parametrize(
    ("variant", "reads", "writes"), MADE,
    ids=[f"{v.kernel.__name__}-{v['CTAS']}-{v['WORDS']}-{v['DTYPE']}" for v, *_ in MADE],
)  # fmt: skip
def test_every_warp_sends_once_what_it_alone_knows_and_fits_as_its_model_says(
    variant: Variant, reads: int, writes: int
) -> None:
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
    each = 65536 // (32 * variant.warps * ((made.registers + 7) // 8 * 8))
    assert each >= 65536 // (32 * variant.warps * variant.registers), "fewer are resident than the model has"
    assert made.shared_bytes + cluster.STATIC_BYTES <= variant.shared_bytes
    assert len(re.findall(r"STG\.E\.128", sass)) == writes * variant["HELD"]
    assert len(re.findall(r"LDG\.E(?:\.EL)?\.128", sass)) == reads * variant["HELD"]
    assert not re.search(r"MEMBAR|BAR\.SYNC.*CLUSTER", sass), "a fence waits for all that was stored"


def spaces(clustered: bool) -> list[list[Variant]]:
    return [
        softmax.space(4096, 65536, BF16, True, False, clustered),
        softmax.space(4096, 32768, F32, False, False, clustered),
        softmax_backward.space(4096, 65536, BF16, True, clustered),
        softmax_backward.space(4096, 32768, F32, False, clustered),
        norms.space(4096, 65536, BF16, 2, Form(), clustered),
        norms.space(4096, 32768, F32, 1, Form(residual=True, weight=False), clustered),
    ]


def test_clusters_come_first_and_others_stay_for_where_the_compiler_refuses_them() -> None:
    assert not cluster.takes([torch.empty(2, 65536, dtype=BF16)]), "no GPU here"
    for others, both in zip(spaces(False), spaces(True), strict=True):
        assert others
        assert all("cluster" not in v.kernel.__name__ for v in others)
        first = both[: len(both) - len(others)]
        assert first
        assert all("cluster" in v.kernel.__name__ for v in first)
        assert both[len(first) :] == others


@pytest.mark.parametrize("form", [Form(centered=True, bias=True), Form(stats=True), Form(residual=True, bias=True)])
def test_forms_that_clusters_have_no_kernel_of_are_left_to_others(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    spaces: list[list[Variant]] = []

    class EnoughError(Exception):
        pass

    class Asked:
        def pick(self, key: object, space: Callable[[], list[Variant]], *rest: object) -> Variant:
            spaces.append(space())
            raise EnoughError

    monkeypatch.setattr(cluster, "clusters_on", lambda device: True)
    x = torch.zeros(2, 65536, dtype=BF16)
    for tried in (form, Form()):
        with pytest.raises(EnoughError):
            norms.forward(Asked(), tried, x, x, x[0], x[0], 1e-6)  # type: ignore[arg-type]
    assert ["cluster" in s[0].kernel.__name__ for s in spaces] == [False, True]


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
