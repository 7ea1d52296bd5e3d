"""RMSNorm, LayerNorm and softmax, called or written out by hand."""

from __future__ import annotations

from collections.abc import Iterator

from torch.fx import Node

from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match, calls, covered_operations, operation_names, role
from profiler.region.graph.nodes import (
    argument,
    behind_casts,
    integers,
    is_call,
    keeps_dim,
    last_dim_only,
    number,
    operands,
    same,
    shape,
    users,
    vector_of,
)


def inverse_root(node: Node) -> tuple[Node, object] | None:
    """(the node that is 1/sqrt(v), v + eps): rsqrt, reciprocal of sqrt, power -0.5."""
    if is_call(node, "rsqrt"):
        return node, node.args[0]
    if is_call(node, "reciprocal") and is_call(root := behind_casts(node.args[0]), "sqrt"):
        return node, root.args[0]
    if is_call(node, "pow") and number(argument(node, 1, "exponent")) == -0.5:
        return node, node.args[0]
    return None


def plus_constant(node: object) -> tuple[object, float] | None:
    """(v, eps) of v + eps."""
    node = behind_casts(node)
    if not is_call(node, "add", "add_"):
        return None
    left, right = operands(node)
    constant = number(right)
    if constant is not None and number(argument(node, 2, "alpha", 1)) == 1:
        return behind_casts(left), constant
    return None


def squared_operand(node: object) -> object:
    """x of pow(x, 2), x * x or square(x); None else."""
    node = behind_casts(node)
    if is_call(node, "pow") and number(argument(node, 1, "exponent")) == 2:
        return node.args[0]
    if is_call(node, "square"):
        return node.args[0]
    if is_call(node, "mul") and same(*operands(node)):
        return node.args[0]
    return None


def normalised_products(centre: object, inverse: Node, divided_by: Node | None) -> Iterator[Node]:
    """Nodes that are centre * inverse (or centre / root)."""
    for user in users(inverse, "mul"):
        left, right = operands(user)
        other = left if behind_casts(right) is inverse else right
        if same(other, centre):
            yield user
    if divided_by is not None:
        for user in users(divided_by, "div"):
            if same(user.args[0], centre) and behind_casts(user.args[1]) is divided_by:
                yield user


def with_affine(node: Node, width: int, *, bias: bool) -> tuple[Node, object, object]:
    """(last node, weight, bias) after an optional cast, multiplication and addition by vectors of the row's width."""
    weight: object = None
    shift: object = None
    scaled = _only_vector_user(node, width, "mul")
    if scaled is not None:
        node, weight = scaled
    if bias:
        shifted = _only_vector_user(node, width, "add")
        if shifted is not None:
            node, shift = shifted
    while len(node.users) == 1 and is_call(next(iter(node.users)), "_to_copy"):
        node = next(iter(node.users))
    return node, weight, shift


def _only_vector_user(node: Node, width: int, name: str) -> tuple[Node, object] | None:
    for user in users(node, name):
        left, right = operands(user)
        other = right if behind_casts(left) is behind_casts(node) else left
        if vector_of(other, width) and not vector_of(node, width):
            return user, other
    return None


def rms_norm(graph: Graph) -> Iterator[Match]:
    """x * rsqrt(mean(x²) + eps) [* weight], over the last axis, in any order of casts."""
    for node in calls(graph, "rsqrt", "reciprocal", "pow", "sqrt"):
        root = inverse_root(node)
        divided = node if is_call(node, "sqrt") else None
        inner = plus_constant(root[1] if root else node.args[0]) if root or divided is not None else None
        if inner is None or not is_call(inner[0], "mean") or not last_dim_only(inner[0]):
            continue
        x = squared_operand(inner[0].args[0])
        if x is None:
            continue
        for product in normalised_products(x, node, divided):
            source = behind_casts(x)
            if not keeps_dim(inner[0], source):
                continue
            output, weight, _ = with_affine(product, shape(source)[-1], bias=False)
            inside = covered_operations(graph, output, [source, behind_casts(weight)])
            if inside is None:
                continue
            roles = {"x": role(graph, source), "weight": role(graph, behind_casts(weight)), "eps": inner[1],
                     "width": shape(source)[-1]}  # fmt: skip
            yield Match("rms_norm", "RMSNorm by hand", True, inside, output.name, roles)


