"""What torch.compile makes of products of odd sizes, against Inductor's own function on the same numbers."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from torch._inductor import utils
from torch._inductor.fx_passes import pad_mm

from app.estimate.fused_time import padded
from app.estimate.region_features import shape_facts
from profiler.region import op_kinds
from profiler.region.graph.cost import cost
from profiler.region.graph.fusion import groups
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from tests.app.advice.cases import H200

TFLOPS = {"bf16": 989.5, "f16": 989.5, "f32": 66.9}
"""Dense, of NVIDIA's H200 datasheet, which has 4.8 TB/s."""
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
SIZES = [(1, 197, 197, 64), (1, 4096, 4095, 4096), (8, 197, 64, 197), (1, 8192, 50257, 768), (1, 256, 333, 127),
         (1, 1024, 1023, 333), (64, 49, 49, 32), (1, 64, 15, 4096)]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_a_product_is_padded_where_inductor_would_try_it(size: tuple[int, int, int, int], dtype: str) -> None:
    batch, m, n, k = size
    text = f"a: {dtype}[{batch}, {m}, {k}]\nb: {dtype}[{batch}, {k}, {n}]\nreturn a @ b\n"
    graph = lower(parse(text))
    facts = next(o for o in shape_facts(graph, cost(graph), groups(graph)).operations if o.kind == op_kinds.GEMM)
    with (
        mock.patch.object(utils, "get_device_tflops", return_value=TFLOPS[dtype]),
        mock.patch.object(utils, "get_gpu_dram_gbps", return_value=4800),
        mock.patch.object(torch.cuda, "get_device_capability", return_value=(9, 0)),
    ):
        wanted = pad_mm.is_mm_compute_bound(m, k, n, DTYPES[dtype])
    assert padded(facts, H200) is wanted


def test_sizes_of_both_kinds_are_tried() -> None:
    """Or the comparison above would hold for a constant."""
    intensities = [m * n * k / (m * k + k * n + m * n) for _, m, n, k in SIZES]
    balance = 0.5 * TFLOPS["bf16"] * 1e12 / 4.8e12
    assert min(intensities) < balance < max(intensities)


def test_whole_rows_of_16_bytes_are_not_padded() -> None:
    graph = lower(parse("a: bf16[4096, 4096]\nb: bf16[4096, 4096]\nreturn a @ b\n"))
    facts = next(o for o in shape_facts(graph, cost(graph), groups(graph)).operations if o.kind == op_kinds.GEMM)
    assert not padded(facts, H200)
