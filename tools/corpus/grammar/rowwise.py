"""Norms over various axes, reductions, losses and scans."""

from __future__ import annotations

from tools.corpus.grammar.dense import activation, batch_norm, dropout, group_norm, instance_norm, residual, scale
from tools.corpus.grammar.draft import Draft, Stage, Value

ROWS = (  # rows, columns: tokens by width, few long rows, many short ones
    (512, 768), (2048, 1024), (4096, 2048), (8192, 4096), (16384, 768), (16384, 4096), (65536, 256), (262144, 96),
    (1048576, 32), (64, 50257), (2048, 32000), (1024, 128256), (4096, 50304), (16, 1048576), (4, 4194304), (197, 1152),
    (401408, 96), (25088, 384), (3000, 1280), (100352, 192), (8, 262144),
)  # fmt: skip
WIDE = tuple(r for r in ROWS if r[0] * r[1] >= 2**16 and r[1] <= 8192)
FIELDS = (  # images and sequences whose first axes are reduced
    (32, 64, 112, 112), (64, 256, 56, 56), (16, 512, 28, 28), (8, 3, 512, 512), (4, 320, 64, 64), (16, 1024, 768),
    (8, 2048, 1024), (64, 197, 768), (128, 2048, 7, 7), (2, 128, 256, 256), (4, 64, 16, 56, 56),
)  # fmt: skip


def _statistics(d: Draft, x: Value, axes: str) -> Value:
    """A norm written by hand over these axes: root of mean squares, or mean and variance."""
    f = x if d.dtype == "f32" else d.let(f"{x}.float()", x.shape, "f")
    if d.chance(0.4):
        n = d.let(f"{f} * rsqrt({f}.square().mean({axes}, keepdim=True) + 1e-6)", x.shape, "n")
    else:
        c = d.let(f"{f} - {f}.mean({axes}, keepdim=True)", x.shape, "c")
        var = d.pick(f"{c}.square().mean({axes}, keepdim=True)", f"{f}.var({axes}, unbiased=False, keepdim=True)")
        n = d.let(f"{c} {d.pick('* rsqrt', '/ sqrt')}({var} + 1e-5)", x.shape, "n")
    return n if d.dtype == "f32" else d.let(f"{n}.to({d.dtype})", x.shape, "n")


def modulate(d: Draft, x: Value) -> Value:
    """The scale and shift of adaptive norms."""
    extra = x.shape[0], *[1] * (len(x.shape) - 2), x.shape[-1]
    gain, shift = d.input("gain", *extra), d.input("shift", *extra)
    return d.let(f"{x} * (1.0 + {gain}) + {shift}", x.shape)


def gate(d: Draft, x: Value) -> Value:
    """Gated by another tensor."""
    return d.let(f"{x} * {d.pick('silu', 'sigmoid')}({d.input('gate', *x.shape)})", x.shape)


def quantise_rows(d: Draft, x: Value) -> Value:
    """To 8 bits by each row's largest value, where no gradient is asked for."""
    if d.training:
        return x
    s = d.let(f"{x}.abs().amax(-1, keepdim=True).float() / 127.0", (*x.shape[:-1], 1), "s")
    return d.let(f"({x} / {s}).round().clamp(-128, 127).to(i8)", x.shape, "y")


def fp8_rows(d: Draft, x: Value) -> Value:
    """To 8-bit floats by each row's largest value, where no gradient is asked for."""
    if d.training:
        return x
    s = d.let(f"{x}.abs().amax(-1, keepdim=True).float().clamp(min=1e-12) / 448.0", (*x.shape[:-1], 1), "s")
    return d.let(f"({x} / {s}).clamp(-448.0, 448.0).to(f8e4m3)", x.shape, "y")


BEFORE: tuple[Stage, ...] = (residual, dropout, activation, scale)
BEHIND: tuple[Stage, ...] = (activation, modulate, gate, dropout, residual)


