"""More families of random programs over the generator's newer operations: scatters, bags, quantised results, products.

As in `operation_families`, which they join in `ALL`.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tools.fuzz import row_shapes
from tools.fuzz.moved_element_families import MOVED
from tools.fuzz.operation_families import AFTER, BEFORE, FAMILIES, FLOATS, Family, put

ROWS = "rows"
PRODUCTS = ("f16", "bf16")


def scatter(random: Random, size: str) -> str:
    """index_add, scatter_add, scatter_reduce, index_put, embedding's backward, counts: with steps before and after."""
    small = size == "small"
    rows, places, width = (
        (60, 7, 33)
        if small
        else random.choice(((65536, 1024, 64), (131072, 4096, 32), (32768, 32768, 128), (400000, 50000, 16)))
    )
    dtype = random.choice(FLOATS)
    index = f"i: i64[{rows}].below({places})\n"
    source = f"x: {dtype}[{rows}, {width}]\n{index}"
    positive = "torch.sigmoid(x)"  # a sum near zero has no relative error to speak of
    after = put(random.choice(AFTER), "y")
    how = random.choice(
        ("index_add", "scatter_add", "reduce", "reduce", "put", "embedding", "count", "gathered", "copy")
    )
    if how == "index_add":
        alpha = random.choice(("", ", alpha=0.5"))
        start = random.choice((f"zeros({places}, {width}, dtype={dtype})", f"ones({places}, {width}, dtype={dtype})"))
        return f"{source}y = {start}.index_add(0, i, {positive}{alpha})\nreturn {after}\n"
    if how == "scatter_add":
        given = f"t: {dtype}[{places}, {width}]\n"
        return (
            f"{source}{given}y = torch.sigmoid(t).scatter_add(0, i[:, None].expand(-1, {width}), {positive})\n"
            f"return {after}\n"
        )
    if how == "reduce":
        reduce = random.choice(("sum", "mean", "amax", "amin"))
        first = {"amax": "float('-inf')", "amin": "float('inf')"}.get(reduce, "0.0")
        values = "x" if reduce in ("amax", "amin") else positive
        own = reduce in ("amax", "amin") and random.random() < 0.5
        start = (
            f"full(({places}, {width}), {first}, dtype={dtype})" if own else f"zeros({places}, {width}, dtype={dtype})"
        )
        given = f"{values}, '{reduce}', include_self={own}"
        return (
            f"{source}y = {start}.scatter_reduce(0, i[:, None].expand(-1, {width}), {given})\n"
            f"return {'torch.tanh(y)' if own else 'y * 2'}\n"
        )
    if how == "put":
        return (
            f"x: {dtype}[{rows}]\n{index}j: i64[{rows}].below({width})\n"
            f"y = torch.index_put(zeros({places}, {width}, dtype={dtype}), (i, j), {positive}, accumulate=True)\n"
            f"return {after}\n"
        )
    if how == "embedding":
        return f"{source}y = aten.embedding_dense_backward({positive}, i, {places}, -1, False)\nreturn {after}\n"
    if how == "count":
        bins = 5 if small else random.choice((8, 64, 128, 1024))
        count = rows if small else 1 << 20
        declared = f"i: i64[{count}].below({bins})\n"
        if random.random() < 0.5:
            ones = f"ones({count}, dtype=f32)"
            return f"{declared}y = zeros({bins}, dtype=f32).index_add(0, i, {ones})\nreturn y / {count}\n"
        return f"x: f32[{count}]\ny = torch.histc(x, {bins}, -2.0, 2.0)\nreturn y + 1\n"
    if how == "gathered":
        return (
            f"t: {dtype}[{places}, {width}]\n{index}j: i64[{rows}].below({places})\nw: {dtype}[{rows}]\n"
            f"m = torch.sigmoid(t[j]) * torch.sigmoid(w)[:, None]\n"
            f"y = zeros({places}, {width}, dtype={dtype}).index_add(0, i, m)\nreturn {after}\n"
        )
    given = f"t: {dtype}[{places}, {width}]\n"
    few = places // 2
    return (
        f"{given}v: {dtype}[{few}, {width}]\n"
        f"y = t.index_copy(0, arange({few}) * 2, {put(random.choice(BEFORE), 'v')})\n"
        f"return {after}\n"
    )


