"""Random programs over the generator's newer operations, one function a family: `FAMILIES`.

A family draws a region's text from a `random.Random` and a size: "small" for Triton's interpreter, "large" for a GPU
(1 to 64 MB of inputs). Indices are taken of inputs or of what is exact in every precision, never of rounded values, so
that no rounding decides which element is the largest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random

FLOATS = ("f32", "bf16", "f16")
BEFORE = ("{}", "{} * 0.5", "torch.tanh({})", "F.relu({})", "{} + 0.25", "torch.sigmoid({})", "F.silu({})")
EXACT = ("{}", "-{}", "{}.abs()", "F.relu({})", "{}.float()")
AFTER = ("{}", "{} * 2", "torch.tanh({})", "{} + 1", "F.silu({})", "{}.to(bf16)")

Family = Callable[[Random, str], str]


def shape_of(random: Random, size: str, wide: bool = True) -> tuple[int, ...]:
    """Rows and columns, one to three dimensions. wide: rows may be longer than a program holds."""
    if size == "small":
        return random.choice(((5, 37), (1, 100), (9, 64), (3, 4, 33), (2, 3, 17), (130,)))
    rows = ((4096, 1000), (16384, 256), (2048, 2048), (777, 3001), (16, 128, 1023), (8, 64, 64, 64), (32768, 129))
    long = ((64, 65536), (8, 1 << 20), (1 << 22,))
    return random.choice((*rows, *long) if wide else rows)


def sizes(shape: tuple[int, ...]) -> str:
    """A shape as a region's text has it."""
    return ", ".join(map(str, shape))


def laid_out(random: Random, name: str, shape: tuple[int, ...], dtype: str) -> tuple[str, str]:
    """Lines that declare an input, plain or as a view of a larger or turned one; and its name in the text."""
    kind = random.choice(("plain", "plain", "plain", "slice", "turned"))
    if kind == "slice" and shape[-1] > 1:
        whole = (*shape[:-1], shape[-1] + 8)
        return f"{name}: {dtype}[{sizes(whole)}]\n", f"{name}[..., 3:{shape[-1] + 3}]"
    if kind == "turned" and len(shape) > 1:
        whole = (*shape[:-2], shape[-1], shape[-2])
        return f"{name}: {dtype}[{sizes(whole)}]\n", f"{name}.transpose(-1, -2)"
    return f"{name}: {dtype}[{sizes(shape)}]\n", name


def put(text: str, name: str) -> str:
    """A step on a named value."""
    return text.replace("{}", name)


