"""What would change an advice: the rule run again with one number moved, until another tool comes out. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from app.advice.case import label_of
from app.advice.criteria import CRITERIA, fast_enough, worth_it
from app.advice.declaration import FactNumber
from app.advice.model import Change, Tool
from app.advice.options import Option
from app.advice.rule import DecisionInputs, case_of, decision_inputs, verdict
from app.advice.thresholds_read import ThresholdsRead, thresholds_read
from app.estimate.facts import RegionFacts
from app.estimate.range import Range
from app.estimate.rates import Rates
from app.thresholds import DEFAULTS, Thresholds
from app.units import duration, share
from profiler.hardware import Device
from profiler.region.model import Workload

SHOWN = 6
"""Changes that are told, the nearest first."""
PER_CRITERION = 3
"""Of them, for one criterion: a share under its threshold and a threshold over the share say the same."""
STEPS = (1.08, 1.3, 1.9, 4.0, 20.0)
"""Factors by which a number is moved, up and down, before the place of the change is looked for between two of them."""
FARTHEST = 1000.0
"""Factor by which times of the step and calls are moved at most."""
MOST = 4.0
"""A predicted time is moved by no more than this factor: beyond it the estimate would be no estimate."""
MOST_OF_A_THRESHOLD = 40.0
PARTS = ("share", "irregularity", "uniqueness")
"""Units of thresholds that end at 1."""
PRECISION = 4e-4
"""Relative distance at which the search between two values ends."""
FIGURES = 3
"""Significant figures of `at`."""

TOOL_WORDS: dict[Tool, str] = {
    "skip": "leave it", "library": "the library's call", "compile": "torch.compile", "triton": "Triton", "cuda": "CUDA",
}  # fmt: skip

CRITERION_OF = {threshold: criterion.name for criterion in CRITERIA for threshold in criterion.thresholds}
"""Threshold: the criterion that compares with it. The others are the estimate's."""

NEVER = frozenset({"tie_margin", "recompiles", "textbook", "custom"})
"""Thresholds on which no verdict on a region rests: of measured times, of a note, and of the widget's questions."""


NEW_COVERS = "quantised_batch"
"""The threshold with another number of which other library calls cover the region: its options are made anew."""


@dataclass(frozen=True, slots=True)
class Driver:
    """One number that can be moved. moved(value): the decision inputs with it in place; those of now, where the verdict
    on them has to be the same.

    words(at, up): how it is said, such as "with a share of the step under 0.7 %". low, high: as far as it can go.
    """

    criterion: str
    of: str
    now: float
    moved: Callable[[float], DecisionInputs]
    words: Callable[[float, bool], str]
    low: float = 0.0
    high: float = math.inf
    whole: bool = False  # counts: whole numbers only


def would_change(
    facts: RegionFacts,
    workload: Workload,
    device: Device,
    settings: Thresholds = DEFAULTS,
    *,
    objective: str = "time",
    rates: Rates | None = None,
) -> tuple[Change, ...]:
    """What would change an advice: the rule is run again with one number moved, until another tool comes out."""
    on = decision_inputs(facts, workload, device, settings, rates)
    now = verdict(on, objective)
    on = replace(on, standing=now.criteria)
    tool = now.chosen.tool
    return nearest(
        drivers(on, objective), lambda moved: tool if moved is on else verdict(moved, objective).chosen.tool, on
    )


def nearest(
    numbers: Iterator[Driver], tool_of: Callable[[DecisionInputs], Tool], on: DecisionInputs
) -> tuple[Change, ...]:
    """The change nearest to now of each number, by relative distance; at most `SHOWN`, `PER_CRITERION` of each."""
    tool = tool_of(on)
    changes = []
    for number in numbers:
        both = [c for up in (False, True) if (c := _first(number, tool, tool_of, up)) is not None]
        if both:
            changes.append(min(both, key=distance))
    kept: list[Change] = []
    for change in sorted(changes, key=distance):
        # Two options can be one call: for a part of the region by its graph, and for its kind by the table.
        twice = any(c.of == change.of for c in kept)
        if not twice and sum(c.criterion == change.criterion for c in kept) < PER_CRITERION:
            kept.append(change)
    return tuple(kept[:SHOWN])


def distance(change: Change) -> float:
    """0 for now, 1 for infinitely far or away from 0."""
    now = change.now or 0.0
    return abs(change.at - now) / max(abs(change.at), abs(now), 1e-300)