def norm(d: Draft) -> str:
    """A norm or softmax over some axes, by call or by hand, with stages before and behind."""
    form = d.pick("layer", "layer", "rms", "rms", "by_hand", "group", "instance", "batch", "softmax", "l2", "channel")
    if form in ("group", "instance", "batch", "channel"):
        x = d.input("x", *d.pick(*[f for f in FIELDS if len(f) > 3 and f[1] > 3]))
        if form == "channel":
            x = _statistics(d, x, "1")
            ones = ", ".join(["None"] * (len(x.shape) - 2))
            x = d.let(f"{x} * {d.input('g', x.shape[1])}[:, {ones}]", x.shape)
        else:
            x = {"group": group_norm, "instance": instance_norm, "batch": batch_norm}[form](d, x)
        for stage in d.some((activation, residual, dropout), 2):
            x = stage(d, x)
        return d.text(x)
    x = d.input("x", *d.pick(*WIDE) if d.chance(0.7) else d.pick(*ROWS))
    for stage in d.some(BEFORE, d.pick(0, 1, 2)):
        x = stage(d, x)
    kept = [x] if len(d.lines) and d.chance(0.4) else []
    w = x.width
    if form == "layer":
        bias = f", {d.input('b', w)}" if d.chance(0.5) else ""
        x = d.let(f"layer_norm({x}, [{w}], {d.input('g', w)}{bias})", x.shape)
    elif form == "rms":
        x = d.let(f"rms_norm({x}, [{w}], {d.input('g', w)}, 1e-6)", x.shape)
    elif form == "by_hand":
        n = _statistics(d, x, "-1")
        x = d.let(f"{n} * {d.input('g', w)}" + (f" + {d.input('b', w)}" if d.chance(0.5) else ""), x.shape)
    elif form == "l2":
        x = d.let(d.pick(
            f"normalize({x}, dim=-1)", f"{x} / {x}.norm(dim=-1, keepdim=True).clamp(min=1e-12)",
        ), x.shape)  # fmt: skip
    else:
        form = d.pick(
            f"softmax({x}, -1)", f"log_softmax({x}, -1)", f"softmax({x}.float() * 0.125, -1).to({d.dtype})",
            f"softmax({x}, 0)", "by hand",
        )  # fmt: skip
        if form == "by hand":
            e = d.let(f"exp({x} - {x}.amax(-1, keepdim=True))", x.shape, "e")
            form = f"{e} / {e}.sum(-1, keepdim=True)"
        x = d.let(form, x.shape)
    behind = BEHIND if len(x.shape) > 2 else (activation, gate, dropout, residual)
    for stage in d.some((*behind, quantise_rows, fp8_rows), d.pick(0, 1, 2)):
        x = stage(d, x)
        if x.name.startswith("y"):
            break
    return d.text(x, *kept)


def reduction(d: Draft) -> str:
    """Sums, or a loss."""
    return _loss(d) if d.chance(0.45) else _sums(d)


