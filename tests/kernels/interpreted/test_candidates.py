"""Candidates of the registry, built and run: each gives what the region says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from kernels.candidates import build, candidates
from kernels.host import Host
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from profiler.region.model import Region
from tests.kernels.interpreted.checking import assert_as_exact_as_eager, inputs_of
from tests.kernels.ops.trained_regions import HEADS, TRAINED, TRAINED_HEADS

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

HOST = Host(versions={}, packages=frozenset({"torch", "triton"}), features=frozenset({"F.rms_norm"}))

REGIONS = {
    "rms_norm": "x: bf16[16, 128]\nw: bf16[128]\nv = x.float().pow(2).mean(-1, keepdim=True)\n"
    "y = (x.float() * torch.rsqrt(v + 1e-6)).to(bf16) * w\nreturn y\n",
    "rms_norm called": "x: f32[16, 128]\nw: f32[128]\ny = F.rms_norm(x, (128,), w, 1e-5)\nreturn y\n",
    "softmax": "x: f16[6, 200]\ny = torch.softmax(x, -1)\nreturn y\n",
    "attention": "q: f32[2, 2, 16, 8]\nk: f32[2, 2, 16, 8]\nv: f32[2, 2, 16, 8]\n"
    "s = q @ k.transpose(-2, -1) * 0.35\np = torch.softmax(s, -1)\ny = p @ v\nreturn y\n",
    # f16: the interpreter's products of bf16 are wrong
    "example": "x: f16[16, 32]\nw: f16[32, 64]\nb: f16[64]\nmask: f16[16, 64]\nz = x @ w\nz = z + b\n"
    "z = gelu(z)\ny = z * mask\nreturn y\n",
    "tail of three dimensions": "x: f32[2, 8, 32]\nw: f32[64, 32]\nb: f32[64]\nr: f32[2, 8, 64]\n"
    "z = F.linear(x, w, b)\ny = silu(z) + r\nreturn y\n",
    "product and residual": "x: f32[16, 32]\nw: f32[32, 64]\nr: f32[16, 64]\ny = r + x @ w\nreturn y\n",
    "layer_norm called": "x: f32[16, 128]\nw: f32[128]\nb: f32[128]\ny = F.layer_norm(x, (128,), w, b, 1e-5)\n"
    "return y\n",
    "swiglu": "a: f16[16, 64]\nb: f16[16, 64]\ny = silu(a) * b\nreturn y\n",
    "geglu": "a: f32[16, 64]\nb: f32[16, 64]\ny = F.gelu(a, approximate='tanh') * b\nreturn y\n",
    "attention with a bias": "q: f32[2, 4, 16, 8]\nk: f32[2, 4, 16, 8]\nv: f32[2, 4, 16, 8]\nm: f32[4, 16, 16]\n"
    "s = q @ k.transpose(-2, -1) * 0.35\ns = s + m\np = torch.softmax(s, -1)\ny = p @ v\nreturn y\n",
    "attention within a window": HEADS + "i = torch.arange(40)\nd = i[:, None] - i[None, :]\n"
    "s = (q @ k.transpose(-2, -1) * 0.25).masked_fill((d < 0) | (d >= 12), float('-inf'))\n"
    "y = torch.softmax(s, -1) @ v\nreturn y\n",
    "attention with a soft cap": HEADS + "m = torch.ones(40, 40, dtype=torch.bool).tril()\n"
    "s = torch.tanh(q @ k.transpose(-2, -1) * 0.25 / 5.0) * 5.0\ns = s.masked_fill(~m, float('-inf'))\n"
    "y = torch.softmax(s, -1) @ v\nreturn y\n",
    "called attention within a window": HEADS + "i = torch.arange(40)\n"
    "m = (i[:, None] >= i[None, :]) & (i[None, :] > i[:, None] - 12)\n"
    "y = F.scaled_dot_product_attention(q, k, v, attn_mask=m)\nreturn y\n",
    "causal convolution": "x: f16[2, 6, 20]\nw: f16[6, 1, 4]\ny = F.silu(F.conv1d(F.pad(x, (3, 0)), w, groups=6))\n"
    "return y\n",
    "causal convolution, cut": "x: f32[2, 6, 20]\nw: f32[6, 1, 3]\nb: f32[6]\n"
    "y = silu(F.conv1d(x, w, b, padding=2, groups=6)[..., :20])\nreturn y\n",
}


def available(text: str) -> list[str]:
    return [c.name for c in candidates(lower(parse(text)), HOST) if c.available and c.tool != "compile"]


@pytest.mark.parametrize("name", REGIONS)
def test_every_available_candidate_gives_what_the_region_says(name: str) -> None:
    text = REGIONS[name]
    found = available(text)
    assert "eager" in found
    assert "triton:generated" in found
    for candidate in found:

        def built(region: Region, candidate: str = candidate) -> Callable[..., Sequence[torch.Tensor]]:
            return build(candidate, region, {}, "cpu")

        assert_as_exact_as_eager(text, built)


def test_the_hand_written_kernels_are_offered_where_they_fit() -> None:
    for region, kernel in (
        ("layer_norm called", "layer_norm"), ("swiglu", "gated_activation"), ("geglu", "gated_activation"),
        ("example", "matmul_epilogue"), ("tail of three dimensions", "matmul_epilogue"),
        ("product and residual", "matmul_epilogue"), ("attention", "flash_attention"),
        ("attention with a bias", "flash_attention"), ("causal convolution", "causal_conv1d"),
        ("causal convolution, cut", "causal_conv1d"), ("attention within a window", "banded_attention"),
        ("attention with a soft cap", "banded_attention"), ("called attention within a window", "banded_attention"),
    ):  # fmt: skip
        assert f"triton:{kernel}" in available(REGIONS[region]), region
    assert "triton:rms_norm" in available(REGIONS["rms_norm"])
    assert "triton:rms_norm" in available(REGIONS["rms_norm called"])
    assert "triton:softmax" in available(REGIONS["softmax"])
    assert "library:torch.nn.functional.scaled_dot_product_attention" in available(REGIONS["attention"])


@pytest.mark.parametrize("grad", ["", ".requires_grad"], ids=["forward", "training"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_rms_norm_without_an_eps_takes_the_one_that_torch_takes(dtype: str, grad: str) -> None:
    """The input type's own, as the documentation has it, makes 16-bit rows of small numbers vanish."""
    text = f"x: {dtype}[8, 64]{grad}\nw: {dtype}[64]{grad}\nreturn F.rms_norm(x * 2**-6, (64,), w)\n"
    found = available(text)
    assert {"eager", "triton:generated"} <= set(found)
    for candidate in found:
        assert_as_exact_as_eager(text, lambda region, name=candidate: build(name, region, {}, "cpu"))


