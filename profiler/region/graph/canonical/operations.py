"""aten calls as canonical values: one function an operation, over values in the place of tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log, prod
from typing import Any, cast

import torch

from profiler.region.graph.canonical.identities import (
    LEAST,
    both,
    bounds_of,
    clamped,
    hidden,
    magnitude,
    negated,
    nonnegative,
    selected,
)
from profiler.region.graph.canonical.products import product_of_batches
from profiler.region.graph.canonical.values import FLOATS, Product, Shape, Table, Value, as_product, broadcast

Operand = Value | int | float | bool
INTEGERS = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})


@dataclass(frozen=True, slots=True)
class Made:
    """One aten call. given: its arguments by the schema's names, values in the place of tensors; result: the fake that
    it gave; sources: fakes of the tensor arguments. rounding_used: it rounds, and the region takes the difference to
    what it rounds.
    """

    table: Table
    name: str
    given: Mapping[str, Any]
    result: Any
    sources: Mapping[str, Any]
    rounding_used: bool = False

    @property
    def shape(self) -> Shape:
        return tuple(self.result.shape)

    def value(self, name: str) -> Value:
        return cast(Value, self.given[name])

    def integer(self, name: str, default: int) -> int:
        given = self.given.get(name)
        return default if given is None else int(given)


Rule = Callable[[Made], "Value | tuple[Value, ...] | None"]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """What these operations are; None for what is only the operation itself."""

    def kept(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return kept


def canonical(made: Made) -> Value | tuple[Value, ...] | None:
    """The call's value in canonical form; None where there is no rule for it."""
    known = RULES.get(made.name)
    return known(made) if known is not None else None


# --------------------------------------------------------------------------------------------------------- elementwise


def plain(table: Table, value: Value) -> Value:
    """The operand of an elementwise operation, without views that broadcasting makes itself."""
    while True:
        if value.op == "expand" or (value.op == "reshape" and _leading_ones(value)):
            value = value.args[0]
        elif value.op == "full":
            return table.number(full_of(value))
        else:
            return value


def full_of(value: Value) -> float:
    """The number that a constant has everywhere."""
    number = value.attrs[0]
    assert isinstance(number, float)
    return number


def _leading_ones(value: Value) -> bool:
    inner = value.args[0].shape
    extra = len(value.shape) - len(inner)
    return extra > 0 and value.shape[:extra] == (1,) * extra and value.shape[extra:] == inner and bool(inner)


def elementwise(table: Table, function: Callable[..., Value], operands: Sequence[Value], shape: Shape) -> Value:
    """The function of the operands, views of leading axes moved behind it, in the shape that the call gives."""
    values = [plain(table, v) for v in operands]
    if _all_squeezed(values):
        inner = function(*(v.args[0] if v.op == "reshape" else v for v in values))
        return fitted(table, table.reshape(inner, shape), shape)
    tensors = [v for v in values if v.op != "number"]
    if len(tensors) == 1 and tensors[0].op == "reshape" and tensors[0].args[0].scores:
        inner = function(*(v.args[0] if v is tensors[0] else v for v in values))
        return fitted(table, table.reshape(inner, tensors[0].shape), shape)
    source = next((v for v in values if v.op == "reshape" and _keeps_rows(v)), None)
    if source is not None:
        inner = source.args[0]
        moved = [_in_shape_of(table, v, source) for v in values]
        if all(m is not None for m in moved):
            made = function(*moved)
            if made.shape == inner.shape:
                return fitted(table, table.reshape(made, source.shape), shape)
    return fitted(table, function(*(inward(table, v) for v in values)), shape)


def inward(table: Table, value: Value) -> Value:
    """A view of a factor and a power of one value, as the same of the value's view."""
    inner = value.args[0] if value.op == "reshape" else value
    if inner is value or inner.scores or inner.op != "product" or len(inner.args) != 1:
        return value
    parts = as_product(inner)
    ((base, exponent),) = parts.exponents.items()
    return table.product(Product(parts.coefficient, {table.reshape(base, value.shape): exponent}))


