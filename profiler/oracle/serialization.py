"""Predictions as JSON and back: between the oracle's process and its callers, in the cache, in the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from profiler.oracle.model import Extern, OracleKernel, Prediction, Recompiles, Replaced

Json = dict[str, Any]


def to_dict(prediction: Prediction) -> Json:
    """Every field, with what is derived from them: launches, bytes_moved."""
    return asdict(prediction) | {"launches": prediction.launches, "bytes_moved": prediction.bytes_moved}


def from_dict(data: Mapping[str, Any]) -> Prediction:
    """The prediction that `to_dict` wrote. Raises KeyError or TypeError for anything else."""
    fields = {k: v for k, v in data.items() if k not in ("launches", "bytes_moved")}
    fields["kernels"] = tuple(
        OracleKernel(**{**k, "operations": tuple(k["operations"]), "lines": tuple(k["lines"])}) for k in data["kernels"]
    )
    fields["externs"] = tuple(Extern(**e) for e in data["externs"])
    fields["replaced"] = tuple(Replaced(**r) for r in data["replaced"])
    fields["assumed"] = tuple(data["assumed"])
    return Prediction(**fields)


def recompiles_to_dict(recompiles: Recompiles) -> Json:
    """Every field, with what is derived from them."""
    symbolic = to_dict(recompiles.symbolic) if recompiles.symbolic else None
    bindings = [dict(b) for b in recompiles.bindings]
    derived = {"recompiled": recompiles.recompiled, "gives_up": recompiles.gives_up}
    return {
        "bindings": bindings, "served": list(recompiles.served), "graphs": recompiles.graphs, "limit": recompiles.limit,
        "because": recompiles.because, "symbolic": symbolic, **derived,
    }  # fmt: skip


def recompiles_from_dict(data: Mapping[str, Any]) -> Recompiles:
    """What `recompiles_to_dict` wrote."""
    return Recompiles(
        tuple(tuple(sorted(b.items())) for b in data["bindings"]),
        tuple(data["served"]),
        data["graphs"],
        data["limit"],
        data["because"],
        from_dict(data["symbolic"]) if data["symbolic"] else None,
    )
