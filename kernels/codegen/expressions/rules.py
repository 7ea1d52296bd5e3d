"""aten calls that are more than one table entry: alpha and modes, fills, cat, triangles, lookups."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from kernels.codegen.expressions import ops, pools, random, reductions, rowwise, upsampling
from kernels.codegen.expressions.values import Builder, Value
from kernels.codegen.index import ZERO, Index, Linear, Unsupported, broadcast, from_the_end
from kernels.codegen.nodes import (
    GRAPHS_TYPE,
    Arguments,
    base,
    bind,
    computed,
    constant_of,
    dtype_of,
    fake,
    is_fill,
    root,
)

SIXTEEN_BITS = frozenset({"bf16", "f16"})
EQUAL = frozenset({"eq", "ne"})
WHOLE = frozenset({"i64", "i32", "i16", "i8", "u8"})
Rule = Callable[[Builder, torch.fx.Node, Arguments, Index], Value]


def compute(b: Builder, node: torch.fx.Node, index: Index) -> Value:
    """The value of one node at an index; raises Unsupported where no table entry or rule has it."""
    if node.op == "get_attr":
        return b.number(constant_of(node) or 0, computed(dtype_of(fake(node))))
    if node.target is operator.getitem:
        source, place = node.args
        assert isinstance(source, torch.fx.Node) and isinstance(place, int)
        return reductions.part(b, source, place, index)
    if node.target._schema.is_mutable:  # type: ignore[union-attr]
        raise Unsupported(f"{node.target}: it writes into its input")
    name = base(node)
    bound = bind(node)
    if name in RULES:
        return RULES[name](b, node, bound, index)
    if name in ops.CASTS:
        source = bound["src"] if name == "copy" else bound["self"]
        value = b.value(source, broadcast(index, tuple(fake(node).shape), tuple(fake(source).shape)))
        return b.rounded(value, dtype_of(fake(node))) if fake(source).dtype != fake(node).dtype else value
    if name in ops.POINTWISE:
        return plain(b, node, name, index)
    raise Unsupported(f"{node.target} is not in the generator's table")


def dtype(node: torch.fx.Node) -> str:
    """The node's dtype, as the region language names it."""
    return dtype_of(fake(node))


def plain(b: Builder, node: torch.fx.Node, name: str, index: Index, arguments: tuple[Any, ...] | None = None) -> Value:
    """A table entry on the call's tensor and number arguments, in order."""
    bound = bind(node)
    given = tuple(bound.values()) if arguments is None else arguments
    chosen = [a for a in given if isinstance(a, torch.fx.Node | int | float) and a is not None]
    shape = tuple(fake(node).shape)
    entry = ops.POINTWISE[name]
    inner = promoted(chosen) if entry.domain == ops.COMPARE else dtype(node)
    # What is the same in 16 bits is not in f32, in which one of both may be computed again: of all elements none would
    # be the largest. Rounding keeps the order, so a rounded largest number is the largest rounded one.
    alike = promoted(chosen, by_graph=True) if name in EQUAL else ""
    values: list[Value | int | float] = []
    for argument in chosen:
        if isinstance(argument, torch.fx.Node):
            value = b.value(argument, broadcast(index, shape, tuple(fake(argument).shape)))
            values.append(b.rounded(value, alike) if alike in SIXTEEN_BITS else value)
        elif entry.domain == ops.COMPARE and (alike or inner) in SIXTEEN_BITS:
            values.append(b.rounded(b.number(argument, "f32"), alike or inner))  # aten compares with the rounded number
        else:
            values.append(argument)
    return b.apply(name, inner, *values)


def promoted(arguments: list[Any], by_graph: bool = False) -> str:
    """The dtype that a comparison's operands are brought to. by_graph: as the graph has it, where statistics are kept
    in f32."""
    values = [_stand_in(a, by_graph) if isinstance(a, torch.fx.Node) else a for a in arguments]
    if len(values) == 1:
        return dtype_of(values[0])
    return dtype_of(torch.empty(0, dtype=torch.result_type(*values)))


def _stand_in(node: torch.fx.Node, by_graph: bool) -> torch.Tensor:
    """Of the same dtype and dimensionality: result_type looks at nothing else."""
    value = fake(node)
    return torch.empty([1] * value.dim(), dtype=node.meta.get(GRAPHS_TYPE, value.dtype) if by_graph else value.dtype)


