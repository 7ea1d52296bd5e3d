"""Regions that have a Helion source, small: of each form, with every kind of operand."""

from __future__ import annotations

from collections.abc import Mapping

REGIONS: Mapping[str, str] = {
    "gelu chain": "x: bf16[64, 96]\nb: bf16[96]\nm: bf16[64, 96]\nreturn gelu(x + b) * m\n",
    "swiglu": "a: bf16[2, 32, 96]\nb: bf16[2, 32, 96]\nreturn silu(a) * b\n",
    "scale rows": "x: bf16[64, 96]\ns: f32[64, 1]\nreturn (x.float() * s).clamp(-4.0, 4.0).to(bf16)\n",
    "softmax": "x: bf16[64, 100]\nreturn softmax(x.float(), -1).to(bf16)\n",
    "log softmax": "x: f32[64, 100]\nreturn log_softmax(x, -1)\n",
    "rms": "x: bf16[2, 32, 96]\nw: bf16[96]\nreturn rms_norm(x, (96,), w, 1e-6)\n",
    "rms hand": "x: bf16[64, 96]\nw: bf16[96]\n"
    "h = x.float()\nh = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)\nreturn h.to(bf16) * w\n",
    "layer": "x: bf16[64, 96]\nw: bf16[96]\nb: bf16[96]\nreturn layer_norm(x, (96,), w, b)\n",
    "add rms": "x: bf16[64, 96]\nr: bf16[64, 96]\nw: bf16[96]\nh = x + r\nreturn rms_norm(h, (96,), w, 1e-6), h\n",
    "lin gelu": "x: bf16[64, 96]\nw: bf16[48, 96]\nb: bf16[48]\nreturn gelu(F.linear(x, w, b), approximate='tanh')\n",
    "s0": "x: bf16[64, 96]\nw: bf16[96, 48]\nb: bf16[48]\nmask: bf16[64, 48]\n"
    "z = x @ w\nz = z + b\nz = gelu(z)\nreturn z * mask\n",
    "lin3": "x: bf16[2, 32, 96]\nw: bf16[48, 96]\nr: bf16[2, 32, 48]\nreturn relu(F.linear(x, w)) + r\n",
    "sum": "x: bf16[64, 96]\ny: bf16[64, 96]\nreturn (x.float() * y.float()).sum(-1)\n",
    "quant": "x: bf16[64, 96]\n"
    "s = x.float().abs().amax(-1, keepdim=True) / 448.0\nreturn (x.float() / s).to(bf16), s\n",
    "l2": "x: bf16[64, 96]\nreturn x / x.pow(2).sum(-1, keepdim=True).sqrt()\n",
    "masked softmax": "x: bf16[4, 16, 100]\n"
    "mask: bool[4, 16, 100].mask(0.5)\nreturn softmax(x.float().masked_fill(mask, -10000.0) * 0.125, -1).to(bf16)\n",
    "entropy": "x: bf16[64, 100]\np = softmax(x.float(), -1)\nreturn -(p * torch.log(p + 1e-9)).sum(-1)\n",
    "1d": "x: f32[5000]\ny: f32[5000]\nreturn torch.tanh(x) * y + 1.0\n",
    "geglu": "a: bf16[64, 96]\nb: bf16[64, 96]\nreturn gelu(a, approximate='tanh') * b\n",
    "lerp2": "x: f32[64, 96]\ny: f32[64, 96]\ng = torch.sigmoid(x)\nreturn g * x + (1 - g) * y, g\n",
    "std": "x: f32[64, 96]\nreturn (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt()\n",
    "f32mm": "x: f32[64, 96]\nw: f32[96, 48]\nreturn torch.sigmoid(x @ w) * 2\n",
    "factor twice": "a: bf16[64, 64]\nreturn a @ a + a\n",
    "factor added": "x: bf16[64, 48]\nw: bf16[48, 48]\nreturn x + F.relu(x @ w)\n",
    "factor as bias": "x: f32[64, 64]\nw: f32[64, 64]\nreturn F.relu(torch.addmm(w, x, w.t()))\n",
    "rounds to f8": "x: bf16[64, 96]\n"
    "a = x.float().abs().amax(-1, keepdim=True) / 448.0\nreturn (x.float() / a).to(f8e4m3).to(bf16).float() * a\n",
    "rounding error": "x: f32[64, 96]\nreturn (x - x.to(bf16).float()) * 256.0\n",
    "f16 and back": "x: f32[64, 96]\nreturn (x - x.to(f16).to(f32)) * 4096.0, x.to(f16)\n",
    "not": "x: bool[64, 96].mask(0.5)\nreturn (~x).to(i32).to(f32) * 2\n",
    "negative": "x: i32[64, 96].below(9)\nreturn (-x).to(f32) * 0.5\n",
    "softplus": "x: f32[64, 96]\nreturn F.softplus(x, 3.0, 0.5) + F.softplus(x)\n",
    "clamp to tensors": "x: f32[64, 96]\na: f32[96]\nb: f32[64, 1]\n"
    "return torch.clamp(x, min=a) - torch.clamp(x, min=a, max=b) * 2\n",
    "clamp to a mean": "x: f32[64, 96]\nreturn torch.clamp(x, max=x.mean(-1, keepdim=True)).clamp_min(-0.5)\n",
    "and of flags": "x: f32[64, 96]\ny: f32[64, 96]\nreturn torch.where(torch.logical_and(x > 0.1, y > x), x, y)\n",
    "called out": "out: f32[64, 128]\nreturn out - out.mean(-1, keepdim=True), out.sum(-1)\n",
}
