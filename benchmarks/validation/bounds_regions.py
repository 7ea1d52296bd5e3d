"""Small regions on which right and wrong implementations are told apart (`bounds.py`)."""

from __future__ import annotations

from collections.abc import Mapping

GRAD = ".requires_grad"


def _attention(dtype: str, call: str, grad: str = GRAD, rows: int = 64) -> str:
    inputs = "\n".join(f"{name}: {dtype}[1, 2, {rows}, 32]{grad}" for name in "qkv")
    return f"{inputs}\nreturn {call}"


SDPA = "F.scaled_dot_product_attention(q, k, v, is_causal=True)"
BY_HAND = "softmax(q @ k.transpose(-2, -1) * 0.17677669529663687, -1) @ v"
CAPPED = """s = torch.tanh(q @ k.transpose(-2, -1) * 0.17677669529663687 / 20.0) * 20.0
return softmax(s.float(), -1).to(torch.{torch}) @ v"""
RMS = """h = x.float()
y = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5)
return y.to(torch.{torch}) * w
"""
TORCH = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}
CHAIN = """y = F.gelu(x + b) * x
z = torch.sigmoid(y) * y + x
u = torch.tanh(z * 0.5) + y
return F.silu(u) * z - x * 0.25
"""
LONG_CHAIN = """y = torch.sqrt(x * x + 1.0) / (x.abs() + 0.5)
z = torch.exp(-y) * x + torch.log1p(y)
u = z / torch.sqrt(z * z + y)
v = torch.sin(u) * y + torch.rsqrt(u * u + 0.1)
return v / (1.0 + torch.exp(-v)) - u * 0.5
"""
QUANTISE = """a = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-6)
s = a / {top}
return {cast}, s
"""
PAIRS = """c: {dtype}[32, 32]
s: {dtype}[32, 32]
return x * cat([c, c], dim=-1) + cat([-x[..., 32:], x[..., :32]], dim=-1) * cat([s, s], dim=-1)
"""

