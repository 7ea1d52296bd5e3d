"""Regions that the cases of the catalogue are made of: each an operation as somebody would write it."""

from __future__ import annotations

MM = "a: bf16[64, 128]\nb: bf16[128, 256]\nreturn a @ b\n"
BMM = "a: bf16[4, 64, 128]\nb: bf16[4, 128, 256]\nreturn torch.bmm(a, b)\n"
LINEAR_RELU = "x: {d}[64, 128]\nw: {d}[128, 256]\nb: {d}[256]\nreturn torch.relu(x @ w + b)\n"
LINEAR_GELU = "x: bf16[64, 128]\nw: bf16[128, 256]\nb: bf16[256]\nreturn F.gelu(x @ w + b)\n"
TAIL = "x: bf16[64, 128]\nw: bf16[128, 256]\nb: bf16[256]\nm: bf16[64, 256]\nreturn silu(x @ w + b) * m\n"
ROW_LSE = "x: bf16[512, 64]\nw: bf16[64, 1024]\nreturn torch.logsumexp((x @ w).float() * 20.0, 1)\n"
MLP = "x: f16[4096, 64]\nw: f16[64, {h}]\nv: f16[{h}, 64]\nreturn torch.relu(x @ w) @ v\n"
FP8 = """a: f8e4m3[64, {k}]
sa: f32[64, 1]
b: f8e4m3[128, {k}]
sb: f32[128, 1]
return ((a.to(f32) * sa) @ (b.to(f32) * sb).t()).to(bf16)
"""
FP8_BLOCKS = """a: f8e4m3[64, 256]
sa: f32[64, 2]
b: f8e4m3[128, 256]
sb: f32[128, 2]
x = (a.to(f32).view(64, 2, 128) * sa[..., None]).view(64, 256)
y = (b.to(f32).view(128, 2, 128) * sb[..., None]).view(128, 256)
return (x @ y.t()).to(bf16)
"""
MX_PRODUCT = "return torch._scaled_mm(a, b.t(), sa, sb, out_dtype=torch.bfloat16)\n"
MXFP8 = f"a: f8e4m3[256, 1024]\nb: f8e4m3[512, 1024]\nsa: f8e8m0[8192]\nsb: f8e8m0[16384]\n{MX_PRODUCT}"
NVFP4 = f"a: f4e2m1x2[256, 512]\nb: f4e2m1x2[512, 512]\nsa: f8e4m3[16384]\nsb: f8e4m3[32768]\n{MX_PRODUCT}"
INT8 = "a: i8[{m}, 256]\nb: i8[128, 256]\ns: f32[()]\nreturn (a.float() @ b.float().t()) * s\n"
INT8_WEIGHT = "x: bf16[{m}, 256]\nw: i8[512, 256]\ns: bf16[512]\nreturn F.linear(x, w.to(bf16)) * s\n"
INT4 = """x: {d}[{m}, 1024]
packed: u8[256, 512]
s: {d}[256, 8]
z: {d}[256, 8]
lo = (packed & 15).to({d})
hi = (packed >> 4).to({d})
q = torch.stack((lo, hi), -1).flatten(1)
q = (q.view(256, -1, 128) - z[..., None]) * s[..., None]
return F.linear(x, q.flatten(1))
"""
EXPERTS = """x: {d}[96, 32]
w: {d}[3, 32, 64]
return torch.cat((x[:32] @ w[0], x[32:64] @ w[1], x[64:] @ w[2]), 0)
"""
MOE = """x: bf16[256, 64]{g}
gate: bf16[{e}, 64, 128]
up: bf16[{e}, 64, 128]
down: bf16[{e}, 128, 64]
ends: i32[{e}].offsets(256)
h = silu(F.grouped_mm(x, gate, offs=ends)) * F.grouped_mm(x, up, offs=ends)
return F.grouped_mm(h, down, offs=ends)
"""
LORA = "x: bf16[64, 1024]\na: bf16[1024, {r}]\nb: bf16[{r}, 1024]\nreturn (x @ a) @ b\n"

