"""Wrong implementations of `bounds_regions.REGIONS`, each by a fault that kernels have had."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F

from benchmarks.validation.bounds_right import Build, Call, Tensors, exp2_softmax, of


def scaled(by: float, number: int = 0) -> Build:
    """One output too large or too small as a whole."""

    def build(eager: Call) -> Call:
        def run(*x: torch.Tensor) -> Tensors:
            return tuple((o.float() * by).to(o.dtype) if n == number else o for n, o in enumerate(eager(*x)))

        return run

    return build


class _Scaled(torch.autograd.Function):
    """The identity with a gradient that is not."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor, by: float) -> torch.Tensor:
        ctx.by = by  # type: ignore[attr-defined]
        return x.view_as(x)

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return (gradient.float() * ctx.by).to(gradient.dtype), None  # type: ignore[attr-defined]


def gradient_scaled(by: float, position: int = 0) -> Build:
    """The gradient of one input too large or too small."""

    def build(eager: Call) -> Call:
        def run(*x: torch.Tensor) -> Tensors:
            given = [_Scaled.apply(v, by) if n == position else v for n, v in enumerate(x)]  # type: ignore[no-untyped-call]
            return eager(*given)

        return run

    return build


def inputs_as(dtype: torch.dtype) -> Build:
    """A lower precision inside."""

    def build(eager: Call) -> Call:
        return lambda *x: eager(*(v.to(dtype).to(v.dtype) if v.is_floating_point() else v for v in x))

    return build


def one_element(amount: float) -> Build:
    """A single element is off by so many times the values' size."""

    def build(eager: Call) -> Call:
        def run(*x: torch.Tensor) -> Tensors:
            first, *rest = eager(*x)
            place = torch.zeros_like(first).view(-1)
            place[first.numel() // 3] = amount * first.detach().float().square().mean().sqrt().item()
            return (first + place.view_as(first), *rest)

        return run

    return build


def attention(change: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype | None = None) -> Build:
    """Attention with something done to its scores. dtype: what the sums over keys are kept in."""

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
        scores = change((q.float() @ k.float().mT) / math.sqrt(q.shape[-1]))
        weights = torch.softmax(scores, -1)
        if dtype is None:
            return ((weights.to(v.dtype) @ v).to(v.dtype),)
        total = torch.zeros(q.shape, dtype=dtype, device=q.device)
        for n in range(k.shape[-2]):
            total = total + (weights[..., n : n + 1] * v[..., n : n + 1, :].float()).to(dtype)
        return (total.to(v.dtype),)

    return of(run)


def hidden(scores: torch.Tensor, diagonal: int = 1) -> torch.Tensor:
    """Scores of later keys hidden."""
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(diagonal)
    return scores.masked_fill(later, -math.inf)


def one_key_hidden(scores: torch.Tensor) -> torch.Tensor:
    """Of one row, one element of the mask is wrong."""
    wrong = torch.zeros(scores.shape[-2:], dtype=torch.bool, device=scores.device)
    wrong[40, 7] = True
    return hidden(scores).masked_fill(wrong, -math.inf)


def one_key_seen(scores: torch.Tensor) -> torch.Tensor:
    """Of one row, one later key is seen."""
    kept = hidden(scores)
    right = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    right[40, 41] = True
    return torch.where(right, scores, kept)


def stale_statistic(eager: Call) -> Call:
    """Rows are normalised by what the row before them had."""

    def run(x: torch.Tensor, w: torch.Tensor, *b: torch.Tensor) -> Tensors:
        wide = x.float()
        rstd = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5).roll(1, 0)
        mean = wide.mean(-1, keepdim=True) if b else 0.0
        y = (wide - mean) * rstd * w.float()
        return ((y + b[0].float() if b else y).to(x.dtype),)

    return run