def _first(number: Driver, tool: Tool, tool_of: Callable[[DecisionInputs], Tool], up: bool) -> Change | None:
    """The nearest value in one direction from which on another tool is advised."""
    inside, outside = number.now, None
    for tried in _tries(number, up):
        if tool_of(number.moved(tried)) != tool:
            outside = tried
            break
        inside = tried
    if outside is None:
        return None
    least = 1.0 if number.whole else PRECISION * 1e-3 * abs(inside - outside)
    while abs(outside - inside) > max(least, 0.0 if number.whole else PRECISION * abs(outside)):
        middle = _middle(inside, outside, number.whole)
        if tool_of(number.moved(middle)) == tool:
            inside = middle
        else:
            outside = middle
    at = _round(outside, up)
    other = tool_of(number.moved(at)) if number.low <= at <= number.high else tool
    if other == tool:
        at, other = outside, tool_of(number.moved(outside))
    because = f"{number.words(at, up)}: {TOOL_WORDS[other]}"
    return Change(number.criterion, number.of, number.now, at, other, because)


def _middle(one: float, other: float, whole: bool) -> float:
    """Between two values: by factors where they are far apart, so that small ones are found as exactly as large."""
    low, high = sorted((one, other))
    middle = math.sqrt(low * high) if low > 0 and high > 4 * low else (low + high) / 2
    return float(math.floor(middle)) if whole else middle


def _tries(number: Driver, up: bool) -> Iterator[float]:
    """Values from now outward, ending at the end of its range."""
    end = number.high if up else number.low
    if number.now <= 0:  # from nothing there are no factors: parts of the range
        yield from (end * part for part in (0.02, 0.1, 0.4) if up and math.isfinite(end))
    for factor in STEPS if number.now > 0 else ():
        tried = number.now * factor if up else number.now / factor
        tried = float(math.ceil(tried) if up else math.floor(tried)) if number.whole else tried
        if (tried >= end) if up else (tried <= end):
            break
        yield tried
    if math.isfinite(end) and end != number.now:
        yield end


def _round(value: float, up: bool) -> float:
    """To `FIGURES` significant figures, away from now."""
    if value == 0 or not math.isfinite(value):
        return value
    digits = FIGURES - 1 - math.floor(math.log10(abs(value)))
    scale = 10.0**digits
    away = (math.ceil(round(value * scale, 6)) if up else math.floor(round(value * scale, 6))) / scale
    return round(away, max(0, digits))


# ------------------------------------------------------------------------------------------------------------- drivers


def drivers(on: DecisionInputs, objective: str = "time") -> Iterator[Driver]:
    """Every number that the verdict on a region can turn on."""
    yield from _of_the_step(on)
    facts = on.facts
    for criterion in CRITERIA:
        for number in criterion.numbers:
            value = getattr(facts, number.field)
            if value is not None and (not number.only_with or getattr(facts, number.only_with)):
                yield _of_the_facts(on, criterion.name, number, float(value))
    yield from (_time(on, option) for option in on.options if option.alternative.time_us is not None and option.mid)
    read = thresholds_read(on, objective)
    for threshold in on.settings.described():
        if threshold.name in NEVER or (threshold.name == NEW_COVERS and not facts.quantised):
            continue
        most = 1.0 if threshold.unit.startswith(PARTS) else MOST_OF_A_THRESHOLD * threshold.value
        turns = threshold.name == NEW_COVERS or threshold.name in read.beyond or read.by_criteria(threshold.name)
        if turns and 0 < threshold.value <= most:
            yield _threshold(on, threshold.name, threshold.value, most, read)


def _of_the_facts(on: DecisionInputs, criterion: str, number: FactNumber, now: float) -> Driver:
    def move(value: float) -> DecisionInputs:
        moved: dict[str, Any] = {number.field: int(value) if number.whole else value}
        facts = replace(on.facts, **moved)
        return _again(on, facts=facts) if number.new_options else replace(on, facts=facts, standing=())

    return Driver(
        criterion, number.of, now, move, lambda at, up: number.words.format(side=_side(at, up, number.form)),
        low=number.low, high=number.high, whole=number.whole,
    )  # fmt: skip


