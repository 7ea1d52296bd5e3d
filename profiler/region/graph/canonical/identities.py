"""What compositions of operations are by name: variances, softmax, log-sum-exp, SiLU, masks. None where nothing is."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import pi, prod, sqrt

from profiler.region.graph.canonical.values import (
    Product,
    Shape,
    Table,
    Total,
    Value,
    as_product,
    as_total,
    broadcast,
    near,
)

LEAST = -1e9
"""A score this low has probability 0 next to any other: what people write where -inf is meant."""


CUBIC = 0.044715
"""What GELU's approximation by a hyperbolic tangent weights the cube with."""


def of_product(table: Table, product: Product) -> Value | None:
    """A sum divided by its number, exp / sum(exp), a * sigmoid(a), GELU."""
    for base, exponent in product.exponents.items():
        rest = {b: e for b, e in product.exponents.items() if b is not base}
        if base.op == "sum" and exponent == 1 and not rest:
            count = _count(base)
            if count > 1 and near(abs(product.coefficient) * count, 1.0):
                mean = table.reduction("mean", base.args[0], base.attrs, base.shape)
                return table.scaled(mean, 1.0 if product.coefficient > 0 else -1.0)
        if base.op == "sum" and exponent == -1 and base.args[0].op == "exp" and rest.get(base.args[0]) == 1:
            del rest[base.args[0]]
            softmax = _softmax(table, base.args[0].args[0], base.attrs)
            return _with(table, product.coefficient, rest, softmax)
        if base.op == "sigmoid" and exponent == 1 and rest.get(base.args[0]) == 1:
            del rest[base.args[0]]
            return _with(table, product.coefficient, rest, _unary(table, "silu", base.args[0]))
        if base.op in ("positive", "not") and exponent == 1 and (x := _above_zero(base)) is not None:
            if rest.get(x) == 1:
                del rest[x]
                return _with(table, product.coefficient, rest, _unary(table, "relu", x))
        if exponent == 1 and (sigmoid := _sigmoid_in(base)) is not None:
            gelu = _gelu_by_tanh(table, *sigmoid, rest, product.coefficient)
            if gelu is not None:
                return gelu
        if base.op == "total" and exponent == 1 and base.attrs == (1.0, 1.0) and base.args[0].op == "erf":
            inner = as_product(base.args[0].args[0])
            if not near(inner.coefficient, sqrt(0.5), 1e-4):
                continue
            x = table.product(Product(1.0, inner.exponents))
            if all(rest.get(b) == e for b, e in inner.exponents.items()) and near(product.coefficient, 0.5):
                rest = {b: e for b, e in rest.items() if b not in inner.exponents}
                return _with(table, 1.0, rest, table.make("gelu", (x,), ("none",), x.shape))
    return None


def _above_zero(mask: Value) -> Value | None:
    """x of x > 0 and of x >= 0."""
    if mask.op == "positive":
        return mask.args[0]
    inner = mask.args[0]
    parts = as_product(inner.args[0]) if inner.op == "positive" else None
    negative = parts is not None and parts.coefficient == -1 and list(parts.exponents.values()) == [1.0]
    return next(iter(parts.exponents)) if parts is not None and negative else None


def selected(table: Table, value: Value, keep: Value) -> Value:
    """Numbers of which those that a mask does not keep are 0: ReLU where it keeps those above 0."""
    if keep.op in ("positive", "not") and _above_zero(keep) is value:
        return _unary(table, "relu", value)
    return table.make("selected", (value, keep), (), broadcast((value.shape, keep.shape)) or value.shape)


def _sigmoid_in(base: Value) -> tuple[Value, float, float] | None:
    """(a, k, c) of c * sigmoid(k * a): a sigmoid, or 1 + tanh."""
    if base.op == "sigmoid":
        return base.args[0], 1.0, 1.0
    if base.op == "total" and base.attrs == (1.0, 1.0) and base.args[0].op == "tanh":
        return base.args[0].args[0], 2.0, 2.0
    return None


