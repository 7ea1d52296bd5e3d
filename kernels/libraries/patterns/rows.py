"""How a region says what our kernels over rows and planes compute: norms, softmax, top-k, sums, tails, RoPE."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from kernels.libraries.fits import DTYPES
from kernels.libraries.launchers import Launcher, Pattern
from kernels.libraries.model import Facts
from kernels.libraries.patterns.terms import (
    Bound,
    Call,
    Constant,
    Fixed,
    Leaf,
    Listed,
    Term,
    Viewed,
    With,
    call,
    either,
    last,
    part,
    positive,
)
from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match, Role, node_of
from profiler.region.graph.nodes import shape, value

X, WEIGHT = Leaf("x"), Leaf("weight")
ANY = Constant()
Roles = Mapping[str, Any]


def squared(x: Term) -> Term:
    """x² as it is written."""
    return either(call("pow", x, exponent=2), call("square", x), call("mul", x, x))


def inverse_root(x: Term) -> Term:
    """1 / sqrt(x)."""
    return either(call("rsqrt", x), call("reciprocal", call("sqrt", x)), call("pow", x, exponent=-0.5))


def normalised(centre: Term, spread: Term) -> Term:
    """centre / sqrt(spread + eps)."""
    total = call("add", spread, Constant("eps"))
    return either(call("mul", centre, inverse_root(total)), call("div", centre, call("sqrt", total)))


def rms(x: Term) -> Term:
    """x / sqrt(mean(x²) + eps) over `dim`."""
    return normalised(x, call("mean", squared(x), dim=Constant("dim"), keepdim=True))


SUM = call("add", X, Leaf("residual"), role="sum")
NORMED = rms(SUM)
ADD_NORMS: tuple[Term, ...] = (
    call("mul", NORMED, WEIGHT),
    NORMED,
    call("rms_norm", SUM, shape=Constant("width"), weight=WEIGHT, eps=Constant("eps")),
    call("rms_norm", SUM, shape=Constant("width"), weight=None, eps=Constant("eps")),
)


def _add_norm(bound: Bound) -> Roles | None:
    x = bound["x"]
    rows = shape(x) == shape(bound["residual"]) and last(bound.get("dim", -1), x)
    weight = bound.get("weight")
    fitting = weight is None or shape(weight) == shape(x)[-1:]
    if not rows or not shape(x):
        return None
    width = bound.get("width", shape(x)[-1])
    return {"weight": None, **bound} if fitting and width == shape(x)[-1] and bound["eps"] > 0 else None


WHOLE_VIEWS = ("view", "_unsafe_view", "reshape", "unsqueeze", "expand")
AXIS_WEIGHT = Viewed(WEIGHT, WHOLE_VIEWS, role="shown")


def _channel_norm(bound: Bound) -> Roles | None:
    x, weight = bound["x"], bound.get("weight")
    axis = positive(bound["dim"], x)
    if axis < 0 or axis == len(shape(x)) - 1 or not bound["eps"] > 0:
        return None
    if weight is not None:
        channels = shape(x)[axis]
        along = (channels, *(1 for _ in shape(x)[axis + 1 :]))
        sizes = shape(bound["shown"])
        if shape(weight) != (channels,) or sizes[-len(along) :] != along or any(s != 1 for s in sizes[: -len(along)]):
            return None
    return {"weight": None, **bound, "dim": axis}


def _softmax_axis(graph: Graph, match: Match) -> Mapping[str, Role] | None:
    """The last axis is another kernel's, but for a result that is wider than the operand."""
    x, result = node_of(graph, match.roles["x"]), node_of(graph, match.output)
    if x is None or result is None:
        return None
    widen = value(x).element_size() < value(result).element_size()
    axis = positive(match.roles["dim"], x)
    return {**match.roles, "dim": axis, "widen": widen} if widen or not last(axis, x) else None


TOP = call("topk", X, k=Constant("k"), dim=Constant("dim"), largest=True, sorted=True)


def _top(bound: Bound) -> Roles | None:
    return bound if last(bound["dim"], bound["x"]) else None


