"""Names of the region language and the torch callables behind them. A name that is not here does not exist."""

from __future__ import annotations

import math
import re
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
    margin_ranking_loss hinge_embedding_loss soft_margin_loss triplet_margin_loss poisson_nll_loss gaussian_nll_loss
    multilabel_soft_margin_loss linear_cross_entropy
    prelu softmin gumbel_softmax pairwise_distance lp_pool1d lp_pool2d adaptive_max_pool1d adaptive_max_pool3d
    grid_sample affine_grid channel_shuffle upsample alpha_dropout dropout1d dropout2d dropout3d
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
    cumsum cumprod cummax cummin logcumsumexp sort argsort topk searchsorted bucketize histc multinomial
    mm bmm matmul addmm baddbmm addbmm addmv mv dot outer einsum tensordot kron
    cat concat stack hstack vstack chunk split tensor_split unbind reshape flatten unflatten squeeze unsqueeze
    permute transpose t movedim swapaxes narrow select index_select gather take_along_dim take flip roll rot90 tile
    repeat_interleave broadcast_to meshgrid tril triu diag diagonal diag_embed expand_copy clone
    scatter scatter_add scatter_reduce index_add index_copy index_fill index_put masked_scatter segment_reduce
    zeros ones full empty arange linspace eye zeros_like ones_like full_like empty_like rand_like randn_like rand randn
    bernoulli native_layer_norm native_dropout native_group_norm _int_mm _scaled_mm
    rms_norm layer_norm group_norm conv1d conv2d conv3d dropout embedding cosine_similarity cdist cross
    isin logit nansum nanmean aminmax trace inner vdot addr diff trapezoid swapdims moveaxis ravel
    fliplr flipud hsplit vsplit dsplit column_stack dstack atleast_1d atleast_2d atleast_3d broadcast_tensors
    positive signbit sinc deg2rad rad2deg xlogy ldexp gcd lcm quantile nanmedian mode msort renorm addcmul
    select_scatter slice_scatter diagonal_scatter index_reduce unfold_copy select_copy prelu celu selu
    real imag view_as_real view_as_complex polar complex conj angle
    tril_indices triu_indices logspace randint randperm randint_like normal chain_matmul cartesian_prod
    conv_transpose1d conv_transpose2d conv_transpose3d max_pool1d max_pool2d max_pool3d avg_pool1d
    instance_norm pixel_shuffle pixel_unshuffle i0 polygamma multiply divide subtract negative absolute
    greater greater_equal less less_equal not_equal arctan arcsin arccos arctan2
    unsafe_chunk unsafe_split""".split()
)

FFT = frozenset("fft ifft rfft irfft fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn hfft fftshift ifftshift".split())

LINALG = frozenset("norm vector_norm vecdot matmul cross".split())

MODULES: Mapping[str, str] = MappingProxyType({"torch.nn.functional": "F", "nn.functional": "F"})
"""Other ways to say a module."""

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
    _safe_softmax _weight_norm_interface var_mean lerp nll_loss2d_forward nll_loss2d_backward
    upsample_nearest1d upsample_bicubic2d _softmax_backward_data select unsqueeze squeeze transpose permute
    cat stack amax argmax topk sort cumsum sigmoid tanh relu gelu silu native_dropout_backward""".split()
)

_ONLY_METHODS = frozenset(
    """view view_as reshape_as expand expand_as contiguous to float half bfloat16 double long int bool char byte short
    type_as type detach repeat size dim numel stride is_floating_point unfold sum_to_size
    new_zeros new_ones new_full new_empty
    masked_fill_ add_ sub_ mul_ div_ copy_ fill_ zero_ clamp_ clamp_min_ clamp_max_ neg_ exp_ exp2_ log_ sqrt_ rsqrt_
    relu_ sigmoid_ tanh_ pow_ square_ reciprocal_ abs_ round_ floor_ cumsum_ tril_ triu_ addmm_ baddbmm_ lerp_
    addcmul_ addcdiv_ index_add_ index_copy_ index_put_ index_fill_ index_reduce_ scatter_ scatter_add_ scatter_reduce_
    masked_scatter_ logical_not_ bitwise_and_ bitwise_or_ bernoulli_""".split()
)
METHODS = frozenset(n for n in TORCH | _ONLY_METHODS if hasattr(torch.Tensor, n))

PROPERTIES = frozenset({"T", "mT", "shape", "dtype", "ndim", "device", "real", "imag"})

PLAIN_METHODS = frozenset({"size", "dim", "numel", "is_floating_point", "stride"})
"""Methods that give a number and no tensor."""

FACTORIES = frozenset(
    """zeros ones full empty arange linspace logspace eye rand randn randint randperm tril_indices triu_indices
    normal""".split()
)
"""Functions that make a tensor from nothing: they get the region's device."""

STRINGS = frozenset(
    """none tanh mean sum batchmean constant reflect replicate circular trunc floor amax amin prod nearest bilinear
    bicubic trilinear area nearest-exact zeros border ij xy left right linear same valid max fro""".split()
)
"""String options that may appear as arguments; einsum equations are checked on their own."""

EQUATION = re.compile(r"[a-zA-Z., ]{1,120}(->[a-zA-Z. ]{0,60})?")
"""What einsum takes."""

MATH: Mapping[str, Callable[[float], float]] = MappingProxyType(
    {n: getattr(math, n) for n in "sqrt exp log log2 ceil floor".split()}
)
"""`math.sqrt(64)`: on numbers."""

CONSTANTS: Mapping[tuple[str, str], Any] = MappingProxyType(
    {
        ("math", "pi"): math.pi, ("math", "e"): math.e, ("math", "inf"): math.inf, ("torch", "pi"): math.pi,
        ("torch", "inf"): math.inf, ("torch", "nan"): math.nan,
        ("torch", "channels_last"): torch.channels_last, ("torch", "channels_last_3d"): torch.channels_last_3d,
        ("torch", "contiguous_format"): torch.contiguous_format,
        ("torch", "preserve_format"): torch.preserve_format,
    }
)  # fmt: skip
"""`torch.inf`, `math.pi`, `torch.channels_last`."""


def constant(module: str, name: str) -> Any:
    """The dtype or constant meant by `torch.bfloat16`, `math.pi`; or None."""
    return CONSTANTS.get((module, name), dtype(module, name))


def function(module: str, name: str) -> Callable[..., Any] | None:
    """The callable behind `torch.name`, `F.name`, `aten.name`, `torch.fft.name`, a bare name (module ""), or None."""
    module = MODULES.get(module, module)
    if module in ("F", "") and name in FUNCTIONAL:
        found: Callable[..., Any] | None = getattr(F, name, None)
        if found is not None:
            return found
    if module in ("torch", "") and name in TORCH:
        return getattr(torch, name, None)
    if module == "torch.linalg" and name in LINALG:
        return getattr(torch.linalg, name, None)
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
        "torch": TORCH | TORCH_DTYPES | {n for m, n in CONSTANTS if m == "torch"},
        "torch.linalg": LINALG,
        "math": frozenset(MATH),
        "F": FUNCTIONAL,
        "torch.fft": FFT,
        "aten": ATEN,
        "": FUNCTIONAL | TORCH,
    }.get(MODULES.get(module, module), frozenset())


def functions() -> Mapping[str, frozenset[str]]:
    """Every function by module, for the docs."""
    return {"F": FUNCTIONAL, "torch": TORCH, "torch.fft": FFT, "torch.linalg": LINALG, "aten": ATEN}
