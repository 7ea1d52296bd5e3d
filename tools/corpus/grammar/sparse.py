"""Gathers, scatters, embeddings, sums over graphs; chains of pointwise operations; numbers of few bits."""

from __future__ import annotations

from tools.corpus.grammar.dense import activation, dropout, residual, scale
from tools.corpus.grammar.draft import Draft, Stage, Value

GRAPHS = ((169343, 1166243, 128), (50000, 500000, 64), (20000, 80000, 300), (232965, 2000000, 64), (2708, 10556, 1433))
TABLES = ((50257, 768), (128256, 4096), (32000, 4096), (250880, 1024), (1000000, 64), (100000, 128), (33278, 650))


def gather_scatter(d: Draft) -> str:
    """Embeddings, messages on a graph, indices of experts, of caches, of images."""
    form = d.pick(
        "embedding", "embedding", "sum_embeddings", "bag", "messages", "messages", "attention", "mean", "max",
        "index_add", "experts", "pick", "patches", "cache", "count", "relative", "unsort", "interpolate",
    )  # fmt: skip
    nodes, edges, width = d.pick(*GRAPHS)
    vocabulary, columns = d.pick(*TABLES)
    tokens = d.pick((8, 1024), (32, 128), (4, 4096), (64, 512))
    if form in ("embedding", "sum_embeddings", "bag", "relative"):
        ids = d.input("ids", *tokens, dtype="i64", suffix=f".below({vocabulary})")
        table = d.input("table", vocabulary, columns)
        z = d.let(f"embedding({ids}, {table})", (*tokens, columns))
        if form == "sum_embeddings":
            places = d.input("places", tokens[1], columns)
            z = d.let(f"{z} + {places}", z.shape)
            z = d.let(f"layer_norm({z}, [{columns}], {d.input('g', columns)}, {d.input('b', columns)})", z.shape)
        elif form == "bag":
            z = d.let(f"{z}.{d.pick('sum', 'mean')}(1)", (tokens[0], columns))
        elif form == "relative":
            z = d.let(f"{z} * {columns**0.5:.6g}", z.shape)
        for stage in d.some((scale, dropout, activation), 2):
            z = stage(d, z)
        return d.text(z)
    if form in ("messages", "attention", "mean", "max", "index_add", "count"):
        return _graph(d, form, nodes, edges, width)
    if form == "experts":
        n, w, k = d.pick((4096, 2048, 2), (8192, 1024, 8), (2048, 4096, 2))
        y = d.input("y", n * k, w)
        place = d.input("place", n * k, dtype="i64", suffix=f".below({n})")
        weight = d.input("weight", n * k, 1)
        return d.text(d.let(f"zeros(({n}, {w}), dtype={d.dtype}).index_add(0, {place}, {y} * {weight})", (n, w)))
    if form == "unsort":
        n, w = d.pick((16384, 2048), (65536, 512))
        x, place = d.input("x", n, w), d.input("place", n, dtype="i64", suffix=f".below({n})")
        z = d.let(f"{x}.index_select(0, {place})", (n, w))
        return d.text(activation(d, z) if d.chance(0.6) else z)
    if form == "pick":
        n, c = d.pick((16384, 32000), (4096, 50257), (262144, 128))
        x, t = d.input("x", n, c), d.input("t", n, dtype="i64", suffix=f".below({c})")
        return d.text(d.let(f"-{x}.gather(1, {t}[:, None]).squeeze(1).float().{d.pick('mean()', 'log1p()')}", ()))
    if form == "patches":
        b, c, side = d.pick((64, 3, 224), (32, 96, 56), (8, 192, 64))
        x = d.input("x", b, c, side, side)
        p = d.pick(7, 8, 4) if side == 56 else 16
        n = side // p
        parts = f"{x}.view({b}, {c}, {n}, {p}, {n}, {p}).permute(0, 2, 4, 3, 5, 1)"
        z = d.let(f"{parts}.reshape({b}, {n * n}, {p * p * c})", (b, n * n, p * p * c))
        return d.text(activation(d, z) if d.chance(0.5) else residual(d, z))
    if form == "interpolate":
        b, c, side = d.pick((4, 256, 64), (2, 512, 100), (8, 64, 128))
        x, grid = d.input("x", b, c, side, side), d.input("grid", b, side, side, 2, grad=False)
        return d.text(d.let(f"grid_sample({x}, tanh({grid}), align_corners=False)", (b, c, side, side)))
    b, h, s, w = d.pick((32, 8, 4096, 128), (8, 32, 2048, 128))
    cache, new = d.input("cache", b, h, s, w, grad=False), d.input("new", b, h, 1, w, grad=False)
    place = d.input("place", 1, dtype="i64", suffix=f".below({s})")
    z = d.let(f"{cache}.index_copy(2, {place}, {new})", (b, h, s, w))
    return d.text(z)