def _top_limits(facts: Facts, graph: Graph) -> str:
    return "" if 1 <= facts.roles["k"] <= 256 else f"takes k up to 256, not {facts.roles['k']}"


SHARES = call("_softmax", X, dim=Constant("dim"), half_to_float=ANY, role="shares")
LIKELIEST = call("topk", SHARES, k=Constant("k"), dim=Constant("top_dim"), largest=True, sorted=True)
LARGEST = call("topk", X, k=Constant("k"), dim=Constant("top_dim"), largest=True, sorted=True)
CHOSEN = part(LIKELIEST, 0)
RENORMALISED = either(
    call("div", CHOSEN, call("sum", CHOSEN, dim=Constant("sum_dim"), keepdim=True)),
    call("_softmax", part(LARGEST, 0), dim=Constant("dim"), half_to_float=ANY),
)
WEIGHTS = either(With(CHOSEN, {"renormalise": False}), With(RENORMALISED, {"renormalise": True}))


def _router(bound: Bound) -> Roles | None:
    x = bound["x"]
    return bound if all(last(bound.get(d, -1), x) for d in ("dim", "top_dim", "sum_dim")) else None


def _router_limits(facts: Facts, graph: Graph) -> str:
    if facts.sizes["x"][-1] > 1024 or not 1 <= facts.roles["k"] <= 64:
        return f"takes up to 1024 experts and k up to 64, not {facts.sizes['x'][-1]} and {facts.roles['k']}"
    rounded = facts.dtypes.get("shares", "f32")
    return "" if rounded == "f32" else f"chosen among shares rounded to {rounded}"


def _last_axis(bound: Bound) -> Roles | None:
    return bound if last(bound["dim"], bound["x"]) else None


def _two_axes(bound: Bound) -> Roles | None:
    x = bound["x"]
    right = len(shape(x)) == 2 and (positive(bound["first"], x), positive(bound["other"], x)) == (0, 1)
    return bound if right else None


SHIFTED = call("add", Leaf("z"), Leaf("bias"))
ACTIVATED = either(
    With(call("gelu", SHIFTED), {"activation": "gelu"}),
    With(call("gelu", SHIFTED, approximate="tanh"), {"activation": "gelu_tanh"}),
    With(call("relu", SHIFTED), {"activation": "relu"}),
    With(call("silu", SHIFTED), {"activation": "silu"}),
)


def _tail(bound: Bound) -> Roles | None:
    z, mask = bound["z"], bound.get("mask")
    fitting = len(shape(z)) > 1 and shape(bound["bias"]) == shape(z)[-1:]
    return {"mask": None, **bound} if fitting and (mask is None or shape(mask) == shape(z)) else None


def _tail_limits(facts: Facts, graph: Graph) -> str:
    mask = facts.dtypes.get("mask", "bool")
    return "" if mask in ("bool", facts.dtypes["z"]) else f"a mask of {mask}"


def _half(x: Term, index: int) -> Term:
    """The first or the second half of x along the last axis: a slice, or a part of a split or chunk."""
    half = Constant("half")
    start, end = (half, ANY) if index else (Fixed((0, None)), half)
    return either(
        call("slice", x, dim=Constant(f"dim_{index}"), start=start, end=end),
        part(call("split", x, split_size=half, dim=Constant(f"dim_{index}")), index),
    )


def _turned(x: Leaf) -> Call:
    rotated = call("cat", Listed((call("neg", _half(x, 1)), _half(x, 0))), dim=Constant("cat_dim"))
    cos, sin = (either(call("unsqueeze", Leaf(t), dim=1, role=f"{t}_shown"), Leaf(t)) for t in ("cos", "sin"))
    return call("add", call("mul", x, cos), call("mul", rotated, sin))


Q, K = Leaf("q"), Leaf("k")


