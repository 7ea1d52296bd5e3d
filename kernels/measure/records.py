"""From raw answers to results: what each candidate measured, judged and put into the Validation's words. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec
import numpy as np

from kernels.measure import stats
from kernels.measure.crosscheck import Clocks, contradiction
from kernels.measure.judge import LOOSEST, Verdict, judge, judge_written
from kernels.measure.messages import Case, Prepared
from kernels.measure.model import CandidateResult, Interval, ShapeResult, is_users_kernel
from kernels.measure.outcome import Contender, tool_of_advice

KEPT = "it returned what it had computed for other inputs"
NOT_REPEATED = "two runs on the same inputs differ in their bits"
ABLATIONS: Mapping[str, str] = {
    "same": "with its Triton kernels left out it returns the same: something else computes it",
    "none": "it launched no Triton kernel",
}
NOT_RUN = "its own kernel did not run"
LAUNCH_BOUND = 1.5
"""Eager's wall time above this many times its device time: the host, not the GPU, sets the pace."""
INTERPRETER_LOOSEST = 4.0
"""Triton's interpreter cuts 32-bit floats to bf16 where the GPU rounds: twice the error."""


@dataclass(slots=True)
class Record:
    """One candidate while it is measured. Lists are per binding; times and walls then per round."""

    name: str
    tool: str
    call: str = ""
    note: str = ""
    status: str = "not_run"
    message: str = ""
    compile_s: float | None = None
    spent_s: dict[str, float] = field(default_factory=dict)  # of preparing: context, build, first calls, checks, ...
    peak_bytes: list[int | None] = field(default_factory=list)
    held_bytes: int = 0
    cases: list[list[Case]] = field(default_factory=list)
    mutated: list[list[str]] = field(default_factory=list)
    unable: list[str] = field(default_factory=list)  # what Triton's interpreter could not compute of each task
    errors: list[float | None] = field(default_factory=list)
    times_us: list[list[list[float]]] = field(default_factory=list)
    walls_us: list[list[float]] = field(default_factory=list)
    drains_us: list[list[float]] = field(default_factory=list)
    spans_us: list[list[float | None]] = field(default_factory=list)
    fresh: list[list[list[int]]] = field(default_factory=list)
    ablation: str = ""
    kernels: tuple[str, ...] = ()
    expected_kernels: tuple[str, ...] = ()
    source: str = ""

    @property
    def checked_as(self) -> str:
        """Its tool; "kernel" where it is the user's own, which may know nothing of other types than the region's."""
        return "kernel" if is_users_kernel(self.name) else self.tool

    @property
    def standing(self) -> bool:
        """Correct so far, and may be timed."""
        return self.status in ("correct", "ok")

    def fail(self, status: str, message: str) -> None:
        self.status, self.message = status, message

    def remark(self, text: str) -> None:
        """Add to the message; the same thing is said once."""
        if text and text not in self.message:
            self.message = f"{self.message}; {text}" if self.message else text

    def take_prepared(self, prepared: Prepared) -> None:
        """The worker's answer to `Prepare`."""
        self.compile_s = sum(t.compile_s for t in prepared.tasks)
        self.peak_bytes = [t.peak_bytes for t in prepared.tasks]
        self.held_bytes = max(0, prepared.held_bytes)
        self.cases = [t.cases for t in prepared.tasks]
        self.mutated = [t.mutated for t in prepared.tasks]
        self.unable = [t.unable for t in prepared.tasks]
        self.ablation = prepared.ablation
        self.spent_s = {k[:40]: v for k, v in prepared.spent_s.items()}

    def leave_out(self, rounds: Collection[int]) -> None:
        """Forget these rounds at every binding."""
        self.times_us = _without(rounds, self.times_us)
        self.walls_us = _without(rounds, self.walls_us)
        self.drains_us = _without(rounds, self.drains_us)
        self.spans_us = _without(rounds, self.spans_us)
        self.fresh = _without(rounds, self.fresh)

    def clocks(self, number: int) -> Clocks:
        """All that was timed at one binding."""
        return Clocks(
            self.times_us[number], self.walls_us[number], _at(number, self.drains_us), _at(number, self.spans_us),
            _at(number, self.fresh),
        )  # fmt: skip


Item = TypeVar("Item")


