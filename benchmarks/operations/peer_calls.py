"""Calls of torch and of packages that take more than a line: each a builder, or what one is made with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.operations.peer_builders import LIGER, Builder, Call, NotHereError, only, package
from kernels.ops.quantised.weight_only_gemm import unpacked
from kernels.spec import Case

aten = torch.ops.aten


def liger_loss_and_gradient(case: Case) -> Call:
    """It overwrites the logits with their gradient, so it gets a copy: other numbers after its first call, as many."""
    function = package(f"{LIGER}.cross_entropy", "LigerCrossEntropyFunction")
    kept: dict[str, torch.Tensor] = {}

    def call(logits: torch.Tensor, target: torch.Tensor, ignore: int, smoothing: float, reduction: str) -> Any:
        own = kept.setdefault("logits", logits.clone())
        loss, *_ = function.apply(own.detach().requires_grad_(), target, None, ignore, 0.0, smoothing, reduction)
        return loss.detach(), own

    return call


def plain(case: Case) -> bool:
    """Whether nothing is ignored or smoothed, and the mean is taken."""
    return not case.get("smoothing", 0.0) and not case.get("ignored", 0) and case.get("reduction", "mean") == "mean"


def quack_loss(function: Any, logits: torch.Tensor, target: torch.Tensor, *more: Any) -> Any:
    """Its loss of each row, averaged."""
    return function(logits, target).mean()


def quack_loss_and_gradient(function: Any, logits: torch.Tensor, target: torch.Tensor, *more: Any) -> Any:
    """The rows' gradients of the sum: a mean scales them once more, which a training step folds in elsewhere."""
    loss, gradient = function(logits, target, return_dx=True)
    return loss.mean(), gradient


def addmm_activation(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, *more: Any) -> torch.Tensor:
    """A linear layer with GELU by cuBLASLt."""
    result: torch.Tensor = aten._addmm_activation(bias, a, b, use_gelu=True)
    return result


def cross_entropy(logits: torch.Tensor, target: torch.Tensor, ignore: int, smoothing: float, reduction: str) -> Any:
    """torch's on the logits as they are, which eager's reference widens first; its loss is in their dtype."""
    loss = F.cross_entropy(logits, target, ignore_index=ignore, label_smoothing=smoothing, reduction=reduction)
    return loss.float()


def cross_entropy_with_gradient(logits: torch.Tensor, *more: Any) -> Any:
    """torch's, with its gradient by autograd."""
    leaf = logits.detach().requires_grad_()
    loss = cross_entropy(leaf, *more)
    return loss.detach(), torch.autograd.grad(loss.sum(), leaf)[0]


def sdpa(backend: str) -> Builder:
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


def flex(case: Case) -> Call:
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


def backward_of_attention(forward: Builder) -> Builder:
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


def flashinfer_decode(case: Case) -> Call:
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