def stale_in_one_row(eager: Call) -> Call:
    """The last row by what the one before it had."""

    def run(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Tensors:
        (right,) = eager(x, w, b)
        wide = x.float()
        mean, var = wide.mean(-1, keepdim=True), wide.var(-1, correction=0, keepdim=True)
        row = (wide[-1:] - mean[-1:]) * torch.rsqrt(var[-2:-1] + 1e-5) * w.float() + b.float()
        return (torch.cat([right[:-1], row.to(x.dtype)]),)

    return run


def layer_norm(eps: float = 1e-5, correction: int = 0, short: int = 0, centred: bool = True) -> Build:
    """The norm with another epsilon, degree of freedom, count of columns or without its mean."""

    def run(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Tensors:
        wide = x.float()
        seen = wide[..., : x.shape[-1] - short]
        mean = seen.mean(-1, keepdim=True)
        rstd = torch.rsqrt(seen.var(-1, correction=correction, keepdim=True) + eps)
        return (((wide - (mean if centred else 0.0)) * rstd * w.float() + b.float()).to(x.dtype),)

    return of(run)


def rms_norm(eps: float = 1e-5, dtype: torch.dtype | None = None, outside: bool = False) -> Build:
    """The norm with another epsilon, its sum in another type, or the epsilon outside of the root."""

    def run(x: torch.Tensor, w: torch.Tensor) -> Tensors:
        wide = x.float()
        if dtype is None:
            mean = wide.square().mean(-1, keepdim=True)
        else:
            total = torch.zeros(x.shape[0], 1, dtype=dtype, device=x.device)
            for n in range(x.shape[-1]):
                total = total + wide[:, n : n + 1].square().to(dtype)
            mean = total.float() / x.shape[-1]
        factor = 1 / (mean.sqrt() + eps) if outside else torch.rsqrt(mean + eps)
        return ((wide * factor * w.float()).to(x.dtype),)

    return of(run)


def product(dtype: torch.dtype, step: int = 1) -> Build:
    """An accumulator of a lower precision."""

    def run(x: torch.Tensor, w: torch.Tensor) -> Tensors:
        total = torch.zeros(x.shape[0], w.shape[1], dtype=dtype, device=x.device)
        for k in range(0, x.shape[1], step):
            total = total + (x[:, k : k + step].float() @ w[k : k + step].float()).to(dtype)
        return (total.to(x.dtype),)

    return of(run)


def product_without_tail(x: torch.Tensor, w: torch.Tensor) -> Tensors:
    """The last column of the inner dimension is left out."""
    return ((x[:, :-1].float() @ w[:-1].float()).to(x.dtype),)


def tf32(eager: Call) -> Call:
    """10 bits of mantissa."""
    return lambda *x: eager(*((v.view(torch.int32) & ~0x1FFF).view(torch.float32) for v in x))


def shifted(eager: Call) -> Call:
    """Results one place further."""
    return lambda *x: tuple(o.roll(1, -1) for o in eager(*x))


def without_last(eager: Call) -> Call:
    """The last input element of a row is not read."""

    def run(x: torch.Tensor, *others: torch.Tensor) -> Tensors:
        kept = torch.cat([x[..., :-1], torch.zeros_like(x[..., -1:])], -1)
        return eager(kept, *others)

    return run


def gelu_by_tanh(eager: Call) -> Call:
    """The approximation in the place of GELU, in a chain that rounds each step."""

    def run(x: torch.Tensor, b: torch.Tensor) -> Tensors:
        h = x + b
        y = F.gelu(h, approximate="tanh") * x * torch.where(h > 0, 1.02, 1.0).to(x.dtype)
        z = torch.sigmoid(y) * y + x
        u = torch.tanh(z * 0.5) + y
        return ((F.silu(u) * z - x * 0.25).to(x.dtype),)

    return run


def quantised(
    top: float = 127.0, rounding: Callable[[torch.Tensor], torch.Tensor] = torch.round, by: float = 1.0,
    dtype: torch.dtype = torch.int8, of_all: bool = False,
) -> Build:  # fmt: skip
    """A quantiser with another rounding, another scale, or one scale for all rows."""

    def run(x: torch.Tensor) -> Tensors:
        most = x.float().abs().amax() if of_all else x.float().abs().amax(-1, keepdim=True)
        right = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-6) / top
        scaled_by = x.float() * by / (most.clamp(min=1e-6) / top)
        narrow = rounding(scaled_by).clamp(-top, top) if dtype == torch.int8 else scaled_by.clamp(-top, top)
        return narrow.to(dtype), right

    return of(run)


def cut(x: torch.Tensor) -> Tensors:
    """To float8 by cutting bits off."""
    scale = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-6) / 448.0
    scaled_by = x.float() / scale
    nearest = scaled_by.clamp(-448, 448).to(torch.float8_e4m3fn)
    beyond = nearest.float().abs() > scaled_by.abs()
    smaller = (nearest.view(torch.uint8) - beyond.to(torch.uint8)).view(torch.float8_e4m3fn)
    return smaller, scale