def bag(random: Random, size: str) -> str:
    """Bags of embeddings and segments: sums, means and largest of runs of rows."""
    small = size == "small"
    rows, table, bags, width = (
        (60, 9, 7, 20)
        if small
        else random.choice(((131072, 50000, 4096, 64), (65536, 30000, 1024, 128), (400000, 100000, 20000, 32)))
    )
    dtype = random.choice(FLOATS)
    offsets = f"o: i64[{bags + 1}].offsets({rows})\n"
    mode = random.choice(("sum", "mean", "max"))
    if random.random() < 0.5:
        return (
            f"t: {dtype}[{table}, {width}]\ni: i64[{rows}].below({table})\n{offsets}"
            f"y = F.embedding_bag(i, torch.sigmoid(t), o[:-1], mode='{mode}')\n"
            f"return {put(random.choice(AFTER), 'y')}\n"
        )
    if random.random() < 0.5:
        return (
            f"x: f32[{rows}, {width}]\n{offsets}"
            f"y = torch.segment_reduce(torch.sigmoid(x), '{mode}', offsets=o)\nreturn y * 2\n"
        )
    return (
        f"x: {dtype}[{rows}, {width}]\n{offsets}n = o[1:] - o[:-1]\n"
        f"s = repeat_interleave(arange({bags}), n, output_size={rows})\n"
        f"y = zeros({bags}, {width}, dtype={dtype}).index_add(0, s, torch.sigmoid(x))\n"
        f"return y / n.clamp(min=1)[:, None]\n"
    )


def quantised(random: Random, size: str) -> str:
    """int8 and 8-bit floats with scales of a tensor, of rows, of blocks; unpacked and dequantised inputs."""
    small = size == "small"
    rows, columns = (9, 256) if small else random.choice(((4096, 4096), (8192, 1024), (2048, 7168), (16384, 512)))
    dtype = random.choice(FLOATS)
    declared = f"x: {dtype}[{rows}, {columns}]\n"
    before = random.choice(("h = x.float()\n", "h = F.silu(x.float())\n", "h = F.rms_norm(x.float(), ({c},))\n"))
    before = before.replace("{c}", str(columns))
    how = random.choice(("row", "row", "block", "block", "tensor", "unpack", "dequantise"))
    eight = random.choice(("i8", "i8", "f8e4m3", "f8e5m2"))
    top = {"i8": 127, "f8e4m3": 448, "f8e5m2": 57344}[eight]
    whole = "torch.round({}).clamp(-128, 127).to(i8)" if eight == "i8" else f"({{}}).clamp(-{top}, {top}).to({eight})"
    if how == "unpack":
        group = 32 if small else 128
        return (
            f"w: u8[{rows}, {columns // 2}]\ns: {dtype}[{rows}, {columns // group}]\n"
            f"q = stack((w & 15, w >> 4), -1).view({rows}, {columns}).to({dtype}) - 8\n"
            f"return (q.view({rows}, {columns // group}, {group}) * s[:, :, None]).view({rows}, {columns})\n"
        )
    if how == "dequantise":
        return f"w: {eight}[{rows}, {columns}]\ns: f32[{rows}, 1]\nreturn (w.float() * s).to(bf16)\n"
    if how == "block":
        group = 64 if small else 128
        view, back = f".view({rows}, {columns // group}, {group})", f".view({rows}, {columns})"
        return (
            f"{declared}{before}b = h{view}\ns = b.abs().amax(-1, keepdim=True).clamp(min=1e-6) / {top}\n"
            f"q = {whole.format('b / s')}{back}\nreturn q, s.squeeze(-1)\n"
        )
    over = "-1, keepdim=True" if how == "row" else ""
    scale = f"s = h.abs().amax({over}).clamp(min=1e-6) / {top}\n"
    return f"{declared}{before}{scale}q = {whole.format('h / s')}\nreturn q, s\n"


