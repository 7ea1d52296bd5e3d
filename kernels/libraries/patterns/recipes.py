"""By-hand forms of operations that a library has a call for, as terms: what is looked for anywhere in a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from kernels.libraries.patterns.products import PRODUCT, SEGMENT_MEANS
from kernels.libraries.patterns.rows import ADD_NORMS, normalised, squared
from kernels.libraries.patterns.terms import (
    Bound,
    Constant,
    Fixed,
    Leaf,
    Listed,
    Term,
    Viewed,
    With,
    call,
    either,
    part,
)
from profiler.region.graph.nodes import name_of, shape, value
from profiler.region.language.vocabulary import DTYPE_NAMES

X, W, A, B, S = Leaf("x"), Leaf("weight"), Leaf("a"), Leaf("b"), Leaf("scale")
ANY = Constant()
BLOCK = 128
"""Numbers that share a scale in block-wise formats."""
VIEWS = ("view", "_unsafe_view", "reshape")
WHOLE = (*VIEWS, "expand", "unsqueeze", "squeeze")


@dataclass(frozen=True, slots=True)
class Recipe:
    """One by-hand form. settled: what is bound -> the match's roles, None where it only looks alike. shared: roles of
    inner results that others may read too: the library's call gives them as well.
    """

    kind: str
    title: str
    terms: tuple[Term, ...]
    settled: Callable[[Bound], Mapping[str, Any] | None] | None = None
    shared: frozenset[str] = frozenset()


def _narrow(*names: str) -> Callable[[Bound], Mapping[str, Any] | None]:
    """Roles whose tensors must be one-byte numbers of these dtypes."""
    return lambda bound: bound if all(_dtype(bound[n]) in ("f8e4m3", "f8e5m2") for n in names) else None


def _dtype(node: Any) -> str:
    return DTYPE_NAMES.get(value(node).dtype, "")


def _turned(term: Term) -> Term:
    """The term transposed, or as it is."""
    return either(call("t", term), call("transpose", term, dim0=Fixed((0, -2)), dim1=Fixed((1, -1))), term)


def _cast(term: Term, role: str = "") -> Term:
    """A conversion that terms do not look through: from a one-byte number, or to one."""
    return call("_to_copy|to", term, dtype=ANY, layout=ANY, device=ANY, pin_memory=ANY, non_blocking=ANY,
                memory_format=ANY, role=role)  # fmt: skip


def _dequantised(x: str, scale: str) -> Term:
    return call("mul", _cast(Leaf(x)), Leaf(scale))


FP8_GEMM = either(
    call("mm", _dequantised("a", "scale_a"), _turned(_dequantised("b", "scale_b"))),
    call("mul", call("mul", call("mm", _cast(A), _turned(_cast(B))), Leaf("scale_a")), Leaf("scale_b")),
)


def _row_scales(bound: Bound) -> Mapping[str, Any] | None:
    """Scales of one number each, or one a row of a and one a column of the product."""
    m, n = shape(bound["a"])[0], 0
    b = shape(bound["b"])
    n = b[0] if b[1] == shape(bound["a"])[1] else b[1]
    fitting = prod(shape(bound["scale_a"])) in (1, m) and prod(shape(bound["scale_b"])) in (1, n)
    turned = b[1] == shape(bound["a"])[1]
    return {**bound, "b_turned": turned} if fitting and _narrow("a", "b")(bound) else None


def _blocks(x: str, scale: str) -> Term:
    """Views as blocks of 128 along the row, each with its scale."""
    blocks = call("view|reshape", _cast(Leaf(x)), size=ANY, role=f"{x}_blocks")
    scales = either(call("unsqueeze", Leaf(scale), dim=ANY), Leaf(scale))
    return Viewed(call("mul", blocks, scales))


BLOCK_GEMM = call("mm", _blocks("a", "scale_a"), _turned(_blocks("b", "scale_b")))


def _block_scales(bound: Bound) -> Mapping[str, Any] | None:
    facts = {"block": shape(bound["a_blocks"])[-1], "b_turned": shape(bound["b"])[1] == shape(bound["a"])[1]}
    return {**bound, **facts} if _narrow("a", "b")(bound) else None


INT8_GEMM = call("mm", _cast(A), _turned(_cast(B)))


def _bytes(bound: Bound) -> Mapping[str, Any] | None:
    turned = shape(bound["b"])[1] == shape(bound["a"])[1]
    return {**bound, "b_turned": turned} if all(_dtype(bound[n]) == "i8" for n in "ab") else None


LORA = call("mm", Viewed(call("mm", X, _turned(A)), role="inner"), _turned(B))
ACTED = either(*(
    Viewed(call(name, Viewed(call("mm", X, _turned(A))), role="inner", **options))
    for name, options in (("relu|silu|tanh|sigmoid|square", {}), ("gelu", {"approximate": Fixed(("none", "tanh"))}))
))  # fmt: skip
CHAIN = call("mm", ACTED, _turned(B))


def _lora(bound: Bound) -> Mapping[str, Any] | None:
    """The inner size is the smallest: two thin products."""
    x, rank = shape(bound["x"]), shape(bound["inner"])[-1]
    return {**bound, "rank": rank} if rank < x[-1] else None


def _hidden(bound: Bound) -> Mapping[str, Any]:
    return {**bound, "hidden": shape(bound["inner"])[-1]}


GEMM_REDUCTION = either(
    call("logsumexp", either(PRODUCT, call("mul", PRODUCT, ANY)), dim=ANY, keepdim=ANY),
    call("amax|amin|argmin|argmax", PRODUCT, dim=ANY, keepdim=ANY),
    call("sum|mean", PRODUCT, dim=ANY, keepdim=ANY, dtype=ANY),
    call("_softmax|_log_softmax", PRODUCT, dim=ANY, half_to_float=ANY),
    part(call("native_layer_norm", PRODUCT, normalized_shape=ANY, weight=either(W, ANY), bias=either(Leaf("bias"), ANY),
              eps=ANY), 0),
    call("rms_norm", PRODUCT, shape=ANY, weight=either(W, ANY), eps=ANY),
)  # fmt: skip
MOE = call(
    "_grouped_mm|grouped_mm",
    call("mul", call("silu", call("_grouped_mm|grouped_mm", X, Leaf("gate"), offs=Leaf("ends"))),
         call("_grouped_mm|grouped_mm", X, Leaf("up"), offs=Leaf("ends"))),
    Leaf("down"), offs=Leaf("ends"),
)  # fmt: skip


KL = either(
    call("mul", call("exp", Leaf("target")), call("sub", Leaf("target"), X)),
    call("sub", call("xlogy", Leaf("target"), Leaf("target")), call("mul", Leaf("target"), X)),
    call("mul", Leaf("target"), call("sub", call("log", Leaf("target")), X)),
)
KL_LOSS = either(call("div", call("sum", KL, dim=ANY, dtype=ANY), Constant("batch")), call("mean", KL, dtype=ANY),
                 call("sum", KL, dtype=ANY))  # fmt: skip
PAIR_LOSS = call(
    "mean|sum",
    either(squared(call("sub", X, Leaf("target"))), call("abs", call("sub", X, Leaf("target")))),
    dtype=ANY,
)


def _flat_mean(x: Term) -> Term:
    return call("mean", x, dim=Constant("dim"), keepdim=True)


GROUPED = call("view|reshape", X, size=ANY, role="groups")
GROUP_CENTRE = call("sub", GROUPED, _flat_mean(GROUPED))
GROUP_SPREAD = either(
    _flat_mean(squared(GROUP_CENTRE)),
    call("var", GROUPED, dim=Constant("dim"), correction=0, keepdim=True),
)
SPREAD_WEIGHT, SPREAD_BIAS = Viewed(W, WHOLE), Viewed(Leaf("bias"), WHOLE)
GROUP_NORM = call(
    "add", call("mul", Viewed(normalised(GROUP_CENTRE, GROUP_SPREAD)), SPREAD_WEIGHT), SPREAD_BIAS,
)  # fmt: skip


def _group_norm(bound: Bound) -> Mapping[str, Any] | None:
    x, groups = shape(bound["x"]), shape(bound["groups"])
    fitting = len(x) > 2 and len(groups) == 3 and groups[0] == x[0] and x[1] % groups[1] == 0
    vectors = all(prod(shape(bound[n])) == x[1] for n in ("weight", "bias"))
    return {**bound, "num_groups": groups[1], "group_elements": groups[2]} if fitting and vectors else None


PLANE_MEAN = call("mean", X, dim=Fixed(([0, 2, 3], [0, 2], [0, 2, 3, 4])), keepdim=True)
BATCH_CENTRE = call("sub", X, PLANE_MEAN)
BATCH_SPREAD = either(
    call("mean", squared(BATCH_CENTRE), dim=Fixed(([0, 2, 3], [0, 2], [0, 2, 3, 4])), keepdim=True),
    call("var", X, dim=Fixed(([0, 2, 3], [0, 2], [0, 2, 3, 4])), correction=0, keepdim=True),
)
BATCH_NORM = call("add", call("mul", normalised(BATCH_CENTRE, BATCH_SPREAD), SPREAD_WEIGHT), SPREAD_BIAS)

MASKED = either(
    call("masked_fill", X, Leaf("mask"), value=ANY), call("where", Leaf("mask"), X, ANY),
    call("where", Leaf("mask"), X, call("scalar_tensor|full", ANY, dtype=ANY, layout=ANY, device=ANY, pin_memory=ANY)),
    call("add", X, Leaf("mask")), call("mul", X, Constant("factor")), call("div", X, Constant("factor")),
    call("masked_fill", call("mul|div", X, Constant("factor")), Leaf("mask"), value=ANY),
)  # fmt: skip
MASKED_SOFTMAX = call("_softmax", MASKED, dim=Constant("dim"), half_to_float=ANY)

ABSOLUTE_MOST = call("amax", call("abs", X), dim=ANY, keepdim=ANY)
MOST = either(ABSOLUTE_MOST, call("clamp", ABSOLUTE_MOST, ANY, max=None), call("clamp_min", ABSOLUTE_MOST, ANY),
              call("max", call("abs", X)))  # fmt: skip
SCALE = Viewed(either(call("div", MOST, Constant("largest"), role="scale_result"),
                      call("mul", MOST, ANY, role="scale_result"), MOST), WHOLE)  # fmt: skip
SCALED = either(call("div", X, SCALE), call("mul", X, call("reciprocal", SCALE)),
                call("div", X, Leaf("scale")), call("mul", X, Leaf("scale")))  # fmt: skip
ROUNDED = either(call("round", SCALED), SCALED)
QUANTISED = _cast(either(call("clamp", ROUNDED, ANY, max=ANY), ROUNDED), role="stored")


def _quantised(bound: Bound) -> Mapping[str, Any] | None:
    """To one-byte numbers. block: of how many numbers each scale is, where x is a view of blocks; 0 else."""
    stored, x = _dtype(bound["stored"]), bound["x"]
    if stored not in ("f8e4m3", "f8e5m2", "i8", "u8") or ("largest" not in bound and "scale" not in bound):
        return None
    block = shape(x)[-1] if name_of(x) in VIEWS and shape(x)[-1] <= BLOCK else 0
    return {**bound, "to": stored, "block": block}


ADAM_M = either(
    call("add", call("mul", Leaf("m"), Constant("beta1")), call("mul", Leaf("g"), ANY), role="m_new"),
    call("lerp", Leaf("m"), Leaf("g"), ANY, role="m_new"),
)
ADAM_V = either(
    call("add", call("mul", Leaf("v"), Constant("beta2")), call("mul", squared(Leaf("g")), ANY), role="v_new"),
    call("add", call("mul", Leaf("v"), Constant("beta2")), call("mul", call("mul", Leaf("g"), ANY), Leaf("g")),
         role="v_new"),
    call("addcmul", call("mul", Leaf("v"), Constant("beta2")), Leaf("g"), Leaf("g"), value=ANY, role="v_new"),
)  # fmt: skip
UNBIASED = (either(ADAM_M, call("div", ADAM_M, ANY)), either(ADAM_V, call("div", ADAM_V, ANY)))
STEP_SIZE = call("add", call("sqrt", UNBIASED[1]), Constant("eps"))
OLD = either(call("mul", Leaf("p"), ANY), Leaf("p"))
ADAM = either(
    call("sub", OLD, call("div", call("mul", UNBIASED[0], ANY), STEP_SIZE)),
    call("sub", OLD, call("mul", call("div", UNBIASED[0], STEP_SIZE), ANY)),
    call("addcdiv", OLD, UNBIASED[0], STEP_SIZE, value=ANY),
)

SHARES = call("_softmax", Leaf("x"), dim=ANY, half_to_float=ANY)
ROUTER = call("topk", either(SHARES, call("sigmoid", Leaf("x"))), k=Constant("k"), dim=ANY)
SORTED = call("sort", SHARES, dim=ANY, descending=True, role="sorted")
ORDERED = part(SORTED, 0)
SUMMED = call("cumsum", ORDERED, dim=ANY)
BEYOND = either(call("gt", call("sub", SUMMED, ORDERED), Constant("p")), call("gt", SUMMED, Constant("p")))
NOTHING = either(call("zeros_like", ORDERED, pin_memory=ANY), Fixed((0, 0.0)), call("scalar_tensor", ANY, dtype=ANY,
                 layout=ANY, device=ANY))  # fmt: skip
KEPT = either(call("where", BEYOND, NOTHING, ORDERED), call("masked_fill", ORDERED, BEYOND, value=ANY))
CHOSEN = either(KEPT, call("div", KEPT, call("sum", KEPT, dim=ANY, keepdim=True)))
TOP_P = call("gather", part(SORTED, 1), dim=ANY, index=call("multinomial", CHOSEN, Constant("samples")))
PERMUTED = call("index", X, indices=Listed((Viewed(either(
    part(call("sort", Viewed(Leaf("experts")), dim=ANY), 1),
    call("floor_divide", part(call("sort", Viewed(Leaf("experts")), dim=ANY), 1), Constant("k")),
    call("div", part(call("sort", Viewed(Leaf("experts")), dim=ANY), 1), Constant("k"), rounding_mode="floor"),
)),)))  # fmt: skip

PADDED = call("constant_pad_nd", X, pad=ANY, value=Fixed((0, 0.0)), role="padded")
CAUSAL_CONV = call(
    "convolution", PADDED, W, bias=either(Leaf("bias"), Fixed((None,))), stride=Fixed(([1],)), padding=Fixed(([0],)),
    dilation=Fixed(([1],)), transposed=False, output_padding=Fixed(([0],)), groups=Constant("groups"),
)  # fmt: skip
CUT_CONV = call(
    "slice",
    call("convolution", X, W, bias=either(Leaf("bias"), Fixed((None,))), stride=Fixed(([1],)),
         padding=either(*(With(Fixed(([p],)), {"margin": p}) for p in range(1, 8))), dilation=Fixed(([1],)),
         transposed=False, output_padding=Fixed(([0],)), groups=Constant("groups")),
    dim=Fixed((2, -1)), start=Fixed((0, None)), end=ANY, role="cut",
)  # fmt: skip
CAUSAL_CONVS = either(CAUSAL_CONV, CUT_CONV)
CAUSAL = either(With(call("silu", CAUSAL_CONVS), {"activation": "silu"}), With(CAUSAL_CONVS, {"activation": None}))


def _causal(bound: Bound) -> Mapping[str, Any] | None:
    """Padded on the left by the filter's width less one, or on both sides and cut; one filter a channel."""
    x, w = shape(bound["x"]), shape(bound["weight"])
    deep = len(x) == 3 and w[1] == 1 and w[0] == x[1] == bound["groups"]
    if "cut" in bound:
        left = bound["margin"] == w[-1] - 1 and shape(bound["cut"])[-1] == x[-1]
    else:
        left = list(bound["padded"].args[1]) == [w[-1] - 1, 0]
    return {"bias": None, **bound, "width": w[-1]} if deep and left else None


