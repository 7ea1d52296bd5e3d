"""Calibration programs of one operation with its gradients: what the backward takes is the whole less the forward."""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random

from kernels.calibrate import matrix_programs, memory_programs
from kernels.calibrate.memory_programs import Family
from profiler.region.model import ITEMSIZE

FLOATING = re.compile(r"^(\w+): (bf16|f16|f32)(\[[^\]]*\])(\.\S+)?$", re.MULTILINE)
MOST_TRIES = 200


def with_gradients(family: Family, rng: Random, kept: re.Pattern[str]) -> str:
    """A program of another family whose call is one of these, with gradients of all its floating inputs."""
    for _ in range(MOST_TRIES):
        text = family(rng)
        if kept.search(text) and _bytes(text) <= 2**29:
            return FLOATING.sub(_requiring, text)
    raise AssertionError(f"{family.__name__} draws nothing like {kept.pattern}")


def _requiring(line: re.Match[str]) -> str:
    name, kind, sizes, suffix = line.groups(default="")
    constant = name in ("mean", "var", "m", "t")
    return f"{name}: {kind}{sizes}{'' if constant else '.requires_grad'}{suffix}"


def _bytes(text: str) -> int:
    total = 0
    for line in FLOATING.finditer(text):
        cells = ITEMSIZE[line[2]]
        for size in line[3].strip("[]()").split(","):
            cells *= int(size) if size.strip() else 1
        total += cells
    return total


ATTENTION = re.compile(r"scaled_dot_product_attention\((?!.*(attn_mask|enable_gqa))")
NORMS = re.compile(r"F\.(layer_norm|group_norm|batch_norm\(x, None)")
SPREAD = re.compile(r"avg_pool|interpolate|max_pool")


def attention(rng: Random) -> str:
    """SDPA without a mask, with the gradients of its three inputs."""
    return with_gradients(matrix_programs.attention, rng, ATTENTION)


def norm(rng: Random) -> str:
    """Layer, group and batch norm, with the gradients of input, weight and bias."""
    return with_gradients(memory_programs.norm, rng, NORMS)


def pool(rng: Random) -> str:
    """Pooling and interpolation with their gradients."""
    return with_gradients(memory_programs.pool, rng, SPREAD)


def convolution(rng: Random) -> str:
    """Convolutions with the gradients of image and weights."""
    return with_gradients(matrix_programs.convolution, rng, re.compile(r"return F\.conv(_transpose)?\dd\(x, w, None"))


FAMILIES: Mapping[str, tuple[Family, int]] = {
    "trained_attention": (attention, 5), "trained_norm": (norm, 4), "trained_pool": (pool, 1),
    "trained_convolution": (convolution, 5),
}  # fmt: skip
"""Family -> what draws a program, and its share of the points."""
