"""The table of matchers: Graph -> Matches. They look at structure, never at names that a user gave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch.fx import Node

from profiler.region import op_kinds
from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_attention import attention
from profiler.region.graph.match_model import Match, Matcher, Role, calls, covered_operations, operation_names, role
from profiler.region.graph.match_norms import layer_norm, rms_norm, softmax
from profiler.region.graph.nodes import behind_casts, is_call, number, operands, same, shape, users, value, vector_of


def gated(graph: Graph) -> Iterator[Match]:
    """silu(a) * b and gelu(a) * b: SwiGLU and GeGLU."""
    for node in calls(graph, "mul"):
        for a, b in (operands(node), operands(node)[::-1]):
            act = behind_casts(a)
            if is_call(act, "silu", "gelu") and isinstance(b, Node) and shape(act) == shape(b) and not same(b, act):
                x = behind_casts(act.args[0])
                if value(act).dim() < 2 or vector_of(b, shape(act)[-1]) or not _is_paired(x, behind_casts(b)):
                    continue
                inside = covered_operations(graph, node, [x, behind_casts(b)])
                if inside is not None:
                    kind, title = ("swiglu", "SwiGLU") if is_call(act, "silu") else ("geglu", "GeGLU")
                    yield Match(kind, title, False, inside, node.name, {"a": role(graph, x), "b": role(graph, b)})
                break


def _is_paired(a: object, b: object) -> bool:
    """Activation and gate come from the same place: both given, or both computed. Else `b` is a mask or a scale."""
    return isinstance(a, Node) and isinstance(b, Node) and (a.op == "placeholder") == (b.op == "placeholder")


def gelu_tanh(graph: Graph) -> Iterator[Match]:
    """0.5 · x · (1 + tanh(√(2/π) · (x + 0.044715 x³)))."""
    for node in calls(graph, "tanh"):
        scaled = behind_casts(node.args[0])
        if not is_call(scaled, "mul") or abs((number(scaled.args[1]) or 0.0) - 0.7978845608) > 1e-3:
            continue
        total = behind_casts(scaled.args[0])
        if not is_call(total, "add"):
            continue
        x = behind_casts(total.args[0])
        one_plus = next(iter(users(node, "add")), None)
        output = None if one_plus is None else next(iter(users(one_plus, "mul")), None)
        if output is None:
            continue
        inside = covered_operations(graph, output, [x])
        if inside is not None:
            yield Match("gelu_tanh", "GELU (tanh) by hand", True, inside, output.name, {"x": role(graph, x)})


def rope(graph: Graph) -> Iterator[Match]:
    """x * cos + cat(-x2, x1) * sin."""
    for node in calls(graph, "add"):
        left, right = (behind_casts(o) for o in operands(node))
        for unrotated, rotated in ((left, right), (right, left)):
            if not (is_call(unrotated, "mul") and is_call(rotated, "mul")):
                continue
            turned = [behind_casts(o) for o in operands(rotated)]
            cat = next((t for t in turned if is_call(t, "cat")), None)
            if not isinstance(cat, Node):
                continue
            if not any(is_call(behind_casts(p), "neg") for p in _listed(cat)):
                continue
            x = next((o for o in operands(unrotated) if _sliced_from(cat, o)), None)
            inside = covered_operations(
                graph, node, [x, *operands(unrotated), *operands(rotated)][:3] + _other(rotated, cat)
            )
            if x is not None and inside is not None:
                cos = next((o for o in operands(unrotated) if o is not x), None)
                sin = next(iter(_other(rotated, cat)), None)
                roles = {n: role(graph, behind_casts(o)) for n, o in (("x", x), ("cos", cos), ("sin", sin))}
                yield Match("rope", "RoPE", False, inside, node.name, roles)
            break


def _other(product: Node, cat: Node) -> list[object]:
    return [o for o in operands(product) if behind_casts(o) is not cat]


def _listed(cat: Node) -> Sequence[object]:
    """What a concatenation puts together."""
    parts = cat.args[0]
    return parts if isinstance(parts, list | tuple) else ()


def _sliced_from(cat: Node, x: object) -> bool:
    sources = [behind_casts(p) for p in _listed(cat)]
    sources = [behind_casts(s.args[0]) if is_call(s, "neg") else s for s in sources]
    slices = [s for s in sources if is_call(s, "slice", "getitem", "narrow")]
    return len(slices) == len(sources) and any(behind_casts(s.args[0]) is behind_casts(x) for s in slices)


def cross_entropy(graph: Graph) -> Iterator[Match]:
    """log_softmax + nll_loss."""
    for node in calls(graph, "nll_loss_forward"):
        scores = behind_casts(node.args[0])
        if is_call(scores, "_log_softmax"):
            x, target = behind_casts(scores.args[0]), node.args[1]
            inside = covered_operations(graph, node, [x, target]) or operation_names(graph, [node, scores])
            roles = {"x": role(graph, x), "target": role(graph, target)}
            yield Match("cross_entropy", "cross entropy", False, inside, node.name, roles)


LIBRARY_CALLS = {
    "attention": ("attention", "SDPA attention"),
    "rms_norm": ("rms_norm", "RMSNorm"),
    "native_layer_norm": ("layer_norm", "LayerNorm"),
    "native_group_norm": ("group_norm", "GroupNorm"),
    "native_batch_norm": ("batch_norm", "BatchNorm"),
    "_native_batch_norm_legit": ("batch_norm", "BatchNorm"),
    "convolution": ("convolution", "convolution"),
    "_scaled_mm": ("quantised_gemm", "scaled GEMM"),
    "_int_mm": ("quantised_gemm", "int8 GEMM"),
    "_grouped_mm": ("grouped_gemm", "grouped GEMM"),
    "grouped_mm": ("grouped_gemm", "grouped GEMM"),
    "embedding": ("embedding", "embedding"),
    "topk": ("sort", "top-k"),
    "sort": ("sort", "sort"),
    "cumsum": ("scan", "cumulative sum"),
}


def library_calls(graph: Graph) -> Iterator[Match]:
    """Operations that are one library call already."""
    for operation in graph.operations:
        name = op_kinds.base_name(operation.target)
        if name in LIBRARY_CALLS:
            kind, title = LIBRARY_CALLS[name]
            roles: dict[str, Role] = {f"input{i}": n for i, n in enumerate(operation.inputs)}
            yield Match(kind, title, False, frozenset({operation.name}), operation.name, roles)


def gemms(graph: Graph) -> Iterator[Match]:
    """Each matrix product by itself."""
    for node in calls(graph, "mm", "addmm", "bmm", "baddbmm"):
        a, b = node.args[-2:]
        roles = {"a": role(graph, a), "b": role(graph, b)}
        if is_call(node, "addmm", "baddbmm"):
            roles["bias"] = role(graph, node.args[0])
        yield Match("gemm", "GEMM", False, frozenset({node.name}), node.name, roles)


MATCHERS: tuple[Matcher, ...] = (
    attention, rms_norm, layer_norm, softmax, gated, gelu_tanh, rope, cross_entropy, library_calls, gemms,
)  # fmt: skip
