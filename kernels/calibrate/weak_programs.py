"""More calibration programs where interpolation was furthest off: scans, orders, rows, losses, embeddings.

Families of their own: the programs of the other families are recorded by number and must be drawn again as they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from kernels.calibrate.memory_programs import BINARY, UNARY, Family
from kernels.calibrate.sizes import MOST_BYTES, between, declare, dtype, elements, shape
from profiler.region.model import ITEMSIZE


def few_rows(rng: Random, kind: str, most_bytes: int = MOST_BYTES // 2) -> tuple[int, int]:
    """(rows, columns) with fewer rows than processors, or rows of a few elements."""
    total = elements(rng, ITEMSIZE[kind], 2**14, most_bytes)
    if rng.random() < 0.5:
        rows = between(rng, 1, 256)
        return rows, max(2, total // rows)
    columns = between(rng, 2, 256)
    return max(1, total // columns), columns


def long_scan(rng: Random) -> str:
    """Scans along short and very long axes, the last and the first, of numbers and of booleans."""
    kind = rng.choice((dtype(rng), dtype(rng), "bool", "i64"))
    sizes = few_rows(rng, kind if kind != "bool" else "f32", MOST_BYTES // 8)
    axis = rng.choice((1, 1, 0))
    x = declare("x", kind, sizes, ".below(100)" if kind == "i64" else "")
    if kind in ("bool", "i64"):
        return f"{x}\nreturn x.cumsum({axis})"
    call = rng.choices(("x.cumsum({})", "x.logcumsumexp({})", "x.cumprod({})", "x.cummax({})[0]"), (5, 3, 1, 1))[0]
    return f"{x}\nreturn {call.format(axis)}"


def long_order(rng: Random) -> str:
    """Sort and top-k of few long rows and of many short ones, of the types that activations have."""
    kind = rng.choice(("bf16", "f32", "f32", "f16"))
    n, columns = few_rows(rng, kind, MOST_BYTES // 16)
    k = rng.choice((1, 1, 2, 8, between(rng, 1, 256)))
    body = rng.choice(("x.sort(-1)[0]", "x.argsort(-1)", "topk", "topk", "topk", "topk"))
    if body == "topk":
        body = f"x.topk({min(k, columns)}, -1)[{rng.randrange(2)}]"
    return f"{declare('x', kind, (n, columns))}\nreturn {body}"


def long_reduction(rng: Random) -> str:
    """Sums, maxima and means of few long rows and many short ones; over the first axis as well; of booleans too."""
    kind = rng.choice((dtype(rng), dtype(rng), dtype(rng), "bool", "i64"))
    sizes = few_rows(rng, kind if kind != "bool" else "f32")
    x = declare("x", kind, sizes, ".below(100)" if kind == "i64" else "")
    axis = rng.choice((0, 1, 1))
    if kind in ("bool", "i64"):
        return f"{x}\nreturn x.sum({axis})"
    call = rng.choice(("sum", "mean", "amax", "var", "max", "argmax", "logsumexp"))
    return f"{x}\nreturn x.{call}({axis})" + ("[0]" if call == "max" else "")


def few_row_norm(rng: Random) -> str:
    """Softmax, layer and group norm where rows are few or short."""
    kind = dtype(rng)
    which = rng.choice(("softmax", "layer", "rms", "group", "group"))
    if which == "group":
        groups = rng.choice((8, 16, 32, 32))
        channels, batch = groups * rng.choice((2, 4, 8, 10, 16, 20, 40)), between(rng, 1, 32)
        left = max(16, elements(rng, ITEMSIZE[kind], 2**16, MOST_BYTES // 4) // (batch * channels))
        side = max(2, round(left**0.5))
        lines = [declare("x", kind, (batch, channels, side, side)), declare("w", kind, (channels,)),
                 declare("b", kind, (channels,))]  # fmt: skip
        return "\n".join([*lines, f"return F.group_norm(x, {groups}, w, b)"])
    n, d = few_rows(rng, kind)
    lines = [declare("x", kind, (n, d))]
    if which == "softmax":
        return f"{lines[0]}\nreturn softmax(x, -1)"
    lines.append(declare("w", kind, (d,)))
    if which == "rms":
        return "\n".join([*lines, f"return F.rms_norm(x, [{d}], w)"])
    return "\n".join([*lines, declare("b", kind, (d,)), f"return F.layer_norm(x, [{d}], w, b)"])


def pairwise_loss(rng: Random) -> str:
    """Losses without their sum."""
    kind = dtype(rng)
    sizes = shape(rng, kind, rng.choice((1, 2, 3)), most_bytes=MOST_BYTES // 2)
    name = rng.choice(("mse_loss", "smooth_l1_loss", "l1_loss", "huber_loss"))
    return "\n".join([declare("x", kind, sizes), declare("y", kind, sizes), f"return F.{name}(x, y, reduction='none')"])


def wide_embedding(rng: Random) -> str:
    """Rows of large tables at few places and at many."""
    kind = dtype(rng)
    width = rng.choice((64, 128, 256, 512, 768, 1024, 2048, 2304, 4096, 5120, between(rng, 1, 8192)))
    table = min(between(rng, 256, 2**18), MOST_BYTES // (width * ITEMSIZE[kind]))
    batch, long = between(rng, 1, 64), between(rng, 1, 4096)
    while batch * long * width * ITEMSIZE[kind] > MOST_BYTES // 2:
        long = max(1, long // 2)
    w, i = declare("w", kind, (table, width)), declare("i", "i64", (batch, long), f".below({table})")
    return "\n".join([w, i, f"return {rng.choice(('F.embedding(i, w)', 'w[i]'))}"])


def plain(rng: Random) -> str:
    """The commonest pointwise operations at sizes from a launch's to memory's."""
    kind = dtype(rng)
    sizes = shape(rng, kind, rng.choice((2, 3)), most_bytes=MOST_BYTES // 2)
    if rng.random() < 0.6:
        return f"{declare('x', kind, sizes)}\nreturn {rng.choice(UNARY[:9])}"
    return "\n".join([declare("x", kind, sizes), declare("y", kind, sizes), f"return {rng.choice(BINARY[:4])}"])


FAMILIES: Mapping[str, tuple[Family, int]] = {
    "long_scan": (long_scan, 5), "long_order": (long_order, 4), "long_reduction": (long_reduction, 4),
    "few_row_norm": (few_row_norm, 4), "pairwise_loss": (pairwise_loss, 1), "wide_embedding": (wide_embedding, 2),
    "plain": (plain, 3),
}  # fmt: skip
"""Family -> what draws a program, and its share of the points."""
