"""Calibration programs of one operation that moves memory: what eager launches, family by family.

Each function draws one region text. One operation each, so that a measured time is that operation's alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from kernels.calibrate.sizes import FLOATS, MOST_BYTES, between, declare, dtype, elements, layout, rows, shape

Family = Callable[[Random], str]

UNARY = (
    "relu(x)", "gelu(x)", "gelu(x, approximate='tanh')", "silu(x)", "sigmoid(x)", "tanh(x)", "x.exp()", "x.abs().neg()",
    "x.sqrt()", "x.rsqrt()", "x * 2.0", "x + 1.0", "x / 3.0", "x.square()", "x ** 3", "x.clamp(-1.0, 1.0)", "x.sin()",
    "x.erf()", "x.log1p()", "leaky_relu(x, 0.1)", "elu(x)", "softplus(x)", "mish(x)", "hardswish(x)", "x.reciprocal()",
    "x.neg()", "x.abs()", "x.round()", "x > 0", "x.isnan()", "x.exp2()", "x.log()", "x.cos()", "relu6(x)", "x.sign()",
)  # fmt: skip

BINARY = (
    "x + y", "x * y", "x - y", "x / y", "torch.maximum(x, y)", "x > y", "x ** y", "torch.atan2(x, y)", "x.lerp(y, 0.3)",
    "torch.add(x, y, alpha=0.5)", "torch.where(x > y, x, y)",
)  # fmt: skip

BACKWARD = (
    "aten.gelu_backward(x, y)", "aten.silu_backward(x, y)", "aten.threshold_backward(x, y, 0)",
    "aten.tanh_backward(x, y)", "aten.sigmoid_backward(x, y)", "aten.leaky_relu_backward(x, y, 0.1, False)",
    "aten.hardswish_backward(x, y)", "aten.softplus_backward(x, y, 1, 20)",
)  # fmt: skip


def pointwise(rng: Random) -> str:
    """One tensor, or two of the same shape."""
    kind, dims = dtype(rng), rng.choice((1, 2, 3, 4))
    sizes = shape(rng, kind, dims)
    x = declare("x", kind, sizes, layout(rng, sizes))
    if rng.random() < 0.55:
        return f"{x}\nreturn {rng.choice(UNARY)}"
    same = layout(rng, sizes) if rng.random() < 0.2 else x.partition("]")[2]
    other = declare("y", kind if rng.random() < 0.9 else dtype(rng), sizes, same)
    body = rng.choice(BINARY if rng.random() < 0.75 else BACKWARD)
    if body.startswith("aten"):
        other = declare("y", kind, sizes, same)
    return f"{x}\n{other}\nreturn {body}"


def broadcast(rng: Random) -> str:
    """One tensor and a smaller one along some of its axes."""
    kind, dims = dtype(rng), rng.choice((2, 2, 3, 4))
    sizes = shape(rng, kind, dims)
    kept = [rng.random() < 0.5 for _ in sizes]
    if all(kept):
        kept[rng.randrange(dims)] = False
    small = tuple(s if k else 1 for s, k in zip(sizes, kept, strict=True))
    while len(small) > 1 and small[0] == 1 and rng.random() < 0.7:
        small = small[1:]
    lines = [declare("x", kind, sizes, layout(rng, sizes)), declare("y", kind if rng.random() < 0.85 else "f32", small)]
    if rng.random() < 0.2:
        mask = declare("m", "bool", small)
        return "\n".join([lines[0], mask, "return x.masked_fill(m, -1.0)"])
    return "\n".join([*lines, f"return {rng.choice(BINARY[:6])}"])


def ternary(rng: Random) -> str:
    """Three tensors: where, addcmul, lerp."""
    kind, dims = dtype(rng), rng.choice((1, 2, 3))
    sizes = shape(rng, kind, dims, most_bytes=MOST_BYTES // 2)
    first = rng.choice(("bool", kind))
    body = "torch.where(m, x, y)" if first == "bool" else rng.choice(("torch.addcmul(m, x, y)", "torch.lerp(m, x, y)"))
    return "\n".join([*(declare(n, k, sizes) for n, k in (("m", first), ("x", kind), ("y", kind))), f"return {body}"])


def cast(rng: Random) -> str:
    """Between types."""
    kinds = ("f32", "bf16", "f16", "i64", "i32", "bool", "u8", "i8", "f8e4m3")
    source, target = rng.sample(kinds[:3], 2) if rng.random() < 0.7 else rng.sample(kinds, 2)
    if "f8e4m3" in (source, target):
        source, target = (source, target) if source in FLOATS or target in FLOATS else ("bf16", "f8e4m3")
    sizes = shape(rng, source, rng.choice((1, 2, 3)))
    return f"{declare('x', source, sizes, layout(rng, sizes))}\nreturn x.to({target})"


def copy(rng: Random) -> str:
    """Transposes made contiguous, clones, slices, flips, repeats, padding."""
    kind, dims = rng.choice((dtype(rng), dtype(rng), "i64")), rng.choice((2, 2, 3, 4, 4))
    sizes = shape(rng, kind, dims, most_bytes=MOST_BYTES // 2)
    x = declare("x", kind, sizes)
    axes = list(range(dims))
    rng.shuffle(axes)
    bodies = [
        f"x.permute({', '.join(map(str, axes))}).contiguous()", f"x.transpose({dims - 2}, {dims - 1}).contiguous()",
        "x.clone()", f"x.flip({rng.randrange(dims)})", f"x.roll({max(1, sizes[0] // 3)}, 0)",
        f"x[..., :{max(1, sizes[-1] // 2)}].contiguous()", f"x[:{max(1, sizes[0] // 2)}].clone()",
        f"x.narrow({dims - 1}, 0, {max(1, sizes[-1] // 3)}).clone()",
    ]  # fmt: skip
    weights = [5, 4, 3, 1, 1, 2, 1, 1]
    if dims >= 3:
        bodies += ["F.pad(x, (1, 1, 1, 1))", "x.expand(-1, -1, -1).contiguous()" if dims == 3 else "x.clone()"]
        weights += [2, 1]
    return f"{x}\nreturn {rng.choices(bodies, weights)[0]}"


def join(rng: Random) -> str:
    """cat and stack of two to eight pieces along any axis."""
    kind, dims, pieces = dtype(rng), rng.choice((1, 2, 3, 4)), rng.choice((2, 2, 3, 4, 8))
    sizes = shape(rng, kind, dims, most_bytes=MOST_BYTES // (2 * pieces))
    names = [f"x{n}" for n in range(pieces)]
    lines = [declare(n, kind, sizes) for n in names]
    call = "torch.stack" if rng.random() < 0.3 else "torch.cat"
    return "\n".join([*lines, f"return {call}([{', '.join(names)}], {rng.randrange(dims)})"])


REDUCTIONS = (
    "x.sum({})", "x.mean({})", "x.amax({})", "x.argmax({})", "x.var({})", "x.std({})", "x.amin({})", "x.logsumexp({})",
    "x.max({})[0]", "x.norm(dim={})", "x.prod({})", "x.any({})",
)  # fmt: skip


def reduce(rng: Random) -> str:
    """Over the last axis, an outer one, several, or all."""
    kind, dims = dtype(rng), rng.choice((1, 2, 2, 2, 3, 4))
    sizes = rows(rng, kind) if dims == 2 else shape(rng, kind, dims)
    call = rng.choices(REDUCTIONS, (8, 6, 4, 2, 2, 1, 2, 2, 1, 1, 1, 1))[0]
    axis: object = rng.choice((dims - 1, dims - 1, 0, rng.randrange(dims)))
    several = dims > 2 and rng.random() < 0.3 and "prod" not in call and "arg" not in call and "max(" not in call[:6]
    if several and "any" not in call:
        axis = tuple(sorted(rng.sample(range(dims), rng.choice((2, dims - 1)))))
    if rng.random() < 0.12 and call[2:5] in ("sum", "mea"):
        call, axis = ("x.sum({})" if "sum" in call else "x.mean({})"), ""
    x = declare("x", kind, sizes, layout(rng, sizes) if dims > 2 else "")
    return f"{x}\nreturn {call.format(axis)}"


def softmax(rng: Random) -> str:
    """Softmax and log-softmax over any axis, forward and backward."""
    kind, dims = dtype(rng), rng.choice((2, 2, 3, 4))
    sizes = rows(rng, kind) if dims == 2 else shape(rng, kind, dims)
    axis = dims - 1 if rng.random() < 0.75 else rng.randrange(dims)
    call = rng.choice(("softmax", "softmax", "log_softmax"))
    if rng.random() < 0.3:
        name = "_softmax_backward_data" if call == "softmax" else "_log_softmax_backward_data"
        half = shape(rng, kind, dims, most_bytes=MOST_BYTES // 2) if dims > 2 else rows(rng, kind, MOST_BYTES // 2)
        lines = [declare("g", kind, half), declare("y", kind, half)]
        return "\n".join([*lines, f"return aten.{name}(g, y, {axis}, {DTYPE_NAMES[kind]})"])
    return f"{declare('x', kind, sizes)}\nreturn {call}(x, {axis})"


DTYPE_NAMES: Mapping[str, str] = {"f32": "torch.float32", "bf16": "torch.bfloat16", "f16": "torch.float16"}


def norm(rng: Random) -> str:
    """Layer, RMS, group, instance and batch norm; layer and group norm's backward."""
    kind = dtype(rng)
    which = rng.choices(
        ("layer", "rms", "group", "instance", "batch", "train", "layer_backward"), (5, 3, 3, 2, 2, 2, 2)
    )[0]
    if which in ("layer", "rms", "layer_backward"):
        n, d = rows(rng, kind)
        lines = [declare("x", kind, (n, d)), declare("w", kind, (d,)), declare("b", kind, (d,))]
        if which == "layer":
            return "\n".join([*lines, f"return F.layer_norm(x, [{d}], w, b)"])
        if which == "rms":
            return "\n".join([*lines[:2], f"return F.rms_norm(x, [{d}], w)"])
        stats = [declare("mean", "f32", (n, 1)), declare("rstd", "f32", (n, 1)), declare("g", kind, (n, d))]
        body = f"a, c, e = aten.native_layer_norm_backward(g, x, [{d}], mean, rstd, w, b, [True, True, True])"
        return "\n".join([*lines, *stats, body, "return a, c, e"])
    groups = rng.choice((1, 4, 8, 32))
    channels = groups * between(rng, 1, 1024 // groups)
    batch = between(rng, 1, 256)
    left = max(16, elements(rng, 4 if kind == "f32" else 2, 2**14) // (batch * channels))
    side = max(1, round(left**0.5))
    sizes = (batch, channels, side, side) if rng.random() < 0.75 else (batch, channels, left)
    x = declare("x", kind, sizes, ".channels_last" if len(sizes) == 4 and rng.random() < 0.25 else "")
    weight = [declare("w", kind, (channels,)), declare("b", kind, (channels,))]
    if which == "group":
        return "\n".join([x, *weight, f"return F.group_norm(x, {groups}, w, b)"])
    if which == "instance":
        return f"{x}\nreturn F.instance_norm(x)"
    stats = [declare("mean", "f32", (channels,)), declare("var", "f32", (channels,))]
    wide = [declare("w", "f32", (channels,)), declare("b", "f32", (channels,))]
    call = "F.batch_norm(x, mean, var, w, b)" if which == "batch" else "F.batch_norm(x, None, None, w, b, True)"
    lines = [x, *(stats if which == "batch" else []), *wide]
    return "\n".join([*lines, f"return {call}"])


def loss(rng: Random) -> str:
    """Losses that reduce to a number; nll_loss backward as well."""
    kind = rng.choice(("f32", "f32", "bf16"))
    which = rng.choice(("mse_loss", "l1_loss", "smooth_l1_loss", "nll", "nll", "bce", "kl_div", "nll_backward"))
    if which.startswith("nll"):
        n, classes = rows(rng, kind, MOST_BYTES // 2)
        lines = [declare("x", kind, (n, classes)), declare("t", "i64", (n,), f".below({classes})")]
        if which == "nll":
            return "\n".join([*lines, "return F.nll_loss(x, t)"])
        more = [declare("g", kind, ()), declare("w", kind, ())]
        return "\n".join([*more, *lines, "return aten.nll_loss_backward(g, x, t, None, 1, -100, w)"])
    sizes = shape(rng, kind, rng.choice((1, 2, 3)), most_bytes=MOST_BYTES // 2)
    call = {"bce": "F.binary_cross_entropy_with_logits(x, y)"}.get(which, f"F.{which}(x, y)")
    return "\n".join([declare("x", kind, sizes), declare("y", kind, sizes), f"return {call}"])


def scan(rng: Random) -> str:
    """Cumulative sums, products and maxima over any axis."""
    kind, dims = dtype(rng), rng.choice((2, 2, 3, 1))
    sizes = rows(rng, kind, MOST_BYTES // 4) if dims == 2 else shape(rng, kind, dims, most_bytes=MOST_BYTES // 4)
    axis = dims - 1 if rng.random() < 0.7 else rng.randrange(dims)
    call = rng.choices(("x.cumsum({})", "x.cumprod({})", "x.logcumsumexp({})", "x.cummax({})[0]"), (6, 1, 1, 1))[0]
    return f"{declare('x', kind, sizes)}\nreturn {call.format(axis)}"


def order(rng: Random) -> str:
    """Sort, argsort, top-k."""
    kind = rng.choice(("f32", "f32", "bf16", "i64"))
    n, columns = rows(rng, kind, MOST_BYTES // 16)
    x = declare("x", kind, (n, columns), ".below(100000)" if kind == "i64" else "")
    k = between(rng, 1, min(columns, 256))
    body = rng.choice(("x.sort(-1)[0]", "x.argsort(-1)", f"x.topk({k}, -1)[0]", f"x.topk({k}, -1)[1]"))
    return f"{x}\nreturn {body}"


def gather(rng: Random) -> str:
    """Embedding, index_select, indexing, gather, take_along_dim."""
    kind = dtype(rng)
    table, width = rows(rng, kind, MOST_BYTES // 2)
    count = between(rng, 16, max(16, min(2**22, MOST_BYTES // 8 // max(1, width * 2))))
    w = declare("w", kind, (table, width))
    i = declare("i", "i64", (count,), f".below({table})")
    which = rng.choice(("F.embedding(i, w)", "F.embedding(i, w)", "w.index_select(0, i)", "w[i]", "gather", "backward"))
    if which == "gather":
        picks = between(rng, 1, max(1, min(width, 4096)))
        lines = [w, declare("i", "i64", (table, picks), f".below({width})")]
        return "\n".join([*lines, "return w.gather(1, i)"])
    if which == "backward":
        g = declare("g", kind, (count, width))
        return "\n".join([g, i, f"return aten.embedding_dense_backward(g, i, {table}, -1, False)"])
    return "\n".join([w, i, f"return {which}"])


def scatter(rng: Random) -> str:
    """index_add, scatter_add, scatter, index_put, index_copy."""
    kind = dtype(rng)
    table, width = rows(rng, kind, MOST_BYTES // 4)
    count = between(rng, 16, max(16, min(2**20, MOST_BYTES // 8 // max(1, width * 2))))
    lines = [declare("x", kind, (table, width)), declare("v", kind, (count, width))]
    i = declare("i", "i64", (count,), f".below({table})")
    which = rng.choice(
        ("x.index_add(0, i, v)", "x.index_put((i,), v, accumulate=True)", "wide", "scatter", "x.index_copy(0, i, v)")
    )
    if which in ("wide", "scatter"):
        i = declare("i", "i64", (count, width), f".below({table})")
        which = "x.scatter_add(0, i, v)" if which == "wide" else "x.scatter(0, i, v)"
    return "\n".join([*lines, i, f"return {which}"])


def pool(rng: Random) -> str:
    """Pooling of one to three dimensions, and interpolation."""
    kind = dtype(rng)
    dims = rng.choices((1, 2, 3), (1, 6, 1))[0]
    batch, channels = between(rng, 1, 128), between(rng, 1, 512)
    left = max(64, elements(rng, 2, 2**14, MOST_BYTES // 2) // (batch * channels))
    side = max(8, round(left ** (1 / dims)))
    sizes = (batch, channels, *([side] * dims))
    x = declare("x", kind, sizes, ".channels_last" if dims == 2 and rng.random() < 0.3 else "")
    size, stride = rng.choice(((2, 2), (3, 2), (3, 1)))
    out = rng.choice((1, 7, 4))
    bodies = [f"F.max_pool{dims}d(x, {size}, {stride})", f"F.avg_pool{dims}d(x, {size}, {stride})",
              f"F.adaptive_avg_pool{dims}d(x, {min(out, side)})"]  # fmt: skip
    if dims == 2 and side <= 512:
        mode = rng.choice(("mode='nearest'", "mode='bilinear'"))
        bodies.append(f"F.interpolate(x, scale_factor=2.0, {mode})")
    return f"{x}\nreturn {rng.choice(bodies)}"


def random(rng: Random) -> str:
    """Dropout and random numbers."""
    kind = dtype(rng)
    sizes = shape(rng, kind, rng.choice((1, 2, 3)), most_bytes=MOST_BYTES // 2)
    body = rng.choice(("dropout(x, 0.1)", "dropout(x, 0.5)", "torch.rand_like(x)", "torch.randn_like(x)"))
    return f"{declare('x', kind, sizes)}\nreturn {body}"


def triangle(rng: Random) -> str:
    """Triangles, repeats and diagonals."""
    kind = dtype(rng)
    n, d = rows(rng, kind, MOST_BYTES // 2)
    body = rng.choice(("x.tril()", "x.triu(1)", "x.repeat_interleave(2, 0)", "x.repeat(2, 1)", "x.diagonal().clone()"))
    return f"{declare('x', kind, (n, d))}\nreturn {body}"


FAMILIES: Mapping[str, tuple[Family, int]] = {
    "pointwise": (pointwise, 7), "broadcast": (broadcast, 5), "ternary": (ternary, 1), "cast": (cast, 2),
    "copy": (copy, 4), "join": (join, 3), "reduce": (reduce, 16), "softmax": (softmax, 6), "norm": (norm, 16),
    "loss": (loss, 4), "scan": (scan, 5), "order": (order, 2), "gather": (gather, 5), "scatter": (scatter, 5),
    "pool": (pool, 7), "random": (random, 2), "triangle": (triangle, 1),
}  # fmt: skip
"""Family -> what draws a program, and its share of the points."""
