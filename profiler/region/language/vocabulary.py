"""Names of the region language and the torch callables behind them. A name that is not here does not exist."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
import torch.nn.functional as F

from profiler.region.operations import spellings

DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {
        "f64": torch.float64,
        "f32": torch.float32,
        "bf16": torch.bfloat16,
        "f16": torch.float16,
        "f8e4m3": torch.float8_e4m3fn,
        "f8e5m2": torch.float8_e5m2,
        "f8e8m0": torch.float8_e8m0fnu,
        "f4e2m1x2": torch.float4_e2m1fn_x2,
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
    """float64 float32 bfloat16 float16 float8_e4m3fn float8_e5m2 float8_e8m0fnu
    float4_e2m1fn_x2 int64 int32 int16 int8 uint8 bool
    float double half long int short""".split()
)
"""`torch.NAME` and bare NAME that mean a dtype."""

FUNCTIONAL = spellings("F") | frozenset(
    """adaptive_avg_pool3d adaptive_max_pool1d affine_grid alpha_dropout bilinear cosine_embedding_loss
    cosine_similarity cross_entropy dropout1d dropout2d dropout3d fold gaussian_nll_loss grid_sample
    gumbel_softmax hinge_embedding_loss interpolate linear_cross_entropy local_response_norm logsigmoid
    lp_pool1d lp_pool2d margin_ranking_loss multilabel_soft_margin_loss pairwise_distance poisson_nll_loss
    softmin softsign tanhshrink triplet_margin_loss upsample""".split()
)
TORCH = spellings("torch") | frozenset(
    """absolute arccos arcsin arctan arctan2 atleast_1d atleast_2d atleast_3d broadcast_tensors cartesian_prod
    chain_matmul clip column_stack conj cosine_similarity diag diff divide dsplit dstack fliplr flipud
    float_power greater greater_equal hsplit imag inner isfinite kron less less_equal meshgrid moveaxis multiply
    nanmean negative not_equal outer positive quantile ravel real subtract swapdims tensordot
    trapezoid vsplit""".split()
)
"""What `operations` spells so, and functions that come down to operations of other names."""

FFT = frozenset("fft ifft rfft irfft fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn hfft fftshift ifftshift".split())

LINALG = frozenset("norm vector_norm vecdot matmul cross".split())

SPECIAL = spellings("torch.special")

MODULES: Mapping[str, str] = MappingProxyType({"torch.nn.functional": "F", "nn.functional": "F"})
"""Other ways to say a module."""

ATEN = spellings("aten")

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

CONSTANTS: Mapping[tuple[str, str], float | torch.memory_format] = MappingProxyType(
    {
        ("math", "pi"): math.pi, ("math", "e"): math.e, ("math", "inf"): math.inf, ("torch", "pi"): math.pi,
        ("torch", "inf"): math.inf, ("torch", "nan"): math.nan,
        ("torch", "channels_last"): torch.channels_last, ("torch", "channels_last_3d"): torch.channels_last_3d,
        ("torch", "contiguous_format"): torch.contiguous_format,
        ("torch", "preserve_format"): torch.preserve_format,
    }
)  # fmt: skip
"""`torch.inf`, `math.pi`, `torch.channels_last`."""


def constant(module: str, name: str) -> float | torch.memory_format | torch.dtype | None:
    """The dtype or constant meant by `torch.bfloat16`, `math.pi`; or None."""
    return CONSTANTS.get((module, name), dtype(module, name))


def function(module: str, name: str) -> Callable[..., object] | None:
    """The callable behind `torch.name`, `F.name`, `aten.name`, `torch.fft.name`, a bare name (module ""), or None."""
    module = MODULES.get(module, module)
    if module in ("F", "") and name in FUNCTIONAL:
        functional: Callable[..., object] | None = getattr(F, name, None)
        if functional is not None:
            return functional
    if module in ("torch", "") and name in TORCH:
        return getattr(torch, name, None)
    if module == "torch.linalg" and name in LINALG:
        return getattr(torch.linalg, name, None)
    if module == "torch.special" and name in SPECIAL:
        return getattr(torch.special, name, None)
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
        meant = getattr(torch, name)
        return meant if isinstance(meant, torch.dtype) else None
    return None


def known_names(module: str) -> frozenset[str]:
    """Names that exist under a module, for "did you mean"."""
    names = {
        **functions(),
        "torch": TORCH | TORCH_DTYPES | {n for m, n in CONSTANTS if m == "torch"},
        "math": frozenset(MATH),
        "": FUNCTIONAL | TORCH,
    }
    return names.get(MODULES.get(module, module), frozenset())


def functions() -> Mapping[str, frozenset[str]]:
    """Every function by module."""
    return {
        "F": FUNCTIONAL, "torch": TORCH, "torch.fft": FFT, "torch.linalg": LINALG, "torch.special": SPECIAL,
        "aten": ATEN,
    }  # fmt: skip