def _gelu_by_tanh(
    table: Table, argument: Value, slope: float, factor: float, rest: Mapping[Value, float], coefficient: float
) -> Value | None:
    """x * sigmoid(k * (x + 0.044715 x³)), k twice the root of 2 / pi; argument * slope is what the sigmoid is of."""
    read = _cubic(table, argument)
    if read is None:
        return None
    x, first, third = read
    first, third = first * slope, third * slope
    if first == 0 or third / first <= 0:
        return None
    scale = sqrt(third / first / CUBIC)
    if not near(first, 2.0 * sqrt(2.0 / pi) * scale, 1e-4):
        return None
    parts = as_product(x)
    if any(rest.get(b) != e for b, e in parts.exponents.items()):
        return None
    kept = {b: e for b, e in rest.items() if b not in parts.exponents} | {
        b: rest[b] - e for b, e in parts.exponents.items() if rest[b] != e
    }
    made = table.scaled(x, scale)
    front = coefficient * factor / (scale * parts.coefficient)
    return _with(table, front, kept, table.make("gelu", (made,), ("tanh",), made.shape))


def _cubic(table: Table, value: Value) -> tuple[Value, float, float] | None:
    """(x, a, b) of a * x + b * x³, or of x * (a + b * x²)."""
    outer = as_product(value)
    ways = (_cubic_in(table, outer, b) for b, e in outer.exponents.items() if b.op == "total" and e == 1)
    return next((w for w in ways if w is not None), None)


def _cubic_in(table: Table, outer: Product, inner: Value) -> tuple[Value, float, float] | None:
    """The same of a product in which this sum is the one that holds the power."""
    terms, rest = as_total(inner, table), {b: e for b, e in outer.exponents.items() if b is not inner}
    degree = 2.0 if rest else 3.0
    for term, third in terms.coefficients.items():
        parts = as_product(term)
        if not parts.exponents or any(e != degree for e in parts.exponents.values()):
            continue
        x = table.product(Product(1.0, dict.fromkeys(parts.exponents, 1.0)))
        others = {t: c for t, c in terms.coefficients.items() if t is not term}
        if rest:
            if not others and rest == dict.fromkeys(parts.exponents, 1.0):
                return x, outer.coefficient * terms.constant, outer.coefficient * third
            continue
        first = table.total(Total(terms.constant, others))
        ratio = as_product(first).coefficient / as_product(x).coefficient
        if table.scaled(x, ratio) is first:
            return x, outer.coefficient * ratio, outer.coefficient * third
    return None


def _with(table: Table, coefficient: float, rest: dict[Value, float], value: Value) -> Value:
    bases = {**rest, value: rest.get(value, 0.0) + 1.0}
    return table.product(Product(coefficient, bases))


def _unary(table: Table, op: str, value: Value) -> Value:
    return table.make(op, (value,), (), value.shape)


def _count(reduction: Value) -> int:
    """How many numbers one result is of."""
    shape = reduction.args[0].shape
    if reduction.attrs == ("all",):
        return prod(shape)
    return prod(shape[a] for a in reduction.attrs if isinstance(a, int))


def _softmax(table: Table, scores: Value, axes: tuple[Hashable, ...]) -> Value:
    """Of scores from which their largest may have been taken."""
    axes = (-1,) if axes == ("all",) and len(scores.shape) == 1 else axes
    x, _ = without_largest(table, scores, axes)
    return table.make("softmax", (x,), axes, x.shape)


def without_largest(table: Table, scores: Value, axes: tuple[Hashable, ...]) -> tuple[Value, Value | None]:
    """(x, its largest) of x - x.amax(axes); (scores, None) where nothing was taken."""
    terms = as_total(scores, table)
    for term, coefficient in terms.coefficients.items():
        if term.op == "amax" and term.attrs == axes and coefficient == -1:
            rest = {t: c for t, c in terms.coefficients.items() if t is not term}
            x = table.total(Total(terms.constant, rest))
            if term.args[0] is x:
                return x, term
    return scores, None


