"""What a trace leaves out of an operation's arguments and its schema or its neighbours tell."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._ops import OpOverloadPacket

from profiler.region.mining.output_shapes import alike, call, outputs
from profiler.region.mining.units import Argument, Sig, Unit

READERS = 24
"""Units looked ahead over for a reader of an indexed tensor."""


def _infer_indexed(unit: Unit, following: Sequence[Unit]) -> None:
    """`x[index]`: the trace has neither the index nor the result; the first reader tells how long both are."""
    if unit.args[0].kind != "tensor" or not unit.args[0].sigs[0].dims:
        return
    source = unit.args[0].sigs[0]
    for reader in following:
        for sig in (s for a in reader.args if a.kind in ("tensor", "tensors") for s in a.sigs):
            if (sig.dtype and sig.dtype != source.dtype) or len(sig.dims) != len(source.dims):
                continue
            differ = [d for d, (a, b) in enumerate(zip(source.dims, sig.dims, strict=True)) if a != b]
            dim = differ[0] if differ else 0
            size = sig.dims[dim]
            if len(differ) > 1 or size < 2:
                continue
            index = Argument("tensor", (Sig("i64", (size,), (1,)),))
            unit.args = (unit.args[0], Argument("value", (), dim), index)
            unit.written = "index_select"
            unit.guessed = f"an index of {size} elements along dimension {dim}, after what reads the result"
            return


def _infer_put(unit: Unit) -> None:
    """`x[index] = values`: the index is as long as the values."""
    target, values = unit.args[0], unit.args[2]
    if target.kind != "tensor" or values.kind != "tensor" or not target.sigs[0].dims or not values.sigs[0].dims:
        return
    if target.sigs[0].dims[1:] != values.sigs[0].dims[1:]:
        return
    size, add = values.sigs[0].dims[0], unit.args[3].value is True
    index = Argument("tensor", (Sig("i64", (size,), (1,)),))
    unit.args = (target, Argument("value", (), 0), index, values, *([Argument("value", (), 1)] if add else []))
    unit.written = "index_add" if add else "index_copy"
    unit.guessed = f"an index of {size} elements along dimension 0, after the values"


NORMALISED = frozenset({"layer_norm", "native_layer_norm", "rms_norm"})
"""Norms over as many elements as their weight has, whatever a trace before torch 2.0 leaves out."""
SEEDS = frozenset({"philox_seed", "philox_offset"})
"""Tensors of one number, which a trace cannot tell from Python's."""


def _with_seeds(unit: Unit) -> tuple[Argument, ...]:
    packet = getattr(torch.ops.aten, unit.name, None)
    schema = packet.default._schema if isinstance(packet, OpOverloadPacket) else None
    if schema is None or len(schema.arguments) != len(unit.args):
        return unit.args
    number = Argument("tensor", (Sig("i64", (), ()),))
    return tuple(number if s.name in SEEDS else a for a, s in zip(unit.args, schema.arguments, strict=True))


def without_out(unit: Unit) -> tuple[Argument, ...]:
    """The arguments but for the tensors that a form with `out` writes into: compiled code calls those."""
    name, args = unit.name, unit.args
    if not unit.aten or not args or args[-1].kind != "tensor" or call(name, args) is not None:
        return args
    packet = getattr(torch.ops.aten, name, None)
    for label in packet.overloads() if isinstance(packet, OpOverloadPacket) else ():  # type: ignore[no-untyped-call]
        schema = getattr(packet, label)._schema
        written = sum(a.is_out for a in schema.arguments)
        if 0 < written < len(args) == len(schema.arguments) and call(name, args[:-written]) is not None:
            return args[:-written]
    return args


LIST_WINDOW = 60
"""Units looked back over for the dtype of a list's members."""


def complete(units: Sequence[Unit]) -> None:
    """Fills in what a trace leaves out and its neighbours tell: dtypes of a list's members, indices of `x[index]`.

    Units of one thread, in order; changes their args.
    """
    for at, unit in enumerate(units):
        unit.args = without_out(unit)
        if unit.base.endswith("attention_backward"):
            unit.args = _with_seeds(unit)
        if unit.base in NORMALISED and len(unit.args) > 2 and unit.args[1].kind == "none" and unit.args[2].sigs:
            unit.args = (unit.args[0], Argument("value", (), unit.args[2].sigs[0].dims), *unit.args[2:])
        if unit.name == "index" and unit.args:
            _infer_indexed(unit, units[at + 1 : at + 1 + READERS])
        elif unit.base in ("index_put", "_index_put_impl") and len(unit.args) >= 4:
            _infer_put(unit)
        lists = [s for a in unit.args if a.kind == "tensors" for s in a.sigs]
        if not lists or not unit.aten or len(lists) > 64:
            continue
        before = units[max(0, at - LIST_WINDOW) : at]
        dtype = next(
            (s.dtype for u in reversed(before) for s in _signatures(u) if any(alike(m, s) for m in lists)), None
        )
        if not dtype and not all(s.dtype for s in lists):
            dtype = _read_as(unit, units[at + 1 : at + 1 + READERS])
            unit.guessed = f"the type {dtype} of what {unit.base} reads, after what reads the result" if dtype else ""
        if dtype:
            unit.args = tuple(
                Argument(a.kind, tuple(Sig(dtype, s.dims, s.strides) for s in a.sigs)) if a.kind == "tensors" else a
                for a in unit.args
            )


def _read_as(unit: Unit, following: Sequence[Unit]) -> str | None:
    """The type as which the first unit of those behind reads what a unit makes of a list."""
    result = next(iter(outputs(unit)), None)
    sigs = (s for u in following for a in u.args if a.kind == "tensor" for s in a.sigs)
    return next((s.dtype for s in sigs if result and s.dims == result.dims and s.dtype), None)


def _signatures(unit: Unit) -> list[Sig]:
    return outputs(unit) + [s for a in unit.args if a.kind == "tensor" for s in a.sigs]
