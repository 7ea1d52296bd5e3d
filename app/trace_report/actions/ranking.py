"""Every action of a step, priced and ranked: options for the whole of it and the regions' advice in one list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.objects.common import Range
from app.objects.trace import Action, PhaseKind, Trace, TraceBody
from app.trace_report.actions import (
    depthwise,
    fp8,
    host,
    math_attention,
    precision,
    recording,
    regions,
    table_batch,
    waits,
    whole_step,
)
from app.trace_report.actions.kept_layout import keeps_channels_last
from app.trace_report.actions.model import Option
from app.trace_report.actions.of_step import which_step
from app.trace_report.phase import phase_of_region, words_of
from app.trace_report.step_model import (
    Change,
    Step,
    after,
    most_of_regions_us,
    slows_of,
    step_of,
    step_us,
)
from profiler.hardware import find_device

OF_REGIONS_ALONE = 0.8
"""Of what regions save that are compiled alone, what compiling the whole model must save to be told instead."""
FIRST_OF_TRITON = 7.0
"""Compute capability of the oldest GPUs that Triton, and so torch.compile, writes kernels for."""
GRAPHS_WORTH = 0.03
"""Of the step, what CUDA graphs must save beyond fusion: they want static sizes and addresses."""
WHOLE_MODEL = (whole_step.COMPILE, whole_step.GRAPHS)
ALONE = 0.1
"""Of what a region's action adds to others, what it must save by itself to count without them."""
AS_MUCH = 0.9
"""Of what saves most, what another must save to stand before it where it is less to do."""
GREEDY = 12
"""How many of what is followed together are chosen by what each adds to those before it."""
ROUNDING = 1e-9
"""Of the step, what is no difference."""
EFFORT = {"precision": 0, "layout": 0, "library": 0, "compile": 1, "triton": 2, "cuda": 3}
WORTH = 0.005
"""Share of the step below which an option for all of it is not told."""
WORTH_OF_ONE = 0.01
"""The same of a region's own advice, which is more to do for less."""
WORTH_WRITTEN = {"generated": 0.02, "custom": 0.05, math_attention.MODE: WORTH}
"""Of a kernel that is to be kept, of one that is to be written and that nobody has proven, and of a call that is there
and falls back to its slow form."""


@dataclass(frozen=True, slots=True)
class Priced:
    """An option with the step's (low, mid, high) time after it alone; None where none is predicted."""

    option: Option
    after_us: tuple[float, float, float] | None

    def saved_us(self, wall_us: float) -> float:
        """The middle of what it saves."""
        return wall_us - self.after_us[1] if self.after_us else 0.0

    def rank_us(self, wall_us: float) -> float:
        """By what it is ranked: where only a bound is known and nothing can be typed to end it, half of its middle:
        such a wait stands before another action where it is four times what that is predicted to save. Likewise a
        kernel that is to be written, which nobody has proven."""
        vague = self.option.evidence["kind"] == "bound" and not self.option.call
        return self.saved_us(wall_us) * (0.5 if vague or self.option.mode == regions.UNPROVEN else 1.0)


def plan(trace: Trace | TraceBody) -> tuple[Step, list[Priced]] | None:
    """The step and its options, the one that saves most first; None for a trace whose step or pace is not known."""
    step = step_of(trace)
    if step is None:
        return None
    wall = step.parts["wall_us"]
    priced = [Priced(o, step_us(step, [o.change]) if o.change else None) for o in _options(trace, step)]
    host_first = any(p.option.first for p in priced)
    priced = [
        p for p in priced if p.option.first or (p.saved_us(wall) >= WORTH * wall if p.option.scope_is_step else
                                                not host_first or p.after_us is not None)
    ]  # fmt: skip
    priced += _as_recorded(trace, step, priced)
    if of_which := which_step(trace.get("step_times")):
        priced = [_of_which_step(p, of_which) for p in priced]
    times, notes = trace.get("host_times") or [], trace.get("notes") or []
    recorded = not trace.get("origin")  # a predicted step lacks nothing that recording it again would show
    kernels = (trace.get("where") or {"kernels": []})["kernels"]
    again = recording.record_again(step, times, notes, [p.option for p in priced], kernels) if recorded else []
    if again and recording.tells_nothing(wall, step.pace["launches"], times):
        priced = []
    priced += [Priced(option, None) for option in again]
    told = {p.option.id for p in priced}
    priced = [
        replace(p, option=replace(p.option, instead_of="")) if p.option.instead_of not in told else p for p in priced
    ]
    return step, _without_trifles(step, _ranked(step, _told(step, priced)))