REGIONS: Mapping[str, str] = {
    "attention bf16": _attention("bf16", SDPA),
    "attention f16": _attention("f16", SDPA),
    "attention f32": _attention("f32", SDPA),
    "attention forward bf16": _attention("bf16", SDPA, grad=""),
    "attention forward f32": _attention("f32", SDPA, grad=""),
    "attention by hand bf16": _attention("bf16", BY_HAND),
    "attention by hand f32": _attention("f32", BY_HAND, grad=""),
    "attention capped bf16": _attention("bf16", "0").rpartition("return")[0] + CAPPED.format(torch="bfloat16"),
    "softmax bf16": "x: bf16[64, 500].requires_grad\nreturn softmax(x, -1)",
    "softmax f32": "x: f32[64, 500]\nreturn softmax(x, -1)",
    "log_softmax f32": "x: f32[64, 500].requires_grad\nreturn log_softmax(x, -1)",
    "cross entropy bf16": "x: bf16[64, 500].requires_grad\nt: i64[64].below(500)\nreturn F.cross_entropy(x.float(), t)",
    "cross entropy f32": "x: f32[64, 500].requires_grad\nt: i64[64].below(500)\nreturn F.cross_entropy(x, t)",
    "layer norm bf16": "x: bf16[64, 256].requires_grad\nw: bf16[256].requires_grad\nb: bf16[256].requires_grad\n"
    "return F.layer_norm(x, [256], w, b)",
    "layer norm f32": "x: f32[64, 256]\nw: f32[256]\nb: f32[256]\nreturn F.layer_norm(x, [256], w, b)",
    "rms norm bf16": "x: bf16[64, 256].requires_grad\nw: bf16[256].requires_grad\n" + RMS.format(torch="bfloat16"),
    "rms norm f16": "x: f16[64, 256]\nw: f16[256]\n" + RMS.format(torch="float16"),
    "gelu chain bf16": "x: bf16[64, 256]\nb: bf16[256]\n" + CHAIN,
    "gelu chain bf16 training": "x: bf16[64, 256].requires_grad\nb: bf16[256].requires_grad\n" + CHAIN,
    "long chain f32": "x: f32[64, 256]\n" + LONG_CHAIN,
    "swiglu bf16": "a: bf16[64, 256]\nb: bf16[64, 256]\nreturn F.silu(a) * b",
    "swiglu bf16 training": f"a: bf16[64, 256]{GRAD}\nb: bf16[64, 256]{GRAD}\nreturn F.silu(a) * b",
    "geglu bf16 training": f"a: bf16[64, 256]{GRAD}\nb: bf16[64, 256]{GRAD}\nreturn F.gelu(a, approximate='tanh') * b",
    "product bf16": "x: bf16[64, 256]\nw: bf16[256, 96]\nreturn x @ w",
    "product f16": "x: f16[64, 256]\nw: f16[256, 96]\nreturn x @ w",
    "product f32": "x: f32[64, 512]\nw: f32[512, 96]\nreturn x @ w",
    "linear bf16": "x: bf16[64, 128].requires_grad\nw: bf16[96, 128].requires_grad\nb: bf16[96].requires_grad\n"
    "return F.gelu(F.linear(x, w, b))",
    "sum f32": "x: f32[64, 4096]\nreturn x.sum(-1)",
    "columns f32": "x: f32[2048, 48]\nreturn x.sum(0), x.mean(0)",
    "mean of squares bf16": "x: bf16[64, 500]\nreturn (x * x).mean()",
    "largest probability bf16": "x: bf16[64, 500]\nreturn softmax(x, -1).amax()",
    "8 means of squares bf16": "x: bf16[8, 500]\nreturn (x * x).mean(-1)",
    "16 means of squares bf16": "x: bf16[16, 500]\nreturn (x * x).mean(-1)",
    "variance f32": "x: f32[64, 700]\nreturn x.var(-1)",
    "logsumexp f32": "x: f32[64, 700]\nreturn torch.logsumexp(x, -1)",
    "cumsum f32": "x: f32[16, 1024]\nreturn x.cumsum(-1)",
    "cumsum bf16": "x: bf16[16, 512]\nreturn x.float().cumsum(-1).to(torch.bfloat16)",
    "int8 bf16": "x: bf16[64, 256]\n"
    + QUANTISE.format(top="127.0", cast="torch.round(x / s.to(torch.bfloat16)).clamp(-127, 127).to(torch.int8)"),
    "int8 f32": "x: f32[64, 256]\n"
    + QUANTISE.format(top="127.0", cast="torch.round(x / s).clamp(-127, 127).to(torch.int8)"),
    "f8 bf16": "x: bf16[64, 256]\n" + QUANTISE.format(top="448.0", cast="(x.float() / s).to(torch.float8_e4m3fn)"),
    "norm to int8": "x: bf16[64, 256]\nw: bf16[256]\n"
    "h = x.float()\ny = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5) * w\n"
    "return torch.round(y * 40.0).clamp(-127, 127).to(torch.int8)",
    "mask f32": "x: f32[64, 256]\ny: f32[64, 256]\nreturn torch.tanh(x) * x > torch.sigmoid(y)",
    "argmax bf16": "x: bf16[64, 128]\nw: bf16[128, 200]\nreturn (x @ w).argmax(-1)",
    "residual norm bf16": "x: bf16[64, 256]\nr: bf16[64, 256]\nw: bf16[256]\nb: bf16[256]\n"
    "h = x + r\nreturn F.layer_norm(h, [256], w, b), h",
    "rope f32": "x: f32[2, 32, 64]\nc: f32[32, 64]\ns: f32[32, 64]\n"
    "return x * c + cat([-x[..., 32:], x[..., :32]], dim=-1) * s",
    "rope of one angle a pair bf16 training": f"x: bf16[2, 4, 32, 64]{GRAD}\n" + PAIRS.format(dtype="bf16"),
    "rope of one angle a pair f32": "x: f32[2, 4, 32, 64]\n" + PAIRS.format(dtype="f32"),
    "masked softmax bf16": "x: bf16[64, 96]\nm: bool[64, 96].mask(0.7)\n"
    "return softmax(x.float().masked_fill(~m, -1e9), -1).to(torch.bfloat16)",
}
