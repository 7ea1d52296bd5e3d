"""What the page of a region shows of the API's object: costs, charts, and predictions against what was measured.

Pure functions of API JSON.
"""

from __future__ import annotations

from typing import TypedDict

from app.objects.advice import Advice
from app.objects.cost import Cost, CostKernel, CostOperation, Saving
from app.objects.region import RegionBody
from app.objects.trace import Trace
from app.thresholds import DEFAULTS, Thresholds
from app.web.charts import effort, plotly, roofline, traffic
from app.web.charts.figure import Chart
from app.web.long_lists import MOST_SAVINGS, Rows, heaviest
from app.web.views import predicted_vs_measured
from app.web.views.region import whatif
from app.web.views.region.predicted_kernels import OracleSection, oracle_section
from app.web.views.region.verdict import Section, verdict_section
from app.web.views.rests_on import RestsOnSection, rests_on_section
from app.web.views.validation_page import AnyValidation, measured_at_same_sizes
from profiler.hardware import DEFAULT_DEVICE, Device, find_device


class CostRows(TypedDict, total=False):
    """Context of the tables of operations, kernels (each with its number, from 1) and savings; {} without a cost."""

    operation_rows: Rows[CostOperation]
    kernel_rows: Rows[tuple[int, CostKernel]]
    saving_rows: Rows[Saving]


class Analysis(CostRows):
    """Context of partials/region/analysis.html. peak, written_peak: FLOP/s; ceilings: where slope and roof are from."""

    region: RegionBody
    verdict: Section | None
    oracle: OracleSection
    device: roofline.DeviceRates
    traffic: list[traffic.Panel]
    traffic_words: str
    bytes_chart: Chart | None
    roofline_chart: Chart | None
    peak: float | None
    written_peak: float | None
    ceilings: tuple[str, str] | None
    roofline_points: list[roofline.Point]
    explained: RestsOnSection | None


class EvidenceCharts(TypedDict, total=False):
    """Context of the parts that hold predictions to what was measured; {} for a region without advice."""

    effort_rows: list[effort.Row]
    effort_chart: Chart | None
    effort_device: str | None
    prediction_rows: list[predicted_vs_measured.Row]
    prediction_chart: Chart | None
    whatif: whatif.Section | None


def device_rates(device: Device, *dtypes: str | None) -> roofline.DeviceRates:
    """A device as the roofline needs it, with the rates that estimates use of matrix products of these dtypes."""
    return {
        "name": device.name,
        "copy_rate": device.copy_rate,
        "f32_rate": device.f32_rate,
        "matmul_rates": {dtype: device.matmul_rate(dtype) for dtype in dtypes if dtype},
        "measured_copy_rate": device.measured_copy_rate,
        "measured_matmul_rate": device.measured_matmul_rate,
        "source": device.source,
        "measured_source": device.measured_source,
    }


def analysis(
    region: RegionBody,
    validation: AnyValidation | None = None,
    settings: Thresholds = DEFAULTS,
    trace: Trace | None = None,
) -> Analysis:
    """The region's verdict, costs and charts. Where the validation is of its device, the verdict is by it, and measured
    points join the roofline. trace: that the region is of."""
    advice, cost = region.get("advice") or None, region.get("cost") or None
    device = find_device(advice.get("device") if advice else None) or find_device(DEFAULT_DEVICE)
    if device is None:
        raise LookupError(f"the device table lacks its own default, {DEFAULT_DEVICE}")
    rates = device_rates(device, *((cost.get("matmul_dtype"), cost.get("limit_dtype")) if cost else ()))
    comparable = (
        validation is not None
        and measured_at_same_sizes(validation)
        and find_device(validation.get("device")) == device
    )
    panels = traffic.make_panels(cost)
    page: Analysis = {
        "region": region,
        "verdict": verdict_section(region, validation, settings, trace),
        "oracle": oracle_section(region),
        "device": rates,
        "traffic": panels,
        "traffic_words": traffic.summarize(panels),
        "bytes_chart": None,
        "roofline_chart": None,
        "peak": None,
        "written_peak": None,
        "ceilings": None,
        "roofline_points": [],
        "explained": rests_on_section(region),
    }
    if cost:
        _add_cost(page, cost, advice, validation if comparable else None)
    return page


def _add_cost(page: Analysis, cost: Cost, advice: Advice | None, validation: AnyValidation | None) -> None:
    rates = page["device"]
    page["operation_rows"] = plotly.operation_rows(cost)
    page["kernel_rows"] = heaviest(list(enumerate(cost["kernels"], 1)), lambda row: plotly.total_bytes(row[1]))
    page["saving_rows"] = heaviest(cost["savings"], lambda s: s["bytes_before"] - s["bytes_after"], MOST_SAVINGS)
    page["bytes_chart"] = plotly.bytes_moved(cost)
    page["roofline_chart"] = roofline.roofline(cost, rates, validation, advice)
    page["peak"] = roofline.compute_rate(cost, rates)
    page["written_peak"] = roofline.written_rate(cost, rates)
    page["ceilings"] = roofline.name_ceilings(cost, rates)
    page["roofline_points"] = roofline.roofline_points(cost, rates, validation, advice)


def evidence_charts(
    region: RegionBody,
    evidence: AnyValidation | None,
    share: float | None,
    faster: float | None,
    settings: Thresholds = DEFAULTS,
) -> EvidenceCharts:
    """Predictions against what was measured, here or elsewhere at the same sizes.

    share, faster: where the what-if's sliders stand, None for the region's own.
    """
    comparable = evidence is not None and bool(evidence.get("candidates")) and measured_at_same_sizes(evidence)
    same = evidence if comparable else None
    advice = region.get("advice") or None
    verdict = verdict_section(region, evidence, settings)
    measured = verdict["advice"] if verdict and verdict["basis"] == "measured" else None
    efforts, predictions = effort.effort_rows(advice, same), predicted_vs_measured.prediction_rows(same, advice)
    return {
        "effort_rows": efforts,
        "effort_chart": effort.effort_chart(efforts),
        "effort_device": same.get("device") if same else None,
        "prediction_rows": predictions,
        "prediction_chart": predicted_vs_measured.prediction_chart(predictions),
        "whatif": whatif.make_section(region, same, share, faster, measured),
    }
