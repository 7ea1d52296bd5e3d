"""One operation of a trace as the expression a person would have written."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from profiler.region.language import vocabulary
from profiler.region.mining.texts.call_arguments import Arguments, UnwritableError
from profiler.region.mining.texts.render_functional import FUNCTIONAL

OPERATORS: Mapping[str, str] = {
    "mul": "*", "div": "/", "true_divide": "/", "matmul": "@", "mm": "@", "bmm": "@", "floor_divide": "//",
    "remainder": "%", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "multiply": "*",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "__and__": "&", "__or__": "|",
}  # fmt: skip
VIEWS = frozenset("view _unsafe_view reshape expand repeat tile permute".split())
METHODS_OF_DIM = frozenset("unsqueeze squeeze select flatten unflatten narrow".split())
REDUCTIONS = frozenset("mean sum amax amin prod all any".split())
IDENTITIES = frozenset("detach alias lift_fresh detach_ resolve_conj resolve_neg dropout contiguous to".split())
"""Without a kernel these give their operand."""


def expression(a: Arguments) -> str:
    """The call as text. Raises UnwritableError where the language or the trace lacks something."""
    special = SPECIAL.get(a.base)
    if special is not None:
        return special(a)
    names = a.call.names
    if a.base in OPERATORS and len(names) >= 2 and not a.has("rounding_mode"):
        return f"{a.text[names[0]]} {OPERATORS[a.base]} {a.text[names[1]]}"
    if a.base in VIEWS:
        return f"{a.first()}.{a.base.removeprefix('_unsafe_')}({_plain(a.text[names[1]])})"
    if a.base in REDUCTIONS:
        return _reduction(a)
    if a.base in METHODS_OF_DIM:
        return f"{a.first()}.{a.base}({', '.join(a.text[n] for n in names[1:] if a.has(n))})"
    return _generic(a)


def _plain(text: str) -> str:
    """A list's elements without its brackets."""
    return text[1:-1] if text.startswith("[") else text


def _generic(a: Arguments) -> str:
    """name(required arguments, option=value) with the schema's own names."""
    prefix = ""
    if vocabulary.function("", a.base) is None:
        if vocabulary.function("aten", a.base) is None:
            raise UnwritableError(f"{a.base} is not part of the region language")
        prefix = "aten."
    parts = []
    for name in a.call.names:
        required = name not in a.call.defaults
        if name in ("dtype", "layout", "device", "pin_memory", "memory_format"):
            dtype = a.dtype() if name == "dtype" else None
            if dtype:
                parts.append(f"dtype={dtype}")
        elif required:
            if not a.has(name) and not prefix:
                raise UnwritableError(f"the trace does not record {name} of {a.base}")
            parts.append(a.text.get(name, "None"))
        elif a.has(name) and not a.is_default(name):
            parts.append(f"{name}={a.text[name]}")
    return f"{prefix}{a.base}({', '.join(parts)})"


def _reduction(a: Arguments) -> str:
    parts = []
    if a.has("dim"):
        dims = a.text["dim"]
        parts.append(_plain(dims) if isinstance(a.value("dim"), tuple) and len(a.value("dim")) == 1 else dims)  # type: ignore[arg-type]
    if a.value("keepdim"):
        parts.append("keepdim=True")
    if a.dtype():
        parts.append(f"dtype={a.dtype()}")
    return f"{a.first()}.{a.base}({', '.join(parts)})"


def _add(sign: str) -> Callable[[Arguments], str]:
    def render(a: Arguments) -> str:
        alpha = a.value("alpha")
        other = a.text["other"]
        if alpha not in (None, 1, 1.0):
            other = f"{a.text['alpha']} * {other}"
        return f"{a.first()} {sign} {other}"

    return render


def _to(a: Arguments) -> str:
    other = a.call.arguments.get("other")
    dtype = other.sigs[0].dtype if other is not None and other.sigs else a.dtype()
    return f"{a.first()}.to({dtype})" if dtype else f"{a.first()}.clone()"


def _transpose(a: Arguments) -> str:
    one, two, rank = a.value("dim0"), a.value("dim1"), a.rank("self")
    if isinstance(one, int) and isinstance(two, int) and rank >= 2 and {one % rank, two % rank} == {rank - 2, rank - 1}:
        return f"{a.first()}.transpose(-2, -1)"
    return f"{a.first()}.transpose({a.text['dim0']}, {a.text['dim1']})"


def _transpose_matrix(a: Arguments) -> str:
    return f"{a.first()}.T" if a.rank("self") == 2 else f"{a.first()}.t()"