def norm_to_int8(x: torch.Tensor, w: torch.Tensor) -> Tensors:
    """Borders of the steps are off by a twentieth."""
    y = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-5) * w.float()
    return (torch.floor(y * 40.0 + 0.45).clamp(-127, 127).to(torch.int8),)


def second_largest(x: torch.Tensor, w: torch.Tensor) -> Tensors:
    """Of one row in sixteen."""
    best = (x.float() @ w.float()).topk(2, -1).indices
    return (torch.where(torch.arange(len(best), device=x.device) % 16 == 3, best[:, 1], best[:, 0]),)


def mask_with_margin(x: torch.Tensor, y: torch.Tensor) -> Tensors:
    """A margin that nobody asked for."""
    return (torch.tanh(x) * x > torch.sigmoid(y) + 1e-3,)


def columns_without_block(x: torch.Tensor) -> Tensors:
    """The last row is not read."""
    total = x[:-1].sum(0)
    return total, total / x.shape[0]


def one_mask_element(x: torch.Tensor, m: torch.Tensor) -> Tensors:
    """One element of the mask is not minded."""
    seen = m.clone()
    row = int((~m).sum(-1).argmax())
    seen[row, int((~m[row]).to(torch.uint8).argmax())] = True
    return (exp2_softmax(x.float().masked_fill(~seen, -1e30))[0].to(x.dtype),)


def rope_other_half(x: torch.Tensor, c: torch.Tensor, s: torch.Tensor) -> Tensors:
    """The other half has the minus."""
    return (x * c + torch.cat([x[..., 32:], -x[..., :32]], -1) * s,)


def cross_entropy_of_sums(x: torch.Tensor, t: torch.Tensor) -> Tensors:
    """Divided by one row too many."""
    return (F.cross_entropy(x.float(), t, reduction="sum") / (len(t) + 1),)


def scan(dtype: torch.dtype) -> Build:
    """Carried in another type."""

    def run(x: torch.Tensor) -> Tensors:
        total, columns = torch.zeros(x.shape[0], dtype=dtype, device=x.device), []
        for n in range(x.shape[-1]):
            total = total + x[:, n].to(dtype)
            columns.append(total)
        return (torch.stack(columns, -1).to(x.dtype),)

    return of(run)


def scan_without_carry(x: torch.Tensor) -> Tensors:
    """The last chunk's carry is missing."""
    right = x.float().cumsum(-1)
    return (torch.cat([right[:, :-64], right[:, -64:] - right[:, -65:-64]], -1).to(x.dtype),)


def biased_variance(x: torch.Tensor) -> Tensors:
    """Divided by all instead of one less."""
    return (x.var(-1, correction=0),)


