"""Names of the region language and the torch callables behind them. A name that is not here does not exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F

DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {
        "f64": torch.float64,
        "f32": torch.float32,
        "bf16": torch.bfloat16,
        "f16": torch.float16,
        "f8e4m3": torch.float8_e4m3fn,
        "f8e5m2": torch.float8_e5m2,
        "i64": torch.int64,
        "i32": torch.int32,
        "i16": torch.int16,
        "i8": torch.int8,
        "u8": torch.uint8,
        "bool": torch.bool,
    }
)
DTYPE_NAMES: Mapping[torch.dtype, str] = MappingProxyType({v: k for k, v in DTYPES.items()})

TORCH_DTYPES = frozenset(
    """float64 float32 bfloat16 float16 float8_e4m3fn float8_e5m2 int64 int32 int16 int8 uint8 bool
    float double half long int short""".split()
)
"""`torch.NAME` and bare NAME that mean a dtype."""

FUNCTIONAL = frozenset(
    """gelu relu relu6 silu mish sigmoid tanh softmax log_softmax logsigmoid softplus softsign elu selu celu leaky_relu
    hardtanh hardswish hardsigmoid hardshrink softshrink tanhshrink threshold glu normalize dropout
    layer_norm rms_norm group_norm batch_norm instance_norm local_response_norm
    linear bilinear embedding embedding_bag one_hot pad unfold fold interpolate pixel_shuffle pixel_unshuffle
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
    max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d adaptive_max_pool2d
    scaled_dot_product_attention cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss kl_div
    binary_cross_entropy binary_cross_entropy_with_logits cosine_similarity cosine_embedding_loss
    grouped_mm scaled_mm""".split()
)

TORCH = frozenset(
    """add sub mul div true_divide floor_divide remainder fmod pow float_power neg abs sign sgn reciprocal rsub
    square sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh asinh acosh atanh
    erf erfc erfinv lgamma digamma sigmoid tanh relu softmax log_softmax logsumexp logaddexp
    floor ceil round trunc frac clamp clamp_min clamp_max clip maximum minimum fmax fmin lerp addcmul addcdiv
    where masked_fill isnan isinf isfinite nan_to_num heaviside copysign hypot
    eq ne lt le gt ge logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not
    bitwise_left_shift bitwise_right_shift
    sum mean prod var std var_mean std_mean amax amin max min argmax argmin all any norm count_nonzero median kthvalue
    cumsum cumprod cummax cummin logcumsumexp sort argsort topk searchsorted bucketize bincount histc multinomial
    mm bmm matmul addmm baddbmm addbmm addmv mv dot outer einsum tensordot kron
    cat concat stack hstack vstack chunk split tensor_split unbind reshape flatten unflatten squeeze unsqueeze
    permute transpose t movedim swapaxes narrow select index_select gather take_along_dim take flip roll rot90 tile
    repeat_interleave broadcast_to meshgrid tril triu diag diagonal diag_embed expand_copy clone
    scatter scatter_add scatter_reduce index_add index_copy index_fill index_put masked_scatter segment_reduce
    zeros ones full empty arange linspace eye zeros_like ones_like full_like empty_like rand_like randn_like rand randn
    bernoulli native_layer_norm native_dropout native_group_norm _int_mm _scaled_mm
    rms_norm layer_norm group_norm conv1d conv2d conv3d dropout embedding cosine_similarity cdist cross
    is_nonzero numel""".split()
) - {"is_nonzero", "numel"}

FFT = frozenset("fft ifft rfft irfft fft2 ifft2 rfft2 irfft2 fftn ifftn".split())

ATEN = frozenset(
    """gelu_backward silu_backward sigmoid_backward tanh_backward threshold_backward hardtanh_backward
    leaky_relu_backward elu_backward hardswish_backward softplus_backward
    _softmax _softmax_backward_data _log_softmax _log_softmax_backward_data
    native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward
    native_batch_norm native_batch_norm_backward native_dropout native_dropout_backward
    cudnn_batch_norm cudnn_batch_norm_backward miopen_batch_norm miopen_batch_norm_backward
    nll_loss_forward nll_loss_backward embedding_dense_backward convolution convolution_backward
    max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d_backward _adaptive_avg_pool2d
    _adaptive_avg_pool2d_backward mse_loss_backward smooth_l1_loss_backward
    _fused_rms_norm _fused_rms_norm_backward _to_copy _unsafe_view view expand slice select_backward slice_backward
    add sub mul div pow neg mean sum addmm mm bmm t where masked_fill rsqrt sqrt exp log copy clone
    _addmm_activation _grouped_mm index index_put scatter_add gather _unsafe_index _unsafe_index_put
    constant_pad_nd upsample_nearest2d upsample_bilinear2d detach alias new_zeros new_full fill
    _safe_softmax _weight_norm_interface var_mean lerp""".split()
)

METHODS = (
    (TORCH - {"zeros", "ones", "full", "empty", "arange", "linspace", "eye", "rand", "randn", "cat", "stack", "einsum",
              "where", "concat", "hstack", "vstack", "meshgrid", "_int_mm", "_scaled_mm", "native_dropout"})
    | frozenset(
        """view view_as reshape_as expand expand_as contiguous to float half bfloat16 double long int bool type_as
        repeat mT T mH size dim numel item_size size_of unfold new_zeros new_ones new_full new_empty
        masked_fill_ add_ sub_ mul_ div_ copy_ fill_ zero_ clamp_ neg_ exp_ sqrt_ rsqrt_ relu_ sigmoid_ tanh_ pow_
        index_add_ index_copy_ index_put_ scatter_ scatter_add_ masked_scatter_ addcmul_ addcdiv_ lerp_ index_fill_
        where softmax log_softmax char byte short relu is_floating_point detach""".split()
    )
) - {"item_size", "size_of"}  # fmt: skip

PROPERTIES = frozenset({"T", "mT", "shape", "dtype", "ndim", "device"})

PLAIN_METHODS = frozenset({"size", "dim", "numel", "is_floating_point"})
"""Methods that give a number and no tensor."""

FACTORIES = frozenset({"zeros", "ones", "full", "empty", "arange", "linspace", "eye", "rand", "randn"})
"""Functions that make a tensor from nothing: they get the region's device."""

