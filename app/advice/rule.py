"""The rule: facts in, Advice out. Terminal criteria first, then the estimate decides among the admitted tools."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from app.advice import off_floor, wording
from app.advice.admission import admit, at_hand
from app.advice.amdahl import amdahl
from app.advice.case import Case
from app.advice.criteria import CRITERIA, fast_enough, kernel_problem, runs_on_library, worth_it
from app.advice.expected_regret import expected_regrets
from app.advice.launches import launch_bound, launch_bound_alone, other_clock_chance
from app.advice.library_defaults import covers_of, is_fused_optimizer
from app.advice.model import EFFORT_ORDER, Advice, Alternative, Criterion, WorthInstalling
from app.advice.options import EFFORT_LINES, Option, no_triton, not_compilable, nothing_to_compute, options, refuse
from app.advice.shared_mask import without_flex
from app.estimate import predict
from app.estimate.facts import Cover, RegionFacts
from app.estimate.predict import Prediction
from app.estimate.range import Range
from app.estimate.rates import FITTED, TRACED, Rates
from app.thresholds import DEFAULTS, Thresholds
from profiler.hardware import Device
from profiler.region.graph.cost_model import bound, floor_us, without_hidden
from profiler.region.model import Workload

MODE_ORDER = ("default", "reduce-overhead", "max-autotune", "generated", "custom")
"""Within one tool: what is less trouble first."""

NOT_HERE = "not installed here: worth installing to try"

INSTALL_FIRST = "a package that can be installed does it: try that before a kernel is written"

MEMORY_NOTE = ("the objective is memory: the choice went by the bytes that are written on the way",)

Metric = Callable[[Option], float | None]


def advise(
    facts: RegionFacts,
    workload: Workload,
    device: Device,
    settings: Thresholds = DEFAULTS,
    *,
    objective: str = "time",
    rates: Rates | None = None,
) -> Advice:
    """What to do about a region. Never raises for consistent facts; ValueError for an objective that is none.

    rates: None takes those of traces where the times were observed, else those of back-to-back calls on a GPU.
    objective: "time" in µs, or "memory": the inputs and the bytes written on the way, which stand for its peak.
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"objective is time or memory, not {objective!r}")
    judged = verdict(decision_inputs(facts, workload, device, settings, rates), objective)
    return _advice(judged, objective)


OBJECTIVES = ("time", "memory")


@dataclass(frozen=True, slots=True)
class DecisionInputs:
    """What a verdict rests on: the region in its use, what covers it, and every option with its predicted time.

    Making it takes the time, because of the estimates; a verdict on it is cheap. current, eager, other_clock: as in
    Case.
    standing: criteria that were judged on the same facts and on the same of the thresholds that they read; of them only
    those on the step's time and the region's share are judged again.
    """

    facts: RegionFacts
    workload: Workload
    device: Device
    settings: Thresholds
    rates: Rates
    covers: tuple[Cover, ...]
    current: Range | None
    eager: Prediction | None
    options: tuple[Option, ...]
    standing: tuple[Criterion, ...] = ()
    other_clock: float = 0.0


def decision_inputs(
    facts: RegionFacts,
    workload: Workload,
    device: Device,
    settings: Thresholds = DEFAULTS,
    rates: Rates | None = None,
) -> DecisionInputs:
    """What goes into a region's verdict. rates: as in `advise`."""
    rates = rates or rates_of(workload)
    covers = covers_of(facts, settings)
    eager = predict.eager(facts, device, rates)
    by_wall = launch_bound_alone(facts, workload, eager, settings)
    now = predict.back_to_back(eager) if eager is not None and by_wall else eager
    current = _observed_range(workload) or (now.time_us if now else None)
    every_option = options(facts, covers, device, current, current, rates, by_wall)
    chance = other_clock_chance(facts, workload, eager, by_wall)
    return DecisionInputs(
        facts, workload, device, settings, rates, covers, current, eager, every_option, other_clock=chance
    )