def test_a_residual_s_norm_needs_no_eps_to_be_one_kernel() -> None:
    """torch.nn.RMSNorm has none unless it is given one."""
    text = "x: bf16[8, 64]\nr: bf16[8, 64]\nw: bf16[64]\ns = x + r\nreturn F.rms_norm(s, (64,), w), s\n"
    assert "triton:add_rms_norm" in available(text)
    assert_as_exact_as_eager(text, lambda region: build("triton:add_rms_norm", region, {}, "cpu"))


def with_gradients(text: str, candidate: str) -> list[torch.Tensor]:
    """Results and gradients of a region's candidate, by the same inputs and upstream gradients."""
    region = parse(text)
    values = [v.requires_grad_(i.requires_grad) for v, i in zip(inputs_of(region), region.inputs, strict=True)]
    results = build(candidate, region, {}, "cpu")(*values)
    upstream = [torch.linspace(-1, 1, r.numel()).reshape(r.shape) if r.dim() else torch.ones(()) for r in results]
    torch.autograd.backward(list(results), upstream)
    return [*(r.detach() for r in results), *(v.grad for v in values if v.grad is not None)]


@pytest.mark.parametrize("name", [n for n in TRAINED if n != "dropout"])
def test_a_kernel_in_a_training_region_has_the_gradients_of_eager(name: str) -> None:
    candidate, text = TRAINED[name]
    assert candidate in available(text)
    ours, theirs = with_gradients(text, candidate), with_gradients(text, "eager")
    assert len(ours) == len(theirs) > 1
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_dropout_s_gradient_goes_where_its_result_came_from_and_each_call_draws_anew() -> None:
    _, text = TRAINED["dropout"]
    assert "triton:dropout" in available(text)
    x = torch.ones(64, 96, requires_grad=True)
    run = build("triton:dropout", parse(text), {}, "cpu")
    first, second = run(x)[0], run(x)[0]
    assert not torch.equal(first, second)
    (slope,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(slope, first.detach()), "of ones, both are 3 / (1 - p) where it is kept"
    assert sorted(first.unique().tolist()) == [0.0, 4.0]
    assert abs(float((first == 0).float().mean()) - 0.25) < 0.03
    torch.manual_seed(5)
    again = run(x)[0]
    torch.manual_seed(5)
    assert torch.equal(run(x)[0], again), "torch.manual_seed sets what is dropped"


def test_of_a_region_without_gradients_a_kernel_is_for_all_of_it() -> None:
    _, text = TRAINED["two norms with a product between"]
    assert "triton:rms_norm" not in available(text.replace(".requires_grad", ""))


def test_a_rotation_whose_cosines_are_learned_has_no_kernel() -> None:
    _, text = TRAINED["rope"]
    assert "triton:rope" not in available(text.replace("c: f32[8, 16]", "c: f32[8, 16].requires_grad"))


def test_a_loss_of_f16_has_no_kernel_where_its_scale_would_come_too_late() -> None:
    _, text = TRAINED["cross entropy"]
    narrow = text.replace("x: f32", "x: f16")
    assert "triton:cross_entropy" not in available(narrow)
    assert "triton:cross_entropy" in available(narrow.replace(".requires_grad", ""))


@pytest.mark.parametrize(
    "text",
    [
        "y = F.conv1d(x, w, padding=3, groups=6)[..., 3:]",  # sees what comes
        "y = F.conv1d(x, w, padding=3, groups=6)[..., :19]",
        "y = F.conv1d(x, w, padding=2, groups=6)[..., :20]",
        "y = F.conv1d(F.pad(x, (0, 3)), w, groups=6)",
        "y = F.silu(F.conv1d(F.pad(x, (3, 0)), w, groups=6)) * 2",
    ],
)
def test_a_convolution_that_is_not_causal_or_not_all_has_no_kernel(text: str) -> None:
    assert "triton:causal_conv1d" not in available(f"x: f32[2, 6, 20]\nw: f32[6, 1, 4]\n{text}\nreturn y\n")


def test_plain_and_causal_attention_are_no_band() -> None:
    assert "triton:banded_attention" not in available(REGIONS["attention"])
    assert "triton:banded_attention" not in available(REGIONS["attention with a bias"])


def test_values_wider_than_keys_that_lie_as_the_product_takes_them_have_no_kernel() -> None:
    text = "q: f32[1, 2, 20, 16]\nk: f32[1, 2, 16, 20]\nv: f32[1, 2, 20, {}]\n"
    text += "s = torch.tanh(q @ k * 0.25 / 5.0) * 5.0\nreturn torch.softmax(s, -1) @ v\n"
    assert "triton:banded_attention" in available(text.format(16))
    assert "triton:banded_attention" not in available(text.format(32))


def test_a_gradient_with_a_mask_that_is_a_tensor_has_no_kernel() -> None:
    text = TRAINED_HEADS + "m: f32[40, 40]\ny = F.scaled_dot_product_attention(q, k, v, attn_mask=m)\nreturn y\n"
    assert "triton:flash_attention" not in available(text)
    assert "triton:flash_attention" in available(text.replace(".requires_grad", ""))


def test_a_causal_convolution_of_five_taps_has_no_kernel() -> None:
    text = REGIONS["causal convolution"].replace("[6, 1, 4]", "[6, 1, 5]").replace("(3, 0)", "(4, 0)")
    assert "triton:causal_conv1d" not in available(text)


def test_keys_of_another_batch_are_not_handed_to_the_attention_kernel() -> None:
    text = (
        "q: f32[2, 4, 16, 8]\nk: f32[1, 1, 16, 8]\nv: f32[1, 1, 16, 8]\n"
        "k2 = k.expand(2, 4, 16, 8)\nv2 = v.expand(2, 4, 16, 8)\n"
        "s = q @ k2.transpose(-2, -1) * 0.35\np = torch.softmax(s, -1)\nreturn p @ v2\n"
    )
    if "triton:flash_attention" in available(text):
        assert_as_exact_as_eager(text, lambda region: build("triton:flash_attention", region, {}, "cpu"))
