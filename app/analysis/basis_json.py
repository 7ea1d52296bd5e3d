"""What a region's predictions rest on as the API's object, and in words."""

from __future__ import annotations

from app.estimate.basis import ALIKE, ExplainedPart, PredictionBasis
from app.objects.basis import NearestMeasured, PredictedPart, RestsOn
from app.units import share

NEARLY_ALL = 0.995
"""Share of eager's time from which on it is not told that rates gave the rest."""


def basis_json(basis: PredictionBasis, *, observed: bool) -> RestsOn:
    """The API's object. observed: a trace has the region's time, to which predictions are drawn."""
    atlas = basis.atlas
    rests: RestsOn = {
        "device": basis.device.name,
        "atlas": None
        if atlas is None
        else {
            "device": atlas.device, "own": basis.own, "date": atlas.date, "torch": atlas.torch, "triton": atlas.triton,
        },
        "scaled_by": None
        if atlas is None or basis.own
        else ("measured ceilings" if basis.device.ceilings_measured else "datasheet"),
        "range_factor": basis.range_factor,
        "eager_known": basis.eager_known,
        "rates": {"devices": list(basis.fitted_on), "range_factor": basis.rates_factor},
        "observed": observed,
        "prediction": basis.prediction,
        "prediction_because": basis.because,
        "sentence": "",
        "parts": [_part(part) for part in basis.parts],
    }  # fmt: skip
    return {**rests, "sentence": sentence(rests)}


def _part(part: ExplainedPart) -> PredictedPart:
    return {
        "way": part.way,
        "name": part.name,
        "launches": part.launches,
        "time_us": part.time_us,
        "bytes_moved": part.bytes_moved,
        "flops": part.flops,
        "bytes_per_s": _rate(part.bytes_moved, part.time_us),
        "flops_per_s": _rate(part.flops, part.time_us),
        "because": part.because,
        "measured": part.by_atlas,
        "nearest": _nearest(part),
    }


def _rate(work: float | None, time_us: float) -> float | None:
    return None if work is None or time_us <= 0 else 1e6 * work / time_us


def _nearest(part: ExplainedPart) -> NearestMeasured | None:
    point = part.nearest
    if point is None:
        return None
    return {
        "description": point.description, "time_us": point.time_us, "correlation": part.correlation,
        "near": part.correlation >= ALIKE,
    }  # fmt: skip


def sentence(rests: RestsOn) -> str:
    """All of it, in at most five sentences."""
    words = [measured_words(rests)]
    if rests["rates"]["range_factor"] > rests["range_factor"]:
        devices = " and ".join(rests["rates"]["devices"])
        words.append(f"What is not in them, such as hand-written kernels, goes by rates of {devices}, in wider ranges.")
    if rests["atlas"] is not None and rests["eager_known"] < NEARLY_ALL:
        unknown = share(1 - rests["eager_known"])
        words.append(f"Fitted rates gave {unknown} of eager's time, where nothing was measured.")
    words.append(compile_words(rests))
    if rests["observed"]:
        words.append("The time now goes by the trace's; where kernels set the pace, other ways are scaled with it.")
    return " ".join(words)


def measured_words(rests: RestsOn) -> str:
    """Whose measurements, as a sentence."""
    atlas = rests["atlas"]
    if atlas is None:
        return "Predicted by fitted rates: no atlas of a device could be read."
    of, date, torch = atlas["device"], atlas["date"], atlas["torch"]
    measured = f"Predicted from this project's {of} measurements of {date} (torch {torch})"
    if atlas["own"]:
        return f"{measured}."
    return f"{measured}, scaled to the {rests['device']} by its {rests['scaled_by']}; the ranges are wider."


def compile_words(rests: RestsOn) -> str:
    """Whose kernels torch.compile's time is of, as a sentence."""
    if rests["prediction"] == "oracle":
        return "torch.compile's kernels are Inductor's own list, priced one by one."
    return f"torch.compile's time is by our fusion rules: {rests['prediction_because']}."