def rates_of(workload: Workload) -> Rates:
    """Those of traces where the times were observed, else those of back-to-back calls on a GPU."""
    return TRACED if workload.observed else FITTED


def _without_missing(option: Option, missing: Option) -> Option:
    """A call that is not here is not taken, and no kernel is to be written where it can be had."""
    if option is missing:
        return refuse(option, NOT_HERE)
    to_write = option.alternative.mode == "custom" and option.alternative.admitted
    return refuse(option, INSTALL_FIRST) if to_write else option


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the rule takes, from which options, and which part of the rule took it (`why`).

    missing: what it would take if their packages were installed here, the best first.
    """

    case: Case
    criteria: tuple[Criterion, ...]
    options: tuple[Option, ...]
    chosen: Option
    why: str
    missing: tuple[Option, ...] = ()


def verdict(on: DecisionInputs, objective: str = "time") -> Verdict:
    """The rule itself, on options whose times are known as far as they can be."""
    case = case_of(on)
    standing = {c.name: c for c in on.standing}
    first = {c.name: standing[c.name] if c.name in standing else c(case) for c in CRITERIA}
    judged = without_flex(at_hand(admit(on.options, first, case), case), case)
    others = [o.mid for o in judged if o.alternative.admitted and o.mid is not None and o.tool != "skip"]
    case = replace(case, reachable=min(others, default=None))
    criteria = {c.name: c(case) if c.moves_with_step else first[c.name] for c in CRITERIA}
    chosen, why = _choose(judged, criteria, case, objective)
    missing: list[Option] = []
    while on.facts.packages_known and not chosen.installed:
        missing.append(chosen)
        judged = tuple(_without_missing(o, chosen) for o in judged)
        chosen, why = _choose(judged, criteria, case, objective)
    return Verdict(case, tuple(criteria.values()), judged, chosen, why, tuple(missing))


def case_of(on: DecisionInputs) -> Case:
    """What the criteria judge, before it is known what could be saved."""
    share, share_source = share_of_step(on.facts, on.workload, on.current)
    launches = share_of_launches(on.facts, on.workload, on.settings)
    if launches is not None and launches > (share or 0.0):
        share, share_source = launches, "of its launches, and launching is what the step waits for"
    return Case(
        on.facts, on.workload, on.device, on.settings, on.covers, on.current, share, share_source,
        rates=on.rates, eager=on.eager,
        other_clock=on.other_clock,
    )  # fmt: skip


def _observed_range(workload: Workload) -> Range | None:
    """µs of one call where a trace has the time of every binding."""
    times = [b.time_us_per_step for b in workload.bindings]
    calls = sum(b.calls_per_step for b in workload.bindings)
    known = [t for t in times if t is not None]
    if not known or len(known) != len(times) or calls <= 0:
        return None
    observed = sum(known) / calls
    return Range(observed, observed, observed)


def share_of_step(facts: RegionFacts, workload: Workload, current: Range | None) -> tuple[float | None, str]:
    """(share, where it is from): given, or the region's time times its calls over the step's; None where unknown."""
    if workload.share_of_step is not None:
        source = "predicted" if facts.share_predicted else "measured"
        return workload.share_of_step, source if workload.observed else "given"
    if workload.step_time_us and current is not None:
        calls = sum(b.calls_per_step for b in workload.bindings)
        return min(1.0, current.mid * calls / workload.step_time_us), "from its estimated time and the step's"
    return None, ""


def share_of_launches(facts: RegionFacts, workload: Workload, settings: Thresholds) -> float | None:
    """The region's share of the step's launches, where the step is launch-bound; None elsewhere or unknown.

    In such a step kernels take a few per cent of the time and launching them takes the rest.
    """
    idle, mean, step, own = (
        facts.gpu_idle_share, facts.mean_kernel_us, workload.step_time_us, workload.launches_per_step,
    )  # fmt: skip
    if idle is None or not mean or not step or not own:
        return None
    if idle < settings.idle_share or mean > settings.short_kernel_us:
        return None
    return min(1.0, own * mean / max((1 - idle) * step, own * mean))


def _choose(
    judged: Sequence[Option], criteria: Mapping[str, Criterion], case: Case, objective: str
) -> tuple[Option, str]:
    """(option, which part of the rule took it)."""
    keep = next(o for o in judged if o.tool == "skip")
    ended = next((c.name for c in CRITERIA if c.ends_at is not None and criteria[c.name].holds is c.ends_at), "")
    if ended != fast_enough.name and nothing_to_compute(case.facts):
        return keep, "nothing"
    settled = case.facts.compiled or is_fused_optimizer(case.facts)
    if ended and not (settled and ended == worth_it.name and _is_large(case)):
        return keep, ended
    problem = criteria[kernel_problem.name]
    if problem.holds is False:
        graphs = next((o for o in judged if o.alternative.mode == "reduce-overhead"), None)
        fused = next(
            (o for o in judged if case.facts.optimizer and o.tool == "library" and o.alternative.admitted), None
        )
        if launch_bound(problem) and fused is not None:
            return fused, "launch-bound"
        # Of a region by itself the times are those of back-to-back calls: the estimate decides between its ways.
        alone = launch_bound(problem) and case.facts.gpu_idle_share is None
        if launch_bound(problem) and not alone and _graph_takes_it_as_it_is(case):
            return keep, "launch-bound"
        if launch_bound(problem) and graphs is not None and (not alone or no_triton(case.device)):
            return (keep if no_triton(case.device) else graphs), "launch-bound"
        if not alone:
            return keep, kernel_problem.name
    if settled:
        return keep, "already"
    admitted = [o for o in judged if o.alternative.admitted]
    if keep.mid is None or all(o.mid is None for o in admitted if o.tool != "skip"):
        unseen, why = _choose_unseen(admitted, keep, criteria, case)
        ruled_out = unseen is keep and any(o.mid is not None for o in judged if o.tool != "skip")
        return unseen, "estimate" if ruled_out and why == UNSEEN else why
    metric = _peak(case) if objective == "memory" else _expected_regret(admitted, case)
    return least_effort(admitted, keep, case, metric, objective), "estimate"


def _is_large(case: Case) -> bool:
    """By its share of the step alone, whatever could be saved of that."""
    return case.share is None or case.share >= case.settings.worth_share


def _graph_takes_it_as_it_is(case: Case) -> bool:
    """In a step that waits for launches, what a CUDA graph replays but torch.compile does not change: opaque calls, an
    optimizer's step, what it wrote itself."""
    return bool(not_compilable(case.facts)) or case.facts.optimizer or case.facts.compiled


