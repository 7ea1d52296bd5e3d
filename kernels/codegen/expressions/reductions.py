"""Reductions along the columns: sums, extrema, variance, softmax, norms and the further results of a norm."""

from __future__ import annotations

import itertools
import math

import torch
import torch.fx

from kernels.codegen.expressions import ops, pools, random, rowwise
from kernels.codegen.expressions.values import Builder, Value
from kernels.codegen.index import ZERO, Index, Linear, Unsupported
from kernels.codegen.nodes import Arguments, base, bind, computed, dtype_of, fake


def dims_of(node: torch.fx.Node, a: Arguments) -> tuple[int, ...]:
    """The reduced dimensions, all where the call names none; a scalar has none, and torch lets it be reduced over 0."""
    given = a.get("dim")
    source = a.get("self")
    assert isinstance(source, torch.fx.Node)
    rank = fake(source).dim()
    dims = list(range(rank)) if given is None or given == [] else [given] if isinstance(given, int) else list(given)
    return tuple(sorted(d % rank for d in dims)) if rank else ()


def reduced_over(node: torch.fx.Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What a node of ops.REDUCTIONS reduces: the shape of its operand, and the dimensions, in order."""
    bound = bind(node)
    source = bound.get("self", bound.get("input", bound.get("x", bound.get("grad_output"))))
    assert isinstance(source, torch.fx.Node)
    shape = tuple(fake(source).shape)
    if "normalized_shape" in bound or "shape" in bound:
        count = len(bound.get("normalized_shape") or bound["shape"])
        return shape, tuple(range(len(shape) - count, len(shape)))
    return shape, dims_of(node, {**bound, "self": source})


UNROLLED = 8
"""Elements of a row, far apart in memory, up to which they are written out: neighbouring rows are read at once."""
FOLDS = {"sum": "add", "mean": "add", "prod": "mul", "max": "maximum", "min": "minimum"}
"""What joins two elements of a row that is written out."""


def written_out(node: torch.fx.Node) -> bool:
    """A reduction of few elements that are not neighbours in memory."""
    if ops.REDUCTIONS.get(base(node)) not in FOLDS:
        return False
    shape, dims = reduced_over(node)
    source = bind(node)["self"]
    steps = [(s, d) for d, (s, n) in enumerate(zip(fake(source).stride(), shape, strict=True)) if n > 1]
    return 1 < math.prod(shape[d] for d in dims) <= UNROLLED and bool(steps) and min(steps)[1] not in dims


def _folded(b: Builder, node: torch.fx.Node, a: Arguments, index: Index, how: str) -> Value:
    """The elements of a row one by one."""
    source, inner = a["self"], dtype_of(fake(node))
    shape, dims = reduced_over(node)
    kept = [d for d in range(len(shape)) if a.get("keepdim") or d not in dims]
    parts = dict(zip(kept, index, strict=True))
    total: Value | None = None
    for places in itertools.product(*(range(shape[d]) for d in dims)):
        at = parts | {d: Linear(place) for d, place in zip(dims, places, strict=True)}
        value = b.cast(b.value(source, tuple(at[d] for d in range(len(shape)))), computed(inner))
        total = value if total is None else b.named(b.apply(FOLDS[how], inner, total, value), "total")
    assert total is not None
    if how == "mean":
        count = math.prod(shape[d] for d in dims)
        return b.expression("{0} / {1}", total.dtype, total, b.number(count, total.dtype))
    return total


def reduction(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    """sum, mean, prod, amax, amin, argmax, argmin, var, std, all, any, logsumexp, the 2-norm."""
    how, inner = ops.REDUCTIONS[base(node)], dtype_of(fake(node))
    source = a["self"]
    own = {"all": "bool", "any": "bool"}.get(how, dtype_of(fake(source)) if how.startswith("arg") else inner)
    if own == "bool" and how in ("max", "min", "argmax", "argmin"):
        raise Unsupported(f"{base(node)} of booleans")
    if not b.domain.columns:
        return _folded(b, node, a, index, how)
    wide = b.reduced(source, dims_of(node, a), bool(a.get("keepdim")), index, own)
    if how in ("argmax", "argmin"):
        return b.reduce_place(how, wide)
    if how == "prod":
        return b.reduce(how, wide)
    if how in ("sum", "mean"):
        return b.rounded(b.reduce(how, wide), inner) if inner in ("f64", "f32", "i64") else b.reduce(how, wide)
    if how in ("max", "min"):
        return b.reduce(f"nan_{how}", wide)
    if how in ("any", "all"):
        flag = wide if how == "any" else b.expression("{0} == 0", "bool", wide)
        any_or_all = b.reduce("max", b.cast(flag, "i32"))
        return b.expression("{0} != 0" if how == "any" else "{0} == 0", "bool", any_or_all)
    if how == "logsumexp":
        # The largest value carries NaN, so that an infinite one is a row of -inf or a row with +inf: the result itself
        top, total = _exponentials(b, wide, "nan_max")
        text = 'tl.where(tl.abs({0}) == float("inf"), {0}, {0} + tl.log({1}))'
        return b.expression(text, top.dtype, top, total)
    if how == "norm":
        if a.get("ord") != 2:
            raise Unsupported(f"a norm of order {a.get('ord')}")
        return b.apply("sqrt", inner, b.reduce("sum", b.expression("{0} * {0}", wide.dtype, wide)))
    return _variance(b, a, wide) if how == "var" else b.apply("sqrt", inner, _variance(b, a, wide))


def _variance(b: Builder, a: Arguments, wide: Value) -> Value:
    correction = a.get("correction")
    if correction is None:
        correction = 1 if a.get("unbiased", True) else 0
    divisor = (wide.limit or b.domain.width) - correction
    if divisor <= 0:
        raise Unsupported("a variance of one element")
    return b.expression(f"{{0}} / {float(divisor)!r}", wide.dtype, b.reduce("m2", wide, b.mean(wide)))


def _exponentials(b: Builder, wide: Value, how: str = "max") -> tuple[Value, Value]:
    """(largest, sum of exp(x - largest)) of a row. how: max, or nan_max where the largest itself must be NaN."""
    top = b.named(b.reduce(how, wide), "largest")
    return top, b.named(b.reduce("sum", _exponential(b, wide, top)), "total")


def _exponential(b: Builder, wide: Value, top: Value) -> Value:
    below = b.named(b.expression("{0} - {1}", wide.dtype, wide, top), "below")
    return b.named(b.expression("tl.exp({0})", wide.dtype, below), "power")


def softmax(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    """softmax and log_softmax."""
    source = a["self"]
    inner = dtype_of(fake(node))
    dim = a["dim"] % max(1, fake(node).dim())
    wide = b.reduced(source, (dim,), True, _row(index, (dim,)), inner)
    top, total = _exponentials(b, wide)
    here = b.cast(b.value(source, index), computed(inner))
    if ops.REDUCTIONS[base(node)] == "log_softmax":
        return b.expression("{0} - {1} - tl.log({2})", here.dtype, here, top, total)
    if base(node) == "_safe_softmax":
        raise Unsupported("a softmax that gives 0 for a row of -inf")
    return b.quotient(_exponential(b, here, top), total)


def _row(index: Index, dims: tuple[int, ...]) -> Index:
    """The index of the row: what is reduced over is left out."""
    return tuple(ZERO if d in dims else part for d, part in enumerate(index))


def softmax_backward(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    """The gradients of softmax and log_softmax."""
    inner = dtype_of(fake(node))
    dim = a["dim"] % max(1, fake(node).dim())
    row = _row(index, (dim,))
    upstream, output = (b.reduced(a[k], (dim,), True, row, inner) for k in ("grad_output", "output"))
    here, result = (b.cast(b.value(a[k], index), computed(inner)) for k in ("grad_output", "output"))
    if base(node) == "_log_softmax_backward_data":
        return b.expression("{0} - tl.exp({1}) * {2}", here.dtype, here, result, b.reduce("sum", upstream))
    total = b.reduce("sum", b.expression("{0} * {1}", upstream.dtype, upstream, output))
    return b.expression("{1} * ({0} - {2})", here.dtype, here, result, total)


def rms_norm(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    """RMSNorm as one operation."""
    return part(b, node, 0, index)


def part(b: Builder, node: torch.fx.Node, place: int, index: Index) -> Value:
    """One result of an operation that gives several: layer norm (y, mean, rstd), RMS norm (y, rstd), var_mean."""
    name, a = base(node), bind(node)
    if name == "var_mean":
        wide = b.reduced(a["self"], dims_of(node, a), bool(a.get("keepdim")), index, dtype_of(node.meta["val"][0]))
        return _variance(b, a, wide) if place == 0 else b.mean(wide)
    if name == "native_dropout":
        return random.dropout(b, node, place, index)
    if name == "log_sigmoid_forward" and place == 0:
        return b.apply(name, dtype_of(node.meta["val"][0]), b.value(a["self"], index))
    if name in ops.PLACED_SCANS or name in ops.PICKS:
        return rowwise.part(b, node, a, place, index)
    if name in pools.PLACED:
        return pools.largest(b, node, a, place, index)
    if name not in ("native_layer_norm", "rms_norm", "_fused_rms_norm"):
        raise Unsupported(f"{node.target} is not in the generator's table")
    source: torch.fx.Node = a["input"] if "input" in a else a["x"]
    shape = a["normalized_shape"] if "normalized_shape" in a else a["shape"]
    rank = fake(source).dim()
    dims = tuple(range(rank - len(shape), rank))
    inner = dtype_of(fake(source))
    wide = b.reduced(source, dims, True, _row(index, dims), inner)
    centre = b.named(b.mean(wide), "mean") if name == "native_layer_norm" else None
    if centre is None:
        squares = b.named(b.expression("{0} * {0}", wide.dtype, wide), "square")
        spread_ = b.named(b.mean(squares), "mean_square")
    else:
        squares = b.named(b.reduce("m2", wide, centre), "squares")
        spread_ = b.expression(f"{{0}} / {float(math.prod(shape))!r}", wide.dtype, squares)
        spread_ = b.named(spread_, "variance")
    scale = b.named(b.expression(f"tl.rsqrt({{0}} + {float(a['eps'])!r})", wide.dtype, spread_), "rstd")
    if place > 0:
        return scale if centre is None or place == 2 else centre
    here = b.cast(b.value(source, index), computed(inner))
    centred = here if centre is None else b.named(b.expression("{0} - {1}", here.dtype, here, centre), "centred")
    result = b.named(b.expression("{0} * {1}", here.dtype, centred, scale), "normalised")
    own = index[rank - len(shape) :]
    for key, entry in (("weight", "mul"), ("bias", "add")):
        if a.get(key) is not None:
            result = b.apply(entry, inner, result, b.value(a[key], own))
    return result
