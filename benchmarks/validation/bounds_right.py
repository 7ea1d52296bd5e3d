"""Right implementations of `bounds_regions.REGIONS`: what practitioners write, and other orders of the same sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernels.measure.candidate.reference import Wide

Tensors = Sequence[torch.Tensor]
Call = Callable[..., Tensors]
Build = Callable[[Call], Call]
"""From the region as eager runs it to another implementation of it."""


def in_f32(eager: Call) -> Call:
    """All of it in float32, rounded once."""
    assert isinstance(eager, torch.fx.GraphModule)
    node = next(n for n in eager.graph.nodes if n.op == "output")
    narrow = [value.meta["val"].dtype for value in node.args[0]]

    def run(*x: torch.Tensor) -> Tensors:
        wide = Wide(eager, torch.float32, ()).run(*(v.float() if v.is_floating_point() else v for v in x))
        return tuple(o.to(d) for o, d in zip(wide, narrow, strict=True))

    return run


def compiled(eager: Call) -> Call:
    """torch.compile."""
    torch._dynamo.reset()
    result: Call = torch.compile(eager, dynamic=False)
    return result


def blocks(x: torch.Tensor, size: int, dim: int = -1) -> list[torch.Tensor]:
    """Parts of so many elements along a dimension; the last may be shorter."""
    length = x.shape[dim]
    return [x.narrow(dim, start, min(size, length - start)) for start in range(0, length, size)]


def of(run: Call) -> Build:
    """An implementation that needs nothing of eager's."""
    return lambda eager: run


# attention


def by_backend(backend: SDPBackend) -> Build:
    """SDPA by one backend."""

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
        with sdpa_kernel(backend):
            return (F.scaled_dot_product_attention(q, k, v, is_causal=True),)

    return of(run)


