"""Known regions, each with the kind of match that covers it, and changes that its value does not survive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

QKV = "q: f32[2, 4, 6, 8]\nk: f32[2, 4, 6, 8]\nv: f32[2, 4, 6, 8]\n"
GROUPED = "q: f32[2, 4, 6, 8]\nk: f32[2, 2, 6, 8]\nv: f32[2, 2, 6, 8]\n"
ROWS = "x: f32[3, 4, 8]\nw: f32[8]\nb: f32[8]\n"
SCORES = "s = q @ k.transpose(-1, -2) * 0.35\n"
LOSS = "x: f32[6, 8]\nt: i64[6].below(8)\n"


@dataclass(frozen=True, slots=True)
class Family:
    """A region and the kind of match that covers it. mutants: replacements in its text that change its value. also:
    further kinds of matches that each cover it.
    """

    kind: str
    text: str
    mutants: tuple[tuple[str, str], ...] = ()
    also: tuple[str, ...] = ()


FORMS: Mapping[str, Family] = {
    "rms_norm": Family("rms_norm", ROWS + "y = x * rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3)\nreturn y * w\n", (
        ("rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3)", "(rsqrt(x.pow(2).mean(-1, keepdim=True)) + 1e-3)"),
        ("mean(-1", "mean(1"), ("mean(-1", "sum(-1"), ("pow(2)", "pow(4)"), ("x * rsqrt", "b * rsqrt"),
        ("rsqrt(", "sqrt("), ("+ 1e-3", "- 1e-3"), ("return y * w", "return y * w.sum()"),
    )),
    "layer_norm": Family("layer_norm", ROWS + (
        "m = x.mean(-1, keepdim=True)\nd = x - m\n"
        "y = d * rsqrt((d * d).mean(-1, keepdim=True) + 1e-3)\nreturn y * w + b\n"
    ), (
        ("d * rsqrt", "x * rsqrt"), ("(d * d)", "(x * x)"), ("y * w + b", "(y + b) * w"),
        ("(d * d).mean", "(d * d).sum"),
        ("m = x.mean(-1", "m = x.mean(1"), ("d = x - m", "d = x + m"), ("y * w + b", "y * w - b"),
        ("(d * d).mean(-1", "(d * d).mean(1"),
    )),
    "softmax": Family("softmax", "x: f32[3, 4, 8]\nreturn softmax(x, -1)\n", (
        ("softmax(x, -1)", "exp(x) / exp(x).sum(1, keepdim=True)"),
        ("softmax(x, -1)", "exp(x) / (1 + exp(x).sum(-1, keepdim=True))"),
        ("softmax(x, -1)", "exp(x) / exp(x).mean(-1, keepdim=True)"),
        ("softmax(x, -1)", "exp(x - x.amax(-1, keepdim=True)) / exp(x).sum(-1, keepdim=True)"),
    )),
    "loss_mean": Family("cross_entropy", LOSS + "return F.nll_loss(log_softmax(x, -1), t)\n", (
        ("log_softmax(x, -1)", "log_softmax(x, 0)"), ("log_softmax(x, -1)", "softmax(x, -1)"),
        ("log_softmax(x, -1)", "x"), ("F.nll_loss(log_softmax(x, -1), t)", "log_softmax(x, -1).mean()"),
        ("return F", "return -F"),
    )),
    "loss_rows": Family("cross_entropy", LOSS + (
        "return -log_softmax(x, -1).gather(-1, t.unsqueeze(-1)).squeeze(-1)\n"
    ), (
        ("-log", "log"), ("log_softmax(x, -1)", "log_softmax(x, 0)"), ("-log_softmax(x, -1)", "-x"),
    )),
    "swiglu": Family("swiglu", "a: f32[4, 8]\nb: f32[4, 8]\nreturn silu(a) * b\n", (
        ("silu(a) * b", "a * sigmoid(b) * b"), ("silu(a) * b", "sigmoid(a) * b"), ("silu(a) * b", "silu(a) + b"),
        ("silu(a)", "(a / (1 - exp(-a)))"), ("silu(a)", "(a / (1 + exp(a)))"), ("silu(a)", "(a * sigmoid(2.0 * a))"),
    )),
    "geglu": Family("geglu", "a: f32[4, 8]\nb: f32[4, 8]\nreturn gelu(a) * b\n", (
        ("gelu(a)", "(a * (1 + erf(a * 0.70710678)))"), ("gelu(a)", "(0.5 * a * (1 + erf(a)))"),
        ("gelu(a)", "(0.5 * b * (1 + erf(a * 0.70710678)))"), ("gelu(a)", "(0.5 * a * (1 - erf(a * 0.70710678)))"),
    )),
    "gelu_tanh": Family("gelu_tanh", (
        "x: f32[4, 8]\nreturn 0.5 * x * (1.0 + tanh(0.7978845608 * (x + 0.044715 * x.pow(3))))\n"
    ), (
        ("0.044715", "0.44715"), ("0.5 * x", "x"), ("pow(3)", "pow(2)"), ("1.0 +", "1.0 -"), ("(x + 0.0", "(x - 0.0"),
    )),
    "rope": Family("rope", (
        "x: f32[2, 3, 4, 8]\nc: f32[4, 8]\ns: f32[4, 8]\nreturn x * c + cat((-x[..., 4:], x[..., :4]), -1) * s\n"
    ), (
        ("(-x[..., 4:], x[..., :4])", "(x[..., 4:], -x[..., :4])"), ("(-x[..., 4:], x", "(x[..., 4:], x"),
        ("(-x[..., 4:], x[..., :4])", "(-x[..., :4], x[..., 4:])"), ("* c +", "* c -"), ("x * c", "c"),
        ("(-x[..., 4:], x[..., :4])", "(-x[..., 3:], x[..., :3])"), ("x * c", "x * s"),
    )),
    "attention": Family("attention", QKV + SCORES + "return softmax(s, -1) @ v\n", (
        ("softmax(s, -1)", "softmax(s, -2)"), ("softmax(s, -1)", "sigmoid(s)"), ("return", "s = s / 0\nreturn"),
        ("* 0.35", "* -0.35"), ("softmax(s, -1) @ v", "softmax(s, -1).transpose(-1, -2) @ v"),
        ("k.transpose(-1, -2)", "v.transpose(-1, -2)"), ("* 0.35", "* 0.35 * q.sum()"),
    )),
    "causal": Family("attention", QKV + SCORES + (
        "m = torch.ones(6, 6, dtype=torch.bool).tril()\n"
        "return softmax(s.masked_fill(~m, float('-inf')), -1) @ v\n"
    ), (
        ("~m", "m"), (".tril()", ".triu()"), (".tril()", ".tril(1)"), ("float('-inf')", "0.0"),
        ("float('-inf')", "-1.0"), ("softmax(s.masked_fill(~m, float('-inf')), -1)", "softmax(s, -1)"),
    )),
    "masked": Family("attention", QKV + "m: bool[6, 6]\n" + SCORES + (
        "return softmax(torch.where(m, s, float('-inf')), -1) @ v\n"
    ), (
        ("m, s, float('-inf')", "m, float('-inf'), s"), ("where(m", "where(~m"), ("float('-inf')", "0.0"),
        ("where(m", "where(m.transpose(0, 1)"),
    )),
    "biased": Family("attention", QKV + "e: f32[4, 6, 6]\n" + SCORES + "s = s + e\nreturn softmax(s, -1) @ v\n", (
        ("s + e", "s - e"), ("s + e", "s * e"), ("s + e", "(s + e) * 2.0"), ("s + e", "s + e.transpose(-1, -2)"),
    )),
    "grouped": Family("attention", GROUPED + (
        "k = k.repeat_interleave(2, dim=1)\nv = v.repeat_interleave(2, dim=1)\n"
    ) + SCORES + "return softmax(s, -1) @ v\n", (
        ("k.repeat_interleave(2, dim=1)", "k.repeat(1, 2, 1, 1)"),
        ("v.repeat_interleave(2, dim=1)", "v.repeat(1, 2, 1, 1)"),
        ("k.repeat_interleave(2, dim=1)", "k.flip(1).repeat_interleave(2, dim=1)"),
    )),
}  # fmt: skip

ADDED = "x: f32[3, 4, 8]\nr: f32[3, 4, 8]\nw: f32[8]\ns = x + r\n"
PLANES = "x: f32[2, 8, 6]\ng: f32[8]\nh: f32[8]\n"
TAILED = "z: f32[3, 4, 8]\ne: f32[8]\nkeep: bool[3, 4, 8]\n"
RMS = "y = x * rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3) * w\n"
ROW_SCALE = "s = y.abs().amax(-1, keepdim=True).clamp(min=1e-4) / {most}\n"
CODES = "(y / s).clamp(-448.0, 448.0).to(f8e4m3)"
WHOLE_CODES = "(y / s).round().clamp(-127.0, 127.0).to(i8)"
SPREAD = "m = x.mean(-1, keepdim=True)\nd = x - m\ni = rsqrt((d * d).mean(-1, keepdim=True) + 1e-3)\n"
NORM_MUTANTS = (
    ("pow(2)", "pow(4)"), ("rsqrt(", "sqrt("), ("+ 1e-3", "- 1e-3"), ("mean(-1", "mean(1"), ("mean(-1", "sum(-1"),
)  # fmt: skip
TAIL_MUTANTS = (
    ("* keep", "* ~keep"), ("(z + e)", "(z - e)"), ("* keep", "+ keep.float()"), ("* keep", "* keep.float() * z"),
)  # fmt: skip
SCALE_MUTANTS = (
    (".abs()", ""), ("amax", "amin"), ("y / s", "y * s"), ("amax(-1", "amax(1"),
    (".clamp(min=1e-4)", ".clamp(max=1e-4)"),
)  # fmt: skip
WHOLE_MUTANTS = (*(m for m in SCALE_MUTANTS if m[0] != "amax(-1"), (".round()", ".floor()"))
"""A scale a column is a quantisation as well."""

OPERATIONS: Mapping[str, Family] = {
    "add_rms_norm": Family(
        "triton:add_rms_norm",
        ADDED + "y = s * rsqrt(s.pow(2).mean(-1, keepdim=True) + 1e-3)\nreturn y * w, s\n",
        (*NORM_MUTANTS, ("s * rsqrt", "x * rsqrt"), ("y * w, s", "y * w, x"), ("x + r", "x - r")),
        ("add_rms_norm",),
    ),
    "channel_norm": Family(
        "triton:channel_norm",
        PLANES + "return x * rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-3) * g[:, None]\n",
        (("pow(2)", "pow(4)"), ("rsqrt(", "sqrt("), ("mean(1", "sum(1"), ("+ 1e-3", "- 1e-3")),
    ),
    "group_norm_silu": Family(
        "triton:group_norm_silu", PLANES + "return silu(F.group_norm(x, 4, g, h, 1e-3))\n",
        (("silu(", "sigmoid("), ("silu(", "-silu("), ("silu(", "2.0 * silu("), ("silu(", "x * sigmoid(")),
    ),
    "group_norm_gelu": Family(
        "triton:group_norm_silu", PLANES + "return gelu(F.group_norm(x, 4, g, h, 1e-3))\n",
        (("gelu(", "erf("), ("gelu(", "x * gelu(")),
    ),
    "group_norm_relu": Family(
        "triton:group_norm_silu", PLANES + "return F.relu(F.group_norm(x, 4, g, h, 1e-3))\n",
        (("F.relu(", "-F.relu("), ("F.relu(", "torch.abs("),
         ("F.relu(F.group_norm(x, 4, g, h, 1e-3))", "F.group_norm(x, 4, g, h, 1e-3).clamp(max=0.0)"),
         ("F.relu(F.group_norm(x, 4, g, h, 1e-3))", "F.group_norm(x, 4, g, h, 1e-3).clamp(min=0.1)"),
         ("F.relu(F.group_norm(x, 4, g, h, 1e-3))", "F.group_norm(x, 4, g, h, 1e-3).clamp(min=0.0, max=0.5)")),
    ),
    "batch_norm_activation": Family(
        "triton:batch_norm_activation",
        PLANES + "r: f32[2, 8, 6]\nu: f32[8]\nv: f32[8]\nreturn F.relu(F.batch_norm(x, u, v, g, h, eps=9.0) + r)\n",
        (("+ r", "- r"), ("F.relu(", "sigmoid(")),
    ),
    "tail_gelu": Family(
        "triton:bias_activation_mask", TAILED + "return gelu(z + e) * keep\n", (*TAIL_MUTANTS, ("gelu(", "erf(")),
    ),
    "tail_gelu_tanh": Family(
        "triton:bias_activation_mask", TAILED + "return gelu(z + e, approximate='tanh') * keep\n",
        (("* keep", "* ~keep"), ("z + e", "z - e"), ("* keep", "+ keep.float()")),
    ),
    "tail_silu": Family(
        "triton:bias_activation_mask", TAILED + "return silu(z + e) * keep\n", (*TAIL_MUTANTS, ("silu(", "sigmoid(")),
    ),
    "tail_relu": Family(
        "triton:bias_activation_mask", TAILED + "return F.relu(z + e) * keep\n",
        (*TAIL_MUTANTS, ("F.relu(z + e)", "(z + e).clamp(max=0.0)")),
    ),
    "norm_quantise": Family(
        "triton:norm_quantise", ROWS + RMS + ROW_SCALE.format(most=448.0) + f"return {CODES}, s\n",
        (*NORM_MUTANTS, *SCALE_MUTANTS, ("-448.0", "-44.0"), ("/ 448.0", "/ 44.0"), ("y / s", "x / s")),
    ),
    "norm_quantise_call": Family(
        "triton:norm_quantise",
        PLANES.replace("2, 8, 6", "3, 4, 8") + "y = F.layer_norm(x, (8,), g, h, 1e-3)\n"
        + ROW_SCALE.format(most=448.0) + f"return {CODES}, s\n",
        SCALE_MUTANTS,
    ),
    "norm_quantise_given": Family(
        "triton:norm_quantise",
        "t: f32[()]\n" + ADDED + RMS.replace("x", "s") + f"return {CODES.replace('s)', 't)')}, s\n",
        (*NORM_MUTANTS, ("y / t", "y * t"), ("x + r", "x - r")),
    ),
    "norm_quant_int8": Family(
        "norm_quant", ROWS + RMS + ROW_SCALE.format(most=127.0) + f"return {WHOLE_CODES}, s\n",
        (*NORM_MUTANTS, *WHOLE_MUTANTS),
    ),
    "quantise": Family(
        "quantise", "y: f32[3, 4, 8]\n" + ROW_SCALE.format(most=127.0) + f"return {WHOLE_CODES}, s\n",
        WHOLE_MUTANTS,
    ),
    "layer_norm_backward": Family(
        "triton:layer_norm_backward",
        "x: f32[6, 8]\nl: f32[6, 8]\ng: f32[8]\n" + SPREAD + (
            "n = d * i\nu = l * g\n"
            "o = (u - u.mean(-1, keepdim=True) - n * (u * n).mean(-1, keepdim=True)) * i\n"
            "return o, (l * n).sum(0), l.sum(0)\n"
        ),
        (("n * (u", "n + (u"), ("(l * n)", "(l + n)"), ("- n *", "+ n *"), ("u = l * g", "u = l + g")),
    ),
    "matmul_layer_norm": Family(
        "triton:matmul_layer_norm",
        "a: f32[6, 5]\np: f32[5, 8]\ng: f32[8]\nh: f32[8]\nx = a @ p\n" + SPREAD + "return d * i * g + h\n",
        (("(d * d)", "(x * x)"), ("d = x - m", "d = x + m"), ("* g + h", "* (g + h)")),
    ),
    "fused_mlp": Family(
        "triton:fused_mlp", "x: f32[6, 8]\np: f32[8, 16]\ne: f32[16]\nk: f32[16, 8]\nreturn gelu(x @ p + e) @ k\n",
        (("+ e", "- e"), ("gelu(", "erf(")),
    ),
    "matmul_logsumexp": Family(
        "triton:matmul_logsumexp", "a: f32[6, 5]\np: f32[5, 8]\nreturn torch.logsumexp(a @ p * 0.5, -1)\n",
        (("* 0.5", "+ 0.5"), ("-1", "0")),
    ),
    "matmul_argmin": Family(
        "triton:matmul_argmin",
        "a: f32[6, 5]\nc: f32[7, 5]\n"
        "o = (a * a).sum(-1, keepdim=True) - 2.0 * (a @ c.t()) + (c * c).sum(-1)\nreturn o.argmin(-1)\n",
        (("- 2.0", "+ 2.0"), ("argmin", "argmax"), ("(c * c)", "(c + c)")),
    ),
    "scatter_add": Family(
        "triton:scatter_add",
        "x: f32[6, 8]\ng: f32[9]\ni: i64[9].below(6)\nt: i64[9].below(4)\n"
        "return torch.zeros(4, 8).index_add(0, t, x[i] * g[:, None])\n",
        (("* g", "+ g"),),
    ),
    "jagged_mean": Family(
        "triton:jagged_mean",
        "x: f32[20, 8]\no: i64[5].offsets(20)\nn = o[1:] - o[:-1]\n"
        "t = torch.repeat_interleave(torch.arange(4), n, output_size=20)\n"
        "return torch.zeros(4, 8).index_add(0, t, x) / n[:, None]\n",
        (("/ n", "* n"),),
    ),
    "router": Family(
        "triton:router",
        "x: f32[6, 8]\nu, i = torch.topk(softmax(x, -1), 3, -1)\nreturn u / u.sum(-1, keepdim=True), i\n",
        (("u.sum(-1, keepdim=True)", "u.mean(-1, keepdim=True)"), ("u /", "u *")),
    ),
    "two_axes": Family(
        "triton:two_axis_reduction", "x: f32[6, 8]\nreturn x.sum(0), x.sum(1)\n", (("x.sum(0)", "x.amax(0)"),),
    ),
    "weight_only": Family(
        "triton:weight_only_gemm",
        "x: f32[6, 8]\nk: i8[5, 8]\ns: f32[5]\nreturn x @ ((k.to(f32) - 3.0) * s[:, None]).t()\n",
        (("* s", "+ s"),),
    ),
    "masked_softmax": Family(
        "masked_softmax",
        "x: f32[3, 4, 8]\nm: bool[3, 4, 8]\nreturn softmax(torch.where(m, x, -10000.0), -1)\n",
        (("softmax(", "log_softmax("),),
    ),
    "pair_loss": Family(
        "pair_loss", "x: f32[3, 4, 8]\nl: f32[3, 4, 8]\nreturn (x - l).pow(2).mean()\n",
        (("x - l", "x + l"), ("pow(2)", "pow(4)")),
    ),
    "kl_div": Family(
        "kl_div", "x: f32[6, 8]\nl: f32[6, 8]\nreturn (exp(l) * (l - x)).mean()\n",
        (("l - x", "l + x"), ("exp(l)", "exp(x)")),
    ),
    "group_norm": Family(
        "group_norm",
        PLANES + (
            "y = x.view(2, 4, 12)\nd = y - y.mean(-1, keepdim=True)\n"
            "y = (d * rsqrt(d.pow(2).mean(-1, keepdim=True) + 1e-3)).view(2, 8, 6)\n"
            "return y * g[:, None] + h[:, None]\n"
        ),
        (("d.pow(2)", "d.pow(4)"), ("rsqrt(", "sqrt(")),
    ),
    "batch_norm": Family(
        "batch_norm",
        PLANES + (
            "d = x - x.mean((0, 2), keepdim=True)\n"
            "y = d * rsqrt(d.pow(2).mean((0, 2), keepdim=True) + 1e-3)\nreturn y * g[:, None] + h[:, None]\n"
        ),
        (("d.pow(2)", "d.pow(4)"), ("rsqrt(", "sqrt(")),
    ),
    "adam": Family(
        "optimizer",
        "p: f32[5, 8]\ng: f32[5, 8]\nm: f32[5, 8]\nv: f32[5, 8]\n"
        "n = m * 0.9 + g * 0.1\no = v * 0.999 + g * g * 0.001\n"
        "return p - 0.5 * n / (o.sqrt() + 1e-2), n, o\n",
        (("n / (o", "n * (o"), ("o.sqrt()", "o"), ("g * g", "g")),
    ),
    "causal_conv": Family(
        "causal_conv1d",
        "x: f32[1, 8, 16]\nk: f32[8, 1, 4]\nreturn silu(F.conv1d(F.pad(x, (3, 0)), k, groups=8))\n",
        (("silu(", "sigmoid("), ("(3, 0)", "(0, 3)")),
    ),
    "gemm_tail": Family(
        "gemm_tail",
        "x: f32[6, 5]\np: f32[5, 8]\ne: f32[8]\nl: f32[6, 8]\nr: f32[6, 8]\nreturn silu(x @ p + e) * l + r\n",
        (("silu(", "sigmoid("), ("x @ p + e", "(x @ p - e)"), ("+ r", "- r")),
    ),
    "gemm_activation": Family(
        "gemm_activation", "x: f32[6, 5]\np: f32[5, 8]\ne: f32[8]\nreturn F.relu(x @ p + e)\n",
        (("F.relu(", "sigmoid("),),
    ),
    "linear_loss": Family(
        "triton:linear_cross_entropy",
        "x: f32[6, 5]\np: f32[8, 5]\nt: i64[6].below(8)\nreturn F.cross_entropy(x @ p.t(), t)\n",
        (("p.t(), t", "p.t() * 2.0, t"),),
    ),
    "rope_interleaved": Family(
        "rope",
        "x: f32[2, 3, 4, 8]\nc: f32[4, 4]\ns: f32[4, 4]\na = x[..., 0::2]\nb = x[..., 1::2]\n"
        "return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)\n",
        (("a * c - b * s", "a * c + b * s"), ("a * s + b * c", "a * s - b * c")),
    ),
}  # fmt: skip
"""What this project's own kernels and the libraries' calls compute, beside the forms that profiler alone knows."""

FAMILIES: Mapping[str, Family] = {**FORMS, **OPERATIONS}