def _rope(bound: Bound) -> Roles | None:
    q = bound["q"]
    if len(shape(q)) != 4 or not all(last(bound[d], q) for d in ("cat_dim", "dim_0", "dim_1")):
        return None
    if 2 * bound["half"] != shape(q)[-1]:
        return None
    k = bound.get("k")
    if k is not None and (len(shape(k)) != 4 or (shape(k)[0], *shape(k)[2:]) != (shape(q)[0], *shape(q)[2:])):
        return None
    for table in ("cos", "sin"):
        sizes, shown = shape(bound[table]), f"{table}_shown" in bound
        if sizes[-2:] != shape(q)[-2:] or (shown and (len(sizes) != 3 or sizes[0] not in (1, shape(q)[0]))):
            return None
        if not shown and len(sizes) != 2:
            return None
    return {"k": None, **bound}


BIAS = Leaf("bias")


def _activated(term: Term) -> Term:
    """The term behind an activation, or by itself."""
    return either(
        With(call("silu", term), {"activation": "silu"}), With(call("relu", term), {"activation": "relu"}),
        With(call("gelu", term), {"activation": "gelu"}),
        With(call("gelu", term, approximate="tanh"), {"activation": "gelu_tanh"}), With(term, {"activation": ""}),
    )  # fmt: skip


def _group_norm(**given: Term | None) -> Term:
    sizes = {"N": ANY, "C": ANY, "HxW": ANY, "group": Constant("groups"), "eps": Constant("eps")}
    return part(Call(("native_group_norm",), (X,), {**given, **sizes}), 0)


def _batch_norm(**given: Term | None) -> Term:
    stored = {"running_mean": Leaf("mean"), "running_var": Leaf("variance"), "momentum": ANY, "eps": Constant("eps")}
    return either(
        part(Call(("native_batch_norm",), (X,), {**given, **stored, "training": False}), 0),
        part(Call(("_native_batch_norm_legit_no_training",), (X,), {**given, **stored}), 0),
    )


AFFINE: tuple[Mapping[str, Term | None], ...] = ({"weight": WEIGHT, "bias": BIAS}, {"weight": None, "bias": None})


def _channels(bound: Bound) -> Roles | None:
    """Vectors as long as there are channels, a residual as large as x, planes of a layout that the kernels keep."""
    x = bound["x"]
    size = shape(x)
    vectors = [bound[v] for v in ("weight", "bias", "mean", "variance") if bound.get(v) is not None]
    if len(size) < 2 or any(shape(v) != size[1:2] for v in vectors) or not bound["eps"] > 0:
        return None
    if "residual" in bound and shape(bound["residual"]) != size:
        return None
    if not value(x).is_contiguous() and len(size) != 4:
        return None
    return {"weight": None, "bias": None, "residual": None, **bound}


def _vectors_limits(facts: Facts, graph: Graph) -> str:
    given = [d for v in ("weight", "bias", "mean", "variance") if (d := facts.dtypes.get(v)) is not None]
    other = sorted(set(given) - DTYPES)
    return f"vectors of {', '.join(other)}" if other else ""


def _quantised(norm: Term) -> tuple[Term, Term]:
    """Codes of 8 bits of a norm, each row by its largest number, and the rows' scales."""
    largest = call("clamp", call("amax", call("abs", norm), dim=Constant("dim"), keepdim=True), min=Constant("least"))
    scale = either(call("div", largest, Fixed((448.0,))), call("mul", largest, Fixed((1 / 448.0,))))
    y = either(call("div", norm, scale), call("mul", norm, call("reciprocal", scale)))
    return _code(y), scale


def _code(y: Term) -> Term:
    return call("_to_copy", call("clamp", y, min=Fixed((-448.0,)), max=Fixed((448.0,))),
                dtype=Fixed((torch.float8_e4m3fn,)))  # fmt: skip


def _norms(x: Term) -> tuple[Term, ...]:
    """Of the last axis, as calls: RMSNorm and LayerNorm, with vectors and without."""
    width, eps = Constant("width"), Constant("eps")
    rms = (call("rms_norm", x, shape=width, weight=w, eps=eps) for w in (WEIGHT, None))
    layer = (
        part(Call(("native_layer_norm",), (x,), {"normalized_shape": width, **given, "eps": eps}), 0)
        for given in AFFINE
    )
    return *(With(n, {"centered": False}) for n in rms), *(With(n, {"centered": True}) for n in layer)