SURE = 0.02
"""Chance of the other clock up to which it is not looked at."""


def _expected_regret(admitted: Sequence[Option], case: Case) -> Metric:
    """By how much an option is expected to be slower than the fastest of those that are here. What is not here, or has
    to win by its slow end, counts with that end over the least expected of them, and makes none of them look slower.
    Where it is not sure whether wall or device time decides, it is the mean of both."""
    timed = [o for o in admitted if o.alternative.time_us is not None]
    here = [o for o in timed if not _by_its_slow_end(o, case)]
    regrets = expected_regrets(tuple(o.alternative.time_us for o in here if o.alternative.time_us is not None))
    if case.other_clock > SURE and all(o.other_us is not None for o in here):
        others = expected_regrets(tuple(o.other_us for o in here if o.other_us is not None))
        chance = case.other_clock
        regrets = tuple((1 - chance) * one + chance * other for one, other in zip(regrets, others, strict=True))
    known = {id(o): regret for o, regret in zip(here, regrets, strict=True)}
    fastest = min((o.mid for o in here if o.mid), default=0.0)
    if fastest:
        known |= {id(o): _high(o) / fastest for o in timed if id(o) not in known}
    return lambda option: known.get(id(option))


def _peak(case: Case) -> Metric:
    """Bytes that stand for a peak: what is written on the way, and the inputs, which are there whatever runs."""
    cost = case.facts.cost
    held = cost.ideal.bytes_read if cost is not None else 0
    return lambda o: None if o.bytes_written is None else held + o.bytes_written


