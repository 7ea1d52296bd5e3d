"""Calibration programs of several operations: what torch.compile fuses, and what it lays around library calls.

Composed at random from the blocks that models are made of; their kernels' times are the atlas's points for generated
code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from kernels.calibrate.memory_programs import Family
from kernels.calibrate.sizes import between, declare, dtype, elements, rows, shape

ACTIVATIONS = (
    "relu({})", "gelu({})", "gelu({}, approximate='tanh')", "silu({})", "sigmoid({})", "tanh({})",
    "{}.clamp(-2.0, 2.0)", "{} * 0.5", "{} + 1.0", "hardswish({})", "{}.abs()", "{}.square()", "softplus({})",
    "leaky_relu({}, 0.1)", "({} * 0.1).exp()", "mish({})", "elu({})", "{} / 1.7", "{}.neg()", "relu({}).square()",
)  # fmt: skip


@dataclass
class Draft:
    """A program being written: declared inputs, statements, and the value that goes on."""

    rng: Random
    kind: str
    sizes: tuple[int, ...]
    inputs: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    value: str = "x"
    count: int = 0
    grad: bool = False

    def take(self, kind: str, sizes: tuple[int, ...], suffix: str = "") -> str:
        """A new input."""
        name = f"a{self.count}"
        self.count += 1
        grad = ".requires_grad" if self.grad and kind in ("f32", "bf16", "f16") else ""
        self.inputs.append(declare(name, kind, sizes, suffix + grad))
        return name

    def step(self, expression: str, sizes: tuple[int, ...] | None = None, kind: str | None = None) -> None:
        """The value becomes this; {} stands for what it was."""
        name = f"h{len(self.body)}"
        self.body.append(f"{name} = {expression.replace('{}', self.value)}")
        self.value = name
        self.sizes, self.kind = sizes or self.sizes, kind or self.kind

    def text(self) -> str:
        return "\n".join([*self.inputs, *self.body, f"return {', '.join([*self.outputs, self.value])}"])


Block = Callable[[Draft], None]


def _activate(d: Draft) -> None:
    d.step(d.rng.choice(ACTIVATIONS))


def _combine(d: Draft) -> None:
    """With another tensor of the same shape, or a smaller one."""
    form = d.rng.choice(("full", "full", "row", "column", "part"))
    sizes = d.sizes
    if form == "row":
        sizes = d.sizes[-1:]
    elif form == "column" and len(d.sizes) > 1:
        sizes = (*d.sizes[:-1], 1)
    elif form == "part":
        sizes = tuple(s if d.rng.random() < 0.5 else 1 for s in d.sizes)
    other = d.take(d.kind if d.rng.random() < 0.85 else "f32", sizes)
    d.step(d.rng.choice((f"{{}} + {other}", f"{{}} * {other}", f"{{}} - {other}", f"silu({{}}) * {other}")))
    if d.rng.random() < 0.7:
        d.step(f"{{}}.to({d.kind})")


def _mask(d: Draft) -> None:
    if d.rng.random() < 0.5:
        mask = d.take("bool", d.sizes if d.rng.random() < 0.5 else d.sizes[-1:])
        d.step(f"{{}}.masked_fill({mask}, 0.0)")
    else:
        d.step("torch.where({} > 0.1, {}, {} * 0.01)")


def _widen(d: Draft) -> None:
    if d.kind != "f32":
        d.step("{}.float()", kind="f32")


def _normalise(d: Draft) -> None:
    last = d.sizes[-1]
    axis = -1 if d.rng.random() < 0.8 or len(d.sizes) < 2 else 0
    form = d.rng.choice(("layer", "rms", "rms_hand", "softmax", "softmax", "mean", "l2", "log_softmax"))
    if form == "layer":
        w, b = d.take(d.kind, (last,)), d.take(d.kind, (last,))
        d.step(f"F.layer_norm({{}}, [{last}], {w}, {b})")
    elif form == "rms":
        d.step(f"F.rms_norm({{}}, [{last}], {d.take(d.kind, (last,))})")
    elif form == "rms_hand":
        kind, w = d.kind, d.take(d.kind, (last,))
        _widen(d)
        d.step("{} * torch.rsqrt({}.square().mean(-1, keepdim=True) + 1e-6)")
        d.step(f"{{}}.to({kind}) * {w}", kind=kind)
    elif form in ("softmax", "log_softmax"):
        d.step(f"{form}({{}}, {axis})")
    elif form == "mean":
        d.step(f"{{}} - {{}}.mean({axis}, keepdim=True)")
    else:
        d.step(f"{{}} / ({{}}.square().sum({axis}, keepdim=True) + 1e-6).sqrt()")


def _reduce(d: Draft) -> None:
    axis = d.rng.choice((-1, -1, 0, len(d.sizes) - 1, d.rng.randrange(len(d.sizes))))
    left = tuple(s for n, s in enumerate(d.sizes) if n != axis % len(d.sizes))
    d.step(f"{{}}.{d.rng.choice(('sum', 'mean', 'amax', 'sum'))}({axis})", left)


def _drop(d: Draft) -> None:
    d.step("dropout({}, 0.1)")


def _fold(d: Draft) -> None:
    """Another order of axes: heads split off and moved."""
    if len(d.sizes) == 2 and d.sizes[1] % 64 == 0:
        n, heads = d.sizes[0], d.sizes[1] // 64
        d.step(f"{{}}.view({n}, {heads}, 64).transpose(0, 1)", (heads, n, 64))
    elif len(d.sizes) > 1:
        order = list(range(len(d.sizes)))
        d.rng.shuffle(order)
        d.step(f"{{}}.permute({', '.join(map(str, order))})", tuple(d.sizes[o] for o in order))
    if d.rng.random() < 0.6:
        d.step("{}.contiguous()")


def _rotate(d: Draft) -> None:
    """Rotary embedding: halves swapped, cosine and sine."""
    last = d.sizes[-1]
    if last % 2 or last < 4:
        _activate(d)
        return
    cos, sin = d.take(d.kind, d.sizes[-2:]), d.take(d.kind, d.sizes[-2:])
    half = f"torch.cat([-{{}}[..., {last // 2}:], {{}}[..., :{last // 2}]], -1)"
    d.step(f"{{}} * {cos} + {half} * {sin}")


def _gate(d: Draft) -> None:
    last = d.sizes[-1]
    if last % 2:
        _activate(d)
        return
    d.step(f"{d.rng.choice(('silu', 'gelu', 'sigmoid'))}({{}}[..., :{last // 2}]) * {{}}[..., {last // 2}:]",
           (*d.sizes[:-1], last // 2))  # fmt: skip


def _join(d: Draft) -> None:
    axis = d.rng.randrange(len(d.sizes))
    other = d.take(d.kind, d.sizes)
    sizes = tuple(2 * s if n == axis else s for n, s in enumerate(d.sizes))
    d.step(f"torch.cat([{{}}, {other}], {axis})", sizes)


def _scan(d: Draft) -> None:
    d.step(f"{{}}.cumsum({d.rng.choice((-1, -1, 0))})")


def _keep(d: Draft) -> None:
    """The value is an output, too."""
    d.outputs.append(d.value)


BLOCKS: Mapping[Block, int] = {
    _activate: 10, _combine: 10, _mask: 2, _widen: 2, _normalise: 8, _reduce: 4, _drop: 1, _fold: 3, _rotate: 2,
    _gate: 2, _join: 2, _scan: 1, _keep: 1,
}  # fmt: skip


def _blocks(d: Draft, low: int, high: int) -> str:
    for _ in range(d.rng.randint(low, high)):
        if not d.sizes:
            break
        d.rng.choices(list(BLOCKS), list(BLOCKS.values()))[0](d)
    if not d.body:
        _activate(d)
    return d.text()


def _begin(rng: Random, kind: str, sizes: tuple[int, ...], suffix: str = "") -> Draft:
    draft = Draft(rng, kind, sizes, grad=rng.random() < 0.3)
    draft.value = draft.take(kind, sizes, suffix)
    return draft


def chain(rng: Random) -> str:
    """Pointwise, broadcast, norms and reductions over one to four axes."""
    kind, dims = dtype(rng), rng.choice((1, 2, 2, 2, 3, 3, 4))
    most = 2**28
    sizes = rows(rng, kind, most) if dims == 2 else shape(rng, kind, dims, 2**12, most)
    return _blocks(_begin(rng, kind, sizes), 1, 6)


def lookup(rng: Random) -> str:
    """What begins with a gather or ends with additions to places that are data."""
    kind = dtype(rng)
    table, width = between(rng, 64, 131072), between(rng, 16, 2048)
    count = between(rng, 64, max(64, min(2**20, 2**27 // width)))
    d = _begin(rng, kind, (table, width))
    index = d.take("i64", (count,), f".below({table})")
    if rng.random() < 0.5:
        d.step(f"{rng.choice(('F.embedding(' + index + ', {})', '{}[' + index + ']'))}", (count, width))
        return _blocks(d, 0, 3)
    other = d.take(kind, (count, width))
    d.step(f"{{}}.index_add(0, {index}, {rng.choice((other, f'relu({other})', f'{other} * 2.0'))})")
    return d.text()


def cross_entropy(rng: Random) -> str:
    """Logits to a loss, with conversions and a soft cap."""
    kind = dtype(rng)
    n, classes = rows(rng, kind, 2**28)
    d = _begin(rng, kind, (n, max(2, classes)))
    target = d.take("i64", (n,), f".below({max(2, classes)})")
    if rng.random() < 0.6:
        _widen(d)
    if rng.random() < 0.3:
        d.step("torch.tanh({} / 30.0) * 30.0")
    d.step(f"F.cross_entropy({{}}, {target})", ())
    return d.text()


def linear(rng: Random) -> str:
    """A matrix product with what feeds it and what follows."""
    kind = dtype(rng)
    m, n, k = between(rng, 16, 8192), between(rng, 16, 8192), between(rng, 16, 8192)
    d = _begin(rng, kind, (m, k))
    if rng.random() < 0.4:
        rng.choice((_normalise, _activate))(d)
        d.step(f"{{}}.to({kind})", kind=kind)
    w = d.take(kind, (n, k))
    bias = f", {d.take(kind, (n,))}" if rng.random() < 0.5 else ""
    d.step(f"F.linear({{}}, {w}{bias})", (m, n))
    return _blocks(d, 0, 3)


def image(rng: Random) -> str:
    """A convolution with normalisation, activation, pooling or another behind it."""
    kind, dims = dtype(rng), rng.choices((1, 2, 3), (1, 8, 1))[0]
    batch, cin, cout = between(rng, 1, 128), between(rng, 3, 512), between(rng, 8, 512)
    left = max(2**8, elements(rng, 4, 2**16, 2**27) // (batch * max(cin, cout)))
    side = max(8, round(left ** (1 / dims)))
    d = _begin(rng, kind, (batch, cin, *([side] * dims)), ".channels_last" if dims == 2 and rng.random() < 0.3 else "")
    for _ in range(rng.choice((1, 1, 2))):
        tap = rng.choice((1, 3, 3))
        depthwise = rng.random() < 0.2
        groups, out = (d.sizes[1], d.sizes[1]) if depthwise else (1, cout)
        w = d.take(kind, (out, d.sizes[1] // groups, *([tap] * dims)))
        bias = d.take(kind, (out,)) if rng.random() < 0.4 else "None"
        d.step(f"F.conv{dims}d({{}}, {w}, {bias}, padding={tap // 2}, groups={groups})", (batch, out, *d.sizes[2:]))
        _behind_convolution(d, dims)
    return d.text()


def _behind_convolution(d: Draft, dims: int) -> None:
    rng, channels = d.rng, d.sizes[1]
    grad, d.grad = d.grad, False
    form = rng.choice(("batch", "batch", "group", "none"))
    if form == "batch":
        mean, var = d.take("f32", (channels,)), d.take("f32", (channels,))
        d.grad = grad
        w, b = d.take("f32", (channels,)), d.take("f32", (channels,))
        training = "True" if grad else "False"
        d.step(f"F.batch_norm({{}}, {'None, None' if grad else f'{mean}, {var}.abs()'}, {w}, {b}, {training})")
    d.grad = grad
    if form == "group" and channels % 8 == 0:
        w, b = d.take(d.kind, (channels,)), d.take(d.kind, (channels,))
        d.step(f"F.group_norm({{}}, 8, {w}, {b})")
    if rng.random() < 0.8:
        _activate(d)
    if rng.random() < 0.3:
        other = d.take(d.kind, d.sizes)
        d.step(f"relu({{}} + {other})")
    if rng.random() < 0.25 and min(d.sizes[2:]) >= 4:
        sizes = (*d.sizes[:2], *((s - 2) // 2 + 1 for s in d.sizes[2:]))
        d.step(f"F.{rng.choice(('max', 'avg'))}_pool{dims}d({{}}, 2, 2)", sizes)


FAMILIES: Mapping[str, tuple[Family, int]] = {
    "chain": (chain, 24), "lookup": (lookup, 4), "cross_entropy": (cross_entropy, 3), "linear": (linear, 5),
    "image": (image, 8),
}  # fmt: skip
"""Family -> what draws a program, and its share of the points."""