def _as_recorded(trace: Trace | TraceBody, step: Step, priced: Sequence[Priced]) -> list[Priced]:
    """CUDA graphs without a time, where regions are advised them for the step and none of it is told with one."""
    recorded = trace.get("step_parts")
    told = {p.option.id for p in priced}
    if recorded is None or whole_step.GRAPHS in told or not whole_step.graphs_asked(step.regions):
        return []
    slows = trace.get("profiler_slows")
    slows = slows_of(step, slows) if slows else None
    option = whole_step.graphs_as_recorded(step, recorded, slows, trace.get("compile_obstacles") or [])
    compiled = next((p.option for p in priced if p.option.id == whole_step.COMPILE and p.option.counted), None)
    return [Priced(_in_place_of(option, compiled.id) if compiled else option, None)]


def _of_which_step(priced: Priced, of_which: str) -> Priced:
    """What is said of launches is said of the step that it was seen in."""
    if priced.option.id != whole_step.GRAPHS:
        return priced
    because = f"{priced.option.because}. The launches and the waiting are {of_which}"
    return replace(priced, option=replace(priced.option, because=because))


def _told(step: Step, priced: Sequence[Priced]) -> list[Priced]:
    """Without a region's torch.compile of which nothing is predicted, where there is one for the whole model, which
    takes the region in."""
    whole = any(p.option.id in WHOLE_MODEL for p in priced)
    return [
        p
        for p in priced
        if not (whole and not p.option.scope_is_step and p.option.tool == "compile" and not p.after_us)
    ]


def _ranked(step: Step, priced: Sequence[Priced]) -> list[Priced]:
    """What comes first whatever it saves, then by what each saves: of those that are followed together by what it adds
    to those before it, so that what another has saved already does not count twice.

    Without what makes the step longer once the others are followed: what stood in its place takes it.
    """
    while True:
        rank, longer = _ranks_us(step, priced)
        kept = [p for p in priced if p.option.id not in longer]
        heirs = _in_their_place(step, kept, longer)
        if kept == heirs:
            break
        priced = heirs
    order = {p.option.id: number for number, p in enumerate(kept)}
    return sorted(
        kept,
        key=lambda p: (not p.option.first, -rank[p.option.id], p.option.title, order[p.option.id]),
    )


def _ranks_us(step: Step, priced: Sequence[Priced]) -> tuple[dict[str, float], set[str]]:
    """(by what each is ranked, in µs, which of those that are followed together make the step longer), by ids.

    The first GREEDY are found by trying each that is left behind those before it; the others, which add little, follow
    in the order of what each saves by itself: trying all of hundreds takes longer than who reads waits.
    """
    wall = step.parts["wall_us"]
    rank = {p.option.id: p.rank_us(wall) for p in priced}
    waiting = [(p, p.option.change) for p in priced if p.option.counted and p.option.change is not None]
    before: list[Change] = []
    last = most = wall
    longer: set[str] = set()
    while waiting and len(before) < GREEDY:
        after_each = [after(step, [*before, change], "mid")[0] for _, change in waiting]
        best = min(after_each)
        if best > last + ROUNDING * wall:
            break
        enough = best + (1 - AS_MUCH) * max(0.0, last - best)
        place = min(
            (i for i, time in enumerate(after_each) if time <= enough),
            key=lambda i: (
                EFFORT.get(waiting[i][0].option.tool, len(EFFORT)),
                after_each[i],
                waiting[i][0].option.title,
            ),
        )
        chosen, change = waiting.pop(place)
        before.append(change)
        most = rank[chosen.option.id] = min(most, last - after_each[place])
        last = after_each[place]
    for chosen, change in sorted(waiting, key=lambda w: (-w[0].saved_us(wall), w[0].option.title)):
        now = after(step, [*before, change], "mid")[0]
        if now > last + ROUNDING * wall:
            longer.add(chosen.option.id)
            continue
        before.append(change)
        most = rank[chosen.option.id] = min(most, last - now)
        last = now
    return rank, longer


def _in_their_place(step: Step, kept: Sequence[Priced], gone: set[str]) -> list[Priced]:
    """Options of which some stood in the place of what is gone: the one of these that saves most is followed, and the
    others stand in its place. Precision is left to who reads."""
    made, wall = list(kept), step.parts["wall_us"]
    for other in sorted(gone):
        places = [i for i, p in enumerate(made) if p.option.instead_of == other]
        able = [i for i in places if made[i].option.tool != "precision" and made[i].option.change]
        heir = max(able, key=lambda i: made[i].saved_us(wall), default=None)
        for i in places:
            named = "" if heir is None or i == heir else made[heir].option.id
            option = replace(made[i].option, counted=i == heir, instead_of=named)
            made[i] = replace(made[i], option=option)
    return made


