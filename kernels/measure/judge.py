"""Whether measured errors are near enough: relative to eager's own, which another process measured. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from kernels.measure.messages import Case, OutputError

LOOSEST = 2.0  # times eager's own error
OUTLIER_LOOSEST = 4.0  # the largest of many errors scatters more than their norm
OUTLIER_FLOORS = 16.0
AFTER_TIMING = "after timing"  # the distribution of the timed calls' inputs, each process's own
SPECIAL = "special"  # the distribution of inputs with NaN and infinities
WORST = 1e6  # what an infinite ratio is reported as: JSON has no infinity

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
    """

    ok: bool
    error_vs_eager: float | None
    message: str = ""
    special: str = ""


def remarkable(output: OutputError) -> bool:
    """More than rounding alone: whether an error is its inputs' doing is then worth asking."""
    floor = floor_error(output.dtype)
    beyond = output.error > floor or output.outlier > OUTLIER_FLOORS * floor or output.misfits > 0
    return output.kind == "float" and beyond


def judge(cases: Sequence[Case], eager: Sequence[Case] | None, loosest: float = LOOSEST) -> Verdict:
    """A candidate's cases against eager's on the same inputs. None: eager gave nothing, the floors alone decide.

    Where eager itself leaves float64's range in a scaled distribution the case says nothing about the candidate and is
    passed over.
    """
    own = {c.distribution: c for c in eager or ()}
    worst = 0.0
    judged = 0
    special = ""
    for case in cases:
        base = own.get(case.distribution)
        if case.distribution == SPECIAL:
            special = special or _special(case, base)
            continue
        slack = 1.0 if case.precision == "float64" else 8.0  # the reference's own rounding
        for number, output in enumerate(case.outputs):
            base_output = base.outputs[number] if base is not None else None
            if base_output is not None and case.distribution == AFTER_TIMING:
                base_output = _of_other_inputs(output, base_output)
            if base_output is not None and base_output.misfits and case.distribution != "normal":
                continue
            judged += 1
            ratio, fault = _one(output, base_output, slack, loosest)
            worst = max(worst, ratio)
            if fault:
                where = f"output {number} ({output.dtype}), {case.distribution} inputs"
                return Verdict(False, min(worst, WORST), f"{where}: {fault}")
    if cases and not judged:
        return Verdict(False, None, "no distribution of inputs gave a finite reference: nothing could be checked")
    return Verdict(True, min(worst, WORST) if judged else None, special=special)


def _of_other_inputs(output: OutputError, base_output: OutputError) -> OutputError:
    """Eager's figures of inputs of its own: sizes of errors hold for others, what the outputs are on average does not.

    What underflows to zero in its type does not in float64: that share stays eager's.
    """
    if output.kind != "random":
        return base_output
    mean, std, _ = output.statistics[3:]
    return replace(base_output, statistics=(mean, std, base_output.statistics[2]))


def _special(case: Case, eager: Case | None) -> str:
    """NaN and infinities in other places than float64 has them, told only of outputs in which eager agrees with it."""
    for number, (own, base_output) in enumerate(zip(case.outputs, eager.outputs if eager else (), strict=False)):
        if own.kind == "float" and own.misfits and not base_output.misfits:
            count = f"{own.misfits} of {own.elements} elements"
            return f"output {number}: with NaN and infinities in the inputs, {count} are not as eager has them"
    return ""


def _one(output: OutputError, base_output: OutputError | None, slack: float, loosest: float) -> tuple[float, str]:
    """(error over eager's, what is wrong or "")."""
    if output.misfits > (base_output.misfits * loosest if base_output is not None else 0):
        return (
            WORST,
            f"{output.misfits} of {output.elements} elements are NaN or infinite where they should not be",
        )
    if output.kind == "random":
        return 0.0, _same_distribution(output, base_output)
    floor = floor_error(output.dtype) * slack
    own_error = base_output.error if base_output is not None else 0.0
    own_outlier = base_output.outlier if base_output is not None else 0.0
    base = max(own_error, floor / loosest)
    ratio = output.error / base if base else (0.0 if output.error == 0 else WORST)
    if not ratio <= loosest:  # NaN fails too
        what = "elements differ" if output.kind == "exact" else "relative error"
        return ratio, f"{what} {output.error:.3g}, eager's own {own_error:.3g}, allowed {base * loosest:.3g}"
    if not output.outlier <= max(OUTLIER_LOOSEST * own_outlier, OUTLIER_FLOORS * floor):
        return max(ratio, loosest), (
            f"largest error {output.outlier:.3g} of the values' size, eager's own {own_outlier:.3g}"
        )
    return ratio, ""


def _same_distribution(output: OutputError, base_output: OutputError | None) -> str:
    """Means within 6 standard errors, spreads and shares of zeros likewise, each with 2 % to spare for correlation.

    Against eager's sample where there is one: what underflows to zero in its type does not in float64.
    """
    mean, std, zeros, ref_mean, ref_std, ref_zeros = output.statistics
    if base_output is not None:
        ref_mean, ref_std, ref_zeros = base_output.statistics[:3]
    count = max(1, output.elements)
    spread = max(std, ref_std)
    if abs(mean - ref_mean) > 6 * spread * math.sqrt(2 / count) + 0.02 * spread + 1e-12:
        return f"mean {mean:.4g}, expected {ref_mean:.4g}"
    if abs(std - ref_std) > (6 * math.sqrt(2 / count) + 0.02) * spread + 1e-12:
        return f"standard deviation {std:.4g}, expected {ref_std:.4g}"
    if abs(zeros - ref_zeros) > 6 * math.sqrt(2 * 0.25 / count) + 1e-3:
        return f"share of zeros {zeros:.4f}, expected {ref_zeros:.4f}"
    return ""
