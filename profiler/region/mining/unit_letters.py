"""The letter that stands for each unit of a step, so that a pattern over operations is a regular expression.

Torch-free data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from profiler.region import op_kinds
from profiler.region.mining.units import Unit
from profiler.region.operations import kind_of

LETTERS: Mapping[str, str] = {
    "t": "to _to_copy type_as float half bfloat16",
    "p": "pow square",
    "m": "mean",
    "v": "var var_mean std std_mean",
    "a": "add __add__ __iadd__",
    "s": "sub rsub",
    "x": "mul multiply",
    "d": "div true_divide",
    "r": "rsqrt",
    "q": "sqrt",
    "M": "matmul bmm baddbmm einsum tensordot",
    "L": "linear addmm mm addmv mv _addmm_activation dot addbmm _scaled_mm _int_mm _scaled_grouped_mm",
    "G": "_grouped_mm grouped_mm",
    "C": """conv1d conv2d conv3d convolution _convolution cudnn_convolution miopen_convolution conv_transpose1d
            conv_transpose2d conv_transpose3d convolution_overrideable cudnn_convolution_add_relu
            miopen_depthwise_convolution""",
    "A": """scaled_dot_product_attention _scaled_dot_product_flash_attention _flash_attention_forward
            _scaled_dot_product_efficient_attention _efficient_attention_forward
            _scaled_dot_product_cudnn_attention _cudnn_attention_forward _scaled_dot_product_attention_math
            _flash_attention_backward _scaled_dot_product_flash_attention_backward
            _scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward
            _efficient_attention_backward _native_multi_head_attention""",
    "S": "softmax _softmax _safe_softmax",
    "l": "log_softmax _log_softmax",
    "j": "nll_loss nll_loss_nd nll_loss_forward nll_loss2d",
    "E": "cross_entropy_loss",
    "K": "topk",
    "O": """sort argsort cumsum cumprod searchsorted bucketize unique _unique2 unique_consecutive histc bincount
            nonzero""",
    "g": "gelu",
    "i": "silu",
    "h": "tanh",
    "u": "relu leaky_relu elu hardtanh hardswish mish softplus relu6 clamp_min clamp selu threshold",
    "o": "sigmoid",
    "n": "neg",
    "c": "cat stack concat _cat",
    "e": "exp",
    "w": "where masked_fill",
    "D": "dropout native_dropout _fused_dropout",
    "N": "layer_norm native_layer_norm rms_norm _fused_rms_norm group_norm native_group_norm instance_norm",
    "B": """batch_norm native_batch_norm cudnn_batch_norm miopen_batch_norm _batch_norm_impl_index
            _native_batch_norm_legit""",
    "b": "sum amax amin max min logsumexp all any argmax argmin prod",
    "H": "norm linalg_vector_norm linalg_norm",
    "R": "reciprocal",
    "k": "erf",
    "Z": "embedding",
    "I": "index index_select gather take take_along_dim _unsafe_index masked_select one_hot",
    "W": """scatter scatter_add scatter_reduce index_add index_put _index_put_impl index_copy index_fill
            masked_scatter segment_reduce""",
    "F": "zeros ones full new_zeros new_full zeros_like ones_like full_like fill zero new_ones arange eye",
    "y": "copy clone contiguous reshape repeat repeat_interleave flatten pad constant_pad_nd roll flip tile",
}  # fmt: skip
_LETTER: dict[str, str] = {name: letter for letter, names in LETTERS.items() for name in names.split()}

COMMUNICATION, OPTIMIZER, COMPILED, OTHER, POINTWISE = "J", "Y", "Q", ".", "f"
ROTATION = "U"
"""A product of complex numbers that stand for pairs of real ones."""
WITH_NUMBER: Mapping[str, str] = {"x": "X", "d": "V", "a": "P", "s": "T"}
"""The second operand is a number."""

ALONE = frozenset("LMGCAJYQEKO.")
"""Never joins a chain of others: a library's kernel, or one that synchronises."""
TAIL = frozenset("aPxXdVsTgiuhoqDwtek")
"""What may follow a GEMM in its epilogue."""
CONVOLUTION_TAIL = TAIL | {"B"}
"""What may follow a convolution: batch norm's channels are its own."""
TAIL_STARTS = frozenset("gihuow")
COPIES = frozenset("cy")
"""Two of these in a row are two regions: each moves its own tensor."""
CHAINS = frozenset("tpmvasxdrqSlghiuoncewDNBbIWFyfXVPTjZHRkU")

OVER_LISTS = ("_foreach_", "_amp_foreach_", "_fused_adam", "_fused_sgd", "_fused_adagrad")
"""How operations over lists of tensors begin, which optimizers and loss scaling run."""

COMPILED_PREFIX = re.compile(r"triton_(?:poi|red|per|tem|for|mm|\d|_)")


def letter(unit: Unit) -> str:
    """The unit's letter."""
    if not unit.aten and kind_of(unit.name) == op_kinds.COMMUNICATION:
        return COMMUNICATION
    if unit.optimizer or unit.name.startswith(OVER_LISTS):
        return OPTIMIZER
    if not unit.aten:
        return COMPILED if COMPILED_PREFIX.match(unit.name) else OTHER
    if unit.base == "add" and unit.args and unit.args[0].sigs and not unit.args[0].sigs[0].dims:
        return OTHER  # batch norm counts its batches in a scalar on the GPU
    symbol = _LETTER.get(unit.base) or _LETTER.get(unit.name)
    if symbol is None:
        kind = kind_of(f"aten::{unit.base}")
        return POINTWISE if kind == op_kinds.POINTWISE else OTHER
    if unit.base in ("min", "max") and len(unit.args) == 2 and unit.args[1].kind == "tensor":
        return POINTWISE
    if symbol in WITH_NUMBER and len(unit.args) > 1 and unit.args[1].kind in ("lost", "value"):
        return WITH_NUMBER[symbol]
    return symbol


def rotates(unit: Unit, following: Sequence[Unit]) -> bool:
    """A product of complex tensors that is read as real at once: behind it, or behind the product of the keys."""
    if unit.base != "mul" or (unit.args and not any(s.complex for a in unit.args for s in a.sigs)):
        return False
    after = [u.base for u in following[:2]]
    return after[:1] == ["view_as_real"] or after == ["mul", "view_as_real"]