def _arithmetic(name: str) -> Rule:
    def rule(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
        left, right = a["self"], a["other"]
        if name == "rsub":
            left, right = right, left
        alpha = a.get("alpha", 1)
        if alpha != 1:
            shape, inner = tuple(fake(node).shape), dtype(node)
            value = b.operand_at(a["other"], index, shape, inner)
            scaled = b.apply("mul", inner, value, alpha)
            first = b.operand_at(a["self"], index, shape, inner)
            pair = (scaled, first) if name == "rsub" else (first, scaled)
            return b.apply("sub" if name == "rsub" else name, inner, *pair)
        return plain(b, node, "sub" if name == "rsub" else name, index, (left, right))

    return rule


def _div(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    mode, inner = a.get("rounding_mode"), dtype(node)
    if not mode:
        return plain(b, node, "div", index, (a["self"], a["other"]))
    if inner in WHOLE:
        return plain(b, node, "floor_divide" if mode == "floor" else "trunc_divide", index, (a["self"], a["other"]))
    # aten floors by fmod, which Triton has only approximately, and rounds a quotient of 16 bits before it cuts it
    if mode != "trunc" or inner not in ("f32", "f64"):
        raise Unsupported(f"a division of {inner} with rounding mode {mode}")
    shape = tuple(fake(node).shape)
    top, bottom = (b.operand_at(a[k], index, shape, inner) for k in ("self", "other"))
    text = ops.POINTWISE["div"].form(inner, precise=True)
    assert text is not None
    return b.apply("trunc", inner, b.expression(text, inner, top, bottom))


def _floored(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    if dtype(node) in WHOLE:
        return plain(b, node, base(node), index, (a["self"], a["other"]))
    raise Unsupported("// and % of floats: aten takes them from an exact fmod, which Triton has not")


def _round(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    if a.get("decimals"):
        raise Unsupported("rounding to decimals")
    return plain(b, node, "round", index, (a["self"],))


def _clamp(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    low, high = a.get("min"), a.get("max")
    name = "clamp_both" if low is not None and high is not None else "clamp_min" if high is None else "clamp_max"
    return plain(b, node, name, index, tuple(x for x in (a["self"], low, high) if x is not None))


def _where(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    condition, yes, no = (a[k] for k in a if k in ("condition", "self", "other"))
    return _select(b, node, condition, yes, no, index)


def _masked_fill(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    return _select(b, node, a["mask"], a["value"], a["self"], index)


def _select(b: Builder, node: torch.fx.Node, condition: Any, yes: Any, no: Any, index: Index) -> Value:
    shape, inner = tuple(fake(node).shape), dtype(node)
    test = b.operand_at(condition, index, shape, "bool")
    first, second = (b.operand_at(v, index, shape, inner) for v in (yes, no))
    return b.expression("tl.where({0}, {1}, {2})", computed(inner), test, first, second)


def _pow(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    exponent = a["exponent"]
    inner = dtype(node)
    if not isinstance(a["self"], torch.fx.Node) and 0 < a["self"] < math.inf:
        value = b.cast(b.value(exponent, index), computed(inner))
        return b.expression(f"tl.exp2({{0}} * {math.log2(a['self'])!r})", value.dtype, value)
    if not isinstance(a["self"], torch.fx.Node):
        raise Unsupported("a number that is not positive to the power of a tensor")
    if isinstance(exponent, torch.fx.Node):
        return plain(b, node, "pow", index, (a["self"], exponent))
    value = b.cast(b.value(a["self"], index), computed(inner))
    if exponent in (0.5, -0.5):
        return b.apply("sqrt" if exponent > 0 else "rsqrt", inner, value)
    if 1 <= abs(exponent) <= 8 and exponent * 2 == int(exponent * 2):
        power = value
        for bit in bin(int(abs(exponent)))[3:]:
            power = b.expression("{0} * {0}", power.dtype, power)
            if bit == "1":
                power = b.expression("{0} * {1}", power.dtype, power, value)
        if exponent != int(exponent):
            power = b.expression("{0} * {1}", power.dtype, power, b.apply("sqrt", inner, value))
        return power if exponent > 0 else b.apply("reciprocal", inner, power)
    if not inner.startswith(("f", "b")):
        raise Unsupported(f"an integer to the power {exponent}")
    return b.apply("pow", inner, value, exponent)


def _gelu(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    tanh = "_tanh" if a["approximate"] == "tanh" else ""
    if base(node) == "gelu_backward":
        return plain(b, node, f"gelu{tanh}_backward", index, (a["grad_output"], a["self"]))
    return plain(b, node, f"gelu{tanh}", index, (a["self"],))


def _named(*keys: str) -> Rule:
    def rule(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
        return plain(b, node, base(node), index, tuple(a[k] for k in keys))

    return rule


def _softplus(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    return plain(b, node, "softplus", index, (a["self"], a["beta"], a["threshold"]))


def _fill(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    name, inner = base(node), dtype(node)
    if name == "arange":
        start, step = a.get("start") or 0, a.get("step") or 1
        if not all(isinstance(v, int) for v in (start, step)):
            raise Unsupported("arange of fractions")
        return b.cast(b.position(index[0].scaled(step) + Linear(start)), computed(inner))
    if "zeros" in name or "ones" in name:
        return b.number(int("ones" in name), computed(inner))
    number = a.get("fill_value", a.get("s", a.get("value")))
    if isinstance(number, torch.fx.Node) or number is None:
        raise Unsupported(f"{node.target} with a tensor")
    return b.number(number, computed(inner))


def _triangle(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    down, across = b.place(index[-2]), b.place(index[-1] + Linear(-a["diagonal"]))
    sign = ">=" if base(node) == "tril" else "<="
    keep = b.expression(f"{{0}} {sign} {{1}}", "bool", down, across)
    value = b.value(a["self"], index)
    return b.expression("tl.where({0}, {1}, {2})", value.dtype, keep, value, b.number(0, value.dtype))


def _cat(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    pieces = [p for p in a["tensors"] if fake(p).numel()]
    if len(pieces) > 8:
        raise Unsupported("cat of more than 8 tensors")
    dim = a["dim"] % len(index)
    inner = computed(dtype(node))
    spot = b.place(index[dim])
    result: Value | None = None
    begin = 0
    if _same_memory(b, pieces, dim):
        at_once = (*index[:dim], ZERO, *index[dim + 1 :])
        for place, piece in enumerate(pieces):
            value = b.cast(b.value(piece, at_once), inner)
            here = b.expression("{0} == {1}", "bool", spot, b.number(place, spot.dtype))
            result = value if result is None else b.expression("tl.where({0}, {1}, {2})", inner, here, value, result)
        return result or b.number(0, inner)
    for piece in pieces:
        size = fake(piece).shape[dim]
        local = (*index[:dim], index[dim] + Linear(-begin), *index[dim + 1 :])
        edges = (b.number(begin, spot.dtype), b.number(begin + size, spot.dtype))
        text = "({0} >= {1}) & ({0} < {2})" if begin and piece is not pieces[-1] else "{0} >= {1}"
        inside = b.expression(text if begin else "{0} < {2}", "bool", spot, *edges)
        value = b.cast(b.guarded(inside, piece, local), inner)
        result = value if result is None else b.expression("tl.where({0}, {1}, {2})", inner, inside, value, result)
        begin += size
    if result is None:
        raise Unsupported("an empty cat")
    return result


def _same_memory(b: Builder, pieces: list[torch.fx.Node], dim: int) -> bool:
    """A stack of what is computed of the same elements, as unpacked numbers are: read once for all of them."""
    if len(pieces) < 2 or any(fake(p).shape[dim] != 1 for p in pieces):
        return False
    read = [_memory(b, p) for p in pieces]
    return all(r and r == read[0] for r in read)


def _memory(b: Builder, node: torch.fx.Node) -> frozenset[torch.fx.Node]:
    """What is read to compute it, with the views that it is read through."""
    pending, seen, read = [node], set[torch.fx.Node](), set[torch.fx.Node]()
    while pending:
        current = pending.pop()
        if current in seen or is_fill(current):
            continue
        seen.add(current)
        if root(current) in b.inside:
            pending += current.all_input_nodes
        else:
            read.add(current)
    return frozenset(read)


def _padded(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    """slice_backward and constant_pad_nd: a tensor inside a larger one of zeros or of one number."""
    source = a["self"] if "self" in a else a["grad_output"]
    sizes = fake(source).shape
    starts = [0] * len(sizes)
    if base(node) == "slice_backward":
        if a["step"] != 1:
            raise Unsupported("the gradient of a slice with a step")
        size, dim = a["input_sizes"][a["dim"]], a["dim"]
        starts[dim] = min(max(a["start"] + size if a["start"] < 0 else a["start"], 0), size)
    else:
        for i, before in enumerate(a["pad"][::2]):
            starts[len(sizes) - 1 - i] = before
    inside: Value | None = None
    for where, start, size, whole in zip(index, starts, sizes, fake(node).shape, strict=True):
        if start < 0:
            raise Unsupported("a negative padding")
        if (start, size) != (0, whole):
            spot = b.place(where)
            edges = (b.number(start, spot.dtype), b.number(start + size, spot.dtype))
            within = b.expression("({0} >= {1}) & ({0} < {2})", "bool", spot, *edges)
            inside = within if inside is None else b.expression("{0} & {1}", "bool", inside, within)
    local = tuple(p + Linear(-s) for p, s in zip(index, starts, strict=True))
    if inside is None:
        return b.value(source, local)
    value = b.guarded(inside, source, local)
    rest = b.number(a.get("value") or 0, value.dtype)
    return b.expression("tl.where({0}, {1}, {2})", value.dtype, inside, value, rest)


def _looked_up(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    """embedding, index_select, gather and index by one tensor: the index is read first, then what it points to."""
    name = base(node)
    if name == "embedding":
        spot = b.value(a["indices"], index[:-1])
        return b.gathered(a["weight"], (ZERO, index[-1]), 0, spot)
    source = a["self"]
    if name in ("index_select", "gather") and not fake(source).dim():
        return b.value(source, ())  # a scalar has one element to pick
    if name == "index_select":
        dim, rank = a["dim"] % fake(source).dim(), fake(a["index"]).dim()
        if rank > 1:
            raise Unsupported(f"index_select by an index of {rank} dimensions")
        return b.gathered(source, index, dim, b.value(a["index"], (index[dim],)[:rank]))
    if name == "gather":
        dim = a["dim"] % fake(source).dim()
        return b.gathered(source, index, dim, b.value(a["index"], index))
    given = [(d, i) for d, i in enumerate(a["indices"]) if i is not None]
    if any(dtype(i) not in ("i64", "i32") for _, i in given):
        raise Unsupported("an index of booleans")
    if len(given) > 1:
        return _indexed(b, a["self"], given, index)
    dim, where = given[0]
    rank = fake(where).dim()
    spot = b.value(where, index[dim : dim + rank])
    return b.gathered(source, (*index[:dim], ZERO, *index[dim + rank :]), dim, spot)


def _flipped(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    """flip: the same element, counted from the other end."""
    shape = tuple(fake(node).shape)
    turned = {d % max(1, len(shape)) for d in a["dims"]} if shape else set()
    parts = enumerate(zip(index, shape, strict=True))
    return b.value(a["self"], tuple(from_the_end(p, n) if d in turned else p for d, (p, n) in parts))


def _rolled(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    """roll: the element so far before, which of the first ones is one of the last."""
    source, shape = a["self"], tuple(fake(node).shape)
    shifts = dict.fromkeys(range(len(shape)), 0)
    for d, shift in zip(a["dims"], a["shifts"], strict=True):
        shifts[d % len(shape)] += shift
    moved = {d: shift % shape[d] for d, shift in shifts.items() if shift % shape[d]}
    index = tuple(
        Linear((p.offset - moved.pop(d)) % shape[d]) if d in moved and not p.terms else p for d, p in enumerate(index)
    )
    if root(source) not in b.inside and not is_fill(root(source)) and moved:
        spots = {d: b.place(index[d] + Linear(-shift)) for d, shift in moved.items()}
        return b.gathered_at(source, tuple(ZERO if d in spots else p for d, p in enumerate(index)), spots)
    return _side_by_side(b, source, index, moved)


def _rolls(b: Builder, node: torch.fx.Node) -> bool:
    """Some of what the kernel computes for a node is rolled."""
    pending, seen = [node], set[torch.fx.Node]()
    while pending:
        current = root(pending.pop())
        if current in b.inside and current not in seen:
            seen.add(current)
            if current.target is not operator.getitem and base(current) == "roll":
                return True
            pending += current.all_input_nodes
    return False


def _both(b: Builder, here: Value | None, there: Value) -> Value:
    return there if here is None else b.expression("{0} & {1}", "bool", here, there)


def _side_by_side(b: Builder, source: torch.fx.Node, index: Index, moved: dict[int, int]) -> Value:
    """What is rolled and computed in the same kernel: computed before and behind the place where it wraps."""
    if moved and _rolls(b, source):  # four times each element, eight times behind a third, ...
        raise Unsupported("a roll of what is rolled in the same kernel")
    sides: list[tuple[Value | None, Index]] = [(None, index)]
    for d, shift in moved.items():
        spot, size = b.place(index[d]), fake(source).shape[d]
        own = [
            (b.expression(f"{{0}} {sign} {{1}}", "bool", spot, b.number(shift, spot.dtype)), Linear(by))
            for sign, by in ((">=", -shift), ("<", size - shift))
        ]
        sides = [
            (_both(b, here, there), (*at[:d], at[d] + by, *at[d + 1 :])) for here, at in sides for there, by in own
        ]
    result: Value | None = None
    for here, at in sides:
        value = b.value(source, at) if here is None else b.guarded(here, source, at)
        if here is None or result is None:
            result = value
        else:
            result = b.expression("tl.where({0}, {1}, {2})", value.dtype, here, value, result)
    assert result is not None
    return result


def _indexed(b: Builder, source: torch.fx.Node, given: list[tuple[int, torch.fx.Node]], index: Index) -> Value:
    """x[i, j]: several tensors of places, broadcast to one shape, which stands where the first does if they are
    neighbours, and at the front else.
    """
    sizes = itertools.zip_longest(*(reversed(fake(i).shape) for _, i in given), fillvalue=1)
    shape = tuple(max(each) for each in sizes)[::-1]
    dims = [d for d, _ in given]
    first = dims[0] if dims == list(range(dims[0], dims[0] + len(dims))) else 0
    picked, others = index[first : first + len(shape)], [*index[:first], *index[first + len(shape) :]]
    places = {d: b.value(i, broadcast(picked, shape, tuple(fake(i).shape))) for d, i in given}
    fixed = tuple(ZERO if d in places else others.pop(0) for d in range(fake(source).dim()))
    return b.gathered_at(source, fixed, places)


RULES: dict[str, Rule] = {
    "add": _arithmetic("add"), "sub": _arithmetic("sub"), "rsub": _arithmetic("rsub"),
    "div": _div, "true_divide": _div,
    **dict.fromkeys(("floor_divide", "remainder", "fmod"), _floored),
    "round": _round,
    "clamp": _clamp, "clamp_min": _clamp, "clamp_max": _clamp,
    "where": _where, "masked_fill": _masked_fill,
    "pow": _pow, "gelu": _gelu, "gelu_backward": _gelu,
    "hardtanh": _named("self", "min_val", "max_val"),
    "leaky_relu": _named("self", "negative_slope"),
    "elu": _named("self", "alpha", "scale", "input_scale"),
    "celu": _named("self", "alpha"),
    "threshold": _named("self", "threshold", "value"),
    "softplus": _softplus,
    "addcmul": _named("self", "tensor1", "tensor2", "value"),
    "addcdiv": _named("self", "tensor1", "tensor2", "value"),
    "tril": _triangle, "triu": _triangle,
    "cat": _cat,
    **dict.fromkeys(("slice_backward", "constant_pad_nd"), _padded),
    **dict.fromkeys(("embedding", "index_select", "gather", "index", "_unsafe_index"), _looked_up),
    "flip": _flipped,
    "roll": _rolled,
    **dict.fromkeys(("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"), upsampling.nearest),
    "upsample_bilinear2d": upsampling.bilinear,
    "rms_norm": reductions.rms_norm,
    **dict.fromkeys(("rand", "rand_like", "randn", "randn_like", "bernoulli"), random.random),
    **dict.fromkeys(ops.FILLS, _fill),
    **dict.fromkeys(("sum", "mean", "amax", "amin", "var", "std", "all", "any", "logsumexp"), reductions.reduction),
    **dict.fromkeys(("linalg_vector_norm", "prod", "argmax", "argmin"), reductions.reduction),
    **dict.fromkeys(("cumsum", "cumprod", "logcumsumexp"), rowwise.scan),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), pools.average),
    "convolution": pools.depthwise,
    **dict.fromkeys(("_softmax", "_log_softmax", "_safe_softmax"), reductions.softmax),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), reductions.softmax_backward),
}  # fmt: skip