def _without_trifles(step: Step, ranked: Sequence[Priced]) -> list[Priced]:
    """What adds less than WORTH of the step to what stands before it is nothing to do about the step: what it saves by
    itself, something that is done first has saved. One that others stand in the place of is kept."""
    wall = step.parts["wall_us"]
    named = {p.option.instead_of for p in ranked}
    kept = []
    for one, adds in zip(ranked, _adds_us(step, ranked), strict=True):
        least = WORTH * wall if one.option.scope_is_step else WORTH_WRITTEN.get(one.option.mode, WORTH_OF_ONE) * wall
        adds = one.saved_us(wall) if one.option.mode == regions.UNPROVEN else adds
        trifle = adds is not None and adds < least
        if not trifle or one.option.id in named:
            kept.append(one)
    return kept


def _adds_us(step: Step, ranked: Sequence[Priced]) -> list[float | None]:
    """What each adds to those before it that are followed together; None for what is not among them."""
    last, before, adds = step.parts["wall_us"], list[Change](), list[float | None]()
    for one in ranked:
        if not one.option.counted or one.option.change is None:
            adds.append(None)
            continue
        before.append(one.option.change)
        now = after(step, before, "mid")[0]
        adds.append(last - now)
        last = now
    return adds


def _options(trace: Trace | TraceBody, step: Step) -> list[Option]:
    blockers = trace.get("compile_obstacles") or []
    where = trace.get("where")
    kernels = where["kernels"] if where else ()
    device, trained = find_device(trace.get("estimates_for") or ""), bool(trace.get("backward_time_us"))
    precise = precision.precisions(step, device, kernels, trained) if device is not None else []
    if float(trace.get("compute_capability") or FIRST_OF_TRITON) < FIRST_OF_TRITON:
        whole = whole_step.graphs_alone(step)
        alone = regions.of_regions(step, whole_step.places(whole), graphs=True)
        options = [*whole, *(o for o in alone if o.tool not in ("compile", "triton"))]
    else:
        turning = {}
        if keeps_channels_last(step.regions, trained):
            turning, own = waits.conversions(step, kernels), depthwise.gone(step, kernels, device)
            turning = {i: min(1.0, turning.get(i, 0.0) + own.get(i, 0.0)) for i in {*turning, *own}}
        whole = whole_step.whole_model(step, blockers, turning, trained)
        whole = _one_counted(step, whole, [o.change for o in precise if o.counted and o.change])
        within = whole_step.places([o for o in whole if o.counted])
        graphs = any(o.id == whole_step.GRAPHS for o in whole) or whole_step.graphs_asked(step.regions)
        options = [*whole, *regions.of_regions(step, within, graphs)]
    options += precise
    if device is not None and fp8.is_installed():
        options += fp8.eight_bits(step, device, trained)
    if table_batch.is_installed():
        options += table_batch.table_batch(step)
    options += math_attention.fast_kernels(step)
    layout = waits.channels_last(step, kernels)
    if compiled := next((o.id for o in options if o.id in WHOLE_MODEL and o.counted), ""):
        layout = [_in_place_of(o, compiled) for o in layout]  # which keeps them so by itself
    options = regions.merged([*options, *layout])
    if recording.is_sampled(trace.get("notes") or []):  # what was left out would fill the gaps
        return waits.overlap(step, sampled=True)
    return [*options, *host.host_waits(step, trace.get("host_times") or [], blockers), *waits.overlap(step)]


def _one_counted(step: Step, whole: Sequence[Option], others: Sequence[Change]) -> list[Option]:
    """Of several ways to compile the whole model the one that saves most is followed; the others stand in its place.

    None is where compiling all of it takes longer than compiling the regions alone that are advised it. others: what is
    followed with them, which may leave a region little to gain by itself.
    """
    if not whole:
        return []
    slower = step.slower or step  # what a host costs that the profiler slowed least is what graphs may save
    best = min(whole, key=lambda o: _mid(slower, [o]))
    plain = next((o for o in whole if o.id == whole_step.COMPILE), best)
    if _mid(slower, [plain]) - _mid(slower, [best]) < GRAPHS_WORTH * slower.parts["wall_us"]:
        best = plain
    by_region = [o for o in regions.of_regions(step, (), graphs=True) if o.tool == "compile" and o.change]
    wall = after(step, others, "mid")[0]
    made = plain.change or Change()
    host = Change(compiled=made.compiled, trained=made.trained)  # regions compiled alone take it no less than together
    alone_us = wall - _mid(step, by_region, [*others, host])
    if by_region and OF_REGIONS_ALONE * alone_us > wall - _mid(step, [best], others):
        return [_in_place_of(o, by_region[0].id) for o in whole]
    return [o if o is best else _in_place_of(o, best.id) for o in whole]


def _in_place_of(option: Option, other: str) -> Option:
    return replace(option, counted=False, instead_of=other)


