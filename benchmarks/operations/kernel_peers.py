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

from kernels.ops.quantised.weight_only_gemm import unpacked
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


def _scaled_mm(fast: bool) -> Builder:
    """torch's on cuBLASLt, with a scale a matrix or a row; two of the same kind, which it asks for."""

    def build(case: Case) -> Call:
        if case.get("kind", "f8") != "f8" or case["scales"] == "block" or case["m"] % 16:
            raise NotHereError("f8 with a scale a matrix or a row, rows in sixteens")

        def call(a: Any, b: Any, scale_a: Any, scale_b: Any, *more: Any) -> torch.Tensor:
            scale_b = scale_b if scale_b.dim() < 2 else scale_b.reshape(1, -1)
            made: torch.Tensor = torch._scaled_mm(
                a, b.T, scale_a, scale_b, out_dtype=case.torch_dtype, use_fast_accum=fast
            )
            return made

        return call

    return build


def _scaled_mm_blocks(case: Case) -> Call:
    """torch's on cuBLASLt by blocks: scales in its own layout, made once."""
    if case["scales"] != "block":
        raise NotHereError("scales of blocks only")
    kinds = package("torch.nn.functional", "ScalingType")
    scaled_mm = package("torch.nn.functional", "scaled_mm")
    laid_out: dict[str, torch.Tensor] = {}

    def call(a: Any, b: Any, scale_a: Any, scale_b: Any, *more: Any) -> Any:
        if not laid_out:
            laid_out["a"] = scale_a.T.contiguous().T
            laid_out["b"] = F.pad(scale_b, (0, -scale_b.shape[1] % 4))[:, : scale_b.shape[1]].T
        return scaled_mm(
            a, b.T, laid_out["a"], kinds.BlockWise1x128, laid_out["b"], kinds.BlockWise128x128,
            output_dtype=case.torch_dtype,
        )  # fmt: skip

    return call


def _int_mm(case: Case) -> Call:
    """torch's product in int32, and what scales it, compiled."""
    if case.get("kind") != "int8" or case["m"] <= 16:
        raise NotHereError("int8 and more than 16 rows only")

    def call(a: Any, b: Any, scale_a: Any, scale_b: Any, *more: Any) -> torch.Tensor:
        product = torch._int_mm(a, b.T)
        scaled: torch.Tensor = product.float() * scale_a.reshape(-1, 1) * scale_b.reshape(1, -1)
        return scaled.to(case.torch_dtype)

    compiled: Call = torch.compile(call, dynamic=False)
    return compiled


def _weight_int8pack_mm(case: Case) -> Call:
    """torch's for a scale a row."""
    if case["bits"] != 8 or case.get("group") or case.get("zero") or case.get("bias"):
        raise NotHereError("8 bits with a scale a row only")
    return lambda x, w, scale, *more: torch._weight_int8pack_mm(x, w, scale)


def _weight_int4pack_mm(case: Case) -> Call:
    """torch's (tinygemm) for groups; weights packed once, and a zero that is added behind the scale."""
    if case["bits"] != 4 or not case.get("group") or case.dtype != "bf16":
        raise NotHereError("4 bits in groups and bf16 only")
    packed: dict[str, torch.Tensor] = {}

    def call(x: Any, w: Any, scale: Any, zero: Any, bias: Any) -> Any:
        if not packed:
            packed["w"] = torch._convert_weight_to_int4pack(((w & 15) << 4) | (w >> 4), 8)
            less = (8 - (0 if zero is None else zero)) * scale
            packed["scales"] = torch.stack((scale, less), -1).transpose(0, 1).contiguous()
        y = torch._weight_int4pack_mm(x, packed["w"], case["group"], packed["scales"])
        return y if bias is None else y + bias

    return call


