"""Operands of library calls, against the aten graph of the same region and against the wrapper's lines."""

from __future__ import annotations

import math
import re
from collections import Counter

import pytest

from profiler.oracle.inductor import pipeline
from profiler.oracle.inductor.answer import predict, read
from profiler.oracle.inductor.schemas import parameters_of
from profiler.oracle.inductor.symbolic import recompiles
from profiler.oracle.inductor.wrapper import read_wrapper
from profiler.oracle.model import CallSite, Extern, Operand, Prediction
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from tests.profiler.oracle.asking import UNEVEN, device, text

CALLING = [
    "samples/linear_bias_relu", "samples/batched_product", "samples/two_products", "samples/int8_product",
    "samples/conv_relu", "samples/conv_channels_last", "samples/sdpa_mask", "samples/sdpa_causal", "samples/attention",
    "samples/einsum_scores", "samples/odd_rows_linear", "causal_conv1d_silu", "moe_router_softmax_topk", "fft_conv",
    "top_p_sampling_sort", "paged_decode_attention", "fp32_matmul_no_tf32", "lm_head_ce_fits_memory",
    "training/conv_relu", "training/sdpa_causal", "training/gelu_linear", "training/layer_norm_call",
    "training/attention_by_hand", "training/embedding", "training/two_products",
]  # fmt: skip


def externs(region: str, mode: str = "default") -> dict[str, Extern]:
    answer = predict(parse(region), None, device(), mode)
    assert not answer.unavailable
    return {e.name: e for e in answer.externs}


def site(region: str, name: str, mode: str = "default") -> CallSite:
    """The one call of a name."""
    (only,) = externs(region, mode)[name].sites
    return only


AUTOTUNED = [
    "samples/einsum_scores",
    "samples/sdpa_mask",
    "moe_router_softmax_topk",
    "training/sdpa_causal",
    "fft_conv",
]


@pytest.mark.parametrize(
    ("name", "mode"), [*((n, "default") for n in CALLING), *((n, "max-autotune") for n in AUTOTUNED)]
)
def test_every_library_call_has_its_operands(name: str, mode: str) -> None:
    output = pipeline.ask(parse(text(name)), None, device(), mode)
    lines = "\n".join(w.text[w.text.index("def call(") : w.text.index("def get_args")] for w in output.texts)
    called = Counter(re.findall(r"(?:extern_kernels|torch\.ops\.aten)\.([a-z]\w*|_[a-z]\w*)(?:\.\w+)?\(", lines))
    answer = read(output, Prediction("", mode, {}, False))
    for extern in answer.externs:
        assert len(extern.sites) == extern.calls
        for described in extern.sites:
            assert described.inputs and described.outputs, extern.name
            assert len(described.parameters) == len(described.inputs)
            assert all(len(o.shape) == len(o.stride) for o in described.operands)
    named = Counter[str]()
    for extern in answer.externs:
        if extern.name not in ("sum", "zero_"):
            named[extern.name.removeprefix("aten.")] += extern.calls
    assert named == called


PRODUCTS = [
    "samples/linear_bias_relu", "samples/two_products", "fp32_matmul_no_tf32", "samples/int8_product",
    "lm_head_ce_fits_memory", "training/two_products", "training/gelu_linear",
]  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_have_the_shapes_that_the_aten_graph_multiplies(name: str) -> None:
    written = Counter(
        (o.reads[-2].shape, o.reads[-1].shape, o.writes[0].shape)
        for o in lower(parse(text(name))).operations
        if re.fullmatch(r"aten\.(add|_int_)?mm\.default", o.target)
    )
    answer = predict(parse(text(name)), None, device())
    called = Counter(
        (s.inputs[-2].shape, s.inputs[-1].shape, s.outputs[0].shape)
        for e in answer.externs
        for s in e.sites
        if e.name in ("mm", "addmm", "bias_addmm", "_int_mm")
    )
    assert called == written and called


def test_a_transposed_weight_is_passed_as_a_view() -> None:
    called = site("x: bf16[512, 256]\nw: bf16[1024, 256]\nb: bf16[1024]\nreturn F.linear(x, w, b)\n", "addmm")
    assert called.parameters == ("self", "mat1", "mat2")
    assert called.input("mat2") == Operand("bf16", (256, 1024), (1, 256))
    assert called.input("self") == Operand("bf16", (1024,), (1,))
    assert called.outputs == (Operand("bf16", (512, 1024), (1024, 1)),)