def _mid(step: Step, options: Sequence[Option], others: Sequence[Change] = ()) -> float:
    return after(step, [*others, *(o.change for o in options if o.change)], "mid")[0]


def followed(priced: Sequence[Priced]) -> list[Priced]:
    """What is followed together, in rank order: counted, with a predicted time."""
    return [p for p in priced if p.option.counted and p.after_us is not None]


def changes(priced: Sequence[Priced]) -> list[Change]:
    """What the options do to the step."""
    return [p.option.change for p in priced if p.option.change]


def actions(step: Step, priced: Sequence[Priced]) -> list[Action]:
    """The API's list: everything to do about the step, what saves most first.

    saves_us, step_time_us: of the action alone. adds_us: what it adds to those before it that are followed together, so
    that these add up to what all save; null for what is not among them.
    """
    together, adds_us = changes(followed(priced)), _adds_us(step, priced)
    return [
        _action(step, one, adds, parts, _on_top(step, together, one))
        for one, adds, parts in zip(priced, adds_us, _all_parts_us(step, priced, adds_us), strict=True)
    ]


def _on_top(step: Step, together: Sequence[Change], priced: Priced) -> str:
    """What an option that is not followed with the others saves once they are; "" where it stands in another's place,
    or that is what it saves alone."""
    option, wall = priced.option, step.parts["wall_us"]
    if option.counted or option.instead_of or option.change is None or not option.change.time or not together:
        return ""
    now = after(step, together, "mid")[0]
    more = now - after(step, [*together, option.change], "mid")[0]
    if abs(more - priced.saved_us(wall)) < ALONE * max(more, priced.saved_us(wall)):
        return ""
    return f". Once what is followed together has been done, it saves {more / 1e3:.2f} ms of {now / 1e3:.2f}"


def _all_parts_us(step: Step, priced: Sequence[Priced], adds_us: Sequence[float | None]) -> list[list[float]]:
    """How what each action adds falls on its regions; [] where it adds nothing of a time.

    By what its regions can save with all that is followed up to it, less what those before it were given of that. So
    no region gives more than its kernels' time that goes and the waits for its launches; what is added beyond that is
    no region's.
    """
    followed_so_far: list[Change] = []
    given: dict[int, float] = {}
    parts = []
    for one, adds in zip(priced, adds_us, strict=True):
        if adds is None or one.option.change is None:
            parts.append(list[float]())
            continue
        followed_so_far.append(one.option.change)
        most = most_of_regions_us(step, followed_so_far)
        room = {i: max(0.0, most.get(i, 0.0) - given.get(i, 0.0)) for i in one.option.regions}
        total = sum(room.values())
        of_it = min(1.0, max(0.0, adds) / total) if total else 0.0
        parts.append([of_it * room[i] for i in one.option.regions])
        for i, us in room.items():
            given[i] = given.get(i, 0.0) + of_it * us
    return parts


def _only_then(priced: Priced, wall_us: float, adds_us: float | None) -> str:
    """That a region's saving counts only together with what stands before it; "" where it counts alone."""
    alone = priced.option.scope_is_step or adds_us is None or priced.saved_us(wall_us) > ALONE * adds_us
    return "" if alone else " By itself it saves next to nothing: it counts once the host no longer sets the pace."


def _action(step: Step, priced: Priced, adds_us: float | None, parts_us: list[float], on_top: str) -> Action:
    option, wall, known = priced.option, step.parts["wall_us"], priced.after_us
    low, mid, high = known or (wall, wall, wall)
    times: Range = {"low": low, "mid": mid, "high": high}
    saves: Range = {"low": wall - high, "mid": wall - mid, "high": wall - low}
    keys = [step.regions[i].get("key") for i in option.regions]
    phase = step.phase["kind"] if step.phase else None
    if not option.scope_is_step:
        phase = phase_of_region(step.regions[option.regions[0]], step.phase)
    made: Action = {
        "id": option.id,
        "scope": "step" if option.scope_is_step else "region",
        "region": None if option.scope_is_step else keys[0],
        "tool": option.tool,
        "mode": option.mode,
        "title": option.title,
        "call": option.call,
        "where": option.where,
        "saves_us": saves if known else None,
        "step_time_us": times if known else None,
        "adds_us": adds_us,
        "evidence": option.evidence,
        "because": f"{option.because}{_only_then(priced, wall, adds_us)}{on_top}{_of_phase(option, phase)}",
        "numerics": option.numerics,
        "regions": keys,
        "parts_us": parts_us,
        "instead_of": option.instead_of,
    }
    return {**made, "phase": phase} if phase else made


def _of_phase(option: Option, phase: PhaseKind | None) -> str:
    """What the step's phase means for the action: nothing for a recording that lacks something."""
    words = words_of(phase) if option.change is not None else ""
    return f". {words}" if words else ""