def of_power(table: Table, value: Value, exponent: float) -> Value | None:
    """1 / (1 + exp(-a)) is sigmoid(a), the root of x² the magnitude of x, that of x² y the magnitude of x times y's."""
    if exponent == 0.5 and value.op == "product":
        parts = as_product(value)
        odd = sum(e % 2 != 0 for e in parts.exponents.values())  # the root of one base is not below 0 either
        if parts.coefficient > 0 and odd <= 1 and odd < len(parts.exponents):
            root = table.product(Product(1.0, {b: e / 2 for b, e in parts.exponents.items()}))
            return table.scaled(magnitude(table, root), sqrt(parts.coefficient))
    if exponent == -1 and value.op == "total" and value.attrs == (1.0, 1.0) and value.args[0].op == "exp":
        return _unary(table, "sigmoid", table.scaled(value.args[0].args[0], -1.0))
    return None


def of_total(table: Table, total: Total) -> Value | None:
    """A variance by two moments, log-sum-exp with its largest, log-softmax, a loss picked, a mask that is added."""
    for term, c in total.coefficients.items():
        if term.op == "not" and len(total.coefficients) == 1 and near(total.constant, -c):
            return table.scaled(term.args[0], total.constant)  # 1 - not m
        if term.op == "product" and len(term.args) == 1 and term.attrs == (1.0, 2.0) and term.args[0].op == "mean":
            mean = term.args[0]
            squares = table.make("mean", (table.power(mean.args[0], 2.0),), mean.attrs, mean.shape)
            if total.coefficients.get(squares) == -c:
                variance = table.make("var", mean.args, mean.attrs, mean.shape)
                return _instead(table, total, (term, squares), variance, -c)
        if term.op == "log" and term.args[0].op == "sum" and term.args[0].args[0].op == "exp":
            inner = term.args[0]
            scores = inner.args[0].args[0]
            x, largest = without_largest(table, scores, inner.attrs)
            if largest is not None and total.coefficients.get(largest) == c:
                whole = table.make("logsumexp", (x,), inner.attrs, inner.shape)
                return _instead(table, total, (term, largest), whole, c)
            if largest is not None and largest not in total.coefficients:
                # x - max - log(sum(exp(x - max))): the largest is in x's own terms
                parts = as_total(scores, table)
                if c < 0 and all(total.coefficients.get(t) == -c * k for t, k in parts.coefficients.items()):
                    shares = table.make("log_softmax", (x,), inner.attrs, x.shape)
                    return _instead(table, total, (term, *parts.coefficients), shares, -c, -c * parts.constant)
        if term.op == "logsumexp":
            x = term.args[0]
            parts = as_total(x, table)
            if all(total.coefficients.get(t) == -c * k for t, k in parts.coefficients.items()):
                shares = table.make("log_softmax", (x,), term.attrs, x.shape)
                return _instead(table, total, (term, *parts.coefficients), shares, -c, -c * parts.constant)
            picked = table.make("pick", (x, *_target_of(total, x)), (), term.shape[:-1])
            for other in total.coefficients:
                same = other.op == "reshape" and other.args[0].op == "pick" and other.args[0].args[0] is x
                if same and term.attrs == (-1,) and total.coefficients[other] == -c:
                    return _loss(table, total, term, other, other.args[0], c)
            if len(picked.args) == 2 and term.attrs == (-1,) and total.coefficients.get(picked) == -c:
                return _loss(table, total, term, picked, picked, c)
        if term.op == "reshape" and term.args[0].op == "logsumexp" and term.args[0].attrs == (-1,):
            x = term.args[0].args[0]
            for other in total.coefficients:
                if other.op == "pick" and other.args[0] is x and total.coefficients[other] == -c:
                    return _loss(table, total, term, other, other, c)
        if c >= -LEAST and near(total.constant, -c) and len(total.coefficients) > 1 and table.is_truth(term):
            rest = {t: k for t, k in total.coefficients.items() if t is not term}
            return hidden(table, table.total(Total(0.0, rest)), term)
        if term.op == "added_mask" and c == 1 and len(total.coefficients) > 1:
            rest = {t: k for t, k in total.coefficients.items() if t is not term}
            return hidden(table, table.total(Total(total.constant, rest)), term.args[0])
    return None


def _target_of(total: Total, x: Value) -> tuple[Value, ...]:
    return next((t.args[1:] for t in total.coefficients if t.op == "pick" and t.args[0] is x), ())