def _sums(d: Draft) -> str:
    """Over the last axis, over others, over everything; of one tensor or of two."""
    shape = d.pick(*FIELDS) if d.chance(0.5) else d.pick(*ROWS)
    x = d.input("x", *shape)
    rank = len(shape)
    if d.chance(0.5):
        x = d.let(d.pick("{0}.square()", "{0}.abs()", "exp({0})", "{0} * 0.5 + 1.0", "relu({0})").format(x), shape)
    if d.chance(0.25):
        x = d.let(f"{x} * {d.input('y', *shape)}", shape)
    axes = d.pick(
        "-1", "-1", "0", "(0, 1)" if rank == 2 else f"({', '.join(map(str, [0, *range(2, rank)]))})",
        "1", f"({rank - 2}, {rank - 1})",
    )  # fmt: skip
    what = d.pick("sum", "sum", "mean", "amax", "var", "logsumexp", "norm", "argmax", "prod_like", "two")
    if what == "norm":
        z = d.let(f"{x}.square().sum({axes}).sqrt()", (1, 1))
    elif what == "logsumexp":
        z = d.let(f"logsumexp({x}, {axes})", (1, 1))
    elif what == "argmax" and not d.training:
        z = d.let(f"argmax({x}, {d.pick('-1', '1', '0')})", (1, 1))
    elif what == "two":
        a, b = d.let(f"{x}.mean({axes})", (1, 1), "m"), d.let(f"{x}.square().mean({axes})", (1, 1), "s")
        return d.text(a, b)
    elif what == "prod_like":
        z = d.let(f"log(softplus({x}) + 1e-6).sum({axes})", (1, 1))
    else:
        z = d.let(f"{x}.{'sum' if what == 'argmax' else what}({axes})", (1, 1))
    if d.chance(0.3) and what not in ("argmax", "two"):
        z = d.let(d.pick(f"sqrt({z}.abs() + 1e-8)", f"tanh({z})", f"{z} * 0.1", f"sigmoid({z})"), (1, 1))
    return d.text(z)


CLASSES = (
    (16384, 1000),
    (4096, 32000),
    (2048, 50257),
    (8192, 128256),
    (512, 21841),
    (65536, 150),
    (32768, 10),
    (1024, 152064),
)


def _loss(d: Draft) -> str:
    form = d.pick(
        "cross_entropy", "cross_entropy", "nll", "smoothed", "focal", "mse", "huber", "l1", "kl", "bce", "bce_logits",
        "triplet", "cosine", "contrastive", "dice", "pixels", "distill", "gaussian", "margin", "z_loss",
    )  # fmt: skip
    n, c = d.pick(*CLASSES)
    full = d.pick(*[r for r in ROWS if r[0] > 16])

    def logits() -> tuple[Value, Value]:
        return d.input("x", n, c), d.input("target", n, dtype="i64", suffix=f".below({c})")

    def two() -> tuple[Value, Value]:
        return d.input("x", *full), d.input("y", *full, grad=False)

    if form in ("cross_entropy", "smoothed"):
        x, t = logits()
        smooth = ", label_smoothing=0.1" if form == "smoothed" else ""
        up = d.pick("", ".float()")
        z = d.let(f"cross_entropy({x}{up}, {t}{smooth})", ())
    elif form == "nll":
        x, t = logits()
        z = d.let(f"nll_loss(log_softmax({x}{d.pick('', '.float()')}, -1), {t})", ())
    elif form == "z_loss":
        x, t = logits()
        e = d.let(f"logsumexp({x}.float(), -1)", (n,), "e")
        picked = d.let(f"{x}.gather(1, {t}[:, None]).squeeze(1).float()", (n,), "picked")
        z = d.let(f"({e} - {picked}).mean() + 1e-4 * {e}.square().mean()", ())
    elif form == "focal":
        x, t = logits()
        p = d.let(f"log_softmax({x}.float(), -1).gather(1, {t}[:, None])", (n, 1), "p")
        z = d.let(f"(-((1.0 - exp({p})) * (1.0 - exp({p}))) * {p}).mean()", ())
    elif form == "pixels":
        x = d.input("x", 4, 150, 256, 256)
        t = d.input("target", 4, 256, 256, dtype="i64", suffix=".below(150)")
        z = d.let(f"cross_entropy({x}, {t})", ())
    elif form in ("kl", "distill"):
        x, y = d.input("x", n, c), d.input("y", n, c, grad=False)
        if form == "kl":
            z = d.let(f"kl_div(log_softmax({x}, -1), softmax({y}, -1), reduction='batchmean')", ())
        else:
            p, q = (
                d.let(f"log_softmax({x} / 2.0, -1)", x.shape, "p"),
                d.let(f"log_softmax({y} / 2.0, -1)", x.shape, "q"),
            )
            z = d.let(f"(exp({q}) * ({q} - {p})).sum(-1).mean() * 4.0", ())
    elif form == "bce_logits":
        x, y = two()
        z = d.let(f"binary_cross_entropy_with_logits({x}, {y})", ())
    elif form == "bce":
        x, y = two()
        z = d.let(f"binary_cross_entropy(sigmoid({x}.float()), sigmoid({y}.float()))", ())
    elif form in ("triplet", "margin"):
        rows = d.pick((4096, 512), (16384, 256), (65536, 128))
        a, p, q = (d.input(name, *rows) for name in ("a", "p", "q"))
        if form == "triplet":
            z = d.let(f"triplet_margin_loss({a}, {p}, {q}, margin=0.3)", ())
        else:
            z = d.let(f"relu(({a} - {p}).square().sum(-1) - ({a} - {q}).square().sum(-1) + 0.2).mean()", ())
    elif form == "cosine":
        x, y = two()
        z = d.let(f"(1.0 - cosine_similarity({x}, {y}, dim=-1)).mean()", ())
    elif form == "contrastive":
        n, w = d.pick((2048, 512), (4096, 256), (8192, 128))
        a, b = d.input("a", n, w), d.input("b", n, w)
        s = d.let(f"normalize({a}, dim=-1) @ normalize({b}, dim=-1).t() / 0.07", (n, n), "s")
        z = d.let(f"cross_entropy({s}, arange({n}))", ())
    elif form == "dice":
        x, y = d.input("x", 8, 21, 256, 256), d.input("y", 8, 21, 256, 256, grad=False)
        p = d.let(f"softmax({x}, 1)", (8, 21, 256, 256), "p")
        z = d.let(f"1.0 - (2.0 * ({p} * {y}).sum((0, 2, 3)) / ({p} + {y}).sum((0, 2, 3))).mean()", ())
    elif form == "gaussian":
        x, y = two()
        s = d.input("s", *full)
        z = d.let(f"(0.5 * ({s} + ({x} - {y}).square() * exp(-{s}))).mean()", ())
    else:
        x, y = two()
        call = {"mse": "mse_loss", "huber": "smooth_l1_loss", "l1": "l1_loss"}[form]
        z = d.let(f"{call}({x}, {y})" if d.chance(0.6) else f"{call}({x}, {y}, reduction='none').mean(-1)", ())
    return d.text(z)