def _segments(bound: Bound) -> Mapping[str, Any]:
    return {"x": bound["values"], **bound}


DROPPED = part(call("native_dropout", either(call("add", X, Leaf("bias")), X), p=Constant("p"), train=True), 0)
DROP_NORM = part(
    call("native_layer_norm", call("add", DROPPED, Leaf("residual"), role="sum"), normalized_shape=Constant("width"),
         weight=either(W, ANY), bias=either(Leaf("shift"), ANY), eps=Constant("eps")), 0,
)  # fmt: skip

EVEN = call("slice", X, dim=ANY, start=Fixed((0,)), end=ANY, step=2)
ODD = call("slice", X, dim=ANY, start=1, end=ANY, step=2)
COS, SIN = Leaf("cos"), Leaf("sin")
INTERLEAVED = Viewed(call("stack", Listed((
    call("sub", call("mul", EVEN, COS), call("mul", ODD, SIN)),
    either(call("add", call("mul", EVEN, SIN), call("mul", ODD, COS)),
           call("add", call("mul", ODD, COS), call("mul", EVEN, SIN))),
)), dim=ANY))  # fmt: skip
LINEAR_ATTENTION = call("bmm", Viewed(Leaf("q"), WHOLE), Viewed(call(
    "bmm", Viewed(call("transpose", Leaf("k"), dim0=ANY, dim1=ANY), WHOLE), Viewed(Leaf("v"), WHOLE), role="state"),
    WHOLE))  # fmt: skip

