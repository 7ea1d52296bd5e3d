"""Convolutions, matrix products and attention, with what stands before and behind them in models."""

from __future__ import annotations

from tools.corpus.grammar.draft import Draft, Stage, Value

IMAGES = (  # channels, side, output channels: ResNet, EfficientNet, ConvNeXt, U-Nets, decoders of latents, detection
    (3, 224, 64), (64, 56, 64), (64, 56, 256), (256, 56, 128), (128, 28, 128), (256, 28, 512), (256, 14, 256),
    (1024, 14, 512), (512, 7, 512), (24, 56, 144), (144, 28, 40), (96, 56, 96), (192, 28, 192), (384, 14, 384),
    (320, 64, 320), (640, 32, 640), (1280, 16, 1280), (512, 64, 512), (256, 128, 128), (128, 256, 64), (256, 50, 256),
)  # fmt: skip
SOUNDS = ((1, 80000, 512), (512, 8000, 512), (512, 2000, 512), (80, 3000, 768), (64, 16000, 128), (768, 1500, 768))
VIDEOS = ((3, 16, 112, 64), (64, 16, 56, 64), (128, 8, 28, 128), (256, 4, 14, 256), (3, 16, 224, 96))


def activation(d: Draft, x: Value) -> Value:
    """One call, or what it is written out as."""
    form = d.pick(
        "relu({})", "relu({})", "silu({})", "gelu({})", "gelu({}, approximate='tanh')", "hardswish({})", "relu6({})",
        "leaky_relu({}, 0.2)", "elu({})", "mish({})", "sigmoid({})", "tanh({})", "softplus({})", "{} * sigmoid({})",
        "clamp({}, -1.0, 1.0)", "square(relu({}))", "hardsigmoid({})",
    )  # fmt: skip
    return d.let(form.format(*[x] * form.count("{}")), x.shape)


def residual(d: Draft, x: Value) -> Value:
    """Another tensor of its shape added."""
    return d.let(f"{x} + {d.input('r', *x.shape)}", x.shape)


def scale(d: Draft, x: Value) -> Value:
    """Times a constant."""
    return d.let(f"{x} * {d.pick('0.5', '1.702', '0.125', '2.0')}", x.shape)


def dropout(d: Draft, x: Value) -> Value:
    """At one of three rates."""
    return d.let(f"dropout({x}, {d.pick(0.1, 0.2, 0.5)})", x.shape)


def layer_norm(d: Draft, x: Value) -> Value:
    """One call, with weight and bias."""
    w, b = d.input("g", x.width), d.input("b", x.width)
    return d.let(f"layer_norm({x}, [{x.width}], {w}, {b})", x.shape)


def rms_norm(d: Draft, x: Value) -> Value:
    """One call, or written out in f32."""
    w = d.input("g", x.width)
    if d.chance(0.5):
        return d.let(f"rms_norm({x}, [{x.width}], {w}, 1e-6)", x.shape)
    f = d.let(f"{x}.float()", x.shape, "f")
    n = d.let(f"{f} * rsqrt({f}.pow(2).mean(-1, keepdim=True) + 1e-6)", x.shape, "n")
    return d.let(f"{w} * {n}.to({d.dtype})", x.shape)


def batch_norm(d: Draft, x: Value) -> Value:
    """With running statistics; in training with the batch's."""
    c = x.shape[1]
    mean, var = (d.input(n, c, dtype="f32", grad=False) for n in ("mean", "var"))
    w, b = d.input("g", c, dtype="f32"), d.input("b", c, dtype="f32")
    mode = ", training=True, momentum=0.1" if d.training else ""
    return d.let(f"batch_norm({x}, {mean}, {var}, {w}, {b}{mode})", x.shape)