def f32(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """In f32, where there is one."""
    return None if tensor is None else tensor.float()


def quack_layer_norm(function: Any, x: Any, weight: Any, bias: Any, eps: float) -> Any:
    """It takes vectors in f32 alone."""
    return function(x, f32(weight), f32(bias), eps)


def rows(x: torch.Tensor) -> tuple[int, ...]:
    """The shape that is normalised."""
    return (x.shape[-1],)


def scaled_mm(fast: bool) -> Builder:
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


def scaled_mm_blocks(case: Case) -> Call:
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


def int_mm(case: Case) -> Call:
    """torch's product in int32, and what scales it, compiled."""
    if case.get("kind") != "int8" or case["m"] <= 16:
        raise NotHereError("int8 and more than 16 rows only")

    def call(a: Any, b: Any, scale_a: Any, scale_b: Any, *more: Any) -> torch.Tensor:
        product = torch._int_mm(a, b.T)
        scaled: torch.Tensor = product.float() * scale_a.reshape(-1, 1) * scale_b.reshape(1, -1)
        return scaled.to(case.torch_dtype)

    compiled: Call = torch.compile(call, dynamic=False)
    return compiled


def weight_int8pack_mm(case: Case) -> Call:
    """torch's for a scale a row."""
    if case["bits"] != 8 or case.get("group") or case.get("zero") or case.get("bias"):
        raise NotHereError("8 bits with a scale a row only")
    return lambda x, w, scale, *more: torch._weight_int8pack_mm(x, w, scale)


def weight_int4pack_mm(case: Case) -> Call:
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


def torchao_int8(case: Case) -> Call:
    """torchao's tensor of int8 with a scale a row, whose product is compiled as its users are told to. (Its 4 bits are
    torch's own `weight_int4pack_mm`.)
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


def gemlite(case: Case) -> Call:
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


def unpacked_then_product(case: Case) -> Call:
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


def linear_loss_with_gradients(name: str, attribute: str, use: Callable[..., Any]) -> Builder:
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


def torch_linear_loss(function: Any, x: Any, w: Any, target: Any, ignore: int, reduction: str) -> Any:
    """torch's signature, with names."""
    return function(x, w, target, ignore_index=ignore, reduction=reduction)


def two_steps(x: Any, w: Any, target: Any, ignore: int, reduction: str) -> torch.Tensor:
    """A product that gives f32 logits, and torch's loss of them."""
    logits = torch.mm(x, w.T, out_dtype=torch.float32)
    return F.cross_entropy(logits, target, ignore_index=ignore, reduction=reduction)


def grouped_mm(case: Case) -> Call:
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


def grouped_mm_backward(case: Case) -> Call:
    """Both gradients by torch's; what is gathered and weighted of dy compiled.

    x is gathered by itself: compiled into the products, its gather met a device-side assertion (torch 2.11, H200).
    """
    if case.dtype != "bf16":
        raise NotHereError("bf16 only")

    def weighted(dy: Any, target: Any, weight: Any) -> Any:
        dy = dy if target is None else dy[target]
        return dy if weight is None else (dy.float() * weight[:, None]).to(dy.dtype)

    compiled: Call = torch.compile(weighted, dynamic=False)

    def call(dy: Any, x: Any, w: Any, offsets: Any, source: Any, target: Any, weight: Any) -> Any:
        rows = x if source is None else x.index_select(0, source)
        if target is not None or weight is not None:
            dy = compiled(dy, target, weight)
        ends = offsets[1:]
        return torch._grouped_mm(dy, w.mT, offs=ends), torch._grouped_mm(rows.T, dy, offs=ends)

    return call


def fused_adamw(case: Case) -> Call:
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


def bag_backward(case: Case) -> Call:
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


def max_pool_backward(case: Case) -> Call:
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


def average_pool_backward(case: Case) -> Call:
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


def norm_to_codes(
    function: Any, x: Any, residual: Any, weight: Any, bias: Any, scale: Any, eps: float, *more: Any
) -> Any:
    """RMSNorm into 8 bits with a scale of each row."""
    return function(x, weight, eps, torch.float8_e4m3fn)


def norm_to_blocks(
    function: Any, x: Any, residual: Any, weight: Any, bias: Any, scale: Any, eps: float, *more: Any
) -> Any:
    """RMSNorm into 8 bits with scales of blocks of 128."""
    return function(x, weight, eps, torch.float8_e4m3fn, [1, 128])


def flashinfer_norm_to_codes(case: Case) -> Call:
    """It adds x to the residual in place, so it gets a copy: other numbers after its first call, as many."""
    function = package("flashinfer.norm", "fused_add_rmsnorm_quant")
    kept: dict[str, torch.Tensor] = {}

    def call(x: Any, residual: Any, weight: Any, bias: Any, scale: Any, eps: float, *more: Any) -> Any:
        own = kept.setdefault("residual", residual.clone())
        codes = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
        function(codes, x, own, weight, scale, eps)
        return codes, own

    return call


def codes_alone(scales: str, residual: bool) -> Callable[[Case], bool]:
    """Of cases: whether the scales are these, with a residual or without, and a weight is given."""
    return lambda c: c.get("scales", "row") == scales and bool(c.get("residual")) == residual and c.get("weight", True)


def fla_conv(function: Any, x: Any, w: Any, b: Any, act: str | None, *_: Any) -> Any:
    """fla's takes [B, T, C]."""
    return function(x.transpose(1, 2), w, b, activation=act)[0].transpose(1, 2)


def causal_conv1d_backward(case: Case) -> Call:
    """causal_conv1d's, by autograd, its forward run once."""
    function = package("causal_conv1d", "causal_conv1d_fn")
    kept: dict[str, Any] = {}

    def call(dy: Any, x: Any, w: Any, b: Any, act: str | None, *_: Any) -> Any:
        if not kept:
            kept["leaves"] = [t.detach().requires_grad_() for t in (x, w, b) if t is not None]
            kept["y"] = function(*kept["leaves"], activation=act)
        return torch.autograd.grad(kept["y"], kept["leaves"], dy, retain_graph=True)

    return call


def time_side_by_side(arguments: Sequence[Any]) -> list[Any]:
    """As mamba_ssm's kernel reads them: it would copy others in every call, which is no part of its time."""
    return [t.contiguous() if isinstance(t, torch.Tensor) else t for t in arguments]


def mamba(case: Case) -> Call:
    """On inputs that are laid out once, as it wants them."""
    function = package("mamba_ssm.ops.selective_scan_interface", "selective_scan_fn")
    kept: dict[str, Any] = {}

    def call(*arguments: Any) -> Any:
        if not kept:
            kept["own"] = time_side_by_side(arguments)
        return function(*kept["own"])

    return call


def mamba_backward(case: Case) -> Call:
    """Its autograd's, its forward run once, on inputs that are laid out once."""
    function = package("mamba_ssm.ops.selective_scan_interface", "selective_scan_fn")
    kept: dict[str, Any] = {}

    def call(dy: Any, *arguments: Any) -> Any:
        if not kept:
            dy, *arguments = time_side_by_side((dy, *arguments))  # type: ignore[assignment]
            kept["dy"] = dy
            own = [t.detach().requires_grad_() if isinstance(t, torch.Tensor) else t for t in arguments]
            kept["leaves"] = [t for t in own if isinstance(t, torch.Tensor)]
            kept["y"] = function(*own)
        return torch.autograd.grad(kept["y"], kept["leaves"], kept["dy"], retain_graph=True)

    return call


def fla_decayed(function: Any, q: Any, k: Any, v: Any, g: Any, scale: Any, initial: Any, final: bool) -> Any:
    """fla's takes [B, T, H, D]."""
    turned = (x.transpose(1, 2) for x in (q, k, v, g))
    o, end = function(*turned, scale=scale, initial_state=initial, output_final_state=final)
    return (o.transpose(1, 2), end) if final else o.transpose(1, 2)
