"""Executor: app.analysis.service for a web server. Every question about a region is answered by a child of the pool.

This process imports no torch. A child may hang, eat memory or die of what it was asked: it is killed at its limits, the
question is refused with the reason, and nobody else notices.
"""

from __future__ import annotations

import itertools
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from app.advice.widget import BOUNDS, KINDS
from app.analysis.analyze import NO_COMPILE_PREDICTION, CompilePrediction
from app.analysis.questions import (
    Answer,
    CandidatesRequest,
    DecidedRegion,
    DecideRequest,
    DeviceRequest,
    DevicesRequest,
    KitRequest,
    OutlineRequest,
    OwnRequest,
    Question,
    ReplayRequest,
    Request,
    VocabularyRequest,
)
from app.analysis.service import Outline, ask_oracle, recall_oracle
from app.errors import Problem
from app.lru_cache import Recent
from app.objects.advice import Advice, DeviceAdvice
from app.objects.region import RegionBody
from app.objects.task import Context
from app.rate_limit import CLIENT
from app.thresholds import DEFAULTS, Thresholds
from kernels.kernel_listing_model import Own
from kernels.starter_kit.model import Kit
from profiler.child.limits import Limits
from profiler.child.pool import FailedError, Failure, Pool
from profiler.child.template import START_S, Template
from profiler.oracle.process import Oracle, UnansweredError
from profiler.region.language.completion_model import Vocabulary

log = logging.getLogger("tritonworthy.executor")

Json = dict[str, Any]

WAITING_CAP = 32
"""Questions that wait for a child; more are refused at once. Fewer than the threads that answer requests (`main`)."""

RECENT = 128
"""Regions whose advice is kept: CI and a page that is loaded again ask for the same."""

RETRY_S = 5


