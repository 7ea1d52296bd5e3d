"""What the measurement says about the advice: confirmed, overturned, tie or unmeasured. A pure function of data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kernels.measure.model import CandidateResult, Interval, is_users_kernel

EFFORT = {"eager": 0, "library": 1, "compile": 2, "triton": 3, "cuda": 4}
"""Least effort first; among equals the least wins."""

MODE_EFFORT = {"compile": 0, "compile-max-autotune": 1, "compile-reduce-overhead": 2}
"""Within torch.compile: the default compiles in seconds, autotuning takes longer, CUDA graphs fix the sizes."""

HOST_PACED = 1.5
"""Wall time above this many times the device time: the host, not the GPU, sets the pace of this call."""

DISPROVING = frozenset({"mismatch", "unsupported", "error", "fault", "timeout", "out_of_memory", "impossible"})
"""What a candidate that was tried came to when it cannot be used here."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """near_best: a tool within this of the fastest is good enough: the one with less effort is taken (DESIGN's rule).

    tie: times this near count as equal ("never claim under 3 %", clocks drift as much).
    triton_win: Triton must be this much faster than the best of the others, at the near end of the interval.
    worth_of_step: what a change must gain of the whole step over eager. Triton has to win both: its bar over the best
    of the others, and this (DESIGN: "10 % of the region over the best of the rest and 1 % of the step").
    """

    near_best: float = 0.10
    tie: float = 0.03
    triton_win: float = 0.10
    worth_of_step: float = 0.01


@dataclass(frozen=True, slots=True)
class Contender:
    """A correct, timed candidate: the figure that decides (µs, weighted by calls over all bindings).

    ratio_to_best_other: against the fastest other candidate; for Triton, the fastest that is not Triton.
    """

    name: str
    tool: str
    time_us: float
    ratio_to_best_other: Interval | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """best: the fastest. winner: what the decision rule takes, which may be slower and easier."""

    outcome: str
    reason: str
    best: str | None = None
    winner: str | None = None


def tool_of_advice(tool: str) -> str:
    """Advice's tool as a candidate's: skip means leave it as it is, which is eager."""
    return "eager" if tool == "skip" else tool


def candidate_of_advice(advice: Mapping[str, object] | None) -> str | None:
    """compile-reduce-overhead where that was advised; None where any candidate of the tool is meant.

    Default and max-autotune are one piece of advice, with the mode left to the measurement; CUDA graphs are another.
    """
    graphs = advice is not None and advice.get("tool") == "compile" and advice.get("mode") == "reduce-overhead"
    return "compile-reduce-overhead" if graphs else None


def by_wall(by: str) -> bool:
    """Whether wall times decided. by: what a validation's conditions have as `decided_by`."""
    return by.startswith("wall")


def deciding_us(candidate: CandidateResult, by: str) -> float:
    """µs of a timed candidate: of the device, or of wall time where that decided and was taken."""
    assert candidate.time_us is not None
    return candidate.wall_us if by_wall(by) and candidate.wall_us is not None else candidate.time_us.median


def fastest_of(results: Sequence[CandidateResult], by: str) -> str | None:
    """The name of the fastest of those that were timed, the user's own kernel among them; None where none was."""
    timed = [r for r in results if r.status == "ok" and r.time_us is not None]
    return min(timed, key=lambda r: deciding_us(r, by)).name if timed else None


def host_paced(results: Sequence[CandidateResult], name: str | None) -> str:
    """What a reader must know of a candidate whose call takes the host longer than the GPU; "" where it does not."""
    by_name = {r.name: r for r in results}
    named, eager = by_name.get(name or ""), by_name.get("eager")
    if named is None or named.time_us is None or named.wall_us is None:
        return ""
    if named.wall_us <= HOST_PACED * named.time_us.median:
        return ""
    compared = f" (eager {eager.wall_us:.4g} µs)" if eager not in (None, named) and eager.wall_us is not None else ""
    return (
        f"{named.name} takes {named.wall_us:.4g} µs of wall time a call{compared} against {named.time_us.median:.4g} µs"
        " on the GPU: called alone, the host sets its pace"
    )


def winner(contenders: Sequence[Contender], thresholds: Thresholds = Thresholds()) -> Contender:
    """The one to use: Triton only where it clears its bar, then the least effort among those near the best."""
    easier = [c for c in contenders if c.tool != "triton"]
    fastest = min(contenders, key=lambda c: c.time_us)
    if fastest.tool == "triton" and (not easier or clears(fastest, thresholds)):
        return fastest
    pool = easier or contenders
    best = min(pool, key=lambda c: c.time_us)
    near = [c for c in pool if c.time_us <= best.time_us * (1 + thresholds.near_best)]
    return min(near, key=lambda c: (EFFORT.get(c.tool, 9), MODE_EFFORT.get(c.name, 0), c.time_us))


def clears(contender: Contender, thresholds: Thresholds) -> bool:
    """Triton's whole interval is faster than the best of the others by the bar."""
    span = contender.ratio_to_best_other
    return span is not None and span.high <= 1 / (1 + thresholds.triton_win)


def decide(
    results: Sequence[CandidateResult],
    contenders: Sequence[Contender],
    advice: Mapping[str, object] | None,
    share_of_step: float | None = None,
    by: str = "device time",
    thresholds: Thresholds = Thresholds(),
) -> Outcome:
    """Compare what won with what was advised. results: all candidates, for the reasons of those that did not run.

    Where the winner is to be a gain by device time, and the host sets the pace of its calls, the reason says so. What
    became of the user's own kernel says nothing of the advice.
    """
    results = [r for r in results if not is_users_kernel(r.name)]
    outcome = _decide(results, contenders, advice, share_of_step, by, thresholds)
    tools = {c.name: c.tool for c in contenders}
    paced = "" if by_wall(by) or tools.get(outcome.winner or "") == "eager" else host_paced(results, outcome.winner)
    return replace(outcome, reason=f"{outcome.reason}; {paced}") if paced else outcome


def _decide(
    results: Sequence[CandidateResult],
    contenders: Sequence[Contender],
    advice: Mapping[str, object] | None,
    share_of_step: float | None,
    by: str,
    thresholds: Thresholds,
) -> Outcome:
    if not contenders:
        return Outcome("unmeasured", _nothing_ran(results))
    best = min(contenders, key=lambda c: c.time_us)
    won = winner(contenders, thresholds)
    eager = next((c for c in contenders if c.tool == "eager"), None)
    if len(contenders) == 1 and won is eager:
        others = [r for r in results if r.tool != "eager"]
        return Outcome("unmeasured", f"only eager could be timed: {_nothing_ran(others)}", best.name, won.name)
    gain = _step_gain(won, eager, share_of_step)
    if gain is not None and gain < thresholds.worth_of_step and eager is not None and won is not eager:
        won = eager
    if advice is None:
        return Outcome(*_unadvised(contenders, won, by, thresholds), best.name, won.name)
    wanted = tool_of_advice(str(advice.get("tool", "")))
    exact = candidate_of_advice(advice)
    offered = [c for c in contenders if c.tool == wanted and exact in (None, c.name)]
    if not offered:
        missing = [r for r in results if r.tool == wanted and exact in (None, r.name)]
        none = f"no {wanted} candidate exists for this region" if exact is None else f"{exact} was not measured"
        why = _nothing_ran(missing) if missing else none
        # A kernel that nobody wrote, or a package that is not installed, disproves nothing.
        if wanted in ("triton", "cuda") or not any(r.status in DISPROVING for r in missing):
            return Outcome("unmeasured", f"{exact or advice.get('tool')} was advised; {why}. {_leader(won, eager, by)}",
                           best.name, won.name)  # fmt: skip
        return Outcome("overturned", f"{exact or advice.get('tool')} was advised; {why}. {_leader(won, eager, by)}",
                       best.name, won.name)  # fmt: skip
    advised = min(offered, key=lambda c: c.time_us)
    if won.tool == wanted and exact in (None, won.name):
        return Outcome("confirmed", _confirmed(won, eager, contenders, by, gain, thresholds), best.name, won.name)
    near = 1 + thresholds.tie
    close = won.time_us / near <= advised.time_us <= won.time_us * near
    if close or _undecided(won, advised, contenders):
        least = f"{won.name} is the least effort" if EFFORT[won.tool] < EFFORT[wanted] else f"{won.name} is not faster"
        how = f"within {thresholds.tie:.0%}" if close else "not told apart: the interval of their ratio holds 1"
        return Outcome(
            "tie",
            f"{advised.name} ({advised.time_us:.3g} µs) and {won.name} ({won.time_us:.3g} µs) are {how} by {by};"
            f" {least}",
            best.name,
            won.name,
        )
    return Outcome("overturned", _overturned(won, advised, eager, best, by, gain, thresholds), best.name, won.name)


def _undecided(won: Contender, advised: Contender, contenders: Sequence[Contender]) -> bool:
    """The rounds, paired, do not tell the two apart. Known only where the winner is what the ratio is held against."""
    rivals = [c for c in contenders if c is not advised and not (c.tool == advised.tool == "triton")]
    span = advised.ratio_to_best_other
    return span is not None and won is min(rivals, key=lambda c: c.time_us, default=None) and span.low <= 1 <= span.high


def _step_gain(won: Contender, eager: Contender | None, share: float | None) -> float | None:
    """Share of the step that taking `won` gains; None when unknown."""
    if share is None or eager is None or not eager.time_us:
        return None
    return share * (1 - won.time_us / eager.time_us)


def _faster(first: Contender, second: Contender) -> str:
    return (
        f"{first.name} takes {first.time_us:.4g} µs against {second.time_us:.4g} µs of {second.name}"
        f" ({second.time_us / first.time_us:.2f} × as fast)"
    )


def _leader(won: Contender, eager: Contender | None, by: str) -> str:
    if eager is None or won is eager:
        return f"Of what was measured, {won.name} is to be preferred: {won.time_us:.4g} µs by {by}"
    return f"Of what was measured: {_faster(won, eager)} by {by}"


def _confirmed(
    won: Contender,
    eager: Contender | None,
    contenders: Sequence[Contender],
    by: str,
    gain: float | None,
    thresholds: Thresholds,
) -> str:
    others = [c for c in contenders if c.tool != won.tool]
    if won is eager:
        if gain is not None and gain < thresholds.worth_of_step:
            return f"nothing gains {thresholds.worth_of_step:.0%} of the step; the best gains {max(0.0, gain):.2%}"
        next_best = min(others, key=lambda c: c.time_us)
        return (
            f"leaving it is right: {next_best.name}, the fastest other, takes {next_best.time_us:.4g} µs against"
            f" {won.time_us:.4g} µs of eager by {by}"
        )
    text = f"{_faster(won, eager)} by {by}" if eager is not None else f"{won.name} takes {won.time_us:.4g} µs by {by}"
    rivals = [c for c in others if c is not eager]
    if rivals:
        rival = min(rivals, key=lambda c: c.time_us)
        text += f"; {_runner_up(rival, won, thresholds)}"
    return text


def _runner_up(rival: Contender, won: Contender, thresholds: Thresholds) -> str:
    """The fastest of the other tools; where it is faster than what was taken, why it was not."""
    if rival.time_us >= won.time_us:
        return f"the next tool, {rival.name}, takes {rival.time_us:.4g} µs"
    ahead = f"{rival.name} is {1 - rival.time_us / won.time_us:.0%} faster ({rival.time_us:.4g} µs)"
    if rival.tool == "triton":
        return f"{ahead}, which does not clear the {thresholds.triton_win:.0%} that Triton must win"
    return f"{ahead}, within the {thresholds.near_best:.0%} that count as a tie: {won.name} is less effort"


def _overturned(
    won: Contender,
    advised: Contender,
    eager: Contender | None,
    best: Contender,
    by: str,
    gain: float | None,
    thresholds: Thresholds,
) -> str:
    if won is eager and gain is not None and gain < thresholds.worth_of_step:
        return f"no candidate gains {thresholds.worth_of_step:.0%} of the step: the best gains {max(0.0, gain):.2%}"
    if won.time_us <= advised.time_us:
        return f"{_faster(won, advised)}, which was advised, by {by}"
    bar = f"Triton must win {thresholds.triton_win:.0%} over the best of the others, and does not surely do so"
    return f"{_faster(advised, won)}, but {bar}" if best.tool == "triton" else f"{_faster(advised, won)} by {by}"


def _unadvised(contenders: Sequence[Contender], won: Contender, by: str, thresholds: Thresholds) -> tuple[str, str]:
    """Nothing to compare with: a tie when two tools are as good, else the winner stands."""
    near = [c for c in contenders if c.tool != won.tool and c.time_us <= won.time_us * (1 + thresholds.tie)]
    if near:
        rival = min(near, key=lambda c: c.time_us)
        return "tie", f"{won.name} ({won.time_us:.4g} µs) and {rival.name} ({rival.time_us:.4g} µs) are equal by {by}"
    eager = next((c for c in contenders if c.tool == "eager"), None)
    return "confirmed", f"nothing was advised before. {_leader(won, eager, by)}"


def _nothing_ran(results: Sequence[CandidateResult]) -> str:
    if not results:
        return "there was no candidate"
    return "; ".join(f"{r.name}: {r.status.replace('_', ' ')}" + (f" ({r.message[:120]})" if r.message else "")
                     for r in results[:4])  # fmt: skip
