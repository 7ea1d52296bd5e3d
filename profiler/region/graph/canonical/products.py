"""Matrix products of batches: views of leading axes folded away, repeated heads told by the indices they read."""

from __future__ import annotations

from collections.abc import Hashable
from math import prod

import numpy as np
from numpy.typing import NDArray

from profiler.region.graph.canonical.values import Product, Shape, Table, Value, as_product, order_of

Places = NDArray[np.int64]
MOST_BATCHES = 1 << 16
"""Of more, the indices are not written out: the views stay part of the product."""


def product_of_batches(table: Table, a: Value, b: Value, shape: Shape) -> Value:
    """a @ b, factors in front of it and each operand as it stands before its leading axes were folded.

    attrs: how many of a's matrices share one of b's, where several do.
    """
    (c, a), (d, b) = _without_factor(table, a), _without_factor(table, b)
    made = _folded(table, a, b, shape)
    inner = made.args[0] if made.op == "reshape" else made
    return table.reshape(table.scaled(inner, c * d), shape)


def _without_factor(table: Table, value: Value) -> tuple[float, Value]:
    """A constant factor, and the one tensor that it is of, behind the same views."""
    if value.op in ("reshape", "expand", "permute"):
        factor, inner = _without_factor(table, value.args[0])
        if factor == 1:
            return 1.0, value
        if value.op == "permute":
            return factor, table.permute(inner, order_of(value))
        return factor, (table.reshape if value.op == "reshape" else table.expand)(inner, value.shape)
    parts = as_product(value)
    if parts.coefficient == 1 or list(parts.exponents.values()) != [1.0]:
        return 1.0, value
    return parts.coefficient, table.product(Product(1.0, parts.exponents))


def _folded(table: Table, a: Value, b: Value, shape: Shape) -> Value:
    if len(shape) < 3 or prod(shape[:-2]) > MOST_BATCHES:
        return table.make("matmul", (a, b), (), shape)
    (a_base, a_at), (b_base, b_at) = _behind_batch(table, a), _behind_batch(table, b)
    count = prod(shape[:-2])
    every = np.arange(count)
    if not np.array_equal(a_at, every):
        return table.make("matmul", (a, b), (), shape)
    attrs: tuple[Hashable, ...] = ()
    if not np.array_equal(b_at, every):
        each = count // max(1, prod(b_base.shape[:-2]))
        if each < 2 or not np.array_equal(b_at, every // each):
            return table.make("matmul", (a, b), (), shape)
        attrs = (each,)
    if not attrs and len(a_base.shape) != len(b_base.shape):
        return table.make("matmul", (a, b), (), shape)
    made = table.make("matmul", (a_base, b_base), attrs, (*a_base.shape[:-2], a_base.shape[-2], shape[-1]))
    return table.reshape(made, shape)


def _behind_batch(table: Table, value: Value) -> tuple[Value, Places]:
    """What a batch of matrices is a view of, and which matrix of that each one is."""
    steps: list[Value] = []
    inner = value
    while _folds_batch(inner):
        steps.append(inner)
        inner = inner.args[0]
    if inner.op == "permute" and inner.attrs == (-1, -2) and _folds_batch(inner.args[0]):
        # views in front of the transposition of rows and columns: behind it they are the same
        base, at = _behind_batch(table, inner.args[0])
        inner = table.turned(base)
    else:
        at = np.arange(prod(inner.shape[:-2]))
    places = at
    current = inner.shape[:-2]
    for step in reversed(steps):
        target = step.shape[:-2]
        if step.op == "expand":
            spread = places.reshape((1,) * (len(target) - len(current)) + current)
            places = np.broadcast_to(spread, target)
        elif step.op == "permute":
            places = places.reshape(current).transpose(order_of(step)[:-2])
        places = places.reshape(-1)
        current = target
    return inner, places


def _folds_batch(value: Value) -> bool:
    """A view that leaves the last two axes as they are."""
    if value.op == "permute":
        return len(value.attrs) > 2 and value.attrs[-2:] == (-2, -1)
    return value.op in ("reshape", "expand") and value.shape[-2:] == value.args[0].shape[-2:]