def _without(rounds: Collection[int], per_binding: Sequence[Sequence[Item]]) -> list[list[Item]]:
    return [[item for n, item in enumerate(per_round) if n not in rounds] for per_round in per_binding]


def _at(number: int, per_binding: Sequence[Sequence[Item]]) -> Sequence[Item]:
    """[] where that was not timed."""
    return per_binding[number] if number < len(per_binding) else []


def judge_record(
    record: Record, eager: Sequence[Sequence[Case]] | None, eager_mutated: Sequence[Sequence[str]] | None,
    labels: Sequence[str], loosest: Sequence[float] = (),
) -> None:  # fmt: skip
    """Set status correct or mismatch from its cases. eager: eager's cases per binding, None where it gave none."""
    record.errors = []
    if record.unable and all(record.unable):
        record.fail("not_run", f"not checked: Triton's interpreter cannot run it in {record.unable[0]}")
        return
    for number, cases in enumerate(record.cases):
        if number < len(record.unable) and record.unable[number]:
            record.errors.append(None)
            continue
        base = eager[number] if eager is not None else None
        verdict = _verdict(record, number, base, eager_mutated, loosest)
        record.errors.append(verdict.error_vs_eager)
        where = f" at {labels[number]}" if len(record.cases) > 1 and labels[number] else ""
        if not verdict.ok:
            text = f"{KEPT}: {verdict.message}" if _kept_results(cases, base, number, loosest) else verdict.message
            record.fail("mismatch", text + where)
            return
        if verdict.special and record.tool == "triton":
            record.fail("mismatch", verdict.special + where)
            return
        # A library and the compiler are taken as they are: people use them so. It is said.
        record.remark(verdict.special)
        record.remark(verdict.unchecked)
        for against in dict.fromkeys(c.against for c in cases):
            record.remark(against)
        if any(c.repeats is False for c in cases):
            record.remark(NOT_REPEATED)
    record.status = "correct"


def _verdict(
    record: Record, number: int, base: Sequence[Case] | None, eager_mutated: Sequence[Sequence[str]] | None,
    loosest: Sequence[float],
) -> Verdict:  # fmt: skip
    """Of one task's cases: the outputs, then which inputs it writes into, then what it leaves there."""
    cases = common(record.cases[number], base)
    bound = loosest[number] if number < len(loosest) else LOOSEST
    verdict = judge(cases, base, bound)
    if verdict.ok and eager_mutated is not None:
        verdict = _same_mutations(record.mutated[number], eager_mutated[number], verdict)
    if not verdict.ok:
        return verdict
    written = judge_written(cases, base, bound)
    return verdict.joined(written) if written.ok else written


def _kept_results(
    cases: Sequence[Case], base: Sequence[Case] | None, number: int, loosest: Sequence[float]
) -> bool:  # fmt: skip
    """Whether the first case that is wrong is an earlier call's: what is wrong from the beginning keeps nothing."""
    bound = loosest[number] if number < len(loosest) else LOOSEST
    return next((c.kept for c in common(cases, base) if not judge([c], base, bound).ok), False)


def insensitive(cases: Sequence[Case]) -> list[str]:
    """Which changes of the inputs would pass unseen: eager's outputs for other inputs are within the bound on errors.

    cases: eager's own, with "stale". Names of inputs; "" for all of them at once.
    """
    inputs = []
    for case in cases:
        if case.stale and judge([msgspec.structs.replace(case, outputs=case.stale)], [case]).ok:
            _, _, name = case.distribution.partition("changed ")
            inputs.append(name)
    return inputs


def blind_spot(names: Sequence[str]) -> str:
    """What that means for the check, "" for no names."""
    if "" in names:
        return "the outputs are about the same whatever the inputs are: a candidate that computes nothing could pass"
    if names:
        return f"the outputs hardly depend on {', '.join(names)}: a candidate that ignores it could pass"
    return ""


def advised_unchecked(records: Sequence[Record], advice: Mapping[str, object] | None) -> str:
    """What to say of a verdict without times whose advised tool has no candidate that was checked; else ""."""
    if advice is None or "tool" not in advice:
        return ""
    tool = tool_of_advice(str(advice["tool"]))
    own = [r for r in records if r.tool == tool]
    if any(r.standing for r in own):
        return ""
    why = f": {own[0].name} {own[0].message}" if own and own[0].message else ""
    return f"; what is advised, {advice['tool']}, was not checked either{why}"


