"""What an operation of a trace gives: the overload it was, its arguments by name, and its outputs, run on meta tensors.

A trace names `aten::mul` and lists arguments in schema order, without overload, strings and outputs. The first overload
of matching arity and kinds that runs on meta tensors is it (86 of 86 right against execution traces).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch._C import FunctionSchema
from torch._ops import OpOverload, OpOverloadPacket

from profiler.region.language import vocabulary
from profiler.region.language.vocabulary import DTYPES
from profiler.region.limits import MAX_ITEMS
from profiler.region.mining.unit_letters import LETTERS
from profiler.region.mining.units import SCALAR_TYPES, Argument, Sig, Unit

MAX_ELEMENTS = 2**40
MAX_ROUNDS = 64
"""Of one operation that is made of itself: differences of differences."""

TYPES: Mapping[str, torch.dtype] = {**DTYPES, "c64": torch.complex64, "c128": torch.complex128}
TYPE_NAMES = {dtype: name for name, dtype in TYPES.items()}

ATTENTION = frozenset(
    {"scaled_dot_product_attention", "_scaled_dot_product_flash_attention", "_scaled_dot_product_cudnn_attention",
     "_scaled_dot_product_efficient_attention"}
)  # fmt: skip
"""Composite operations whose outputs are written down here: on meta they would decompose into something else."""
CONVOLUTIONS = frozenset(LETTERS["C"].split())
"""Of these cuDNN lays the result out channels-last where the image or the weight is; on meta it is contiguous."""


@dataclass(frozen=True, slots=True)
class Call:
    """One operation with its arguments by schema name. defaults: the names whose value is the schema's default.

    gives: for each output the argument that it is ("" where it is a new tensor): `x.to(x.dtype)` gives x itself.
    undefined: places among the results that are no tensor: a gradient that nobody asked for.
    """

    names: tuple[str, ...]
    arguments: Mapping[str, Argument]
    defaults: Mapping[str, object]
    outputs: tuple[Sig, ...]
    outputs_known: bool
    gives: tuple[str, ...] = ()
    overload: str = ""
    changes: bool = False  # the schema marks an argument as written to
    undefined: tuple[int, ...] = ()


UNRECORDED: Mapping[str, object] = {
    "training": True,
    "momentum": 0.1,
    "eps": 1e-5,
    "cudnn_enabled": True,
    "cudnn_enable": True,
}
"""Arguments without a default that traces before torch 2.0 do not record: the defaults of torch.nn's modules."""


@dataclass(slots=True)
class _CallCache:
    """Calls that were looked up. weight: of all of them, one each and one for each output."""

    calls: dict[tuple[str, tuple[Argument, ...], str], Call | None] = field(default_factory=dict)
    weight: int = 0


_cache = _CallCache()
MAX_CACHED = 200_000
"""Weight at which the cache is emptied: one operation may give thousands of tensors."""


def call(name: str, args: tuple[Argument, ...], overload: str = "") -> Call | None:
    """The call behind `aten::name` with these arguments, cached; None where no overload has this arity.

    overload: where an execution trace names it; "" takes the first that fits and runs.
    """
    key = (name, args, overload)
    if key not in _cache.calls:
        if _cache.weight > MAX_CACHED:
            _cache.calls.clear()
            _cache.weight = 0
        result = _call(name, args, overload)
        _cache.calls[key] = result
        _cache.weight += 1 + (len(result.outputs) if result is not None else 0)
    return _cache.calls[key]