def _slice(a: Arguments) -> str:
    dim, rank = a.value("dim"), a.rank("self")
    if not isinstance(dim, int):
        raise UnwritableError("the trace does not record what was sliced")
    dim %= rank
    start, end, step = (a.value(n) for n in ("start", "end", "step"))
    text = (a.text["start"] if start else "") + ":"
    text += a.text["end"] if isinstance(end, int) and end < 2**62 else ""
    text += f":{a.text['step']}" if isinstance(step, int) and step != 1 else ""
    before = ["..."] if dim == rank - 1 and rank > 1 else [":"] * dim
    return f"{a.first()}[{', '.join([*before, text])}]"


def _list_of(name: str) -> Callable[[Arguments], str]:
    def render(a: Arguments) -> str:
        return f"{name}({a.first()}, dim={a.text.get('dim', '0')})"

    return render


def _pieces(a: Arguments) -> str:
    rest = [a.text[n] for n in a.call.names[1:] if a.has(n)]
    name = "split" if a.base in ("split_with_sizes", "unsafe_split") else a.base.removeprefix("unsafe_")
    return f"{a.first()}.{name}({', '.join(rest)})"


def _softmax(name: str) -> Callable[[Arguments], str]:
    def render(a: Arguments) -> str:
        dtype = a.dtype() or ("f32" if a.value("half_to_float") is True else None)
        return f"{name}({a.first()}, dim={a.text.get('dim', '-1')}{f', dtype={dtype}' if dtype else ''})"

    return render


def _dropout(a: Arguments) -> str:
    if a.value("train") is False or a.value("p") in (0, 0.0):
        return a.first()
    return f"dropout({a.first()}, {a.text.get('p', '0.1')})"


def _layer_norm(a: Arguments) -> str:
    eps = f", eps={a.text['eps']}" if a.has("eps") and a.value("eps") != 1e-5 else ""
    return f"layer_norm({a.tensors('input', 'normalized_shape', 'weight', 'bias')}{eps})"


def _rms_norm(a: Arguments) -> str:
    return f"rms_norm({a.tensors('input', 'normalized_shape', 'weight')}{a.options('eps')})"


def _batch_norm(a: Arguments) -> str:
    parts = a.tensors("input", "running_mean", "running_var", "weight", "bias")
    training = a.text.get("training") or a.text.get("train") or "True"
    return f"batch_norm({parts}, training={training})"


def _conv(rank: int) -> Callable[[Arguments], str]:
    def render(a: Arguments) -> str:
        options = a.options("stride", "padding", "dilation", "groups")
        return f"conv{rank}d({a.tensors('input', 'weight', 'bias')}{options})"

    return render


def _convolution(a: Arguments) -> str:
    rank = a.rank("input") - 2
    if a.value("transposed") is True or rank not in (1, 2, 3):
        raise UnwritableError("a transposed convolution is not written from a trace")
    parts = [f"{n}={a.text[n]}" for n in ("stride", "padding", "dilation", "groups") if a.has(n)]
    return f"conv{rank}d({', '.join([a.tensors('input', 'weight', 'bias'), *parts])})"


def _attention(a: Arguments) -> str:
    options = a.options("dropout_p", "is_causal", "scale", "enable_gqa")
    mask = a.text.get("attn_mask") or a.text.get("attn_bias")
    if mask:
        options = f", attn_mask={mask}" + options
    return f"scaled_dot_product_attention({a.tensors('query', 'key', 'value')}{options})"


def _var(a: Arguments) -> str:
    parts = [_plain(a.text["dim"])] if a.has("dim") else []
    if a.has("correction"):
        parts.append(f"correction={a.text['correction']}")
    elif a.value("unbiased") is False:
        parts.append("correction=0")
    if a.value("keepdim"):
        parts.append("keepdim=True")
    return f"{a.first()}.{a.base}({', '.join(parts)})"


def _zeros(fill: str) -> Callable[[Arguments], str]:
    def render(a: Arguments) -> str:
        if not a.has("size"):
            return f"{fill}_like({a.first()})"
        tensor = a.call.arguments.get("self")
        dtype = a.dtype() or (tensor.sigs[0].dtype if tensor is not None and tensor.sigs else "f32")
        return f"{fill}({a.text['size']}, dtype={dtype})"

    return render


def _method(name: str, *arguments: str) -> Callable[[Arguments], str]:
    def render(a: Arguments) -> str:
        missing = [n for n in arguments if not a.has(n)]
        if missing:
            raise UnwritableError(f"the trace does not record {missing[0]} of {a.base}")
        return f"{a.first()}.{name}({', '.join(a.text[n] for n in arguments)})"

    return render


def _pow(a: Arguments) -> str:
    """A number has no methods: `10000 ** z` is a function of both."""
    if not a.has("exponent"):
        raise UnwritableError(f"the trace does not record exponent of {a.base}")
    if a.call.arguments[a.call.names[0]].sigs:
        return f"{a.first()}.pow({a.text['exponent']})"
    return f"torch.pow({a.first()}, {a.text['exponent']})"


