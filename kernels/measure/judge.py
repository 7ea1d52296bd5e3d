"""Whether measured errors are near enough: relative to eager's own, which another process measured. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from kernels.measure.messages import Case, InRoom, OutputError

LOOSEST = 2.0  # times eager's own error, or times what roundings explain
OUTLIER_LOOSEST = 4.0  # the largest of many errors scatters more than their norm
OUTLIER_FLOORS = 16.0
ROW_LOOSEST, ROW_FLOORS = 4.0, 4.0
ROW_ROOM, OUTLIER_ROOM = 4.0, 20.0
"""How many times its room the worst row's error may be, and the worst element's."""
FEW = 2.0
"""Errors of few elements do not average out: one may be that many times further beyond the room than many together."""
SLOPE_FLOORS, SLOPE_CHANCE, SLOPE_ROOM = 1 / 8, 4.0, 8.0
"""A result that is too large or too small as a whole: by a share of the floor, by what errors of either sign leave by
chance, and by how many times what roundings make of it."""
WIDE_SLOPE = 1e-4
"""The share, of types that are not short: what a few large elements make of it."""
FEW_ELEMENTS = 64
"""Fewer are too large or too small by chance in one case: what they are off by as a whole is held over all cases."""
MEAN_ROOM, MEAN_CHANCE = 2.0, 4.0
"""Of such outputs: how many times what is usual in one case, and its standard error, the mean of the cases may be."""
STEP_SLOPE, FLIPS_ROOM = 2e-3, 3.0
"""Of outputs that have steps: a slope that always passes, and how many times as many may be on another step."""
MOST_POOLED = 4.0
"""Eager's own errors say by how much the room is too small; past this many times they say that eager is wrong."""
CHANCE = 6.0
"""Standard errors of the difference that two samples of a random output may be apart."""
SPARE, SPARE_TOGETHER = 0.005, 0.02
"""Of a random output's standard deviation, to spare in it and in the mean: for rates that are stored in 8 bits, as in
flash attention, whose results are scaled as if they were exact; and where whole slices are too few to see whether the
elements of one depend on each other."""
RATE_STEP = 1 / 256
"""To spare in a share of zeros, for those rates."""
SHARED, SHARED_CHANCE = 4.0, 4.0
"""How many times eager's the variance of a random output's figures may be, and standard errors of it: no more than 16
clusters that differ prove nothing."""
ROUNDED = 4.0
"""How many floors of its type the elements of a sample may differ from the reference's, to be no other draw."""
FIGURES = ("mean", "standard deviation", "share of zeros")
AFTER_TIMING = "after timing"  # the distribution of the timed calls' inputs, each process's own
SPECIAL = "special"  # the distribution of inputs with NaN and infinities
WORST = 1e6  # what an infinite ratio is reported as: JSON has no infinity

BYTES = frozenset({"f8e4m3", "f8e5m2"})
EPS: Mapping[str, float] = {
    "f64": 2**-52, "f32": 2**-23, "bf16": 2**-7, "f16": 2**-10, "f8e4m3": 2**-3, "f8e5m2": 2**-2,
}  # fmt: skip
"""Distance from 1 to the next number of each floating type."""
SHORT = frozenset({"bf16", "f16", "f8e4m3", "f8e5m2"})


