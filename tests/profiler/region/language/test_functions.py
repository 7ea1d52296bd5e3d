"""The regions kept as text compute what their PyTorch functions do: forward, and backward where they train."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from profiler.region.graph.lowering import lower
from profiler.region.language.program import program
from profiler.region.language.text import parse, to_text
from profiler.region.language.vocabulary import DTYPE_NAMES
from profiler.region.model import Input, Region
from tests.conftest import ROOT
from tests.data.regions.functions import CASES

FOLDER = ROOT / "tests" / "regions"

LEFT_OUT = {"moe_expert_loop_sm90": "torch.where(idx == e)"}
"""Regions that the language cannot say, with the call that stands in the way."""

SMALL: dict[str, dict[int, int]] = {
    "adam_step_manual": {4096: 24}, "add_rmsnorm_residual": {2048: 6, 5120: 40}, "bias_gelu_mask": {8192: 6, 4096: 40},
    "causal_conv1d_silu": {4096: 12, 2048: 17}, "depthwise_conv2d_k3": {16: 2, 64: 6, 512: 9},
    "dropout_add_layernorm": {8192: 6, 4096: 40}, "fft_conv": {64: 3, 512: 4, 8192: 32},
    "fp32_matmul_no_tf32": {4096: 24}, "fp8_quant_per_token": {2048: 6, 5120: 40},
    "fp8_rowwise_gemm_naive": {4096: 16, 14336: 24}, "gae_tiny_share": {128: 9, 2048: 12},
    "gemm_layernorm_epilogue": {131072: 10, 256: 16}, "gemm_logsumexp": {32768: 12, 512: 16},
    "group_norm_many_groups": {128: 2, 2048: 8, 512: 2}, "int8_weight_only_decode": {4096: 16, 14336: 24},
    "jagged_mean": {131072: 40, 128: 5, 513: 7, 512: 6},
    "kv_cache_append": {131072: 30, 8: 3, 128: 5, 256: 4}, "launch_bound_tiny_chain": {4096: 40},
    "layernorm_backward_manual": {8192: 6, 4096: 40}, "linear_recurrence_loop": {64: 3, 128: 9, 256: 5},
    "lm_head_ce_fits_memory": {4096: 12, 128256: 30}, "lm_head_ce_memory_bound": {32768: 10, 4096: 12, 128256: 30},
    "manual_attention_short": {16: 2, 1024: 9}, "manual_causal_attention": {32: 3, 4096: 9},
    "manual_layernorm": {8192: 6, 1024: 40}, "moe_router_softmax_topk": {16384: 12, 128: 20},
    "outer_dim_softmax_short": {32: 8, 2097152: 24}, "paged_decode_attention": {32: 3, 128: 4, 8192: 20, 16: 2},
    "pointwise_chain_12": {4096: 6, 16384: 40}, "rmsnorm_channel_dim": {32: 2, 64: 6, 512: 5},
    "rmsnorm_manual_fwd": {2048: 6, 4096: 40}, "rope_rotate_half": {4: 2, 32: 3, 2048: 5},
    "softmax_rows_128k": {4096: 5, 131072: 50}, "softmax_rows_1M_few": {1048576: 60},
    "softmax_rows_4k": {16384: 5, 4096: 50}, "sparsemax_sort_bound": {2048: 5, 32768: 20, 32769: 21},
    "square_gemm_8k": {8192: 24}, "swiglu_act_fwd_bwd": {3072: 6, 12288: 40},
    "tiny_hidden_fused_mlp": {1048576: 20, 64: 16}, "top_p_sampling_sort": {128: 6, 131072: 30},
    "two_axis_reduction": {16384: 24},
    "w4a16_decode_m16": {16: 3, 4096: 256, 14336: 24, 2048: 128, 32: 2},
    "w4a16_prefill_m2048": {4096: 256, 14336: 24, 2048: 128, 32: 2},
}  # fmt: skip
"""Sizes of the text and of the function's arguments -> small ones. Sizes that the functions hold as numbers stay."""

RANDOM = ("dropout_add_layernorm", "top_p_sampling_sort")


NAMES = sorted(p.stem for p in FOLDER.glob("*.txt"))


def text_of(name: str) -> str:
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def small(name: str) -> Region:
    sizes = SMALL[name]
    # whole numbers only: not the digits of 0.088, nor of bf16
    swap = re.compile(r"(?<![\w.])\d+(?![\w.])")
    return parse(swap.sub(lambda m: str(sizes.get(int(m[0]), int(m[0]))), text_of(name)), name)


def random_input(item: Input, positive: bool) -> torch.Tensor:
    shape = tuple(int(s) for s in item.shape)
    dtype = next(d for d, n in DTYPE_NAMES.items() if n == item.dtype)
    if item.offsets is not None:
        inner = torch.randperm(item.offsets - 1)[: shape[0] - 2].sort().values + 1
        return torch.cat((torch.tensor([0]), inner, torch.tensor([item.offsets]))).to(dtype)
    if item.below is not None:
        return torch.randint(0, item.below, shape, dtype=dtype)
    if item.dtype in ("i8", "u8"):
        return torch.randint(-128 if item.dtype == "i8" else 0, 128 if item.dtype == "i8" else 256, shape, dtype=dtype)
    made = torch.randn(shape)
    return (made.abs() if positive else made).to(dtype)