def scan(random: Random, size: str) -> str:
    """cumsum, cumprod, logcumsumexp, cummax, cummin with pointwise steps around, along any axis."""
    shape, dtype = shape_of(random, size), random.choice(FLOATS)
    dim = random.choice((-1, -1, -1, 0))
    count = shape[dim]
    declared, name = laid_out(random, "x", shape, dtype)
    how = random.choice(("cumsum", "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "integers"))
    if how == "integers":
        return f"x: i32[{sizes(shape)}].below(7)\ny = torch.cumsum(x + 1, {dim})\nreturn y * 2\n"
    lines = [declared]
    if how in ("cummax", "cummin"):
        lines.append(f"v, i = torch.{how}({put(random.choice(EXACT), name)}, {dim})\n")
        lines.append(f"return {put(random.choice(AFTER), 'v')}, i\n")
        return "".join(lines)
    if how == "cumprod":  # stays within the dtype's range
        lines.append(f"h = 1 + torch.tanh({name}.float()) / {max(8, count)}\n")
    elif how == "cumsum":  # a sum near zero has no relative error to speak of
        lines.append(f"h = torch.sigmoid({name}.float())\n")
    else:
        lines.append(f"h = {put(random.choice(BEFORE), name)}\n")
    lines.append(f"y = torch.{how}(h, {dim})\n")
    if how == "cumsum" and random.random() < 0.3:
        lines.append(f"y = y / y.amax({dim}, keepdim=True)\n")
    lines.append(f"return {put(random.choice(AFTER), 'y')}\n")
    return "".join(lines)


def arg(random: Random, size: str) -> str:
    """argmax, argmin, max and min with a dimension, prod, count_nonzero."""
    shape, dtype = shape_of(random, size), random.choice((*FLOATS, "i32", "i64"))
    dim = random.choice((-1, -1, 0, None))
    declared, name = laid_out(random, "x", shape, dtype + "")
    exact = [e for e in EXACT if dtype in FLOATS or "relu" not in e]
    h = put(random.choice(exact), name)
    keep = random.choice((True, False))
    how = random.choice(("argmax", "argmin", "max", "min", "prod", "count_nonzero", "both"))
    if how in ("argmax", "argmin"):
        given = f"{dim}, keepdim={keep}" if dim is not None else "None"
        return f"{declared}h = {h}\ny = torch.{how}(h, {given})\nreturn y\n"
    if how in ("max", "min"):
        given = f", {-1 if dim is None else dim}, keepdim={keep}"
        return f"{declared}v, i = torch.{how}({h}{given})\nreturn v, i\n"
    if how == "prod":
        last = -1 if dim is None else dim
        scale = max(4, shape[last])
        return f"{declared}h = 1 + torch.tanh({name}.float()) / {scale}\ny = torch.prod(h, {last})\nreturn y\n"
    if how == "count_nonzero":
        given = "" if dim is None else f", {dim}"
        return f"{declared}y = torch.count_nonzero(F.relu({name}){given})\nreturn y\n"
    last = -1 if dim is None else dim
    return f"{declared}h = {h}\nreturn torch.argmax(h, {last}), torch.amin(h, {last}), (h.float() * h).sum({last})\n"


def pool(random: Random, size: str) -> str:
    """Max and average pools in one to three dimensions, adaptive ones of equal windows."""
    rank = random.choice((1, 2, 2, 2, 3))
    if size == "small":
        images = {1: (2, 3, 20), 2: (2, 3, 11, 12), 3: (1, 2, 6, 7, 8)}[rank]
    else:
        images = {
            1: random.choice(((32, 128, 2048), (8, 512, 4096))),
            2: random.choice(((32, 64, 56, 56), (16, 64, 112, 112), (8, 32, 224, 224), (64, 256, 28, 28))),
            3: random.choice(((4, 32, 16, 56, 56), (2, 64, 32, 32, 32))),
        }[rank]
    dtype = random.choice(FLOATS) if size != "small" or rank < 3 else "f32"  # a CPU has no 3-d pool of 16 bits
    layout = ".channels_last" if rank == 2 and random.random() < 0.25 else ""
    declared = f"x: {dtype}[{sizes(images)}]{layout}\n"
    kernel = random.choice((2, 3, 3))
    stride = random.choice((1, 2, 2, kernel))
    padding = random.choice((0, 1))
    ceil = random.choice((True, False))
    how = random.choice(("max", "max", "avg", "avg", "adaptive", "indices"))
    if how == "adaptive":
        parts = random.choice((1, 2, 2)) if rank != 2 or size == "small" else random.choice((1, 7, 14))
        if any(n % parts for n in images[2:]):
            parts = 1
        source = put(random.choice(BEFORE), "x")
        return f"{declared}h = {source}\ny = F.adaptive_avg_pool{rank}d(h, {parts})\nreturn y * 2\n"
    if how == "indices" and rank == 2:
        call = f"aten.max_pool2d_with_indices(x, [{kernel}, {kernel}], [{stride}, {stride}], [{padding}, {padding}])"
        return f"{declared}y, i = {call}\nreturn y, i\n"
    source = put(random.choice(BEFORE), "x")
    if how == "avg":
        counted = random.choice((True, False))
        divisor = f", divisor_override={kernel + 2}" if rank > 1 and random.random() < 0.2 else ""
        given = f"{kernel}, {stride}, {padding}, ceil_mode={ceil}, count_include_pad={counted}{divisor}"
        return f"{declared}h = {source}\ny = F.avg_pool{rank}d(h, {given})\nreturn {put(random.choice(AFTER), 'y')}\n"
    dilation = random.choice((1, 1, 2))
    given = f"{kernel}, {stride}, {padding}, {dilation}, ceil_mode={ceil}"
    return f"{declared}h = {source}\ny = F.max_pool{rank}d(h, {given})\nreturn {put(random.choice(AFTER), 'y')}\n"


def topk(random: Random, size: str) -> str:
    """topk, sort and argsort of short rows, with softmax before or after."""
    if size == "small":
        shape = random.choice(((5, 37), (9, 64), (3, 4, 20), (1, 8)))
    else:
        shape = random.choice(((16384, 64), (16384, 128), (8192, 256), (4096, 160), (2048, 1000), (8, 512, 128)))
    dtype = random.choice(FLOATS)
    count = min(shape[-1], random.choice((1, 2, 4, 6, 8)))
    declared = f"x: {dtype}[{sizes(shape)}]\n"
    how = random.choice(("topk", "router", "softmax first", "smallest", "sort", "argsort", "scaled"))
    if how == "topk":
        return f"{declared}v, i = torch.topk({put(random.choice(EXACT), 'x')}, {count}, -1)\nreturn v * 2, i\n"
    if how == "router":
        return f"{declared}v, i = torch.topk(x.float(), {count}, -1)\nreturn torch.softmax(v, -1), i\n"
    if how == "softmax first":
        return (
            f"{declared}s = torch.softmax(x.float(), -1)\nv, i = torch.topk(s, {count}, -1)\n"
            "return v / v.sum(-1, keepdim=True)\n"
        )
    if how == "smallest":
        return f"{declared}v, i = torch.topk(x, {count}, -1, largest=False)\nreturn v, i\n"
    down = random.choice((True, False))
    if how == "argsort":
        return f"{declared}i = torch.argsort(x.float(), -1, {down})\nreturn i\n"
    if how == "scaled":
        return f"{declared}v, i = torch.sort(x.float() * 2, -1, {down})\nreturn v - v.mean(-1, keepdim=True)\n"
    return f"{declared}v, i = torch.sort(x, -1, {down})\nreturn torch.exp(v.float() / 4), i\n"


def gather(random: Random, size: str) -> str:
    """Lookups by indices that are read or computed, inside fused kernels."""
    if size == "small":
        rows, columns, picks = 19, 24, 9
    else:
        rows, columns, picks = random.choice(((50257, 256, 8192), (4096, 1024, 8192), (131072, 64, 65536)))
    dtype = random.choice(FLOATS)
    table = f"t: {dtype}[{rows}, {columns}]\n"
    index = f"i: i64[{picks}].below({rows})\n"
    how = random.choice(("embedding", "normalised", "computed", "gather", "select", "pair", "position", "product"))
    if how == "embedding":
        return f"{table}{index}b: {dtype}[{columns}]\ny = F.embedding(i, t) * 0.5 + b\nreturn y\n"
    if how == "normalised":
        return f"{table}{index}y = F.layer_norm(F.embedding(i, t), ({columns},))\nreturn y\n"
    if how == "computed":
        place = random.choice((f"torch.clamp(i * 2 - 3, 0, {rows - 1})", f"(i * 7 - 5) % {rows}"))
        return f"{table}{index}j = {place}\ny = F.silu(t[j])\nreturn y\n"
    if how == "gather":
        picked = f"i: i64[{rows}, 8].below({columns})\n"
        return f"{table}{picked}y = torch.gather(t, 1, i)\nreturn torch.softmax(y.float(), -1)\n"
    if how == "select":
        picked = f"i: i64[{max(1, columns // 2)}].below({columns})\n"
        return f"{table}{picked}y = torch.index_select(t, 1, i) * 2\nreturn y\n"
    if how == "pair":
        other = f"j: i64[{picks}].below({columns})\n"
        return f"{table}{index}{other}y = t[i, j].float() * 2 + 1\nreturn y\n"
    if how == "position":
        return (
            f"{table}p: {dtype}[{picks}, {columns}]\n{index}"
            f"y = F.embedding(i, t) + p\nreturn y, (y.float() * y).mean(-1)\n"
        )
    return f"{table}{index}k: i64[{picks}].below({rows})\ny = (t[i] * t[k]).float().sum(-1)\nreturn torch.sigmoid(y)\n"


def depthwise(random: Random, size: str) -> str:
    """Depthwise convolutions in one and two dimensions with a tail, and pointwise ones."""
    dtype = random.choice(FLOATS)
    if random.random() < 0.5:
        batch, channels, length = (2, 6, 40) if size == "small" else random.choice(((8, 1024, 1024), (4, 2048, 2048)))
        taps = random.choice((3, 4, 4, 7))
        declared = (
            f"x: {dtype}[{batch}, {channels}, {length}]\nw: {dtype}[{channels}, 1, {taps}]\nb: {dtype}[{channels}]\n"
        )
        if random.random() < 0.6:  # causal, as in state-space models
            call = f"F.conv1d(x, w, b, padding={taps - 1}, groups={channels})[..., :{length}]"
        else:
            call = f"F.conv1d(x, w, b, stride={random.choice((1, 2))}, padding=1, groups={channels})"
        return f"{declared}y = {call}\nreturn F.silu(y)\n"
    batch, channels, height, width = (
        (2, 4, 9, 10) if size == "small" else random.choice(((16, 96, 56, 56), (8, 144, 56, 56), (32, 384, 14, 14)))
    )
    taps = random.choice((3, 3, 5))
    layout = ".channels_last" if random.random() < 0.25 else ""
    declared = (
        f"x: {dtype}[{batch}, {channels}, {height}, {width}]{layout}\nw: {dtype}[{channels}, 1, {taps}, {taps}]\n"
    )
    stride, dilation = random.choice((1, 1, 2)), random.choice((1, 1, 2))
    padding = taps // 2 * dilation
    given = f"stride={stride}, padding={padding}, dilation={dilation}, groups={channels}"
    return f"{declared}b: {dtype}[{channels}]\ny = F.conv2d(x, w, b, {given})\nreturn F.relu6(y)\n"


def axes(random: Random, size: str) -> str:
    """Reductions over several axes, the whole tensor and long rows; accurate spreads of large means."""
    if size == "small":
        shape = random.choice(((4, 6, 10), (3, 5, 7), (2, 3, 4, 9)))
    else:
        shape = random.choice(((64, 256, 784), (32, 512, 196), (16, 64, 56, 56), (256, 64, 256), (4, 8, 131072)))
    dtype = random.choice(FLOATS)
    declared, name = laid_out(random, "x", shape, dtype)
    rank = len(shape)
    dims = random.choice(((0, 2), (0, rank - 1), (1, 2), tuple(range(1, rank)), tuple(range(rank)), (0, 1)))
    dims = tuple(sorted(set(dims)))
    how = random.choice(("sum", "mean", "amax", "var", "std", "normalise", "two", "logsumexp"))
    if how == "normalise":
        return (
            f"{declared}f = {name}.float() + 100\nm = f.mean({dims}, keepdim=True)\n"
            f"v = f.var({dims}, unbiased=False, keepdim=True)\ny = (f - m) * torch.rsqrt(v + 1e-5)\nreturn y\n"
        )
    if how == "two":
        return f"{declared}f = torch.sigmoid({name}.float())\nreturn f.sum({dims}), f.amax({random.choice((0, -1))})\n"
    if how in ("var", "std"):
        return (
            f"{declared}f = {name}.float() + 1000\ny = f.{how}({dims}, correction={random.choice((0, 1))})\nreturn y\n"
        )
    if how == "logsumexp":
        return f"{declared}y = torch.logsumexp({name}.float() * 3, {dims})\nreturn y\n"
    if how == "amax":
        return f"{declared}y = torch.amax({put(random.choice(EXACT), name)}, {dims})\nreturn y * 2\n"
    return (
        f"{declared}h = torch.sigmoid({name}.float())\ny = h.{how}({dims})\nreturn {put(random.choice(AFTER), 'y')}\n"
    )


FAMILIES: Mapping[str, Family] = {
    "scan": scan,
    "arg": arg,
    "pool": pool,
    "topk": topk,
    "gather": gather,
    "depthwise": depthwise,
    "axes": axes,
}


def program_of_seed(family: str, seed: int, size: str = "large") -> str:
    """The program of a seed."""
    return FAMILIES[family](Random(f"{family} {seed}"), size)


def input_bytes(text: str) -> int:
    """Bytes of the inputs that a text declares."""
    from profiler.region.language.text import parse
    from profiler.region.model import ITEMSIZE

    return sum(ITEMSIZE[i.dtype] * math.prod(int(str(n)) for n in i.shape) for i in parse(text).inputs)
