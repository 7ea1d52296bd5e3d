"""Asks Inductor about the regions of a trace that was advised on by rules, in this process: the command line's way."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import cast

from app.analysis import service
from app.analysis.advice_inputs import AdviceInputs
from app.analysis.analyze import Evaluated, decide
from app.analysis.region_json import region_json
from app.objects.oracle import OraclePrediction
from app.objects.region import RegionBody
from app.objects.trace import OracleProgress, TraceBody
from app.thresholds import DEFAULTS, Thresholds
from app.trace_report.launches_left import launches_left_by_inductor
from app.trace_report.oracle_regions import SHARE, asked_region, asked_texts, oracle_progress
from app.trace_report.speedup import with_actions
from profiler.hardware import DEFAULT_DEVICE
from profiler.oracle.model import MODES, Prediction
from profiler.oracle.process import Oracle
from profiler.oracle.serialization import to_dict
from profiler.region.model import Workload

log = logging.getLogger("tritonworthy.trace_report")


def ask_oracle(
    trace: TraceBody,
    inputs: Sequence[AdviceInputs],
    oracle: Oracle,
    *,
    thresholds: Thresholds = DEFAULTS,
    share: float = SHARE,
    on_progress: Callable[[OracleProgress], object] = lambda progress: None,
) -> TraceBody:
    """The trace with the advice of the regions that take most of its time issued again, with Inductor's kernels.

    inputs: what each region's advice was issued on. Blocks for all answers; a region that Inductor has none for keeps
    its advice. on_progress: told how far it is, before the first and after each.
    """
    regions = list(trace["regions"])

    def progress() -> OracleProgress:
        return oracle_progress([asked_region(r) for r in regions], share)

    on_progress(progress())
    for text in asked_texts([asked_region(r) for r in regions], share):
        for position in text.positions:
            regions[position] = _ask(regions[position], text.text, inputs[position], oracle, thresholds)
        on_progress(progress())
    asked: TraceBody = {**trace, "regions": regions, "oracle": progress()}
    return asked if trace.get("gain") is None else with_actions(asked)


def _ask(region: RegionBody, text: str, inputs: AdviceInputs, oracle: Oracle, thresholds: Thresholds) -> RegionBody:
    """One region, whatever it is, is never the whole trace."""
    try:
        prepared = service.prepare_from_inputs(text, inputs, thresholds)
        evaluated = decide(prepared, service.predict_compile(oracle, prepared))
        return _with_prediction(region, evaluated, prepared.workload)
    except Exception as fault:
        log.exception("Inductor could not be asked about the region %r", region["name"])
        device = inputs.target or inputs.device or DEFAULT_DEVICE
        return {**region, "oracle": [unanswered(device, f"{type(fault).__name__}: {fault}")]}


def _with_prediction(region: RegionBody, evaluated: Evaluated, workload: Workload) -> RegionBody:
    """A trace's region with what Inductor said, and the advice issued with that; as it stands where it said nothing."""
    made = region_json(evaluated, workload)
    asked: RegionBody = {**region, "oracle": made["oracle"], "recompiles": made["recompiles"]}
    asked |= {"rests_on": made["rests_on"]}
    if made["prediction"] == "rules":
        return asked
    asked |= {"prediction": "oracle", "advice": made["advice"]}
    return {**asked, "launches_left": launches_left_by_inductor(asked)}


def unanswered(device: str, why: str) -> OraclePrediction:
    """What stands for the answer that there is not."""
    return cast("OraclePrediction", to_dict(Prediction(device, MODES[0], {}, False, unavailable=why[:300])))
