"""What a user would call instead of our kernels: torch's library call, Liger, FlagGems, quack, each by operation.

A builder gets the Case and gives a function of the operation's own arguments. It raises NotHereError where the package
is not installed or does not take the case. What a peer does not do is said in its name ("no bias").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F

from kernels.spec import Case

aten = torch.ops.aten
LIGER = "liger_kernel.ops"

Call = Callable[..., Any]
Builder = Callable[[Case], Call]


class NotHereError(Exception):
    """The peer is not installed, or cannot run the case."""


def package(name: str, attribute: str) -> Any:
    """`attribute` of a module. Raises NotHereError."""
    try:
        return getattr(import_module(name), attribute)
    except Exception as fault:  # a package may fail in any way while it is imported
        told = f"{type(fault).__name__}: {str(fault)[:80]}"
        raise NotHereError(f"{name.split('.')[0]} is not installed ({told})") from fault


def always(call: Call) -> Builder:
    """A call that takes every case."""
    return lambda case: call


def of(name: str, attribute: str, use: Callable[..., Any]) -> Builder:
    """`use(function, *arguments)` of a package's function."""

    def build(case: Case) -> Call:
        function = package(name, attribute)
        return lambda *arguments: use(function, *arguments)

    return build


def backward_of(name: str, attribute: str, forward: Callable[..., Any], leaves: Callable[..., Any]) -> Builder:
    """The backward of an autograd function, its forward run once: forward(function, *leaves) gives y;
    leaves(*arguments) the tensors that want gradients. The first argument is y's gradient."""

    def build(case: Case) -> Call:
        function = package(name, attribute)
        kept: dict[str, Any] = {}

        def call(dy: torch.Tensor, *arguments: Any) -> Any:
            if not kept:
                kept["leaves"] = [t.detach().requires_grad_() for t in leaves(*arguments)]
                kept["y"] = forward(function, *kept["leaves"])
            return torch.autograd.grad(kept["y"], kept["leaves"], dy, retain_graph=True)

        return call

    return build


def only(condition: Callable[[Case], bool], why: str, build: Builder) -> Builder:
    """A builder for some cases."""

    def checked(case: Case) -> Call:
        if not condition(case):
            raise NotHereError(why)
        return build(case)

    return checked


def _liger_loss_and_gradient(case: Case) -> Call:
    """It overwrites the logits with their gradient, so it gets a copy: other numbers after its first call, as many."""
    function = package(f"{LIGER}.cross_entropy", "LigerCrossEntropyFunction")
    kept: dict[str, torch.Tensor] = {}

    def call(logits: torch.Tensor, target: torch.Tensor, ignore: int, smoothing: float, reduction: str) -> Any:
        own = kept.setdefault("logits", logits.clone())
        loss, *_ = function.apply(own.detach().requires_grad_(), target, None, ignore, 0.0, smoothing, reduction)
        return loss.detach(), own

    return call


def _plain(case: Case) -> bool:
    return not case.get("smoothing", 0.0) and not case.get("ignored", 0) and case.get("reduction", "mean") == "mean"


def _quack_loss(function: Any, logits: torch.Tensor, target: torch.Tensor, *more: Any) -> Any:
    return function(logits, target).mean()


def _quack_loss_and_gradient(function: Any, logits: torch.Tensor, target: torch.Tensor, *more: Any) -> Any:
    """The rows' gradients of the sum: a mean scales them once more, which a training step folds in elsewhere."""
    loss, gradient = function(logits, target, return_dx=True)
    return loss.mean(), gradient


def _addmm_activation(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, *more: Any) -> torch.Tensor:
    result: torch.Tensor = aten._addmm_activation(bias, a, b, use_gelu=True)
    return result


def _cross_entropy(logits: torch.Tensor, target: torch.Tensor, ignore: int, smoothing: float, reduction: str) -> Any:
    """torch's on the logits as they are, which eager's reference widens first; its loss is in their dtype."""
    loss = F.cross_entropy(logits, target, ignore_index=ignore, label_smoothing=smoothing, reduction=reduction)
    return loss.float()


