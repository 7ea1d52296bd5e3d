"""A library's call far above its floor is told of, with what to change and what that saves; one near it is left."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app.advice.model import Advice
from app.advice.off_floor import FAR, KERNEL_US, call_floor_us
from app.analysis.advice_inputs import TraceFacts
from app.analysis.analyze import AdviceContext, decide, prepare
from kernels.calibrate import points
from profiler.hardware import Device, find_device
from profiler.region import op_kinds
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from profiler.region.model import ITEMSIZE, Binding, Workload
from tests.app.advice.cases import H200
from tests.kernels.libraries.hosts import BARE_H200

RECORDED = Path(points.__file__).resolve().parent / "recorded"
HEAD = "x: bf16[8192, 768]\nw: bf16[{n}, 768]\nreturn F.linear(x, w)\n"
ATTENTION = """q: bf16[8, 16, 2048, 64]
k: bf16[8, 16, 2048, 64]
v: bf16[8, 16, 2048, 64]
m: {m}
return F.scaled_dot_product_attention(q, k, v, attn_mask=m)
"""
PATCHES = "x: bf16[64, 3, 224, 224]\nw: bf16[768, 3, 16, 16]\nb: bf16[768]\nreturn F.conv2d(x, w, b, stride=16)\n"
IMAGES = "x: {d}[64, {c}, 56, 56]{l}\nw: {d}[128, {c}, 3, 3]\nreturn F.conv2d(x, w, padding=1)\n"
SLOW = ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>",)
FAST = ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128>",)


def advised(
    text: str, time_us: float, kernels: tuple[str, ...] = (), share: float | None = 0.3, observed: bool = True,
    device: str = "H200", predicted: bool = False,
) -> Advice:  # fmt: skip
    """The advice on a region that a trace saw take so long."""
    card = find_device(device)
    assert card is not None
    workload = Workload((Binding((), 1.0, time_us),), 10 * time_us, share, observed=observed)
    context = AdviceContext(facts=TraceFacts(kernel_names=kernels, share_predicted=predicted or None), host=BARE_H200)
    return decide(prepare(parse(text), workload, card, context)).advice


def test_a_vocabulary_of_50257_is_padded_and_one_of_50304_is_left() -> None:
    odd = advised(HEAD.format(n=50257), 5000.0)
    assert (odd.tool, odd.mode) == ("library", "padding")
    assert "50,257 to 50,304" in odd.headline and "times its floor" in odd.headline
    assert odd.region_speedup is not None and odd.region_speedup.mid > 3.0
    assert "times its floor" not in advised(HEAD.format(n=50304), 5000.0).headline  # far, and nobody knows why
    assert not any("compile" in note or "pad them" in note for note in odd.notes), "of what is not advised any more"
    near = advised(HEAD.format(n=50257), 1100.0)
    assert "times its floor" not in near.headline


def test_a_stored_mask_as_large_as_the_scores_is_said_and_one_of_a_row_is_not() -> None:
    dense = advised(ATTENTION.format(m="bf16[2048, 2048]"), 2500.0)
    assert dense.mode == "mask" and "is_causal=True" in dense.action and "mask_mod" in dense.action
    assert "Where the mask is the causal one" in dense.action, "the trace does not show what the mask holds"
    assert dense.region_speedup is not None
    assert dense.region_speedup.low == pytest.approx(1.0) and dense.region_speedup.mid > 2
    assert "assumption that the mask is the causal one" in dense.action
    padding = advised(ATTENTION.format(m="bf16[8, 1, 1, 2048]"), 2500.0)
    assert padding.mode != "mask"


def test_a_convolution_at_500_times_its_floor_without_tensor_cores_is_no_call_to_keep() -> None:
    advice = advised(IMAGES.format(d="bf16", c=64, l=""), 20000.0, ("implicit_convolve_sgemm<float, 1024>",))
    assert (advice.tool, advice.mode) == ("library", "layout")
    assert "without tensor cores" in advice.headline and "channels_last" in advice.call
    fast = advised(IMAGES.format(d="bf16", c=64, l=""), 20000.0, ("sm90_xmma_fprop_implicit_gemm_bf16",))
    assert "without tensor cores" not in fast.headline


DEPTHWISE = "x: {x}\nw: {w}\nreturn F.{call}(x, w, stride={stride}, padding={padding}, groups={groups})\n"
GENERIC = ("void conv_depthwise2d_forward_kernel_generic<float, int>",)


@pytest.mark.parametrize(
    ("shape", "remedy"),
    [
        # A filter of 5 that steps by two, one of a row, one of 9 in f32, and two filters a channel.
        (("bf16[64, 384, 28, 28]", "bf16[384, 1, 5, 5]", "conv2d", "2", "2", "384"), "channels_last"),
        (("bf16[64, 384, 28, 28]", "bf16[384, 1, 1, 21]", "conv2d", "1", "(0, 10)", "384"), "channels_last"),
        (("f32[64, 384, 28, 28]", "f32[384, 1, 9, 9]", "conv2d", "1", "4", "384"), "channels_last"),
        (("bf16[64, 32, 112, 112]", "bf16[64, 1, 3, 3]", "conv2d", "1", "1", "32"), "channels_last"),
        (("bf16[8, 2048, 4096]", "bf16[2048, 1, 4]", "conv1d", "1", "3", "2048"), "cudnn.benchmark"),
    ],
)
def test_a_depthwise_convolution_of_another_shape_far_above_its_floor_is_told_with_its_remedy(
    shape: tuple[str, ...], remedy: str
) -> None:
    """None of these has a kernel of this project: the call's own remedy comes before one that is to be written."""
    text = DEPTHWISE.format(**dict(zip(("x", "w", "call", "stride", "padding", "groups"), shape, strict=True)))
    advice = advised(text, 9000.0, GENERIC)
    assert advice.tool == "library" and "times its floor, without tensor cores" in advice.headline
    assert remedy in advice.call
    near = advised(text, 60.0, GENERIC)
    assert "times its floor" not in near.headline


