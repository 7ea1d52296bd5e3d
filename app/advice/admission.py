"""Admission: which options the rule lets compete, and why the others not. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.advice.case import Case
from app.advice.criteria import (
    CRITERIA,
    compile_fuses,
    kernel_problem,
    library_covers,
    runs_on_library,
    several_shapes,
)
from app.advice.launches import launch_bound
from app.advice.model import Alternative, Criterion
from app.advice.options import Option, not_compilable, refuse
from app.units import percent

REFUSING = tuple((criterion.name, criterion.refuses) for criterion in CRITERIA if criterion.refuses is not None)
"""Criteria that keep options from competing by themselves, in the rule's order."""


def admit(options: Sequence[Option], criteria: Mapping[str, Criterion], case: Case) -> tuple[Option, ...]:
    """Each option with whether the rule lets it compete, and why not."""
    now = _RunsNow(launch_bound(criteria[kernel_problem.name]), _tuned(case), _one_kernel(case), _convolves(case))
    return tuple(_admit(o, criteria, case, now) for o in options)


def at_hand(options: Sequence[Option], case: Case) -> tuple[Option, ...]:
    """A call that cannot be run here loses to an installed one for the same operations, unless it is clearly faster."""
    keep = next(o for o in options if o.tool == "skip")
    already = runs_on_library(case.covers) is not None
    return tuple(
        _refuse_beaten(o, keep if already else None, options, case)
        if o.tool == "library" and not o.runs and o.alternative.admitted
        else o
        for o in options
    )


def _refuse_beaten(option: Option, keep: Option | None, options: Sequence[Option], case: Case) -> Option:
    """Not admitted where a call that is at hand, or the one that runs now (keep), is about as fast."""
    rivals = [o for o in options if o.tool == "library" and o.installed and o.alternative.admitted and _same(o, option)]
    rivals += [keep] if keep is not None else []
    if not rivals:
        return option
    best = min(rivals, key=lambda o: math.inf if o.mid is None else o.mid)
    least = (1 - case.settings.install_margin) * (best.mid or 0.0)
    if option.mid is not None and best.mid is not None and option.mid <= least:
        return option
    name = "what runs now" if best is keep else best.alternative.candidate.removeprefix("library:")
    reason = f"{name} is at hand, and this is not predicted {percent(case.settings.install_margin)} faster"
    return refuse(option, reason)


def _same(one: Option, other: Option) -> bool:
    """The first replaces all that the other replaces."""
    return one.part is None or (other.part is not None and other.part <= one.part)


@dataclass(frozen=True, slots=True)
class _RunsNow:
    """What is true of the region whatever the option: it is launch-bound, runs on a tuned kernel, is one kernel, holds
    a convolution that does.
    """

    launch_bound: bool
    tuned: bool
    one_kernel: bool
    convolves: bool


def _admit(option: Option, criteria: Mapping[str, Criterion], case: Case, now: _RunsNow) -> Option:
    reason, margin = "", case.settings.win_margin
    alternative = option.alternative
    if not alternative.admitted:
        return option
    if alternative.mode == "reduce-overhead" and not now.launch_bound:
        reason = "only for launch-bound steps"
    elif alternative.tool != "skip" and case.facts.already_tuned:
        reason = not_compilable(case.facts)
    elif alternative.tool == "compile" and option.mid is None and criteria[compile_fuses.name].holds is False:
        single = alternative.mode == "max-autotune" and criteria[several_shapes.name].holds is not True
        reason = "" if single else "nothing says that it would fuse"
    elif alternative.tool == "triton" and now.tuned:
        reason = "it runs on a library's hand-tuned kernel"
    elif alternative.tool == "triton" and alternative.mode == "custom" and now.convolves:
        reason = "its convolution runs on a library's hand-tuned kernel, which one for all of it would have to match"
    elif alternative.tool == "compile" and not now.launch_bound and case.facts.kind == "convolution" and now.tuned:
        reason = "torch.compile calls the same kernel"
    elif now.tuned and _replaces_by_one_line(alternative) and not _surely_faster(option, case, margin):
        reason = "it runs on a library's hand-tuned kernel, and this is not surely faster by the margin"
    elif now.one_kernel and alternative.tool == "compile" and not _surely_faster(option, case):
        reason = "it is one kernel already, and the predicted gain is within the estimate's error"
    elif refused := next((why for name, refuses in REFUSING if (why := refuses(option, criteria[name]))), ""):
        reason = refused
    elif alternative.tool == "triton" and option.mid is None:
        unseen = tuple(criteria[c.name].holds for c in (library_covers, compile_fuses, several_shapes))
        if unseen != (False, False, True):
            reason = "without sizes, Triton takes all three: no library, nothing fused, several shapes"
    return refuse(option, reason) if reason else option


TUNED_BY_HAND = frozenset({"attention", "gemm", "grouped_gemm", "convolution"})
"""Kinds whose library kernels Triton reaches 80 to 95 % of: a prediction is no reason to replace them."""


def _replaces_by_one_line(alternative: Alternative) -> bool:
    return alternative.tool == "library" or (alternative.tool == "compile" and alternative.mode != "reduce-overhead")


def _tuned(case: Case) -> bool:
    """It runs on such a kernel now. A depthwise convolution does not: cuDNN's are not made for one filter a channel."""
    now = runs_on_library(case.covers)
    if now is None or case.facts.kind not in TUNED_BY_HAND:
        return False
    return case.facts.kind != "convolution" or now.verdict.startswith("Y")


def _convolves(case: Case) -> bool:
    """One of its operations is a convolution that a library's kernels are made for, so not one filter a channel."""
    calls = (c for c in case.covers if c.covers and c.already and c.verdict.startswith("Y"))
    return any("convolution" in c.operations for c in calls)


def _one_kernel(case: Case) -> bool:
    shape = case.facts.heaviest
    return shape is not None and shape.cost.unfused.launches <= 1


def _surely_faster(option: Option, case: Case, margin: float = 0.0) -> bool:
    """Even the slow end of its prediction is faster than what runs now, by this share."""
    predicted = option.alternative.time_us
    return predicted is not None and case.current is not None and predicted.high < (1 - margin) * case.current.mid
