"""TraceOracle: asks Inductor about the regions of traces that have their first answer, behind everybody else.

One region at a time, the heaviest first, in a process of its own that leaves the processor to others: who waits for an
answer about one region is not kept from the server's oracle. What was answered is on disk by its content, and with the
region; so nothing is lost with the process, and what is missing is asked when the trace is opened again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

import sqlalchemy as sa

from app.analysis.analyze import CompilePrediction
from app.analysis.questions import Question
from app.background import Background
from app.errors import Problem
from app.objects.region import Region
from app.objects.trace import AskedRegion, OracleProgress, Trace
from app.rate_limit import CLIENT, Client
from app.requests import regions
from app.requests.executor import AnswerError
from app.requests.state import ServerState
from app.trace_report.ask_oracle import unanswered
from app.trace_report.oracle_regions import asked_region, asked_texts, oracle_progress
from profiler.hardware import DEFAULT_DEVICE
from profiler.oracle.process import Oracle

log = logging.getLogger("tritonworthy.trace_oracle")

WAITING_CAP = 32
"""Traces that wait for their turn; one more is asked about when it is opened again."""
NICENESS = 10
RETRIES = 1
"""Of a question whose process was lost: it may be the question's fault."""
IDLE_S = 30.0
"""Without a trace for so long, the process is given back."""
PAUSE_S = 0.05
"""Between two looks whether others still wait for advice."""
BUSY_PAUSE_S = 5.0
"""Until a region is asked about again where the processes that advise were busy or killed."""
BUSY_ATTEMPTS = 3
OWN_NAME = "trace-oracle"
"""As whom the processes that advise are asked: a client, who never has the last of them."""


class _StoppedError(Exception):
    """The server stops: what was said meanwhile is no answer."""