def floor_error(dtype: str) -> float:
    """Relative error that always passes: half a unit in the last place of 16- and 8-bit types, 16 units of wider ones.

    Rounding the exact result once to 16 bits gives a norm error of about a third of half a unit; wider types are
    accumulated in themselves, so their sums may differ in order. Integers and booleans have none.
    """
    return EPS.get(dtype, 0.0) * (0.5 if dtype in SHORT else 16.0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """ok, the worst error over eager's own (at most 2 passes), and what was wrong.

    special: how it differs where inputs hold NaN or infinities, "" where it does not; ok is apart from that.
    unchecked: what was not looked at, since what roundings explain could not be had, or of some rows only; "" where all
    was.
    """

    ok: bool
    error_vs_eager: float | None
    message: str = ""
    special: str = ""
    unchecked: str = ""

    def joined(self, other: Verdict) -> Verdict:
        """Of two that are ok, what both say."""
        known = [e for e in (self.error_vs_eager, other.error_vs_eager) if e is not None]
        unchecked = "; ".join(text for text in (self.unchecked, other.unchecked) if text)
        return Verdict(True, max(known, default=None), "", self.special or other.special, unchecked)


def remarkable(output: OutputError) -> bool:
    """More than rounding the result alone: what room roundings on the way give it is then worth asking."""
    if output.kind == "random":
        return False
    if output.kind != "float":
        return output.error > 0
    floor = floor_error(output.dtype)
    beyond = output.error > floor or output.outlier > OUTLIER_FLOORS * floor or output.row > ROW_FLOORS * floor
    return beyond or output.differ > 0 or abs(output.slope) > _chance_slope(output, floor)


def _chance_slope(output: OutputError, floor: float) -> float:
    """What errors that are as often up as down may make of the slope, and a share of the floor."""
    systematic = SLOPE_FLOORS * floor if output.dtype in SHORT else WIDE_SLOPE
    return systematic + SLOPE_CHANCE * output.error / math.sqrt(max(1, output.elements))


def pooled(cases: Sequence[Case] | None) -> dict[int, float]:
    """Output number -> how many times its room eager's error is, over all distributions together; at least 1."""
    squares: dict[int, list[float]] = {}
    for case in cases or ():
        for number, output in enumerate(case.outputs):
            if output.in_room is not None and output.kind == "float" and not output.misfits:
                squares.setdefault(number, []).append(min(output.in_room.error, MOST_POOLED) ** 2)
    return {n: max(1.0, math.sqrt(sum(s) / len(s))) for n, s in squares.items()}


def judge_written(cases: Sequence[Case], eager: Sequence[Case] | None, loosest: float = LOOSEST) -> Verdict:
    """What a candidate's calls left in their inputs against what eager's left there, held to what `judge` holds outputs
    to. It is right where neither it nor the reference writes into an input."""
    together = Verdict(True, None)
    for name in dict.fromkeys(name for case in cases for name in case.written):
        base = None if eager is None else _of_input(name, eager)
        own = judge(_of_input(name, cases), base, loosest, f"what it wrote into {name}")
        if own.error_vs_eager is None:
            continue  # nothing of it is finite: then nothing can be said
        if not own.ok:
            return own
        together = together.joined(own)
    return together


def _of_input(name: str, cases: Sequence[Case]) -> list[Case]:
    """The cases that have something to say of this input, as if it were their only output."""
    return [replace(c, outputs=[c.written[name]], written={}) for c in cases if name in c.written]


def judge(
    cases: Sequence[Case], eager: Sequence[Case] | None, loosest: float = LOOSEST, name: str = ""
) -> Verdict:  # fmt: skip
    """A candidate's outputs against eager's on the same inputs. None: eager gave nothing, the floors alone decide.

    name: what the only output is called in messages, "" for its number.

    Where eager itself leaves float64's range in a scaled distribution the case says nothing about the candidate and is
    passed over.
    """
    own = {c.distribution: c for c in eager or ()}
    together = pooled(eager)
    worst = 0.0
    judged = 0
    special = ""
    few: dict[int, list[_Slope]] = {}
    without: set[str] = set()
    partly: dict[int, list[OutputError]] = {}
    for case in cases:
        base = own.get(case.distribution)
        if case.distribution == SPECIAL:
            special = special or _special(case, base, name)
            continue
        slack = 1.0 if case.precision == "float64" else 8.0  # the reference's own rounding
        for number, output in enumerate(case.outputs):
            base_output = base.outputs[number] if base is not None else None
            if base_output is not None and case.distribution == AFTER_TIMING:
                base_output = _of_other_inputs(output, base_output)
            if base_output is not None and base_output.misfits and case.distribution != "normal":
                continue
            judged += 1
            if case.precision != "eager" and _lacks_room(output):
                without.add(case.distribution)
            if output.in_room is not None and output.in_room.held:
                partly.setdefault(number, []).append(output)
            ratio, fault = _one(output, base_output, slack, loosest, together.get(number, 1.0))
            worst = max(worst, ratio)
            if fault:
                where = f"{name or f'output {number}'} ({output.dtype}), {case.distribution} inputs"
                return Verdict(False, min(worst, WORST), f"{where}: {fault}")
            if output.kind == "float" and output.dtype in SHORT - BYTES and output.elements < FEW_ELEMENTS:
                few.setdefault(number, []).append(_slope(output, base_output, slack))
    for number, slopes in few.items():
        if len(slopes) > 1 and (fault := _in_every_case(slopes)):
            where = f"{name or f'output {number}'}, {len(slopes)} sets of inputs together"
            return Verdict(False, min(max(worst, loosest), WORST), f"{where}: {fault}")
    if cases and not judged:
        return Verdict(False, None, "no distribution of inputs gave a finite reference: nothing could be checked")
    unchecked = [f"{len(without)} of {len(cases)} {UNCHECKED}"] if without else []
    unchecked += [_held(name or f"output {number}", outputs, len(cases)) for number, outputs in partly.items()]
    return Verdict(True, min(worst, WORST) if judged else None, special=special, unchecked="; ".join(unchecked))


UNCHECKED = (
    "sets of inputs: what roundings explain could not be computed in the time or memory there was. There the whole "
    "was held against eager's own error alone, and no single row, no common factor and no step of it was checked"
)


def _held(name: str, outputs: Sequence[OutputError], cases: int) -> str:
    """Of an output with steps: of how few elements it is known which of them roundings lead to."""
    held, elements = min((o.in_room.held, o.elements) for o in outputs if o.in_room is not None)
    return (
        f"{name} ({outputs[0].dtype}), {len(outputs)} of {cases} sets of inputs: only {held:,} of "
        f"{elements:,} elements were held to the steps that roundings lead to, as there was no time or memory for all "
        "rows. Of the others it was checked by how much they differ as a whole, not whether each may"
    )


def _lacks_room(output: OutputError) -> bool:
    """Whether more than rounding the result is off, and what roundings on the way explain is not known."""
    return output.kind in ("float", "exact") and output.in_room is None and remarkable(output)


def _of_other_inputs(output: OutputError, base_output: OutputError) -> OutputError:
    """Eager's figures of inputs of its own: sizes of errors hold for others, what the outputs are on average does not.

    What underflows to zero in its type does not in float64: as many more zeros as eager's own sample has may be there.
    """
    if output.kind != "random":
        return base_output
    seen, (mean, std, zeros) = output.statistics[2], output.statistics[3:]
    underflow = max(0.0, base_output.statistics[2] - base_output.statistics[5])
    return replace(base_output, statistics=(mean, std, min(max(seen, zeros), zeros + underflow)))


def _special(case: Case, eager: Case | None, name: str) -> str:
    """NaN and infinities in other places than float64 has them, told only of outputs in which eager agrees with it."""
    for number, (own, base_output) in enumerate(zip(case.outputs, eager.outputs if eager else (), strict=False)):
        if own.kind == "float" and own.misfits and not base_output.misfits:
            count, what = f"{own.misfits} of {own.elements} elements", name or f"output {number}"
            return f"{what}: with NaN and infinities in the inputs, {count} are not as eager has them"
    return ""


def _one(
    output: OutputError, base_output: OutputError | None, slack: float, loosest: float, together: float
) -> tuple[float, str]:
    """(error over eager's or over its room, what is wrong or "").

    together: how many times its room eager's error is. Each figure passes that is within eager's own on these inputs,
    or within the room.
    """
    if output.misfits > (base_output.misfits * loosest if base_output is not None else 0):
        return (
            WORST,
            f"{output.misfits} of {output.elements} elements are NaN or infinite where they should not be",
        )
    if output.kind == "random":
        return 0.0, _same_distribution(output, base_output)
    own = base_output if base_output is not None else OutputError(output.kind, output.dtype, 0, 0.0, 0.0, 0)
    if output.in_room is not None and (output.kind != "float" or output.dtype in BYTES):
        fault = _steps(output, output.in_room, own, loosest)
        if fault or output.kind != "float":
            return WORST if fault else 0.0, fault
    floor = floor_error(output.dtype) * slack
    base = max(own.error, floor / loosest)
    ratio = output.error / base if base else (0.0 if output.error == 0 else WORST)
    ratio = WORST if math.isinf(output.error) else ratio  # the exact result is zero: nothing is relative to it
    room = output.in_room if output.dtype not in BYTES else None
    times = together * loosest / LOOSEST
    if room is not None:
        few = 1.0 + FEW / math.sqrt(max(1, output.elements))
        ratio = min(ratio, room.error / times / few) if not math.isnan(ratio) else ratio
    if not ratio <= loosest:  # NaN fails too
        what = "elements differ" if output.kind == "exact" else "relative error"
        explained = f", {room.error:.3g} times what roundings explain" if room is not None else ""
        return ratio, f"{what} {output.error:.3g}, eager's own {own.error:.3g}, allowed {base * loosest:.3g}{explained}"
    if not output.outlier <= max(OUTLIER_LOOSEST * own.outlier, OUTLIER_FLOORS * floor) and not (
        room is not None and room.outlier <= OUTLIER_ROOM * times
    ):
        return max(
            ratio, loosest
        ), f"largest error {output.outlier:.3g} of the values' size, eager's own {own.outlier:.3g}"
    if room is not None:
        return max(ratio, loosest) if (fault := _as_a_whole(output, room, own, floor, times)) else ratio, fault
    return ratio, ""


def _as_a_whole(output: OutputError, room: InRoom, own: OutputError, floor: float, times: float) -> str:
    """What the norm over all elements does not show: one row, and a result that is too large or small throughout."""
    if output.row > max(ROW_LOOSEST * own.row, ROW_FLOORS * floor) and not room.row <= ROW_ROOM * times:
        return f"relative error {output.row:.3g} in one row, eager's own worst {own.row:.3g}"
    allowed = max(_chance_slope(output, floor), LOOSEST * abs(own.slope), SLOPE_ROOM * room.slope)
    if abs(output.slope) > allowed:
        return f"{100 * output.slope:+.2g} % off as a whole, allowed {100 * allowed:.2g} %"
    return ""


@dataclass(frozen=True, slots=True)
class _Slope:
    """How far one case's output is off as a whole, and how far it usually may be."""

    off: float
    usual: float


def _slope(output: OutputError, base_output: OutputError | None, slack: float) -> _Slope:
    usual = floor_error(output.dtype) * slack / MEAN_ROOM  # rounding once always passes
    if output.in_room is not None:
        usual = max(usual, output.in_room.slope)
    if base_output is not None:  # the candidate's own errors say nothing: a wrong scale is one
        usual = max(usual, abs(base_output.slope), base_output.error / math.sqrt(max(1, base_output.elements)))
    return _Slope(output.slope, usual)


def _in_every_case(slopes: Sequence[_Slope]) -> str:
    """What roundings make of a few numbers has either sign, case by case; a wrong scale has the same in all.

    The mean is weighted by the inverse squares of what is usual: a case in which much cancels says little.
    """
    inverse = [1 / s.usual for s in slopes]
    weight = sum(i * i for i in inverse)
    if not weight:
        return ""
    mean = sum(s.off * i * i for s, i in zip(slopes, inverse, strict=True)) / weight
    allowed = max(MEAN_ROOM * sum(inverse) / weight, MEAN_CHANCE / math.sqrt(weight))
    return f"{100 * mean:+.2g} % off as a whole, allowed {100 * allowed:.2g} %" if abs(mean) > allowed else ""


def _steps(output: OutputError, room: InRoom, own: OutputError, loosest: float) -> str:
    """Outputs that have steps: no element on a step that no rounding reaches, or no more of them than eager has."""
    eagers = own.in_room.outside if own.in_room is not None else own.error if output.kind != "float" else 0.0
    if room.outside > loosest * eagers:
        return f"{room.outside:.3g} of the elements are on a step that no rounding leads to, eager's own {eagers:.3g}"
    share, own_share = (output.error, own.error) if output.kind != "float" else (output.differ, own.differ)
    if room.error > FLIPS_ROOM and share > loosest * own_share:
        return f"{share:.3g} of the elements are on another step, {room.error:.3g} times as many as by roundings"
    allowed = max(LOOSEST * abs(own.slope), SLOPE_ROOM * room.slope, STEP_SLOPE)
    if output.kind == "exact" and abs(output.slope) > allowed:
        return f"{100 * output.slope:+.2g} % off as a whole, allowed {100 * allowed:.2g} %"
    return ""


def _same_distribution(output: OutputError, base_output: OutputError | None) -> str:
    """Mean, standard deviation and share of zeros within `CHANCE` standard errors, and a little to spare.

    Against eager's sample where there is one: what underflows to zero in its type does not in float64. The standard
    errors are the largest by any clusters, of the candidate's sample or eager's; that the candidate's is not larger
    since it uses random numbers again is looked at first, unless neither differs from the reference but by rounding.
    """
    mean, std, zeros, ref_mean, ref_std, ref_zeros = output.statistics
    if base_output is not None:
        ref_mean, ref_std, ref_zeros = base_output.statistics[:3]
        if not (_only_rounds(output) and _only_rounds(base_output)) and (fault := _shares_draws(output, base_output)):
            return fault
    spread = max(std, ref_std)
    floor = floor_error(output.dtype)
    if spread <= floor * max(abs(mean), abs(ref_mean)):
        return _same_number(output, base_output, floor)
    errors = _standard_errors(output, base_output, spread)
    spare = SPARE if _sees_whole_slices(output) else SPARE_TOGETHER
    if abs(mean - ref_mean) > CHANCE * errors[0] + spare * spread + 1e-12:
        return f"mean {mean:.4g}, expected {ref_mean:.4g}"
    if abs(std - ref_std) > CHANCE * errors[1] + spare * spread + 1e-12:
        return f"standard deviation {std:.4g}, expected {ref_std:.4g}"
    if abs(zeros - ref_zeros) > CHANCE * errors[2] + RATE_STEP:
        return f"share of zeros {zeros:.4f}, expected {ref_zeros:.4f}"
    return ""


def _same_number(output: OutputError, base_output: OutputError | None, floor: float) -> str:
    """Where both samples are constant there is nothing to be told by chance: the number is held to what floats are."""
    mean, exact = output.statistics[0], output.statistics[3]
    own = abs(base_output.statistics[0] - exact) if base_output is not None else 0.0
    allowed = max(LOOSEST * own, floor * abs(exact))
    return "" if abs(mean - exact) <= allowed else f"{mean:.8g} throughout, expected {exact:.8g}"


def _only_rounds(output: OutputError) -> bool:
    """Whether its elements are those of the reference's sample but for rounding: nothing of it is drawn."""
    by_element = next((s for s in output.spreads if math.prod(s.clusters) == output.elements), None)
    if by_element is None:
        return False
    mean, std = output.statistics[3:5]
    return by_element.variances[0] * output.elements <= (ROUNDED * floor_error(output.dtype)) ** 2 * (mean**2 + std**2)


def _standard_errors(output: OutputError, base_output: OutputError | None, spread: float) -> tuple[float, ...]:
    """Of the differences in mean, standard deviation and share of zeros; of independent elements where there are too
    few to see how they scatter."""
    known = [s.variances for o in (output, base_output) if o is not None for s in o.spreads]
    if known:
        return tuple(math.sqrt(max(figure)) for figure in zip(*known, strict=True))
    chance = math.sqrt(2 / max(1, output.elements))
    return (spread * chance, spread * chance, 0.5 * chance)


def _sees_whole_slices(output: OutputError) -> bool:
    """Whether there are enough slices along the first axis to see how they scatter, each as a whole."""
    return any(s.clusters[0] > 1 and all(n == 1 for n in s.clusters[1:]) for s in output.spreads)


def _shares_draws(output: OutputError, base_output: OutputError) -> str:
    """Some clusters scatter far more than any of eager's: what eager draws for each element is drawn once for many.

    Of each figure those that scatter most are looked at: they hold what elements share, and are independent.
    """
    if not output.spreads or not base_output.spreads:
        return ""
    eagers = {s.clusters: s for s in base_output.spreads}
    for number, name in enumerate(FIGURES):
        own = max(output.spreads, key=lambda s: s.variances[number])
        usual = eagers.get(own.clusters)
        if usual is None or math.prod(own.clusters) == output.elements:
            continue
        most = max(s.variances[number] for s in base_output.spreads)
        chance = SHARED_CHANCE * own.errors[number] + CHANCE * usual.errors[number]
        if (variance := own.variances[number]) > SHARED * most + chance + 1e-24:
            times = f"{variance / most:.3g} times eager's" if most else "eager's is none"
            return f"its {name} varies too much, as if elements shared random numbers: variance {times}"
    return ""
