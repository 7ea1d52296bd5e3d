"""Hand-counted cases: bytes, launches, FLOPs, savings with their counting, and the floor."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from profiler.hardware import find_device
from profiler.region.cost import bound, cost, floor_us
from profiler.region.cost_model import Cost
from profiler.region.graph import lower
from profiler.region.text import parse
from tests.profiler.region import texts


def counted(text: str) -> Cost:
    return cost(lower(parse(text)))


N = 8192 * 16384 * 2
BIAS = 16384 * 2


def test_example_counts_seven_three_and_two_n() -> None:
    savings = {s.name: s for s in counted(texts.EXAMPLE).savings}
    alone, epilogue = savings["tail-fused"], savings["tail-epilogue"]
    assert alone.bytes_before == 7 * N + BIAS
    assert alone.bytes_after == 3 * N + BIAS
    assert epilogue.bytes_before == 7 * N + BIAS
    assert epilogue.bytes_after == 2 * N + BIAS
    assert alone.share_saved == pytest.approx(4 / 7, abs=1e-4)
    assert epilogue.share_saved == pytest.approx(5 / 7, abs=1e-4)
    assert (alone.launches_before, alone.launches_after, epilogue.launches_after) == (4, 2, 1)
    assert "not counted" in alone.counting
    assert "registers" in epilogue.counting


def test_example_operations_each_alone() -> None:
    operations = {o.label: o for o in counted(texts.EXAMPLE).operations if o.launches}
    x, w = 8192 * 4096 * 2, 4096 * 16384 * 2
    assert (operations["matmul"].bytes_read, operations["matmul"].bytes_written) == (x + w, N)
    assert (operations["add"].bytes_read, operations["add"].bytes_written) == (N + BIAS, N)
    assert (operations["gelu"].bytes_read, operations["gelu"].bytes_written) == (N, N)
    assert (operations["mul"].bytes_read, operations["mul"].bytes_written) == (2 * N, N)
    assert operations["matmul"].flops == 2 * 8192 * 4096 * 16384


def test_bool_mask_saves_less() -> None:
    text = texts.EXAMPLE.replace("mask: bf16", "mask: bool")
    saving = next(s for s in counted(text).savings if s.name == "tail-epilogue")
    assert saving.bytes_before == 6.5 * N + BIAS
    assert saving.bytes_after == 1.5 * N + BIAS


def test_rms_norm_by_hand_fuses_to_one_read_and_one_write() -> None:
    found = counted(texts.RMS_NORM)
    x = 4 * 2048 * 2048 * 2
    assert found.fused.launches == 1
    assert found.fused.bytes_moved == found.ideal.bytes_moved == 2 * x + 2048 * 2
    # to 1+2, pow 2+2, mean 2, mul 1+1, mul 1+1 of x; per row: mean 4, add 8, rsqrt 8, to 6, mul 2; and the weight
    assert found.unfused.bytes_moved == 13 * x + 4 * 2048 * 28 + 2048 * 2
    assert found.unfused.launches == 8


def test_views_cost_nothing_and_broadcast_reads_once() -> None:
    found = counted("x: f32[4, 1].strides(1, 1)\ny = x.expand(4, 1000).transpose(0, 1)\nreturn y + 1.0\n")
    add = next(o for o in found.operations if o.label == "add")
    assert add.bytes_read == 4 * 4
    assert add.bytes_written == 4000 * 4
    assert sum(o.launches for o in found.operations) == 1


def test_in_place_mutation_is_a_write() -> None:
    found = counted("x: f32[1000]\ny: f32[1000]\nz = x.add_(y)\nreturn z\n")
    assert found.unfused.bytes_read == 8000
    assert found.unfused.bytes_written == 4000
    assert found.ideal.bytes_moved == 12000


def test_gather_counts_the_rows_picked_not_the_table() -> None:
    found = counted("w: bf16[50000, 1024]\ni: i64[8].below(50000)\nreturn embedding(i, w) * 2.0\n")
    assert found.ideal.bytes_read == 8 * 8 + 8 * 1024 * 2
    assert found.kernels[0].bytes_moved == 8 * 8 + 2 * 8 * 1024 * 2


def test_two_axes_cannot_share_a_kernel() -> None:
    found = counted("x: bf16[512, 512]\nreturn x.float().sum(0), x.float().sum(1)\n")
    assert found.fused.launches == 3  # Inductor splits the sum over rows
    assert found.ideal.bytes_moved == 512 * 512 * 2 + 2 * 512 * 4


@pytest.mark.parametrize(
    ("text", "launches"),
    [(texts.EXAMPLE, 2), (texts.LAYER_NORM, 1), (texts.SWIGLU, 1), (texts.ROPE, 1), (texts.ADAM, 1),
     (texts.ATTENTION, 3), (texts.GELU_TANH, 1)],
)  # fmt: skip
def test_launches_after_fusion(text: str, launches: int) -> None:
    assert counted(text).fused.launches == launches


@pytest.mark.parametrize("text", [texts.EXAMPLE, texts.ATTENTION, texts.CAUSAL])
def test_matrix_flops_equal_torchs_counter(text: str) -> None:
    graph = lower(parse(text))
    with graph.program.mode, FlopCounterMode(display=False) as counter, torch.no_grad():
        graph.program.module(*graph.program.inputs)
    assert cost(graph).gemm_flops == counter.get_total_flops()


def test_floor_is_the_larger_of_bytes_and_flops() -> None:
    device = find_device("NVIDIA H200")
    assert device is not None
    example, norm = counted(texts.EXAMPLE), counted(texts.RMS_NORM)
    assert bound(example, device) == "compute"
    assert floor_us(example, device) == pytest.approx(1e6 * 2 * 8192 * 4096 * 16384 / 790e12, rel=1e-6)
    assert bound(norm, device) == "memory"
    assert floor_us(norm, device) == pytest.approx(1e6 * norm.ideal.bytes_moved / 4.3e12, rel=1e-6)


def test_depthwise_backward_counts_its_own_channels_only() -> None:
    text = (
        "x: bf16[64, 96, 56, 56].requires_grad.channels_last\nw: bf16[96, 1, 7, 7].requires_grad\n"
        "return conv2d(x, w, groups=96, padding=3)\n"
    )
    one = 2 * 64 * 96 * 56 * 56 * 49
    assert counted(text).gemm_flops == 3 * one


def test_f32_convolution_runs_in_tf32_and_a_product_does_not() -> None:
    device = find_device("NVIDIA H200")
    assert device is not None
    conv = counted("x: f32[8, 64, 56, 56]\nw: f32[64, 64, 3, 3]\nreturn conv2d(x, w)\n")
    product = counted("x: f32[512, 512]\nreturn x @ x\n")
    assert (conv.matmul_dtype, product.matmul_dtype) == ("tf32", "f32")
    assert device.matmul_rate("tf32") > device.matmul_rate("f32")


def test_sdpa_in_training_is_costed_as_attention() -> None:
    qkv = "".join(f"{n}: bf16[4, 16, 2048, 128].requires_grad\n" for n in "qkv")
    found = counted(qkv + "return scaled_dot_product_attention(q, k, v)\n")
    forward = 4 * 4 * 16 * 2048 * 2048 * 128
    assert found.gemm_flops == forward + forward * 5 // 2
    assert [k.kind for k in found.kernels] == ["attention", "attention"]
