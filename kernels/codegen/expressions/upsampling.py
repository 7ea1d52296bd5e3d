"""Upsampling by a computed place: the nearest element of an image, or the four around a point.

Of whole factors the nearest element is a view (`graph/upsampled.py`); what comes here has to be looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch.fx

from kernels.codegen.expressions import ops
from kernels.codegen.expressions.values import Builder, Value
from kernels.codegen.index import ZERO, Index, Linear, Unsupported
from kernels.codegen.nodes import Arguments, base, computed, dtype_of, fake


def rank_of(name: str) -> int:
    """The dimensions of an image that an operation of this name resizes."""
    return next(r for r in (1, 2, 3) if f"{r}d" in name)


def scales_of(a: Arguments, rank: int) -> list[float | None]:
    """The factors that a call gives, outermost dimension first; None where the sizes say it."""
    names = {1: ("scales",), 2: ("scales_h", "scales_w"), 3: ("scales_d", "scales_h", "scales_w")}[rank]
    return [a.get(name) for name in names]


def step_of(size: int, new: int, scale: float | None) -> np.float32:
    """Elements of the image from one of the result to the next, in f32 as aten takes it."""
    return np.float32(1.0 / scale) if scale and scale > 0 else np.float32(size) / np.float32(new)


def nearest_places(size: int, new: int, scale: float | None) -> npt.NDArray[np.int64]:
    """Which element of an image of `size` each of a result of `new` is. Raises Unsupported where aten has two ways."""
    at = np.floor(np.arange(new, dtype=np.float32) * step_of(size, new, scale)).astype(np.int64)
    places: npt.NDArray[np.int64] = np.minimum(at, size - 1)
    for times in (1, 2):  # aten copies and doubles without looking at the factor
        if new == times * size and bool((places != np.arange(new) // times).any()):
            raise Unsupported(f"an upsampling by another factor to {times} times the size: aten has two ways for it")
    return places


def nearest(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    """upsample_nearest in one to three dimensions: the element at floor(place / factor)."""
    source, rank = a["self"], rank_of(base(node))
    sizes, new = tuple(fake(source).shape)[-rank:], tuple(fake(node).shape)[-rank:]
    lead = len(index) - rank
    fixed, positions = list(index), dict[int, Value]()
    for d, (size, count, scale) in enumerate(zip(sizes, new, scales_of(a, rank), strict=True)):
        places, part = nearest_places(size, count, scale), index[lead + d]
        factor = int(places[1]) if count > 1 else 0
        if not part.terms:
            fixed[lead + d] = Linear(int(places[part.offset]))
        elif bool((places == factor * np.arange(count)).all()):
            fixed[lead + d] = part.scaled(factor)
        else:
            step = float(step_of(size, count, scale))
            spot = b.place(part)
            whole = ops.TRITON_DTYPES[spot.dtype]
            text = f"tl.minimum(({{0}}.to(tl.float32) * {step!r}).to({whole}), {size - 1})"
            positions[lead + d] = b.named(b.expression(text, spot.dtype, spot), "nearest")
            fixed[lead + d] = ZERO
    if not positions:
        return b.value(source, tuple(fixed))
    return b.gathered_at(source, tuple(fixed), positions, from_the_end=False)


@dataclass(frozen=True, slots=True)
class _Sides:
    """The elements around a point of one dimension, one or two, and what the second one counts."""

    places: tuple[Value | Linear, ...]
    share: Value | None = None


def _sides(b: Builder, part: Linear, size: int, new: int, step: float, shift: float, dtype: str) -> _Sides:
    """The point is at (place + shift) * step - shift, and not before the first element."""
    if size == new and step == 1.0:
        return _Sides((part,))
    if not part.terms:
        at = max((part.offset + shift) * step - shift, 0.0)
        low = min(int(at), size - 1)
        return _Sides((Linear(low), Linear(min(low + 1, size - 1))), b.number(at - low, dtype))
    text = f"tl.maximum(({{0}} + {shift}) * {step!r} - {shift}, 0.0)" if shift else f"{{0}} * {step!r}"
    place = b.named(b.cast(b.place(part), dtype), "place")
    point = b.named(b.expression(text, dtype, place), "point")
    first = b.named(b.expression(f"tl.minimum({{0}}.to(tl.int32), {size - 1})", "i32", point), "low")
    second = b.named(b.expression(f"tl.minimum({{0}} + 1, {size - 1})", "i32", first), "high")
    before = b.named(b.cast(first, dtype), "low")
    return _Sides((first, second), b.named(b.expression("{0} - {1}", dtype, point, before), "share"))


def _step(size: int, new: int, a: Arguments, scale: float | None, dtype: str) -> float:
    """Elements of the image from one of the result to the next, in the dtype that is computed in."""
    if a["align_corners"]:
        step = (size - 1) / (new - 1) if new > 1 else 0.0
    else:
        step = 1.0 / scale if scale and scale > 0 else size / new
    return float(np.float32(step)) if dtype == "f32" else step


def bilinear(b: Builder, node: torch.fx.Node, a: Arguments, index: Index) -> Value:
    """upsample_bilinear2d: the four elements around a point, in f32 at least."""
    source, inner = a["self"], computed(dtype_of(fake(node)))
    if not inner.startswith("f"):
        raise Unsupported(f"a bilinear upsampling of {inner}")
    sizes, new = tuple(fake(source).shape)[-2:], tuple(fake(node).shape)[-2:]
    shift = 0.0 if a["align_corners"] else 0.5
    given = zip(index[-2:], sizes, new, scales_of(a, 2), strict=True)
    down, across = (_sides(b, p, n, m, _step(n, m, a, scale, inner), shift, inner) for p, n, m, scale in given)

    def element(row: Value | Linear, column: Value | Linear) -> Value:
        places = dict(enumerate((row, column), len(index) - 2))
        fixed = (*index[:-2], *(p if isinstance(p, Linear) else ZERO for p in places.values()))
        looked_up = {d: p for d, p in places.items() if isinstance(p, Value)}
        value = b.gathered_at(source, fixed, looked_up, from_the_end=False) if looked_up else b.value(source, fixed)
        return b.cast(value, inner)

    rows = [_between(b, [element(row, column) for column in across.places], across.share) for row in down.places]
    return _between(b, rows, down.share)


def _between(b: Builder, ends: Sequence[Value], share: Value | None) -> Value:
    if share is None:
        return ends[0]
    return b.expression("(1.0 - {2}) * {0} + {2} * {1}", share.dtype, *ends, share)