def _quantised_patterns() -> tuple[Pattern, ...]:
    """What a region may give of codes, scales and the sum with a residual."""
    patterns = []
    for norm in _norms(X):
        codes, scale = _quantised(norm)
        given = _code(call("div", norm, Leaf("scale")))
        patterns += [Pattern((codes, scale), (0, 1)), Pattern((given,))]
    for norm in _norms(SUM):
        codes, scale = _quantised(norm)
        given = _code(call("div", norm, Leaf("scale")))
        patterns += [Pattern((codes, scale, SUM), (0, 1, 2)), Pattern((given, SUM), (0, 2))]
    return tuple(patterns)


LEAST = 1e-12
"""What a row's largest number is at least where the region has none, because its scale is given: the kernel's own."""


def _norm_quantise(bound: Bound) -> Roles | None:
    x, scale = bound["x"], bound.get("scale")
    width = shape(x)[-1:]
    vectors = [bound[v] for v in ("weight", "bias") if bound.get(v) is not None]
    fitting = width == (bound["width"],) and all(shape(v) == width for v in vectors) and bound["eps"] > 0
    if not fitting or ("residual" in bound and shape(bound["residual"]) != shape(x)):
        return None
    if scale is None and not (last(bound["dim"], x) and 0 < bound["least"] < math.inf):
        return None
    if scale is not None and (value(scale).numel() != 1 or value(scale).dtype != torch.float32):
        return None
    absent = {"weight": None, "bias": None, "residual": None, "scale": None}
    return {**absent, "least": LEAST, **bound, "scales": "row" if scale is None else "tensor"}


DY = Leaf("dy")
AXIS = Constant("dim")
CENTRED = call("sub", X, call("mean", X, dim=AXIS, keepdim=True))
SPREAD = either(
    call("var", X, dim=AXIS, correction=0, keepdim=True), call("mean", squared(CENTRED), dim=AXIS, keepdim=True)
)
STANDARD = normalised(CENTRED, SPREAD)
WEIGHTED = call("mul", DY, WEIGHT)
ALONG = call("mul", STANDARD, call("mean", call("mul", WEIGHTED, STANDARD), dim=AXIS, keepdim=True))
LAYER_NORM_GRADIENTS: tuple[Term, ...] = (
    normalised(call("sub", call("sub", WEIGHTED, call("mean", WEIGHTED, dim=AXIS, keepdim=True)), ALONG), SPREAD),
    call("sum", call("mul", DY, STANDARD), dim=Constant("rows"), dtype=ANY),
    call("sum", DY, dim=Constant("rows"), dtype=ANY),
)


def _layer_norm_backward(bound: Bound) -> Roles | None:
    x = bound["x"]
    fitting = len(shape(x)) == 2 and shape(bound["dy"]) == shape(x) and shape(bound["weight"]) == shape(x)[1:]
    axes = (positive(bound["rows"], x), positive(bound["dim"], x))
    return {"mean": None, "rstd": None, **bound} if fitting and axes == (0, 1) and bound["eps"] > 0 else None