def _all_squeezed(values: Sequence[Value]) -> bool:
    """Reductions whose axes were not kept, all of one shape: they can be put away behind the operation."""
    tensors = [v for v in values if v.op != "number"]
    shapes = {v.args[0].shape if v.op == "reshape" else None for v in tensors}
    return (
        len(shapes) == 1
        and None not in shapes
        and len({v.shape for v in tensors}) == 1
        and all(tuple(s for s in v.args[0].shape if s != 1) == tuple(s for s in v.shape if s != 1) for v in tensors)
    )


def _keeps_rows(value: Value) -> bool:
    """A view that puts leading axes together or apart; rows and columns, two axes or more behind them, stay."""
    inner = value.args[0]
    return inner.scores and len(inner.shape) > 2 and len(value.shape) > 2 and inner.shape[-2:] == value.shape[-2:]


def _in_shape_of(table: Table, value: Value, source: Value) -> Value | None:
    """An operand beside `source` as it stands beside what that is a view of."""
    if value.op == "number":
        return value
    lead = value.shape[:-2]
    if value is source or (value.op == "reshape" and value.shape == source.shape):
        inner = value.args[0]
        return inner if inner.shape == source.args[0].shape else None
    if all(s == 1 for s in lead):
        return table.reshape(value, value.shape[-2:]) if lead else value
    if prod(lead) == prod(source.shape[:-2]):
        return table.reshape(value, (*source.args[0].shape[:-2], *value.shape[-2:]))
    return None


def fitted(table: Table, value: Value, shape: Shape) -> Value:
    """In the shape of the call's result, where operands that were spread made it larger."""
    if value.shape == shape or value.op == "number":
        return value
    if broadcast((value.shape, shape)) == shape:
        return table.expand(value, shape)
    return table.reshape(value, shape)


def operand(table: Table, given: object) -> Value:
    """An argument as a value: numbers too."""
    if isinstance(given, Value):
        return given
    number = plain_number(given)
    return table.make("constant", (), (str(given),)) if number is None else table.number(number)


def plain_number(given: object) -> float | None:
    """A real number of a size that a float has."""
    try:
        return float(given) if isinstance(given, (int, float)) else None
    except OverflowError:
        return None


def _float_result(made: Made) -> bool:
    return isinstance(made.result, torch.Tensor) and made.result.dtype.is_floating_point


@rule("add", "sub", "rsub")
def _sum(made: Made) -> Value | None:
    first, second = (operand(made.table, made.given[n]) for n in ("self", "other"))
    alpha = made.given.get("alpha", 1)
    if made.result.dtype == torch.bool or isinstance(alpha, Value):
        return None
    factors = {"add": (1.0, alpha), "sub": (1.0, -alpha), "rsub": (-alpha, 1.0)}[made.name]
    return elementwise(
        made.table, lambda a, b: made.table.plus((a, factors[0]), (b, factors[1])), (first, second), made.shape
    )


@rule("mul")
def _product(made: Made) -> Value | None:
    if made.result.dtype == torch.bool:
        return both(made.table, made.value("self"), made.value("other")) if _both_masks(made) else None
    pair = [operand(made.table, made.given[n]) for n in ("self", "other")]
    return elementwise(made.table, made.table.times, pair, made.shape)


@rule("div")
def _quotient(made: Made) -> Value | None:
    first, second = (operand(made.table, made.given[n]) for n in ("self", "other"))
    if made.given.get("rounding_mode") or (second.op == "number" and not second.attrs[0]):
        return None
    table = made.table
    return elementwise(table, lambda a, b: table.times(a, table.power(b, -1.0)), (first, second), made.shape)


