"""How a region says what our kernels of losses, products with a reduction, convolutions and scatters compute."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from kernels.libraries.launchers import Launcher, Pattern
from kernels.libraries.model import Facts
from kernels.libraries.patterns.rows import ANY, Roles, normalised, squared
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
    last,
    part,
)
from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match, Role
from profiler.region.graph.nodes import shape, value

X, TARGET = Leaf("x"), Leaf("target")
INTEGERS = frozenset({"i64", "i32"})


def _loss(graph: Graph, match: Match) -> Mapping[str, Role]:
    return {"label_smoothing": 0.0, **match.roles}


def _loss_limits(facts: Facts, graph: Graph) -> str:
    if facts.dtypes["x"] == "f16" and graph.region.requires_grad:
        return "f16 logits, whose gradient over all rows f16 cannot hold before a loss's scale is in it"
    return "" if facts.dtypes["target"] in INTEGERS else f"classes in {facts.dtypes['target']}"


A, B = Leaf("a"), Leaf("b")
PRODUCT = Viewed(call("mm", A, B, role="product"))


def _scaled(product: Term) -> Term:
    return either(
        call("mul", product, Constant("scale")), call("div", product, Constant("divisor")),
        With(product, {"scale": 1.0}),
    )  # fmt: skip


LOGSUMEXP = call("logsumexp", _scaled(PRODUCT), dim=Constant("dim"), keepdim=ANY, role="result")


def _logsumexp(bound: Bound) -> Roles | None:
    before = bound["result"].args[0]
    if not last(bound["dim"], before) or shape(before)[-1] != shape(bound["product"])[-1]:
        return None
    scale = bound["scale"] if "scale" in bound else 1.0 / bound["divisor"] if bound["divisor"] else None
    return None if scale is None else {**bound, "scale": float(scale)}


CLASSES = either(
    call("t", Leaf("w")), call("transpose", Leaf("w"), dim0=Fixed((0, -2)), dim1=Fixed((1, -1))),
    call("permute", Leaf("w"), dims=Fixed(([1, 0],))),
)  # fmt: skip
LOGITS = Viewed(call("mm", X, CLASSES, role="product"))
LINEAR_LOSS = part(
    call(
        "nll_loss_forward",
        call("_log_softmax", LOGITS, dim=Fixed((1, -1)), half_to_float=ANY, role="shares"), TARGET,
        weight=Fixed((None,)), reduction=Constant("code"), ignore_index=Constant("ignore_index"),
    ), 0,
)  # fmt: skip
CODES_OF_REDUCTIONS = ("none", "mean", "sum")
"""By aten's own numbers for them."""


def _linear_loss(bound: Bound) -> Roles | None:
    """Rows of X stay rows: views between may only fold leading axes, as of [batch, time, classes]."""
    rows, classes = shape(bound["product"])
    fitting = shape(bound["shares"]) == (rows, classes) and shape(bound["target"]) == (rows,)
    return {**bound, "reduction": CODES_OF_REDUCTIONS[bound["code"]]} if fitting else None


def _linear_loss_limits(facts: Facts, graph: Graph) -> str:
    if facts.dtypes["target"] not in INTEGERS:
        return f"classes in {facts.dtypes['target']}"
    if facts.dtypes["shares"] != "f32":
        return f"shares rounded to {facts.dtypes['shares']}"
    if not graph.region.requires_grad:
        return ""
    if facts.dtypes["x"] == "f16":
        return "f16 logits, whose gradient over all rows f16 cannot hold before a loss's scale is in it"
    return "no gradient of every row's loss" if facts.roles["reduction"] == "none" else ""


AFFINE = (Leaf("weight"), Leaf("bias"))
MEAN = call("mean", PRODUCT, dim=Constant("dim"), keepdim=True)
CENTRED = call("sub", PRODUCT, MEAN)
SPREAD = either(
    call("mean", squared(CENTRED), dim=Constant("dim"), keepdim=True),
    call("var", PRODUCT, dim=Constant("dim"), correction=0, keepdim=True),
)
LAYER_NORMS: tuple[Term, ...] = (
    part(call("native_layer_norm", PRODUCT, normalized_shape=Constant("width"), weight=AFFINE[0], bias=AFFINE[1],
              eps=Constant("eps")), 0),
    call("add", call("mul", normalised(CENTRED, SPREAD), AFFINE[0]), AFFINE[1]),
)  # fmt: skip