BF16, F16 = torch.bfloat16, torch.float16
_causal: Sequence[Callable[[torch.Tensor], torch.Tensor]] = (
    lambda s: hidden(s, 2), lambda s: hidden(s, 0).nan_to_num(neginf=-1e4), lambda s: hidden(s * 1.01),
)  # fmt: skip
FEW_SCALED: Mapping[str, Build] = {
    "1 % too large": scaled(1.01), "2 % too large": scaled(1.02), "1 % too small": scaled(0.99),
    "2 % too small": scaled(0.98),
}  # fmt: skip
WRONG: Mapping[str, Mapping[str, Build]] = {
    "attention bf16": {
        "1 % too large": scaled(1.01), "a gradient 1 % too large": gradient_scaled(1.01, 0),
        "gradient of v 1 % too small": gradient_scaled(0.99, 2), "the diagonal's neighbour seen": attention(_causal[0]),
        "the diagonal hidden": attention(_causal[1]), "scores 1 % too large": attention(_causal[2]),
        "one key hidden": attention(one_key_hidden), "one key seen": attention(one_key_seen),
        "summed in bf16": attention(hidden, BF16),
    },
    "attention f32": {"bf16 inside": inputs_as(BF16), "tf32 inside": tf32, "one key seen": attention(one_key_seen)},
    "attention by hand bf16": {"0.5 % too large": scaled(1.005)},
    "softmax bf16": {"1 % too small": scaled(0.99), "the last column not read": without_last},
    "softmax f32": {"f16 inside": inputs_as(F16), "the last column not read": without_last},
    "cross entropy bf16": {
        "one row too many": of(cross_entropy_of_sums), "a gradient 1 % too large": gradient_scaled(1.01),
    },
    "layer norm bf16": {
        "stale statistic": stale_statistic, "one stale row": stale_in_one_row, "epsilon 1e-3": layer_norm(1e-3),
        "epsilon 1e-6": layer_norm(1e-6), "unbiased variance": layer_norm(correction=1),
        "not centred": layer_norm(centred=False), "gradient of w 1 % too large": gradient_scaled(1.01, 1),
    },
    "layer norm f32": {
        "one column short": layer_norm(short=1), "bf16 inside": inputs_as(BF16), "epsilon 1.1e-5": layer_norm(1.1e-5),
    },
    "rms norm bf16": {
        "summed in bf16": rms_norm(dtype=BF16), "epsilon 1e-6": rms_norm(1e-6),
        "epsilon outside": rms_norm(outside=True), "stale statistic": stale_statistic,
    },
    "gelu chain bf16": {
        "1 % too large": scaled(1.01), "another GELU": gelu_by_tanh, "one element": one_element(0.3),
    },
    "gelu chain bf16 training": {"a gradient 1 % too large": gradient_scaled(1.01, 0)},
    "long chain f32": {
        "bf16 inside": inputs_as(BF16), "1e-4 too large": scaled(1.0001), "one element": one_element(1e-3),
    },
    "product bf16": {
        "summed in bf16": product(BF16), "in bf16 by 16": product(BF16, 16), "1 % too large": scaled(1.01),
        "without its tail": of(product_without_tail),
    },
    "product f32": {"tf32 inside": tf32, "summed in f16": product(F16), "without its tail": of(product_without_tail)},
    "sum f32": {"the last column not read": without_last, "bf16 inside": inputs_as(BF16)},
    "columns f32": {"the last row not read": of(columns_without_block)},
    "mean of squares bf16": FEW_SCALED, "largest probability bf16": FEW_SCALED,
    "8 means of squares bf16": FEW_SCALED, "16 means of squares bf16": FEW_SCALED,
    "variance f32": {"biased": of(biased_variance)},
    "cumsum f32": {"shifted": shifted, "a carry missing": of(scan_without_carry)},
    "cumsum bf16": {"summed in bf16": scan(BF16)},
    "int8 bf16": {"cut": quantised(rounding=torch.trunc), "1 % too large": quantised(by=1.01)},
    "int8 f32": {
        "floor": quantised(rounding=lambda v: torch.floor(v + 0.45)), "1 % too large": quantised(by=1.01),
        "one scale for all": quantised(of_all=True), "0.1 % too small": quantised(by=0.999),
    },
    "f8 bf16": {
        "1 % too large": quantised(448.0, by=1.01, dtype=torch.float8_e4m3fn), "cut": of(cut),
    },
    "norm to int8": {"borders too high": of(norm_to_int8)},
    "mask f32": {"a margin": of(mask_with_margin)},
    "argmax bf16": {"the second of some rows": of(second_largest)},
    "rope f32": {"the other sign": of(rope_other_half)},
    "masked softmax bf16": {"one element of the mask": of(one_mask_element)},
    "linear bf16": {"gradient of b 1 % too large": gradient_scaled(1.01, 2), "1 % too small": scaled(0.99)},
}  # fmt: skip
"""Of each region, by name."""