ALLOWED = (
    vocabulary.FUNCTIONAL
    | vocabulary.TORCH
    | vocabulary.ATEN
    | vocabulary.METHODS
    | ATTENTION
    | frozenset(name for names in LETTERS.values() for name in names.split())
    | frozenset(
        """slice select unbind detach alias lift_fresh expand_as squeeze t numpy_T adjoint split_with_sizes unsafe_split
        unsafe_chunk as_strided view_as index_select_backward embedding_backward new_empty empty_like full_like isin
        logical_and_ bitwise_or bitwise_and __and__ __or__ max_pool2d adaptive_avg_pool2d avg_pool2d cross_entropy_loss
        empty clamp_max clamp_min softplus_backward upsample_nearest2d floor_divide masked_select
        _safe_softmax
        _foreach_add _foreach_add_ _foreach_sub_ _foreach_mul _foreach_mul_ _foreach_div _foreach_div_ _foreach_lerp_
        _foreach_addcmul_ _foreach_addcdiv_ _foreach_sqrt _foreach_sqrt_ _foreach_neg _foreach_zero_ _foreach_norm
        _foreach_maximum_ _foreach_reciprocal_ _foreach_pow _fused_adam_ _fused_adamw_ _fused_sgd_
        _scaled_dot_product_cudnn_attention_backward _scaled_dot_product_flash_attention_backward
        _scaled_dot_product_efficient_attention_backward threshold_backward native_layer_norm_backward
        native_batch_norm_backward cudnn_batch_norm_backward max_pool2d_with_indices_backward tensordot
        embedding_bag nll_loss_nd nll_loss2d im2col""".split()
    )
) - {"detach_", "is_pinned", "pin_memory", "set_data"}
"""What may run on meta tensors: a trace names operations, and anybody can write a trace."""


def _call(name: str, args: tuple[Argument, ...], wanted_overload: str) -> Call | None:
    if not args or (name not in ALLOWED and name.removesuffix("_") not in ALLOWED):
        return None
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return None
    fallback: Call | None = None
    for schema, overload in _overloads(packet, len(args)):
        if wanted_overload and wanted_overload != (schema.overload_name or "default"):
            continue
        may_lack_tensors = name.endswith("_backward") or name.startswith(("_foreach_", "_fused_"))
        if not all(_fits(a, str(s.type), may_lack_tensors) for a, s in zip(args, schema.arguments, strict=True)):
            continue
        names = tuple(a.name for a in schema.arguments)
        bound = dict(zip(names, args, strict=True))
        defaults = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
        results = _outputs(name, overload, schema, bound)
        label, changes = schema.overload_name or "default", schema.is_mutable
        if results is not None:
            tensors = [r for r in results if r is not None]
            outputs, gives = tuple(s for s, _ in tensors), tuple(g for _, g in tensors)
            undefined = tuple(i for i, r in enumerate(results) if r is None)
            return Call(names, bound, defaults, outputs, True, gives, label, changes, undefined)
        fallback = fallback or Call(names, bound, defaults, (), False, (), label, changes)
    return fallback


def _overloads(packet: OpOverloadPacket, arity: int) -> list[tuple[FunctionSchema, OpOverload]]:
    overloads = []
    for label in packet.overloads():  # type: ignore[no-untyped-call]
        overload = getattr(packet, label)
        arguments = overload._schema.arguments
        if len(arguments) == arity and not any(a.is_out for a in arguments):
            overloads.append((overload._schema, overload))
    return overloads


def _fits(argument: Argument, kind: str, may_lack_tensors: bool) -> bool:
    """lost: tensors may be missing from the record, as undefined ones of a backward and long lists are."""
    if argument.kind == "tensor":
        return kind in ("Tensor", "Optional[Tensor]") or (kind == "number" and not argument.sigs[0].dims)
    if argument.kind == "tensors":
        return kind.startswith(("List[Tensor]", "List[Optional[Tensor]]"))
    if argument.kind == "lost":
        return kind in ("Tensor", "Optional[Tensor]", "number", "Optional[number]")
    if argument.kind == "value":
        if isinstance(argument.value, tuple):
            return kind.startswith("List[") or kind.startswith("Optional[List[")
        return "Tensor" not in kind and not kind.startswith(("List[", "Optional[List["))
    return may_lack_tensors or (not kind.startswith("Tensor") and kind != "List[Tensor]")