class Executor:
    """Thread-safe. Methods block the calling thread and raise Problem: 422 for the user's mistakes and for what exceeds
    a limit, 429 when too many wait or one waited too long, 503 when one is not answered in time.

    oracle: asked what torch.compile would make of a region, None for never; oracle_timeout_s: longest wait for it.
    thresholds: the rule's numbers. limits: of one question. context: what the children are told once, besides.
    atlases: changes where the user's atlases do, by which answers were given.
    """

    def __init__(
        self,
        template: Template,
        *,
        limits: Limits,
        size: int = 2,
        oracle: Oracle | None = None,
        oracle_timeout_s: float = 10.0,
        thresholds: Thresholds = DEFAULTS,
        context: Callable[[], Context] = Context,
        atlases: Callable[[], str] = str,
        environment: Callable[[], dict[str, str]] = dict,
        logs: Any = None,
    ) -> None:
        self.thresholds = thresholds
        self.oracle = oracle
        self.oracle_timeout_s = oracle_timeout_s
        self.limits = limits
        numbers = asdict(thresholds)
        self.pool = Pool(
            template,
            ["answers", "{fd}"],
            size=size,
            limits=limits,
            waiting_cap=WAITING_CAP,
            wait_s=limits.timeout_s,
            hello=lambda: {**context(), "thresholds": numbers},
            environment=environment,
            logs=logs,
        )
        self.atlases = atlases
        self.began = time.monotonic()
        self.pool.when_ready = self._tell_ready
        self.widget_tables: set[tuple[str | None, str | None]] = set()
        self.tables_maker = threading.Thread(target=self._make_widget_tables, name="widget-tables", daemon=True)
        self.recent: Recent[bytes] = Recent(RECENT)  # as JSON: a tenth of the size of its objects

    def start(self) -> None:
        """Begin to make the children ready; returns at once."""
        self.began = time.monotonic()
        self.pool.start()
        if self.tables_maker.ident is None:
            self.tables_maker.start()
        if self.oracle is not None:
            self.oracle.start()

    def stop(self) -> None:
        """Kill the children; whoever waits for them is refused."""
        self.pool.stop()
        if self.oracle is not None:
            self.oracle.stop()

    @property
    def warm(self) -> bool:
        """Whether a child stands ready."""
        return self.pool.ready

    def _tell_ready(self) -> None:
        log.info("advice is warm after %.1f s", time.monotonic() - self.began)

    # --- regions

    def advise_region(
        self, text: str, *, name: str = "", oracle: bool = True, oracle_timeout_s: float | None = None, **workload: Any
    ) -> RegionBody:
        """The API's region with its advice, as `decide_text` decides it."""
        return self.decide_text(text, name=name, oracle=oracle, oracle_timeout_s=oracle_timeout_s, **workload).region

    def decide_text(
        self, text: str, *, name: str = "", oracle: bool = True, oracle_timeout_s: float | None = None, **workload: Any
    ) -> DecidedRegion:
        """A text's region with its advice; a bad text is refused before the oracle is asked.

        oracle: whether to ask it; oracle_timeout_s: 0 for what it has answered before, without asking. The same
        question gets the same answer, unless the oracle did not say all that it was asked, or an atlas is another now.
        """
        key = json.dumps([text, name, oracle, workload, self.atlases()], sort_keys=True)
        known = self.recent.get(key)
        if known is not None:
            return msgspec.json.decode(known, type=DecidedRegion)
        question = Question(text, workload)
        prediction, whole = NO_COMPILE_PREDICTION, True
        if oracle and self.oracle is not None:
            prediction, whole = self._predict_compile(question, oracle_timeout_s)
        decided = self.decide(question, prediction, name=name)
        if whole:
            self.recent.put(key, msgspec.json.encode(decided))
        return decided

    def predict_compile(self, question: Question, timeout_s: float | None = None) -> CompilePrediction:
        """What the oracle says of a region; nothing where it is off."""
        return self._predict_compile(question, timeout_s)[0]

    def predict_with(self, oracle: Oracle, question: Question) -> CompilePrediction:
        """What another oracle says of a region, which nobody waits for: as long as that one takes for a question. The
        start of its process does not count, or the first question would go without an answer on a busy host."""
        outline = self._ask(OutlineRequest(question), question.text)
        known = recall_oracle(oracle, outline)
        if known.predictions:
            return known
        oracle.wait_ready()
        return ask_oracle(oracle, outline)

    def _predict_compile(self, question: Question, timeout_s: float | None) -> tuple[CompilePrediction, bool]:
        """The same, and whether asking again would get no more."""
        if self.oracle is None:
            return NO_COMPILE_PREDICTION, True
        outline = self._ask(OutlineRequest(question), question.text)
        if timeout_s == 0:
            prediction = recall_oracle(self.oracle, outline)
        else:
            prediction = ask_oracle(self.oracle, outline, timeout_s or self.oracle_timeout_s)
        return prediction, _is_whole(outline, prediction)

    def decide(
        self, question: Question, prediction: CompilePrediction = NO_COMPILE_PREDICTION, *, name: str = ""
    ) -> DecidedRegion:
        """A region with its advice."""
        return self._ask(DecideRequest.with_oracle(question, prediction, name), question.text)

    def on_devices(self, question: Question, advice: Advice | None = None) -> list[DeviceAdvice]:
        """A region's advice on every device of the table; advice: what stands for its own."""
        return self._ask(DevicesRequest(question, advice), question.text)

    def on_device(self, question: Question, name: str, *, title: str = "") -> RegionBody:
        """The API's region, on another device."""
        return self._ask(DeviceRequest(question, name, title), question.text)

    # --- kernels

    def machine(self, source: str, name: str, arch: str) -> Json:
        """What Triton's compiler makes of a kernel of the oracle's. Raises UnansweredError, with the reason."""
        if self.oracle is None:
            raise UnansweredError("the oracle is off on this server (TRITONWORTHY_ORACLE)")
        return self.oracle.machine(source, name, arch, self.oracle_timeout_s)

    def make_kit(self, text: str, *, candidate: str | None = None, validation: Mapping[str, Any] | None = None) -> Kit:
        """The starter kit of a region. Raises KeyError for a candidate that is no Triton kernel."""
        return self._ask(KitRequest(text, candidate, validation), text)

    def own_code(
        self, text: str, sizes: Mapping[str, int], candidate: str | None, validation: Mapping[str, Any] | None
    ) -> Own:
        """The Triton kernels that this app has for a region. Raises KeyError for a candidate that does not fit."""
        return self._ask(OwnRequest(text, sizes, candidate, validation), text)

    def replay_script(self, text: str, shapes: Sequence[Mapping[str, Any]] | None = None) -> str:
        """One file that runs a region eagerly and under torch.compile."""
        return self._ask(ReplayRequest(text, shapes), text)

    def candidates(self) -> tuple[str, ...]:
        """Every candidate's name, whatever the region."""
        known = self.recent.get("candidates")
        if known is None:
            known = msgspec.json.encode(self._ask(CandidatesRequest()))
            self.recent.put("candidates", known)
        return tuple(msgspec.json.decode(known))

    def vocabulary(self) -> Vocabulary:
        """Every name of the region language."""
        known = self.recent.get("vocabulary")
        if known is None:
            known = msgspec.json.encode(self._ask(VocabularyRequest()))
            self.recent.put("vocabulary", known)
        return msgspec.json.decode(known, type=Vocabulary)

    # --- the widget

    def advise_widget(self, **answers: Any) -> Advice:
        """The API's advice for the widget's answers. No torch: never waits behind a region.

        The first of a bound and kind makes its table, which takes 35 ms; those after it a quarter of a millisecond.
        """
        from app.analysis import service

        advice = service.advise_widget(self.thresholds, **answers)
        self.widget_tables.add((answers.get("bound"), answers.get("kind")))
        return advice

    def answers_at_once(self, *, bound: str | None = None, kind: str | None = None, **_: Any) -> bool:
        """Whether advise_widget has the table of these answers."""
        return (bound, kind) in self.widget_tables

    def _make_widget_tables(self) -> None:
        """All tables, before somebody waits for one: during attacks the first to ask waited 0.16 to 0.37 s.

        Behind the template's imports: before, they made the start 0.3 s longer.
        """
        self.pool.template.wait_ready(START_S)
        for bound, kind in itertools.product((None, *BOUNDS), (None, *KINDS)):
            if self.pool.stopped:
                return
            self.advise_widget(share_of_step=None, uniqueness=0.5, irregularity=0.5, bound=bound, kind=kind)

    # --- asking

    def _ask(self, request: Request[Answer], text: str = "") -> Answer:
        """The answer of a child. text: of the region; the child that worked on it last is asked, where it is idle."""
        client = CLIENT.get()
        try:
            answer = self.pool.ask(msgspec.to_builtins(request), who=client.name if client else None, prefer=text)
        except FailedError as failed:
            raise refusal(failed.failure, self.limits) from None
        error = answer.get("error")
        if error is None:
            return request.read(answer["value"])
        raise _from_child(error, self.limits)