def product(random: Random, size: str) -> str:
    """Matrix products with dequantised weights in front, or activations, residuals, masks and rows behind."""
    small = size == "small"
    dtype = random.choice(PRODUCTS)
    side = random.choice((512, 1024, 2048, 4096))
    m, n, k = (17, 40, 64) if small else (random.choice((1, 16, 64, 512, 4096)), side, random.choice((512, 1024, 4096)))
    how = random.choice(
        ("int8", "int4", "f8", "epilogue", "epilogue", "rows", "rows", "quantised", "integers", "batch")
    )
    x = f"x: {dtype}[{m}, {k}]\n"
    tail = random.choice(("F.gelu(y)", "F.silu(y) * 2", "torch.relu(y + b)", "y + b"))
    bias = f"b: {dtype}[{n}]\n"
    if how == "int8":
        return f"{x}w: i8[{n}, {k}]\ns: {dtype}[{n}]\n{bias}y = (x @ w.to({dtype}).t()) * s\nreturn {tail}\n"
    if how == "f8":
        return f"{x}w: f8e4m3[{n}, {k}]\ns: {dtype}[{n}, 1]\n{bias}y = x @ (w.to({dtype}) * s).t()\nreturn {tail}\n"
    if how == "int4":
        group = 32 if small else 128
        return (
            f"{x}w: u8[{n}, {k // 2}]\ns: {dtype}[{n}, {k // group}]\n{bias}"
            f"q = stack((w & 15, w >> 4), -1).view({n}, {k // group}, {group}).to({dtype}) - 8\n"
            f"y = x @ (q * s[:, :, None]).view({n}, {k}).t()\nreturn {tail}\n"
        )
    if how == "batch":
        batch, tokens, head = (3, 17, 32) if small else random.choice(((64, 128, 64), (32, 256, 64), (256, 64, 32)))
        return (
            f"q: {dtype}[{batch}, {tokens}, {head}]\nk: {dtype}[{batch}, {tokens}, {head}]\n"
            f"m: bool[{tokens}, {tokens}].mask(0.2)\n"
            f"s = (q @ k.transpose(-1, -2)) * 0.125\nreturn softmax(s.masked_fill(m, -1e4), -1)\n"
        )
    rows = 40 if small else random.choice((1024, 16384, 65536))
    wide, deep = (24, 40) if small else (random.choice((64, 128, 256)), random.choice((64, 128, 256)))
    if how == "integers":
        rows = max(32, min(rows, 16384))
        return (
            f"x: i8[{rows}, {deep if not small else 64}]\nw: i8[{deep if not small else 64}, {wide}]\n"
            f"s: f32[{rows}, 1]\nt: f32[{wide}]\n"
            f"y = torch._int_mm(x, w).float() * s * t\nreturn F.relu(y).to({dtype})\n"
        )
    given = f"x: {dtype}[{rows}, {deep}]\nw: {dtype}[{deep}, {wide}]\n"
    if how == "rows":
        behind = random.choice(
            (
                f"F.layer_norm(y, ({wide},))",
                "softmax(y.float(), -1)",
                "torch.logsumexp(y.float(), -1)",
                "y.float().pow(2).sum(-1)",
                f"F.rms_norm(y.float(), ({wide},)).to({dtype})",
            )
        )
        return f"{given}y = x @ w\nreturn {behind}\n"
    if how == "quantised":
        return (
            f"{given}y = F.relu(x @ w).float()\ns = y.abs().amax(-1, keepdim=True).clamp(min=1e-6) / 448\n"
            f"return (y / s).clamp(-448, 448).to(f8e4m3), s\n"
        )
    residual = f"r: {dtype}[{rows}, {wide}]\n"
    behind = random.choice(("F.gelu(y) + r", "torch.tanh(y) * r", "F.silu(y)", "torch.where(r > 0, y, 0.0)"))
    return f"{given}{residual}y = x @ w\nreturn {behind}\n"


ALL: Mapping[str, Family] = {
    **FAMILIES, "scatter": scatter, "bag": bag, "quantised": quantised, "product": product, ROWS: row_shapes.rows,
    **MOVED,
}  # fmt: skip


def program_of_seed(family: str, seed: int, size: str = "large") -> str:
    """The program of a seed; of rows that of this number."""
    if family == ROWS:
        return row_shapes.program(seed, size)
    return ALL[family](Random(f"{family} {seed}"), size)
