"""The advisor: what is kept, what is refused and how that is said, who waits for whom. With the server's own forks."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from app.analysis import answering, service
from app.analysis.advice_inputs import AdviceInputs
from app.analysis.candidates import known_names
from app.analysis.questions import DecidedRegion, DecideRequest, Question
from app.errors import Problem
from app.rate_limit import CLIENT, Client
from app.requests.executor import RECENT, WAITING_CAP, Executor, refusal
from app.thresholds import DEFAULTS
from kernels.host import Host, to_json
from profiler.child.limits import MIB, Limits
from profiler.child.pool import Failure
from profiler.child.process import FORK
from profiler.hardware import DEVICES, Device
from profiler.oracle.model import Prediction
from profiler.oracle.process import Oracle
from profiler.region.graph import torch_caches
from tests.app.web.conftest import shared_templates
from tests.processes import alive, wait_for

TEXT = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"
LIMITS = Limits(timeout_s=120.0, grace_s=0.0, memory_bytes=512 * MIB, cpu_s=60.0)
LARGE = "N: sizes[64, 65, 66, 67]\nx: f32[N, 128]\n" + "x = gelu(x) * 2 + softmax(x, -1)\n" * 300 + "return x\n"
"""Seconds of processor time."""


class Make(Protocol):
    def __call__(self, **more: Any) -> Executor: ...


@dataclass(slots=True)
class Silent(Oracle):
    """An oracle whose process never answers in time."""

    asked: list[str] = field(default_factory=list)

    def start(self) -> None:
        pass

    def predict(self, text: str, device: Device, mode: str = "default", *_: Any) -> Prediction:
        self.asked.append(mode)
        return Prediction(device.name, mode, {}, False, unavailable="no answer within 10 s")


@pytest.fixture(scope="module")
def make() -> Iterator[Make]:
    with ExitStack() as made:

        def advisor(**more: Any) -> Executor:
            given: dict[str, Any] = {"limits": LIMITS, "context": lambda: {"host": to_json(Host())}, **more}
            executor = Executor(shared_templates()[FORK], **given)
            made.callback(executor.stop)
            executor.start()
            wait_for(lambda: len(executor.pool.idle) == executor.pool.size, 120)
            return executor

        yield advisor


@pytest.fixture(scope="module")
def advisor(make: Make) -> Executor:
    return make()


def texts(number: int) -> list[str]:
    """As many that nobody has asked for."""
    texts.made += number  # type: ignore[attr-defined]
    last: int = texts.made  # type: ignore[attr-defined]
    return [TEXT.replace("128", str(128 + n)) for n in range(last - number, last)]


texts.made = 1  # type: ignore[attr-defined]


def problem(advisor: Executor, text: str) -> Problem:
    with pytest.raises(Problem) as refused:
        advisor.advise_region(text)
    return refused.value


class Asking(threading.Thread):
    """A client's request, in a thread as the server has it."""

    def __init__(self, advisor: Executor, text: str, client: str | None = None) -> None:
        super().__init__(daemon=True)
        self.advisor, self.text, self.client = advisor, text, client
        self.answer: Any = None
        self.start()

    def run(self) -> None:
        CLIENT.set(Client(self.client, 16) if self.client else None)
        try:
            self.answer = self.advisor.advise_region(self.text)
        except Problem as refused:
            self.answer = refused

    def end(self) -> Any:
        self.join(120)
        assert not self.is_alive()
        return self.answer


@dataclass
class Held:
    """Children of an advisor that are stopped, so that whoever asks them waits."""

    pids: list[int]

    def go(self) -> None:
        for pid in self.pids:
            os.kill(pid, signal.SIGCONT)


def hold(advisor: Executor, number: int = 2) -> Held:
    wait_for(lambda: len(advisor.pool.idle) == advisor.pool.size, 60)
    held = Held([member.child.pid for member in advisor.pool.idle[:number]])
    for pid in held.pids:
        os.kill(pid, signal.SIGSTOP)
    return held


