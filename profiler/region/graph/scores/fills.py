"""What a graph hides scores with: its lowest numbers, which its canonical form no longer tells from -inf.

A row that is hidden as a whole by a finite number becomes the mean of all values; by -inf it is no number at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isnan

from torch.fx import Node

from profiler.region import op_kinds
from profiler.region.graph.canonical.graph_values import GraphValues
from profiler.region.graph.canonical.identities import LEAST
from profiler.region.graph.canonical.values import Value, as_product

REPLACES = frozenset({"where", "masked_fill"})
LARGEST = 3e38
"""Below the largest number of float32: lower fills are as low."""
MOST_INTEGER = 2**62
"""Larger ones are the ends of slices."""
RISING = frozenset("exp exp2 sigmoid tanh erf relu clamp clamp_min clamp_max minimum maximum where masked_fill".split())
"""Operations that do not fall, and that give a number or -inf of -inf."""
MOVED = frozenset({"reshape", "expand", "permute", "slice", "cast"})


@dataclass(frozen=True, slots=True)
class Fills:
    """numbers: those that hide scores, as negative ones. once: no two of them are added up at one score."""

    numbers: frozenset[float]
    once: bool

    @property
    def finite(self) -> bool:
        """Some of them is."""
        return bool(self.numbers - {-inf})

    @property
    def single(self) -> float | None:
        """The number that hides every hidden score, where there is only one."""
        return next(iter(self.numbers)) if self.once and len(self.numbers) == 1 else None


def fills(values: GraphValues, product: Value, ends: Sequence[Node], added: int = 0) -> Fills:
    """Of everything between the product and the ends. added: masks that are added behind them."""
    waiting, seen, numbers = list(ends), set[Node](), set[float]()
    hidden: dict[Value, bool] = {}
    while waiting:
        node = waiting.pop()
        made = values.of(node)
        if node in seen or made is product:
            continue
        seen.add(node)
        waiting += node.all_input_nodes
        numbers.update(_lowest(node.args), _lowest(node.kwargs.values()))
        if made is not None and made.op == "number":
            numbers.update(_lowest(made.attrs))
        if made is not None and made.op == "hidden":
            first = made.nodes[0] if made.nodes else node
            hidden[made] = op_kinds.base_name(str(first.target)) in REPLACES
    added += sum(not replaced for replaced in hidden.values())
    return Fills(frozenset(numbers), not added or (added == 1 and not any(hidden.values())))


def _lowest(given: Iterable[object]) -> list[float]:
    plain = [g for g in given if isinstance(g, float) or (isinstance(g, int) and abs(g) < MOST_INTEGER)]
    low = [-abs(float(g)) for g in plain if not isnan(g)]
    return [g if g == -inf else max(g, -LARGEST) for g in low if g <= LEAST]


def turns(scores: Value) -> bool:
    """A hidden score, or a mask that is added, is met with what may make it high or no number: a negative factor."""
    waiting, seen = [(scores, True)], set[tuple[Value, bool]]()
    while waiting:
        one, rising = waiting.pop()
        if (one, rising) in seen:
            continue
        seen.add((one, rising))
        if one.op in ("hidden", "added_mask"):
            if not rising:
                return True
            waiting += [(a, True) for a in one.args[:1] if one.op == "hidden"]
        elif one.op == "total":
            parts = _signs(one)
            waiting += [(term, rising and c) for term, c in parts]
        elif one.op == "product":
            product = as_product(one)
            single = list(product.exponents.values()) == [1.0] and product.coefficient > 0
            waiting += [(base, rising and single) for base in product.exponents]
        elif one.op not in ("matmul", "input"):
            kept = one.op in MOVED or op_kinds.base_name(one.op) in RISING
            waiting += [(a, rising and kept) for a in one.args]
    return False


def _signs(total: Value) -> list[tuple[Value, bool]]:
    _, *coefficients = total.attrs
    return [(t, isinstance(c, (int, float)) and c > 0) for t, c in zip(total.args, coefficients, strict=True)]
