"""Families of random programs over elements that are read from, or counted at, a place that is computed: `MOVED`.

As in `operation_families`; they join it in `scatter_and_product_families.ALL`.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tools.fuzz.operation_families import AFTER, BEFORE, FLOATS, Family, put, shape_of, sizes


def moved(random: Random, size: str) -> str:
    """repeat and roll of inputs and of steps, in front of pointwise steps, sums and norms."""
    shape, dtype = shape_of(random, size, wide=False), random.choice(FLOATS)
    if len(shape) == 1:
        shape = (4, *shape)
    declared, before = f"x: {dtype}[{sizes(shape)}]\n", put(random.choice(BEFORE), "x")
    after = put(random.choice(AFTER), "y")
    how = random.choice(("repeat", "repeat", "mean", "roll", "roll", "flat", "windows", "norm"))
    if how == "repeat":
        times = [random.choice((1, 1, 2, 3)) for _ in shape]
        times = [random.choice((2, 3)), *times[1:]] if size == "small" else [*times[:-1], random.choice((1, 2))]
        return f"{declared}h = {before}\ny = h.repeat({sizes(tuple(times))})\nreturn {after}\n"
    if how == "mean":
        return f"{declared}m = x.float().mean(-1, keepdim=True)\ny = x.float() - m.repeat({_ones(shape)})\nreturn y\n"
    if how == "flat":
        return f"{declared}h = {before}\ny = torch.roll(h, {random.randint(1, 40)})\nreturn {after}\n"
    dims = random.sample(range(len(shape)), random.choice((1, 2)))
    shifts = [random.choice((-1, 1)) * random.randint(1, max(1, shape[d] // 2)) for d in dims]
    rolled = f"torch.roll(h, ({sizes(tuple(shifts))},), ({sizes(tuple(dims))},))"
    if how == "windows":  # as a shifted window's attention has them
        image = (2, 8, 8, 6) if size == "small" else random.choice(((64, 32, 32, 192), (32, 64, 64, 96)))
        return (
            f"x: {dtype}[{sizes(image)}]\nr: {dtype}[{sizes(image)}]\n"
            f"y = r + torch.roll(x, (2, 2), (1, 2))\nreturn y, F.layer_norm(y, ({image[-1]},))\n"
        )
    if how == "norm":
        return f"{declared}h = F.layer_norm(x, ({shape[-1]},))\ny = {rolled}\nreturn {after}\n"
    return f"{declared}h = {before}\ny = {rolled}\nreturn {after}\n"


def _ones(shape: tuple[int, ...]) -> str:
    return sizes((*[1] * (len(shape) - 1), shape[-1]))


def resized(random: Random, size: str) -> str:
    """Images resized to the nearest element, of whole factors and others, and by bilinear interpolation."""
    dtype = random.choice(FLOATS)
    rank = random.choice((1, 2, 2, 2, 2, 3))
    if size == "small":
        image = {1: (2, 3, 13), 2: (2, 3, 6, 10), 3: (1, 2, 4, 5, 6)}[rank]
    else:
        image = {
            1: (16, 256, 2048),
            2: random.choice(((8, 64, 128, 128), (16, 256, 32, 32), (4, 32, 96, 160), (2, 512, 64, 64))),
            3: (2, 32, 16, 32, 32),
        }[rank]
    layout = ".channels_last" if rank == 2 and random.random() < 0.3 else ""
    declared = f"x: {dtype}[{sizes(image)}]{layout}\n"
    mode = random.choice(("nearest", "nearest", "bilinear")) if rank == 2 else "nearest"
    aligned = f", align_corners={random.choice((True, False))}" if mode == "bilinear" else ""
    new = tuple(int(n * random.choice((0.5, 0.7, 1.3, 1.5, 2.0, 2.5))) for n in image[2:])
    by = random.choice(("scale_factor=2.0", "scale_factor=2.0", f"size=({sizes(new)},)", "scale_factor=1.5"))
    before = put(random.choice(BEFORE), "x")
    return (
        f"{declared}h = {before}\ny = F.interpolate(h, {by}, mode='{mode}'{aligned})\n"
        f"return {put(random.choice(AFTER), 'y')}\n"
    )


def counted(random: Random, size: str) -> str:
    """bincount of places that are read or computed, by number or by weight, of few bins and of many."""
    small = size == "small"
    count = 600 if small else random.choice((1 << 18, 1 << 20, 1 << 22))
    bins = 11 if small else random.choice((8, 64, 256, 1024, 50000))
    places = random.choice(("i", "i", f"(i * 7 + 3) % {bins}", f"torch.clamp(i - 2, 0, {bins - 1})"))
    declared = f"i: i64[{count}].below({bins})\n"
    if random.random() < 0.5:
        return f"{declared}y = torch.bincount({places}, minlength={bins})\nreturn y * 2\n"
    weights = f"w: f32[{count}]\n"
    return f"{declared}{weights}y = torch.bincount({places}, torch.sigmoid(w), {bins})\nreturn y / {count}\n"


MOVED: Mapping[str, Family] = {"moved": moved, "resized": resized, "counted": counted}
