"""Who called what in a trace: regions, what stops torch.compile, and every kernel, by one more pass over its file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from profiler.trace.analyze.compile_blockers import CompileBlocker, find_compile_blockers
from profiler.trace.model import NONE, Longs, Trace
from profiler.trace.read.frames import NO_FRAME, Frame, Instant, Stack, open_frames
from profiler.trace.read.source import Limits, OnRead

if TYPE_CHECKING:
    from profiler.region.mining.mine import Mining

MAX_BLOCKERS, MAX_CALLERS = 40, 3
"""Of what stops torch.compile: how many are told of, and from how many calls of each the caller is looked up."""
MAX_STACKS = 100_000
"""Operations whose stacks are looked up, the first ones: each is kept for as long as the file is read."""


@dataclass(frozen=True, slots=True)
class CalledFrom:
    """mining: with each region's source line. kernels, frames: those of the mined steps, and of each the call that was
    open when its operation began; NO_FRAME for one that none was open for, and for all without recorded stacks."""

    mining: Mining
    blockers: tuple[CompileBlocker, ...]
    kernels: Longs
    frames: list[Frame]

    @property
    def stacks(self) -> list[Stack]:
        """Of each kernel the functions that were open; those of one frame are one object."""
        known = {frame: frame.stack for frame in dict.fromkeys(self.frames)}
        return [known[frame] for frame in self.frames]


def called_from(
    path: Path | str, limits: Limits, trace: Trace, mining: Mining, on_read: OnRead | None = None
) -> CalledFrom:
    """on_read: as of read_trace, which raises what this raises."""
    from profiler.region.mining.source_functions import instants, with_sources

    blockers = find_compile_blockers(trace, mining.mined)[:MAX_BLOCKERS]
    of_blockers = [(i, at) for i, blocker in enumerate(blockers) for at in blocker.at[:MAX_CALLERS]]
    kernels = np.concatenate([s.kernels for s in mining.mined]) if mining.mined else np.empty(0, np.int64)
    ops = np.unique(trace.kernels.op[kernels])
    ops = ops[ops != NONE][:MAX_STACKS]
    of_regions = instants(mining)
    asked = [*of_regions, *(at for _, at in of_blockers), *_starts(trace, ops)]
    answers = open_frames(path, trace, asked, limits, on_read=on_read)
    first, second = len(of_regions), len(of_regions) + len(of_blockers)
    sources: dict[int, dict[str, None]] = {}
    for (i, _), frame in zip(of_blockers, answers[first:second], strict=True):
        if frame.innermost:
            sources.setdefault(i, {})[frame.innermost] = None
    by_op = dict(zip(ops.tolist(), answers[second:], strict=True))
    return CalledFrom(
        with_sources(mining, [frame.innermost for frame in answers[:first]]),
        tuple(replace(blocker, sources=tuple(sources.get(i, ()))) for i, blocker in enumerate(blockers)),
        kernels,
        [by_op.get(op, NO_FRAME) for op in trace.kernels.op[kernels].tolist()],
    )


def _starts(trace: Trace, ops: Longs) -> Sequence[Instant]:
    return list(zip(trace.ops.thread[ops].tolist(), trace.ops.start_us[ops].tolist(), strict=True))