def _layer_norm(bound: Bound) -> Roles | None:
    width = shape(bound["product"])[-1]
    vectors = all(shape(bound[v]) == (width,) for v in ("weight", "bias"))
    centred = bound.get("dim", -1) in (-1, 1) and len(shape(bound["product"])) == 2
    return bound if vectors and centred and bound.get("width", width) == width and bound["eps"] > 0 else None


def _layer_norm_limits(facts: Facts, graph: Graph) -> str:
    width = facts.sizes["weight"][0]
    return "" if width <= 512 else f"takes rows of up to 512, not {width}"


W1, W2 = Leaf("w1"), Leaf("w2")
FIRST = Viewed(call("mm", X, W1, role="first"))
BIASED = either(
    call("add", FIRST, Leaf("b1"), role="biased"), Viewed(call("addmm", Leaf("b1"), X, W1, role="first")), FIRST
)  # fmt: skip
ACTIVATED = Viewed(either(
    With(call("relu", BIASED), {"activation": "relu"}), With(call("silu", BIASED), {"activation": "silu"}),
    With(call("gelu", BIASED), {"activation": "gelu"}),
    With(call("gelu", BIASED, approximate="tanh"), {"activation": "gelu_tanh"}),
))  # fmt: skip
LAST = Viewed(call("mm", ACTIVATED, W2, role="last"))
SHIFTED = either(
    call("add", LAST, Leaf("b2"), role="shifted"), Viewed(call("addmm", Leaf("b2"), ACTIVATED, W2, role="last")), LAST
)  # fmt: skip
TWO_LAYERS = either(SHIFTED, call("add", SHIFTED, Leaf("residual"), role="sum"))


def _two_layers(bound: Bound) -> Roles | None:
    """Rows stay rows through both products, biases go along them, the residual has an element for each of the result's.

    Views between may split rows into axes; none may cut a row or spread what is added.
    """
    (rows, hidden), (last_rows, width) = shape(bound["first"]), shape(bound["last"])
    columns = {"biased": hidden, "shifted": width, "sum": width, "residual": width}
    fitting = all(
        role not in bound or (shape(bound[role])[-1:] == (n,) and prod(shape(bound[role])) == rows * n)
        for role, n in columns.items()
    )
    along = all(b not in bound or shape(bound[b]) == (n,) for b, n in (("b1", hidden), ("b2", width)))
    same = last_rows == rows and shape(bound["w2"]) == (hidden, width)
    return {"b1": None, "b2": None, "residual": None, **bound} if fitting and along and same else None


def _two_layers_limits(facts: Facts, graph: Graph) -> str:
    hidden, kept = facts.sizes["w2"][0], facts.dtypes["first"]
    if kept != facts.dtypes["x"]:
        return f"a hidden layer in {kept}, the kernel rounds it to {facts.dtypes['x']}"
    return "" if hidden <= 256 else f"takes up to 256 hidden columns, not {hidden}"


CODE = Leaf("codebook")
CODES = either(call("t", CODE), call("transpose", CODE, dim0=Fixed((-2, 0)), dim1=Fixed((-1, 1))),
               call("permute", CODE, dims=Fixed(([1, 0],))))  # fmt: skip
TWICE = either(
    call("mul", call("mm", A, CODES, role="nearness"), Fixed((2, 2.0))),
    call("mm", call("mul", A, Fixed((2, 2.0))), CODES, role="nearness"),
)
OWN = call("sum", squared(A), dim=Fixed(([1], [-1])), keepdim=True)
LENGTHS = call("sum", squared(CODE), dim=Fixed(([1], [-1])), role="lengths")
LENGTH = either(LENGTHS, call("unsqueeze", LENGTHS, dim=0))
DISTANCE = Viewed(either(
    call("_euclidean_dist", A, CODE, role="nearness"),
    call("_cdist_forward", A, CODE, p=2.0, compute_mode=ANY, role="nearness"),
    call("add", call("sub", OWN, TWICE), LENGTH),
    call("sub", call("add", OWN, LENGTH), TWICE),
    call("sub", LENGTH, TWICE),
))  # fmt: skip
NEAREST = call("argmin", DISTANCE, dim=Fixed((1, -1)))


