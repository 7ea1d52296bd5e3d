"""The oracle for a run over many recorded programs: one process, nothing kept on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.accuracy.evaluation import Oracle
    from app.accuracy.question import Question
    from app.analysis.analyze import CompilePrediction

PATIENCE_S = 120.0
"""For one program. A server gives its oracle less, because somebody waits; here another process may have the cores."""


@contextmanager
def oracle_process(wanted: bool) -> Iterator[Oracle | None]:
    """What an evaluation asks; None where it is not wanted."""
    if not wanted:
        yield None
        return
    from app.analysis.service import predict_compile
    from profiler.oracle.process import Oracle as Process

    process = Process(timeout_s=PATIENCE_S)
    process.start()

    def ask(asked: Question) -> CompilePrediction:
        return predict_compile(process, asked.prepared)

    try:
        yield ask
    finally:
        process.stop()
