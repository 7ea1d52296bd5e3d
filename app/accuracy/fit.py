"""Fit: rates from what was measured, as data with what they leave over. Deterministic; no GPU.

Three parts, in turn. What calls reach on rows of a length: solved for from each time, geometric mean of those alike.
The shares and costs of eager, torch.compile and the generator: coordinate descent on least squares of the log error,
linear where it is large and capped, so that one odd region does not pull a rate; bounded; held to where it began by a
small cost, so that a number that no measurement touches stays. Ranges: the tenth and ninetieth per cent of what is
left, by family.

The descent is ten lines of its own: with scipy's bounded minimisation of each number in its place, 169 of the 521
committed numbers are others, one by more than 1 %, and it takes a quarter longer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from app.accuracy.samples import BOUND, Call, Samples, Timed, of_programs
from app.estimate.rates import BACKWARD, SPREAD, Curve, Rates, names, reach, share_of

CAP = math.log(2.5)
SMALL = 0.3
"""|log error| up to which least squares hold; beyond, a sample pulls no harder."""
STEPS = (0.6, 0.8, 0.9, 0.96, 0.985, 1.015, 1.04, 1.1, 1.25, 1.6)
ROUNDS = 6
HELD = 0.12
"""What |log| of a rate's distance from where it began costs, in units of one sample's |log error|."""
LEAST, MOST = 0.02, 1.08
"""Shares that a call's own time is solved for: what stays in L2 can be a little above 1."""
CEILING = 1.0
"""No class of kernels is predicted faster than the device copies."""
BY_ELEMENTS = frozenset({"random", "special", "atomics", "atomics_tiled", "between"})
"""Numbers that are no shares, but elements per ns and processor."""
FEW = 4
"""Of a family with fewer samples the range is its tool's."""
NARROWEST = 1.08
"""Medians on one GPU move by some per cent between runs, whatever a fit says."""

MANY = 60
"""Samples of a number that a single program's do not move."""

Number = tuple[str, str]
Touching = dict[Number, list[Timed]]
"""A number -> the samples whose prediction it moves."""


@dataclass(frozen=True, slots=True)
class Left:
    """What a fit leaves over in one family: measured over predicted."""

    samples: int
    within: float  # share within 20 %
    error_geomean: float
    low: float  # tenth per cent
    high: float  # ninetieth


def fit(gathered: Samples, begin: Rates | None = None, touching: Touching | None = None) -> Rates:
    """Rates from all these samples. begin: where it begins, what no sample says stays.

    touching: `touched_by` of these samples at `begin`, where the caller has it; it is a third of the work.
    """
    begin = begin or Rates()
    touching = touching or touched_by(gathered.timed, begin)
    rates = begin
    for _ in range(2):
        rates = calls(gathered, rates)
        rates = descend(touching, rates, begin)
    rates = calls(gathered, rates)
    return replace(rates, spread=ranges(gathered, rates), devices=(gathered.device.name,))


def refit(gathered: Samples, left_out: str, fitted: Rates, touching: Touching, begin: Rates | None = None) -> Rates:
    """As `fit` without one program, from a fit with it: numbers that the program touched begin anew.

    The others were fitted on the same samples as they would be without it, up to what the anew fitted ones move them;
    those that `MANY` samples touch stay, since the few of one program do not move their median. touching: `touched_by`
    of all samples.
    """
    begin = begin or Rates()
    rest = gathered.without(of_programs([left_out]))
    anew: Touching = {
        number: [t for t in items if t.program != left_out]
        for number, items in touching.items()
        if len(items) < MANY and any(t.program == left_out for t in items)
    }
    rates = replace(fitted, calls=begin.calls, flops=begin.flops, rows={})
    for number in anew:
        rates = replace_number(rates, number, value(begin, number))
    for _ in range(2):
        rates = descend(anew, calls(rest, rates), begin, rounds=1)
    return calls(rest, replace(rates, calls=begin.calls, flops=begin.flops))


def value(rates: Rates, number: Number) -> float:
    """One number of the rates."""
    return float(getattr(getattr(rates, number[0]), number[1]))


def replace_number(rates: Rates, number: Number, to: float) -> Rates:
    """The rates with another value for one number."""
    group, name = number
    return replace(rates, **{group: replace(getattr(rates, group), **{name: to})})


