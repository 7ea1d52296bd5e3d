"""The operations of the published table of kernels and libraries, in the region language."""

from __future__ import annotations

RMS = (
    "v = {s}.float().pow(2).mean(-1, keepdim=True)\n"
    "y = ({s}.float() * torch.rsqrt(v + 1e-6)).to(bf16) * w\n"
)  # fmt: skip
PEERS = {
    "rmsnorm_fwd": "x: bf16[{m}, {n}]\nw: bf16[{n}]\n" + RMS.format(s="x") + "return y\n",
    "add_rmsnorm_fwd": "x: bf16[{m}, {n}]\nr: bf16[{m}, {n}]\nw: bf16[{n}]\nh = x + r\n"
    + RMS.format(s="h")
    + "return y, h\n",
    "layernorm_fwd": "x: bf16[{m}, {n}]\nw: bf16[{n}]\nb: bf16[{n}]\ny = F.layer_norm(x, ({n},), w, b)\nreturn y\n",
    "softmax_fwd": "x: bf16[{m}, {n}]\ny = F.softmax(x, -1)\nreturn y\n",
    "cross_entropy_fwd": "x: bf16[{m}, {n}]\nt: i64[{m}].below({n})\ny = F.cross_entropy(x, t)\nreturn y\n",
    "swiglu_fwd": "a: bf16[{m}, {n}]\nb: bf16[{m}, {n}]\ny = F.silu(a) * b\nreturn y\n",
    "mm": "a: bf16[{m}, {k}]\nb: bf16[{k}, {n}]\ny = a @ b\nreturn y\n",
    "mm_bias_gelu_mask": (
        "x: bf16[{m}, {k}]\nw: bf16[{k}, {n}]\nb: bf16[{n}]\nk: bf16[{m}, {n}]\ny = F.gelu(x @ w + b) * k\nreturn y\n"
    ),
    "tail_bias_gelu_mask": "z: bf16[{m}, {n}]\nb: bf16[{n}]\nk: bf16[{m}, {n}]\ny = F.gelu(z + b) * k\nreturn y\n",
    "cumsum_fp32": "x: f32[{m}, {n}]\ny = x.cumsum(-1)\nreturn y\n",
    "two_axis_reduce": "x: f32[{m}, {n}]\nreturn x.sum(0), x.sum(1)\n",
    "topk64": "x: f32[{m}, {n}]\ny, i = torch.topk(x, 64, -1)\nreturn y, i\n",
    "attn_causal_fwd": "q: bf16[4, 32, 4096, 128]\nk: bf16[4, 32, 4096, 128]\nv: bf16[4, 32, 4096, 128]\n"
    "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)\nreturn y\n",
}
"""The peers' operations in the region language, by the table's `op`."""
