"""Former names of this package's modules, and the finder by which they still import: `from kernels.softmax import ...`.

`kernels.NAME` is the public spelling of an operation's launcher: advice prints it, stored records and users' code have
it. An import by a former name gives the module that has it now: one object under both names. It is loaded at that
import and not before.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGE = "kernels"
FORMER_NAMES: Mapping[str, str] = {
    "activations": "ops.shared.activations",
    "add_rms_norm": "ops.norm.add_rms_norm",
    "attention_arguments": "ops.attention.flash_attention",
    "attention_cases": "ops.attention.flash_attention",
    "attention_features": "ops.attention.flash_attention",
    "batch_norm_activation": "ops.norm.batch_norm_activation",
    "bias_activation_mask": "ops.elementwise.bias_activation_mask",
    "catalogue": "operations",
    "causal_conv1d": "ops.scan.causal_conv1d",
    "channel_norm": "ops.norm.channel_norm",
    "codegen.forward_backward_split": "codegen.graph.forward_backward_split",
    "codegen.joining": "codegen.graph.joining",
    "codegen.loops": "codegen.text.loops",
    "codegen.names": "codegen.text.names",
    "codegen.ops": "codegen.expressions.ops",
    "codegen.prepare": "codegen.graph.prepare",
    "codegen.random": "codegen.expressions.random",
    "codegen.reductions": "codegen.expressions.reductions",
    "codegen.rules": "codegen.expressions.rules",
    "codegen.shapes": "codegen.text.shapes",
    "codegen.source": "codegen.text.source",
    "codegen.split": "codegen.graph.split",
    "codegen.values": "codegen.expressions.values",
    "codegen.writer": "codegen.text.writer",
    "cross_entropy": "ops.softmax.cross_entropy",
    "cumsum": "ops.scan.cumsum",
    "depthwise_conv": "ops.scan.depthwise_conv",
    "device": "ops.shared.pairs",
    "dropout": "ops.elementwise.dropout",
    "embedding_bag": "ops.scatter.embedding_bag",
    "flash_attention": "ops.attention.flash_attention",
    "fused_mlp": "ops.matmul.fused_mlp",
    "gated_activation": "ops.elementwise.gated_activation",
    "gemm": "ops.matmul.gemm",
    "generated": "codegen.generated",
    "group_norm_silu": "ops.norm.group_norm_silu",
    "grouped_gemm": "ops.matmul.grouped_gemm",
    "jagged_mean": "ops.scatter.jagged_mean",
    "jagged_softmax": "ops.scatter.jagged_softmax",
    "layer_norm": "ops.norm.layer_norm",
    "layer_norm_backward": "ops.norm.layer_norm_backward",
    "linear_cross_entropy": "ops.matmul.linear_cross_entropy",
    "linear_recurrence": "ops.scan.linear_recurrence",
    "matmul": "ops.matmul.matmul",
    "matmul_argmin": "ops.matmul.matmul_argmin",
    "matmul_epilogue": "ops.matmul.matmul_epilogue",
    "matmul_layer_norm": "ops.matmul.matmul_layer_norm",
    "matmul_logsumexp": "ops.matmul.matmul_logsumexp",
    "norm_backward": "ops.norm.backward",
    "norm_columns": "ops.norm.backward_kernels",
    "norm_forward_team": "ops.norm.forward_kernels",
    "norm_gradients": "ops.norm.backward_kernels",
    "norm_kernels": "ops.norm.forward_kernels",
    "norm_quantise": "ops.quantise.norm_quantise",
    "norm_team": "ops.norm.backward_kernels",
    "norms": "ops.norm.forward",
    "ordered": "ops.shared.sort_keys",
    "own": "kernel_listing",
    "own_model": "kernel_listing_model",
    "pairs": "ops.shared.pairs",
    "pool": "ops.pool.pool",
    "prefetch": "ops.shared.prefetch",
    "registry": "candidates",
    "rms_norm": "ops.norm.rms_norm",
    "rms_norm_backward": "ops.norm.rms_norm_backward",
    "rope": "ops.elementwise.rope",
    "router": "ops.reduction.router",
    "rows": "ops.shared.rows",
    "scaled_gemm": "ops.quantised.scaled_gemm",
    "scatter_add": "ops.scatter.scatter_add",
    "segment_reduce": "ops.scatter.segment_reduce",
    "softmax": "ops.softmax.softmax",
    "softmax_axis": "ops.softmax.softmax_axis",
    "softmax_axis_split": "ops.softmax.softmax_axis",
    "softmax_backward": "ops.softmax.softmax_backward",
    "softmax_long": "ops.softmax.softmax_long",
    "softmax_spec": "ops.softmax.softmax_spec",
    "softmax_team": "ops.softmax.softmax",
    "top_k": "ops.reduction.top_k",
    "tuned": "tuning_cache",
    "two_axis_reduction": "ops.reduction.two_axis_reduction",
    "vector_add": "ops.vector_add",
    "weight_only_gemm": "ops.quantised.weight_only_gemm",
    "written": "hand_written",
}
"""Former -> present name, both without the package's. Several files became one where several stand for the same."""


def present_name(module: str) -> str:
    """The name that a module has now, by any name that it ever had; every other name as it is."""
    package, _, name = module.partition(".")
    return f"{PACKAGE}.{FORMER_NAMES[name]}" if package == PACKAGE and name in FORMER_NAMES else module


class FormerNameLoader(Loader):
    """Loads the present module; importlib keeps it under the former name as well."""

    def __init__(self, present: str) -> None:
        self.present = present
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself, imported where it was not yet."""
        module = import_module(self.present)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is run again; importlib has just put the former name's spec in the place of the module's own."""
        module.__spec__ = self._spec


class FormerNameFinder:
    """Asked before all others, so that a file left over from an older version is not taken for the module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a former name, with the present file as its origin; None for every other name."""
        present = present_name(fullname)
        if present == fullname:
            return None
        from importlib.util import find_spec

        spec = find_spec(present)
        return ModuleSpec(fullname, FormerNameLoader(present), origin=spec.origin if spec is not None else None)


def install() -> None:
    """Make former names importable in this process; once."""
    if not any(isinstance(finder, FormerNameFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, FormerNameFinder())