ROWS: tuple[Launcher, ...] = (
    Launcher(
        "triton:add_rms_norm", "add_rms_norm", "add_rms_norm", ("x", "residual", "weight", "eps"), ("x", "x"),
        tuple(Pattern((norm, SUM), (0, 1)) for norm in ADD_NORMS), _add_norm, ("x", "residual", "weight"),
        frozenset({"eps"}),
    ),
    Launcher(
        "triton:rope", "rope", "rope", ("q", "k", "cos", "sin"), ("q", "q"),
        (Pattern((_turned(Q), _turned(K)), (0, 1)), Pattern((_turned(Q),))), _rope, ("q", "k", "cos", "sin"),
        strided=("q", "k"), paired="k", trained=True, untrained=("cos", "sin"),
    ),
    Launcher(
        "triton:router", "router", "router", ("x", "k", "renormalise"), ("f32", "i64"),
        (Pattern((WEIGHTS, part(either(LIKELIEST, LARGEST), 1)), (0, 1), exact=True),), _router, ("x",),
        frozenset({"k", "renormalise"}), limits=_router_limits, seen=("shares",),
    ),
    Launcher(
        "triton:top_k", "top_k", "top_k", ("x", "k"), ("x", "i64"),
        (Pattern((part(TOP, 0), part(TOP, 1)), (0, 1), exact=True), Pattern((part(TOP, 0),), exact=True),
         Pattern((part(TOP, 1),), (1,), exact=True)),
        _top, ("x",), frozenset({"k"}), limits=_top_limits,
    ),
    Launcher(
        "triton:cumsum", "cumsum", "cumsum", ("x",), ("x",),
        (Pattern((call("cumsum", X, dim=Constant("dim"), dtype=ANY),)),), _last_axis, ("x",),
    ),
    Launcher(
        "triton:softmax_axis", "softmax_axis", "softmax_axis", ("x", "dim", "widen"), ("x",),
        (), None, ("x",), frozenset({"dim", "widen"}), widened="widen", recognised={"softmax": _softmax_axis},
    ),
    Launcher(
        "triton:channel_norm", "channel_norm", "channel_rms_norm", ("x", "weight", "dim", "eps"), ("x",),
        (Pattern((call("mul", rms(X), AXIS_WEIGHT),)), Pattern((rms(X),))), _channel_norm, ("x",),
        frozenset({"dim", "eps"}),
    ),
    Launcher(
        "triton:group_norm_silu", "group_norm_silu", "group_norm_silu",
        ("x", "groups", "weight", "bias", "eps", "activation"), ("x",),
        tuple(Pattern((_activated(_group_norm(**given)),)) for given in AFFINE), _channels, ("x",),
        frozenset({"groups", "eps", "activation"}), planes="x", limits=_vectors_limits,
    ),
    Launcher(
        "triton:batch_norm_activation", "batch_norm_activation", "batch_norm_activation",
        ("x", "mean", "variance", "weight", "bias", "residual", "eps", "activation"), ("x",),
        tuple(Pattern((_activated(term),)) for given in AFFINE
              for term in (call("add", _batch_norm(**given), Leaf("residual")), _batch_norm(**given))),
        _channels, ("x", "residual"), frozenset({"eps", "activation"}), planes="x", limits=_vectors_limits,
    ),
    Launcher(
        "triton:norm_quantise", "norm_quantise", "norm_quantise",
        ("x", "residual", "weight", "bias", "scale", "eps", "centered", "scales", "least"), ("f8e4m3", "f32", "x"),
        _quantised_patterns(), _norm_quantise, ("x", "residual"), frozenset({"eps", "centered", "scales", "least"}),
        rank=-1, limits=_vectors_limits,
    ),
    Launcher(
        "triton:two_axis_reduction", "two_axis_reduction", "two_axis_reduction", ("x",), ("f32", "f32"),
        (Pattern((call("sum", X, dim=Constant("first"), dtype=ANY), call("sum", X, dim=Constant("other"), dtype=ANY)),
                 (0, 1)),),
        _two_axes, ("x",),
    ),
    Launcher(
        "triton:bias_activation_mask", "bias_activation_mask", "bias_activation_mask",
        ("z", "bias", "mask", "activation"), ("z",),
        (Pattern((call("mul", ACTIVATED, Leaf("mask")),)), Pattern((ACTIVATED,))), _tail, ("z", "bias"),
        frozenset({"activation"}), limits=_tail_limits,
    ),
    Launcher(
        "triton:layer_norm_backward", "layer_norm_backward", "layer_norm_backward",
        ("dy", "x", "weight", "mean", "rstd", "eps"), ("x", "f32", "f32"),
        (Pattern(LAYER_NORM_GRADIENTS, (0, 1, 2)),), _layer_norm_backward, ("dy", "x", "weight"), frozenset({"eps"}),
        fixed={"sums": torch.float32},
    ),
)  # fmt: skip