def common(cases: Sequence[Case], base: Sequence[Case] | None) -> list[Case]:
    """The cases that eager ran too: one of the two may have been too slow for all of them."""
    known = {c.distribution for c in base} if base else None
    return [c for c in cases if known is None or c.distribution in known]


def _same_mutations(own: Sequence[str], eager: Sequence[str], verdict: Verdict) -> Verdict:
    extra = sorted(set(own) - set(eager))
    if extra:
        return replace(verdict, ok=False, message=f"it changed its input {', '.join(extra)}")
    missing = sorted(set(eager) - set(own))
    return replace(verdict, ok=False, message=f"it left {', '.join(missing)} unchanged") if missing else verdict


def prove_needed(record: Record) -> None:
    """Without its Triton kernels a Triton candidate must not return what it returns with them.

    The user's own may be anything: that it launches no Triton kernel is said.
    """
    if record.tool == "triton" and record.standing and record.ablation in ABLATIONS:
        if record.ablation == "none" and is_users_kernel(record.name):
            record.remark(ABLATIONS["none"])
        else:
            record.fail("error", ABLATIONS[record.ablation])


def prove_kernels(record: Record) -> None:
    """All of a Triton candidate's own kernels must be among those that the profiler saw."""
    prove_needed(record)
    if record.tool != "triton" or not record.standing:
        return
    if not record.expected_kernels and is_users_kernel(record.name):
        return
    if not record.expected_kernels:
        record.fail("error", f"it launched no Triton kernel: the profiler saw {', '.join(record.kernels[:4])}")
    elif not record.kernels:
        record.remark("the profiler saw no kernels on this host: nothing proves which ran")
    elif missing := [k for k in record.expected_kernels if k not in record.kernels]:
        seen = ", ".join(record.kernels[:4])
        record.fail("error", f"{NOT_RUN}: {', '.join(missing[:4])}; the profiler saw {seen}")


@dataclass(frozen=True, slots=True)
class Summary:
    """What all records come to. by: "device time" or "wall time"."""

    results: tuple[CandidateResult, ...]
    contenders: tuple[Contender, ...]
    by: str
    launch_bound: bool | None


def launch_bound(records: Sequence[Record], calls: Sequence[float]) -> bool | None:
    """From eager's own times; None where eager was not timed."""
    eager = next((r for r in records if r.tool == "eager" and r.status == "ok"), None)
    if eager is None:
        return None
    device = stats.weighted([stats.medians(t) for t in eager.times_us], calls)
    wall = stats.weighted([np.array(w) for w in eager.walls_us], calls)
    return bool(np.median(wall) > LAUNCH_BOUND * np.median(device))


def summarise(
    records: Sequence[Record],
    bindings: Sequence[Mapping[str, int]],
    calls: Sequence[float],
    floors_us: Sequence[float | None],
    least_us: Sequence[float],
    bound: bool | None = None,
    seed: int = 0,
) -> Summary:
    """Gate impossible times, then figures, ratios and intervals. Records with status ok must have as many rounds."""
    for record in records:
        _gate(record, bindings, least_us)
    timed = [r for r in records if r.status == "ok"]
    is_bound = launch_bound(timed, calls)
    by_wall = bool(is_bound if bound is None else bound)
    device = {r.name: [stats.medians(t) for t in r.times_us] for r in timed}
    wall = {r.name: [np.array(w) for w in r.walls_us] for r in timed}
    deciding = wall if by_wall else device
    whole = {name: stats.weighted(rounds, calls) for name, rounds in deciding.items()}
    tools = {r.name: r.tool for r in timed}
    results, contenders = [], []
    for record in records:
        if record.status != "ok":
            results.append(untimed(record, bindings, calls))
            continue
        shapes = tuple(
            _shape(record, n, bindings, calls, floors_us, device, deciding, tools, seed) for n in range(len(bindings))
        )
        spread = stats.interval(stats.weighted(device[record.name], calls), seed)
        best = _ratio_to_best(record.name, whole, tools, seed)
        floor = _mean([f for f in floors_us if f is not None], calls) if None not in floors_us else None
        results.append(
            replace(
                untimed(record, bindings, calls),
                time_us=spread,
                wall_us=float(np.median(stats.weighted(wall[record.name], calls))),
                ratio_to_eager=_ratio(record.name, "eager", whole, seed),
                ratio_to_best_other=best,
                share_of_limit=floor / spread.median if floor is not None else None,
                shapes=shapes,
            )
        )
        if not is_users_kernel(record.name):
            contenders.append(Contender(record.name, record.tool, float(np.median(whole[record.name])), best))
    return Summary(tuple(results), tuple(contenders), "wall time" if by_wall else "device time", is_bound)


