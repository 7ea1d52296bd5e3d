"""The regions whose candidates `launched.py` runs: attention whose scores and masks are written out, losses and norms
in training, and one that takes a large part of the card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FULL_CARD_BYTES = 141e9
LARGE_BYTES = 30e9
"""What the large region touches on a card of FULL_CARD_BYTES; in proportion on a smaller one."""
LARGE_COLUMNS = 16384


@dataclass(frozen=True, slots=True)
class Launched:
    """part: of the table. text: the region's. without: ends of names of candidates that are left out, for time."""

    part: str
    text: str
    without: tuple[str, ...] = ()


SELF_TUNING = "compile-max-autotune"
BACKENDS = (SELF_TUNING, ".cudnn", ".efficient")
"""torch picks among its own backends of attention; the call without a backend's name stays."""
OTHERS = (SELF_TUNING, "triton:generated", "library:liger_kernel.cross_entropy")
"""Liger's call that takes a copy of the logits in f32: its other one takes them as they are."""

HEADS, ROWS, WIDTH = 8, 2048, 128
SCALE = WIDTH**-0.5
CAUSAL = f"s = s.masked_fill(torch.ones({ROWS}, {ROWS}, dtype=torch.bool).triu(1), float('-inf'))\n"
WINDOW = "s = torch.where((i[:, None] >= i[None, :]) & (i[:, None] - i[None, :] < 512), s, float('-inf'))\n"
CAP = "s = 50.0 * torch.tanh(s / 50.0)\n"


def attention(lines: str, more: str = "", groups: int = HEADS) -> str:
    """Forward and backward in bf16; lines: from the scores s and the positions i to the softmax."""
    inputs = f"q: bf16[1, {HEADS}, {ROWS}, {WIDTH}].requires_grad\n"
    inputs += "".join(f"{n}: bf16[1, {groups}, {ROWS}, {WIDTH}].requires_grad\n" for n in "kv")
    each = HEADS // groups
    repeated = "".join(f"{n} = {n}.repeat_interleave({each}, 1)\n" for n in "kv") if each > 1 else ""
    scores = f"s = q @ k.transpose(-1, -2) * {SCALE}\ni = arange({ROWS})\n"
    return f"{inputs}{more}{repeated}{scores}{lines}return softmax(s.float(), -1).to(bf16) @ v\n"


LOGITS = "x: bf16[8192, 128256].requires_grad\nt: i64[8192].below(128256)\n"
NORMED = "x: bf16[8192, 16384].requires_grad\nw: bf16[16384].requires_grad\n"

# In the order in which they are measured.
REGIONS: Mapping[str, Launched] = {
    "loss-nll": Launched("loss", LOGITS + "return F.nll_loss(F.log_softmax(x.float(), -1), t)\n", OTHERS),
    "attention-soft-cap": Launched("attention", attention(CAP + CAUSAL), BACKENDS),
    "attention-window": Launched("attention", attention(WINDOW), BACKENDS),
    "attention-alibi": Launched("attention", attention(
        "s = s + (m.view(8, 1, 1) * (i[None, :] - i[:, None])).to(bf16)\n" + CAUSAL, "m: f32[8]\n"
    ), BACKENDS),
    "attention-documents": Launched("attention", attention(
        "d = (starts == 0).cumsum(-1)\nsame = d[:, None, :, None] == d[:, None, None, :]\n"
        "s = s.masked_fill(~(same & (i[:, None] >= i[None, :])), float('-inf'))\n",
        f"starts: i64[1, {ROWS}].below(400)\n",
    ), BACKENDS),
    "layer-norm-training": Launched("norm", NORMED + (
        "b: bf16[16384].requires_grad\nreturn F.layer_norm(x.float(), (16384,), w.float(), b.float(), 1e-05).to(bf16)\n"
    ), (SELF_TUNING,)),
    "loss-cross-entropy": Launched("loss", LOGITS + "return F.cross_entropy(x.float(), t)\n", OTHERS),
    "rms-norm-training": Launched("norm", NORMED + (
        "z = x.float()\ny = z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + 1e-06)\nreturn (y * w.float()).to(bf16)\n"
    ), (SELF_TUNING,)),
    "loss-by-hand": Launched("loss", LOGITS + (
        "z = x.float()\nlse = torch.logsumexp(z, -1)\n"
        "return (lse - z.gather(1, t[:, None]).squeeze(1)).mean()\n"
    ), OTHERS),
    "attention-gemma-grouped": Launched("attention", attention(CAP + WINDOW, groups=4), BACKENDS),
}  # fmt: skip


def large(card_bytes: int) -> Launched:
    """An RMSNorm that touches LARGE_BYTES of a card of FULL_CARD_BYTES, each element read once and written once."""
    rows = int(LARGE_BYTES * min(1.0, card_bytes / FULL_CARD_BYTES) / (4 * LARGE_COLUMNS)) // 1024 * 1024
    width = LARGE_COLUMNS
    text = f"x: bf16[{rows}, {width}]\nw: bf16[{width}]\nreturn F.rms_norm(x, ({width},), w, 1e-6)\n"
    return Launched("large", text)
