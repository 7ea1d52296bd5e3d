"""What the oracle is asked and what it says, as JSON and back: between processes, in the cache, in the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import msgspec

from profiler.hardware import Device
from profiler.oracle.model import Prediction, Recompiles, how_today

Json = dict[str, Any]


class PredictQuestion(msgspec.Struct, tag_field="ask", tag="predict", frozen=True):
    """What torch.compile makes of a region's text at one binding of its sizes; None: the first that it lists."""

    text: str
    device: Device
    mode: str
    binding: dict[str, int] | None


class RecompilesQuestion(msgspec.Struct, tag_field="ask", tag="recompiles", frozen=True):
    """How torch.compile meets these sizes of a region, one after the other."""

    text: str
    device: Device
    bindings: list[dict[str, int]]


class MachineQuestion(msgspec.Struct, tag_field="ask", tag="machine", frozen=True):
    """What Triton's compiler makes of a kernel that Inductor wrote. arch: "sm_90"."""

    source: str
    name: str
    arch: str


Question = PredictQuestion | RecompilesQuestion | MachineQuestion


def to_dict(prediction: Prediction) -> Json:
    """What is shown: every field but the operands of library calls, with what is derived: launches, bytes_moved."""
    shown = replace(prediction, externs=tuple(replace(e, sites=()) for e in prediction.externs))
    fields = asdict(shown)
    for extern in fields["externs"]:
        del extern["sites"]
    return fields | {"launches": prediction.launches, "bytes_moved": prediction.bytes_moved}


def to_message(prediction: Prediction) -> Json:
    """What goes between processes and into the cache: as `to_dict`, with the operands of library calls."""
    fields = to_dict(prediction)
    for shown, extern in zip(fields["externs"], prediction.externs, strict=True):
        shown["sites"] = [asdict(site) for site in extern.sites]
    return fields


def from_dict(data: Mapping[str, object]) -> Prediction:
    """The prediction that `to_message` or `to_dict` wrote. Raises msgspec.ValidationError for anything else."""
    return _in_todays_words(msgspec.convert(data, Prediction))


def _in_todays_words(prediction: Prediction) -> Prediction:
    """Caches and stored regions have predictions of former versions."""
    return replace(prediction, how=how_today(prediction.how))


def recompiles_to_dict(recompiles: Recompiles) -> Json:
    """Every field, with what is derived from them."""
    symbolic = to_dict(recompiles.symbolic) if recompiles.symbolic else None
    bindings = [dict(b) for b in recompiles.bindings]
    derived = {"recompiled": recompiles.recompiled, "gives_up": recompiles.gives_up}
    return {
        "bindings": bindings, "served": list(recompiles.served), "graphs": recompiles.graphs, "limit": recompiles.limit,
        "because": recompiles.because, "symbolic": symbolic, **derived,
    }  # fmt: skip


class _RecompilesJson(msgspec.Struct):
    """As `recompiles_to_dict` has it: sizes by name."""

    bindings: list[dict[str, int]]
    served: tuple[int, ...]
    graphs: int
    limit: int
    because: str
    symbolic: Prediction | None


def recompiles_from_dict(data: Mapping[str, object]) -> Recompiles:
    """What `recompiles_to_dict` wrote. Raises msgspec.ValidationError for anything else."""
    read = msgspec.convert(data, _RecompilesJson)
    bindings = tuple(tuple(sorted(b.items())) for b in read.bindings)
    symbolic = _in_todays_words(read.symbolic) if read.symbolic else None
    return Recompiles(bindings, read.served, read.graphs, read.limit, read.because, symbolic)
