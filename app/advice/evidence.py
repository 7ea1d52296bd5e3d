"""Evidence: an Advice issued again with its Validation. The measurement overrules the prediction."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from app.advice.criteria import CRITERIA, kernel_problem, worth_it
from app.advice.in_helion import HELION, TRITON, WRITE_IT, measured_note
from app.advice.launches import launch_bound
from app.advice.model import Advice, Alternative, Change, Criterion, Tool, WorthInstalling
from app.advice.rule import step_speedup
from app.estimate.range import Range
from app.objects import advice as objects
from app.objects.record import ValidationBody
from app.thresholds import DEFAULTS, Thresholds
from kernels.measure import outcome as measured
from kernels.measure.model import CandidateResult, Validation, is_users_kernel, to_json, validation_from_json

TIMED = "ok"
LEFT_OUT = frozenset({"advice_before", "advice_after"})
"""A validation inside an advice does not carry advice again."""

TOOLS: Mapping[str, Tool] = {
    "eager": "skip",
    "library": "library",
    "compile": "compile",
    "triton": "triton",
    "cuda": "cuda",
}


def reissue(
    advice: Advice, validation: Validation, share_of_step: float | None = None, settings: Thresholds = DEFAULTS
) -> Advice:
    """The advice with what was measured: tool, times and speed-ups from the GPU where they are known.

    Without a timed candidate other than eager the prediction stays, and its headline says that it is one. Advice that
    does not rest on times (target met, communication, waiting for the host) keeps its tool.
    """
    embedded = {k: v for k, v in to_json(validation).items() if k not in LEFT_OUT}
    timed = [
        c for c in validation.candidates if c.status == TIMED and c.time_us is not None and not is_users_kernel(c.name)
    ]
    share = share_of_step if share_of_step is not None else _share(advice)
    decided = _decide(advice, validation, timed, share, settings)
    won = next((c for c in timed if c.name == decided.winner), None)
    if won is None or len(timed) < 2:
        return replace(advice, headline=f"{_stem(advice.headline)} (predicted, not measured)", validation=embedded)
    embedded |= {"outcome": decided.outcome, "reason": decided.reason}
    notes = tuple(n for n in advice.notes if not n.startswith(WRITE_IT))  # an earlier validation's
    issued = replace(advice, alternatives=_alternatives(advice, timed), validation=embedded, notes=notes)
    if _terminal(advice):
        return replace(issued, headline=f"{_stem(advice.headline)}, whatever the kernels' times")
    if decided.outcome == "unmeasured":
        headline = f"{_stem(advice.headline)} (predicted); of what was measured, {won.name} is to be preferred"
        return replace(issued, headline=headline)
    region = _speedup(won)
    from kernels.starter_kit.lines import code_lines  # with trees, which a page that shows no measurement needs not

    sources = {c.name: code_lines(c.source) for c in timed if c.source}
    short = measured_note(timed, sources.get(HELION, 0), sources.get(TRITON, 0), settings.tie_margin)
    return replace(
        issued,
        notes=(*notes, short) if short and won.name in (HELION, TRITON) else notes,
        tool=TOOLS[won.tool],
        mode=_mode(won, advice),
        headline=_headline(advice, won, decided.outcome, region, validation.device),
        action=_action(advice, won, decided.outcome),
        would_change=(),  # predicted times no longer decide
        call=_call(advice, won),
        region_speedup=region,
        step_speedup=step_speedup(region, share),
        device=validation.device or advice.device,
    )


def reissue_json(
    advice: objects.Advice,
    validation: ValidationBody,
    share_of_step: float | None = None,
    settings: Thresholds = DEFAULTS,
) -> objects.Advice:
    """`reissue` on the API's objects. TypeError or KeyError for objects that are none of ours."""
    issued = reissue(advice_from_json(advice), validation_from_json(dict(validation)), share_of_step, settings)
    result: objects.Advice = to_json(issued)
    return result


def advice_from_json(data: Mapping[str, Any]) -> Advice:
    """Inverse of to_json for an Advice; keys that are not its fields are left out."""
    known = {f.name for f in fields(Advice)}
    body = {k: v for k, v in data.items() if k in known}
    body["criteria"] = tuple(Criterion(**c) for c in body.get("criteria", ()))
    body["worth_installing"] = tuple(_worth_installing(w) for w in body.get("worth_installing") or ())
    body["would_change"] = tuple(Change(**c) for c in body.get("would_change") or ())
    body["alternatives"] = tuple(
        Alternative(**{**a, "time_us": _range(a.get("time_us"))}) for a in body.get("alternatives", ())
    )
    spans = {k: _range(body.get(k)) for k in ("region_speedup", "step_speedup")}
    return Advice(**{**body, **spans, "notes": tuple(body.get("notes", ()))})


def _worth_installing(data: Mapping[str, Any]) -> WorthInstalling:
    time_us = _range(data["time_us"])
    assert time_us is not None
    return WorthInstalling(**{**data, "time_us": time_us, "speedup": _range(data.get("speedup"))})


def _range(data: Mapping[str, float] | None) -> Range | None:
    return None if data is None else Range(data["low"], data["mid"], data["high"])


def _share(advice: Advice) -> float | None:
    """The share that the advice was made with: worth-it's value, where it is the share itself."""
    criterion = next((c for c in advice.criteria if c.name == worth_it.name), None)
    known = criterion is not None and criterion.holds is True and isinstance(criterion.value, int | float)
    return float(criterion.value) if known and criterion is not None and criterion.value is not None else None