def scan(d: Draft) -> str:
    """Cumulative operations, sorts and recurrences."""
    form = d.pick(
        "cumsum", "cumsum", "cumprod", "logcumsumexp", "cummax", "sort", "topk", "argsort", "recurrence", "gated",
        "discount", "rays", "nucleus", "router", "median", "segments",
    )  # fmt: skip
    n, c = d.pick((4096, 2048), (64, 65536), (16384, 512), (8, 1048576), (32768, 128), (2048, 32000), (512, 4096))
    if form in ("recurrence", "gated"):
        return _recurrence(d, form)
    if form == "rays":
        s = d.input("s", 65536, d.pick(64, 128, 192))
        a = d.let(f"1.0 - exp(-relu({s}) * 0.01)", s.shape, "a")
        t = d.let(f"cumprod(1.0 - {a} + 1e-10, -1)", s.shape, "t")
        colour = d.input("colour", *s.shape, 3)
        return d.text(d.let(f"(({a} * {t})[..., None] * {colour}).sum(1)", (65536, 3)))
    if form == "discount":
        r = d.input("r", d.pick(256, 1024), d.pick(1024, 4096), dtype="f32")
        p = d.let(f"0.99 ** arange({r.width})", (r.width,), "p")
        return d.text(d.let(f"({r} * {p}).flip(-1).cumsum(-1).flip(-1) / {p}", r.shape))
    if form == "router":
        experts, k = d.pick((8, 2), (64, 8), (128, 8))
        x = d.input("x", d.pick(4096, 16384, 65536), experts)
        p = d.let(f"softmax({x}.float(), -1)", x.shape, "p")
        w, i = d.name("w"), d.name("i")
        d.line(f"{w}, {i} = topk({p}, {k}, -1)")
        z = d.let(f"{w} / {w}.sum(-1, keepdim=True)", (x.shape[0], k))
        return d.text(z) if d.training else d.text(z, Value(i, (x.shape[0], k)))
    if form == "nucleus":
        x = d.input("x", d.pick(16, 64, 256), d.pick(32000, 50257, 128256), grad=False)
        v, i = d.name("v"), d.name("i")
        d.line(f"{v}, {i} = sort(softmax({x}.float(), -1), -1, descending=True)")
        drop = d.let(f"cumsum({v}, -1) - {v} > 0.9", x.shape, "drop")
        z = d.let(f"{v}.masked_fill({drop}, 0.0)", x.shape)
        return d.text(d.let(f"{z} / {z}.sum(-1, keepdim=True)", x.shape), Value(i, x.shape))
    if form == "segments":
        x = d.input("x", d.pick(131072, 1048576), d.pick(16, 64))
        ends = d.input("ends", 1024, dtype="i64", suffix=f".below({x.shape[0]})")
        return d.text(d.let(f"cumsum({x}, 0)[{ends}]", (1024, x.width)))
    x = d.input("x", n, c)
    if d.chance(0.4):
        x = d.let(d.pick("softplus({0})", "{0} * 0.5", "sigmoid({0})").format(x), x.shape)
    axis = d.pick("-1", "-1", "0") if c < 10000 else "-1"
    if form in ("cumsum", "cumprod", "logcumsumexp"):
        z = d.let(f"{form}({x}, {axis})", x.shape)
    elif form == "cummax":
        z = d.let(f"cummax({x}, {axis}).values", x.shape)
    elif form == "sort":
        z = d.let(f"sort({x}, {axis}).values", x.shape)
    elif form == "median":
        z = d.let(f"median({x}, -1).values", x.shape[:-1])
    elif form == "topk":
        k = d.pick(1, 8, 50)
        z = d.let(f"topk({x}, {k}, -1).values", (n, k))
    else:
        z = d.let(f"argsort({x}, {axis})", x.shape)
        return d.text(z)
    if d.chance(0.4):
        z = d.let(d.pick(f"{z} * {scale_of(d)}", f"exp(-{z})", f"{z} - {z}.mean()", f"tanh({z})"), z.shape)
    return d.text(z)