def group_norm(d: Draft, x: Value) -> Value:
    """In the largest usual number of groups that divides the channels."""
    c = x.shape[1]
    if d.autocast:
        x = d.let(f"{x}.float()", x.shape)
    groups = next(g for g in (32, 16, 8, 4, 3, 1) if c % g == 0)
    return d.let(f"group_norm({x}, {groups}, {d.input('g', c)}, {d.input('b', c)})", x.shape)


def instance_norm(d: Draft, x: Value) -> Value:
    """With weight and bias."""
    return d.let(f"instance_norm({x}, weight={d.input('g', x.shape[1])}, bias={d.input('b', x.shape[1])})", x.shape)


def squeeze_excite(d: Draft, x: Value) -> Value:
    """Channels weighted by a gate from their means."""
    n, c = x.shape[:2]
    inner = max(8, c // 16)
    axes = ", ".join(str(i) for i in range(2, len(x.shape)))
    s = d.let(f"{x}.mean(({axes},))", (n, c), "s")
    s = d.let(f"relu(linear({s}, {d.input('wa', inner, c)}))", (n, inner), "s")
    s = d.let(f"sigmoid(linear({s}, {d.input('wb', c, inner)}))", (n, c), "s")
    return d.let(f"{x} * {s}[:, :, {', '.join(['None'] * (len(x.shape) - 2))}]", x.shape)


def layer_scale(d: Draft, x: Value) -> Value:
    """A factor for each channel."""
    ones = ", ".join(["None"] * (len(x.shape) - 2))
    return d.let(f"{x} * {d.input('gamma', x.shape[1])}[:, {ones}]", x.shape)


def pool(d: Draft, x: Value) -> Value:
    """Over windows, or over all places."""
    dims = len(x.shape) - 2
    if d.chance(0.3):
        return d.let(f"adaptive_avg_pool{dims}d({x}, 1)", (*x.shape[:2], *[1] * dims))
    size, stride = d.pick((2, 2), (3, 2))
    padding = (size - 1) // 2
    sides = [(s + 2 * padding - size) // stride + 1 for s in x.shape[2:]]
    kind = d.pick("max", "avg")
    return d.let(f"{kind}_pool{dims}d({x}, {size}, {stride}, {padding})", (*x.shape[:2], *sides))


def upsample(d: Draft, x: Value) -> Value:
    """To twice the sides."""
    shape = (*x.shape[:2], *[2 * s for s in x.shape[2:]])
    if len(shape) == 4 and d.chance(0.4):
        return d.let(f"interpolate({x}, scale_factor=2.0, mode='bilinear', align_corners=False)", shape)
    return d.let(f"interpolate({x}, scale_factor=2.0, mode='nearest')", shape)


def skip_join(d: Draft, x: Value) -> Value:
    """Joined along the channels with a tensor of its shape."""
    other = d.input("skip", *x.shape)
    return d.let(f"cat([{x}, {other}], 1)", (x.shape[0], 2 * x.shape[1], *x.shape[2:]))


def global_mean(d: Draft, x: Value) -> Value:
    """Over all places."""
    axes = ", ".join(str(i) for i in range(2, len(x.shape)))
    return d.let(f"{x}.mean(({axes},))", x.shape[:2])


def glu_channels(d: Draft, x: Value) -> Value:
    """One half of the channels gates the other."""
    if x.shape[1] % 2:
        return x
    return d.let(f"glu({x}, 1)", (x.shape[0], x.shape[1] // 2, *x.shape[2:]))


BEFORE: tuple[Stage, ...] = (batch_norm, group_norm, activation, upsample, skip_join)
BEHIND: tuple[Stage, ...] = (
    batch_norm, group_norm, instance_norm, activation, activation, squeeze_excite, layer_scale, residual, glu_channels,
    pool, upsample, global_mean,
)  # fmt: skip


def convolution(d: Draft) -> str:
    """One, or a depthwise and a pointwise one, with stages before and behind."""
    dims = d.pick(1, 2, 2, 2, 2, 3)
    batch = d.pick(1, 2, 4, 8, 16, 32, 64)
    if dims == 1:
        c, side, k = d.pick(*SOUNDS)
        shape: tuple[int, ...] = (min(batch, 8), c, side)
    elif dims == 2:
        c, side, k = d.pick(*IMAGES)
        shape = (batch, c, side, side)
    else:
        c, depth, side, k = d.pick(*VIDEOS)
        shape = (min(batch, 4), c, depth, side, side)
    layout = ".channels_last" if dims == 2 and d.chance(0.4) else ""
    x = d.input("x", *shape, suffix=layout, grad=c > 3)
    if c > 3:
        for stage in d.some(BEFORE, d.pick(0, 0, 1, 2)):
            x = stage(d, x)
    x = _convolve(d, x, k, dims)
    for stage in d.some(BEHIND, 4):
        x = stage(d, x)
        if len(x.shape) != dims + 2 or min(x.shape[2:]) < 4:
            break
    return d.text(x)


def _convolve(d: Draft, x: Value, k: int, dims: int) -> Value:
    c, sides = x.shape[1], x.shape[2:]
    form = d.pick("dense", "dense", "dense", "small", "depthwise", "grouped", "transposed", "separable", "dilated")
    size = d.pick(3, 3, 3, 5, 7) if form in ("depthwise", "separable") else d.pick(3, 3, 3, 4, 5)
    if c == 3:
        form, size = "dense", d.pick(3, 7)
    bias = d.chance(0.5)
    low = d.low(x)

    def weight(*shape: int) -> Value:
        return d.low(d.input("w", *shape, *[size] * dims))

    def bias_of(count: int) -> str:
        return f", bias={d.low(d.input('bias', count))}" if bias else ""

    padding = size // 2
    if form == "small":
        w = d.low(d.input("w", k, c, *[1] * dims))
        return d.let(f"conv{dims}d({low}, {w}{bias_of(k)})", (x.shape[0], k, *sides))
    if form in ("depthwise", "separable"):
        w = weight(c, 1)
        z = d.let(f"conv{dims}d({low}, {w}{bias_of(c)}, padding={padding}, groups={c})", _sides(x, c, size, 1, padding))
        if form == "depthwise":
            return z
        if d.chance(0.5):
            z = activation(d, z)
        w = d.low(d.input("w", k, c, *[1] * dims))
        return d.let(f"conv{dims}d({z}, {w})", (x.shape[0], k, *z.shape[2:]))
    if form == "grouped" and c % 32 == 0 and k % 32 == 0:
        w = weight(k, c // 32)
        return d.let(f"conv{dims}d({low}, {w}, padding={padding}, groups=32)", _sides(x, k, size, 1, padding))
    if form == "transposed":
        w = d.low(d.input("w", c, k, *[4] * dims))
        shape = (x.shape[0], k, *[2 * s for s in sides])
        return d.let(f"conv_transpose{dims}d({low}, {w}{bias_of(k)}, stride=2, padding=1)", shape)
    w = weight(k, c)
    if form == "dilated":
        shape = _sides(x, k, 2 * size - 1, 1, size - 1)
        return d.let(f"conv{dims}d({low}, {w}{bias_of(k)}, padding={size - 1}, dilation=2)", shape)
    stride = d.pick(1, 1, 1, 2)
    return d.let(
        f"conv{dims}d({low}, {w}{bias_of(k)}, stride={stride}, padding={padding})", _sides(x, k, size, stride, padding)
    )


def _sides(x: Value, k: int, size: int, stride: int, padding: int) -> tuple[int, ...]:
    return (x.shape[0], k, *[(s + 2 * padding - size) // stride + 1 for s in x.shape[2:]])


WIDTHS = (512, 768, 896, 1024, 1152, 1280, 1600, 2048, 2304, 2560, 3072, 3584, 4096, 4544, 5120)
ODD_WIDTHS = (197, 301, 577, 650, 1001, 2401, 3005, 50257)
TOKENS = (1, 8, 32, 128, 197, 256, 512, 1000, 2048, 4096, 8192, 16384)


def swiglu(d: Draft, x: Value) -> Value:
    """Gated by an activation of another tensor."""
    other = d.input("gate", *x.shape)
    return d.let(f"{d.pick('silu', 'gelu', 'sigmoid', 'relu')}({other}) * {x}", x.shape)


def softmax_rows(d: Draft, x: Value) -> Value:
    """Of each row."""
    return d.let(d.pick(f"softmax({x}, -1)", f"log_softmax({x}.float(), -1)"), x.shape)


def row_sum(d: Draft, x: Value) -> Value:
    """One number of each row."""
    return d.let(d.pick(f"{x}.sum(-1)", f"logsumexp({x}, -1)", f"{x}.amax(-1)", f"{x}.square().mean(-1)"), x.shape[:-1])


def row_mask(d: Draft, x: Value) -> Value:
    """Rows of padding set to zero."""
    mask = d.input("keep", *x.shape[:-1], 1, dtype="bool", suffix=".mask(0.9)")
    return d.let(f"{x}.masked_fill(~{mask}, 0.0)", x.shape)


def soft_cap(d: Draft, x: Value) -> Value:
    """Bounded by a tanh."""
    return d.let(f"30.0 * tanh({x} / 30.0)", x.shape)


def second_product(d: Draft, x: Value) -> Value:
    """Another linear layer."""
    out = d.pick(*WIDTHS)
    return d.let(f"linear({d.low(x)}, {d.low(d.input('w', out, x.width))})", (*x.shape[:-1], out))


PRODUCT_BEFORE: tuple[Stage, ...] = (residual, layer_norm, rms_norm, activation, dropout)
PRODUCT_BEHIND: tuple[Stage, ...] = (
    scale, activation, swiglu, soft_cap, dropout, row_mask, second_product, residual, layer_norm, rms_norm,
    softmax_rows, row_sum,
)  # fmt: skip


def matmul(d: Draft) -> str:
    """A product in one of ten forms, with stages before and behind."""
    form = d.pick(
        "linear", "linear", "linear", "plain", "batched", "einsum", "experts", "split", "weight8", "transposed"
    )
    k = d.pick(*WIDTHS) if d.chance(0.85) else d.pick(*ODD_WIDTHS[:-1])
    n = d.pick(*WIDTHS, 11008, 14336) if d.chance(0.85) else d.pick(*ODD_WIDTHS)
    m = d.pick(*TOKENS)
    if form in ("batched", "experts"):
        return _batched(d, form)
    x = d.input("x", *d.pick((m, k), (d.pick(2, 4, 8), max(1, m // 4), k)))
    for stage in d.some(PRODUCT_BEFORE, d.pick(0, 0, 1, 2)):
        x = stage(d, x)
    low = d.low(x)
    shape = (*x.shape[:-1], n)
    if form == "plain":
        z = d.let(f"{low} @ {d.low(d.input('w', k, n))}", shape)
        if d.chance(0.5):
            z = d.let(f"{z} + {d.low(d.input('b', n))}", shape)
    elif form == "einsum":
        letters = "bk" if len(x.shape) == 2 else "bsk"
        z = d.let(f"einsum('{letters},nk->{letters[:-1]}n', {low}, {d.low(d.input('w', n, k))})", shape)
    elif form == "split":
        wide = d.let(f"linear({low}, {d.low(d.input('w', 2 * n, k))})", (*shape[:-1], 2 * n))
        a, gate = d.name("a"), d.name("gate")
        d.line(f"{a}, {gate} = {wide}.chunk(2, -1)")
        z = d.let(f"{a} * {d.pick('silu', 'gelu', 'sigmoid')}({gate})", shape)
    elif form == "weight8":
        w, s = d.input("w", n, k, dtype="i8"), d.input("s", n)
        stored = "bf16" if d.autocast else d.dtype
        z = d.let(f"linear({low}, {w}.to({stored})) * {d.low(s)}", shape)
    elif form == "transposed":
        flat = d.let(f"{low}.reshape(-1, {k})", (-1, k))
        rows = 1
        for size in x.shape[:-1]:
            rows *= size
        z = d.let(f"{flat}.t() @ {d.low(d.input('y', rows, n))}", (k, n))
    else:
        b = f", {d.low(d.input('b', n))}" if d.chance(0.5) else ""
        z = d.let(f"linear({low}, {d.low(d.input('w', n, k))}{b})", shape)
    for stage in d.some(PRODUCT_BEHIND, 3):
        z = stage(d, z)
        if len(z.shape) < 2:
            break
    return d.text(z)


def _batched(d: Draft, form: str) -> str:
    if form == "experts":
        e, m, k, n = d.pick(8, 16, 64), d.pick(64, 128, 512), d.pick(1024, 2048), d.pick(768, 1408, 2048)
        x, w = d.input("x", e, m, k), d.input("w", e, k, 2 * n)
        wide = d.let(f"{d.low(x)} @ {d.low(w)}", (e, m, 2 * n))
        z = d.let(f"{d.pick('silu', 'gelu')}({wide}[..., :{n}]) * {wide}[..., {n}:]", (e, m, n))
        if d.chance(0.6):
            z = d.let(f"{z} @ {d.low(d.input('w', e, n, k))}", (e, m, k))
        return d.text(z)
    b, m, k, n = (
        d.pick(8, 32, 96, 384),
        d.pick(49, 128, 197, 512, 1024),
        d.pick(32, 64, 128),
        d.pick(49, 128, 512, 1024),
    )
    x, y = d.input("x", b, m, k), d.input("y", b, *d.pick((n, k), (k, n)))
    second = f"{d.low(y)}.transpose(1, 2)" if y.shape[1] == n else str(d.low(y))
    z = d.let(f"{d.pick('bmm', 'matmul')}({d.low(x)}, {second})", (b, m, n))
    for stage in d.some((scale, soft_cap, activation, residual, softmax_rows, row_sum), 3):
        z = stage(d, z)
    return d.text(z)


ATTENTION_SIZES = (  # batch, heads, heads of k and v, tokens, width of a head
    (1, 32, 8, 4096, 128), (4, 32, 8, 1024, 128), (2, 16, 16, 2048, 64), (8, 12, 12, 512, 64), (32, 12, 12, 197, 64),
    (16, 16, 16, 384, 64), (4, 71, 1, 1024, 64), (2, 8, 4, 1024, 256), (2, 4, 1, 2048, 256), (64, 3, 3, 49, 32),
    (256, 6, 6, 49, 32), (4, 8, 8, 4096, 40), (8, 20, 20, 750, 64), (16, 8, 8, 96, 64), (1, 40, 10, 2048, 128),
)  # fmt: skip


def attention(d: Draft) -> str:
    """Scaled products, a mask or bias of one kind, a softmax; or one call of SDPA."""
    b, heads, kv, s, width = d.pick(*ATTENTION_SIZES)
    decoding = not d.training and d.chance(0.15)
    length = 1 if decoding else s
    q, k, v = d.input("q", b, heads, length, width), d.input("k", b, kv, s, width), d.input("v", b, kv, s, width)
    if d.chance(0.2):
        q, k = (_rotated(d, t) for t in (q, k))
    q, k, v = d.low(q), d.low(k), d.low(v)
    if kv != heads:
        k, v = (d.let(f"{t}.repeat_interleave({heads // kv}, 1)", (b, heads, s, width), t.name) for t in (k, v))
    shape = (b, heads, length, width)
    bias = d.pick("none", "causal", "causal", "mask", "window", "alibi", "cap", "table", "dropout", "learned")
    if decoding:
        bias = d.pick("none", "mask", "cap")
    if bias in ("none", "causal", "mask") and d.chance(0.5):
        z = _sdpa(d, (q, k, v), bias, shape, s)
    else:
        z = _by_hand(d, (q, k, v), bias, shape, s)
    if d.chance(0.5):
        z = d.let(f"{z}.transpose(1, 2).reshape({b}, {length}, {heads * width})", (b, length, heads * width))
        if d.chance(0.5):
            z = d.let(f"linear({z}, {d.low(d.input('wo', heads * width, heads * width))})", z.shape)
    return d.text(z)


def _rotated(d: Draft, x: Value) -> Value:
    s, width = x.shape[-2:]
    cos, sin = (d.input(n, s, width, grad=False) for n in ("cos", "sin"))
    half = width // 2
    turned = d.let(f"cat([-{x}[..., {half}:], {x}[..., :{half}]], -1)", x.shape, "t")
    return d.let(f"{x} * {cos} + {turned} * {sin}", x.shape)


def _sdpa(d: Draft, qkv: tuple[Value, Value, Value], bias: str, shape: tuple[int, ...], s: int) -> Value:
    options = {"none": "", "causal": ", is_causal=True"}.get(bias)
    if options is None:
        mask = d.input("mask", shape[0], 1, shape[2], s, dtype="bool", suffix=".mask(0.9)")
        options = f", attn_mask={mask}"
    q, k, v = qkv
    return d.let(f"scaled_dot_product_attention({q}, {k}, {v}{options})", shape)


def _by_hand(d: Draft, qkv: tuple[Value, Value, Value], bias: str, shape: tuple[int, ...], s: int) -> Value:
    q, k, v = qkv
    stored = "bf16" if d.autocast else d.dtype
    b, heads, length, width = shape
    scores = (b, heads, length, s)
    z = d.let(f"({q} @ {k}.transpose(-2, -1)) * {width**-0.5:.6g}", scores, "scores")
    if bias == "cap":
        z = d.let(f"50.0 * tanh({z} / 50.0)", scores, "scores")
    if bias in ("causal", "window", "dropout"):
        ahead = f"ones(({length}, {s}), dtype=torch.bool).triu(1)"
        z = d.let(f"{z}.masked_fill({ahead}, float('-inf'))", scores, "scores")
    if bias == "window":
        behind = f"ones(({length}, {s}), dtype=torch.bool).tril(-{max(16, s // 4)})"
        z = d.let(f"{z}.masked_fill({behind}, float('-inf'))", scores, "scores")
    if bias == "mask":
        mask = d.input("mask", b, 1, 1, s, dtype="bool", suffix=".mask(0.9)")
        z = d.let(f"{z}.masked_fill(~{mask}, torch.finfo({z}.dtype).min)", scores, "scores")
    if bias == "alibi":
        slopes = d.input("slopes", heads, dtype="f32", grad=False)
        distance = d.let(f"arange({s}) - arange({length})[:, None]", (length, s), "distance")
        z = d.let(f"{z} + ({slopes}[:, None, None] * {distance}).to({z}.dtype)", scores, "scores")
    if bias == "learned":
        z = d.let(f"{z} + {d.low(d.input('bias', 1, heads, length, s))}", scores, "scores")
    if bias == "table":
        table = d.input("table", 2 * s - 1, heads)
        place = d.let(f"arange({s}) - arange({length})[:, None] + {s - 1}", (length, s), "place")
        z = d.let(f"{z} + embedding({place}, {table}).permute(2, 0, 1).to({z}.dtype)", scores, "scores")
    form = d.pick(
        f"softmax({z}, -1)", f"softmax({z}, -1, dtype=f32).to({stored})", f"softmax({z}.float(), -1).to({stored})"
    )
    p = d.let(form, scores, "p")
    if bias == "dropout":
        p = d.let(f"dropout({p}, 0.1)", scores, "p")
    return d.let(f"{p} @ {v}", shape)
