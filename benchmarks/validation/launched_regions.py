"""The regions whose candidates `launched.py` runs: attention whose scores and masks are written out, losses and norms
in training, one that takes a large part of the card, other regions with gradients, and the corpus's programs that are
advised a kernel of ours."""

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
OTHERS = (SELF_TUNING, "triton:generated")
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


LEFT_OUT = (SELF_TUNING, "compile-reduce-overhead", "helion:generated", ".cudnn", ".efficient", ".flash")
"""What the kernels that are advised are not held against here: whether they run and are right is asked."""

TRAINED: Mapping[str, Launched] = {
    "sums-of-bags": Launched("training", (
        "t: f32[1048576, 64].requires_grad\n"
        "i: i64[2097152].below(1048576)\n"
        "o: i64[65537].offsets(2097152)\n"
        "return F.embedding_bag(i, t, o, mode='sum', include_last_offset=True)\n"
    ), LEFT_OUT),
    "weighted-bags-and-ReLU": Launched("training", (
        "t: f32[262144, 64].requires_grad\n"
        "i: i64[1048576].below(262144)\n"
        "o: i64[32769].offsets(1048576)\n"
        "w: f32[1048576].requires_grad\n"
        "y = F.embedding_bag(i, t, o, mode='sum', per_sample_weights=w, include_last_offset=True)\n"
        "return relu(y)\n"
    ), LEFT_OUT),
    "a-pool-in-a-block": Launched("training", (
        "x: f32[64, 64, 112, 112].requires_grad\n"
        "y = F.max_pool2d(relu(x), 3, 2, 1)\n"
        "return y * 2\n"
    ), LEFT_OUT),
    "averages-in-a-block": Launched("training", (
        "x: bf16[64, 64, 112, 112].requires_grad\n"
        "y = F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)\n"
        "return y * y\n"
    ), LEFT_OUT),
    "sums-of-segments": Launched("training", (
        "v: f32[2097152, 64].requires_grad\n"
        "o: i64[262145].offsets(2097152)\n"
        "y = torch.segment_reduce(v * v, 'sum', offsets=o, axis=0)\n"
        "return y + 1.0\n"
    ), LEFT_OUT),
    "the-largest-of-segments": Launched("training", (
        "v: f32[1048576, 64].requires_grad\n"
        "o: i64[131073].offsets(1048576)\n"
        "return torch.segment_reduce(v, 'max', offsets=o)\n"
    ), LEFT_OUT),
    "a-recurrence-of-gates": Launched("training", (
        "a: f32[64, 32, 256].requires_grad\n"
        "b: f32[64, 32, 256].requires_grad\n"
        "g = sigmoid(a)\n"
        "h = b[:, 0]\n"
        "s = [h]\n"
        "for t in range(1, 32):\n"
        "    h = g[:, t] * h + b[:, t]\n"
        "    s.append(h)\n"
        "return torch.stack(s, 1) * a\n"
    ), LEFT_OUT),
    "grouped-products": Launched("training", (
        "x: bf16[8192, 2048].requires_grad\n"
        "w: bf16[16, 2048, 1408].requires_grad\n"
        "o: i32[16].offsets(8192)\n"
        "y = F.grouped_mm(x, w, offs=o)\n"
        "return silu(y)\n"
    ), LEFT_OUT),
    "dropout": Launched("training", (
        "x: bf16[8192, 4096].requires_grad\n"
        "y = F.dropout(x, 0.1)\n"
        "return y * 3.0\n"
    ), LEFT_OUT),
    "a-linear-layer-and-its-loss": Launched("training", (
        "x: bf16[8192, 2048].requires_grad\n"
        "w: bf16[32000, 2048].requires_grad\n"
        "t: i64[8192].below(32000)\n"
        "return F.cross_entropy(F.linear(x, w).float(), t)\n"
    ), LEFT_OUT),
    "a-causal-convolution-in-a-block": Launched("training", (
        "h: bf16[8, 2048, 2048].requires_grad\n"
        "w: bf16[2048, 1, 4].requires_grad\n"
        "b: bf16[2048].requires_grad\n"
        "x = h.transpose(1, 2)\n"
        "y = silu(F.conv1d(x, w, b, padding=3, groups=2048)[..., :2048])\n"
        "z = y.transpose(1, 2) * h\n"
        "return z\n"
    ), LEFT_OUT),
    "batch-norm-and-ReLU": Launched("training", (
        "x: bf16[64, 256, 56, 56].requires_grad\n"
        "w: f32[256].requires_grad\n"
        "b: f32[256].requires_grad\n"
        "m: f32[256]\n"
        "r: f32[256]\n"
        "y = F.batch_norm(x, m, r, w, b, training=True, momentum=0.1, eps=1e-05)\n"
        "return relu(y)\n"
    ), LEFT_OUT),
}  # fmt: skip
"""Regions with gradients at sizes of use, for kernels whose backward was tried in small ones alone."""


def advised() -> dict[str, Launched]:
    """By name: programs of the corpus's fit and development thirds that are advised a kernel which can be launched
    (tests/records/unproven.json), and in whose validation on an H200 it has not been timed."""
    from app.accuracy.corpus.measured import load_measured
    from app.accuracy.corpus.programs import DEVELOPMENT, FIT, load_programs
    from tools.corpus.unproven import DEVICE, read_rows

    timed = {
        (r["name"], c["name"])
        for r in load_measured(FIT, DEVELOPMENT) if r["device"] == DEVICE
        for c in r["candidates"] if c["status"] == "ok"
    }  # fmt: skip
    texts = {p.name: p.text for p in load_programs(FIT, DEVELOPMENT)}
    wanted = [r for r in read_rows() if r.launched and r.advised.startswith("triton:")]
    return {
        r.program: Launched("advised", texts[r.program], LEFT_OUT)
        for r in wanted if (r.program, r.advised) not in timed
    }  # fmt: skip