def _nearest(bound: Bound) -> Roles | None:
    fitting = len(shape(bound["a"])) == 2 == len(shape(bound["codebook"])) and shape(bound["codebook"])[0] > 0
    return bound if fitting else None


def _nearest_limits(facts: Facts, graph: Graph) -> str:
    rounded = facts.dtypes.get("nearness", "f32")
    return "" if rounded == "f32" else f"the nearest by distances rounded to {rounded}"


CONVOLUTION = call(
    "convolution", X, Leaf("w"), bias=either(Leaf("bias"), Fixed((None,))), stride=Fixed(([1, 1],)),
    padding=either(*(With(Fixed(([p, p],)), {"padding": p}) for p in range(7))), dilation=Fixed(([1, 1],)),
    transposed=False, output_padding=Fixed(([0, 0],)), groups=Constant("groups"),
)  # fmt: skip


def _convolution(bound: Bound) -> Roles | None:
    x, w = shape(bound["x"]), shape(bound["w"])
    deep = len(x) == 4 and bound["groups"] == x[1] and w[:2] == (x[1], 1) and w[2] == w[3]
    return {"bias": None, **bound} if deep else None


def _convolution_limits(facts: Facts, graph: Graph) -> str:
    k = facts.sizes["w"][-1]
    if k > 7 or facts.roles["padding"] > k - 1:
        return f"takes filters up to 7 and padding below their size, not {k} and {facts.roles['padding']}"
    return ""


ROWS_OF = either(
    With(call("index", X, indices=Listed((Leaf("source"),))), {"wraps": True}),
    call("index_select", X, dim=0, index=Leaf("source")), X,
)  # fmt: skip
EDGES = either(call("mul", ROWS_OF, call("unsqueeze", Leaf("weight"), dim=Fixed((1, -1)))), ROWS_OF)
ZEROS = call("zeros", ANY, dtype=ANY, layout=ANY, device=ANY, pin_memory=ANY, role="zeros")
SCATTERED = (
    call("index_add", ZEROS, dim=0, index=TARGET, source=EDGES, alpha=Constant("alpha")),
    With(
        call("scatter_add", ZEROS, dim=0, src=EDGES,
             index=call("expand", call("unsqueeze", TARGET, dim=Fixed((1, -1))), size=ANY, role="index")),
        {"alpha": 1.0},
    ),
)  # fmt: skip


def _scattered(bound: Bound) -> Roles | None:
    x, zeros, target = bound["x"], bound["zeros"], shape(bound["target"])
    source, weight = bound.get("source"), bound.get("weight")
    if len(shape(x)) != 2 or len(shape(zeros)) != 2 or shape(zeros)[1] != shape(x)[1] or len(target) != 1:
        return None
    edges = shape(x)[:1] if source is None else shape(source)
    whole = "index" not in bound or shape(bound["index"]) == (*target, shape(x)[1])
    if edges != target or (weight is not None and shape(weight) != target) or not whole:
        return None
    if value(zeros).dtype != value(x).dtype:
        return None
    return {"source": None, "weight": None, **bound, "rows": shape(zeros)[0], "alpha": float(bound["alpha"])}


def _scattered_limits(facts: Facts, graph: Graph) -> str:
    wrong = [facts.dtypes[r] for r in ("target", "source") if facts.dtypes.get(r, "i64") not in INTEGERS]
    if wrong:
        return f"edges in {wrong[0]}"
    given = next((i for i in graph.region.inputs if i.name == facts.roles["source"]), None)
    unsaid = facts.roles["wraps"] and (given is None or given.below is None)  # x[-1] is a row, the kernel's is not
    return "rows that are not said to be counted from 0" if unsaid else ""


OFFSETS = Leaf("offsets")
COUNTS = call(
    "sub",
    call("slice", OFFSETS, dim=0, start=1, end=ANY),
    call("slice", OFFSETS, dim=0, start=Fixed((0, None)), end=-1),
)
SEGMENTS = call("arange", Constant("count"), dtype=ANY, layout=ANY, device=ANY, pin_memory=ANY)
SEGMENT_OF = call("index_select", SEGMENTS, dim=0, index=call("repeat_interleave", COUNTS, output_size=ANY))
SEGMENT_MEANS = call(
    "div", call("index_add", ZEROS, dim=0, index=SEGMENT_OF, source=Leaf("values")),
    call("unsqueeze", COUNTS, dim=Fixed((1, -1))),
)  # fmt: skip


