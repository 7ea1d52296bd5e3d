"""Reductions over rows of every shape: few and long, many and short, along any axis and in any layout.

Forty programs by number, not by chance, for a comparison of the generator with its former state: norms, softmax, sums,
extrema and variances, forward and as the backward operations that autograd calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

LEAST = 8
"""Up to which a size stays as it is where programs are small."""


@dataclass(frozen=True, slots=True)
class RowCase:
    """text: with {t} for the type, {x} for the first input's sizes and {0}, {1}, ... for each of these; {turned}: the
    strides of the last two dimensions the other way round."""

    text: str
    dtype: str
    shape: tuple[int, ...]

    def program(self, size: str) -> str:
        """The region's text. size: "large", or "small" for Triton's interpreter."""
        shape = self.shape if size == "large" else tuple(map(smaller, self.shape))
        last, inner = shape[-1], shape[-2] if len(shape) > 1 else 1
        turned = f".strides({last * inner}, 1, {inner})"
        return self.text.format(*shape, t=self.dtype, x=", ".join(map(str, shape)), turned=turned)


def smaller(size: int) -> int:
    """A size of 8 to 15, odd where it was odd, or the size itself."""
    return size if size <= LEAST else LEAST + size % LEAST


SOFTMAX = "x: {t}[{x}]\nreturn softmax(x, -1)\n"
SOFTMAX_FIRST = "x: {t}[{x}]\nreturn softmax(x, 0)\n"
LOGARITHMS = "x: {t}[{x}]\nreturn log_softmax(x.float(), -1)\n"
LAYER = "x: {t}[{x}]\nw: {t}[{1}]\nb: {t}[{1}]\nreturn F.layer_norm(x, ({1},), w, b)\n"
LAYER_TURNED = "x: {t}[{x}]{turned}\nw: {t}[{2}]\nreturn F.layer_norm(x, ({2},), w)\n"
LAYER_BACKWARD = (
    "d: {t}[{x}]\nx: {t}[{x}]\nm: f32[{0}, 1]\nr: f32[{0}, 1]\nw: {t}[{1}]\nb: {t}[{1}]\nf = d.float()\n"
    "y = (x.float() - m) * r\ng = f * w.float()\n"
    "z = (g - g.mean(-1, keepdim=True) - y * (g * y).mean(-1, keepdim=True)) * r\n"
    "return z.to({t}), (f * y).sum(0).to({t}), f.sum(0).to({t})\n"
)
RMS = "x: {t}[{x}]\nw: {t}[{1}]\nreturn F.rms_norm(x, ({1},), w, 1e-6)\n"
RMS_SPELLED = "x: {t}[{x}]\nz = x.float()\nreturn (z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + 1e-6)).to({t})\n"
CHANNEL = "x: {t}[{x}]\nz = x.float()\nreturn (z * torch.rsqrt(z.pow(2).mean(1, keepdim=True) + 1e-6)).to({t})\n"
SOFTMAX_BACKWARD = "d: {t}[{x}]\np: {t}[{x}]\nf = d.float() * p\nreturn (f - p * f.sum(%d, keepdim=True)).to({t})\n"
GROUP = "x: {t}[{x}]\nw: {t}[{1}]\nb: {t}[{1}]\nreturn F.group_norm(x, 8, w, b)\n"
GROUP_LAST = GROUP.replace("x: {t}[{x}]", "x: {t}[{x}].channels_last")
INSTANCE_LAST = "x: {t}[{x}].channels_last\nreturn F.instance_norm(x)\n"
BATCH = (
    "x: {t}[{x}]\nz = x.float()\nv, m = torch.var_mean(z, (0, 2, 3), keepdim=True, unbiased=False)\n"
    "return ((z - m) * torch.rsqrt(v + 1e-5)).to({t})\n"
)
SCALED = "x: {t}[{x}]\ns: {t}[{1}]\nr: {t}[{x}]\nreturn F.relu(x * s[:, None, None] + r)\n"
TURNED = "x: {t}[{x}]\nr: {t}[{0}, {1}, {3}, {2}]\nreturn x.transpose(-2, -1) + r\n"
POOLED = "x: {t}[{x}]\nreturn F.silu(x).mean(1)\n"
PIXELS = "x: {t}[{x}]\nreturn x - x.mean((2, 3), keepdim=True)\n"
PRODUCT_OF_SOFTMAX = (
    "x: {t}[{x}]\ny: {t}[{x}]\nw: {t}[{2}]\nb: {t}[{2}]\np = (y * softmax(x, -1)).transpose(-2, -1)\n"
    "return F.layer_norm(p, ({2},), w, b)\n"
)


def _reduced(call: str) -> str:
    return f"x: {{t}}[{{x}}]\nreturn (x * 2).{call}\n"


MILLION = 1 << 20
CASES: Sequence[RowCase] = (
    RowCase(SOFTMAX, "bf16", (4, MILLION)),
    RowCase(SOFTMAX_FIRST, "bf16", (65536, 256)),
    RowCase(LAYER_BACKWARD, "bf16", (8192, 4096)),
    RowCase(LAYER, "bf16", (16, MILLION)),
    RowCase(GROUP_LAST, "f16", (32, 64, 56, 56)),
    RowCase(SCALED, "bf16", (256, 512, 7, 7)),
    RowCase(LAYER_TURNED, "bf16", (32, 256, 1152)),
    RowCase(SOFTMAX_BACKWARD % -1, "bf16", (64, 262144)),
    RowCase(SOFTMAX_FIRST, "f32", (MILLION, 16)),
    RowCase(RMS, "bf16", (16, MILLION)),
    RowCase(INSTANCE_LAST, "f16", (32, 64, 56, 56)),
    RowCase(SOFTMAX, "bf16", (128, 131072)),
    RowCase(BATCH, "bf16", (64, 512, 7, 7)),
    RowCase(LOGARITHMS, "bf16", (512, 50257)),
    RowCase(GROUP, "f32", (1, 32, 512, 512)),
    RowCase(SOFTMAX, "f32", (8, MILLION)),
    RowCase(SOFTMAX_FIRST, "bf16", (MILLION, 33)),
    RowCase(LOGARITHMS, "f32", (16, 524288)),
    RowCase(LAYER, "bf16", (8192, 16384)),
    RowCase(LAYER, "f32", (262144, 64)),
    RowCase(LAYER, "bf16", (65536, 256)),
    RowCase(LAYER_BACKWARD, "f32", (65536, 256)),
    RowCase(LAYER_BACKWARD, "bf16", (262144, 64)),
    RowCase(RMS_SPELLED, "bf16", (MILLION, 33)),
    RowCase(RMS_SPELLED, "bf16", (16384, 1000)),
    RowCase(SOFTMAX_BACKWARD % 0, "f32", (65536, 256)),
    RowCase(_reduced("sum(0)"), "f16", (MILLION, 16)),
    RowCase(_reduced("sum(0)"), "bf16", (MILLION, 33)),
    RowCase(_reduced("sum(-1)"), "f32", (16, MILLION)),
    RowCase(_reduced("var(-1)"), "bf16", (512, 50257)),
    RowCase(_reduced("var(1)"), "f32", (64, 4096, 129)),
    RowCase(_reduced("amax((0, 2))"), "bf16", (512, 129, 300)),
    RowCase(_reduced("sum(2)"), "bf16", (1, 4, 2, 1024, 256)),
    RowCase(_reduced("sum(1)"), "f32", (32, 3, 224, 224)),
    RowCase(GROUP, "f16", (32, 64, 56, 56)),
    RowCase(POOLED, "bf16", (128, 197, 768)),
    RowCase(PIXELS, "bf16", (64, 256, 14, 14)),
    RowCase(CHANNEL, "bf16", (8, 64, 256, 256)),
    RowCase(PRODUCT_OF_SOFTMAX, "f32", (64, 7, 128, 63)),
    RowCase(TURNED, "f32", (64, 7, 128, 63)),
)  # fmt: skip


def program(number: int, size: str = "large") -> str:
    """The text of one of the cases; numbers beyond them begin again."""
    return CASES[number % len(CASES)].program(size)


def rows(random: Random, size: str) -> str:
    """One of the cases by chance, as other families are drawn."""
    return program(random.randrange(len(CASES)), size)