STRINGS = frozenset(
    """none tanh mean sum batchmean constant reflect replicate circular trunc floor amax amin prod nearest bilinear
    ij xy left right linear""".split()
)
"""String options that may appear as arguments; einsum equations are checked on their own."""

BUILTINS: Mapping[str, Callable[..., Any]] = MappingProxyType({"len": len, "min": min, "max": max, "abs": abs,
                                                               "int": int})  # fmt: skip
"""On numbers only; on tensors `abs`, `min`, `max` are torch's."""


def function(module: str, name: str) -> Callable[..., Any] | None:
    """The callable behind `torch.name`, `F.name`, `aten.name`, `torch.fft.name`, a bare name (module ""), or None."""
    if module in ("F", "") and name in FUNCTIONAL:
        found: Callable[..., Any] | None = getattr(F, name, None)
        if found is not None:
            return found
    if module in ("torch", "") and name in TORCH:
        return getattr(torch, name, None)
    if module == "torch.fft" and name in FFT:
        return getattr(torch.fft, name, None)
    if module == "aten" and name in ATEN:
        return getattr(torch.ops.aten, name, None)
    return None


def dtype(module: str, name: str) -> torch.dtype | None:
    """The dtype meant by `bf16`, `torch.bfloat16`; or None."""
    if module == "" and name in DTYPES:
        return DTYPES[name]
    if module == "torch" and name in TORCH_DTYPES:
        found = getattr(torch, name)
        return found if isinstance(found, torch.dtype) else None
    return None


def known(module: str) -> frozenset[str]:
    """Names that exist under a module, for "did you mean"."""
    return {
        "torch": TORCH | TORCH_DTYPES,
        "F": FUNCTIONAL,
        "torch.fft": FFT,
        "aten": ATEN,
        "": FUNCTIONAL | TORCH,
    }.get(module, frozenset())


def functions() -> Mapping[str, frozenset[str]]:
    """Every function by module, for the docs."""
    return {"F": FUNCTIONAL, "torch": TORCH, "torch.fft": FFT, "aten": ATEN}