def _loss(table: Table, total: Total, term: Value, other: Value, pick: Value, c: float) -> Value | None:
    """logsumexp(x) - x[target]: minus the picked log-softmax."""
    if other.shape != term.shape:
        return None  # [R] - [R, 1] is [R, R]
    x, target = pick.args
    shares = table.make("log_softmax", (x,), (-1,), x.shape)
    picked = table.reshape(table.make("pick", (shares, target), (), pick.shape), other.shape)
    return _instead(table, total, (term, other), picked, -c)


def _instead(
    table: Table, total: Total, away: tuple[Value, ...], value: Value, coefficient: float, constant: float = 0.0
) -> Value:
    """The sum with one value in the place of some terms."""
    rest = {t: c for t, c in total.coefficients.items() if t not in away}
    rest[value] = rest.get(value, 0.0) + coefficient
    return table.total(Total(total.constant - constant, rest))


def of_reduction(table: Table, op: str, value: Value, axes: tuple[Hashable, ...], shape: Shape) -> Value | None:
    """mean((x - mean(x))²) is a variance."""
    if op != "mean":
        return None
    parts = as_product(value)
    if parts.coefficient == 1 and list(parts.exponents.values()) == [2.0]:
        x = centred(table, next(iter(parts.exponents)), axes)
        if x is not None:
            return table.make("var", (x,), axes, shape)
    return None


def centred(table: Table, difference: Value, axes: tuple[Hashable, ...]) -> Value | None:
    """x of x - mean(x), or of its negative."""
    if difference.op != "total":
        return None
    parts = as_total(difference, table)
    for term, c in parts.coefficients.items():
        if term.op == "mean" and term.attrs == axes and abs(c) == 1:
            rest = {t: -c * k for t, k in parts.coefficients.items() if t is not term}
            x = table.total(Total(-c * parts.constant, rest))
            if x is term.args[0]:
                return x
    return None


def magnitude(table: Table, value: Value) -> Value:
    """|value|, a constant factor in front of it."""
    parts = as_product(value)
    inner = table.product(Product(1.0, parts.exponents))
    return table.scaled(table.make("abs", (inner,), (), inner.shape), abs(parts.coefficient))


def clamped(table: Table, value: Value, least: float | None, most: float | None) -> Value:
    """Not below the one, not above the other: both at once where they were said one after the other."""
    if value.op == "clamp":
        lower, upper = bounds_of(value)
        low = max((b for b in (lower, least) if b is not None), default=None)
        high = min((b for b in (upper, most) if b is not None), default=None)
        if low is None or high is None or low <= high:
            return clamped(table, value.args[0], low, high)
    if least is None and most is None:
        return value
    if most is None and least == 0:
        return _unary(table, "relu", value)
    attrs = (("self", "tensor"), ("min", least), ("max", most))
    return table.make("clamp", (value,), attrs, value.shape)


def bounds_of(clamp: Value) -> tuple[float | None, float | None]:
    """The least and the most of a value that is kept between two."""
    least, most = (pair[1] for pair in clamp.attrs[1:] if isinstance(pair, tuple))
    return least, most


def hidden(table: Table, scores: Value, keep: Value) -> Value:
    """Scores of which those that are not kept are as low as can be."""
    if scores.op == "hidden":
        return hidden(table, scores.args[0], both(table, scores.args[1], keep))
    return table.make("hidden", (scores, keep), (), scores.shape)


def both(table: Table, *masks: Value) -> Value:
    """The conjunction, in one order."""
    parts = dict.fromkeys(p for m in masks for p in (m.args if m.op == "all_of" else (m,)))
    ordered = sorted(parts, key=lambda p: p.order)
    if len(ordered) == 1:
        return ordered[0]
    shape = broadcast(p.shape for p in ordered)
    return table.make("all_of", ordered, (), max((p.shape for p in ordered), key=len) if shape is None else shape)


def negated(table: Table, mask: Value) -> Value:
    """Not the mask; comparisons of whole numbers turn round."""
    if mask.op == "not":
        return mask.args[0]
    if mask.op == "nonnegative":
        return nonnegative(table, table.plus((mask.args[0], -1.0), (table.number(-1.0), 1.0)), mask.shape)
    return table.make("not", (mask,), (), mask.shape)


def nonnegative(table: Table, difference: Value, shape: Shape) -> Value:
    """difference >= 0, of whole numbers."""
    return table.make("nonnegative", (difference,), (), shape)