def _outputs(
    name: str, overload: OpOverload, schema: FunctionSchema, bound: Mapping[str, Argument]
) -> tuple[tuple[Sig, str] | None, ...] | None:  # fmt: skip
    """Each output with the argument that it is, "" where it is a new tensor; None where the call does not run, and for
    an output that is no tensor.
    """
    if name in ATTENTION:
        return _attention(bound)
    positional: list[object] = []
    keyword: dict[str, object] = {}
    by_name: dict[str, object] = {}
    inputs: list[tuple[object, str]] = []
    try:
        for item in schema.arguments:
            argument = bound[item.name]
            if argument.kind == "none":
                if item.name == "reduce":
                    value: object = "amax"  # strings are lost; the reductions of a segment softmax and of max pooling
                elif item.name == "device":
                    value = torch.device("meta")
                elif item.name in UNRECORDED:
                    value = UNRECORDED[item.name]
                elif not item.has_default_value() and str(item.type).startswith(("Optional", "int", "bool", "str")):
                    value = None
                elif item.has_default_value():
                    value = item.default_value
                elif str(item.type) == "Tensor" and name.endswith("_backward"):
                    value = None  # undefined: a bias or lengths that the forward had none of
                else:
                    return None
            else:
                value = _value(argument, str(item.type), item.name)
                inputs += [(t, item.name) for t in (value if isinstance(value, list) else [value])]
            by_name[item.name] = value
            if item.kwarg_only:
                if item.name not in ("device", "layout", "pin_memory"):
                    keyword[item.name] = value
            else:
                positional.append(value)
        if any(a.name == "device" for a in schema.arguments) and not any(
            isinstance(p, torch.Tensor) for p in positional
        ):
            keyword["device"] = torch.device("meta")
        elif any(a.name == "device" and not a.kwarg_only for a in schema.arguments):
            places = [a.name for a in schema.arguments if not a.kwarg_only]
            positional = [torch.device("meta") if n == "device" else p for n, p in zip(places, positional, strict=True)]
        if not is_bounded(schema, by_name):
            return None
        with torch.no_grad():
            result = overload(*positional, **keyword)
    except Exception:  # torch raises every kind; each means that this overload is not it, or that meta lacks it
        return None
    if result is None:
        return ()  # changes its operands and gives nothing
    results = [result] if isinstance(result, torch.Tensor) else result
    if not isinstance(results, tuple | list):
        return None
    made = tuple(
        (_sig(r), next((name for t, name in inputs if t is r), "")) if isinstance(r, torch.Tensor) else None
        for r in results
    )
    if name in CONVOLUTIONS and any(_channels_last(s) for a in bound.values() for s in a.sigs):
        return tuple(one and (replace(one[0], strides=None), one[1]) for one in made)
    return made


def _channels_last(sig: Sig) -> bool:
    """An image or a volume whose channels lie next to each other in memory, and that is not contiguous as well."""
    if sig.strides is None or len(sig.dims) not in (4, 5) or same_layout(sig.dims, sig.strides, contiguous(sig.dims)):
        return False
    rest = (sig.dims[0], *sig.dims[2:], sig.dims[1])
    batch, *space, channel = contiguous(rest)
    return same_layout(sig.dims, sig.strides, (batch, channel, *space))


def _value(argument: Argument, kind: str, name: str) -> object:
    if argument.kind == "tensor":
        return _meta(argument.sigs[0])
    if argument.kind == "tensors":
        return [_meta(s) for s in argument.sigs]
    if argument.kind == "lost":
        return 1 if argument.sigs[0].dtype == "i64" else argument.sigs[0].dtype == "bool" or 1.0
    if name == "dtype" and isinstance(argument.value, int):
        return DTYPES[SCALAR_TYPES[argument.value]]
    if name == "memory_format" and isinstance(argument.value, int):
        formats = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
        return formats[argument.value]
    return list(argument.value) if isinstance(argument.value, tuple) else argument.value


def _meta(sig: Sig) -> torch.Tensor:
    if sig.elements > MAX_ELEMENTS:
        raise ValueError("too large")
    dtype = TYPES[sig.dtype or "f32"]
    if sig.strides is None:
        return torch.empty(sig.dims, dtype=dtype, device="meta")
    return torch.empty_strided(sig.dims, sig.strides, dtype=dtype, device="meta")


def _sig(tensor: torch.Tensor) -> Sig:
    return Sig(TYPE_NAMES.get(tensor.dtype, ""), tuple(tensor.shape), tuple(tensor.stride()))