def test_a_padded_product_has_the_padded_operands() -> None:
    called = site(UNEVEN, "mm")
    assert [o.shape for o in called.operands] == [(4096, 1024), (1024, 2048), (4096, 2048)] or [
        o.shape for o in called.operands
    ] == [(4095, 1024), (1024, 2048), (4095, 2048)]
    assert all(o.stride[-2] % 8 == 0 for o in called.inputs), "rows begin at multiples of 16 bytes"


def test_a_convolution_is_laid_out_as_inductor_chose() -> None:
    called = site(text("samples/conv_relu"), "convolution")
    image, weight, result = called.operands
    assert (image.shape, image.stride) == ((32, 64, 56, 56), (64 * 56 * 56, 1, 64 * 56, 64)), "channels last"
    assert (weight.shape, weight.stride) == ((128, 64, 3, 3), (64 * 9, 1, 64 * 3, 64))
    assert (result.shape, result.stride) == ((32, 128, 56, 56), (128 * 56 * 56, 1, 128 * 56, 128)), "as cuDNN leaves it"
    assert called.constant("bias", "passed") is None, "the bias is added by the kernel that follows"


def test_a_convolution_has_the_constants_of_the_aten_graph() -> None:
    region = "x: f32[8, 32, 40, 40]\nw: f32[64, 8, 3, 5]\n"
    region += "return F.conv2d(x, w, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=4)\n"
    (node,) = (n for n, name in lower(parse(region)).named_calls if name == "convolution")
    called = site(region, "convolution")
    order = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    written = [tuple(a) if isinstance(a, list) else a for a in node.args[3:9]]
    assert [called.constant(name) for name in order] == written
    assert called.operands[-1].shape == tuple(node.meta["val"].shape)


def test_a_transposed_convolution_says_so() -> None:
    region = "x: bf16[4, 32, 20, 20]\nw: bf16[32, 16, 4, 4]\nreturn F.conv_transpose2d(x, w, stride=2, padding=1)\n"
    assert site(region, "convolution").constant("transposed") is True


@pytest.mark.parametrize("causal", [True, False])
def test_attention_says_whether_it_is_causal_and_how_it_is_scaled(causal: bool) -> None:
    heads = "".join(f"{n}: bf16[2, 8, 512, 64]\n" for n in "qkv")
    region = f"{heads}return F.scaled_dot_product_attention(q, k, v, is_causal={causal}, scale=0.25)\n"
    called = site(region, "aten._scaled_dot_product_flash_attention")
    assert called.parameters == ("query", "key", "value")
    assert (called.constant("is_causal"), called.constant("scale")) == (causal, 0.25)
    assert {o.shape for o in called.inputs} == {(2, 8, 512, 64)} == {called.outputs[0].shape}


def test_attention_with_a_mask_has_it_among_its_operands() -> None:
    called = site(text("samples/sdpa_mask"), "aten._scaled_dot_product_efficient_attention")
    mask = called.input("attn_bias")
    assert mask is not None and mask.shape == (4, 16, 1024, 1024)
    assert called.constant("is_causal") is False


def test_the_gradient_of_attention_has_the_result_and_its_gradient() -> None:
    backward = externs(text("training/sdpa_causal"))["aten._scaled_dot_product_flash_attention_backward"]
    (called,) = backward.sites
    assert backward.stage == "backward"
    assert called.parameters[:6] == ("grad_out", "query", "key", "value", "out", "logsumexp")
    assert called.constant("is_causal") is True and called.constant("max_q") == 2048
    assert called.inputs[-1].dtype == "uint64", "a type that the region language has no word for"


def test_a_top_k_says_how_many_and_along_which_axis() -> None:
    called = site("x: f32[4096, 128]\nv, i = torch.topk(x, 8, 1)\nreturn v, i\n", "aten.topk")
    assert (called.constant("k"), called.constant("dim"), called.constant("sorted")) == (8, 1, True)
    assert called.outputs == (Operand("f32", (4096, 8), (8, 1)), Operand("i64", (4096, 8), (8, 1)))


