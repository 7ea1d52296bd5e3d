"""Region texts that several tests read."""

EXAMPLE = """\
x: bf16[8192, 4096]
w: bf16[4096, 16384]
b: bf16[16384]
mask: bf16[8192, 16384]
z = x @ w
z = z + b
z = gelu(z)
y = z * mask
return y
"""

RMS_NORM = """\
x: bf16[4, 2048, 2048]
w: bf16[2048]
h = x.float()
v = h.pow(2).mean(-1, keepdim=True)
r = rsqrt(v + 1e-06).to(bf16)
y = x * r
return y * w
"""

ATTENTION = """\
q: bf16[4, 16, 2048, 128]
k: bf16[4, 16, 2048, 128]
v: bf16[4, 16, 2048, 128]
bias: bf16[16, 2048, 2048]
s = q @ k.transpose(-1, -2) / 11.313708498984761
s = s + bias
p = softmax(s, -1)
return p @ v
"""

LAYER_NORM = """\
x: f32[8192, 1024]
w: f32[1024]
b: f32[1024]
m = x.mean(-1, keepdim=True)
v = ((x - m) ** 2).mean(-1, keepdim=True)
return (x - m) * rsqrt(v + 1e-05) * w + b
"""

CAUSAL = """\
q: bf16[2, 32, 4096, 128]
k: bf16[2, 32, 4096, 128]
v: bf16[2, 32, 4096, 128]
s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
m = torch.ones(s.shape[-2:], dtype=torch.bool).tril()
p = softmax(s.masked_fill(~m, float('-inf')).float(), -1)
return p.to(v.dtype) @ v
"""

GELU_TANH = """\
x: bf16[8192, 1024]
t = 0.7978845608028654 * (x + 0.044715 * pow(x, 3.0))
return 0.5 * x * (1.0 + tanh(t))
"""

SWIGLU = "a: bf16[4096, 14336]\nb: bf16[4096, 14336]\nreturn silu(a) * b\n"

ROPE = """\
x: bf16[4, 32, 2048, 128]
c: bf16[2048, 128]
s: bf16[2048, 128]
return x * c + cat((-x[..., 64:], x[..., :64]), -1) * s
"""

ADAM = """\
p: f32[4096, 4096]
g: f32[4096, 4096]
m: f32[4096, 4096]
v: f32[4096, 4096]
m2 = m * 0.9 + g * 0.1
v2 = v * 0.999 + g * g * 0.001
return p - 0.001 * m2 / (v2.sqrt() + 1e-08), m2, v2
"""
