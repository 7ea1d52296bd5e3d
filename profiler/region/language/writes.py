"""Which tensors a call writes into, however torch says so: by name, by an argument, by schema, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch

from profiler.region.language.checks import tensors_in
from profiler.region.language.signatures import Args, Call, Kwargs

OF_PYTHON = frozenset({"and_", "or_", "not_"})
"""Operators of Python, which have the name of a call in place and write into nothing."""
STATISTICS: Mapping[str, tuple[str, bool]] = MappingProxyType(
    {
        "batch_norm": ("training", False), "native_batch_norm": ("training", False),
        "cudnn_batch_norm": ("training", False), "miopen_batch_norm": ("training", False),
        "instance_norm": ("use_input_stats", True),
    }
)  # fmt: skip
"""Norms that renew their running statistics -> the argument that asks for it, and what it is where it is left out.
No schema says so."""
RUNNING = ("running_mean", "running_var")


def written(label: str, call: Call | None, args: Args, kwargs: Kwargs) -> list[torch.Tensor]:
    """The tensors that a call changes. label: the function's name; call: its arguments bound, None where its signature
    is not known."""
    name = label.split(".")[0]
    if _in_place(name, call, kwargs):
        named = call.first("self", "input") if call is not None else kwargs.get("input")
        return list(tensors_in(args[0] if args else named))
    if call is None:
        return []
    changed = [*_by_schema(call), *(RUNNING if _renews_statistics(name, call) else ())]
    return list(tensors_in([call.bound.get(n) for n in changed]))


def _in_place(name: str, call: Call | None, kwargs: Kwargs) -> bool:
    if name.endswith("_") and not name.endswith("__") and name not in OF_PYTHON:
        return True
    return bool(kwargs.get("inplace") if call is None else call.first("inplace"))


def _by_schema(call: Call) -> list[str]:
    schema = getattr(call.signature.overload, "_schema", None)
    return [a.name for a in getattr(schema, "arguments", ()) if a.alias_info is not None and a.alias_info.is_write]


def _renews_statistics(name: str, call: Call) -> bool:
    asked = STATISTICS.get(name)
    return asked is not None and bool(call.first(asked[0], default=asked[1]))
