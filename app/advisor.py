"""Advisor: app.service for a web server. All work with torch happens in one thread, off the event loop.

torch's FakeTensor and make_fx state is global to the process, so two regions are never lowered at once; and the
first import of torch takes seconds, so it is started with the server and not with the first request.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any

import msgspec

from app.advice.thresholds import DEFAULTS, Thresholds
from app.evaluate import NOTHING_FORESEEN, Foreseen, Prepared
from app.recent import Recent
from app.web.problems import Problem, from_region_error
from kernels.takehome.model import Kit
from profiler.oracle.process import Oracle, UnansweredError
from profiler.region.model import RegionError

if TYPE_CHECKING:
    from kernels.own import Own

log = logging.getLogger("tritonworthy.advisor")

Json = dict[str, Any]

WARM_UP = "x: f32[64, 64]\ny = relu(x + 1.0)\nreturn y\n"

WAITING_CAP = 16
"""More requests than this waiting for the one thread are turned away: each would wait too long anyway."""

RECENT = 128
"""Regions whose advice is kept: CI and a page that is loaded again ask for the same."""


FORGET_EVERY = 64
"""Calls after which what torch keeps of them is dropped."""


class Advisor:
    """Thread-safe. Methods block the calling thread and raise Problem: 422 for the user's mistakes, 503 when busy.

    oracle: asked what torch.compile would make of a region, None for never; oracle_timeout_s: longest wait for it.
    thresholds: the rule's numbers.
    """

    def __init__(
        self,
        *,
        timeout_s: float,
        oracle: Oracle | None = None,
        oracle_timeout_s: float = 10.0,
        thresholds: Thresholds = DEFAULTS,
    ) -> None:
        self.timeout_s = timeout_s
        self.thresholds = thresholds
        self.oracle = oracle
        self.oracle_timeout_s = oracle_timeout_s
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="advice")
        self.waiting = threading.BoundedSemaphore(WAITING_CAP)
        self.calls = 0
        self.warm = threading.Event()
        self.when_warm: Callable[[], object] = lambda: None
        self.widget_tables: set[tuple[str | None, str | None]] = set()
        self.recent: Recent[bytes] = Recent(RECENT)  # as JSON: a tenth of the size of its objects

    def start(self) -> None:
        """Begin to import torch, here and in the oracle's process; returns at once."""
        if self.oracle is not None:
            self.oracle.start()
        self.executor.submit(self._warm_up)

    def stop(self) -> None:
        self.executor.shutdown(wait=False, cancel_futures=True)
        if self.oracle is not None:
            self.oracle.stop()

    def _warm_up(self) -> None:
        started = time.monotonic()
        try:
            from app import service

            service.advise_region(WARM_UP)
        except Exception:
            # The server serves what else it can; the first request for advice will say what is wrong.
            log.exception("advice could not be warmed up")
            return
        self.warm.set()
        self.when_warm()
        log.info("advice is warm after %.1f s", time.monotonic() - started)

    def advise_region(
        self, text: str, *, name: str = "", oracle: bool = True, oracle_timeout_s: float | None = None, **workload: Any
    ) -> Json:
        """The API's region with its advice; a bad text is refused before the oracle is asked.

        oracle: whether to ask it. It answers from its own process: while it thinks, the one thread with torch serves
        others. The same question gets the same answer, unless the oracle did not say all that it was asked.
        """
        key = json.dumps([text, name, oracle, workload], sort_keys=True)
        known = self.recent.get(key)
        if known is not None:
            found: Json = msgspec.json.decode(known)
            return found
        prepared = self.prepare(text, **workload)
        foreseen = self.foresee(prepared, oracle_timeout_s) if oracle else NOTHING_FORESEEN
        region = self.decide(prepared, foreseen, name=name)
        if _is_whole(prepared, foreseen):
            self.recent.put(key, msgspec.json.encode(region))
        return region

    def prepare(self, text: str, **workload: Any) -> Prepared:
        """A region lowered and counted: what `foresee` and `decide` take."""
        prepared: Prepared = self._run("prepare_region", text, thresholds=self.thresholds, **workload)
        return prepared

    def foresee(self, prepared: Prepared, timeout_s: float | None = None) -> Foreseen:
        """What the oracle says of a prepared region; nothing where it is off."""
        from app import service

        if self.oracle is None:
            return NOTHING_FORESEEN
        return service.foresee(self.oracle, prepared, timeout_s or self.oracle_timeout_s)

    def decide(self, prepared: Prepared, foreseen: Foreseen = NOTHING_FORESEEN, *, name: str = "") -> Json:
        """The API's region for a prepared one."""
        region: Json = self._run("decide_region", prepared, foreseen, name=name)
        return region

    def on_devices(self, prepared: Prepared, advice: Json | None = None) -> list[Json]:
        """A prepared region's advice on every device of the table; advice: what stands for its own."""
        rows: list[Json] = self._run("on_devices", prepared, advice)
        return rows

    def on_device(self, prepared: Prepared, name: str, *, title: str = "") -> Json:
        """The API's region for a prepared one, on another device."""
        region: Json = self._run("on_device", prepared, name, title=title)
        return region

    def machine(self, source: str, name: str, arch: str) -> Json:
        """What Triton's compiler makes of a kernel of the oracle's. Raises UnansweredError, with the reason."""
        if self.oracle is None:
            raise UnansweredError("the oracle is off on this server (TRITONWORTHY_ORACLE)")
        return self.oracle.machine(source, name, arch, self.oracle_timeout_s)

    def make_kit(self, text: str, **more: Any) -> Kit:
        """The starter kit of a region."""
        kit: Kit = self._run("make_kit", text, **more)
        return kit

    def own_code(self, text: str, *more: Any) -> Own:
        """The Triton kernels that this app has for a region. Raises KeyError for a candidate that does not fit."""
        found: Own = self._run("own_code", text, *more)
        return found

    def replay_script(self, text: str, shapes: Any = None) -> str:
        """One file that runs a region eagerly and under torch.compile."""
        script: str = self._run("replay_script", text, shapes)
        return script

    def advise_widget(self, **answers: Any) -> Json:
        """The API's advice for the widget's answers. No torch: never waits behind a region.

        The first of a bound and kind makes its table, which takes 0.1 s; those after it a quarter of a millisecond.
        """
        from app import service

        advice = service.advise_widget(self.thresholds, **answers)
        self.widget_tables.add((answers.get("bound"), answers.get("kind")))
        return advice

    def answers_at_once(self, *, bound: str | None = None, kind: str | None = None, **_: Any) -> bool:
        """Whether advise_widget has the table of these answers."""
        return (bound, kind) in self.widget_tables

    def _run(self, function: str, *args: Any, **more: Any) -> Any:
        if not self.waiting.acquire(blocking=False):
            raise _busy()
        try:
            future = self.executor.submit(self._call, function, args, more)
            future.add_done_callback(lambda _: self.waiting.release())
        except BaseException:
            self.waiting.release()
            raise
        try:
            return future.result(self.timeout_s)
        except FutureTimeoutError:
            future.cancel()
            raise _busy() from None
        except RegionError as error:
            raise from_region_error(error) from None
        except ValueError as error:
            code = getattr(error, "code", None)
            if code is None:
                raise
            raise Problem(422, code, "", str(error), remedy=getattr(error, "remedy", "")) from None

    def _call(self, function: str, args: tuple[Any, ...], more: Json) -> Any:
        from app import service
        from profiler.region.leftovers import forget

        self.calls += 1
        if self.calls % FORGET_EVERY == 0:
            forget()
        return getattr(service, function)(*args, **more)


def _is_whole(prepared: Prepared, foreseen: Foreseen) -> bool:
    """Whether asking again would get no more: every mode answered, and how sizes that vary are met."""
    varies = len([b for b in prepared.workload.bindings if b.sizes]) > 1
    silent = foreseen.recompiles is None and varies and bool(foreseen.predictions)
    return not silent and not any(p.unavailable for p in foreseen.predictions)


def _busy() -> Problem:
    return Problem(
        503,
        "advice-timeout",
        "",
        "Advice on this region takes too long. Try again later.",
        headers={"Retry-After": "5"},
    )