ATTENTION = """q: {d}[2, 4, 64, {h}]
k: {d}[2, 4, 64, {h}]
v: {d}[2, 4, 64, {h}]
s = (q @ k.transpose(-1, -2)) * 0.2
return softmax(s, -1) @ v
"""
BIASED = """q: bf16[2, 4, 64, 32]{g}
k: bf16[2, 4, 64, 32]
v: bf16[2, 4, 64, 32]
bias: bf16[64, 64]
s = (q @ k.transpose(-1, -2)) * 0.2 + bias
return softmax(s, -1) @ v
"""
BY_DISTANCE = """q: {d}[2, 4, 48, 32]{g}
k: {d}[2, {kv}, 48, 32]
v: {d}[2, {kv}, 48, 32]
table: {d}[95, 4]{g}
k2 = k.repeat_interleave(4 // {kv}, 1)
v2 = v.repeat_interleave(4 // {kv}, 1)
place = arange(48) - arange(48)[:, None] + 47
s = q @ k2.transpose(-2, -1) * 0.2 + embedding(place, table).permute(2, 0, 1)
return softmax(s, -1) @ v2
"""
GROUPED = """q: {d}[2, 4, 48, 32]{g}
k: {d}[2, 2, 48, 32]{g}
v: {d}[2, 2, 48, 32]{g}
s = q @ k.repeat_interleave(2, 1).transpose(-2, -1) * 0.2
return softmax(s, -1) @ v.repeat_interleave(2, 1)
"""
PACKED = """q: {d}[1, 4, 64, 32]
k: {d}[1, 4, 64, 32]
v: {d}[1, 4, 64, 32]
doc: i64[64].below(8)
same = doc[:, None] == doc[None, :]
s = ((q @ k.transpose(-1, -2)) * 0.2).masked_fill(~same, float("-inf"))
return softmax(s, -1) @ v
"""
PAGED = """q: {d}[8, 4, 64]
kc: {d}[32, 16, 4, 64]
vc: {d}[32, 16, 4, 64]
table: i64[8, 4].below(32)
k = kc[table].flatten(1, 2)
v = vc[table].flatten(1, 2)
s = torch.einsum("bhd,bthd->bht", q, k) * 0.125
return torch.einsum("bht,bthd->bhd", softmax(s, -1), v)
"""
LATENT = """q: bf16[2, 8, 1, 576]
c: bf16[2, 1, 640, 576]
s = (q @ c.transpose(-1, -2)) * 0.04
return softmax(s, -1) @ c[..., :512]
"""
WINDOW = """q: bf16[2, 4, 64, 32]{g}
k: bf16[2, 4, 64, 32]
v: bf16[2, 4, 64, 32]
i = arange(64)
near = (i[:, None] - i[None, :]).abs() < 8
s = torch.where(near, (q @ k.transpose(-1, -2)) * 0.2, float("-inf"))
return softmax(s, -1) @ v
"""
LINEAR_ATTENTION = """S: f32[2, 4, {h}, {h}]
q: f32[2, 4, 4, {h}]
k: f32[2, 4, 4, {h}]
v: f32[2, 4, 4, {h}]
g: f32[2, 4, 4]
out = []
for t in range(4):
    S = S * g[:, :, t, None, None] + k[:, :, t, :, None] * v[:, :, t, None, :]
    out.append((q[:, :, t, :, None] * S).sum(-2))
return stack(out, 2)
"""

LAYER = """x: {d}[64, 128]
w: {w}[128]
b: {w}[128]
h = x.float()
m = h.mean(-1, keepdim=True)
v = ((h - m) ** 2).mean(-1, keepdim=True)
return (((h - m) * torch.rsqrt(v + 1e-5)) * w + b).to({d})
"""
RMS = "x: bf16[64, 128]\nw: {w}[128]\nh = x.float()\nv = h.pow(2).mean(-1, keepdim=True)\n" \
      "return (h * torch.rsqrt(v + 1e-6) * w).to(bf16)\n"  # fmt: skip
ADD_RMS = """x: bf16[64, 128]{g}
r: bf16[64, 128]
w: bf16[128]
s = x + r
v = s.float().pow(2).mean(-1, keepdim=True)
y = (s.float() * torch.rsqrt(v + 1e-6)).to(bf16) * w
return y, s
"""
NORM_QUANT = """x: bf16[64, 128]
w: bf16[128]
s: f32[()]
v = x.float().pow(2).mean(-1, keepdim=True)
y = (x.float() * torch.rsqrt(v + 1e-6)).to(bf16) * w
return (y.float() / s).clamp(-448, 448).to(f8e4m3)
"""
GROUP = "x: f32[8, 64, {n}]\nw: f32[64]\nb: f32[64]\nreturn F.group_norm(x, 16, w, b)\n"
BATCH = "x: {d}[8, 16, 14, 14]\nw: {d}[16]\nb: {d}[16]\nreturn F.batch_norm(x, None, None, w, b, True)\n"
SOFTMAX = "x: f32[{m}, 1024]\nreturn softmax(x, {dim})\n"
MASKED = "x: bf16[64, 128]\nm: bool[64, 128].mask(0.5)\nreturn softmax((x * 0.5).masked_fill(m, -10000.0), {dim})\n"
DROP_NORM = """x: bf16[64, {n}]
r: bf16[64, {n}]
w: bf16[{n}]
b: bf16[{n}]
return F.layer_norm(F.dropout(x, 0.1, True) + r, ({n},), w, b)
"""

