"""An evaluated region as the API's object."""

from __future__ import annotations

from typing import cast

from app.analysis.analyze import Evaluated
from app.analysis.basis_json import basis_json
from app.objects.oracle import OraclePrediction
from app.objects.oracle import Recompiles as RecompilesJson
from app.objects.region import RegionBody, RegionSource
from kernels.measure.model import to_json
from profiler.oracle.serialization import recompiles_to_dict, to_dict
from profiler.region.model import Workload


def region_json(
    evaluated: Evaluated, workload: Workload, *, name: str = "", source: RegionSource | None = None
) -> RegionBody:
    """The API's region object."""
    recompiles = evaluated.prediction.recompiles
    observed = [b.time_us_per_step for b in workload.bindings]
    times = [t for t in observed if t is not None]
    return {
        "name": name or evaluated.title,
        "kind": evaluated.kind,
        "by_hand": evaluated.by_hand,
        "text": evaluated.text,
        "source": source,
        "calls_per_step": sum(b.calls_per_step for b in workload.bindings),
        "time_us_per_step": sum(times) if times and len(times) == len(observed) else None,
        "share_of_step": workload.share_of_step,
        "shapes": [
            {"binding": dict(b.sizes), "calls": b.calls_per_step, "time_us_per_step": b.time_us_per_step}
            for b in workload.bindings
        ],
        "irregularity": to_json(evaluated.irregularity),
        "cost": evaluated.cost_json,
        "oracle": [cast("OraclePrediction", to_dict(p)) for p in evaluated.prediction.predictions],
        "recompiles": cast("RecompilesJson", recompiles_to_dict(recompiles)) if recompiles else None,
        "prediction": "rules" if evaluated.facts.prediction is None else "oracle",
        "advice": to_json(evaluated.advice),
        "rests_on": basis_json(evaluated.basis, observed=workload.observed and None not in observed),
    }