@rule("neg", "sqrt", "rsqrt", "reciprocal", "square")
def _unary_power(made: Made) -> Value:
    table = made.table
    if made.name == "neg":
        return elementwise(table, lambda a: table.scaled(a, -1.0), (made.value("self"),), made.shape)
    exponent = {"sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1.0, "square": 2.0}[made.name]
    return elementwise(table, lambda a: table.power(a, exponent), (made.value("self"),), made.shape)


@rule("pow")
def _power(made: Made) -> Value | None:
    base, exponent = made.given["self"], made.given["exponent"]
    if not isinstance(base, Value) or isinstance(exponent, (Value, bool)) or not _float_result(made):
        return None
    table = made.table
    return elementwise(table, lambda a: table.power(a, float(exponent)), (base,), made.shape)


@rule("exp", "exp2", "log", "erf", "tanh", "sigmoid", "silu", "sin", "cos")
def _function(made: Made) -> Value:
    table, name = made.table, made.name.removesuffix("2")
    factor = log(2.0) if made.name == "exp2" else 1.0

    def function(x: Value) -> Value:
        x = table.scaled(x, factor)
        if name == "log" and x.op == "softmax":
            return table.make("log_softmax", x.args, x.attrs, x.shape)
        if name == "exp" and x.op == "log_softmax":
            return table.make("softmax", x.args, x.attrs, x.shape)
        return table.make(name, (x,), (), x.shape)

    return elementwise(table, function, (made.value("self"),), made.shape)


@rule("gelu")
def _gelu(made: Made) -> Value:
    kind = made.given.get("approximate", "none")
    table = made.table
    return elementwise(table, lambda x: table.make("gelu", (x,), (kind,), x.shape), (made.value("self"),), made.shape)


@rule("abs")
def _magnitude(made: Made) -> Value:
    return elementwise(made.table, lambda x: magnitude(made.table, x), (made.value("self"),), made.shape)


@rule("round")
def _rounded(made: Made) -> Value | None:
    """To whole numbers: what is kept between two of them may be rounded before that."""
    table = made.table

    def function(x: Value) -> Value:
        bounds = bounds_of(x) if x.op == "clamp" else (0.5,)
        if all(b is None or float(b).is_integer() for b in bounds):
            inner = x.args[0]
            return clamped(table, table.make("round", (inner,), (), inner.shape), *bounds)
        return table.make("round", (x,), (), x.shape)

    return None if made.given.get("decimals") else elementwise(table, function, (made.value("self"),), made.shape)


@rule("clamp", "clamp_min", "clamp_max", "relu", "maximum", "minimum")
def _limited(made: Made) -> Value | None:
    """Numbers kept above one, below another: ReLU above 0. The larger of two that differ in their sign."""
    table, x = made.table, made.value("self")
    if made.name in ("maximum", "minimum"):
        other = made.value("other")
        pair = [plain(table, v) for v in (x, other)]
        numbers = [v for v in pair if v.op == "number"]
        if not numbers:
            return _larger(made, pair) if made.name == "maximum" else None
        x = other if pair[0] is numbers[0] else x
        limit = full_of(numbers[0])
        least, most = (limit, None) if made.name == "maximum" else (None, limit)
    else:
        least, most = (0.0, None) if made.name == "relu" else (made.given.get("min"), made.given.get("max"))
    if any(isinstance(b, Value) for b in (least, most)) or not _float_result(made):
        return None
    spread = x.args[0] if x.op == "reshape" else x
    if spread.op == "var" and most is None and least == 0:  # a variance is not below zero
        return x
    return elementwise(table, lambda v: clamped(table, v, least, most), (x,), made.shape)


def _larger(made: Made, pair: Sequence[Value]) -> Value | None:
    """max(x, -x), and the largest x with the largest -x, are of magnitudes."""
    table = made.table
    for a, b in (pair, pair[::-1]):
        if table.scaled(b, -1.0) is a:
            return fitted(table, magnitude(table, a), made.shape)
        least = table.scaled(b, -1.0)
        if a.shape != least.shape:
            continue
        inner, other = (v.args[0] if v.op == "reshape" else v for v in (a, least))
        if (inner.op, other.op) == ("amax", "amin") and (inner.args, inner.attrs) == (other.args, other.attrs):
            most = table.reduction("amax", magnitude(table, inner.args[0]), inner.attrs, inner.shape)
            return table.reshape(most, made.shape)
    return None


@rule("linalg_vector_norm")
def _length(made: Made) -> Value | None:
    """The largest magnitude, or the root of the sum of squares."""
    table, order, dims = made.table, made.given.get("ord", 2), made.given.get("dim")
    x, axes = made.value("self"), [dims] if isinstance(dims, int) else list(dims or ())
    if order not in (2, inf) or not _float_result(made) or 0 in x.shape:
        return None
    keepdim = bool(made.given.get("keepdim", False))
    if order == inf:
        return table.reduced("amax", magnitude(table, x), axes, keepdim)
    total = table.reduced("sum", table.power(x, 2.0), axes, keepdim)
    return elementwise(table, lambda a: table.power(a, 0.5), (total,), made.shape)


# ---------------------------------------------------------------------------------------------------------- reductions


@rule("sum", "mean", "amax", "amin")
def _reduction(made: Made) -> Value | None:
    dims = made.given.get("dim")
    axes = [dims] if isinstance(dims, int) else list(dims or ())
    if not _float_result(made) or 0 in made.value("self").shape:
        return None
    return made.table.reduced(made.name, made.value("self"), axes, bool(made.given.get("keepdim", False)))


@rule("max")
def _largest(made: Made) -> Value | tuple[Value, ...] | None:
    x, dim = made.value("self"), made.given.get("dim")
    if isinstance(made.result, torch.Tensor) and "dim" not in made.given and "other" not in made.given:
        return (
            made.table.reduced("amax", x, [], False) if _float_result(made) and x.shape and 0 not in x.shape else None
        )
    if not isinstance(dim, int) or not isinstance(made.result, tuple) or not x.shape:
        return None
    most = made.table.reduced("amax", x, [dim], bool(made.given.get("keepdim", False)))
    return most, made.table.make("argmax", (x,), (dim % len(x.shape) - len(x.shape),), tuple(made.result[1].shape))


@rule("var", "var_mean")
def _variance(made: Made) -> Value | tuple[Value, ...] | None:
    x, dims, correction = made.value("self"), made.given.get("dim"), made.given.get("correction")
    if made.given.get("unbiased") is not None:
        correction = 1 if made.given["unbiased"] else 0
    axes, keepdim = [dims] if isinstance(dims, int) else list(dims or ()), bool(made.given.get("keepdim", False))
    spread = made.table.reduced("var" if correction == 0 else f"var_{correction}", x, axes, keepdim)
    return spread if made.name == "var" else (spread, made.table.reduced("mean", x, axes, keepdim))


@rule("_softmax", "_log_softmax", "_safe_softmax", "logsumexp")
def _softmax(made: Made) -> Value | None:
    x, dims = made.value("self"), made.given["dim"]
    axes = dims if isinstance(dims, (list, tuple)) else [dims]
    if not x.shape or len(axes) != 1:
        return None
    table, axis = made.table, axes[0] % len(x.shape) - len(x.shape)
    if made.name == "logsumexp":
        return table.reduced("logsumexp", x, axes, bool(made.given.get("keepdim", False)))
    name = "log_softmax" if made.name == "_log_softmax" else "softmax"
    if axis == -1 and x.op == "reshape" and x.args[0].scores and x.shape[-1] == x.args[0].shape[-1]:
        inner = x.args[0]
        return table.reshape(table.make(name, (inner,), (axis,), inner.shape), x.shape)
    return table.make(name, (x,), (axis,), x.shape)


# --------------------------------------------------------------------------------------------------------------- views


@rule("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze")
def _view(made: Made) -> Value:
    x = made.value("self")
    if x.op == "iota" and len(x.shape) == 1:
        place = [i - len(made.shape) for i, s in enumerate(made.shape) if s != 1]
        if len(place) == 1:
            return made.table.make("iota", (), (place[0], *x.attrs[1:]), made.shape)
    return made.table.reshape(x, made.shape)


@rule("expand")
def _expand(made: Made) -> Value:
    return made.table.expand(made.value("self"), made.shape)


@rule("repeat")
def _repeat(made: Made) -> Value | None:
    """Of axes of one element: the same as spreading them."""
    x, times = made.value("self"), list(made.given["repeats"])
    full = (*(1 for _ in range(len(times) - len(x.shape))), *x.shape)
    if any(t != 1 and s != 1 for t, s in zip(times, full, strict=True)):
        return None
    return made.table.expand(made.table.reshape(x, full), made.shape)


@rule("permute", "transpose", "t")
def _permute(made: Made) -> Value:
    x = made.value("self")
    dims = list(range(len(x.shape)))
    if made.name == "permute":
        dims = list(made.given["dims"])
    elif len(dims) > 1:
        a, b = (made.integer("dim0", 0), made.integer("dim1", 1)) if made.name == "transpose" else (0, 1)
        dims[a], dims[b] = dims[b], dims[a]
    return made.table.permute(x, dims)


@rule("slice")
def _slice(made: Made) -> Value:
    x, dim = made.value("self"), made.integer("dim", 0)
    rank = len(x.shape)
    end = min(made.integer("end", x.shape[dim]), x.shape[dim])
    return made.table.slice(x, dim % rank - rank, made.integer("start", 0), end, made.integer("step", 1))


@rule("split", "split_with_sizes", "chunk", "unsafe_split")
def _split(made: Made) -> tuple[Value, ...]:
    x, dim = made.value("self"), made.integer("dim", 0)
    axis, parts, at = dim % len(x.shape) - len(x.shape), [], 0
    for part in made.result:
        size = part.shape[axis]
        parts.append(made.table.slice(x, axis, at, at + size))
        at += size
    return tuple(parts)


@rule("select")
def _select(made: Made) -> Value:
    x, dim, index = made.value("self"), made.integer("dim", 0), made.integer("index", 0)
    axis = dim % len(x.shape) - len(x.shape)
    index %= max(1, x.shape[axis])
    return made.table.reshape(made.table.slice(x, axis, index, index + 1), made.shape)


@rule("cat")
def _cat(made: Made) -> Value:
    rank = len(made.shape)
    parts = [p for p in made.given["tensors"] if p.shape != (0,)]
    return made.table.cat(parts, made.integer("dim", 0) % rank - rank)


@rule("_to_copy", "to", "detach", "alias", "lift_fresh_copy", "clone", "contiguous")
def _cast(made: Made) -> Value:
    """Casts between floats of up to 32 bits are the same value; others keep what they make of it."""
    x, source = made.value("self"), made.sources["self"]
    before, after = source.dtype, made.result.dtype
    if made.rounding_used:
        return made.table.make("rounded", (x,), (str(after),), made.shape)
    if (
        before == after
        or (before in FLOATS and after in FLOATS)
        or ({before, after} <= INTEGERS and after.itemsize > 3)
    ):
        return x
    if before == torch.bool or (after == torch.bool and made.table.is_truth(x)):
        return x  # true is 1
    if x.op in ("full", "number"):
        return made.table.make("full", (), (full_of(x),), made.shape)
    return made.table.make("cast", (x,), (str(after).removeprefix("torch."),), made.shape)


# ------------------------------------------------------------------------------------------------- constants and masks


@rule(
    "ones",
    "zeros",
    "full",
    "scalar_tensor",
    "ones_like",
    "zeros_like",
    "full_like",
    "new_zeros",
    "new_ones",
    "new_full",
)
def _full(made: Made) -> Value | None:
    fixed = 1.0 if "ones" in made.name else 0.0 if "zeros" in made.name else None
    number = made.given.get("fill_value", made.given.get("s")) if fixed is None else fixed
    number = plain_number(number)
    return None if number is None else made.table.make("full", (), (number,), made.shape)


@rule("arange")
def _arange(made: Made) -> Value | None:
    start, step = made.given.get("start", 0), made.given.get("step", 1)
    if isinstance(start, Value) or start != 0 or step != 1 or len(made.shape) != 1:
        return None
    return made.table.make("iota", (), (-1, made.shape[0]), made.shape)


@rule("tril", "triu")
def _triangle(made: Made) -> Value | None:
    """Of ones: where row less column is not below something. Of lowest scores: the mask that is added."""
    x, table = made.value("self"), made.table
    if x.op != "full" or len(made.shape) < 2:
        return None
    rows, columns = made.shape[-2:]
    row = table.make("iota", (), (-2, rows), (rows, 1))
    column = table.make("iota", (), (-1, columns), (columns,))
    sign, diagonal = (1.0 if made.name == "tril" else -1.0), made.integer("diagonal", 0)
    offset = table.number(sign * diagonal)
    inside = nonnegative(table, table.plus((row, sign), (column, -sign), (offset, 1.0)), (rows, columns))
    number = full_of(x)
    if number == 1:
        return inside
    return table.make("added_mask", (negated(table, inside),), (), (rows, columns)) if number <= LEAST else None


@rule("ge", "gt", "le", "lt")
def _compare(made: Made) -> Value | None:
    """Of whole numbers, as a difference that is not negative."""
    types = [s.dtype for s in made.sources.values() if isinstance(s, torch.Tensor)]
    table = made.table
    if all(t in FLOATS for t in types):
        return _above_zero(made)
    if not all(t in INTEGERS for t in types):
        return None
    first, second = (plain(table, operand(table, made.given[n])) for n in ("self", "other"))
    if first.op == "number" and second.op == "number":
        return None
    sign, less = (1.0 if made.name[0] == "g" else -1.0), (0.0 if made.name[1] == "e" else 1.0)
    difference = table.plus((first, sign), (second, -sign), (table.number(less), -1.0))
    return nonnegative(table, difference, difference.shape)


def _above_zero(made: Made) -> Value | None:
    """Of numbers held against 0: whether they are above, or not above it."""
    table, x = made.table, made.given["self"]
    if not isinstance(x, Value) or x.scores or _constant(table, made.given["other"]) != 0:
        return None
    strict, greater = made.name[1] == "t", made.name[0] == "g"

    def function(v: Value) -> Value:
        signed = v if greater == strict else table.scaled(v, -1.0)
        above = table.make("positive", (signed,), (), v.shape)
        return above if strict else negated(table, above)

    return elementwise(table, function, (x,), made.shape)


@rule("eq", "ne")
def _equal(made: Made) -> Value | None:
    """What is 1 or 0, held against 1 or 0: the mask, or its opposite."""
    x, other = made.value("self"), _constant(made.table, made.given["other"])
    if other not in (0, 1) or not made.table.is_truth(x):
        return None
    return x if (made.name == "eq") == (other == 1) else negated(made.table, x)


def _both_masks(made: Made) -> bool:
    return all(isinstance(made.given[n], Value) and made.sources[n].dtype == torch.bool for n in ("self", "other"))


@rule("bitwise_and", "logical_and", "__and__")
def _and(made: Made) -> Value | None:
    if not _both_masks(made):
        return None
    return both(made.table, *(plain(made.table, made.value(n)) for n in ("self", "other")))


@rule("bitwise_not", "logical_not")
def _not(made: Made) -> Value | None:
    mask = made.value("self")
    if made.sources["self"].dtype != torch.bool:
        return None
    return negated(made.table, mask)


def _constant(table: Table, given: object) -> float | None:
    """The number that an argument is everywhere."""
    if isinstance(given, Value):
        value = plain(table, given)
        return full_of(value) if value.op == "number" else None
    return plain_number(given)


@rule("where", "masked_fill")
def _choice(made: Made) -> Value | None:
    """Scores hidden where a mask says so, and masks that are added."""
    table = made.table
    if made.name == "where":
        if made.sources["condition"].dtype != torch.bool or not _float_result(made):
            return None
        keep, kept, other = made.given["condition"], made.given["self"], made.given["other"]
    else:
        keep, kept, other = negated(table, made.given["mask"]), made.given["self"], made.given["value"]
    low, high = _constant(table, other), _constant(table, kept)
    zeroed = _zeroed(made, keep, kept, other, low, high)
    if zeroed is not None:
        return zeroed
    if low is None and high is not None and high <= LEAST:
        keep, kept, low, high = negated(table, keep), other, high, None
    elif high is not None and low is not None and high <= LEAST:
        keep, low, high = negated(table, keep), high, low
    if low is None or low > LEAST or low == inf:
        return None
    keep = plain(table, keep)
    if high == 0:
        return table.make("added_mask", (keep,), (), keep.shape)
    if high is not None or not isinstance(kept, Value):
        return None
    return elementwise(table, lambda scores, mask: hidden(table, scores, mask), (kept, keep), made.shape)


def _zeroed(
    made: Made, keep: Value, kept: object, other: object, low: float | None, high: float | None
) -> Value | None:
    """What is 0 where a mask says so, but for scores: a hidden one is no finite number. It is no product with the mask,
    whose NaN and infinities stay: a division by 0 that the mask hides is 0 here.
    """
    table = made.table
    if high == 0 and low is None:
        keep, kept, low = negated(table, keep), other, 0.0
    if low != 0 or not isinstance(kept, Value) or kept.scores or _constant(table, kept) is not None:
        return None
    return elementwise(table, lambda x, mask: selected(table, x, mask), (kept, plain(table, keep)), made.shape)


# -------------------------------------------------------------------------------------------------- products and picks


@rule("mm", "bmm", "matmul")
def _matmul(made: Made) -> Value:
    return product_of_batches(made.table, made.value("self"), made.value("mat2"), made.shape)


@rule("addmm", "baddbmm")
def _addmm(made: Made) -> Value | None:
    """beta * bias + alpha * a @ b."""
    table = made.table
    first, second = ("mat1", "mat2") if made.name == "addmm" else ("batch1", "batch2")
    beta, alpha = made.given.get("beta", 1), made.given.get("alpha", 1)
    product = product_of_batches(table, made.value(first), made.value(second), made.shape)
    if beta == 0:
        return table.scaled(product, float(alpha))
    return elementwise(table, lambda b, p: table.plus((b, beta), (p, alpha)), (made.value("self"), product), made.shape)


@rule("native_dropout")
def _dropout(made: Made) -> tuple[Value, ...] | None:
    x = made.value("input")
    if made.given.get("train") is False:
        return None
    if x.op == "reshape" and _keeps_rows(x):
        inner = x.args[0]
        dropped = made.table.make("dropout", (inner,), (made.given["p"], id(made.result[0])), inner.shape)
        dropped = made.table.reshape(dropped, x.shape)
    else:
        dropped = made.table.make("dropout", (x,), (made.given["p"], id(made.result[0])), x.shape)
    return dropped, made.table.make("dropout_mask", (dropped,), (), x.shape)


@rule("gather")
def _gather(made: Made) -> Value | None:
    """x[i, target[i]] of a row, with the axis kept."""
    x, index = made.value("self"), made.value("index")
    rank = len(x.shape)
    if not rank or made.given["dim"] % rank != rank - 1 or index.op != "reshape" or index.shape != (*x.shape[:-1], 1):
        return None
    target = index.args[0]
    if target.shape != x.shape[:-1]:
        return None
    return made.table.reshape(made.table.make("pick", (x, target), (), x.shape[:-1]), made.shape)


@rule("index")
def _index(made: Made) -> Value | None:
    """x[arange(rows), target]."""
    x, indices = made.value("self"), made.given["indices"]
    if len(x.shape) != 2 or len(indices) != 2 or not all(isinstance(i, Value) for i in indices):
        return None
    rows, target = indices
    if rows.op != "iota" or rows.attrs != (-1, x.shape[0]) or target.shape != x.shape[:1]:
        return None
    return made.table.make("pick", (x, target), (), x.shape[:-1])


MEAN_OF_KEPT = "mean_of_kept"
"""A sum over the number of those that are not of the ignored class: over no more than all of them."""


@rule("nll_loss_forward")
def _nll_loss(made: Made) -> tuple[Value, ...] | None:
    """Minus the picked numbers: none, their sum, or their mean over those that are not of the ignored class.

    What is picked by an index ignores no class: it is another value, and so is a plain mean of these.
    """
    x, target = made.value("self"), made.value("target")
    if made.given.get("weight") is not None or len(x.shape) != 2:
        return None
    table, number = made.table, made.integer("reduction", 1)
    ignored = made.integer("ignore_index", -100)
    picked = table.make("pick", (x, target), (ignored,), x.shape[:-1])
    loss = table.scaled(picked, -1.0)
    if number == 1:
        loss = table.scaled(table.make(MEAN_OF_KEPT, (picked,), (ignored,), ()), -1.0)
    elif number:
        loss = table.reduced("sum", loss, [], False)
    return loss, table.make("weights_of", (loss,), (), ())


@functools.lru_cache(maxsize=1024)
def schema_names(target: Any) -> tuple[tuple[str, Any], ...]:
    """The arguments' names and defaults of an operation."""
    schema = getattr(target, "_schema", None)
    return () if schema is None else tuple((a.name, a.default_value) for a in schema.arguments)


def hashable(given: object) -> Hashable:
    """An argument that is no tensor, as part of a key."""
    if isinstance(given, (list, tuple)):
        return tuple(map(hashable, given))
    if isinstance(given, (int, float, str, bool)) or given is None:
        return given
    return str(given)