LOSS = "x: {d}[64, 1000]\nt: i64[64].below(1000)\nreturn F.cross_entropy(x, t)\n"
LINEAR_LOSS = "x: bf16[64, 256]\nw: bf16[1000, 256]\nt: i64[64].below(1000)\n" \
              "return F.cross_entropy((x @ w.t()).float(), t{more})\n"  # fmt: skip
KL = "x: f32[{s}]\nt: f32[{s}]\nreturn F.kl_div(x, t, reduction='batchmean', log_target=True)\n"
MSE = "x: f32[64, 128]\nt: f32[64, 128]\nreturn F.mse_loss(x, t)\n"

CHAIN = "x: f32[64, 128]\ny: f32[64, 128]\nreturn torch.tanh(x * 2 + y) * y\n"
TANH_GELU = "x: f32[64, 128]\nu = {c} * (x + 0.044715 * x ** 3)\nreturn 0.5 * x * (1 + torch.tanh(u))\n"
GEGLU = "a: bf16[64, 128]\nb: bf16[64, 128]\nreturn gelu(a, approximate='{how}') * b\n"
SWIGLU = "a: bf16[64, 128]{g}\nb: bf16[64, 128]\nreturn silu(a) * b\n"
ROPE = "x: bf16[2, 4, 64, 32]\nc: bf16[64, 32]\ns: bf16[64, 32]\n" \
       "return x * c + torch.cat((-x[..., 16:], x[..., :16]), -1) * s\n"  # fmt: skip
INTERLEAVED = "x: bf16[2, 4, 64, 32]\nc: bf16[64, 16]\ns: bf16[64, 16]\na = x[..., 0::2]\nb = x[..., 1::2]\n" \
              "return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)\n"  # fmt: skip
NORM_ROPE = """x: bf16[2, 4, 64, 32]{g}
w: bf16[32]
c: bf16[64, 32]
s: bf16[64, 32]
v = x.float().pow(2).mean(-1, keepdim=True)
h = (x.float() * torch.rsqrt(v + 1e-6)).to(bf16) * w
return h * c + torch.cat((-h[..., 16:], h[..., :16]), -1) * s
"""
DROPOUT = "x: bf16[64, 128]\nreturn F.dropout(x, 0.1, True){more}\n"
QUANT = "x: bf16[64, 256]\na = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-12)\ns = a / 448.0\n" \
        "return (x.float() / s).clamp(-448, 448).to(f8e4m3), s\n"  # fmt: skip
BLOCK_QUANT = "x: bf16[64, 256]\nh = x.float().view(64, 2, 128)\ns = h.abs().amax(-1, keepdim=True) / {most}\n" \
              "return (h / s).to({to}), s\n"  # fmt: skip

EMBED = "w: f32[1000, 64]\ni: i64[256].below(1000)\nreturn F.embedding(i, w) * 8.0\n"
BAG = "w: {d}[1000, 64]\ni: i64[32, 8].below(1000)\nreturn F.embedding_bag(i, w, mode='sum')\n"
EMBED_BACK = "g: {d}[256, 64]\ni: i64[256].below(1000)\nreturn aten.embedding_dense_backward(g, i, 1000, -1, False)\n"
SCATTER = "x: f32[100, 128]\ni: i64[500].below(100)\ny: f32[500, 128]\nreturn x.index_add(0, i, y)\n"
SEGMENT = "x: f32[100, 64]\no: i64[5].offsets(100)\nreturn torch.segment_reduce(x, 'sum', offsets=o, axis=0)\n"
GATHER = "x: f32[100, 64]\ni: i64[500].below(100)\nreturn x[i] * 2.0\n"
SORT = "x: i8[2, {n}]\ny, i = torch.sort(x, -1)\nreturn y, i\n"
TOPK = "x: f32[4096, 2048]\nv, i = torch.topk(x, {k}, -1)\nreturn v, i\n"
ROUTER = "l: bf16[512, 128]{g}\np = softmax(l.float(), -1)\nw, i = torch.topk(p, 8, -1)\n" \
         "return w / w.sum(-1, keepdim=True)\n"  # fmt: skip
