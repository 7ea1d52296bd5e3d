"""Region texts drawn at random: what fits together more often than not, with the shapes that arithmetic trips over.

Ranks and sizes of 0, scalars, strides of 0, gradients, integers, bools and 8-bit floats; keywords in any order. `text`
draws regions, `call` one call of anything in the vocabulary with arguments of any kind. Pure functions of a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from profiler.region.language import signatures, vocabulary
from profiler.region.language.signatures import Parameter
from profiler.region.model import FLOATING

FLOATS = ("f32", "f32", "f32", "bf16", "bf16", "f16", "f64")
DTYPES = (*FLOATS, "i64", "i32", "i16", "i8", "u8", "bool", "f8e4m3", "f8e5m2")
RANKS = (0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 4, 4)
SIZES = (0, 0, 1, 1, 2, 3, 4, 8, 8, 16, 64, 127, 4096)
LARGE = (2**20, 2**30, 2**40)

SMALL = ("0", "1", "2", "3", "8")
DIMS = ("-1", "-1", "0", "0", "-1", "1", "-2", "2", "-5")
NUMBERS = ("0", "1", "-1", "2", "3", "8", "0.5", "0.0", "-1.5", "1e-5", "True", "float('inf')", "2**31", "2**40",
           "100000000", "x.shape[0]", "len(x.shape)")  # fmt: skip
OTHERS = ("None", "()", "[]", "(0,)", "[1, 2]", "(1, 1)", "[[0]]", "'mean'", "'sum'", "'none'", "bf16", "f32", "i64",
          "...", "(x, x)", "[x]", "(x, 1)", "[[x]]", "'ij,jk->ik'", "torch.channels_last")  # fmt: skip

STATEMENTS = (
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / {b}", "{a} @ {b}", "{a} @ {a}.mT", "{a}.mT @ {a}", "{a} / {n}",
    "{a} ** {n}", "{a} // {b}", "{a} % {n}", "-{a}", "~{a}", "{a} > {b}", "{i} & {i}", "{a} == {n}", "relu({a})",
    "gelu({a})", "silu({a})", "torch.exp({a})", "rsqrt({a})", "{a}.float()", "{a}.to({t})", "{a}.bool()",
    "softmax({a}, {d})", "log_softmax({a}, {d})", "softmax({a} @ {a}.mT * {n}, -1) @ {a}",
    "softmax({a} @ {a}.mT / {n}, -1) @ {a}", "{a}.sum()", "{a}.sum({d})", "{a}.mean({d}, keepdim=True)",
    "{a}.amax({d})", "{a}.amax()", "{a}.max()", "{a}.max({d}).values", "{a}.var({d})", "{a}.prod({d})", "{a}.norm()",
    "{a}.argmax({d})", "{a}.all()", "{a}.any({d})", "logsumexp({a}, {d})", "cumsum({a}, {d})", "sort({a}, {d})[0]",
    "topk({a}, {s})[0]", "layer_norm({a}, {a}.shape[-1:])", "layer_norm({a}, {a}.shape)",
    "rms_norm({a}, {a}.shape[-1:])", "rms_norm({a}, {a}.shape[-1:], {b})",
    "{a} * torch.rsqrt({a}.pow(2).mean(-1, keepdim=True) + {n})", "group_norm({a}, {s})",
    "batch_norm({a}, None, None, training=True)", "normalize({a}, dim={d})", "cross_entropy({a}, {i})",
    "cross_entropy({a}, {a}.argmax(-1))", "mse_loss({a}, {b})", "l1_loss({a}, {a})", "nll_loss({a}, {i})",
    "kl_div({a}, {b})", "binary_cross_entropy_with_logits({a}, {b})", "huber_loss({a}, {a})",
    "gumbel_softmax({a}, {n})", "dropout({a}, {n})", "linear({a}, {b})", "linear({a}, {a}, {b})", "mm({a}, {b})",
    "bmm({a}, {b})", "addmm({a}, {b}, {b})", "baddbmm({a}, {a}, {b})", "dot({a}, {b})", "inner({a}, {b})",
    "outer({a}.flatten(), {b}.flatten())", "einsum('i,i->', {a}, {b})", "einsum('...i,...i->...', {a}, {a})",
    "einsum('ij,kj->ik', {a}, {b})", "tensordot({a}, {b}, {s})", "kron({a}, {b})", "vdot({a}, {b})",
    "aten._addmm_activation({a}, {b}, {b})", "scaled_dot_product_attention({a}, {a}, {a})", "conv2d({a}, {b})",
    "conv1d({a}, {b}, padding={s})", "max_pool2d({a}, {s})", "avg_pool2d({a}, {s})",
    "interpolate({a}, scale_factor={s})", "embedding({i}, {a})", "{a}.flatten()", "{a}.reshape(-1)",
    "{a}.view({a}.shape)", "{a}.reshape(1, -1)", "{a}.T", "{a}.transpose({d}, {d})", "{a}.squeeze({d})",
    "{a}.unsqueeze({d})", "{a}[0]", "{a}[..., 0]", "{a}[None]", "{a}[..., ::2]", "{a}[:0]", "{a}[{i}]", "{a}[{b} > 0]",
    "{a}.expand(2, -1)", "{a}.expand_as({b})", "broadcast_to({a}, {b}.shape)", "cat([{a}, {b}], {d})",
    "stack([{a}, {a}], {d})", "cat([{a}, {a}[:0]])", "{a}.split({s}, {d})[0]", "{a}.chunk({s}, dim={d})[0]",
    "{a}.unbind({d})[0]", "torch.tensor_split({a}, {s}, dim={d})[-1]", "torch.chunk({a}, dim=0, chunks={s})[0]",
    "hsplit({a}, {s})[0]", "where({a} > {n}, {a}, {b})", "where({m}, {a}, {n})", "{a}.masked_fill({m}, {n})",
    "{a}.masked_fill({a} > 0, {n})", "gather({a}, {d}, {i})", "{a}.index_select({d}, {i})",
    "{a}.index_fill({d}, {i}, {n})", "{a}.index_add({d}, {i}, {a})", "{a}.index_fill({d}, arange({s}), {n})",
    "{a}.index_select({d}, arange({s}))", "{a}.scatter({d}, {i}, {n})", "{a}.scatter_add({d}, {i}, {a})",
    "take({a}, {i})", "{a}.index_put(({i},), {a})", "{a}.clone().add_({b})", "tril({a})", "diag({a})", "diagonal({a})",
    "trace({a})", "roll({a}, {s}, {d})", "flip({a}, [{d}])", "pad({a}, (1, {s}))", "pad({a}, (1, 1), mode='reflect')",
    "repeat_interleave({a}, {s}, {d})", "{a}.repeat({s}, 2)", "tile({a}, ({s},))", "torch.diff({a}, n={s})",
    "zeros_like({a})", "full_like({a}, {n})", "arange({s}) + {a}", "zeros({s}, {s}) * {a}", "one_hot({i}, {s})",
    "bucketize({a}, {b})", "searchsorted({a}, {b})", "cdist({a}, {b})", "quantile({a}, {n})", "median({a})",
    "std({a}, {d})", "count_nonzero({a})", "clamp({a}, {n}, {n})", "lerp({a}, {b}, {n})",
    "addcmul({a}, {a}, {b}, value={n})", "polygamma({s}, {a})", "{a}.type_as({b})", "isin({a}, {b})",
    "meshgrid({a}, {b})[0]", "cartesian_prod({a}, {b})", "segment_reduce({a}, 'sum', lengths={i})", "histc({a}, {s})",
    "renorm({a}, 2, {d}, 1)", "{a}.expand(3, -1)", "{a}.permute(1, 0)", "{a}.expand(2, 4, -1, -1)", "{a}.view(-1, 1)",
    "{a}[:, None] * {a}[None]", "{a}.sum((0, -1))", "torch.var_mean({a}, {d})[1]", "{a}.mean() + {b}", "{a} * 2",
    "1 - {a}", "{a}.sum().reshape(1) + {b}", "{m} | {m}", "~{m}", "{i} + 1", "{i}.float() * {a}", "sigmoid({a}) * {b}",
    "{a}.contiguous()", "{a}.detach() * {b}",
)  # fmt: skip


def text(seed: str) -> str:
    """A region: some inputs, some statements on them and on what came before."""
    rng = Random(seed)
    shapes = _shapes(rng)
    names = [f"x{i}" if i else "x" for i in range(len(shapes))]
    dtype = rng.choice(FLOATS) if rng.random() < 0.8 else None
    lines = [f"{name}: {_type(rng, shape, dtype)}" for name, shape in zip(names, shapes, strict=True)]
    lines += [f"i: {_type(rng, rng.choice(shapes)[-1:], rng.choice(('i64', 'i32')))}"]
    lines += [f"m: {_type(rng, rng.choice(shapes), 'bool')}"]
    if rng.random() < 0.05:
        lines.insert(0, f"N: sizes[{rng.choice((1, 2, 8))}, {rng.choice((3, 64))}]")
        lines.append("xn: f32[N, 4]")
        names.append("xn")  # its sizes vary
    for i in range(rng.choice((1, 1, 2, 3, 5))):
        lines.append(f"y{i} = {_statement(rng, names)}")
        names.append(f"y{i}")
    if rng.random() < 0.1:
        lines.append(f"for i in range({rng.choice((0, 1, 3))}):\n    y0 = {_statement(rng, names)}")
    returned = ", ".join(dict.fromkeys(names[-1:] + [n for n in names if n[0] == "y" and rng.random() < 0.2]))
    return "\n".join([*lines, f"return {returned}", ""])


def call(seed: str) -> str:
    """A region of one call: anything of the vocabulary, with arguments that may be of any kind."""
    rng = Random(seed)
    module, name, parameters = _callable(rng)
    wild = rng.random()
    large = rng.random() < 0.3
    size = str(rng.choice(LARGE)) if large else None
    inputs = [("x", _shape(rng)), ("w", _shape(rng))]
    lines = []
    for at, shape in inputs:
        sizes = [size, *shape[1:]] if size and shape else shape
        lines.append(f"{at}: {_type(rng, sizes)}")
    given = [_argument(rng, p, wild) for p in parameters]
    if wild < 0.5 and given and rng.random() < 0.3:
        given = given[: rng.randrange(len(given) + 1)]
    if rng.random() < 0.1:
        given.append((rng.choice(("dim", "n", "out", "size")), _anything(rng)))
    cut = rng.randrange(len(given) + 1)
    keyed = [f"{n}={v}" for n, v in given[cut:]]
    rng.shuffle(keyed)
    arguments = ", ".join([*(v for _, v in given[:cut]), *keyed])
    target = f"x.{name}" if module == "method" else f"{module}.{name}"
    part = "[0]" if rng.random() < 0.1 else ""
    return "\n".join([*lines, f"y = {target}({arguments}){part}", "return y", ""])


def _callable(rng: Random) -> tuple[str, str, Sequence[Parameter]]:
    tables = {**vocabulary.functions(), "method": vocabulary.METHODS - vocabulary.PLAIN_METHODS}
    module = rng.choice(("aten", "aten", "aten", "torch", "torch", "F", "F", "method", "torch.fft", "torch.linalg"))
    name = rng.choice(sorted(tables[module]))
    target = name if module == "method" else vocabulary.function(module, name)
    known = list(signatures.signatures(target))
    parameters = [p for p in rng.choice(known).parameters if p.name not in ("out", "_stacklevel")] if known else []
    first = 1 if module == "method" and parameters else 0
    return module, name, [p for p in parameters[first:] if p.required or rng.random() < 0.4]


def _argument(rng: Random, parameter: Parameter, wild: float) -> tuple[str, str]:
    """A name and a value; wild: below a half any kind of value may stand anywhere."""
    if wild < 0.5 and rng.random() < 0.5:
        return parameter.name, _anything(rng)
    kind = parameter.type
    if kind in ("Tensor", "any"):
        value = rng.choice(("x", "x", "w", "x", "1", "0.5"))
    elif kind.startswith("List[Tensor") or kind.startswith("List[Optional"):
        value = rng.choice(("[x, w]", "(x,)", "[x, x]", "[]"))
    elif kind.startswith("List"):
        value = rng.choice(("[0]", "[1]", "[1, 1]", "(2, 2)", "()", "[-1]", "x.shape", "1"))
    elif kind == "bool":
        value = rng.choice(("True", "False"))
    elif kind == "ScalarType":
        value = rng.choice(("bf16", "f32", "i64"))
    elif kind == "str":
        value = rng.choice(("'mean'", "'none'", "'sum'", "'constant'", "'floor'"))
    else:
        value = rng.choice(("0", "1", "2", "-1", "8", "0.5"))
    return parameter.name, value


def _anything(rng: Random) -> str:
    return rng.choice((rng.choice(("x", "w")), rng.choice(NUMBERS), rng.choice(OTHERS)))


def _shapes(rng: Random) -> list[list[str]]:
    """Shapes of some inputs: of one family more often than not, so that they broadcast or multiply."""
    base = _shape(rng)
    found = [base]
    for _ in range(rng.choice((0, 1, 1, 2))):
        way = rng.randrange(6)
        other = list(base)
        if way == 0:
            other = _shape(rng)
        elif way == 1 and other:
            other[rng.randrange(len(other))] = "1"
        elif way == 2:
            other = other[-1:]
        elif way == 3 and len(other) > 1:
            other[-1], other[-2] = other[-2], other[-1]
        elif way == 4:
            other = other[:1]
        found.append(other)
    return found


def _shape(rng: Random) -> list[str]:
    return [str(rng.choice(SIZES)) for _ in range(rng.choice(RANKS))]


def _type(rng: Random, shape: Sequence[str], dtype: str | None = None) -> str:
    dtype = dtype or rng.choice(DTYPES)
    made = f"{dtype}[{', '.join(shape) or '()'}]"
    if dtype in FLOATING and rng.random() < 0.3:
        made += ".requires_grad"
    if rng.random() < 0.2:
        strides = [rng.choice(("0", "0", "1", "4", "64")) for _ in shape]
        made += f".strides({', '.join(strides)})"
    elif len(shape) == 4 and rng.random() < 0.2:
        made += ".channels_last"
    if dtype in ("i64", "i32") and rng.random() < 0.3:
        made += rng.choice((".below(4)", ".below(1)"))
    return made


def _statement(rng: Random, names: Sequence[str]) -> str:
    made = rng.choice(STATEMENTS)
    if rng.random() < 0.1:
        made = made.replace("{i}", "{b}").replace("{m}", "{b}")
    made = made.replace("{a}", rng.choice((names[-1], rng.choice(names)))).replace("{i}", "i").replace("{m}", "m")
    for mark, values in (("{b}", names), ("{n}", NUMBERS[:12]), ("{d}", DIMS), ("{t}", DTYPES), ("{s}", SMALL)):
        while mark in made:
            made = made.replace(mark, rng.choice(values), 1)
    return made