def _index(a: Arguments) -> str:
    raise UnwritableError(f"the trace does not record the indices of {a.base}")


def _scatter_reduce(a: Arguments) -> str:
    how = a.text.get("reduce", '"amax"')  # an execution trace tells; without it, what a segment softmax takes
    return f"{a.first()}.scatter_reduce({a.text['dim']}, {a.text['index']}, {a.text['src']}, {how})"


def _histc(a: Arguments) -> str:
    sig = a.call.arguments["self"].sigs[0]
    cast = "" if sig.dtype.startswith(("f", "b")) else ".to(f32)"  # on a CPU integers have none
    return f"histc({a.first()}{cast}{a.options('bins', 'min', 'max')})"


def _copy(a: Arguments) -> str:
    target, source = a.call.arguments["self"].sigs[0], a.call.arguments["src"].sigs[0]
    return f"{a.text['src']}.clone()" if target.dtype == source.dtype else f"{a.text['src']}.to({target.dtype})"


def _pad(a: Arguments) -> str:
    value = f", value={a.text['value']}" if a.value("value") else ""
    return f"pad({a.first()}, {a.text['pad']}{value})"


def _vector_norm(a: Arguments) -> str:
    parts = [a.first()]
    if a.has("ord") and a.value("ord") != 2:
        parts.append(a.text["ord"])
    if a.has("dim"):
        parts.append(f"dim={a.text['dim']}")
    if a.value("keepdim"):
        parts.append("keepdim=True")
    if a.dtype():
        parts.append(f"dtype={a.dtype()}")
    return f"torch.linalg.vector_norm({', '.join(parts)})"


def _grouped_product(a: Arguments) -> str:
    return f"aten._grouped_mm({a.tensors('self', 'mat2', 'offs')})"


SPECIAL: Mapping[str, Callable[[Arguments], str]] = {
    "add": _add("+"), "sub": _add("-"), "neg": lambda a: f"-{a.first()}", "to": _to, "_to_copy": _to,
    "t": _transpose_matrix, "numpy_T": _transpose_matrix, "matrix_H": _transpose_matrix, "transpose": _transpose,
    "slice": _slice,
    "cat": _list_of("cat"),
    "stack": _list_of("stack"), "split": _pieces, "split_with_sizes": _pieces, "chunk": _pieces, "unbind": _pieces,
    "unsafe_split": _pieces, "unsafe_chunk": _pieces, "softmax": _softmax("softmax"), "_softmax": _softmax("softmax"),
    "log_softmax": _softmax("log_softmax"), "_log_softmax": _softmax("log_softmax"), "dropout": _dropout,
    "_safe_softmax": _softmax("softmax"), "native_dropout": _dropout, "layer_norm": _layer_norm,
    "native_layer_norm": _layer_norm, "rms_norm": _rms_norm, "batch_norm": _batch_norm, "conv1d": _conv(1),
    "conv2d": _conv(2), "conv3d": _conv(3), "convolution": _convolution,
    "scaled_dot_product_attention": _attention, "_scaled_dot_product_flash_attention": _attention,
    "_scaled_dot_product_cudnn_attention": _attention, "_scaled_dot_product_efficient_attention": _attention,
    **FUNCTIONAL, "var": _var, "std": _var,
    "embedding": lambda a: f"embedding({a.text['indices']}, {a.text['weight']})",
    "linear": lambda a: f"linear({a.tensors('input', 'weight', 'bias')})", "zeros": _zeros("zeros"),
    "new_zeros": _zeros("zeros"), "ones": _zeros("ones"), "new_ones": _zeros("ones"), "zeros_like": _zeros("zeros"),
    "zero": lambda a: f"zeros_like({a.first()})",
    "ones_like": _zeros("ones"), "pow": _pow,
    "masked_fill": _method("masked_fill", "mask", "value"),
    "gather": _method("gather", "dim", "index"), "index_select": _method("index_select", "dim", "index"),
    "scatter_add": _method("scatter_add", "dim", "index", "src"),
    "index_add": _method("index_add", "dim", "index", "source"), "index": _index, "index_put": _index,
    "index_copy": _method("index_copy", "dim", "index", "source"),
    "_index_put_impl": _index, "scatter_reduce": _scatter_reduce, "contiguous": lambda a: f"{a.first()}.contiguous()",
    "clone": lambda a: f"{a.first()}.contiguous()", "copy": _copy, "pad": _pad, "constant_pad_nd": _pad,
    "histc": _histc, "expand_as": _method("expand_as", "other"), "view_as": _method("view_as", "other"),
    "_grouped_mm": _grouped_product,
    "gelu": lambda a: f"gelu({a.first()}{a.options('approximate')})", "silu": lambda a: f"silu({a.first()})",
    "type_as": _to, "linalg_vector_norm": _vector_norm,
}  # fmt: skip