@pytest.mark.parametrize("more", ["", ".requires_grad"])
def test_a_depthwise_convolutions_floor_is_the_vector_units(more: str) -> None:
    """No library sums a filter's 49 taps on tensor cores: ConvNeXt's in cuDNN's kernel is 3 times its floor, not 13."""
    x, w = f"bf16[64, 96, 56, 56].channels_last{more}", f"bf16[96, 1, 7, 7]{more}"
    for groups, rate in ((96, H200.f32_rate), (1, H200.matmul_rate("bf16"))):
        filters = w if groups > 1 else w.replace("96, 1, 7", "96, 96, 7")
        text = DEPTHWISE.format(x=x, w=filters, call="conv2d", stride=1, padding=3, groups=groups)
        graph = lower(parse(text))
        calls = [o for o in graph.operations if o.kind == op_kinds.CONVOLUTION]
        assert len(calls) == 1 + bool(more)
        for call in calls:
            moved = sum(t.bytes for t in (*call.reads, *call.writes))
            wanted = 1e6 * max(moved / H200.copy_rate, call.flops / rate)
            assert call_floor_us(call, H200) == pytest.approx(wanted)
    one = DEPTHWISE.format(x=x, w=w, call="conv2d", stride=1, padding=3, groups=96)
    assert "times its floor" not in advised(one, 739.0 if more else 202.0, ("conv2d_c1_k1_nhwc_specialized",)).headline


def test_a_depthwise_convolution_with_a_measured_kernel_is_told_the_kernel() -> None:
    text = DEPTHWISE.format(
        x="bf16[64, 384, 28, 28]", w="bf16[384, 1, 7, 7]", call="conv2d", stride="1", padding="3", groups="384"
    )
    assert (advised(text, 9000.0, GENERIC).tool, advised(text, 9000.0, GENERIC).mode) == ("triton", "depthwise_conv")


def test_a_time_that_is_predicted_is_not_told_as_one_that_is_far_from_its_floor() -> None:
    image = IMAGES.format(d="f32", c=64, l="")
    assert "times its floor" in advised(image, 20000.0).headline
    predicted = advised(image, 20000.0, predicted=True)
    assert "times its floor" not in predicted.headline and "It takes" not in predicted.action


def test_a_filter_as_large_as_its_stride_is_a_matrix_product() -> None:
    advice = advised(PATCHES, 582.0)
    assert advice.mode == "call" and "F.linear" in advice.call
    assert advice.region_speedup is not None and advice.region_speedup.mid > 4


def test_what_has_no_price_says_so_and_promises_nothing() -> None:
    text = "x: f32[2, 3, 64, 64, 64]\nw: f32[16, 3, 5, 5, 5]\nreturn F.conv3d(x, w)\n"
    advice = advised(text, 90000.0, ("void implicit_convolve_sgemm<float>",))
    assert advice.tool == "library"
    if advice.region_speedup is None:
        assert "cannot be said" in advice.action and "predicted" not in advice.headline