UNSEEN = "unseen"
"""Why a region is left, or a tool taken, where no time could be predicted."""
COMPILE_COVERS = "C"
"""The catalogue's verdict on an operation that torch.compile covers, where a library is optional."""


def _choose_unseen(
    admitted: Sequence[Option], keep: Option, criteria: Mapping[str, Criterion], case: Case
) -> tuple[Option, str]:
    """Without times: the sources' order. What is the library's stays; a call; Triton where all three hold; compile."""
    if runs_on_library(case.covers) is not None:
        return keep, "already"
    by_tool = {tool: [o for o in admitted if o.tool == tool] for tool in EFFORT_ORDER}
    fuses = {c.candidate for c in case.covers if c.verdict == COMPILE_COVERS}
    by_tool["library"] = [o for o in by_tool["library"] if o.alternative.candidate not in fuses]
    for tool in ("cuda", "library", "triton", "compile"):
        if by_tool[tool]:
            return by_tool[tool][0], UNSEEN
    return keep, UNSEEN


def least_effort(admitted: Sequence[Option], keep: Option, case: Case, metric: Metric, objective: str) -> Option:
    """Among the admitted, the tool with the least effort whose expected regret is within `near_best` of the least.

    Expected regret: by how much an option is expected to be slower than what will turn out to be the fastest, all
    predicted times drawn from their intervals (`app/advice/expected_regret.py`). It stands for the time below.

    A library call or torch.compile has to save `worth_share` of the step. What is more than a line (Triton, CUDA, a
    package that is not installed) competes only when it is predicted to be at least `win_margin` faster than the best
    of the rest, and to save at least `win_step_share` of the step: over what runs now, or over the best of the rest
    where the kernel is still to be written. What cannot be called here, since its package is missing or another version
    has it, has to be `install_margin` faster. What is not here, a kernel to write or a package to install, has to win
    by the slow end of its prediction, over a line's fast end: nothing has shown yet that it can be had. A kernel to
    write is unproven, and stands behind all that can be launched in the place of what runs now whose range reaches its
    own.

    A package that is not installed here is never advised, for another device's host neither, of which nobody knows what
    it has: what wins so is said to be worth installing to try, with the command, and the rule goes on without it and
    without a kernel to write. Only where no host is asked about, as by the widget, the call itself is the advice.
    """
    settings = case.settings
    known = [o for o in admitted if metric(o) is not None]
    rest = [o for o in known if not o.costly]
    if not rest:  # no figure for what there is: nothing can be shown to win over it
        return keep
    fallback = min(rest, key=lambda o: value(metric, o))
    pool = [o for o in rest if o is keep or objective == "memory" or _saves(o, keep, case)]
    for option in (o for o in known if o.costly):
        margin = settings.win_margin if option.installed else max(settings.win_margin, settings.install_margin)
        if objective == "time" and _by_its_slow_end(option, case):
            least = math.inf if fallback is keep else _low(fallback)
            if option.alternative.mode == "custom":  # nothing that runs may turn out to be as fast
                least = min((_low(o) for o in known if o.at_hand and o is not keep), default=least)
            wins = _high(option) <= min((1 - margin) * (fallback.mid or 0.0), least)
        else:
            wins = value(metric, option) <= (1 - margin) * value(metric, fallback)
        gain = 1.0 if objective == "memory" else _step_gain(option, fallback.mid or 0.0, keep, case)
        if wins and gain >= settings.win_step_share:
            pool.append(option)
    best = min(value(metric, o) for o in pool)
    near = [o for o in pool if value(metric, o) <= (1 + settings.near_best) * best]
    return min(near, key=effort)


def value(metric: Metric, option: Option) -> float:
    """The metric of an option that has one."""
    amount = metric(option)
    assert amount is not None
    return amount


def _high(option: Option) -> float:
    predicted = option.alternative.time_us
    assert predicted is not None
    return predicted.high


