"""Views undone in indices: any chain of views gives the place that torch's own views have."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from profiler.region.graph.scores.places import Name, Place, divided, element_number, of, plus, reshaped, unravelled

SIZES = (2, 6, 4, 5)
NAMES = tuple(Name(n, size) for n, size in zip("bhij", SIZES, strict=True))


def value(place: Place, at: dict[str, int]) -> int:
    """The code, run."""
    return int(eval(place.code, {}, dict(at)))  # noqa: S307 - our own code of indices


def views(rng: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Another shape of as many elements: neighbours joined, or one axis in two."""
    sizes = list(shape)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(sizes))
        parts = [n for n in range(2, sizes[at]) if sizes[at] % n == 0]
        if rng.random() < 0.5 and len(sizes) > 1 and at:
            sizes[at - 1 : at + 1] = [sizes[at - 1] * sizes[at]]
        elif parts:
            n = rng.choice(parts)
            sizes[at : at + 1] = [sizes[at] // n, n]
    return tuple(sizes)


@pytest.mark.parametrize("seed", range(60))
def test_an_element_of_a_view_is_where_torch_has_it(seed: int) -> None:
    rng = random.Random(seed)
    chain = [SIZES]
    for _ in range(rng.randint(1, 4)):
        chain.append(views(rng, chain[-1]))
    tensor = torch.arange(240).view(chain[-1])  # the innermost tensor; the scores are a view of it
    places: tuple[Place, ...] = tuple(of(n) for n in NAMES)
    for shape, inner in itertools.pairwise(chain):
        places = reshaped(places, shape, inner)
    whole = tensor.view(SIZES)
    for _ in range(12):
        at = {n.code: rng.randrange(n.size) for n in NAMES}
        index = tuple(value(p, at) for p in places)
        assert tensor[index] == whole[tuple(at.values())]


def test_both_parts_of_an_index_are_the_index_again() -> None:
    _, h, _, _ = NAMES
    high, low = divided(of(h), 3)
    assert (high.code, low.code) == ("h // 3", "h % 3")
    assert plus((high, 3), (low, 1)) == of(h)
    assert reshaped((high, low), (2, 3), (6,)) == (of(h),)


def test_two_indices_in_one_axis_come_from_it_as_they_were() -> None:
    b, h, _, _ = map(of, NAMES)
    number = element_number((b, h), SIZES[:2])
    assert number.code == "b * 6 + h"
    assert unravelled(number, SIZES[:2]) == (b, h)


def test_an_axis_of_one_element_has_no_index() -> None:
    assert of(Name("b", 1)) == Place()
    assert reshaped((of(NAMES[3]),), (5,), (1, 5, 1)) == (Place(), of(NAMES[3]), Place())