def touched_by(timed: Sequence[Timed], rates: Rates) -> Touching:
    """Every number with the samples whose prediction it moves."""
    touching: Touching = {}
    trials = {n: [replace_number(rates, n, f * value(rates, n)) for f in (0.5, 1.5)] for n in names()}
    now = [t.predict(rates) for t in timed]
    for number, tried in trials.items():
        touching[number] = [t for t, at in zip(timed, now, strict=True) if any(t.predict(r) != at for r in tried)]
    return touching


def error(item: Timed, rates: Rates) -> float:
    """Of the logarithm of predicted over measured: squared where small, linear beyond, capped (Huber's, with a cap)."""
    off = abs(math.log(max(1e-9, item.predict(rates)) / item.measured_us))
    return off * off / (2 * SMALL) if off < SMALL else min(off, CAP) - SMALL / 2


def descend(touching: Touching, rates: Rates, begin: Rates, rounds: int = ROUNDS) -> Rates:
    """Coordinate descent over these numbers."""
    for _ in range(rounds):
        before = rates
        for number, timed in touching.items():
            rates = _best(timed, rates, begin, number)
        if rates == before:
            break
    return rates


def _best(timed: Sequence[Timed], rates: Rates, begin: Rates, number: Number) -> Rates:
    if not timed:
        return rates
    first, now = value(begin, number), value(rates, number)
    most = math.inf if number[0] in ("times", "host") or number[1] in BY_ELEMENTS else CEILING

    def cost(tried: float) -> float:
        trial = replace_number(rates, number, tried)
        return sum(error(t, trial) for t in timed) + HELD * abs(math.log(tried / first))

    tries = [now, *(min(most, max(LEAST, now * s)) for s in STEPS)]
    return replace_number(rates, number, float(f"{min(tries, key=cost):.4g}"))


def calls(gathered: Samples, rates: Rates) -> Rates:
    """The rates with what single calls reached, solved for from each time at the fixed costs of these rates."""
    by_rows: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    by_flops: dict[str, list[float]] = defaultdict(list)
    alone: dict[str, list[float]] = defaultdict(list)
    clocks, passed = rates.matrix.gemm / _cublas(gathered, rates), False
    # Backward passes need the rate of the forward that their time holds.
    for item in sorted(gathered.calls, key=lambda c: c.before > 0):
        if item.before and not passed:
            passed, rates = True, replace(rates, rows=_curves(by_rows))
        share, by = _share(item, gathered, rates)
        if share is None:
            continue
        if by == "flops":
            by_flops[item.call].append(share * clocks if item.table else share)
        elif item.before:
            alone[item.call].append(share)
        else:
            by_rows[item.call][item.row_bytes].append(share)
    single = dict(rates.calls) | {k: _mean(v) for k, v in alone.items()}
    return replace(rates, rows=_curves(by_rows), calls=single,
                   flops=dict(rates.flops) | {k: _mean(v) for k, v in by_flops.items()})  # fmt: skip


def _cublas(gathered: Samples, rates: Rates) -> float:
    """What plain products reached in the table. Under load GPUs hold clocks some per cent apart: the table's kernels
    are held against cuBLAS in the same table."""
    shares = [
        share for c in gathered.calls if c.table and c.call == CUBLAS
        for share, by in [_share(c, gathered, rates)] if share is not None and by == "flops"
    ]  # fmt: skip
    return _mean(shares) if shares else rates.matrix.gemm


CUBLAS = "torch.mm"


def _curves(by_call: Mapping[str, Mapping[float, Sequence[float]]]) -> dict[str, Curve]:
    """Rows of nearly one length are one point."""
    curves: dict[str, Curve] = {}
    for name, points in sorted(by_call.items()):
        near: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for x, shares in points.items():
            near[round(POINTS * math.log2(max(1.0, x)))] += [(max(1.0, x), share) for share in shares]
        curves[name] = tuple(
            (float(f"{sum(x for x, _ in near[at]) / len(near[at]):.5g}"), _mean([y for _, y in near[at]]))
            for at in sorted(near)
        )
    return curves


POINTS = 2
"""Points of a curve in every doubling of a row's length."""


def _mean(values: Sequence[float]) -> float:
    """Geometric, bounded, to four digits."""
    mean = math.exp(sum(math.log(v) for v in values) / len(values))
    return float(f"{min(MOST, max(LEAST, mean)):.4g}")


SHORT = 1.3
"""A time under this many times its fixed costs says nothing of a rate."""


def _fixed_us(item: Call, rates: Rates) -> float:
    return rates.times.event + item.launches * rates.times.fused_kernel