def _low(option: Option) -> float:
    predicted = option.alternative.time_us
    return 0.0 if predicted is None else predicted.low


def _by_its_slow_end(option: Option, case: Case) -> bool:
    """Whether it has to win by the slow end of its prediction: what is not here, a kernel to write or a package to
    install; a kernel that makes a large matrix product in the library's place, where Triton reaches 80 to 95 % of it;
    and one of this project's with gradients that was not timed on rows of such a length."""
    own = option.tool == "triton" and option.alternative.mode not in ("generated", "custom")
    unsure = own and (_multiplies(case) or (case.facts.requires_grad and not option.recorded))
    return option.alternative.mode == "custom" or not option.installed or unsure


TAILS = frozenset({"gemm", "gemm_tail"})
"""Kinds whose product is written whatever makes it: one kernel for all of it saves the tail's pass alone."""


def _multiplies(case: Case) -> bool:
    """Its limit is a matrix product's, not the memory's, and the product stays."""
    shape = case.facts.heaviest
    return shape is not None and case.facts.kind in TAILS and bound(shape.cost, case.device) == "compute"


def effort(option: Option) -> tuple[int, float, float]:
    """Position in the order of effort: tool, then mode, then time.

    A package that has to be installed first is more than a generated kernel and less than a kernel to write.
    """
    alternative = option.alternative
    mode = MODE_ORDER.index(alternative.mode) if alternative.mode in MODE_ORDER else 0
    if option.costly and alternative.tool == "library":
        return EFFORT_ORDER.index("triton"), MODE_ORDER.index("generated") + 0.5, option.mid or 0.0
    return EFFORT_ORDER.index(alternative.tool), mode, option.mid or 0.0


def _saves(option: Option, keep: Option, case: Case) -> bool:
    """It saves the threshold's share of the step; unknown shares count as worth it."""
    if case.share is None or option.mid is None or keep.mid is None or keep.mid <= 0:
        return True
    return case.share * (1 - option.mid / keep.mid) >= case.settings.worth_share


def _step_gain(option: Option, fallback: float, keep: Option, case: Case) -> float:
    """Share of the step that an option saves; 1 where the share is not known.

    Over what runs now; of what is still to be had (a kernel to write, a package to install) over the best of the rest:
    that is what the trouble buys.
    """
    if case.share is None or option.mid is None or keep.mid is None or keep.mid <= 0:
        return 1.0
    before = keep.mid if option.at_hand else fallback
    return case.share * (before - option.mid) / keep.mid


def speedup(before: Range | None, after: Range | None) -> Range | None:
    """Factor by which the region gets faster, with the spread of both times."""
    if before is None or after is None or min(before.low, after.low) <= 0:
        return None
    mid = before.mid / after.mid
    # Both errors at once, as independent ones: their logarithms add in quadrature.
    down = math.hypot(math.log(before.mid / before.low), math.log(after.high / after.mid))
    up = math.hypot(math.log(before.high / before.mid), math.log(after.mid / after.low))
    return Range(mid * math.exp(-down), mid, mid * math.exp(up))


def step_speedup(region: Range | None, share: float | None) -> Range | None:
    """What the step gains by the region's speed-up; None where that or its share is not known."""
    if region is None or share is None:
        return None
    low, mid, high = (amdahl(share, factor) for factor in (region.low, region.mid, region.high))
    return Range(low, mid, high)