def _gate(record: Record, bindings: Sequence[Mapping[str, int]], least_us: Sequence[float]) -> None:
    if record.status != "ok":
        return
    for number, rounds in enumerate(record.times_us):
        where = f" at {label_of(bindings[number])}" if bindings[number] else ""
        for time_us in (float(np.median(stats.medians(rounds))), float(np.median(record.walls_us[number]))):
            if stats.impossible(time_us, least_us[number]):
                least = f"where the datasheet's rates need {least_us[number]:.4g} µs at least"
                record.fail("impossible", f"{time_us:.4g} µs{where}, {least}")
                return
        if text := contradiction(record.clocks(number)):
            record.fail("impossible", f"{text}{where}")
            return


def label_of(binding: Mapping[str, int]) -> str:
    """`N = 911`."""
    return ", ".join(f"{k} = {v}" for k, v in binding.items())


def _mean(values: Sequence[float], calls: Sequence[float]) -> float:
    return float(np.average(values, weights=calls if sum(calls) > 0 else None))


def untimed(record: Record, bindings: Sequence[Mapping[str, int]], calls: Sequence[float]) -> CandidateResult:
    """A result without times: what is known of a candidate that was not, or not yet, measured."""
    known = [e for e in record.errors if e is not None]
    peaks = [p for p in record.peak_bytes if p is not None]
    errors = record.errors if len(record.errors) == len(bindings) else []
    return CandidateResult(
        name=record.name,
        tool=record.tool,
        status=record.status,
        message=record.message,
        call=record.call,
        error_vs_eager=max(known) if known else None,
        peak_bytes=max(peaks) if peaks else None,
        compile_s=record.compile_s,
        kernels=record.kernels,
        shapes=tuple(
            ShapeResult(dict(b), calls[n], error_vs_eager=errors[n]) for n, b in enumerate(bindings) if errors
        ),
        source=record.source,
    )


def _shape(
    record: Record,
    n: int,
    bindings: Sequence[Mapping[str, int]],
    calls: Sequence[float],
    floors_us: Sequence[float | None],
    device: Mapping[str, Sequence[stats.Rounds]],
    deciding: Mapping[str, Sequence[stats.Rounds]],
    tools: Mapping[str, str],
    seed: int,
) -> ShapeResult:
    here = {name: rounds[n] for name, rounds in deciding.items()}
    spread = stats.interval(device[record.name][n], seed)
    floor_us = floors_us[n]
    return ShapeResult(
        binding=dict(bindings[n]),
        calls=calls[n],
        error_vs_eager=record.errors[n] if n < len(record.errors) else None,
        time_us=spread,
        wall_us=float(np.median(record.walls_us[n])),
        ratio_to_eager=_ratio(record.name, "eager", here, seed),
        ratio_to_best_other=_ratio_to_best(record.name, here, tools, seed),
        share_of_limit=floor_us / spread.median if floor_us is not None else None,
        peak_bytes=record.peak_bytes[n] if n < len(record.peak_bytes) else None,
    )


def _ratio(name: str, base: str, rounds: Mapping[str, stats.Rounds], seed: int) -> Interval | None:
    return stats.ratio(rounds[name], rounds[base], seed) if base in rounds else None


def _ratio_to_best(
    name: str, rounds: Mapping[str, stats.Rounds], tools: Mapping[str, str], seed: int
) -> Interval | None:
    """Against the fastest other that everybody can have; for a Triton candidate, the fastest that is not Triton."""
    both_triton = {o for o in rounds if tools[name] == tools[o] == "triton"}
    others = [o for o in rounds if o != name and o not in both_triton and not is_users_kernel(o)]
    if not others:
        return None
    return stats.ratio(rounds[name], rounds[min(others, key=lambda o: float(np.median(rounds[o])))], seed)
