"""Our kernels for what torch has one call for: embedding bags, pools, grouped products, segments, dropout.

Each has a backward, so that in a region with gradients it takes the call's place among others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.libraries.fits import DTYPES
from kernels.libraries.launchers import Launcher, Pattern
from kernels.libraries.model import Facts
from kernels.libraries.patterns.products import INTEGERS
from kernels.libraries.patterns.rows import ANY, Roles, X
from kernels.libraries.patterns.terms import (
    Bound,
    Call,
    Constant,
    Fixed,
    Leaf,
    Sizes,
    Term,
    Viewed,
    With,
    call,
    either,
    flag,
    part,
)
from profiler.region.graph.lowering import Graph
from profiler.region.graph.nodes import shape
from profiler.region.model import Input

OFFSETS = Leaf("offsets")


def given(graph: Graph, name: object) -> Input | None:
    """The region's input of this name; None where the name is an operation's."""
    return next((i for i in graph.region.inputs if i.name == name), None)


def _bags(weights: Term | None, whole: bool) -> Term:
    """whole: the offsets hold the end of the last bag too."""
    settings = {"scale_grad_by_freq": flag("by_frequency"), "mode": Constant("number"), "sparse": flag("sparse"),
                "per_sample_weights": weights, "include_last_offset": whole}  # fmt: skip
    operands = (Leaf("table"), Leaf("indices"), OFFSETS)
    bag = part(Call(("_embedding_bag_forward_only", "_embedding_bag"), operands, settings), 0)
    return With(bag, {"include_last_offset": whole})


BAGS = tuple(_bags(weights, whole) for weights in (Leaf("sample_weights"), None) for whole in (True, False))
MODES = ("sum", "mean", "max")


def _embedding_bag(bound: Bound) -> Roles | None:
    weights, mode = bound.get("sample_weights"), MODES[bound["number"]]
    if len(shape(bound["table"])) != 2 or len(shape(bound["indices"])) != 1 or (weights is not None and mode != "sum"):
        return None
    return {"sample_weights": None, **bound, "mode": mode}


def _bags_limits(facts: Facts, graph: Graph) -> str:
    offsets, indices = (given(graph, facts.roles[name]) for name in ("offsets", "indices"))
    if offsets is None or offsets.offsets is None:
        return "offsets that are not said to run from 0"
    if indices is None or indices.below is None:
        return "indices that are not counted from 0"
    if graph.region.requires_grad and (facts.roles["by_frequency"] or facts.roles["sparse"]):
        return "no gradient that is sparse, or scaled by how often a row is taken"
    weights = facts.dtypes.get("sample_weights", "f32")
    return "" if weights in DTYPES else f"weights of {weights}"


def _pooled(term: Term) -> Term:
    """The pool of planes, or what a pool along one axis makes of it."""
    return Viewed(term, ("squeeze",))


WINDOW: Mapping[str, Any] = {
    "stride": Sizes("stride"),
    "padding": either(Sizes("padding"), Fixed((0,))),
    "ceil_mode": flag("ceil"),
}
MAX_POOL = part(
    call("max_pool2d_with_indices", X, Sizes("size"), **WINDOW, dilation=either(Sizes("dilation"), Fixed((1,)))), 0
)
AVERAGE_POOL = call("avg_pool2d", X, Sizes("size"), **WINDOW, count_include_pad=flag("counted"))


def _pair(sizes: tuple[int, ...], absent: tuple[int, int] | None) -> tuple[int, int] | None:
    """One number for both axes, or one each; nothing said is `absent`."""
    return (sizes[0], sizes[-1]) if sizes else absent


def _pool(bound: Bound) -> Roles | None:
    if len(shape(bound["x"])) != 4:
        return None
    pairs = {
        "size": _pair(bound["size"], None),
        "stride": _pair(bound.get("stride", ()), None),
        "padding": _pair(bound.get("padding", ()), (0, 0)),
        "dilation": _pair(bound.get("dilation", ()), (1, 1)),
    }
    return {**bound, **pairs}


def _pool_limits(facts: Facts, graph: Graph) -> str:
    rows, columns = facts.roles["size"]
    return "" if rows * columns <= 255 else f"takes windows of up to 255 positions, not {rows} by {columns}"


GROUPED = call("_grouped_mm|grouped_mm", X, Leaf("w"), offs=Leaf("ends"))


def _grouped(bound: Bound) -> Roles | None:
    ranks = tuple(len(shape(bound[name])) for name in ("x", "w", "ends"))
    return bound if ranks == (2, 3, 1) else None


def _grouped_limits(facts: Facts, graph: Graph) -> str:
    ends = given(graph, facts.roles["ends"])
    if facts.dtypes["ends"] not in INTEGERS:
        return f"ends in {facts.dtypes['ends']}"
    full = ends is not None and ends.offsets is not None and ends.offsets == facts.sizes["x"][0]
    return "" if full else "groups that are not said to end at the last row"


REDUCTIONS = either(*(With(Fixed((mode,)), {"mode": mode}) for mode in MODES))
SEGMENTS = call("segment_reduce", Leaf("values"), REDUCTIONS, offsets=OFFSETS, unsafe=ANY)


def _segments(bound: Bound) -> Roles | None:
    return bound if (len(shape(bound["values"])), len(shape(bound["offsets"]))) == (2, 1) else None


def _segments_limits(facts: Facts, graph: Graph) -> str:
    offsets = given(graph, facts.roles["offsets"])
    if facts.dtypes["offsets"] not in INTEGERS:
        return f"offsets in {facts.dtypes['offsets']}"
    if offsets is None or offsets.offsets is None:
        return "offsets that are not said to run from 0"
    if graph.region.requires_grad and facts.roles["mode"] == "max" and facts.dtypes["values"] != "f32":
        return "the gradient of a maximum that 16-bit numbers share: torch divides it only where it is positive"
    return ""


DROPOUT = part(call("native_dropout", X, Constant("p"), train=True), 0)

TORCH_CALLS: tuple[Launcher, ...] = (
    Launcher(
        "triton:embedding_bag", "embedding_bag", "embedding_bag",
        ("table", "indices", "offsets", "sample_weights", "mode", "include_last_offset"), ("table",),
        tuple(Pattern((term,)) for term in BAGS), _embedding_bag, ("table",),
        frozenset({"mode", "include_last_offset"}), seen=("by_frequency", "sparse"), limits=_bags_limits, trained=True,
    ),
    Launcher(
        "triton:max_pool", "pool", "max_pool2d", ("x", "size", "stride", "padding", "dilation", "ceil"), ("x",),
        (Pattern((_pooled(MAX_POOL),)),), _pool, ("x",),
        frozenset({"size", "stride", "padding", "dilation", "ceil"}), rank=4, planes="x", limits=_pool_limits,
        trained=True,
    ),
    Launcher(
        "triton:average_pool", "pool", "avg_pool2d", ("x", "size", "stride", "padding", "ceil", "counted"), ("x",),
        (Pattern((_pooled(AVERAGE_POOL),)),), _pool, ("x",),
        frozenset({"size", "stride", "padding", "ceil", "counted"}), rank=4, planes="x", limits=_pool_limits,
        trained=True,
    ),
    Launcher(
        "triton:grouped_gemm", "grouped_gemm", "grouped_mm", ("x", "w", "ends"), ("x",), (Pattern((GROUPED,)),),
        _grouped, ("x", "w"), limits=_grouped_limits, trained=True,
    ),
    Launcher(
        "triton:segment_reduce", "segment_reduce", "segment_reduce", ("values", "offsets", "mode"), ("values",),
        (Pattern((SEGMENTS,)),), _segments, ("values",), frozenset({"mode"}), limits=_segments_limits, trained=True,
    ),
    Launcher(
        "triton:dropout", "dropout", "dropout", ("x", "p"), ("x",), (Pattern((DROPOUT,)),), lambda bound: bound, ("x",),
        frozenset({"p"}), trained=True,
    ),
)  # fmt: skip
