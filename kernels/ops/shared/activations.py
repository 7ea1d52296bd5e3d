"""Activations that kernels apply in f32, their derivatives, and the same in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.language import target_info

from kernels.ops.shared.pairs import INTERPRETED, exp_of

PLAIN: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}
"""By the names that kernels take."""

BACKWARD: Mapping[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "relu": lambda dy, x: torch.ops.aten.threshold_backward(dy, x, 0),
    "gelu": torch.ops.aten.gelu_backward,
    "gelu_tanh": lambda dy, x: torch.ops.aten.gelu_backward(dy, x, approximate="tanh"),
    "silu": torch.ops.aten.silu_backward,
}
"""dy, x -> dx."""


def known(name: str) -> str:
    """The name itself. Raises ValueError where there is no such activation."""
    if name not in PLAIN:
        raise ValueError(f"activation is one of {', '.join(PLAIN)}, not {name!r}")
    return name


@triton.jit
def reciprocal(x):
    """1 / x to one unit in the last place, 0 where that is below 2^-126: one instruction where a division is six."""
    if target_info.is_cuda() and not INTERPRETED:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return 1.0 / x


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)): two operations of the unit that exponentials need."""
    return reciprocal(1.0 + exp_of(-x))


@triton.jit
def normal_below(x):
    """Share of the normal distribution below x, to 8e-8, and exp(-x²/2).

    Abramowitz and Stegun 26.2.17: a third of the instructions of `tl.erf`, and no cancellation for negative x.
    """
    t = reciprocal(1.0 + 0.2316419 * tl.abs(x))
    bell = tl.exp2(x * x * -0.7213475204444817)  # log2(e) / 2
    tail = t * (0.1274147959 + t * (-0.1422483683 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145))))
    tail *= bell
    return tl.where(x < 0.0, tail, 1.0 - tail), bell


@triton.jit
def activation(x, NAME: tl.constexpr):
    """The activation of f32 x."""
    if NAME == "relu":
        return tl.where(x < 0.0, 0.0, x)  # NaN stays
    if NAME == "silu":
        return x * sigmoid(x)
    if NAME == "gelu":
        below, _ = normal_below(x)
        return x * below
    # 0.5 (1 + tanh(u)) = sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x³)
    return x * sigmoid(x * (1.5957691216057308 + 0.07135481282553144 * x * x))


@triton.jit
def activation_and_slope(x, NAME: tl.constexpr):
    """The activation of f32 x and its derivative there."""
    if NAME == "relu":
        return tl.where(x < 0.0, 0.0, x), tl.where(x > 0.0, 1.0, 0.0)
    if NAME == "silu":
        s = sigmoid(x)
        return x * s, s * (1.0 + x * (1.0 - s))
    if NAME == "gelu":
        below, bell = normal_below(x)
        return x * below, below + 0.3989422804014327 * x * bell
    s = sigmoid(x * (1.5957691216057308 + 0.07135481282553144 * x * x))
    return x * s, s + x * s * (1.0 - s) * (1.5957691216057308 + 0.21406443847659432 * x * x)