def _torchao_int8(case: Case) -> Call:
    """torchao's tensor of int8 with a scale a row, whose product is compiled as its users are told to. (Its 4 bits are
    torch's own `_weight_int4pack_mm`.)
    """
    if case["bits"] != 8 or case.get("group") or case.get("zero"):
        raise NotHereError("8 bits with a scale a row only")
    int8 = package("torchao.quantization.quantize_.workflows.int8.int8_tensor", "Int8Tensor")
    compiled = torch.compile(F.linear, dynamic=False)
    wrapped: dict[str, torch.Tensor] = {}

    def call(x: Any, w: Any, scale: Any, zero: Any, bias: Any) -> Any:
        if not wrapped:
            wrapped["w"] = int8(w, scale.reshape(-1, 1), [1, w.shape[1]], x.dtype)
        return compiled(x, wrapped["w"], bias)

    return call


def _gemlite(case: Case) -> Call:
    """gemlite's layers; weights packed once."""
    half = case["bits"] == 4
    if half == (not case.get("group")) or (not half and case.get("zero")) or (half and not case.get("zero")):
        raise NotHereError("8 bits with a scale a row, or 4 bits in groups with zero points only")
    layers = package("gemlite.helper", "A16W4_HQQ_INT" if half else "A16W8_INT8")
    packed: dict[str, Any] = {}

    def call(x: Any, w: Any, scale: Any, zero: Any, bias: Any) -> Any:
        if not packed and half:
            zeros = zero if isinstance(zero, torch.Tensor) else torch.full_like(scale, zero)
            packed["layer"] = layers(device=str(x.device), dtype=x.dtype).from_weights(
                unpacked(w, x.shape[-1]), scale, zeros, bias
            )
        elif not packed:
            packed["layer"] = layers(device=str(x.device), dtype=x.dtype).from_weights(w, bias, scale.reshape(-1, 1))
        return packed["layer"](x)

    return call


