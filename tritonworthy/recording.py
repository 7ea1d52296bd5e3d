"""What was recorded: the files, how long a step takes with and without the profiler, and what to say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

Stacks = Literal["recorded", "in another file", "none"]

MOST_SLOWDOWN = 1.10
"""Of a step with stacks over the same without: beyond it the trace without stacks is the one to read, whose waiting for
the host is nearer to the truth. Where the GPU sets the pace, stacks cost a step nothing; where the host does, more."""

LEAST_SLOWDOWN = 0.9
"""A profiler makes no step faster: below it the steps themselves differ, and their times tell nothing about it."""

SUFFIXES = (".json.gz", ".json")


@dataclass(frozen=True, slots=True)
class Recording:
    """The files of a capture.

    path: the trace to read. plain, stacks: the recordings without and with Python stacks, None where there is none;
    path is one of them. execution_trace: of the steps with stacks. bare_us: a step without the profiler, plain_us,
    stacks_us: with it; None where none was timed. has_gpu: whether a GPU's work is recorded.
    """

    path: Path
    plain: Path | None
    stacks: Path | None
    execution_trace: Path | None
    bare_us: float | None
    plain_us: float | None
    stacks_us: float | None
    has_gpu: bool

    @property
    def step_us(self) -> float | None:
        """Of the trace to read: a step under the profiler."""
        return self.stacks_us if self.path == self.stacks else self.plain_us

    @property
    def slowdown(self) -> float | None:
        """A step under the profiler over one without it; None where there was none without."""
        return self.step_us / self.bare_us if self.step_us and self.bare_us else None

    @property
    def disturbed(self) -> bool:
        """The profiler changed what it recorded."""
        return (self.slowdown or 0.0) > MOST_SLOWDOWN

    @property
    def unsteady(self) -> bool:
        """Steps differ so much that `slowdown` says nothing."""
        return self.slowdown is not None and self.slowdown < LEAST_SLOWDOWN

    @property
    def observed(self) -> Path | None:
        """The execution trace that goes with `path`."""
        return self.execution_trace if self.path == self.stacks else None


@dataclass(frozen=True, slots=True)
class Files:
    """Where the files of a capture go, by the path that the user gave."""

    path: Path
    plain: Path
    stacks: Path
    execution_trace: Path


def files_of(path: Path, rank: int | None = None) -> Files:
    """step.json.gz, step.plain.json.gz, step.stacks.json.gz, step.et.json.gz; with a rank step.rank0.json.gz, ...

    Raises ValueError for another suffix.
    """
    suffix = next((s for s in SUFFIXES if path.name.endswith(s)), None)
    if suffix is None or path.name == suffix:
        raise ValueError(f"{path}: a trace is written, whose name ends in {' or '.join(SUFFIXES)}")
    stem = path.name.removesuffix(suffix) + (f".rank{rank}" if rank is not None else "")
    place = path.parent
    return Files(
        place / f"{stem}{suffix}",
        place / f"{stem}.plain{suffix}",
        place / f"{stem}.stacks{suffix}",
        place / f"{stem}.et.json.gz",
    )


def moved(recording: Recording, path: Path) -> Recording:
    """The recording with the trace to read at the path."""
    old = recording.path
    old.replace(path)
    plain, stacks = (path if one == old else one for one in (recording.plain, recording.stacks))
    return replace(recording, path=path, plain=plain, stacks=stacks)


def stacks_are_free(plain_us: float, stacks_us: float) -> bool:
    """Stacks hardly slow a step: the recording that has them is the better one to read."""
    return stacks_us <= MOST_SLOWDOWN * plain_us


def describe(recording: Recording) -> Sequence[str]:
    """What to tell the user, a line each."""
    step = f", {recording.step_us / 1e3:.2f} ms a step" if recording.step_us else ""
    if recording.slowdown is not None and recording.bare_us is not None:
        bare = f"{recording.bare_us / 1e3:.2f} ms without the profiler"
        told = f"{recording.slowdown:.2f} times the {bare}"
        step += f", {bare}; unsteady: slowdown not told" if recording.unsteady else f", {told}"
    lines = [f"recorded {recording.path}{step}"]
    if recording.disturbed:
        lines.append("the profiler slowed the step: time that the GPU waits for the host is overstated")
    if recording.stacks is not None and recording.path != recording.stacks:
        lines.append(f"stacks slowed it more: the lines of your code are in {recording.stacks}")
    if not recording.has_gpu:
        lines.append("no GPU here: the CPU's activity alone is recorded, and advice is on a GPU's kernels")
    return lines