def test_a_remedy_is_never_predicted_below_the_floor_of_what_it_makes() -> None:
    advice = advised(HEAD.format(n=50257), 15000.0)
    padded = lower(parse(HEAD.format(n=50304)))
    device = find_device("H200")
    assert device is not None and advice.region_speedup is not None
    floor = sum(call_floor_us(o, device) for o in padded.operations if o.kind == op_kinds.GEMM)
    assert 15000.0 / advice.region_speedup.high >= 0.999 * floor


@pytest.mark.parametrize("why", ["a small share", "nothing measured"])
def test_what_is_not_worth_it_or_not_measured_is_no_finding(why: str) -> None:
    share, observed = (0.001, True) if why == "a small share" else (0.3, False)
    advice = advised(HEAD.format(n=50257), 5000.0, share=share, observed=observed)
    assert "times its floor" not in advice.headline


def test_a_product_on_an_amd_gpu_is_tuned_by_timing_and_on_nvidias_nothing_is_made_up() -> None:
    text = "x: bf16[15360, 4096]\nw: bf16[24576, 4096]\nreturn F.linear(x, w)\n"
    amd = advised(
        text, 6768.0, ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x256x32_MI16x16x1",), device="MI300X"
    )
    assert "TunableOp" in amd.action and amd.region_speedup is None
    near = advised(text, 4500.0, ("Cijk_Alik_Bljk_BBS",), device="MI300X")
    assert near.headline == "Already hipBLASLt's or rocBLAS's kernel"
    assert advised(text, 20000.0, ("nvjet_sm90_tst",)).headline == "Already cuBLAS"


def test_products_of_f32_are_not_told_to_pad_for_16_bytes() -> None:
    text = HEAD.format(n=50257).replace("bf16", "f32")
    assert advised(text, 60000.0).mode != "padding"


def test_only_a_weights_output_size_is_called_a_vocabulary() -> None:
    inner = advised("x: bf16[8192, 1001]\nw: bf16[4096, 1001]\nreturn F.linear(x, w)\n", 700.0)
    assert inner.mode == "padding" and "vocabulary" not in inner.action
    assert inner.call.startswith("weight = F.pad(weight, (0, 23))") and "activations" in inner.call
    assert inner.region_speedup is not None and inner.region_speedup.low == pytest.approx(1.0)
    head = advised(HEAD.format(n=50257), 5000.0)
    assert "vocabulary" in head.action and "(0, 0, 0, 47)" in head.call


def test_a_batched_product_of_activations_pads_them_and_has_no_weight() -> None:
    scores = advised("x: bf16[128, 1023, 64]\ny: bf16[128, 64, 1023]\nreturn torch.bmm(x, y)\n", 700.0)
    assert scores.mode == "padding" and "weight" not in scores.call + scores.action
    assert scores.call.startswith("a, b = F.pad(a, (0, 0, 0, 1)), F.pad(b, (0, 1))")
    assert "vocabulary" not in scores.action and "copy" in scores.action
    values = "x: bf16[64, 2047, 2047]\ny: bf16[64, 2047, 64]\nreturn torch.bmm(x, y)\n"
    assert advised(values, 600.0).mode != "padding", "the copies cost what it saves"
    assert advised(values, 4000.0).call.startswith("a, b = F.pad(a, (0, 1, 0, 1)), F.pad(b, (0, 0, 0, 1))")


def test_on_an_amd_gpu_a_convolution_is_miopens_and_has_no_price_of_nvidias() -> None:
    text = IMAGES.format(d="bf16", c=64, l="")
    advice = advised(text, 20000.0, ("naive_conv_nonpacked_fwd_nchw_ushort_double_ushort",), device="MI300X")
    assert advice.mode == "layout" and "MIOpen" in advice.action and "cuDNN" not in advice.action + advice.headline
    assert advice.region_speedup is None and "cannot be said" in advice.action
    assert "predicted" not in advice.headline


def test_a_bias_of_every_head_is_never_said_to_be_causal() -> None:
    bias = advised(ATTENTION.format(m="bf16[8, 16, 2048, 2048]"), 9000.0)
    assert "score_mod" in bias.action and "is_causal" not in bias.action + bias.call
    assert bias.region_speedup is None and "predicted" not in bias.headline