def _of_the_step(on: DecisionInputs) -> Iterator[Driver]:
    """Share, step time, target and calls, as far as they are known."""
    use = on.workload
    step, target, share = use.step_time_us, use.target_step_time_us, use.share_of_step

    def vary(**changed: Any) -> DecisionInputs:
        return replace(on, workload=replace(use, **changed))

    if share is not None:
        yield Driver(
            worth_it.name, "share_of_step", share, lambda v: vary(share_of_step=v),
            lambda at, up: f"with a share of the step {_side(100 * at, up, '{:.4g} %')}", high=1.0,
        )  # fmt: skip
    if step and (target is not None or (share is None and on.current is not None)):
        yield Driver(
            (worth_it if target is None else fast_enough).name, "step_time_us", step, lambda v: vary(step_time_us=v),
            lambda at, up: f"with a step {_side(at, up, '{:.4g} µs')}", low=step / FARTHEST, high=step * FARTHEST,
        )  # fmt: skip
    if target is not None and step:
        yield Driver(
            fast_enough.name, "target_step_time_us", target, lambda v: vary(target_step_time_us=v),
            lambda at, up: f"with a target {_side(at, up, '{:.4g} µs')}", low=target / FARTHEST, high=target * FARTHEST,
        )  # fmt: skip
    calls = sum(b.calls_per_step for b in use.bindings)
    if step and share is None and on.current is not None and calls > 0:
        yield Driver(
            worth_it.name, "calls_per_step", calls, lambda v: replace(on, workload=_scale_calls(use, v / calls)),
            lambda at, up: f"with calls per step {_side(at, up, '{:.4g}')}",
            low=calls / FARTHEST, high=calls * FARTHEST,
        )  # fmt: skip


def _scale_calls(use: Workload, factor: float) -> Workload:
    """The same, called so many times as often; what was observed per step grows with it."""
    return replace(use, bindings=tuple(
        replace(
            b, calls_per_step=b.calls_per_step * factor,
            time_us_per_step=None if b.time_us_per_step is None else b.time_us_per_step * factor,
        )
        for b in use.bindings
    ))  # fmt: skip


def _threshold(on: DecisionInputs, name: str, now: float, most: float, read: ThresholdsRead) -> Driver:
    readers = read.by_criteria(name)
    kept = tuple(c for c in on.standing if c.name not in readers)

    def move(value: float) -> DecisionInputs:
        settings = replace(on.settings, **{name: value})
        if name == NEW_COVERS:
            return _again(on, settings=settings)
        moved = replace(on, settings=settings, standing=kept)
        return on if name not in read.beyond and _judged_alike(on, moved, readers) else moved

    return Driver(
        CRITERION_OF.get(name, "estimate"), name, now, move,
        lambda at, up: f"with the threshold {name} {_side(at, up, '{:.4g}')}", high=most,
    )  # fmt: skip


def _judged_alike(on: DecisionInputs, moved: DecisionInputs, names: Collection[str]) -> bool:
    """Whether these criteria say the same: options are admitted and chosen by what holds and by its value alone."""
    before, case = {c.name: c for c in on.standing}, case_of(moved)
    judged = [(before[c.name], c(case)) for c in CRITERIA if c.name in names]
    return all((old.holds, old.value) == (new.holds, new.value) for old, new in judged)


def _again(on: DecisionInputs, facts: RegionFacts | None = None, settings: Thresholds | None = None) -> DecisionInputs:
    """The decision inputs made anew, where another number may mean other covers."""
    return decision_inputs(facts or on.facts, on.workload, on.device, settings or on.settings, on.rates)


def _time(on: DecisionInputs, option: Option) -> Driver:
    """The predicted or observed time of one option; what runs now carries the region's own time with it."""
    now = option.mid or 0.0
    name = option.alternative.candidate

    def move(value: float) -> DecisionInputs:
        options = tuple(_taking(o, value / now) if o is option else o for o in on.options)
        if option.tool != "skip" or on.current is None:
            return replace(on, options=options)
        return replace(on, options=options, current=_scale(on.current, value / now))

    def words(at: float, up: bool) -> str:
        who = "what runs now" if option.tool == "skip" else label_of(name).removesuffix(" to write")
        return f"with the time of {who} {share(abs(at / now - 1))} {'longer' if up else 'shorter'} ({duration(at)})"

    return Driver("estimate", name, now, move, words, low=now / MOST, high=now * MOST)


def _taking(option: Option, factor: float) -> Option:
    time = option.alternative.time_us
    assert time is not None
    return replace(option, alternative=replace(option.alternative, time_us=_scale(time, factor)))


def _scale(time: Range, factor: float) -> Range:
    return time.times(factor)


def _side(at: float, up: bool, form: str) -> str:
    return f"{'of at least' if up else 'of at most'} {form.format(at)}"