def _cross_entropy_with_gradient(logits: torch.Tensor, *more: Any) -> Any:
    leaf = logits.detach().requires_grad_()
    loss = _cross_entropy(leaf, *more)
    return loss.detach(), torch.autograd.grad(loss.sum(), leaf)[0]


def _sdpa(backend: str) -> Builder:
    """torch's attention on one of its backends."""

    def build(case: Case) -> Call:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        def call(q: Any, k: Any, v: Any, bias: Any, causal: bool, window: Any, cap: Any, scale: Any, lse: bool) -> Any:
            with sdpa_kernel(getattr(SDPBackend, backend)):
                return F.scaled_dot_product_attention(
                    q, k, v, attn_mask=bias, is_causal=causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
                )

        return call

    return only(lambda c: not c.get("window") and not c.get("cap"), "no window, no soft cap", build)


def _flex(case: Case) -> Call:
    """FlexAttention, compiled: cap and bias as a score_mod, causal and window as a block mask made once."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    attend = torch.compile(flex_attention, dynamic=False)
    masks: dict[tuple[int, int], Any] = {}

    def call(q: Any, k: Any, v: Any, bias: Any, causal: bool, window: Any, cap: Any, scale: Any, lse: bool) -> Any:
        def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            s = s if cap is None else cap * torch.tanh(s / cap)
            return s if bias is None else s + bias[0, h, i, j]

        def seen(b: Any, h: Any, i: Any, j: Any) -> Any:
            inside = i >= j if causal else i >= 0
            return inside if window is None else inside & (i - j <= window)

        size = (q.shape[2], k.shape[2])
        if (causal or window is not None) and size not in masks:
            masks[size] = create_block_mask(seen, None, None, *size, device=q.device.type)
        plain = cap is None and bias is None
        return attend(q, k, v, score_mod=None if plain else score, block_mask=masks.get(size), scale=scale,
                      enable_gqa=q.shape[1] != k.shape[1])  # fmt: skip

    return call


def _backward_of_attention(forward: Builder) -> Builder:
    """The backward that autograd makes of an attention call, its forward run once. The log-sum-exp has no gradient."""

    def build(case: Case) -> Call:
        attend = forward(case)
        kept: dict[str, Any] = {}

        def call(do: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, causal: bool, window: Any, cap: Any, scale: Any,
                 dlse: Any) -> Any:  # fmt: skip
            if not kept:
                kept["leaves"] = [x.detach().requires_grad_() for x in (q, k, v)]
                kept["o"] = attend(*kept["leaves"], None, causal, window, cap, scale, False)
            return torch.autograd.grad(kept["o"], kept["leaves"], do, retain_graph=True)

        return call

    return only(lambda c: not c.get("both"), "no gradient of the log-sum-exp", build)


def _flashinfer_decode(case: Case) -> Call:
    """Planned once for its table and lengths, as a server does for all layers of a step."""
    wrapper = package("flashinfer", "BatchDecodeWithPagedKVCacheWrapper")
    kept: dict[str, Any] = {}

    def call(q: Any, k: Any, v: Any, table: Any, lengths: Any, window: Any, cap: Any, scale: Any, lse: bool) -> Any:
        if not kept:
            page = k.shape[1]
            used = (lengths + page - 1) // page
            ends = torch.nn.functional.pad(used.cumsum(0), (1, 0)).int()
            pages = torch.cat([row[:n] for row, n in zip(table, used.tolist(), strict=True)])
            kept["run"] = wrapper(
                torch.empty(1 << 28, dtype=torch.uint8, device=q.device), "NHD", use_tensor_cores=True
            )
            kept["run"].plan(
                ends, pages, (lengths - 1) % page + 1, q.shape[1], k.shape[2], q.shape[2], page,
                window_left=-1 if window is None else window, logits_soft_cap=cap, sm_scale=scale,
                q_data_type=q.dtype, kv_data_type=k.dtype,
            )  # fmt: skip
        return kept["run"].run(q, (k, v))

    return call


def _f32(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.float()


def _quack_layer_norm(function: Any, x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return function(x, _f32(weight), _f32(bias), eps)


def _rows(x: torch.Tensor) -> tuple[int, ...]:
    return (x.shape[-1],)


def _fla_conv(function: Any, x: Any, w: Any, b: Any, act: str | None, *_: Any) -> Any:
    """fla's takes [B, T, C]."""
    return function(x.transpose(1, 2), w, b, activation=act)[0].transpose(1, 2)