def flex(eager: Call) -> Call:
    """FlexAttention as torch runs it uncompiled."""
    from torch.nn.attention.flex_attention import flex_attention

    def causal(score: torch.Tensor, b: object, h: object, row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
        return torch.where(row >= column, score, -math.inf)

    return lambda q, k, v: (flex_attention(q, k, v, score_mod=causal),)


def spelled(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
    """Scores in float32, probabilities in the type of the values."""
    scores = (q.float() @ k.float().mT) / math.sqrt(q.shape[-1])
    hidden = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)
    return (torch.softmax(scores.masked_fill(hidden, -math.inf), -1).to(v.dtype) @ v,)


class _Online(torch.autograd.Function):
    """Attention over blocks of keys, forward and backward, as FlashAttention does it."""

    @staticmethod
    def forward(ctx: object, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
        scale, block = 1 / math.sqrt(q.shape[-1]), 16
        most = torch.full((*q.shape[:-1], 1), -math.inf, device=q.device)
        total, sums = torch.zeros_like(most), torch.zeros(q.shape, device=q.device)
        rows = torch.arange(q.shape[-2], device=q.device)[:, None]
        for start in range(0, k.shape[-2], block):
            ks, vs = k[..., start : start + block, :], v[..., start : start + block, :]
            scores = (q.float() @ ks.float().mT) * scale
            if causal:
                columns = torch.arange(start, start + ks.shape[-2], device=q.device)
                scores = scores.masked_fill(columns > rows, -math.inf)
            largest = torch.maximum(most, scores.amax(-1, keepdim=True))
            shrink, weights = torch.exp(most - largest), torch.exp(scores - largest)
            total = total * shrink + weights.sum(-1, keepdim=True)
            sums = sums * shrink + weights.to(v.dtype).float() @ vs.float()
            most = largest
        out = (sums / total).to(q.dtype)
        ctx.save_for_backward(q, k, v, out, most + total.log())  # type: ignore[attr-defined]
        ctx.causal = causal  # type: ignore[attr-defined]
        return out

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors  # type: ignore[attr-defined]
        scale, block = 1 / math.sqrt(q.shape[-1]), 16
        delta = (gradient.float() * out.float()).sum(-1, keepdim=True)
        dq, dk, dv = (torch.zeros(t.shape, device=q.device) for t in (q, k, v))
        rows = torch.arange(q.shape[-2], device=q.device)[:, None]
        for start in range(0, k.shape[-2], block):
            part = (..., slice(start, start + block), slice(None))
            weights = torch.exp((q.float() @ k[part].float().mT) * scale - lse)
            if ctx.causal:  # type: ignore[attr-defined]
                columns = torch.arange(start, start + k[part].shape[-2], device=q.device)
                weights = weights.masked_fill(columns > rows, 0.0)
            dv[part] += weights.to(q.dtype).float().mT @ gradient.float()
            scores = (weights * (gradient.float() @ v[part].float().mT - delta)).to(q.dtype).float()
            dq += scores @ k[part].float() * scale
            dk[part] += scores.mT @ q.float() * scale
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None


def online(causal: bool) -> Build:
    """FlashAttention's algorithm."""
    return of(lambda q, k, v: (_Online.apply(q, k, v, causal),))  # type: ignore[no-untyped-call]


# sums


def online_softmax(x: torch.Tensor) -> Tensors:
    """One pass over blocks for the maximum and the sum."""
    most = torch.full((*x.shape[:-1], 1), -math.inf, device=x.device)
    total = torch.zeros_like(most)
    for part in blocks(x.float(), 64, -1):
        largest = torch.maximum(most, part.amax(-1, keepdim=True))
        total = total * torch.exp(most - largest) + torch.exp(part - largest).sum(-1, keepdim=True)
        most = largest
    return ((torch.exp(x.float() - most) / total).to(x.dtype),)


def long_chain(x: torch.Tensor) -> Tensors:
    """Reciprocals, powers of two and products in the place of quotients."""
    y = torch.sqrt(torch.addcmul(torch.ones_like(x), x, x)) * (x.abs() + 0.5).reciprocal()
    z = torch.addcmul(torch.log1p(y), torch.exp2(y * -math.log2(math.e)), x)
    u = z * torch.rsqrt(torch.addcmul(y, z, z))
    v = torch.addcmul(1 / torch.sqrt(u * u + 0.1), torch.sin(u), y)
    return (v * torch.sigmoid(v) - 0.5 * u,)


def largest_of_online(x: torch.Tensor) -> Tensors:
    """The largest of what `online_softmax` rounds."""
    return (online_softmax(x)[0].amax(),)


def exp2_softmax(x: torch.Tensor) -> Tensors:
    """By powers of two, as GPUs have them, times the reciprocal of the sum."""
    powers = torch.exp2((x.float() - x.float().amax(-1, keepdim=True)) * math.log2(math.e))
    return ((powers * powers.sum(-1, keepdim=True).reciprocal()).to(x.dtype),)


def log_softmax_by_parts(x: torch.Tensor) -> Tensors:
    """The sum over blocks."""
    most = x.amax(-1, keepdim=True)
    total = torch.cat([torch.exp(p - most).sum(-1, keepdim=True) for p in blocks(x, 64, -1)], -1).sum(-1, keepdim=True)
    return (x - most - total.log(),)


class _CrossEntropy(torch.autograd.Function):
    """The gradient is made in the forward in the logits' type and scaled in the backward, as Liger does it."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        lse = torch.logsumexp(wide, -1)
        gradient = torch.exp(wide - lse[:, None])
        gradient[torch.arange(len(t), device=x.device), t] -= 1
        ctx.save_for_backward((gradient / len(t)).to(x.dtype))  # type: ignore[attr-defined]
        return (lse - wide.gather(1, t[:, None])[:, 0]).mean()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        (kept,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return (kept * gradient).to(kept.dtype), None


def cross_entropy(x: torch.Tensor, t: torch.Tensor) -> Tensors:
    """As `_CrossEntropy` computes it."""
    return (_CrossEntropy.apply(x, t),)  # type: ignore[no-untyped-call]


def layer_norm_by_moments(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Tensors:
    """The variance as the mean of squares less the square of the mean."""
    wide = x.float()
    mean = wide.mean(-1, keepdim=True)
    rstd = torch.rsqrt((wide * wide).mean(-1, keepdim=True) - mean * mean + 1e-5)
    return (((wide - mean) * rstd * w.float() + b.float()).to(x.dtype),)


def layer_norm_folded(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Tensors:
    """Scale and shift of a row first, one multiplication and addition an element."""
    wide = x.float()
    rstd = torch.rsqrt(wide.var(-1, correction=0, keepdim=True) + 1e-5)
    shift = -wide.mean(-1, keepdim=True) * rstd
    return (((wide * rstd + shift) * w.float() + b.float()).to(x.dtype),)


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> Tensors:
    """The weight in float32 too, by a division, the sum in parts."""
    wide = x.float()
    squares = torch.cat([p.square().sum(-1, keepdim=True) for p in blocks(wide, 32, -1)], -1)
    square = squares.sum(-1, keepdim=True) / x.shape[-1]
    return ((wide / torch.sqrt(square + 1e-5) * w.float()).to(x.dtype),)


def rms_norm_built_in(x: torch.Tensor, w: torch.Tensor) -> Tensors:
    """torch's own."""
    return (F.rms_norm(x, [x.shape[-1]], w, 1e-5),)


def split_k(parts: int) -> Build:
    """Partial products of ranges of the inner dimension in float32."""

    def run(x: torch.Tensor, w: torch.Tensor) -> Tensors:
        pairs = zip(x.float().chunk(parts, -1), w.float().chunk(parts, 0), strict=True)
        return (torch.stack([a @ b for a, b in pairs]).sum(0).to(x.dtype),)

    return of(run)


def one_by_one(x: torch.Tensor, w: torch.Tensor) -> Tensors:
    """One accumulator, term after term."""
    total = torch.zeros(x.shape[0], w.shape[1], device=x.device)
    for k in range(x.shape[1]):
        total += x[:, k : k + 1].float() * w[k : k + 1].float()
    return (total.to(x.dtype),)


def backwards(eager: Call) -> Call:
    """The inner dimension from its end."""
    return lambda x, w: eager(x.flip(-1).contiguous(), w.flip(0).contiguous())


def linear_parts(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Tensors:
    """A product in two parts with the bias and GELU behind it in float32."""
    half = x.shape[-1] // 2
    product = x[:, :half].float() @ w[:, :half].float().T + x[:, half:].float() @ w[:, half:].float().T
    return (F.gelu(product + b.float()).to(x.dtype),)


def row_sums(x: torch.Tensor) -> Tensors:
    """Lane by lane, then a tree."""
    lanes = x.reshape(x.shape[0], -1, 32).transpose(0, 1).contiguous()
    total = torch.zeros_like(lanes[0])
    for part in lanes:
        total = total + part
    while total.shape[-1] > 1:
        total = total[:, ::2] + total[:, 1::2]
    return (total[:, 0],)


def row_sums_one_by_one(x: torch.Tensor) -> Tensors:
    """One accumulator a row."""
    total = torch.zeros(x.shape[0], device=x.device)
    for column in x.T.contiguous():
        total = total + column
    return (total,)


def column_sums(x: torch.Tensor) -> Tensors:
    """Blocks of rows as they come, as atomic additions leave them."""
    parts = [p.sum(0) for p in blocks(x, 128, 0)]
    total = parts[7]
    for n in (3, 12, 0, 15, 1, 9, 2, 14, 4, 13, 5, 11, 6, 10, 8):
        total = total + parts[n]
    return total, total * (1 / x.shape[0])


def mean_square(dim: int | None) -> Build:
    """Squares and sums of blocks in float32, from the last block on. dim: of the mean, None for all elements."""

    def run(x: torch.Tensor) -> Tensors:
        flat = x.float() if dim is not None else x.float().flatten()
        total = torch.stack([part.square().sum(-1) for part in reversed(blocks(flat, 64, -1))]).sum(0)
        return ((total / flat.shape[-1]).to(x.dtype),)

    return of(run)


def rounded_squares(dim: int | None) -> Build:
    """Squares rounded as the region rounds them, one accumulator from the last element on."""

    def run(x: torch.Tensor) -> Tensors:
        squares = (x * x).float() if dim is not None else (x * x).float().flatten()
        return (squares.flip(-1).cumsum(-1)[..., -1].div(squares.shape[-1]).to(x.dtype),)

    return of(run)


def largest_probability(x: torch.Tensor) -> Tensors:
    """The reciprocal of the least sum: no probability is made but the largest of each row."""
    wide = x.float()
    return (torch.exp(wide - wide.amax(-1, keepdim=True)).sum(-1).amin().reciprocal().to(x.dtype),)


def welford(x: torch.Tensor) -> Tensors:
    """Means and squares of blocks, joined."""
    count, mean, square = 0, torch.zeros(x.shape[0], device=x.device), torch.zeros(x.shape[0], device=x.device)
    for part in blocks(x, 100, -1):
        n, own = part.shape[-1], part.mean(-1)
        off = own - mean
        square = square + (part - own[:, None]).square().sum(-1) + off.square() * (count * n / (count + n))
        mean, count = mean + off * (n / (count + n)), count + n
    return (square / (count - 1),)


def logsumexp_by_parts(x: torch.Tensor) -> Tensors:
    """Of blocks, joined."""
    parts = torch.stack([torch.logsumexp(p, -1) for p in blocks(x, 100, -1)])
    most = parts.amax(0)
    return (most + torch.exp(parts - most).sum(0).log(),)


def chunked_scan(x: torch.Tensor) -> Tensors:
    """Scans of chunks, then their carries."""
    chunks = x.float().reshape(x.shape[0], -1, 64)
    inside = chunks.cumsum(-1)
    carried = inside[..., -1].cumsum(-1) - inside[..., -1]
    return ((inside + carried[..., None]).reshape(x.shape).to(x.dtype),)


def scan_by_doubling(x: torch.Tensor) -> Tensors:
    """Steps of 1, 2, 4 and so on, as a warp scans."""
    total, step = x.float(), 1
    while step < x.shape[-1]:
        total = torch.cat([total[:, :step], total[:, step:] + total[:, :-step]], -1)
        step *= 2
    return (total.to(x.dtype),)


# steps


def int8_f32(x: torch.Tensor) -> Tensors:
    """Times the reciprocal of the scale, halves away from zero."""
    scale = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-6) / 127.0
    scaled = x.float() * (127.0 / x.float().abs().amax(-1, keepdim=True).clamp(min=1e-6))
    return torch.trunc(scaled + 0.5 * scaled.sign()).clamp(-127, 127).to(torch.int8), scale


def f8_by_reciprocal(x: torch.Tensor) -> Tensors:
    """One division a row."""
    scale = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-6) / 448.0
    return (x.float() * scale.reciprocal()).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def norm_to_int8(x: torch.Tensor, w: torch.Tensor) -> Tensors:
    """The step's size in the weight."""
    y = x.float() / torch.sqrt(x.float().square().mean(-1, keepdim=True) + 1e-5) * (w.float() * 40.0)
    return (torch.round(y).clamp(-127, 127).to(torch.int8),)


def mask_by_difference(x: torch.Tensor, y: torch.Tensor) -> Tensors:
    """The sign of the difference, by other spellings of the functions."""
    tanh = 2 * torch.sigmoid(2 * x) - 1
    return (tanh * x - 1 / (1 + torch.exp(-y)) > 0,)


def argmax_in_f32(x: torch.Tensor, w: torch.Tensor) -> Tensors:
    """Scores that are not rounded before they are compared."""
    return ((x.float() @ w.float()).argmax(-1),)


def swiglu(a: torch.Tensor, b: torch.Tensor) -> Tensors:
    """By a power of two."""
    return ((a.float() / (1 + torch.exp2(-a.float() * math.log2(math.e))) * b.float()).to(a.dtype),)


def rope(x: torch.Tensor, c: torch.Tensor, s: torch.Tensor) -> Tensors:
    """Both halves by themselves, a multiply-add each."""
    (low, high), half = x.chunk(2, -1), x.shape[-1] // 2
    first = torch.addcmul(low * c[..., :half], high, s[..., :half], value=-1)
    return (torch.cat([first, torch.addcmul(high * c[..., half:], low, s[..., half:])], -1),)


def residual_norm(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Tensors:
    """The norm of the sum as it is in float32; the sum is rounded for who reads it."""
    wide = x.float() + r.float()
    return layer_norm_folded(wide, w, b)[0].to(x.dtype), wide.to(x.dtype)


def masked_softmax(x: torch.Tensor, m: torch.Tensor) -> Tensors:
    """Hidden scores by another large number."""
    return (exp2_softmax(torch.where(m, x.float(), torch.full_like(x.float(), -1e30)))[0].to(x.dtype),)


MATH, FLASH, EFFICIENT, CUDNN = (
    SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION,
)  # fmt: skip
ATTENTION: Mapping[str, Build] = {
    "SDPA math": by_backend(MATH), "SDPA flash": by_backend(FLASH), "in f32": in_f32, "spelled": of(spelled),
    "online": online(True), "FlexAttention": flex,
}  # fmt: skip
ON_A_GPU: Mapping[str, Build] = {"SDPA efficient": by_backend(EFFICIENT), "SDPA cuDNN": by_backend(CUDNN)}
PRODUCTS: Mapping[str, Build] = {
    "split-K 2": split_k(2), "split-K 8": split_k(8), "one by one": of(one_by_one), "backwards": backwards,
}  # fmt: skip
FEW_MEANS: Mapping[str, Build] = {
    "in f32": in_f32, "blocks from the last on": mean_square(-1), "squares rounded": rounded_squares(-1),
}  # fmt: skip
NORM: Mapping[str, Build] = {
    "in f32": in_f32, "by moments": of(layer_norm_by_moments), "folded": of(layer_norm_folded),
}  # fmt: skip
RIGHT: Mapping[str, Mapping[str, Build]] = {
    "attention bf16": ATTENTION, "attention f16": ATTENTION, "attention f32": ATTENTION,
    "attention by hand bf16": {"in f32": in_f32, "online": online(False)},
    "attention by hand f32": {"online": online(False)},
    "attention capped bf16": {"in f32": in_f32},
    "softmax bf16": {"in f32": in_f32, "online": of(online_softmax), "exp2": of(exp2_softmax)},
    "softmax f32": {"online": of(online_softmax), "exp2": of(exp2_softmax)},
    "log_softmax f32": {"by parts": of(log_softmax_by_parts)},
    "cross entropy bf16": {"gradient in the forward": of(cross_entropy)},
    "layer norm bf16": NORM, "layer norm f32": NORM,
    "rms norm bf16": {"in f32": in_f32, "by parts": of(rms_norm), "built in": of(rms_norm_built_in)},
    "rms norm f16": {"by parts": of(rms_norm), "built in": of(rms_norm_built_in)},
    "long chain f32": {"by reciprocals": of(long_chain)}, "rope f32": {"by halves": of(rope)},
    "attention forward bf16": ATTENTION, "attention forward f32": ATTENTION,
    "gelu chain bf16": {"in f32": in_f32}, "gelu chain bf16 training": {"in f32": in_f32},
    "swiglu bf16": {"in f32": in_f32, "exp2": of(swiglu)},
    "product bf16": PRODUCTS, "product f16": PRODUCTS, "product f32": PRODUCTS,
    "linear bf16": {"in f32": in_f32, "in parts": of(linear_parts)},
    "sum f32": {"lanes and a tree": of(row_sums), "one by one": of(row_sums_one_by_one)},
    "columns f32": {"blocks as they come": of(column_sums)},
    "mean of squares bf16": {
        "in f32": in_f32, "blocks from the last on": mean_square(None), "squares rounded": rounded_squares(None),
    },
    "largest probability bf16": {
        "in f32": in_f32, "by the least sum": of(largest_probability), "online": of(largest_of_online),
    },
    "8 means of squares bf16": FEW_MEANS, "16 means of squares bf16": FEW_MEANS,
    "variance f32": {"Welford": of(welford)},
    "logsumexp f32": {"by parts": of(logsumexp_by_parts)},
    "cumsum f32": {"chunks": of(chunked_scan), "doubling": of(scan_by_doubling)},
    "cumsum bf16": {"chunks": of(chunked_scan), "doubling": of(scan_by_doubling)},
    "int8 bf16": {"scaled in f32": of(int8_f32)}, "int8 f32": {"halves away from zero": of(int8_f32)},
    "f8 bf16": {"by the reciprocal": of(f8_by_reciprocal)},
    "norm to int8": {"folded": of(norm_to_int8)}, "mask f32": {"by the difference": of(mask_by_difference)},
    "argmax bf16": {"in f32": of(argmax_in_f32)},
    "residual norm bf16": {"not rounded between": of(residual_norm)},
    "masked softmax bf16": {"another minimum": of(masked_softmax)},
}  # fmt: skip
"""Of each region, by name. `COMPILED` comes to these."""
COMPILED = (
    "softmax bf16", "softmax f32", "log_softmax f32", "cross entropy bf16", "layer norm bf16", "layer norm f32",
    "rms norm bf16", "rms norm f16", "gelu chain bf16", "gelu chain bf16 training", "long chain f32", "swiglu bf16",
    "product bf16", "product f32", "linear bf16", "sum f32", "columns f32", "variance f32", "logsumexp f32",
    "int8 bf16", "int8 f32", "f8 bf16", "norm to int8", "mask f32", "argmax bf16", "residual norm bf16", "rope f32",
    "masked softmax bf16", "attention by hand bf16", "attention capped bf16",
)  # fmt: skip
"""Regions that torch.compile is tried on."""