def test_the_same_question_is_worked_on_once(advisor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TEXT.replace("64, 128", "8192, 4096")  # the GPU's time counts, not its launches
    first = advisor.advise_region(text, share_of_step=0.2)
    other = advisor.advise_region(text, share_of_step=0.001)
    assert first["advice"]["tool"] != other["advice"]["tool"]

    def again(*_: Any, **__: Any) -> None:
        raise AssertionError("worked on again")

    monkeypatch.setattr(advisor.pool, "ask", again)
    assert advisor.advise_region(text, share_of_step=0.2) == first
    with pytest.raises(AssertionError, match="worked on again"):
        advisor.advise_region(text, share_of_step=0.3)


def test_its_answer_is_the_services_own(advisor: Executor) -> None:
    asked: dict[str, Any] = {"share_of_step": 0.25, "device": "NVIDIA H100"}
    assert advisor.advise_region(TEXT, **asked) == service.advise_region(TEXT, **asked)
    question = Question(TEXT, asked)
    assert advisor.on_device(question, "NVIDIA L4")["advice"]["device"] == "NVIDIA L4"
    assert len(advisor.on_devices(question)) == len(DEVICES)
    assert "torch.compile" in advisor.replay_script(TEXT)
    assert advisor.candidates() == known_names()


def test_what_the_user_did_wrong_is_said_as_the_region_says_it(advisor: Executor) -> None:
    wrong = problem(advisor, "x: f32[4, 5]\nreturn x @ x\n")
    assert (wrong.status, wrong.code.partition("-")[0]) == (422, "region")
    with pytest.raises(Problem) as unknown:
        advisor.advise_region(TEXT, device="TI-83")
    assert (unknown.value.status, unknown.value.code) == (422, "device-unknown")
    with pytest.raises(KeyError):
        advisor.make_kit(TEXT, candidate="nothing of the kind")


def test_an_answer_that_the_oracle_did_not_give_is_asked_for_again(make: Make) -> None:
    oracle = Silent()
    advisor = make(oracle=oracle)
    advisor.advise_region(TEXT)
    asked = len(oracle.asked)
    advisor.advise_region(TEXT)
    assert len(oracle.asked) == 2 * asked > 0
    advisor.advise_region(TEXT, oracle=False)
    advisor.advise_region(TEXT, oracle=False)
    assert len(oracle.asked) == 2 * asked


def test_what_is_kept_is_bounded(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    advisor = Executor(shared_templates()[FORK], limits=LIMITS)
    decided = DecidedRegion({"advice": {}}, AdviceInputs())  # type: ignore[typeddict-item]
    monkeypatch.setattr(advisor, "decide", lambda *_, **__: decided)
    for rows in range(1, RECENT + 10):
        advisor.recent.put(f"question {rows}", b"{}")
    advisor.advise_region(TEXT)
    assert len(advisor.recent._kept) == RECENT


def test_what_torch_keeps_of_every_region_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a child grows by 28 KB for each text that is new."""
    import io
    import json
    import linecache

    def kept() -> int:
        sources = len(torch.fx.graph_module._loader.eval_cache)  # type: ignore[attr-defined]
        return sources + sum(name.startswith("<eval_with_key>") for name in linecache.cache)

    monkeypatch.setattr(answering, "FORGET_EVERY", 1)
    monkeypatch.setattr(answering, "_prepared", answering.Recent(answering.KEPT))
    monkeypatch.setattr(torch_caches, "MOST_CALLS", 40)
    torch_caches.forget()  # what other tests of this process left
    seen = []

    class Answers(io.StringIO):
        def flush(self) -> None:
            seen.append((kept(), len(FakeTensorMode.cache)))

    asked = [{}, *(msgspec.to_builtins(DecideRequest(Question(text))) for text in texts(6))]
    answers = Answers()
    answering.serve(io.StringIO("".join(json.dumps(line) + "\n" for line in asked)), answers)
    assert all(json.loads(line)["value"] for line in answers.getvalue().splitlines())
    _, *seen = seen  # the greeting
    assert max(sources for sources, _ in seen) <= 2 * seen[0][0]
    assert max(calls for _, calls in seen) < 2 * 40
    torch_caches.forget()
    assert kept() == 0


def test_one_over_its_processor_time_is_refused_and_the_next_is_answered_at_once(make: Make) -> None:
    advisor = make(size=1, limits=Limits(120.0, 0.0, 512 * MIB, 1.0))
    (pid,) = [m.child.pid for m in advisor.pool.idle]
    refused = problem(advisor, LARGE)
    assert (refused.status, refused.code) == (422, "advice-limit")
    assert "more than 1 s of processor time" in refused.detail
    assert not alive(pid)
    assert advisor.advise_region(TEXT)["advice"]["tool"]
    assert advisor.pool.ended == {Failure.CPU: 1}


def test_one_over_its_memory_is_refused_and_the_next_is_answered_at_once(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    advisor = make(size=1, limits=Limits(120.0, 0.0, 1 * MIB, 60.0))
    refused = problem(advisor, LARGE)
    assert (refused.status, refused.code) == (422, "advice-limit")
    assert "more than 1 MiB of memory" in refused.detail
    advisor.pool.limits = LIMITS
    assert advisor.advise_region(TEXT)["advice"]["tool"]


def test_one_that_takes_too_long_is_refused_as_such(make: Make) -> None:
    advisor = make(size=1, limits=Limits(0.2, 0.0, 512 * MIB, 60.0))
    hold(advisor, 1)
    refused = problem(advisor, TEXT)
    assert (refused.status, refused.code) == (503, "advice-timeout")
    assert refused.headers["Retry-After"]


def test_a_child_that_is_killed_in_mid_work_costs_nobody_an_answer(make: Make) -> None:
    advisor = make(size=1)
    held = hold(advisor, 1)
    asking = Asking(advisor, *texts(1))
    wait_for(lambda: advisor.pool.busy)
    os.kill(held.pids[0], signal.SIGKILL)
    assert asking.end()["advice"]["tool"]


def test_the_17th_who_asks_at_once_waits_its_turn_and_is_answered(make: Make) -> None:
    advisor = make()
    held = hold(advisor)
    asking = [Asking(advisor, text) for text in texts(17)]
    wait_for(lambda: len(advisor.pool.waiting) == 15)
    held.go()
    assert all(one.end()["advice"]["tool"] for one in asking)


def test_beyond_the_cap_who_asks_is_told_to_come_again(make: Make) -> None:
    advisor = make()
    held = hold(advisor)
    asking = [Asking(advisor, text) for text in texts(2 + WAITING_CAP)]
    wait_for(lambda: len(advisor.pool.waiting) == WAITING_CAP)
    refused = problem(advisor, *texts(1))
    assert (refused.status, refused.code) == (429, "advice-queue-full")
    assert int(refused.headers["Retry-After"]) > 0
    advisor.stop()
    assert {one.end().code for one in asking} == {"stopping"}
    assert not any(alive(pid) for pid in held.pids)


def test_one_remote_client_leaves_a_child_to_others(make: Make) -> None:
    advisor = make()
    held = hold(advisor, 1)
    greedy = [Asking(advisor, text, "greedy") for text in texts(4)]
    wait_for(lambda: len(advisor.pool.waiting) == 3)
    assert Asking(advisor, *texts(1), client="another").end()["advice"]["tool"]
    assert Asking(advisor, *texts(1)).end()["advice"]["tool"], "nobody in particular"
    assert len(advisor.pool.waiting) == 3
    held.go()
    assert all(one.end()["advice"]["tool"] for one in greedy)


REFUSED: Mapping[Failure, tuple[int, str, bool]] = {
    Failure.QUEUE_FULL: (429, "advice-queue-full", True),
    Failure.WAITED: (429, "advice-busy", True),
    Failure.TIMEOUT: (503, "advice-timeout", True),
    Failure.KILLED: (503, "advice-killed", True),
    Failure.STOPPED: (503, "stopping", True),
    Failure.CPU: (422, "advice-limit", False),
    Failure.MEMORY: (422, "advice-limit", False),
    Failure.CRASHED: (422, "advice-crashed", False),
}


@pytest.mark.parametrize("failure", Failure)
def test_every_reason_has_a_code_of_its_own_and_says_when_to_try_again(failure: Failure) -> None:
    refused = refusal(failure, LIMITS)
    assert (refused.status, refused.code, "Retry-After" in refused.headers) == REFUSED[failure]
    assert refused.detail


def test_a_fault_of_ours_is_ours_and_the_next_is_answered(advisor: Executor) -> None:
    with pytest.raises(RuntimeError, match="TypeError"):
        advisor.advise_region(TEXT, no_such_argument=1)
    assert advisor.advise_region(*texts(1))["advice"]["tool"]
    assert advisor.thresholds == DEFAULTS
