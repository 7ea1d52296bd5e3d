"""Right implementations of `bounds_regions.REGIONS` that only a GPU runs: libraries' calls, as the catalogue makes
them, and FlexAttention compiled. Packages that are not installed are told as not here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from benchmarks.validation.bounds_right import Build, Call, Tensors, of
from kernels.libraries.calls import liger, quack


def flex_compiled(eager: Call) -> Call:
    """FlexAttention's kernels, forward and backward, with a block mask."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()
    run = torch.compile(flex_attention, dynamic=False)

    def causal(batch: object, head: object, row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
        return row >= column

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
        mask = create_block_mask(causal, None, None, q.shape[-2], k.shape[-2], device=q.device)
        return (run(q, k, v, block_mask=mask, scale=1 / math.sqrt(q.shape[-1])),)

    return call


def _rope(x: torch.Tensor, c: torch.Tensor, s: torch.Tensor) -> Tensors:
    """x [batch, heads, time, dimension]; c, s [time, dimension / 2]: Liger reads one angle for both of a pair."""
    return (liger.rope(x, torch.cat([c, c], -1), torch.cat([s, s], -1)),)


LIGER_RMS = of(lambda x, w: (liger.rms_norm(x, w, 1e-5),))
QUACK_RMS = of(lambda x, w: (quack.rms_norm(x, w, 1e-5),))
SOFTMAX: Mapping[str, Build] = {"Liger": of(lambda x: (liger.softmax(x),)), "quack": of(lambda x: (quack.softmax(x),))}
LAYER: Mapping[str, Build] = {"Liger": of(lambda x, w, b: (liger.layer_norm(x, w, b, 1e-5),))}
SWIGLU: Mapping[str, Build] = {"Liger": of(lambda a, b: (liger.swiglu(a, b, (True, True)),))}
FLEX: Mapping[str, Build] = {"FlexAttention compiled": flex_compiled}

LIBRARIES: Mapping[str, Mapping[str, Build]] = {
    "attention bf16": FLEX, "attention f16": FLEX, "attention forward bf16": FLEX,
    # quack takes rows of whole 16 bytes: 500 numbers of f32, not of bf16.
    "softmax bf16": {"Liger": SOFTMAX["Liger"]}, "softmax f32": SOFTMAX,
    "cross entropy bf16": {
        "Liger": of(lambda x, t: (liger.cross_entropy(x.float(), t, "mean", -100, True),)),
        "quack": of(lambda x, t: (quack.cross_entropy(x, t, "mean", -100),)),
    },
    "cross entropy f32": {
        "Liger": of(lambda x, t: (liger.cross_entropy(x, t, "mean", -100, True),)),
        "quack": of(lambda x, t: (quack.cross_entropy(x, t, "mean", -100),)),
    },
    "layer norm bf16": LAYER,
    "layer norm f32": {**LAYER, "quack": of(lambda x, w, b: (quack.layer_norm(x, w, b, 1e-5),))},
    "rms norm bf16": {"Liger": LIGER_RMS, "quack": QUACK_RMS}, "rms norm f16": {"Liger": LIGER_RMS, "quack": QUACK_RMS},
    "swiglu bf16": SWIGLU, "swiglu bf16 training": SWIGLU,
    "geglu bf16 training": {"Liger": of(lambda a, b: (liger.geglu(a, b, (True, True)),))},
    "rope of one angle a pair bf16 training": {"Liger": of(_rope)},
    "rope of one angle a pair f32": {"Liger": of(_rope)},
}  # fmt: skip
"""Of each region, by name."""