def _causal_conv1d_backward(case: Case) -> Call:
    function = package("causal_conv1d", "causal_conv1d_fn")
    kept: dict[str, Any] = {}

    def call(dy: Any, x: Any, w: Any, b: Any, act: str | None, *_: Any) -> Any:
        if not kept:
            kept["leaves"] = [t.detach().requires_grad_() for t in (x, w, b) if t is not None]
            kept["y"] = function(*kept["leaves"], activation=act)
        return torch.autograd.grad(kept["y"], kept["leaves"], dy, retain_graph=True)

    return call


def _time_side_by_side(arguments: Sequence[Any]) -> list[Any]:
    """As mamba_ssm's kernel reads them: it would copy others in every call, which is no part of its time."""
    return [t.contiguous() if isinstance(t, torch.Tensor) else t for t in arguments]


def _mamba(case: Case) -> Call:
    """On inputs that are laid out once, as it wants them."""
    function = package("mamba_ssm.ops.selective_scan_interface", "selective_scan_fn")
    kept: dict[str, Any] = {}

    def call(*arguments: Any) -> Any:
        if not kept:
            kept["own"] = _time_side_by_side(arguments)
        return function(*kept["own"])

    return call


def _mamba_backward(case: Case) -> Call:
    """Its autograd's, its forward run once, on inputs that are laid out once."""
    function = package("mamba_ssm.ops.selective_scan_interface", "selective_scan_fn")
    kept: dict[str, Any] = {}

    def call(dy: Any, *arguments: Any) -> Any:
        if not kept:
            dy, *arguments = _time_side_by_side((dy, *arguments))  # type: ignore[assignment]
            kept["dy"] = dy
            own = [t.detach().requires_grad_() if isinstance(t, torch.Tensor) else t for t in arguments]
            kept["leaves"] = [t for t in own if isinstance(t, torch.Tensor)]
            kept["y"] = function(*own)
        return torch.autograd.grad(kept["y"], kept["leaves"], kept["dy"], retain_graph=True)

    return call


def _fla_decayed(function: Any, q: Any, k: Any, v: Any, g: Any, scale: Any, initial: Any, final: bool) -> Any:
    """fla's takes [B, T, H, D]."""
    turned = (x.transpose(1, 2) for x in (q, k, v, g))
    o, end = function(*turned, scale=scale, initial_state=initial, output_final_state=final)
    return (o.transpose(1, 2), end) if final else o.transpose(1, 2)


