"""Details as the trace spells them -> Detail."""

from __future__ import annotations

import msgspec

from profiler.trace.model import Detail
from profiler.trace.read.events import MALFORMED

SEPARATOR = b"\0"
"""Between dims, types, strides and concrete inputs: never part of JSON text."""

_UNTYPED = msgspec.json.Decoder()


def parse_detail(key: bytes) -> Detail | None:
    """The Detail of dims, types, strides and concrete inputs as the trace spells them; None for none or unreadable."""
    parts = key.split(SEPARATOR)
    try:
        dims, types, strides, concrete = (_UNTYPED.decode(part) if part else None for part in parts)
        detail = Detail(dims=_sizes(dims), types=_texts(types), strides=_sizes(strides), concrete=_texts(concrete))
    except (*MALFORMED, ValueError):
        return None
    return detail


def _texts(values: object) -> tuple[str, ...]:
    return tuple(map(str, values)) if isinstance(values, list) else ()


def _sizes(values: object) -> tuple[tuple[object, ...], ...]:
    """Sizes or strides of each argument; a TensorList is a tuple of tuples."""
    return tuple(_freeze(v) if isinstance(v, list) else () for v in values) if isinstance(values, list) else ()


def _freeze(values: list[object]) -> tuple[object, ...]:
    return tuple(_freeze(v) if isinstance(v, list) else v if isinstance(v, int) else str(v) for v in values)