def refusal(failure: Failure, limits: Limits) -> Problem:
    """Why a question has no answer, for the client."""
    again = {"headers": {"Retry-After": str(RETRY_S)}}
    if failure is Failure.QUEUE_FULL:
        return Problem(429, "advice-queue-full", "Too many questions are waiting", "Try again in a moment.", **again)
    if failure is Failure.WAITED:
        detail = f"Other regions are worked on: this one waited {limits.timeout_s:g} s. Try again later."
        return Problem(429, "advice-busy", "", detail, **again)
    if failure is Failure.STOPPED:
        return Problem(503, "stopping", "", "The server is stopping.", **again)
    if failure is Failure.KILLED:
        detail = "The processes that worked on this region were killed: the host may be short of memory. Try again."
        return Problem(503, "advice-killed", "", detail, **again)
    if failure is Failure.TIMEOUT:
        detail = f"Advice on this region takes longer than {limits.timeout_s:g} s, and was stopped."
        return Problem(503, "advice-timeout", "", detail, **again)
    if failure is Failure.CPU:
        what = f"more than {limits.cpu_s:g} s of processor time"
    elif failure is Failure.MEMORY:
        what = f"more than {(limits.memory_bytes or 0) / 2**20:,.0f} MiB of memory"
    else:
        detail = "The process that worked on this region crashed. Nothing else is affected."
        return Problem(422, "advice-crashed", "", detail, remedy="Please report the region: its text is enough.")
    remedy = "Take fewer operations or smaller sizes."
    return Problem(422, "advice-limit", "", f"Advice on this region needs {what}, and was stopped.", remedy=remedy)


class AnswerError(RuntimeError):
    """A fault of ours in a child; its log has the traceback."""


def _from_child(error: Json, limits: Limits) -> Exception:
    details = {k: v for k, v in error.items() if k not in ("kind", "code", "message")}
    if error["kind"] == "region":
        return Problem(422, error["code"], "The region cannot be read", error["message"], **details)
    if error["kind"] == "refused":
        return Problem(422, error["code"], "", error["message"], **details)
    if error["kind"] == "candidate":
        return KeyError(error["message"])
    if error["kind"] == "memory":
        return refusal(Failure.MEMORY, limits)
    return AnswerError(error["message"])


def _is_whole(outline: Outline, prediction: CompilePrediction) -> bool:
    """Whether asking again would get no more: every mode answered, and how sizes that vary are met."""
    silent = prediction.recompiles is None and len(outline.bindings) > 1 and bool(prediction.predictions)
    return (
        not silent
        and len(prediction.predictions) == len(outline.modes)
        and not any(p.unavailable for p in prediction.predictions)
    )