def layer_norm(graph: Graph) -> Iterator[Match]:
    """(x - mean) * rsqrt(var + eps) [* weight] [+ bias], over the last axis."""
    for node in calls(graph, "rsqrt", "reciprocal", "pow", "sqrt"):
        root = inverse_root(node)
        divided = node if is_call(node, "sqrt") else None
        inner = plus_constant(root[1] if root else node.args[0]) if root or divided is not None else None
        centre = None if inner is None else _variance_of(inner[0])
        if inner is None or centre is None:
            continue
        for difference in centre:
            for product in normalised_products(difference, node, divided):
                source = behind_casts(difference.args[0])
                if not keeps_dim(inner[0], source):
                    continue
                output, weight, bias = with_affine(product, shape(source)[-1], bias=True)
                leaves = [source, behind_casts(weight), behind_casts(bias)]
                inside = covered_operations(graph, output, leaves)
                if inside is None:
                    continue
                roles = {"x": role(graph, source), "weight": role(graph, leaves[1]), "bias": role(graph, leaves[2]),
                         "eps": inner[1], "width": shape(source)[-1]}  # fmt: skip
                yield Match("layer_norm", "LayerNorm by hand", True, inside, output.name, roles)


def _variance_of(node: object) -> list[Node] | None:
    """The differences x - mean(x) whose spread this node is."""
    node = behind_casts(node)
    if is_call(node, "mean") and last_dim_only(node):
        difference = behind_casts(squared_operand(node.args[0]))
        return [difference] if isinstance(difference, Node) and _is_centred(difference) else None
    if is_call(node, "getitem") and is_call(node.args[0], "var_mean") and node.args[1] == 0:
        node = node.args[0]
    if is_call(node, "var", "var_mean") and _is_biased(node) and last_dim_only(node):
        x = behind_casts(node.args[0])
        return [n for n in users(x, "sub") if same(n.args[0], x) and _is_centred(n)] if isinstance(x, Node) else []
    return None


def _is_centred(node: object) -> bool:
    """x - mean of the same x over the last dimension, kept."""
    if not is_call(node, "sub") or number(argument(node, 2, "alpha", 1)) != 1:
        return False
    x, mean = (behind_casts(o) for o in operands(node))
    if is_call(mean, "getitem") and is_call(pair := mean.args[0], "var_mean") and mean.args[1] == 1:
        return same(pair.args[0], x) and last_dim_only(pair) and keeps_dim(mean, x)
    return is_call(mean, "mean") and same(mean.args[0], x) and last_dim_only(mean) and keeps_dim(mean, x)


def _is_biased(node: Node) -> bool:
    correction = node.kwargs.get("correction", 1)
    return bool(correction == 0) or (len(node.args) > 2 and node.args[2] is False)


def softmax(graph: Graph) -> Iterator[Match]:
    """softmax itself, and exp(x - max) / sum written out."""
    for node in calls(graph, "_softmax"):
        before = node.args[0]
        output = _cast_after(node)
        inside = covered_operations(graph, output, [behind_casts(before)])
        if inside is None:
            inside, output, before = operation_names(graph, [node]), node, node.args[0]
        roles = {"x": role(graph, behind_casts(before)), "dim": int(node.args[1])}  # type: ignore[arg-type]
        yield Match("softmax", "softmax", False, inside, output.name, roles)
    for node in calls(graph, "div"):
        top, bottom = (behind_casts(o) for o in operands(node))
        if not (is_call(top, "exp") and is_call(bottom, "sum") and same(bottom.args[0], top)):
            continue
        difference = behind_casts(top.args[0])
        dim = _single_dim(bottom)
        if dim is not None and is_call(difference, "sub") and len(shape(bottom)) == len(shape(top)):
            x, most = (behind_casts(o) for o in operands(difference))
            most = most.args[0] if is_call(most, "getitem") and most.args[1] == 0 else most
            largest = is_call(most, "amax", "max") and same(most.args[0], x) and _single_dim(most) == dim
            inside = covered_operations(graph, node, [x]) if largest else None
            if inside is not None:
                yield Match("softmax", "softmax by hand", True, inside, node.name, {"x": role(graph, x), "dim": dim})


def _single_dim(node: Node) -> int | None:
    """The one dimension that a reduction runs over, non-negative; None for several or all."""
    dims = integers(argument(node, 1, "dim"))
    return dims[0] % max(1, len(shape(node.args[0]))) if len(dims) == 1 else None


def _cast_after(node: Node) -> Node:
    if len(node.users) == 1 and is_call(next(iter(node.users)), "_to_copy"):
        return next(iter(node.users))
    return node