PEERS: Mapping[str, Mapping[str, Builder]] = {
    "softmax": {
        "F.softmax": always(lambda x, widen: F.softmax(x, -1, dtype=torch.float32 if widen else None)),
        "liger": of(f"{LIGER}.softmax", "LigerSoftmaxFunction", lambda f, x, *_: f.apply(x)),
        "quack": of("quack.softmax", "softmax_fwd", lambda f, x, *_: f(x)),
        "flag_gems": of("flag_gems", "softmax", lambda f, x, *_: f(x, -1)),
    },
    "softmax_long": {
        "F.softmax": always(lambda x, widen: F.softmax(x, -1, dtype=torch.float32 if widen else None)),
    },
    "softmax_backward": {
        "quack": of("quack.softmax", "softmax_bwd", lambda f, dy, y: f(dy, y)),
    },
    "cross_entropy": {
        "F.cross_entropy": always(_cross_entropy),
        "quack": only(_plain, "plain mean only", of("quack.cross_entropy", "cross_entropy_fwd", _quack_loss)),
    },
    "cross_entropy_with_gradient": {
        "F.cross_entropy": always(_cross_entropy_with_gradient),
        "liger (in place)": _liger_loss_and_gradient,
        "quack (unscaled gradient)": only(
            _plain, "plain mean only", of("quack.cross_entropy", "cross_entropy_fwd", _quack_loss_and_gradient)
        ),
    },
    "rms_norm": {
        "liger": of(f"{LIGER}.rms_norm", "rms_norm_forward", lambda f, x, w, e: f(x, w, e, 0.0, "llama", None)[0]),
        "quack": of("quack.rmsnorm", "rmsnorm_fwd", lambda f, x, w, e: f(x, w, eps=e)[0]),
        "flag_gems": of("flag_gems", "rms_norm", lambda f, x, w, e: f(x, _rows(x), w, e)),
    },
    "add_rms_norm": {
        "liger": of(
            f"{LIGER}.fused_add_rms_norm", "fused_add_rms_norm_forward",
            lambda f, x, r, w, e: f(x, r, w, e, 0.0, "llama")[:2],
        ),
        "quack": of("quack.rmsnorm", "rmsnorm_fwd", lambda f, x, r, w, e: f(x, w, residual=r, eps=e)[:2]),
    },
    "rms_norm_backward": {
        "aten._fused_rms_norm_backward": always(
            lambda dy, x, w, rstd: aten._fused_rms_norm_backward(dy, x, _rows(x), rstd[..., None], w, [True, True])
        ),
        "liger": backward_of(
            f"{LIGER}.rms_norm", "LigerRMSNormFunction", lambda f, x, w: f.apply(x, w, 1e-6, 0.0, "llama", False),
            lambda x, w, *_: (x, w),
        ),
        "quack": of("quack.rmsnorm", "rmsnorm_bwd", lambda f, dy, x, w, rstd: f(x, w, dy, rstd)[:2]),
    },
    "layer_norm": {
        "liger": of(f"{LIGER}.layer_norm", "layer_norm_forward", lambda f, x, w, b, e: f(x, w, b, e)[0]),
        "quack (f32 weight)": of("quack.rmsnorm", "layernorm_fwd", _quack_layer_norm),
        "flag_gems": of("flag_gems", "layer_norm", lambda f, x, w, b, e: f(x, _rows(x), w, b, e)[0]),
    },
    "layer_norm_backward": {
        "aten.native_layer_norm_backward": only(
            lambda c: bool(c.get("stats", True)), "without statistics",
            always(lambda dy, x, w, m, r, *_: aten.native_layer_norm_backward(
                dy, x, _rows(x), m[..., None], r[..., None], w, torch.zeros_like(w), [True, True, True])),
        ),
        "quack": only(
            lambda c: bool(c.get("stats", True)), "without statistics",
            of("quack.rmsnorm", "layernorm_bwd", lambda f, dy, x, w, m, r, *_: f(x, w, dy, r, m)),
        ),
    },
    "top_k": {
        "quack": of("quack.topk", "topk", lambda f, x, k: f(x, k)),
        "flag_gems": of("flag_gems", "topk", lambda f, x, k: f(x, k)),
    },
    "cumsum": {"flag_gems": of("flag_gems", "cumsum", lambda f, x: f(x, -1))},
    "matmul": {
        "quack": of("quack.gemm_interface", "gemm", lambda f, a, b, *_: f(a, b)),
        "flag_gems": of("flag_gems", "mm", lambda f, a, b, *_: f(a, b)),
    },
    "matmul_epilogue": {
        "addmm_activation (cuBLASLt)": only(
            lambda c: c.get("activation", "gelu") == "gelu_tanh" and not c.get("mask", "dtype"),
            "bias and tanh-GELU only", always(_addmm_activation),
        ),
    },
    "gated_activation": {
        "liger": only(
            lambda c: c.get("activation", "silu") == "silu", "SwiGLU only",
            of(f"{LIGER}.swiglu", "swiglu_forward", lambda f, a, b, *_: f(a, b)[2]),
        ),
        "flag_gems": only(
            lambda c: c.get("activation", "silu") == "silu", "SwiGLU only",
            of("flag_gems", "silu_and_mul", lambda f, a, b, *_: f(a, b)),
        ),
    },
    "flash_attention": {
        "SDPA cuDNN": _sdpa("CUDNN_ATTENTION"), "SDPA flash": _sdpa("FLASH_ATTENTION"),
        "SDPA efficient": _sdpa("EFFICIENT_ATTENTION"), "FlexAttention": _flex,
    },
    "attention_backward": {
        "SDPA cuDNN": _backward_of_attention(_sdpa("CUDNN_ATTENTION")),
        "SDPA flash": _backward_of_attention(_sdpa("FLASH_ATTENTION")),
        "FlexAttention": _backward_of_attention(_flex),
    },
    "paged_decode": {
        "flashinfer": only(
            lambda c: not c.get("ragged") and not c.get("logsumexp"), "full lengths, no log-sum-exp", _flashinfer_decode
        ),
    },
    "causal_conv1d": {
        "causal_conv1d": only(
            lambda c: not c.get("state") and not c.get("final"), "without states",
            of("causal_conv1d", "causal_conv1d_fn", lambda f, x, w, b, act, *_: f(x, w, b, activation=act)),
        ),
        "fla": only(
            lambda c: bool(c.get("last")) and not c.get("state") and not c.get("final"), "channels last, no states",
            of("fla.modules.causal_conv1d.ops", "causal_conv1d", _fla_conv),
        ),
    },
    "causal_conv1d_backward": {
        "causal_conv1d": only(
            lambda c: not c.get("state") and not c.get("final"), "without states", _causal_conv1d_backward
        ),
    },
    "gated_linear_attention": {"fla": of("fla.ops.simple_gla", "chunk_simple_gla", _fla_decayed)},
    "selective_scan": {"mamba_ssm": _mamba},
    "selective_scan_backward": {"mamba_ssm": _mamba_backward},
    "depthwise_conv": {
        "F.conv2d": always(lambda x, w, b, p: F.conv2d(x, w, b, padding=p, groups=x.shape[1])),
    },
}  # fmt: skip
"""Operation -> peer -> builder. An operation whose reference is torch's own call has it as "eager"."""


def _mask_backward(dy: torch.Tensor, p: float, *_: Any) -> torch.Tensor:
    """torch's: a mask that the forward kept is read as well as dy."""
    if "mask" not in _kept or _kept["mask"].shape != dy.shape:
        _kept["mask"] = aten.native_dropout(dy, p, True)[1]
    result: torch.Tensor = aten.native_dropout_backward(dy, _kept["mask"], 1 / (1 - p))
    return result


_kept: dict[str, torch.Tensor] = {}
RIVALS: Mapping[str, Call] = {
    "dropout": lambda x, p, *_: F.dropout(x, p), "dropout_backward": _mask_backward,
}  # fmt: skip
"""What eager and torch.compile run where the reference is exact, but nothing that anybody would run: these draw other
random numbers, so their results are not compared."""


UNFAIR = frozenset({"selective_scan", "selective_scan_backward", "gated_linear_attention"})
"""Operations whose reference is a formula that nobody would run: all states of all steps, or all pairs of steps, in
memory. What eager and torch.compile make of it is shown, but a row is not won against it."""


def peers_of(name: str) -> Mapping[str, Builder]:
    """Of one operation; none where there is no library call."""
    return PEERS.get(name, {})