def _advice(on: Verdict, objective: str) -> Advice:
    case, criteria, judged, chosen, why = on.case, on.criteria, on.options, on.chosen, on.why
    keep = next(o for o in judged if o.tool == "skip")
    one = Range(1.0, 1.0, 1.0)
    unknown = chosen.tool == "skip" and why == UNSEEN  # nothing was predicted: neither that it stays as fast
    region = (
        None
        if unknown
        else one
        if chosen.tool == "skip"
        else speedup(keep.alternative.time_us, chosen.alternative.time_us)
    )
    if why == "launch-bound" and case.facts.gpu_idle_share is not None:
        region = None  # graphs speed up the step, by what its launches cost; no part of that is this region's alone
    words = wording.write(case, {c.name: c for c in criteria}, chosen.alternative, why, region)
    tool, mode = chosen.tool, chosen.alternative.mode if chosen.tool != "skip" else "default"
    alternatives = tuple(o.alternative for o in judged)
    far = _far_from_its_floor(case, chosen, why) if objective == "time" else None
    if far is not None:
        tool, mode = "library", far.remedy.mode
        region = speedup(case.current, _remedied_us(case, far))
        remedied = _as_alternative(case, far)
        notes = wording.write(case, {c.name: c for c in criteria}, remedied, why, region).notes
        words = replace(off_floor.words(case, far, region), notes=notes)
        alternatives = (*alternatives, remedied)
    return Advice(
        tool=tool,
        mode=mode,
        headline=words.headline,
        action=words.action,
        call=words.call,
        criteria=criteria,
        alternatives=alternatives,
        region_speedup=region,
        step_speedup=step_speedup(region, case.share),
        floor_us=_floor_us(case),
        device=case.device.name,
        notes=(*words.notes, *(MEMORY_NOTE if objective == "memory" else ())),
        worth_installing=_worth_installing(on, objective),
    )


def _floor_us(case: Case) -> float | None:
    """The least that the device needs for one call, averaged over the calls of all sizes as predicted times are."""
    facts = case.facts
    floors = [(s.calls, floor_us(without_hidden(s.cost, facts.hidden_share), case.device)) for s in facts.shapes]
    if not floors:
        return None
    calls = sum(c for c, _ in floors)
    return sum(c * f for c, f in floors) / calls if calls else max(f for _, f in floors)


KEPT = frozenset({"estimate", "already", worth_it.name})
"""Parts of the rule that leave a region because no tool is faster: a remedy for its library call may be."""


def _far_from_its_floor(case: Case, chosen: Option, why: str) -> off_floor.Finding | None:
    """What a library call that would be kept, or compiled, lacks; None where it is worth less than what was chosen.

    Likewise where a kernel is to be written that nobody has proven: a line with a predicted time comes before it.
    """
    to_write = chosen.alternative.mode == "custom"
    if why not in KEPT or not (to_write or chosen.tool in ("skip", "compile")) or case.current is None:
        return None
    if case.share is not None and case.share < case.settings.worth_share:
        return None
    far = off_floor.finding(case)
    if far is None or far.left is None:
        return far if chosen.tool == "skip" else None
    if case.share is not None and case.share * (1 - far.left.mid) < case.settings.worth_share:
        return None
    slower = (to_write or chosen.tool == "compile") and (
        chosen.mid is None or far.left.mid * case.current.mid > (1 + case.settings.near_best) * chosen.mid
    )
    return None if slower else far


def _remedied_us(case: Case, far: off_floor.Finding) -> Range | None:
    if far.left is None or case.current is None:
        return None
    now = case.current.mid
    return Range(far.left.low * now, far.left.mid * now, far.left.high * now)


def _as_alternative(case: Case, far: off_floor.Finding) -> Alternative:
    remedy = far.remedy
    return Alternative(
        "library", f"library:remedy.{remedy.mode}", _remedied_us(case, far), EFFORT_LINES["library"], remedy.because,
        True, remedy.call, remedy.mode,
    )  # fmt: skip


def _worth_installing(on: Verdict, objective: str) -> tuple[WorthInstalling, ...]:
    """Of what is missing, that of which a time is predicted, and a better one where the objective is time."""
    covers = {c.candidate: c for c in on.case.covers}
    advised = on.chosen.alternative.time_us
    missing = [
        WorthInstalling(a.candidate, cover.package, cover.install, a.call, a.time_us, speedup(advised, a.time_us))
        for a in (o.alternative for o in on.missing)
        if a.time_us is not None and (cover := covers.get(a.candidate)) is not None
    ]
    return tuple(w for w in missing if objective == "memory" or (w.speedup is not None and w.speedup.mid > 1))
