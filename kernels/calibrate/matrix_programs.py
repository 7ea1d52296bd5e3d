"""Calibration programs of one operation of the matrix units: products, convolutions, attention."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from kernels.calibrate.memory_programs import Family
from kernels.calibrate.sizes import between, declare, dtype

MOST_FLOPS = {"f32": 2e11, "bf16": 4e12, "f16": 4e12}
"""Of one call: about 4 ms on an H100."""


def product(rng: Random) -> str:
    """mm, addmm and linear, batched ones; operands as they lie or transposed; sizes that divide and that do not."""
    kind = dtype(rng)
    while True:
        m, n, k = (between(rng, 1 if rng.random() < 0.2 else 16, 16384) for _ in range(3))
        batch = 1 if rng.random() < 0.65 else between(rng, 2, 512)
        cells = batch * max(m * n, m * k, n * k)
        if 2 * batch * m * n * k <= MOST_FLOPS[kind] and cells <= 2**28 and 2 * batch * m * n * k > 2**18:
            break
    if batch > 1:
        a, b = (batch, m, k), (batch, k, n)
        second = declare("w", kind, b if rng.random() < 0.5 else (batch, n, k))
        body = "x @ w" if second.endswith(f"{k}, {n}]") else "x @ w.mT"
        if k == n:
            body = "x @ w"
        return f"{declare('x', kind, a)}\n{second}\nreturn {body}"
    form = rng.choice(("linear", "linear", "bias", "mm", "tn", "addmm"))
    x = declare("x", kind, (m, k))
    if form in ("linear", "bias"):
        lines = [x, declare("w", kind, (n, k)), *([declare("b", kind, (n,))] if form == "bias" else [])]
        return "\n".join([*lines, f"return F.linear(x, w{', b' if form == 'bias' else ''})"])
    if form == "tn":
        return f"{declare('x', kind, (k, m))}\n{declare('w', kind, (k, n))}\nreturn x.mT @ w"
    lines = [x, declare("w", kind, (k, n))]
    if form == "addmm":
        return "\n".join([*lines, declare("b", kind, (n,)), "return torch.addmm(b, x, w)"])
    return "\n".join([*lines, "return x @ w"])


def low_precision(rng: Random) -> str:
    """f8 with scales, and int8."""
    m, n, k = (max(32, between(rng, 32, 16384) // 16 * 16) for _ in range(3))
    if rng.random() < 0.5:
        lines = [declare("x", "i8", (m, k)), declare("w", "i8", (n, k)), "return torch._int_mm(x, w.mT)"]
        return "\n".join(lines)
    lines = [declare("x", "f8e4m3", (m, k)), declare("w", "f8e4m3", (n, k)), "a: f32[()]", "b: f32[()]"]
    return "\n".join([*lines, "return torch._scaled_mm(x, w.mT, a, b, out_dtype=torch.bfloat16)"])


def convolution(rng: Random) -> str:
    """1d to 3d, plain, grouped, depthwise, transposed, strided, dilated; contiguous and channels-last; backward too."""
    kind = dtype(rng)
    dims = rng.choices((1, 2, 3), (2, 8, 2))[0]
    form = rng.choices(("plain", "depthwise", "grouped", "transposed"), (7, 2, 1, 2))[0]
    while True:
        groups = 1
        cin, cout = between(rng, 3 if form == "plain" else 8, 1024), between(rng, 8, 1024)
        if form == "depthwise":
            groups = cout = cin
        elif form == "grouped":
            groups = rng.choice((2, 4, 8, 32))
            cin, cout = max(groups, cin // groups * groups), max(groups, cout // groups * groups)
        taps = (
            [rng.choice((1, 3, 3, 3, 5, 7)) for _ in range(dims)]
            if rng.random() < 0.2
            else [rng.choice((1, 1, 3, 3, 3, 5, 7))] * dims
        )
        side = between(rng, 7, {1: 65536, 2: 512, 3: 64}[dims])
        batch = between(rng, 1, 256)
        stride, dilation = rng.choice((1, 1, 1, 2)), rng.choice((1, 1, 1, 1, 2))
        area = side**dims
        work = 2 * batch * area * cout * cin // groups
        for tap in taps:
            work *= tap
        most = {"f32": 1e12, "bf16": 2e12, "f16": 2e12}[kind] * (0.02 if groups > 1 else 1)
        reach = dilation * (max(taps) - 1) + 1
        if work <= most and batch * area * max(cin, cout) <= 2**28 and reach <= side:
            break
    padding = rng.choice((0, dilation * (taps[0] // 2)))
    last = dims == 2 and rng.random() < 0.4
    x = declare("x", kind, (batch, cin, *([side] * dims)), ".channels_last" if last else "")
    weight = (cin, cout // groups, *taps) if form == "transposed" else (cout, cin // groups, *taps)
    w = declare("w", kind, weight, ".channels_last" if last else "")
    options = f"stride={stride}, padding={padding}, dilation={dilation}, groups={groups}"
    if form == "transposed":
        return f"{x}\n{w}\nreturn F.conv_transpose{dims}d(x, w, None, {options})"
    bias = rng.random() < 0.4
    if rng.random() < 0.3:
        out = tuple((side + 2 * padding - dilation * (t - 1) - 1) // stride + 1 for t in taps)
        g = declare("g", kind, (batch, cout, *out), ".channels_last" if last else "")
        wanted, kept = rng.choice((("[True, True, False]", "a, c"), ("[True, True, True]", "a, c, e")))
        lists = ", ".join(str([v] * dims) for v in (stride, padding, dilation))
        call = f"aten.convolution_backward(g, x, w, [{cout}], {lists}, False, {[0] * dims}, {groups}, {wanted})"
        return "\n".join([g, x, w, f"a, c, e = {call}", f"return {kept}"])
    lines = [x, w, *([declare("b", kind, (cout,))] if bias else [])]
    return "\n".join([*lines, f"return F.conv{dims}d(x, w, {'b' if bias else 'None'}, {options})"])


def attention(rng: Random) -> str:
    """scaled_dot_product_attention: causal, masked, cross, grouped, decoding."""
    kind = rng.choices(("bf16", "f16", "f32"), (6, 2, 3))[0]
    while True:
        batch, heads = between(rng, 1, 64), rng.choice((1, 4, 8, 12, 16, 32, 40))
        depth = rng.choice((32, 64, 64, 80, 96, 128, 128, 256))
        long = between(rng, 16, 16384)
        short = long if rng.random() < 0.7 else (1 if rng.random() < 0.5 else between(rng, 1, long))
        work = 4 * batch * heads * short * long * depth
        if work <= (2e12 if kind != "f32" else 1e11) and batch * heads * long * depth <= 2**27:
            break
    kv = rng.choice([h for h in (1, 2, 4, heads) if heads % h == 0]) if rng.random() < 0.25 and kind != "f32" else heads
    lines = [declare("q", kind, (batch, heads, short, depth)), declare("k", kind, (batch, kv, long, depth)),
             declare("v", kind, (batch, kv, long, depth))]  # fmt: skip
    more = ", enable_gqa=True" if kv != heads else ""
    causal = short == long and rng.random() < 0.45
    if not causal and rng.random() < 0.3 and batch * short * long <= 2**27:
        lines.append(declare("m", rng.choice((kind, "bool")), (batch, 1, short, long)))
        return "\n".join([*lines, f"return F.scaled_dot_product_attention(q, k, v, attn_mask=m{more})"])
    return "\n".join(
        [*lines, f"return F.scaled_dot_product_attention(q, k, v{', is_causal=True' if causal else ''}{more})"]
    )


FAMILIES: Mapping[str, tuple[Family, int]] = {
    "product": (product, 14), "low_precision": (low_precision, 1), "convolution": (convolution, 26),
    "attention": (attention, 8),
}  # fmt: skip
"""Family -> what draws a program, and its share of the points."""