def _graph(d: Draft, form: str, nodes: int, edges: int, width: int) -> str:
    source, target = (d.input(n, edges, dtype="i64", suffix=f".below({nodes})") for n in ("source", "target"))
    if form == "count":
        ones = d.input("weight", edges, dtype="f32")
        degree = d.let(f"zeros({nodes}).index_add(0, {target}, {ones})", (nodes,), "degree")
        root = d.let(f"rsqrt({degree} + 1.0)", (nodes,), "root")
        return d.text(d.let(f"{root}[{source}] * {ones} * {root}[{target}]", (edges,)))
    x = d.input("x", nodes, width)
    m = d.let(d.pick(f"{x}[{source}]", f"{x}.index_select(0, {source})"), (edges, width), "m")
    if form == "attention":
        s = d.input("s", nodes, 1, dtype="f32")
        a = d.let(f"exp(leaky_relu({s}[{source}] + {s}[{target}], 0.2))", (edges, 1), "a")
        total = d.let(f"zeros(({nodes}, 1)).index_add(0, {target}, {a})", (nodes, 1), "total")
        m = d.let(f"{m} * ({a} / ({total}[{target}] + 1e-16)).to({d.dtype})", (edges, width), "m")
    elif d.chance(0.5):
        m = d.let(f"{m} * {d.input('weight', edges, 1)}", (edges, width), "m")
    elif d.chance(0.4):
        m = d.let(f"relu({m} + {d.input('e', edges, width)})", (edges, width), "m")
    spread = f"{target}[:, None].expand(-1, {width})"
    start = f"zeros(({nodes}, {width}), dtype={d.dtype})"
    if form == "max":
        z = d.let(f"{start}.scatter_reduce(0, {spread}, {m}, 'amax', include_self=False)", (nodes, width))
    elif d.chance(0.5):
        z = d.let(f"{start}.scatter_add(0, {spread}, {m})", (nodes, width))
    else:
        z = d.let(f"{start}.index_add(0, {target}, {m})", (nodes, width))
    if form == "mean":
        each = f"ones({edges}, dtype={d.dtype})"
        count = d.let(f"zeros({nodes}, dtype={d.dtype}).index_add(0, {target}, {each})", (nodes,), "count")
        z = d.let(f"{z} / {count}.clamp(min=1.0)[:, None]", (nodes, width))
    for stage in d.some((activation, dropout, residual), 2):
        z = stage(d, z)
    return d.text(z)


def stretched(d: Draft, x: Value) -> Value:
    """With a row, a column or a channel."""
    rank = len(x.shape)
    place = d.rng.randrange(rank)
    shape = [s if i == place else 1 for i, s in enumerate(x.shape)]
    return d.let(f"{x} {d.pick('*', '+')} {d.input('v', *shape)}", x.shape)


def clamp(d: Draft, x: Value) -> Value:
    """Between two constants."""
    return d.let(f"clamp({x}, -6.0, 6.0)", x.shape)


def choose(d: Draft, x: Value) -> Value:
    """By its own sign."""
    return d.let(f"torch.where({x} > 0.0, {x}, {d.pick('0.0', '-0.1')})", x.shape)


def mask(d: Draft, x: Value) -> Value:
    """Some elements set to zero."""
    keep = d.input("keep", *x.shape, dtype="bool", suffix=".mask(0.8)")
    return d.let(f"{x}.masked_fill(~{keep}, 0.0)", x.shape)


def blend(d: Draft, x: Value) -> Value:
    """Towards another tensor."""
    return d.let(f"lerp({x}, {d.input('y', *x.shape)}, 0.1)", x.shape)


def wave(d: Draft, x: Value) -> Value:
    """A function of the special function unit."""
    return d.let(
        d.pick("sin({0})", "exp(-{0}.abs())", "log1p({0}.abs())", "{0} + sin({0}) * sin({0})").format(x), x.shape
    )


def gated(d: Draft, x: Value) -> Value:
    """Gated by another tensor."""
    return d.let(f"{x} * {d.pick('sigmoid', 'silu', 'tanh')}({d.input('gate', *x.shape)})", x.shape)