def _share(item: Call, gathered: Samples, rates: Rates) -> tuple[float | None, str]:
    fixed = _fixed_us(item, rates)
    if item.measured_us < SHORT * fixed:
        return None, ""
    left = (item.measured_us - fixed) * 1e-6
    copy = gathered.device.copy_rate
    if item.before:
        forward = reach(rates, item.call.removesuffix(BACKWARD), item.row_bytes)
        left -= item.before / (copy * forward)
        return (item.moved / (copy * left), "bytes") if left > 0 else (None, "")
    if not item.flops:
        return item.moved / (copy * left), "bytes"
    # The longer part, from the root of the sum of squares, as `call_time` predicts it.
    peak = item.flops / gathered.device.matmul_rate("bf16")
    if peak > item.moved / copy:
        alone = _rest(left, item.moved / (copy * reach(rates, item.call, item.row_bytes))) - item.idle_us * 1e-6
        return (peak / alone, "flops") if alone > 0 else (None, "")
    alone = _rest(left, peak / share_of(rates.flops, item.call, 0.70) + item.idle_us * 1e-6)
    return (item.moved / (copy * alone), "bytes") if alone else (None, "")


MOSTLY = 0.9
"""Share of a time that one part takes by itself, from which on it says nothing of the other."""


def _rest(whole: float, other: float) -> float:
    """What the one part took, where both together took `whole`; 0 where the other leaves too little to tell."""
    return math.sqrt(whole**2 - other**2) if other < MOSTLY * whole else 0.0


def residuals(gathered: Samples, rates: Rates) -> dict[str, list[float]]:
    """Family -> measured over predicted, of every sample.

    Of a call each sample is held against the others of its name, since a curve goes through its own points.
    """
    left: dict[str, list[float]] = defaultdict(list)
    for item in (t for t in gathered.timed if not t.family.startswith(BOUND)):
        left[item.family].append(item.measured_us / item.predict(rates))
    by_call: dict[str, list[Call]] = defaultdict(list)
    for call in gathered.calls:
        by_call[call.call].append(call)
    for name, items in by_call.items():
        for one in items if len(items) > 1 else ():
            rest = replace(gathered, calls=tuple(c for c in items if c is not one))
            others = calls(rest, replace(rates, rows={k: v for k, v in rates.rows.items() if k != name}))
            told = one.measured_us >= SHORT * _fixed_us(one, rates)
            if told and (name in others.rows or name in others.flops):
                left[_family(name)].append(one.measured_us / call_us(one, gathered, others))
    return dict(sorted(left.items()))


def call_us(item: Call, gathered: Samples, rates: Rates) -> float:
    """µs of a call at these rates, as `call_time` has it."""
    copy, fixed = gathered.device.copy_rate, _fixed_us(item, rates)
    if item.before:
        fixed += 1e6 * item.before / (copy * reach(rates, item.call.removesuffix(BACKWARD), item.row_bytes))
    computed = 0.0
    if item.flops:
        computed = 1e6 * item.flops / (gathered.device.matmul_rate("bf16") * share_of(rates.flops, item.call, 0.70))
    return fixed + math.hypot(
        1e6 * item.moved / (copy * reach(rates, item.call, item.row_bytes)), computed + item.idle_us
    )


def _family(call: str) -> str:
    if call.startswith("triton:"):
        return "triton"
    return f"library:{call.partition('.')[0]}"


def left_over(gathered: Samples, rates: Rates) -> dict[str, Left]:
    """What the fit leaves over, by family; "library" and "triton" hold all of theirs."""
    return {name: _residual(ratios) for name, ratios in residuals(gathered, rates).items()}


def _residual(ratios: Iterable[float]) -> Left:
    ordered = sorted(ratios)
    logs = [abs(math.log(r)) for r in ordered]
    low, high = (ordered[round(part * (len(ordered) - 1))] for part in (0.1, 0.9))
    near = sum(abs(1 / r - 1) <= 0.2 for r in ordered) / len(ordered)
    return Left(len(ordered), near, math.exp(sum(logs) / len(logs)), low, high)


def ranges(gathered: Samples, rates: Rates) -> dict[str, tuple[float, float]]:
    """The range of each family with enough samples; of the others, the one that the fit begins with."""
    spans = dict(SPREAD)
    for name, left in left_over(gathered, rates).items():
        if left.samples >= FEW and not name.startswith("host "):
            spans[name] = (
                float(f"{min(left.low, 1 / NARROWEST):.4g}"),
                float(f"{max(left.high, NARROWEST):.4g}"),
            )
    return spans