def test_partial_sums_are_described_by_the_part_of_the_workspace_that_they_add() -> None:
    sums = externs(text("training/layer_norm_call"))["sum"]
    assert [len(s.inputs[0].shape) for s in sums.sites] == [2, 2]
    assert all(s.inputs[0].shape[1:] == s.outputs[0].shape == (4096,) for s in sums.sites)
    assert all(s.constant("dim") == 0 and s.inputs[0].dtype == "f32" for s in sums.sites)


def test_calls_with_symbolic_sizes_have_no_operands_and_nothing_fails() -> None:
    region = parse("N: sizes[37, 911]\nx: bf16[N, 256]\nw: bf16[256, 512]\nreturn relu(x @ w)\n")
    symbolic = recompiles(region, device()).symbolic
    assert symbolic is not None
    (product,) = symbolic.externs
    assert product.sites == (CallSite(),)


BODY = """
class Runner:
    def call(self, args):
        arg0_1, arg1_1 = args
        with torch.cuda._DeviceGuard(0):
            buf0 = empty_strided_cuda((8, 4), (4, 1), torch.float16)
            extern_kernels.mm(reinterpret_tensor(buf0, (4, 8), (1, 4), 0), arg0_1, out=buf0)
            workspace_0 = empty_strided_cuda((64, ), (1, ), torch.uint8)
            workspace_0.zero_()
            workspace_0 = empty_strided_cuda((96, ), (1, ), torch.float32)
            workspace_0.zero_()
            buf1 = workspace_0[1 * (4) * (8) : (1 + 1) * (4) * (8)].view(4, 8).sum(dim=0).view([8])
            torch.ops.aten.index_put_.default(arg0_1, [None, arg1_1], buf0, True)
            buf2 = torch.ops.aten.unknown_call.default(mystery, 3)
            buf3 = torch.ops.aten.full_like.default(arg0_1, float('-inf'), dtype=torch.bfloat16, device=device('cuda'))
        return (buf1, )
"""
HELD = {"arg0_1": (Operand("bf16", (8, 16), (16, 1)),), "arg1_1": (Operand("i64", (5,), (1,)),)}


def described() -> dict[str, tuple[CallSite, ...]]:
    return {e.name: e.sites for e in read_wrapper(BODY, tensors=HELD, schema=parameters_of).externs}


def test_views_in_the_text_are_followed() -> None:
    (product,) = described()["mm"]
    assert product.operands == (Operand("f16", (4, 8), (1, 4)), *HELD["arg0_1"], Operand("f16", (8, 4), (4, 1)))


def test_a_name_means_what_it_was_last_given() -> None:
    assert [s.inputs for s in described()["zero_"]] == [
        (Operand("u8", (64,), (1,)),), (Operand("f32", (96,), (1,)),)
    ]  # fmt: skip
    (added,) = described()["sum"]
    assert (added.inputs, added.outputs) == ((Operand("f32", (4, 8), (8, 1)),), (Operand("f32", (8,), (1,)),))


def test_what_is_written_into_is_the_result_where_nothing_is_returned() -> None:
    (put,) = described()["aten.index_put_"]
    assert put.parameters == ("self", "indices", "values") and put.outputs == HELD["arg0_1"]
    assert put.constant("accumulate") is True


def test_an_unknown_operand_leaves_the_call_without_operands_and_with_its_constants() -> None:
    (unknown,) = described()["aten.unknown_call"]
    assert unknown == CallSite(constants=(("1", 3),))
    (filled,) = described()["aten.full_like"]
    assert filled.inputs == HELD["arg0_1"]
    assert (filled.constant("fill_value"), filled.constant("dtype")) == (-math.inf, "bf16")


def test_parameters_come_with_their_defaults() -> None:
    assert [p.name for p in parameters_of("extern_kernels.mm")] == ["self", "mat2"]
    assert [p.name for p in parameters_of("extern_kernels.bias_addmm")][:3] == ["self", "mat1", "mat2"]
    causal = {p.name: p for p in parameters_of("torch.ops.aten._scaled_dot_product_flash_attention.default")}
    assert causal["is_causal"].has_default and causal["is_causal"].default is False
    assert parameters_of("zero_")[0].written and not parameters_of("extern_kernels.mm")[0].written
    assert parameters_of("torch.ops.aten.no_such_call.default") == () == parameters_of("no_such_space.call")