def test_padded_channels_are_predicted_within_what_their_images_take_to_copy() -> None:
    text = (
        "x: bf16[64, 3, 224, 224].channels_last\nw: bf16[64, 3, 3, 3].channels_last\nreturn F.conv2d(x, w, padding=1)\n"
    )
    advice = advised(text, 9000.0, ("implicit_convolve_sgemm<float>",))
    assert advice.mode == "padding" and "from 3 to 8" in advice.action
    card = find_device("H200")
    assert card is not None and advice.region_speedup is not None
    pixels, written = 64 * 224 * 224, 64 * 224 * 224 * (8 + 8 + 64)  # the copy, then image and result
    assert 9000.0 / advice.region_speedup.mid > 1e6 * 2 * (3 * pixels + written) / card.memory_rate


def recorded(every: int) -> Iterator[tuple[Device, str, float]]:
    """Every n-th recorded single product: device, text, µs."""
    for file in ("h100.jsonl.gz", "h200.jsonl.gz"):
        with gzip.open(RECORDED / file, "rt") as lines:
            rows = [json.loads(line) for line in lines]
        device = find_device(rows[0]["device"])
        assert device is not None
        products = [r for r in rows[1:] if r.get("mode") == "eager" and r["family"] in ("gemm", "product", "matmul")]
        products = products or [r for r in rows[1:] if r.get("mode") == "eager" and "@" in r["text"]]
        for row in products[::every]:
            yield device, row["text"], row["cold_us"]


def test_the_threshold_of_products_stands_between_aligned_and_other_rows_of_the_recording() -> None:
    aligned, odd = [], []
    for device, text, time_us in recorded(3):
        operations = [o for o in lower(parse(text)).operations if o.kind not in (op_kinds.VIEW, op_kinds.CONSTANT)]
        if len(operations) != 1 or operations[0].kind != op_kinds.GEMM:
            continue
        operation = operations[0]
        floor = call_floor_us(operation, device)
        dtype = operation.reads[0].dtype
        if floor < 20 or dtype not in ("f16", "bf16"):
            continue
        rows = [t.shape[-1] * ITEMSIZE[dtype] % 16 for t in (*operation.reads, *operation.writes) if len(t.shape) > 1]
        (odd if any(rows) else aligned).append(time_us / (floor + KERNEL_US))
    assert len(aligned) > 20 and len(odd) > 5
    assert np.percentile(aligned, 95) < FAR[op_kinds.GEMM] < np.percentile(odd, 50)


@pytest.mark.parametrize("more", ["", ".requires_grad"])
@pytest.mark.parametrize(
    ("text", "depthwise"),
    [
        ("x: f32[8, 64, 32, 32]{g}\nw: f32[64, 1, 4, 4]\nreturn F.conv_transpose2d(x, w)\n", False),
        ("x: f32[8, 64, 32, 32]{g}\nw: f32[64, 1, 4, 4]\nreturn F.conv_transpose2d(x, w, groups=64)\n", True),
        ("x: f32[8, 64, 128]{g}\nw: f32[64, 1, 4]\nreturn F.conv_transpose1d(x, w)\n", False),
        ("x: f32[8, 64, 128]{g}\nw: f32[128, 1, 4]\nreturn F.conv1d(x, w, groups=64)\n", True),
        ("x: f32[8, 1, 32, 32]{g}\nw: f32[64, 1, 4, 4]\nreturn F.conv2d(x, w)\n", False),
    ],
    ids=["transposed to one channel", "transposed", "transposed to one channel, 1d", "two filters a channel", "grey"],
)
def test_a_sum_over_channels_goes_by_tensor_cores(text: str, depthwise: bool, more: str) -> None:
    calls = [o for o in lower(parse(text.format(g=more))).operations if o.kind == op_kinds.CONVOLUTION]
    assert len(calls) == 1 + bool(more)
    for call in calls:
        rate = H200.f32_rate if depthwise else H200.matmul_rate("tf32")
        moved = sum(t.bytes for t in (*call.reads, *call.writes))
        wanted = 1e6 * max(moved / H200.copy_rate, call.flops / rate)
        assert call_floor_us(call, H200) == pytest.approx(wanted)


def test_an_image_that_is_its_own_filter_has_a_floor() -> None:
    (call,) = (o for o in lower(parse("x: f32[4, 4, 8, 8]\nreturn F.conv2d(x, x)\n")).operations
               if o.kind == op_kinds.CONVOLUTION)  # fmt: skip
    assert call_floor_us(call, H200) > 0