def _decide(
    advice: Advice, validation: Validation, timed: list[CandidateResult], share: float | None, settings: Thresholds
) -> measured.Outcome:
    """The measured decision, by device time, or by wall time where the region is launch-bound."""
    by = str(validation.conditions.get("decided_by", "device time"))
    contenders = [
        measured.Contender(c.name, c.tool, measured.deciding_us(c, by), c.ratio_to_best_other)
        for c in timed
        if c.tool in TOOLS
    ]
    return measured.decide(validation.candidates, contenders, to_json(advice), share, by, decision_thresholds(settings))


def decision_thresholds(settings: Thresholds) -> measured.Thresholds:
    """The rule's numbers, as the decision on measured times takes them."""
    return measured.Thresholds(settings.near_best, settings.tie_margin, settings.win_margin, settings.worth_share)


def _terminal(advice: Advice) -> bool:
    """The advice rests on the step and not on the region's times."""
    by_name = {c.name: c for c in advice.criteria}
    lasting = [c for c in CRITERIA if c.ends_at is not None and not c.overruled and c.name in by_name]
    problem = by_name.get(kernel_problem.name)
    other = problem is not None and problem.holds is False and not launch_bound(problem)
    return advice.tool == "skip" and (other or any(by_name[c.name].holds is c.ends_at for c in lasting))


def _speedup(won: CandidateResult) -> Range | None:
    ratio = won.ratio_to_eager
    if won.tool == "eager":
        return Range(1.0, 1.0, 1.0)
    if ratio is None or ratio.low <= 0:
        return None
    return Range(1 / ratio.high, 1 / ratio.median, 1 / ratio.low)


def _mode(won: CandidateResult, advice: Advice) -> str:
    known = next((a for a in advice.alternatives if a.candidate == won.name), None)
    if known is not None and won.tool != "eager":
        return known.mode
    if won.tool == "compile":
        return won.name.removeprefix("compile").removeprefix("-") or "default"
    return won.name.partition(":")[2] or "default"


def _alternatives(advice: Advice, timed: list[CandidateResult]) -> tuple[Alternative, ...]:
    """Measured times in place of predicted ones; candidates that nobody predicted are added."""
    by_name = {c.name: c for c in timed}
    known = [_add_measurement(a, by_name[a.candidate]) if a.candidate in by_name else a for a in advice.alternatives]
    named = {a.candidate for a in known}
    added = [
        _add_measurement(Alternative(TOOLS[c.tool], c.name, None, 0, "", call=c.call, mode=_mode(c, advice)), c)
        for c in timed
        if c.name not in named and c.tool in TOOLS
    ]
    return (*known, *added)


def _add_measurement(alternative: Alternative, result: CandidateResult) -> Alternative:
    assert result.time_us is not None
    time = Range(result.time_us.low, result.time_us.median, result.time_us.high)
    note = f"{alternative.note}; measured" if alternative.note else "measured"
    return replace(alternative, time_us=time, note=note)


def without_figures(headline: str) -> str:
    """A headline without its speed-up, which stands next to it."""
    headline = headline.removesuffix(" (predicted, not measured)")
    return re.sub(r", (?:predicted )?[\d.e+]+ times as fast(?: as eager(?: on [^;]*)?| \([^)]*\))?", "", headline)


def _stem(headline: str) -> str:
    """The headline without its prediction, and without what an earlier measurement said."""
    return headline.split(", predicted ")[0].split(" (predicted")[0].removeprefix("Measured otherwise: ")


def _headline(advice: Advice, won: CandidateResult, outcome: str, region: Range | None, device: str | None) -> str:
    gain = f", {region.mid:.3g} times as fast as eager" if region is not None and won.tool != "eager" else ""
    where = f" on {device}" if device else ""
    words = {"confirmed": "confirmed", "overturned": "overturned", "tie": "a tie"}[outcome]
    if outcome == "overturned" or not _as_advised(won, advice):
        leave = "leave it as it is" if won.tool == "eager" else won.name
        predicted = measured.candidate_of_advice(to_json(advice)) or advice.tool
        was = "" if outcome == "tie" else f"; the prediction ({predicted}) is overturned"
        lead = "Measured otherwise" if outcome == "overturned" else "Measured, a tie"
        return f"{lead}: {leave}{gain}{where}{was}"
    return f"{_stem(advice.headline)}: {words} by measurement{gain}{where}"


def _as_advised(won: CandidateResult, advice: Advice) -> bool:
    """The tool of the advice, and its mode of torch.compile."""
    return TOOLS[won.tool] == advice.tool and measured.candidate_of_advice(to_json(advice)) in (None, won.name)


def _action(advice: Advice, won: CandidateResult, outcome: str) -> str:
    if _as_advised(won, advice) and outcome != "overturned":
        return advice.action
    if won.tool == "eager":
        return "Nothing: no candidate that was measured is worth its effort."
    return {
        "library": "Replace it by the library call that was measured.",
        "compile": "Wrap the enclosing function in torch.compile, in the mode that was measured.",
        "triton": "Take the measured kernel's source from the validation.",
        "cuda": "Take the measured kernel.",
    }[won.tool]


def _call(advice: Advice, won: CandidateResult) -> str:
    if won.tool == "eager":
        return ""
    known = next((a.call for a in advice.alternatives if a.candidate == won.name and a.call), "")
    return known or won.call