TOP_P = """l: bf16[8, 1000]
p = torch.softmax(l.float(), -1)
s, i = torch.sort(p, -1, descending=True)
c = s.cumsum(-1)
s = torch.where(c - s > 0.9, torch.zeros_like(s), s)
s = s / s.sum(-1, keepdim=True)
return torch.gather(i, 1, torch.multinomial(s, {n}))
"""
CUMPROD = "x: f32[64, 512]{g}\nreturn torch.cumprod(x, 1)\n"
RECURRENCE = """a: f32[4, 8, 16]
b: f32[4, 8, 16]
h = zeros_like(b[:, 0])
o = []
for t in range(8):
    h = a[:, t] * h + b[:, t]
    o.append(h)
return stack(o, 1)
"""
SSM = """x: f32[2, 4, 16]
d: f32[2, 4, 16]
A: f32[16, {n}]
B: f32[2, 4, {n}]
C: f32[2, 4, {n}]
h = torch.zeros(2, 16, {n})
out = []
for t in range(4):
    decay = torch.exp(d[:, t, :, None] * A)
    h = decay * h + (d[:, t] * x[:, t])[..., None] * B[:, t, None, :]
    out.append((h * C[:, t, None, :]).sum(-1))
return stack(out, 1)
"""
CAUSAL = "x: bf16[1, 64, 256]\nw: bf16[64, 1, {w}]\nreturn F.silu(F.conv1d(F.pad(x, ({p}, 0)), w, groups=64))\n"
HISTC = "x: {d}[1000]\nreturn torch.histc(x, 10, 0.0, 1.0)\n"

CONV = "x: bf16[4, 16, 32, 32].channels_last\nw: bf16[32, 16, 3, 3]\nreturn F.conv2d(x, w, padding=1)\n"
DEPTHWISE_1D = "x: f32[4, 16, 64]\nw: f32[16, 1, 3]\nreturn F.conv1d(x, w, groups=16)\n"
DEPTHWISE_2D = "x: f32[4, 16, 64, 64]\nw: f32[16, 1, 3, 3]\nreturn F.conv2d(x, w, groups=16)\n"
POOL = "x: f32[4, 16, 24, 24, 24]\nreturn F.max_pool3d(x, {k})\n"
FFT = "x: f32[64, 256]\nreturn torch.fft.{name}(x).abs()\n"

ADAM = """p: {d}[512, 64]
g: f32[512, 64]
m: f32[512, 64]
v: f32[512, 64]
m2 = m * 0.9 + g * 0.1
v2 = v * 0.999 + g * g * 0.001
p2 = p - 1e-3 * m2 / (v2.sqrt() + 1e-8)
return p2, m2, v2
"""
FOREACH = "a: {d}[64]\nb: {d}[128]\nc: {d}[32, 8]\ne: {d}[16]\nreturn a * 0.5, b * 0.5, c * 0.5, e * 0.5\n"
CACHE = "kc: bf16[1024, 8, 64]{g}\nk: bf16[16, 8, 64]\nslot: i64[16].below(1024)\nreturn kc.index_put((slot,), k)\n"
PERMUTE = "x: bf16[64, 128]{g}\ne: i64[64, 2].below(8)\norder = torch.argsort(e.flatten())\nreturn x[order // 2]\n"
TINY = "{s}x: f32[{n}, 64]\nw: f32[64]\nfor i in range(6):\n    x = torch.tanh(x * w + 0.1)\nreturn x\n"
TWIN_ROPE = "x: bf16[2, 4, 64, 32]\na: bf16[64, 16]\nc = torch.cat((a.cos(), a.cos()), -1)\n" \
            "s = torch.cat((a.sin(), a.sin()), -1)\n" \
            "return x * c + torch.cat((-x[..., 16:], x[..., :16]), -1) * s\n"  # fmt: skip
JAGGED = """v: f32[1000, 32]
off: i64[17].offsets(1000)
n = off[1:] - off[:-1]
seg = torch.repeat_interleave(torch.arange(16), n, output_size=1000)
return torch.zeros(16, 32).index_add(0, seg, v) / n[:, None]
"""