class TraceOracle(Background):
    """start() and stop() once; `ask` from any thread. make_oracle: the process for these questions, not yet started."""

    def __init__(self, state: ServerState, make_oracle: Callable[[], Oracle]) -> None:
        super().__init__("trace-oracle")
        self.state = state
        self.make_oracle = make_oracle
        self.oracle: Oracle | None = None
        self.waiting: dict[str, None] = {}  # traces in turn; the first may be under way
        self.changed = threading.Condition()

    @property
    def is_on(self) -> bool:
        """Whether this server asks at all."""
        return self.state.service.oracle is not None and self.state.settings.oracle_share > 0

    def ask(self, trace_id: str) -> None:
        """Begin to ask about a trace's regions in turn, unless it waits already; returns at once."""
        if not self.is_on:
            return
        with self.changed:
            if len(self.waiting) < WAITING_CAP:
                self.waiting.setdefault(trace_id)
                self.changed.notify()

    def stop(self) -> None:
        """Ask no more; what is being asked is given up."""
        self.stopping.set()
        with self.changed:
            self.changed.notify()
        self._release()
        super().stop()
        self._release()  # begun between the two

    def stuck(self) -> list[int]:
        """Its processes that were killed and do not end."""
        oracle = self.oracle
        return [] if oracle is None else oracle.stuck()

    def serve(self) -> None:
        """One trace after the other; one that cannot be asked about is no reason to end."""
        CLIENT.set(Client(OWN_NAME, WAITING_CAP))
        while not self.stopping.is_set():
            trace_id = self._next()
            if trace_id is None:
                self._release()
                continue
            try:
                self._ask_trace(trace_id)
            except _StoppedError:
                return
            except (Problem, sa.exc.DBAPIError) as fault:
                log.warning("no more is asked about trace %s for now: %s", trace_id, fault)
            except Exception:
                log.exception("the oracle could not be asked about trace %s", trace_id)
            finally:
                with self.changed:
                    self.waiting.pop(trace_id, None)

    def _next(self) -> str | None:
        """The trace whose turn it is; None where nobody came for a while."""
        with self.changed:
            if not self.waiting and not self.stopping.is_set():
                self.changed.wait(IDLE_S if self.oracle is not None else None)
            return next(iter(self.waiting), None)

    def _release(self) -> None:
        """Give the process back. `stop` does it from another thread: whoever asked then gets an answer at once."""
        oracle = self.oracle
        if oracle is not None:
            oracle.stop()
            if oracle.stuck():
                log.warning("processes of the oracle do not end: %s", oracle.stuck())
            self.oracle = None

    def _ask_trace(self, trace_id: str) -> None:
        store, share = self.state.store, self.state.settings.oracle_share
        trace = store.trace_head(trace_id)
        if trace is None or trace["status"] != "ready":
            return
        for text in asked_texts(store.regions_asked(trace_id), share):
            for position in text.positions:
                region = store.region_at(trace_id, position)
                if region is None:  # deleted meanwhile
                    return
                if not region["oracle"] and region["text"] == text.text:  # nobody has asked on its own page
                    self._ask_region(region)

    def _ask_region(self, region: Region) -> None:
        """Its advice with Inductor's answer, or why there is none. Raises Problem where others are too busy for it."""
        for attempt in range(1, BUSY_ATTEMPTS + 1):
            self._let_others_pass()
            try:
                regions.advise_with_oracle(self.state, region, self._predict)
                return
            except Problem as problem:
                if problem.status == 422:
                    self._give_up(region, problem.detail)
                    return
                if attempt == BUSY_ATTEMPTS:
                    raise
                self.stopping.wait(BUSY_PAUSE_S)
            except AnswerError as fault:
                self._give_up(region, str(fault))
                return
            except (_StoppedError, sa.exc.DBAPIError):
                raise
            except Exception as fault:  # one region's fault keeps the oracle from no other
                log.exception("the oracle failed at region %s", region["id"])
                self._give_up(region, f"asking failed: {type(fault).__name__}")
                return

    def _give_up(self, region: Region, why: str) -> None:
        log.warning("the oracle has no answer for region %s: %s", region["id"], why)
        device = region["advice"]["device"] if region["advice"] else DEFAULT_DEVICE
        self.state.store.put_oracle(region["id"], {"oracle": [unanswered(device, why)]})

    def _predict(self, question: Question) -> CompilePrediction:
        if self.oracle is None:
            self.oracle = self.make_oracle()
        if self.stopping.is_set():
            raise _StoppedError
        prediction = self.state.service.predict_with(self.oracle, question)
        if self.stopping.is_set():
            raise _StoppedError
        self._let_others_pass()
        return prediction

    def _let_others_pass(self) -> None:
        """Until nobody waits for advice; raises _StoppedError where the server stops."""
        while self.state.service.pool.waiting and not self.stopping.wait(PAUSE_S):
            pass
        if self.stopping.is_set():
            raise _StoppedError


def find_trace(state: ServerState, trace_id: str) -> Trace:
    """One trace with how far Inductor has been asked about it, or 404."""
    return with_progress(state, regions.find_trace(state, trace_id))


def with_progress(state: ServerState, trace: Trace) -> Trace:
    """A trace with how far Inductor has been asked about it; what is missing is asked from here on. What Inductor
    writes is without its source, which each region has."""
    listed = [regions.without_source(r) for r in trace["regions"]]
    ready = trace["status"] == "ready"
    progress = progress_of(state, trace["id"], [asked_region(r) for r in trace["regions"]]) if ready else None
    return {**trace, "oracle": progress, "regions": listed}


def progress_of(state: ServerState, trace_id: str, known: Sequence[AskedRegion]) -> OracleProgress | None:
    """How far Inductor has been asked about a trace that is ready; None where this server asks nobody. known: of all
    its regions, in their order."""
    if not state.trace_oracle.is_on:
        return None
    progress = oracle_progress(known, state.settings.oracle_share)
    if not progress["done"]:
        state.trace_oracle.ask(trace_id)
    return progress