def inputs_of(region: Region) -> list[torch.Tensor]:
    return [random_input(i, region.name == "adam_step_manual") for i in region.inputs]


def outputs_of(value: Any) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def run(name: str, function: Callable[..., Any], inputs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Outputs; then the gradients of what requires them, for upstream gradients that depend on the name alone."""
    region = small(name)
    given = [x.clone().requires_grad_(i.requires_grad) for x, i in zip(inputs, region.inputs, strict=True)]
    torch.manual_seed(7)
    outputs = outputs_of(function(*given))
    if not region.requires_grad:
        return outputs
    gradients = torch.autograd.grad(outputs, [x for x in given if x.requires_grad], upstream_of(outputs))
    return (*(o.detach() for o in outputs), *gradients)


def upstream_of(outputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(11)
    return [torch.randn(o.shape, generator=generator).to(o.dtype) for o in outputs]


def same(got: tuple[torch.Tensor, ...], want: tuple[torch.Tensor, ...]) -> None:
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype
        as_numbers = (g.float(), w.float()) if "float8" in str(g.dtype) else (g, w)
        torch.testing.assert_close(*as_numbers)


def test_all_but_the_named_regions_are_here() -> None:
    assert len(CASES) == 44
    assert set(CASES) - set(NAMES) == set(LEFT_OUT)
    assert set(NAMES) == set(SMALL)


def test_docs_say_what_is_left_out_and_what_it_needs() -> None:
    docs = (ROOT / "docs" / "region-language.md").read_text(encoding="utf-8")
    for name, call in LEFT_OUT.items():
        row = next(line for line in docs.splitlines() if name in line)
        assert call in row
        assert "depend on" in row


def test_region_left_out_is_refused_for_the_reason_given() -> None:
    from profiler.region.model import RegionError

    text = "x: bf16[16, 8]\nidx: i64[16, 2].below(4)\nt, k = torch.where(idx == 0)\nreturn x[t]\n"
    with pytest.raises(RegionError) as caught:
        program(parse(text))
    assert caught.value.line == 3
    assert "depends on the data" in caught.value.message


@pytest.mark.parametrize("name", NAMES)
def test_inputs_are_those_of_the_function(name: str) -> None:
    region, case = parse(text_of(name), name), CASES[name]
    for item, given in zip(region.inputs, case.arguments, strict=True):
        assert (item.dtype, item.shape) == (DTYPE_NAMES[given.dtype], given.shape)
        assert item.requires_grad == (case.backward and given.dtype.is_floating_point)
        assert item.strides is None
        assert given.below == (item.below if item.offsets is None else item.offsets)


@pytest.mark.parametrize("name", NAMES)
def test_text_is_canonical_after_one_print(name: str) -> None:
    region = parse(text_of(name), name)
    assert parse(to_text(region)) == region
    assert to_text(parse(to_text(region))) == to_text(region)


@pytest.mark.parametrize("name", NAMES)
def test_text_computes_what_the_function_does(name: str) -> None:
    torch.manual_seed(3)
    region = small(name)
    assert max(s for i in region.inputs for s in i.shape) < 5000
    inputs = inputs_of(region)
    same(run(name, program(region).module, inputs), run(name, CASES[name].function, inputs))


@pytest.mark.parametrize("name", [n for n in NAMES if n not in RANDOM])
def test_aten_graph_computes_what_the_function_does(name: str) -> None:
    torch.manual_seed(5)
    region = small(name)
    inputs = inputs_of(region)
    want = run(name, CASES[name].function, inputs)
    count = len(region.outputs)
    upstream = upstream_of(want[:count]) if region.requires_grad else []
    same(tuple(lower(region).module(*inputs, *upstream)), want)


def test_dropout_drops_as_often_as_the_function_does() -> None:
    torch.manual_seed(1)
    region = small("dropout_add_layernorm")
    inputs = inputs_of(region)
    built, function = program(region).module, CASES["dropout_add_layernorm"].function
    ours = torch.stack([built(*inputs)[0].float() for _ in range(400)])
    theirs = torch.stack([function(*inputs).float() for _ in range(400)])
    spread = theirs.std(0) / 400**0.5
    assert ((ours.mean(0) - theirs.mean(0)).abs() <= 6 * spread + 1e-3).all()
    assert not torch.equal(ours[0], ours[1])


def test_samples_come_as_often_as_the_function_s() -> None:
    torch.manual_seed(2)
    region = small("top_p_sampling_sort")
    inputs = inputs_of(region)
    built, function = program(region).module, CASES["top_p_sampling_sort"].function
    rounds, words = 1500, int(region.inputs[0].shape[-1])
    ours = torch.stack([built(*inputs)[0][:, 0] for _ in range(rounds)])
    theirs = torch.stack([function(*inputs)[:, 0] for _ in range(rounds)])
    counts = [torch.nn.functional.one_hot(d, words).sum(0).double() for d in (ours, theirs)]
    rate = (counts[0] + counts[1]) / (2 * rounds)
    spread = (2 * rounds * rate * (1 - rate)).sqrt()
    assert ((counts[0] - counts[1]).abs() <= 5 * spread + 1).all()
    assert ((counts[0] > 0) == (counts[1] > 0)).float().mean() > 0.9
