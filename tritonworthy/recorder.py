"""Records two steady steps of a running program, tells whether that disturbed them, and has them advised on."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

from tritonworthy import notebook, profiling
from tritonworthy.handover import HandOver, upload
from tritonworthy.making_way import making_way
from tritonworthy.profiling import ProfilerBusyError, StepFailedError
from tritonworthy.recording import Files, Recording, describe, files_of, moved, stacks_are_free
from tritonworthy.reports import TraceReport

P = ParamSpec("P")
R = TypeVar("R")

Course = Generator[None, None, None]
"""A recording that waits at every step's end."""

SKIP = 5
"""Steps before anything is timed: compiling, tuning and the allocator's first requests are over then."""
TIMED = 3
"""Steps that are timed without the profiler."""
RECORDED = 2
"""Steps in the trace without stacks; the one with them has another."""
REFUSED = (
    "a profiler that began in another thread within a recorded step was refused (OtherThreadError): torch has one at a"
    " time, and ours goes on"
)
"""A problem that ends nothing."""


class CaptureError(RuntimeError):
    """There is no recording, or no advice on it: in words."""


class Capture:
    """One recording: as a context with `step()` after every step, or as the decorator of the function that is a step.

    What goes wrong is said on stderr and in `problem`, also where there is a `recording`: it never ends the program.
    One thing is refused: a profiler that begins in another thread within a recorded step raises
    `making_way.OtherThreadError` there, which is said too.
    """

    def __init__(
        self, path: str | os.PathLike[str], url: str | None, token: str | None, skip: int, timed: int,
        execution_trace: bool, quiet: bool,
    ) -> None:  # fmt: skip
        if skip < 0 or timed < 1:
            raise ValueError("skip is at least 0, timed at least 1")
        self.path = Path(path)
        files_of(self.path)
        self.url = url
        self.skip, self.timed = skip, timed
        self.execution_trace = execution_trace
        self.recording: Recording | None = None
        self.problem = ""
        self.steps = 0
        self.failed_steps = 0
        self._is_block = False
        self._call_failed = False
        self._token = token
        self._quiet = quiet
        self._course: Course | None = None
        self._without_stacks: Recording | None = None
        self._hand_over: HandOver | None = None
        self._report: TraceReport | None = None

    @property
    def steps_wanted(self) -> int:
        """Until the recording is whole, with one step to warm each of the two profilers up."""
        return self.skip + self.timed + 1 + RECORDED + 1 + 1

    @property
    def done(self) -> bool:
        """Nothing more is recorded."""
        return self._course is None and (self.recording is not None or bool(self.problem))

    @property
    def link(self) -> str:
        """The trace's page on the server that it was handed to; "" without one."""
        return self._hand_over.link if self._hand_over else ""

    @property
    def report(self) -> TraceReport:
        """The trace with its advice: from the server that it was handed to, else made here, which takes seconds.

        Raises CaptureError where there is none.
        """
        if self._report is None:
            self._report = self._advise()
        return self._report

    def begin(self) -> None:
        """The first step begins; a later call changes nothing. A context begins by itself."""
        if self._course is None and not self.done:
            atexit.register(self.end)
            self._start(self._record_steps(self._files()))

    def step(self) -> None:
        """A step has ended. Costs nothing once the recording is done."""
        if self._course is None:
            return
        if self._is_block:  # so it is no single step: what was recorded as one is dropped
            self._is_block = False
            if not self._closed():
                return
            self._start(self._record_steps(self._files()))
        self.steps += 1
        self._go_on()

    def end(self) -> None:
        """No more steps come. A context ends by itself, the rest with the program."""
        if self._course is None:
            return
        failed = f", {self.failed_steps} failed" if self.failed_steps else ""
        wanted = f"a recording takes {self.steps_wanted}: lower skip, or run more"
        self._stop(f"{self.steps} steps ran{failed}, and {wanted}")

    def __enter__(self) -> Capture:
        if self._course is not None or self.done:
            raise CaptureError("a capture records once: make another one")
        self._is_block = True
        self._start(self._record_block(self._files()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._course is None:
            return
        if kind is not None:
            self._stop(f"the block ended with {kind.__name__}")
        elif self._is_block:
            self._go_on()
        else:
            self.end()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, each of whose calls is a step."""

        @functools.wraps(function)
        def stepping(*args: P.args, **kwargs: P.kwargs) -> R:
            self._begin_call()
            try:
                result = function(*args, **kwargs)
            except BaseException:
                self._call_failed = self._course is not None
                raise
            self.step()
            return result

        return stepping

    def _files(self) -> Files:
        return files_of(self.path, profiling.rank_here())

    def _begin_call(self) -> None:
        """Where the call before failed, the part that it was in begins again now, without what its handling took."""
        if self._call_failed and self._course is not None:
            self.failed_steps += 1
            course = self._course
            self._advance(lambda: course.throw(StepFailedError()))
        self._call_failed = False
        self.begin()

    def _start(self, course: Course) -> None:
        self._course = course
        self._go_on()

    def _go_on(self) -> None:
        """On to the end of the next step."""
        course = self._course
        assert course is not None
        self._advance(lambda: next(course))

    def _advance(self, go: Callable[[], None]) -> None:
        try:
            go()
        except StopIteration:
            self._course = None
            atexit.unregister(self.end)
        except Exception as error:  # of the profiler or the disk: the program goes on
            self._stop(_words(error), failed=True)

    def _closed(self) -> bool:
        """Ends the course; whether it ended well."""
        course, self._course = self._course, None
        atexit.unregister(self.end)
        try:
            if course is not None:
                course.close()
        except Exception as error:
            self._fail(_words(error))
        return self.problem in ("", REFUSED)

    def _stop(self, problem: str, *, failed: bool = False) -> None:
        """Nothing more is recorded: what was recorded without stacks is kept.

        failed: a fault, which is told beside a recording too; else the program ended early.
        """
        self._closed()
        if self.recording is None and self._without_stacks is not None:
            try:
                self._finish(self._without_stacks)
            except Exception as error:
                self._fail(_words(error))
        if failed or self.recording is None:
            self._fail(problem)

    def _fail(self, problem: str) -> None:
        """The first problem is kept: others follow from it, but from a refusal."""
        if self.problem not in ("", REFUSED):
            return
        self.problem = f"{problem}; {self.problem}" if self.problem else problem
        self._say(problem if self.recording else f"nothing was recorded: {problem}")

    def _make_way(self) -> contextlib.AbstractContextManager[None]:
        return making_way(self._give_way, self._refuse)

    def _refuse(self) -> None:
        """Another thread's profiler could not begin: the recording goes on."""
        if not self.problem:
            self.problem = REFUSED
            self._say(REFUSED)

    def _give_way(self) -> None:
        """Another profiler begins in the step that is recorded: ours ends, and what was recorded before is kept."""
        self._stop("another profiler began in a step that was recorded, and torch has one at a time", failed=True)

    def _record_steps(self, files: Files) -> Course:
        profiling.require_free()
        yield from profiling.repeated(lambda: profiling.passed(self.skip))
        files.path.parent.mkdir(parents=True, exist_ok=True)
        bare_us = yield from profiling.repeated(lambda: profiling.timed(self.timed))
        plain_us = yield from profiling.repeated(
            lambda: profiling.recorded(RECORDED, files.plain, self._make_way, stacks=False)
        )
        has_gpu = profiling.has_gpu()
        self._without_stacks = Recording(files.plain, files.plain, None, None, bare_us, plain_us, None, has_gpu)
        observed = files.execution_trace if self.execution_trace else None
        stacks_us = yield from profiling.repeated(
            lambda: profiling.recorded(1, files.stacks, self._make_way, stacks=True, execution_trace=observed)
        )
        chosen = files.stacks if stacks_are_free(plain_us, stacks_us) else files.plain
        self._finish(Recording(chosen, files.plain, files.stacks, observed, bare_us, plain_us, stacks_us, has_gpu))

    def _record_block(self, files: Files) -> Course:
        files.path.parent.mkdir(parents=True, exist_ok=True)
        step_us = yield from profiling.recorded_block(files.path, self._make_way)
        self._finish(Recording(files.path, files.path, None, None, None, step_us, None, profiling.has_gpu()))
        self._say("step() was never called: the block was recorded as one step, without stacks")

    def _finish(self, recording: Recording) -> None:
        """The trace to read goes to the path that the user gave, is told, and handed over."""
        self.recording = moved(recording, self._files().path)
        for line in describe(self.recording):
            self._say(line)
        if self.url is None or not recording.has_gpu:
            return
        try:
            self._hand_over = upload(self.url, self.recording, self._token)
        except Exception as error:
            self._fail(f"not handed over: {_words(error)}")
        else:
            if self._hand_over.problem:
                self._fail(self._hand_over.problem)
            else:
                self._say(f"handed over: {self.link}")

    def _advise(self) -> TraceReport:
        if self.recording is None:
            raise CaptureError(f"nothing was recorded: {self.problem or 'the steps have not ended'}")
        if not self.recording.has_gpu:
            raise CaptureError(f"{self.recording.path} has no work of a GPU, and advice is on a GPU's kernels")
        if self._hand_over is not None and not self._hand_over.problem:
            return self._hand_over.report()
        from tritonworthy.ask import read_trace

        return read_trace(self.recording.path, execution_trace=self.recording.observed)

    def _say(self, line: str) -> None:
        if self._quiet:
            return
        with contextlib.suppress(OSError, ValueError):  # stderr is closed
            print(f"tritonworthy: {line}", file=sys.stderr)

    def __repr__(self) -> str:
        state = "recorded" if self.recording else "recording" if self._course else "" if self.problem else "not begun"
        return f"<Capture {str(self.path)!r}: {', '.join(filter(None, (state, self.problem)))}>"

    def _repr_html_(self) -> str:
        if self.recording is None or not self.recording.has_gpu:
            lines = describe(self.recording) if self.recording else [repr(self)]
            return notebook.text_html("\n".join(lines))
        return self.report._repr_html_()


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, ProfilerBusyError) else f"{type(error).__name__}: {error}"


def capture(
    path: str | os.PathLike[str], *, url: str | None = None, token: str | None = None, skip: int = SKIP,
    timed: int = TIMED, execution_trace: bool = True, quiet: bool = False,
) -> Capture:  # fmt: skip
    """Records steps of a program into a trace (.json.gz or .json).

    As a context call `step()` on it after every step; without a call the whole block is one step. As a decorator every
    call of the function is a step. `skip` steps pass, `timed` are timed without the profiler, two are recorded with
    shapes, one with stacks, modules and, unless execution_trace is False, an execution trace.

    url: a server that the trace is handed to, token: its token. quiet: say nothing on stderr. Several ranks write a
    file each: step.rank0.json.gz. Raises ValueError.
    """
    return Capture(path, url, token, skip, timed, execution_trace, quiet)