def _unpacked_then_product(case: Case) -> Call:
    """Weights unpacked in every call, by a compiled kernel, and the library's product of 16 bits."""
    if case["m"] <= 64:
        raise NotHereError("more than 64 rows only")

    def unpack(w: Any, scale: Any, zero: Any, columns: int, dtype: torch.dtype) -> torch.Tensor:
        q = unpacked(w, columns).float().view(w.shape[0], scale.numel() // w.shape[0], -1)
        if zero is not None:
            q = q - (zero.float().view(*q.shape[:2], 1) if isinstance(zero, torch.Tensor) else zero)
        made: torch.Tensor = (q * scale.float().view(*q.shape[:2], 1)).view(w.shape[0], columns).to(dtype)
        return made

    compiled = torch.compile(unpack, dynamic=False)
    return lambda x, w, scale, zero, bias: F.linear(x, compiled(w, scale, zero, x.shape[-1], x.dtype), bias)


def _linear_loss_with_gradients(name: str, attribute: str, use: Callable[..., Any]) -> Builder:
    """A loss of a linear layer and both gradients by autograd: use(function, x, w, target, ignore, reduction)."""

    def build(case: Case) -> Call:
        function = package(name, attribute)

        def call(x: Any, w: Any, target: Any, *more: Any) -> Any:
            leaves = [t.detach().requires_grad_() for t in (x, w)]
            loss = use(function, *leaves, target, *more)
            loss = loss[0] if isinstance(loss, tuple) else loss
            return loss.detach().float(), *torch.autograd.grad(loss, leaves)

        return call

    return build


def _torch_linear_loss(function: Any, x: Any, w: Any, target: Any, ignore: int, reduction: str) -> Any:
    return function(x, w, target, ignore_index=ignore, reduction=reduction)


def _two_steps(x: Any, w: Any, target: Any, ignore: int, reduction: str) -> torch.Tensor:
    """A product that gives f32 logits, and torch's loss of them."""
    logits = torch.mm(x, w.T, out_dtype=torch.float32)
    return F.cross_entropy(logits, target, ignore_index=ignore, reduction=reduction)


def _grouped_mm(case: Case) -> Call:
    """torch's; with what it does not do round it, compiled: rows gathered before, weighted and scattered behind."""
    if case.dtype != "bf16":
        raise NotHereError("bf16 only")
    if case.get("mode", "plain") == "plain":
        return lambda x, w, offsets, *none: torch._grouped_mm(x, w, offs=offsets[1:])

    def call(x: Any, w: Any, offsets: Any, source: Any, target: Any, weight: Any) -> torch.Tensor:
        rows = x if source is None else x[source]
        y = torch._grouped_mm(rows, w, offs=offsets[1:])
        if weight is not None:
            y = (y.float() * weight[:, None]).to(y.dtype)
        return y if target is None else torch.empty_like(y).index_copy_(0, target, y)

    compiled: Call = torch.compile(call, dynamic=False)
    return compiled


def _grouped_mm_backward(case: Case) -> Call:
    """Both gradients by torch's, with the gathers and the weights round it compiled."""
    if case.dtype != "bf16":
        raise NotHereError("bf16 only")

    def call(dy: Any, x: Any, w: Any, offsets: Any, source: Any, target: Any, weight: Any) -> Any:
        rows = x if source is None else x[source]
        dy = dy if target is None else dy[target]
        dy = dy if weight is None else (dy.float() * weight[:, None]).to(dy.dtype)
        ends = offsets[1:]
        return torch._grouped_mm(dy, w.mT, offs=ends), torch._grouped_mm(rows.T, dy, offs=ends)

    compiled: Call = torch.compile(call, dynamic=False)
    return compiled


def _fused_adamw(case: Case) -> Call:
    """torch's fused AdamW on copies of the first call's tensors, in place: other numbers after it, as many.

    Its moments have the parameters' dtype: of 16 bits they are 8 bytes an element less than ours. The first call, whose
    result is compared, gives them in f32. Tensors are cut into parameters once, as a model has them.
    """
    kept: dict[str, Any] = {}

    def call(
        p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor, master: Any, sizes: tuple[int, ...],
        lr: float, step: int, betas: tuple[float, float], eps: float, decay: float, scale: Any,
    ) -> Any:  # fmt: skip
        if not kept:
            kept["flat"] = [p.clone(), m.to(p.dtype, copy=True), v.to(p.dtype, copy=True)]
            kept["parts"] = [list(torch.split(t, list(sizes))) for t in kept["flat"]]
            kept["steps"] = [torch.tensor(float(step), device=p.device) for _ in sizes]
        if kept.get("address") != g.data_ptr():
            kept["address"], kept["gradients"] = g.data_ptr(), list(torch.split(g, list(sizes)))
        own_p, own_m, own_v = kept["parts"]
        torch._fused_adamw_(
            own_p,
            kept["gradients"],
            own_m,
            own_v,
            [],
            kept["steps"],
            lr=lr,
            beta1=betas[0],
            beta2=betas[1],
            weight_decay=decay,
            eps=eps,
            amsgrad=False,
            maximize=False,
            grad_scale=scale,
        )
        if "compared" not in kept:
            kept["compared"] = True
            return kept["flat"][0], kept["flat"][1].float(), kept["flat"][2].float()
        return tuple(kept["flat"])

    return call


BAG_MODES = {"sum": 0, "mean": 1, "max": 2}


def _bag_backward(case: Case) -> Call:
    """torch's, of what its forward keeps, which is run once."""
    kept: dict[str, Any] = {}

    def call(dy: Any, table: Any, indices: Any, offsets: Any, weights: Any, places: Any, mode: str) -> Any:
        number = BAG_MODES[mode]
        if not kept:
            kept["forward"] = aten._embedding_bag(table, indices, offsets, False, number, False, weights, True, -1)
        _, bags, sizes, largest = kept["forward"]
        return aten._embedding_bag_backward(
            dy, indices, offsets, bags, sizes, largest, len(table), False, number, False, weights, -1
        )

    return call


def _max_pool_backward(case: Case) -> Call:
    """torch's, by its own indices of eight bytes, which are made once."""
    kept: dict[str, Any] = {}

    def call(dy: torch.Tensor, places: torch.Tensor, shape: tuple[int, ...], window: Any) -> Any:
        if not kept:
            column = torch.arange(dy.shape[3], device=dy.device) * window.strides[1] - window.padding[1]
            row = torch.arange(dy.shape[2], device=dy.device)[:, None] * window.strides[0] - window.padding[0]
            row = row + places // window.size[1] * window.dilation[0]
            column = column + places % window.size[1] * window.dilation[1]
            kept["indices"] = row * shape[3] + column
            last = torch.channels_last if not dy.is_contiguous() else torch.contiguous_format
            kept["x"] = torch.empty(shape, dtype=dy.dtype, device=dy.device, memory_format=last)
        return aten.max_pool2d_with_indices_backward(
            dy, kept["x"], window.size, window.strides, window.padding, window.dilation, window.ceil, kept["indices"]
        )

    return call


def _average_pool_backward(case: Case) -> Call:
    """torch's, with the x that it asks for, of which it reads the shape, made once."""
    kept: dict[str, torch.Tensor] = {}

    def call(dy: torch.Tensor, shape: tuple[int, ...], window: Any) -> Any:
        if not kept:
            last = torch.channels_last if not dy.is_contiguous() else torch.contiguous_format
            kept["x"] = torch.empty(shape, dtype=dy.dtype, device=dy.device, memory_format=last)
        return aten.avg_pool2d_backward(
            dy, kept["x"], window.size, window.strides, window.padding, window.ceil, window.counted, None
        )

    return call


def _norm_to_codes(
    function: Any, x: Any, residual: Any, weight: Any, bias: Any, scale: Any, eps: float, *more: Any
) -> Any:
    return function(x, weight, eps, torch.float8_e4m3fn)


def _norm_to_blocks(
    function: Any, x: Any, residual: Any, weight: Any, bias: Any, scale: Any, eps: float, *more: Any
) -> Any:
    return function(x, weight, eps, torch.float8_e4m3fn, [1, 128])


def _flashinfer_norm_to_codes(case: Case) -> Call:
    """It adds x to the residual in place, so it gets a copy: other numbers after its first call, as many."""
    function = package("flashinfer.norm", "fused_add_rmsnorm_quant")
    kept: dict[str, torch.Tensor] = {}

    def call(x: Any, residual: Any, weight: Any, bias: Any, scale: Any, eps: float, *more: Any) -> Any:
        own = kept.setdefault("residual", residual.clone())
        codes = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
        function(codes, x, own, weight, scale, eps)
        return codes, own

    return call


def _codes_alone(scales: str, residual: bool) -> Callable[[Case], bool]:
    return lambda c: c.get("scales", "row") == scales and bool(c.get("residual")) == residual and c.get("weight", True)


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
    "scaled_gemm": {
        "_scaled_mm": _scaled_mm(fast=False), "_scaled_mm (fast sums)": _scaled_mm(fast=True),
        "scaled_mm (blocks)": _scaled_mm_blocks, "_int_mm": _int_mm,
    },
    "weight_only_gemm": {
        "_weight_int8pack_mm": _weight_int8pack_mm, "_weight_int4pack_mm": _weight_int4pack_mm,
        "torchao (int8)": _torchao_int8, "gemlite": _gemlite, "unpacked, F.linear": _unpacked_then_product,
    },
    "linear_cross_entropy": {
        "F.linear_cross_entropy": of(
            "torch.nn.functional", "linear_cross_entropy", lambda f, *a: _torch_linear_loss(f, *a).float()
        ),
        "f32 logits, F.cross_entropy": always(_two_steps),
        "cut_cross_entropy": of(
            "cut_cross_entropy", "linear_cross_entropy",
            lambda f, x, w, t, ignore, reduction: f(x, w, t, ignore_index=ignore, reduction=reduction).float(),
        ),
    },
    "linear_cross_entropy_with_gradient": {
        "F.linear_cross_entropy": _linear_loss_with_gradients(
            "torch.nn.functional", "linear_cross_entropy", _torch_linear_loss
        ),
        "liger": _linear_loss_with_gradients(
            f"{LIGER}.fused_linear_cross_entropy", "LigerFusedLinearCrossEntropyFunction",
            lambda f, x, w, t, ignore, reduction: f.apply(x, w, t, None, None, ignore, 0.0, 0.0, reduction),
        ),
        "quack": _linear_loss_with_gradients(
            "quack.linear_cross_entropy", "chunked_linear_cross_entropy",
            lambda f, x, w, t, ignore, reduction: f(x, w, t, ignore_index=ignore, reduction=reduction),
        ),
        "cut_cross_entropy": _linear_loss_with_gradients(
            "cut_cross_entropy", "linear_cross_entropy",
            lambda f, x, w, t, ignore, reduction: f(x, w, t, ignore_index=ignore, reduction=reduction),
        ),
    },
    "grouped_gemm": {"_grouped_mm": _grouped_mm},
    "grouped_gemm_backward": {"_grouped_mm": _grouped_mm_backward},
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
    "adamw_many": {
        "torch._fused_adamw_": only(
            lambda c: c.dtype == "f32" and not c.get("scaled"), "moments in the parameters' dtype only", _fused_adamw
        ),
        "torch._fused_adamw_ (moments of 16 bits)": only(
            lambda c: c.dtype != "f32" and not any(map(c.get, ("master", "wide", "scaled"))), "16 bits alone",
            _fused_adamw,
        ),
    },
    "group_norm_silu": {
        "liger (no activation)": only(
            lambda c: not c.get("last") and c.get("weight", True), "contiguous, with weight and bias",
            of(f"{LIGER}.group_norm", "group_norm_forward",
               lambda f, x, g, w, b, e, _: F.silu(f(x, x.shape[1], g, w, b, e)[0])),
        ),
        "flag_gems (no activation)": only(
            lambda c: not c.get("last"), "contiguous",
            of("flag_gems", "group_norm", lambda f, x, g, w, b, e, _: F.silu(
                f(x, w, b, x.shape[0], x.shape[1], x[0, 0].numel(), g, e)[0])),
        ),
    },
    "segment_reduce": {
        "torch.segment_reduce": always(
            lambda x, offsets, mode: torch.segment_reduce(x, mode, offsets=offsets, axis=0, unsafe=True)
        ),
    },
    "rms_norm_quantise": {
        "vllm": only(
            _codes_alone("row", False), "scales of rows, no residual: it writes over that",
            of("vllm._custom_ops", "rms_norm_dynamic_per_token_quant", _norm_to_codes),
        ),
        "vllm (blocks)": only(
            _codes_alone("block", False), "scales of blocks, no residual",
            of("vllm._custom_ops", "rms_norm_per_block_quant", _norm_to_blocks),
        ),
        "flashinfer (residual in place)": only(
            _codes_alone("tensor", True), "a given scale, with a residual", _flashinfer_norm_to_codes
        ),
    },
    "embedding_bag": {
        "F.embedding_bag": always(
            lambda table, indices, offsets, weights, mode: F.embedding_bag(
                indices, table, offsets, mode=mode, per_sample_weights=weights, include_last_offset=True)
        ),
    },
    "max_pool": {
        "F.max_pool2d": always(
            lambda x, w: F.max_pool2d(x, w.size, w.strides, w.padding, w.dilation, w.ceil)
        ),
    },
    "average_pool": {
        "F.avg_pool2d": always(lambda x, w: F.avg_pool2d(x, w.size, w.strides, w.padding, w.ceil, w.counted)),
    },
    "average_pool_backward": {"aten.avg_pool2d_backward": _average_pool_backward},
    "embedding_bag_backward": {
        "aten._embedding_bag_backward": only(
            lambda c: not c.get("weights"), "without the gradient of sample weights", _bag_backward
        ),
    },
    "top_k_top_p_sample": {
        "flashinfer (its own random numbers)": only(
            lambda c: bool(c.get("k") and c.get("p")) and not c.get("t") and c.dtype == "f32", "k and p, f32",
            of("flashinfer.sampling", "top_k_top_p_sampling_from_logits", lambda f, x, u, k, p, t: f(x, k, p)),
        ),
    },
    "max_pool_backward": {"aten.max_pool2d_with_indices_backward": _max_pool_backward},
    "depthwise_conv": {
        "F.conv2d": always(lambda x, w, b, p: F.conv2d(x, w, b, padding=p, groups=x.shape[1])),
    },
}  # fmt: skip
"""Operation -> peer -> builder. An operation whose reference is torch's own call has it as "eager" as well. Batch norm
of inference with its activation, and LayerNorm to 8 bits with scales of rows, no library has as one call."""


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