RECIPES: tuple[Recipe, ...] = (
    Recipe("fp8_gemm", "fp8 GEMM by hand", (FP8_GEMM,), _row_scales),
    Recipe("fp8_block_gemm", "fp8 GEMM with a scale a block", (BLOCK_GEMM,), _block_scales),
    Recipe("int8_gemm", "int8 GEMM by hand", (INT8_GEMM,), _bytes),
    Recipe("gemm_chain", "two products with an activation", (CHAIN,), _hidden),
    Recipe("lora", "low-rank product", (LORA,), _lora),
    Recipe("gemm_reduction", "GEMM with a reduction", (GEMM_REDUCTION,)),
    Recipe("moe_mlp", "MoE experts", (MOE,)),
    Recipe("add_rms_norm", "residual add and RMSNorm", ADD_NORMS, shared=frozenset({"sum"})),
    Recipe("kl_div", "KL divergence", (KL_LOSS,)),
    Recipe("pair_loss", "loss of pairs", (PAIR_LOSS,)),
    Recipe("group_norm", "GroupNorm by hand", (GROUP_NORM,), _group_norm),
    Recipe("batch_norm", "BatchNorm by hand", (BATCH_NORM,)),
    Recipe("masked_softmax", "scaled or masked softmax", (MASKED_SOFTMAX,)),
    Recipe("quantise", "quantisation", (QUANTISED,), _quantised, frozenset({"scale_result"})),
    Recipe("optimizer", "Adam step", (ADAM,), shared=frozenset({"m_new", "v_new"})),
    Recipe("router", "softmax and top-k", (ROUTER,)),
    Recipe("top_p_sampling", "top-p sampling by a sort", (TOP_P,)),
    Recipe("moe_permute", "rows in the order of their experts", (PERMUTED,)),
    Recipe("segment", "mean of each segment", (SEGMENT_MEANS,), _segments),
    Recipe("causal_conv1d", "causal convolution", (CAUSAL,), _causal),
    Recipe("dropout_add_norm", "dropout, residual and LayerNorm", (DROP_NORM,), shared=frozenset({"sum"})),
    Recipe("rope", "RoPE, interleaved", (With(INTERLEAVED, {"interleaved": True}),)),
    Recipe("linear_attention", "linear attention", (LINEAR_ATTENTION,)),
)  # fmt: skip
