"""A region's candidate in the place of the part of a model that the region was mined from.

Which part that is, and which of its tensors is which of the region's inputs, is found by running the region's own text
on the tensors that the part got: it has to give what the part gave.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.validation.blocks import Function, Model, Part
from kernels import baselines
from kernels.baselines import GRAPHED, Runner
from kernels.measure.judge import floor_error
from profiler.region.language.program import empty_input
from profiler.region.language.vocabulary import DTYPE_NAMES
from profiler.region.model import Region

MOST_ORDERS = 24
CLOSE = 8.0
"""Times the rounding of the outputs' type: the region's text may round in other places than the model."""

Key = tuple[tuple[int, ...], ...]
"""The shapes of a part's tensors: one part is called with several where a region has symbols."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a part, the first with its shapes: what it got and what it gave."""

    part: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def key(self) -> Key:
        return shapes(self.inputs)


@dataclass(frozen=True, slots=True)
class Fit:
    """The region computes what the call did. order: for each of the region's inputs, the number of the part's tensor.

    given: for each of the part's outputs, the number of the region's, or None where the region does not return it.
    """

    call: Call
    order: tuple[int, ...]
    given: tuple[int | None, ...]

    @property
    def missing(self) -> int:
        """Outputs that the model needs and the region does not return."""
        return sum(n is None for n in self.given)


def shapes(tensors: Sequence[Tensor]) -> Key:
    """The shapes of a part's tensors."""
    return tuple(tuple(t.shape) for t in tensors)


def calls(model: Model, inputs: Sequence[Tensor]) -> list[Call]:
    """Every part's calls in one step of eager, one for each combination of shapes, in order."""
    by_shapes: dict[tuple[str, Key], Call] = {}

    def watched(name: str, part: Part) -> Function:
        def function(*tensors: Tensor) -> tuple[Tensor, ...]:
            outputs = part.whole(*tensors)
            by_shapes.setdefault((name, shapes(tensors)), Call(name, tensors, outputs))
            return outputs

        return function

    model.place({name: watched(name, part) for name, part in model.parts.items()})
    try:
        with torch.no_grad():
            model(*inputs)
    finally:
        model.place({})
    return list(by_shapes.values())


def fit(region: Region, sizes: Mapping[str, int], called: Sequence[Call], device: str) -> Fit | None:
    """The call that the region computes at these sizes, in the order of its inputs that comes nearest to it.

    None where no part of the model computes the region.
    """
    fakes = [empty_input(item, sizes, "meta") for item in region.inputs]
    runner: Runner | None = None
    for call in called:
        fits: list[tuple[float, Fit]] = []
        for order in orders(fakes, call.inputs):
            runner = runner or baselines.eager(region, sizes, device)
            outputs = runner(*(call.inputs[n] for n in order))
            nearest = [_nearest(wanted, outputs) for wanted in call.outputs]
            given = tuple(n if far <= 1.0 else None for far, n in nearest)
            if any(n is not None for n in given):
                fits.append((min(far for far, _ in nearest), Fit(call, order, given)))
        if fits:
            return min(fits, key=lambda pair: pair[0])[1]
    return None


def orders(fakes: Sequence[Tensor], tensors: Sequence[Tensor]) -> Iterator[tuple[int, ...]]:
    """Assignments of the part's tensors to the region's inputs, type, shape and layout agreeing; all tensors used."""
    if len(fakes) != len(tensors):
        return
    left: list[tuple[int, ...]] = [()]
    for fake in fakes:
        fitting = [n for n, t in enumerate(tensors) if _has_same_layout(fake, t)]
        left = [(*chosen, n) for chosen in left for n in fitting if n not in chosen][:MOST_ORDERS]
    yield from left


def _has_same_layout(fake: Tensor, tensor: Tensor) -> bool:
    """Strides count where there is more than one element: a generated kernel is written for them."""
    if fake.dtype != tensor.dtype or fake.shape != tensor.shape:
        return False
    pairs = zip(fake.shape, fake.stride(), tensor.stride(), strict=True)
    return all(ours == theirs for size, ours, theirs in pairs if size > 1)


def _nearest(wanted: Tensor, outputs: Sequence[Tensor]) -> tuple[float, int]:
    return min((distance(output, wanted), number) for number, output in enumerate(outputs))


def distance(first: Tensor, second: Tensor) -> float:
    """Of two tensors, in units of what rounding may do: up to 1 they are the same; infinite for other types, shapes."""
    if first.dtype != second.dtype or first.shape != second.shape:
        return math.inf
    if not first.is_floating_point():
        return 0.0 if torch.equal(first, second) else math.inf
    difference = torch.linalg.vector_norm(first - second, dtype=torch.float32)
    norm = torch.linalg.vector_norm(second, dtype=torch.float32)
    close = CLOSE * floor_error(DTYPE_NAMES[first.dtype]) * norm
    return float(difference / close) if close > 0 else 0.0 if difference == 0 else math.inf


def replacement(part: Part, runners: Sequence[tuple[Fit, str, Runner]], signatures: int) -> Function:
    """What runs in the part's place: a candidate for each combination of shapes, eager where there is none.

    signatures: combinations of shapes that the model calls the part with.
    """
    by_key = {placed.call.key: _adapt(part, placed, name, runner) for placed, name, runner in runners}
    if signatures == 1:
        (only,) = by_key.values()
        return only

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        return by_key.get(shapes(tensors), part.whole)(*tensors)

    return function


def _adapt(part: Part, placed: Fit, name: str, runner: Runner) -> Function:
    """The candidate under the part's own signature, with the outputs that the region lacks computed as well."""
    order, given = placed.order, placed.given

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        results = runner(*(tensors[n] for n in order))
        if name in GRAPHED:  # the next call of the same graph would overwrite them
            results = tuple(r.clone() for r in results)
        return tuple(part.alone[i](*tensors) if n is None else results[n] for i, n in enumerate(given))

    return function