def scale_of(d: Draft) -> str:
    """A constant."""
    return d.pick("0.1", "2.0", "0.125")


def _recurrence(d: Draft, form: str) -> str:
    """Step after step over time: a decayed sum, or gates of a small recurrent cell."""
    b, s, w = d.pick((16, 64, 1024), (64, 32, 512), (8, 128, 2048), (256, 24, 256))
    if form == "recurrence":
        a, x = d.input("a", b, s, w), d.input("x", b, s, w)
        if d.chance(0.5):
            a = d.let(f"sigmoid({a})", a.shape, "decay")
        d.lines += [f"h = zeros_like({x}[:, 0])", "out = []", f"for t in range({s}):"]
        d.lines += [f"    h = {a}[:, t] * h + {x}[:, t]", "    out.append(h)"]
        z = d.let("stack(out, 1)", (b, s, w))
        if d.chance(0.5):
            z = d.let(f"{z} * silu({d.input('gate', b, s, w)})", (b, s, w))
        return d.text(z)
    x = d.input("x", b, s, 3 * w)
    d.lines += [f"h = zeros_like({x}[:, 0, :{w}])", f"for t in range({s}):", f"    f = sigmoid({x}[:, t, :{w}])",
                f"    g = tanh({x}[:, t, {w}:{2 * w}])", "    h = f * h + (1.0 - f) * g",
                f"y = h * sigmoid({x}[:, -1, {2 * w}:])"]  # fmt: skip
    return d.text(Value("y", (b, w)))
