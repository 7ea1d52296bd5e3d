"""A region with gradients for each kernel that has a backward, as text: what it is a candidate in."""

from __future__ import annotations

HEADS = "q: f32[1, 4, 40, 16]\nk: f32[1, 4, 40, 16]\nv: f32[1, 4, 40, 16]\n"
TRAINED_HEADS = HEADS.replace("]\n", "].requires_grad\n")
TABLE = "t: f32[12, 16].requires_grad\ni: i64[40].below(12)\no: i64[6].offsets(40)\n"
PLANES = "x: f32[2, 4, 18, 18].requires_grad\n"
RAGGED = "v: f32[40, 8].requires_grad\no: i64[4].offsets(40)\n"
TRAINED = {
    "rms_norm by hand": (
        "triton:rms_norm",
        "x: f32[16, 128].requires_grad\nw: f32[128].requires_grad\nv = x.pow(2).mean(-1, keepdim=True)\n"
        "y = x * torch.rsqrt(v + 1e-6) * w\nreturn y\n",
    ),
    "two norms with a product between": (
        "triton:rms_norm",
        "x: f32[16, 64].requires_grad\nw: f32[64].requires_grad\nw2: f32[64].requires_grad\n"
        "m: f32[64, 64].requires_grad\ny = F.rms_norm(x, (64,), w, 1e-6)\nz = y @ m\n"
        "q = F.rms_norm(z, (64,), w2, 1e-6)\nreturn q\n",
    ),
    "layer_norm and gelu": (
        "triton:layer_norm",
        "x: f32[16, 128].requires_grad\nw: f32[128].requires_grad\nb: f32[128].requires_grad\n"
        "y = F.layer_norm(x, (128,), w, b, 1e-5)\nz = gelu(y)\nreturn z\n",
    ),
    "softmax of scores": (
        "triton:softmax",
        "x: f32[6, 200].requires_grad\ns = x * 0.5\ny = torch.softmax(s, -1)\nreturn y\n",
    ),
    "swiglu": (
        "triton:gated_activation",
        "a: f32[16, 64].requires_grad\nb: f32[16, 64].requires_grad\ny = silu(a) * b\nreturn y\n",
    ),
    "cross entropy": (
        "triton:cross_entropy",
        "x: f32[16, 300].requires_grad\nt: i64[16].below(300)\ny = F.cross_entropy(x, t)\nreturn y\n",
    ),
    "rope": (
        "triton:rope",
        "q: f32[2, 4, 8, 16].requires_grad\nc: f32[8, 16]\ns: f32[8, 16]\n"
        "y = q * c + cat([-q[..., 8:], q[..., :8]], -1) * s\nreturn y\n",
    ),
    "attention": (
        "triton:flash_attention",
        TRAINED_HEADS + "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)\nz = y * 2\nreturn z\n",
    ),
    "attention with a soft cap in a window": (
        "triton:banded_attention",
        TRAINED_HEADS + "i = torch.arange(40)\nd = i[:, None] - i[None, :]\n"
        "s = torch.tanh(q @ k.transpose(-2, -1) * 0.25 / 5.0) * 5.0\n"
        "s = s.masked_fill((d < 0) | (d >= 12), float('-inf'))\ny = torch.softmax(s, -1) @ v\nz = y * 2\nreturn z\n",
    ),
    "bags": ("triton:embedding_bag", TABLE + "return F.embedding_bag(i, t, o, include_last_offset=True)\n"),
    "bags of weighted rows": (
        "triton:embedding_bag",
        TABLE + "w: f32[40].requires_grad\ny = F.embedding_bag(i, t, o, mode='sum', per_sample_weights=w)\n"
        "return relu(y)\n",
    ),
    "the largest of bags before a product": (
        "triton:embedding_bag",
        TABLE + "w: f32[16, 8].requires_grad\n"
        "y = F.embedding_bag(i, t, o, mode='max', include_last_offset=True)\nreturn y @ w\n",
    ),
    "pools in a block": (
        "triton:max_pool",
        PLANES + "y = F.max_pool2d(F.max_pool2d(relu(x), 3, 2, 1), 2)\nreturn y * 2\n",
    ),
    "a pool along time": ("triton:max_pool", "x: f32[2, 4, 18].requires_grad\nreturn F.max_pool1d(x, 3, 2, 1)\n"),
    "averages in a block": (
        "triton:average_pool",
        PLANES + "y = F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)\nreturn y * y\n",
    ),
    "sums of segments": (
        "triton:segment_reduce",
        RAGGED + "y = torch.segment_reduce(v * v, 'sum', offsets=o, axis=0)\nreturn y + 1.0\n",
    ),
    "the largest of segments": ("triton:segment_reduce", RAGGED + "return torch.segment_reduce(v, 'max', offsets=o)\n"),
    "a recurrence of gates": (
        "triton:linear_recurrence",
        "a: f32[2, 9, 16].requires_grad\nb: f32[2, 9, 16].requires_grad\ng = sigmoid(a)\nh = b[:, 0]\ns = [h]\n"
        "for t in range(1, 9):\n    h = g[:, t] * h + b[:, t]\n    s.append(h)\nreturn torch.stack(s, 1) * a\n",
    ),
    "grouped products": (
        "triton:grouped_gemm",
        "x: f32[40, 16].requires_grad\nw: f32[3, 16, 24].requires_grad\no: i32[3].offsets(40)\n"
        "y = F.grouped_mm(x, w, offs=o)\nreturn silu(y)\n",
    ),
    "dropout": ("triton:dropout", "x: f32[64, 96].requires_grad\ny = F.dropout(x, 0.25)\nreturn y * 3.0\n"),
    "cross entropy of a linear layer": (
        "triton:linear_cross_entropy",
        "x: f32[16, 24].requires_grad\nw: f32[70, 24].requires_grad\nt: i64[16].below(70)\n"
        "return F.cross_entropy(F.linear(x, w), t)\n",
    ),
    "causal convolution in a block": (
        "triton:causal_conv1d",
        "h: f32[2, 20, 6].requires_grad\nw: f32[6, 1, 4].requires_grad\nb: f32[6].requires_grad\n"
        "x = h.transpose(1, 2)\ny = silu(F.conv1d(x, w, b, padding=3, groups=6)[..., :20])\n"
        "z = y.transpose(1, 2) * h\nreturn z\n",
    ),
}
"""In words -> the candidate, and a region that it takes, or a part of."""
