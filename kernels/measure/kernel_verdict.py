"""What a validation says of the user's own kernel: keep it or delete it, or what is wrong with it. A pure function.

It is held against the best that one line of code has: the region as written, torch.compile in its modes, a library's
call. Other Triton kernels, this project's among them, are named where they are faster; they decide nothing, for they
are kept as this one is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kernels.measure.messages import LEFT_RUNNING, REPLACED
from kernels.measure.model import CandidateResult, Interval, ShapeResult, Validation, is_users_kernel
from kernels.measure.outcome import Thresholds, deciding_us
from kernels.measure.records import ABLATIONS, KEPT, LAUNCH_BOUND, NOT_RUN, label_of
from profiler.region.language.text import parse

Verdict: TypeAlias = Literal["keep", "delete", "wrong", "cheats", "crashed", "hung", "unmeasured"]

LINES: Mapping[str, str] = {
    "eager": "the region as it is written",
    "compile": "torch.compile",
    "compile-max-autotune": "torch.compile with max-autotune",
    "compile-reduce-overhead": "torch.compile with CUDA graphs",
}
"""What is had in one line, in words; a library's candidate is called after its function."""

CHEATS: Mapping[str, tuple[str, ...]] = {
    "mismatch": (KEPT, LEFT_RUNNING),
    "error": (REPLACED, ABLATIONS["same"], NOT_RUN),
}
"""Status -> how the message of what was caught begins. Times that cannot be and a broken protocol are cheats always."""

REDUCED = "called on the CPU, Triton's kernels in its interpreter, at sizes smaller than the region's"
"""What a verdict without a GPU rests on: a kernel that knows one size alone fails at others."""

WORDS: Mapping[str, str] = {
    "out_of_memory": "it takes more memory than there is",
    "unsupported": "it cannot run this region",
    "not_installed": "it cannot be imported",
}


@dataclass(frozen=True, slots=True)
class KernelVerdict:
    """verdict with its reason. against: the candidate that it was held against; ratio: its time over that one's, with
    the bounds of the bootstrap over rounds; speedup: the inverse. None where they were not timed."""

    candidate: str
    verdict: Verdict
    because: str
    against: str | None = None
    ratio: Interval | None = None
    speedup: Interval | None = None


DEFAULTS = Thresholds()


def kernel_verdict(validation: Validation, thresholds: Thresholds = DEFAULTS) -> KernelVerdict | None:
    """The verdict on the user's kernel of a validation; None where none was measured."""
    mine = next((c for c in validation.candidates if is_users_kernel(c.name)), None)
    if mine is None:
        return None
    if mine.status == "ok":
        return _timed(mine, validation, thresholds)
    verdict = _untimed(mine)
    told = name_gradient(mine.message, validation.region)
    told = f"{WORDS[mine.status]}: {told}" if mine.status in WORDS else told
    if mine.status == "correct":
        told = f"it is right ({mine.message}); {validation.reason}" if mine.message else validation.reason
    elif validation.device is None and verdict in ("wrong", "crashed"):
        told = f"{told}; {REDUCED}"
    return KernelVerdict(mine.name, verdict, told or validation.reason)


def _untimed(mine: CandidateResult) -> Verdict:
    status = mine.status
    caught = any(mine.message.startswith(begin) for begin in CHEATS.get(status, ()))
    if caught or status in ("impossible", "bad_output"):
        return "cheats"
    verdicts: Mapping[str, Verdict] = {
        "mismatch": "wrong", "timeout": "hung", "correct": "unmeasured", "cancelled": "unmeasured",
        "not_run": "unmeasured",
    }  # fmt: skip
    return verdicts.get(status, "crashed")


def name_gradient(message: str, region_text: str) -> str:
    """The message with the input whose gradient it is about: outputs are counted with the gradients behind them."""
    region = parse(region_text)
    gradients = [item.name for item in region.inputs if item.requires_grad]

    def named(match: re.Match[str]) -> str:
        number = int(match[1]) - len(region.outputs)
        return f"{match[0]}, the gradient of {gradients[number]}" if 0 <= number < len(gradients) else match[0]

    return re.sub(r"\boutput (\d+)\b", named, message, count=1)


def _timed(mine: CandidateResult, validation: Validation, thresholds: Thresholds) -> KernelVerdict:
    by = str(validation.conditions.get("decided_by", "device time"))
    others = [c for c in validation.candidates if c.status == "ok" and not is_users_kernel(c.name)]
    lines = [c for c in others if c.tool != "triton"]
    ratio = mine.ratio_to_best_other
    if not lines or ratio is None:
        return KernelVerdict(mine.name, "unmeasured", "it is right, but nothing that it is held against could be timed")
    best = min(lines, key=lambda c: deciding_us(c, by))
    verdict = judge_ratio(ratio, thresholds)
    speedup = Interval(1 / ratio.median, 1 / ratio.high, 1 / ratio.low)
    told = [_sentence(verdict, speedup, mine, best, by, thresholds)]
    if text := _elsewhere(mine.shapes, verdict, thresholds):
        told.append(text)
    if verdict == "keep" and 1 / ratio.median < 1 + thresholds.triton_win:
        told.append(f"to write one, the advice asks for {thresholds.triton_win:.0%}")
    kernel = min((c for c in others if c.tool == "triton"), key=lambda c: deciding_us(c, by), default=None)
    if kernel is not None and deciding_us(kernel, by) * (1 + thresholds.tie) < deciding_us(mine, by):
        told.append(f"{kernel.name}, a kernel as yours is, takes {deciding_us(kernel, by):.4g} µs")
    device_us = mine.time_us.median if mine.time_us is not None else 0.0
    if by == "device time" and mine.wall_us is not None and mine.wall_us > LAUNCH_BOUND * device_us:
        told.append(f"its call takes {mine.wall_us:.4g} µs of wall time: called alone, the host sets its pace")
    return KernelVerdict(mine.name, verdict, "; ".join(told), best.name, ratio, speedup)


def judge_ratio(ratio: Interval, thresholds: Thresholds) -> Literal["keep", "delete"]:
    """ratio: the kernel's time over the best other's. It is kept only where the rounds, in pairs, surely tell it to be
    faster, and by more than counts as equal: `tie`."""
    return "keep" if ratio.high < 1 and ratio.median * (1 + thresholds.tie) < 1 else "delete"


def _sentence(
    verdict: Verdict, speedup: Interval, mine: CandidateResult, best: CandidateResult, by: str, thresholds: Thresholds
) -> str:
    line = LINES.get(best.name, best.name.partition(":")[2] or best.name)
    times = f"{deciding_us(mine, by):.4g} µs against {deciding_us(best, by):.4g} µs by {by}"
    span = f"{speedup.median:.2f} × [{speedup.low:.2f}, {speedup.high:.2f}]"
    if verdict == "keep":
        return f"it is {span} as fast as {line}: {times}"
    if speedup.high < 1 and speedup.median * (1 + thresholds.tie) < 1:
        return f"{line} is faster: {times}, the kernel is {span} as fast"
    return f"{line} takes as long: {times}, {span} as fast, no more than noise or {thresholds.tie:.0%}"


def _elsewhere(shapes: Sequence[ShapeResult], verdict: Verdict, thresholds: Thresholds) -> str:
    """The sizes at which it is the other way round."""
    others = [
        label_of(s.binding)
        for s in shapes
        if s.ratio_to_best_other is not None and judge_ratio(s.ratio_to_best_other, thresholds) != verdict
    ]
    if len(shapes) < 2 or not others:
        return ""
    return f"it {'does not pay' if verdict == 'keep' else 'pays'} at {' and at '.join(others)}"