CHAIN: tuple[Stage, ...] = (
    stretched, residual, scale, activation, clamp, choose, mask, blend, wave, gated, activation, dropout, stretched,
)  # fmt: skip
POINTS = (
    (4096, 4096), (16384, 11008), (8, 1024, 3072), (64, 197, 3072), (32, 256, 56, 56), (16, 64, 112, 112),
    (8, 512, 28, 28), (1048576,), (33554432,), (2, 4096, 14336), (512, 768), (128, 2048, 7, 7), (262144, 33),
)  # fmt: skip


def pointwise(d: Draft) -> str:
    """A chain of random length, or a known one: rotary embedding, an optimizer's step, numbers of few bits."""
    form = d.pick(
        "chain", "chain", "chain", "chain", "split", "optimizer", "quantise", "dequantise", "fp8", "rotary", "casts"
    )
    shape = d.pick(*POINTS)
    if form == "split":
        wide = (*shape[:-1], 2 * shape[-1])
        x = d.input("x", *wide)
        a, gate = d.name("a"), d.name("gate")
        d.line(f"{a}, {gate} = {x}.chunk(2, -1)")
        z = d.let(f"{a} * {d.pick('silu', 'gelu', 'sigmoid')}({gate})", shape)
        return d.text(dropout(d, z) if d.chance(0.3) else z)
    if form == "optimizer":
        p, g = d.input("p", *shape, grad=False), d.input("g", *shape, grad=False)
        m = d.input("m", *shape, dtype="f32", grad=False)
        if d.chance(0.5):
            step = d.let(f"sign({m} * 0.9 + {g} * 0.1)", shape, "step")
            return d.text(
                d.let(f"{p} * 0.9999 - 1e-4 * {step}", shape), d.let(f"{m} * 0.99 + {g} * 0.01", shape, "moment")
            )
        v = d.input("v", *shape, dtype="f32", grad=False)
        m = d.let(f"0.9 * {m} + 0.1 * {g}", shape, "m")
        v = d.let(f"0.999 * {v} + 0.001 * {g} * {g}", shape, "v")
        return d.text(d.let(f"{p} * 0.9999 - 1e-3 * {m} / (sqrt({v}) + 1e-8)", shape), m, v)
    if form == "quantise":
        x, s = d.input("x", *shape, grad=False), d.input("s", shape[-1], dtype="f32", grad=False)
        return d.text(d.let(f"({x} / {s}).round().clamp(-128, 127).to(i8)", shape))
    if form == "dequantise":
        n, k = d.pick((4096, 4096), (14336, 4096), (11008, 2048))
        w = d.input("w", n, k // 2, dtype="u8")
        low, high = (
            d.let(f"({w} & 15).to({d.dtype}) - 8.0", w.shape, "low"),
            d.let(f"({w} >> 4).to({d.dtype}) - 8.0", w.shape, "high"),
        )
        both = d.let(f"stack([{low}, {high}], -1).view({n}, {k // 128}, 128)", (n, k // 128, 128), "both")
        return d.text(d.let(f"({both} * {d.input('s', n, k // 128, 1, grad=False)}).view({n}, {k})", (n, k)))
    if form == "fp8":
        x, s = d.input("x", *shape, dtype="f8e4m3"), d.input("s", *shape[:-1], 1, dtype="f32", grad=False)
        z = d.let(f"{x}.float() * {s}", shape)
        return d.text(d.let(f"{activation(d, z)}.to({d.dtype})", shape))
    if form == "rotary":
        return _rotary(d)
    x = d.input("x", *shape)
    if form == "casts":
        x = d.let(f"{x}.float()", shape)
    count = d.rng.randint(1, 9)
    for _ in range(count):
        x = d.rng.choice(CHAIN)(d, x)
    return d.text(d.let(f"{x}.to({d.pick('bf16', 'f16', 'f32')})", shape) if form == "casts" else x)


def _rotary(d: Draft) -> str:
    """Rotary embedding of halves, or of neighbours."""
    batch, heads, tokens, width = d.pick((2, 32, 4096, 128), (8, 12, 512, 64), (4, 16, 1024, 128))
    x = d.input("x", batch, heads, tokens, width)
    cos, sin = (d.input(n, tokens, width // 2, grad=False) for n in ("cos", "sin"))
    if d.chance(0.5):
        a, b = f"{x}[..., :{width // 2}]", f"{x}[..., {width // 2}:]"
        return d.text(d.let(f"cat([{a} * {cos} - {b} * {sin}, {b} * {cos} + {a} * {sin}], -1)", x.shape))
    a, b = f"{x}[..., ::2]", f"{x}[..., 1::2]"
    return d.text(d.let(f"stack([{a} * {cos} - {b} * {sin}, {a} * {sin} + {b} * {cos}], -1).flatten(-2)", x.shape))
