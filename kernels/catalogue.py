"""The operations that have a file of their own."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from kernels.spec import Operation

MODULES = (
    "vector_add",
    "bias_activation_mask",
    "gated_activation",
    "rope",
    "dropout",
    "softmax",
    "softmax_long",
    "softmax_axis",
    "softmax_backward",
    "cross_entropy",
    "rms_norm",
    "add_rms_norm",
    "rms_norm_backward",
    "layer_norm",
    "layer_norm_backward",
    "channel_norm",
    "matmul",
    "matmul_epilogue",
    "matmul_layer_norm",
    "fused_mlp",
    "matmul_logsumexp",
    "matmul_argmin",
    "router",
    "top_k",
    "two_axis_reduction",
    "cumsum",
    "linear_recurrence",
    "jagged_mean",
    "jagged_softmax",
    "scatter_add",
    "depthwise_conv",
    "flash_attention",
)
"""Files of this folder, the one to read first in front."""


@cache
def operations() -> tuple[Operation, ...]:
    """All of them, in the order of MODULES. Imports every file, and with them Triton."""
    return tuple(o for name in MODULES for o in import_module(f"kernels.{name}").OPERATIONS)


def operation(name: str) -> Operation:
    """The operation of this name. Raises KeyError."""
    for found in operations():
        if found.name == name:
            return found
    raise KeyError(name)
