"""Kernels of torch.compile as texts: true where name and operands leave one reading, none elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.mining.mine import MinedRegion, mine
from profiler.region.mining.texts.compiled_kernels import FACTOR, NOTE, operations_of
from profiler.trace.read.reader import read_trace
from tests.profiler.region.mined import mined
from tests.profiler.trace.files import annotation, kernel, launch, op, written

FULL, ROWS, VECTOR = (4, 8, 32), (32, 32), (32,)


def _region(
    folder: Path, name: str, sizes: Sequence[tuple[int, ...]], strides: Sequence[tuple[int, ...]] = ()
) -> MinedRegion:
    """The one region of a trace whose steps are this kernel."""
    laid_out = [*strides, *(torch.empty(s).stride() for s in sizes[len(strides) :])]
    fields = {
        "Input Dims": [*map(list, sizes), []], "Input Strides": [*map(list, laid_out), []],
        "Input type": [*["float"] * len(sizes), "Scalar"], "Concrete Inputs": [*[""] * len(sizes), "1024"],
    }  # fmt: skip
    events: list[dict[str, object]] = []
    for step in range(2):
        at = 1e4 * step
        events += [annotation(f"ProfilerStep#{step}", at, 1e4), op("Torch-Compiled Region: 0/0", at + 1, 5_000)]
        events += [op(name, at + 10, 50, **fields), launch(at + 20, step + 1), kernel(at + 60, 90, step + 1, name=name)]
    (region,) = mine(read_trace(written(folder, json.dumps({"traceEvents": events})))).regions
    return region


def rms(*tensors: Tensor) -> Tensor:
    *added, w = tensors
    z = sum(added[1:], added[0])
    return F.rms_norm(z, (z.shape[-1],), w, 1e-6)


Case = tuple[str, Sequence[tuple[int, ...]], int, Callable[..., Tensor]]
WRITTEN: dict[str, Case] = {
    "SwiGLU in place": ("triton_poi_fused__unsafe_view_mul_silu_8", (FULL, ROWS), 2, lambda g, u: F.silu(g) * u),
    "SwiGLU": ("triton_poi_fused_mul_silu_0", (FULL, FULL, FULL), 2, lambda g, u: F.silu(g) * u),
    "bias and GELU": ("triton_poi_fused_addmm_gelu_view_15", (FULL, VECTOR), 2, lambda x, b: F.gelu(x + b)),
    "bias and SiLU": ("triton_poi_fused_addmm_silu_2", (ROWS, VECTOR), 2, lambda x, b: F.silu(x + b)),
    "RMSNorm": ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", (FULL, VECTOR, FULL), 2, rms),
    "RMSNorm of a sum": ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_view_6", (FULL, FULL, VECTOR, FULL), 3, rms),
    "RMSNorm in place": (
        "triton_per_fused__to_copy__unsafe_view_add_mean_mul_pow_rsqrt_15", (FULL, FULL, VECTOR), 3, rms,
    ),
    "softmax": (
        "triton_red_fused__softmax_add_div_exp_prepare_softmax_online_sub_view_4", (FULL, (8, 32)), 2,
        lambda x, b: torch.softmax(x / FACTOR + b, -1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRITTEN)
def test_a_kernel_that_its_name_and_operands_tell_computes_that(case: str, tmp_path: Path) -> None:
    name, sizes, reads, function = WRITTEN[case]
    region = _region(tmp_path, name, sizes)
    assert region.text is not None, region.missing
    assert region.kind == "compiled"
    assert region.assumed == (NOTE,)
    inputs = parse(region.text).inputs
    assert len(inputs) == reads
    tensors = [torch.randn(*(n for n in i.shape if isinstance(n, int))) for i in inputs]
    (result,) = program(parse(region.text)).module(*tensors)
    torch.testing.assert_close(result, function(*tensors))


UNTOLD: dict[str, tuple[str, Sequence[tuple[int, ...]], Sequence[tuple[int, ...]]]] = {
    "a third tensor that may be a factor or the result": (
        "triton_poi_fused__unsafe_view_add_gelu_mul_7", (FULL, VECTOR, FULL), (),
    ),
    "a sum whose last tensor may be an operand or the result": ("triton_poi_fused_add_view_8", (FULL, FULL, ROWS), ()),
    "a copy whose order of dimensions is in the code": ("triton_poi_fused_clone_transpose_view_5", (FULL, FULL), ()),
    "a norm with what was looked up": (
        "triton_red_fused__to_copy_add_embedding_mean_mul_pow_rsqrt_0", (FULL, VECTOR, FULL), (),
    ),
    "two vectors": ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", (FULL, VECTOR, VECTOR, FULL), ()),
    "rows that lie apart": ("triton_poi_fused_mul_silu_0", (FULL, FULL), ((512, 64, 1), (256, 32, 1))),
    "a name that says nothing": ("triton_poi_0", (FULL, FULL), ()),
}  # fmt: skip


@pytest.mark.parametrize("case", UNTOLD)
def test_a_kernel_with_several_readings_has_no_text(case: str, tmp_path: Path) -> None:
    region = _region(tmp_path, *UNTOLD[case])
    assert region.text is None
    assert region.missing


def test_operations_that_begin_alike_are_told_apart() -> None:
    assert operations_of("triton_poi_fused_add_addmm_mul_0") == {"add", "addmm", "mul"}
    assert operations_of("triton_red_fused__softmax_sub_view_12") == {"_softmax", "sub"}
    assert operations_of("triton_poi_fused_add_mystery_3") is None
    assert operations_of("triton_poi_fused_view_3") is None


def test_the_compiled_models_norms_are_as_large_as_those_of_the_model_as_written() -> None:
    """One Llama in two recordings: what compiled kernels are read as moves the bytes of what was written."""
    _, eager = mined("llama_prefill_bf16_eager.json.gz")
    _, compiled = mined("llama_prefill_bf16_compiled.json.gz")
    for word in ("silu(gate) * up", "rsqrt("):
        shapes = [
            {(i.dtype, i.shape) for r in mining.regions if word in (r.text or "") for i in parse(r.text or "").inputs}
            for mining in (eager, compiled)
        ]
        assert shapes[0] & shapes[1], word