def _attention(bound: Mapping[str, Argument]) -> tuple[tuple[Sig, str], ...] | None:
    """q's sizes with v's head size; laid out as q is (flash and cuDNN give [B, S, H, D] in memory where q has it)."""
    query, value = bound["query"], bound["value"]
    if not query.sigs or not value.sigs or len(query.sigs[0].dims) < 3:
        return None
    q, head = query.sigs[0], value.sigs[0].dims[-1]
    dims = (*q.dims[:-1], head)
    return ((Sig(q.dtype, dims, None), ""),)


def contiguous(dims: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    strides, step = [], 1
    for size in reversed(dims):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def same_layout(dims: tuple[int, ...], a: tuple[int, ...] | None, b: tuple[int, ...] | None) -> bool:
    """Equal strides wherever a dimension has more than one element; unknown strides equal any."""
    if a is None or b is None or a == b:
        return True
    return all(x == y for d, x, y in zip(dims, a, b, strict=True) if d > 1)


def reads(unit: Unit, values: Sequence[Sig]) -> bool:
    """One of the unit's tensors looks like one of values."""
    return any(any(alike(sig, v) for v in values) for a in unit.args if a.kind != "lost" for sig in a.sigs)


def alike(operand: Sig, value: Sig) -> bool:
    """Equal dtype (a list of tensors has none), sizes and layout, and no scalar."""
    if operand.dims != value.dims or not operand.dims or (operand.dtype and operand.dtype != value.dtype):
        return False
    return same_layout(operand.dims, operand.strides, value.strides)


def outputs(unit: Unit) -> list[Sig]:
    """The unit's outputs, without scalars; [] where they are not known."""
    operation = call(unit.written or unit.name, unit.args)
    return [] if operation is None else [s for s in operation.outputs if s.dims]


# -- how many tensors an operation gives, before it runs: one `aten::unsafe_split` of 2^30 rows would give as many


def is_bounded(schema: FunctionSchema, arguments: Mapping[str, object]) -> bool:
    """Whether the call gives at most MAX_ITEMS tensors in at most MAX_ROUNDS rounds.

    arguments: by the schema's names, tensors on meta. A list whose length the arguments do not tell is not bounded.
    """
    number = result_count(schema, arguments)
    return number is not None and number <= MAX_ITEMS and _rounds(schema, arguments) <= MAX_ROUNDS


def result_count(schema: FunctionSchema, arguments: Mapping[str, object]) -> int | None:
    """Tensors that the call gives, or a bound on them; None where the arguments do not tell."""
    if not any(str(r.type) == "List[Tensor]" for r in schema.returns):
        return len(schema.returns)
    size = _size(arguments)
    for name in ("split_size", "split_sizes"):
        split = arguments.get(name)
        if isinstance(split, list):
            return len(split)
        if isinstance(split, int):
            return max(1, -(-size // split)) if split > 0 else 1
    chunks, sections, indices = (arguments.get(n) for n in ("chunks", "sections", "indices"))
    if isinstance(chunks, int):
        return min(chunks, size) if size else chunks  # nothing is cut into as many pieces as are asked for
    if isinstance(sections, int):
        return sections
    if isinstance(indices, list):
        return len(indices) + 1
    if schema.name == "aten::unbind":
        return size
    if schema.name == "aten::where":
        condition = arguments.get("condition")
        return condition.dim() if isinstance(condition, torch.Tensor) else None
    lists = [v for v in arguments.values() if isinstance(v, list) and all(isinstance(t, torch.Tensor) for t in v)]
    return sum(map(len, lists)) if any(lists) else None


def _size(arguments: Mapping[str, object]) -> int:
    """The tensor's size along the dimension that is named, else along the first; 0 where torch will refuse it."""
    tensor, dim = arguments.get("self"), arguments.get("dim", 0)
    if not isinstance(tensor, torch.Tensor) or not isinstance(dim, int) or not -tensor.dim() <= dim < tensor.dim():
        return 0
    return int(tensor.shape[dim])


def _rounds(schema: FunctionSchema, arguments: Mapping[str, object]) -> int:
    number = arguments.get("n") if schema.name == "aten::diff" else 1
    return number if isinstance(number, int) else 1