def _segments(bound: Bound) -> Roles | None:
    values, count = shape(bound["values"]), bound["count"]
    fitting = (
        len(values) == 2 and shape(bound["zeros"]) == (count, values[1]) and shape(bound["offsets"]) == (count + 1,)
    )
    return bound if fitting and value(bound["zeros"]).dtype == value(bound["values"]).dtype else None


def _segments_limits(facts: Facts, graph: Graph) -> str:
    if facts.dtypes["offsets"] not in INTEGERS:
        return f"offsets in {facts.dtypes['offsets']}"
    given = next((i for i in graph.region.inputs if i.name == facts.roles["offsets"]), None)
    return "" if given is not None and given.offsets is not None else "offsets that are not said to run from 0"


PRODUCTS: tuple[Launcher, ...] = (
    Launcher(
        "triton:cross_entropy", "cross_entropy", "cross_entropy",
        ("x", "target", "ignore_index", "label_smoothing", "reduction"), ("f32",),
        (), None, ("x",), frozenset({"ignore_index", "label_smoothing", "reduction"}), rank=-1, limits=_loss_limits,
        recognised={"cross_entropy": _loss}, trained=True,
    ),
    Launcher(
        "triton:linear_cross_entropy", "linear_cross_entropy", "linear_cross_entropy",
        ("x", "w", "target", "ignore_index", "reduction"), ("f32",), (Pattern((LINEAR_LOSS,)),), _linear_loss,
        ("x", "w"), frozenset({"ignore_index", "reduction"}), rank=-1, limits=_linear_loss_limits, seen=("shares",),
        trained=True,
    ),
    Launcher(
        "triton:matmul_logsumexp", "matmul_logsumexp", "matmul_logsumexp", ("a", "b", "scale"), ("f32",),
        (Pattern((LOGSUMEXP,)),), _logsumexp, ("a", "b"), frozenset({"scale"}), rank=1,
    ),
    Launcher(
        "triton:matmul_layer_norm", "matmul_layer_norm", "matmul_layer_norm", ("a", "b", "weight", "bias", "eps"),
        ("a",), tuple(Pattern((norm,)) for norm in LAYER_NORMS), _layer_norm, ("a", "b"), frozenset({"eps"}), rank=2,
        limits=_layer_norm_limits,
    ),
    Launcher(
        "triton:fused_mlp", "fused_mlp", "fused_mlp", ("x", "w1", "w2", "activation", "b1", "b2", "residual"), ("x",),
        (Pattern((TWO_LAYERS,)),), _two_layers, ("x", "w1", "w2", "b1", "b2", "residual"), frozenset({"activation"}),
        rank=2, limits=_two_layers_limits, seen=("first",),
    ),
    Launcher(
        "triton:matmul_argmin", "matmul_argmin", "matmul_argmin", ("a", "codebook"), ("i64",),
        (Pattern((NEAREST,), exact=True),), _nearest, ("a", "codebook"), limits=_nearest_limits, seen=("nearness",),
    ),
    Launcher(
        "triton:depthwise_conv", "depthwise_conv", "depthwise_conv", ("x", "w", "bias", "padding"), ("x",),
        (Pattern((CONVOLUTION,)),), _convolution, ("x", "w", "bias"), frozenset({"padding"}),
        limits=_convolution_limits, planes="x",
    ),
    Launcher(
        "triton:scatter_add", "scatter_add", "scatter_add", ("x", "target", "rows", "source", "weight", "alpha"),
        ("x",), tuple(Pattern((s,)) for s in SCATTERED), _scattered, ("x", "weight"), frozenset({"rows", "alpha"}),
        limits=_scattered_limits, seen=("wraps",),
    ),
    Launcher(
        "triton:jagged_mean", "jagged_mean", "jagged_mean", ("values", "offsets"), ("values",),
        (Pattern((SEGMENT_MEANS,)),), _segments, ("values",), limits=_segments_limits,
    ),
)  # fmt: skip
