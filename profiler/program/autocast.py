"""torch.autocast on tensors without memory: torch has it for those of a device alone, so the casts are made here.

By torch's lists (aten/src/ATen/autocast_mode.h, 2.11 to 2.13), at the functions that a program calls; what a composite
of torch's calls within is cast with it. A weight's cast is kept until the outermost context ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakIdKeyDictionary

GPU = "cuda"
CLEAR = "clear_autocast_cache"
LOWER = frozenset({
    "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution",
    "prelu", "addmm", "addmv", "addr", "matmul", "__matmul__", "__rmatmul__", "einsum", "mm", "mv", "linear", "addbmm",
    "baddbmm", "bmm", "chain_matmul", "linalg_multi_dot", "linalg_vecdot", "scaled_dot_product_attention", "lstm_cell",
    "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "multi_head_attention_forward",
})  # fmt: skip
"""Functions that run in autocast's type."""
FULL = frozenset({
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh",
    "tan", "pow", "__pow__", "__rpow__", "softplus", "layer_norm", "group_norm", "norm", "cosine_similarity",
    "poisson_nll_loss", "cosine_embedding_loss", "nll_loss", "hinge_embedding_loss", "kl_div", "l1_loss",
    "smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss", "multilabel_margin_loss", "soft_margin_loss",
    "triplet_margin_loss", "multi_margin_loss", "binary_cross_entropy_with_logits", "cross_entropy", "dist", "pdist",
    "cdist", "renorm", "logsumexp",
})  # fmt: skip
"""Functions that run in f32."""
SOFTMAXES = frozenset({"softmax", "log_softmax"})
FULL_RESULTS = SOFTMAXES | {"prod", "cumprod", "cumsum", "sum", "linalg_vector_norm", "linalg_matrix_norm"}
"""Functions that are asked for a result in f32, where the program asks for none."""
WIDEST = frozenset({
    "addcdiv", "addcmul", "atan2", "arctan2", "bilinear", "cross", "dot", "vdot", "grid_sample", "grid_sampler",
    "index_put", "tensordot", "scatter_add", "cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack",
    "row_stack", "column_stack",
})  # fmt: skip
"""Functions whose tensors are brought to one type: f32 where one of them is, else autocast's."""


class Autocast:
    """The casts of one recorded run."""

    def __init__(self) -> None:
        self.weights: WeakIdKeyDictionary = WeakIdKeyDictionary()
        """Leaf that learns -> what it was cast to."""

    def cast(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        """A call's arguments as autocast would hand them on, where it is on for the GPU."""
        if not torch.is_autocast_enabled(GPU):
            return args, kwargs
        name = getattr(func, "__name__", "")
        if name in LOWER:
            dtype = torch.get_autocast_dtype(GPU)
        elif name in FULL:
            dtype = torch.float32
        elif name in WIDEST:
            dtype = _widest((args, kwargs))
        elif name in FULL_RESULTS and _is_lower((*args[:1], kwargs.get("input"), kwargs.get("x"), kwargs.get("A"))):
            return _with_result(name, args, kwargs, torch.float32)
        else:
            return args, kwargs

        def as_cast(value: Any) -> Any:
            return self._as(value, dtype)

        return tree_map(as_cast, tuple(args)), tree_map(as_cast, dict(kwargs))

    def _as(self, value: Any, dtype: torch.dtype) -> Any:
        """f64 and what is no floating tensor of the GPU stays as it is."""
        eligible = isinstance(value, torch.Tensor) and value.device.type == "meta" and value.is_floating_point()
        if not eligible or value.dtype in (dtype, torch.float64):
            return value
        keeps = value.is_leaf and value.requires_grad and torch.is_autocast_cache_enabled()
        known = self.weights.get(value) if keeps else None  # type: ignore[no-untyped-call]
        if known is not None and known.dtype == dtype:
            return known
        made = value.to(dtype)
        if keeps:
            self.weights[value] = made
        return made

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Within it casts of weights are forgotten where torch forgets its own: when the outermost context ends."""
        clear = getattr(torch, CLEAR)

        def clear_both() -> None:
            self.weights.clear()
            clear()

        with mock.patch.object(torch, CLEAR, clear_both):
            yield


def _widest(values: Any) -> torch.dtype:
    """Of a call's tensors that autocast may cast."""
    full = any(isinstance(v, torch.Tensor) and v.dtype == torch.float32 for v in tree_leaves(values))
    return torch.float32 if full else torch.get_autocast_dtype(GPU)


def _with_result(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], dtype: torch.dtype
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The call with its result's type, unless it names one. A softmax takes one by its place, which may hold None."""
    if kwargs.get("dtype") is not None or any(isinstance(a, torch.dtype) for a in args):
        return args, kwargs
    if name in SOFTMAXES and len(args) > 2 and args[-1] is None:
        args = args[:-1]
    return args, {**kwargs, "dtype": dtype}


def _is_lower(args: Sequence[Any]) -> bool:
    return any(isinstance(a, torch.Tensor) and a.dtype in (torch.float16, torch.bfloat16) for a in args)
