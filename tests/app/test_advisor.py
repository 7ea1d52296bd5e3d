"""What the advisor keeps: the same question is worked on once, unless the oracle did not say all that it was asked."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from app import service
from app.advisor import RECENT, Advisor
from profiler.hardware import Device
from profiler.oracle.model import Prediction
from profiler.oracle.process import Oracle
from profiler.region import leftovers

TEXT = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"


@dataclass(slots=True)
class Silent(Oracle):
    """An oracle whose process never answers in time."""

    asked: list[str] = field(default_factory=list)

    def predict(self, text: str, device: Device, mode: str = "default", *_: Any) -> Prediction:
        self.asked.append(mode)
        return Prediction(device.name, mode, {}, False, unavailable="no answer within 10 s")


@pytest.fixture
def advisor() -> Iterator[Advisor]:
    made = Advisor(timeout_s=60.0)
    yield made
    made.stop()


def test_the_same_question_is_worked_on_once(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    first = advisor.advise_region(TEXT, share_of_step=0.2)
    other = advisor.advise_region(TEXT, share_of_step=0.001)
    assert first["advice"]["tool"] != other["advice"]["tool"]

    def again(*_: Any, **__: Any) -> None:
        raise AssertionError("worked on again")

    monkeypatch.setattr(service, "prepare_region", again)
    assert advisor.advise_region(TEXT, share_of_step=0.2) == first
    with pytest.raises(AssertionError, match="worked on again"):
        advisor.advise_region(TEXT, share_of_step=0.3)


def test_an_answer_that_the_oracle_did_not_give_is_asked_for_again() -> None:
    oracle = Silent()
    advisor = Advisor(timeout_s=60.0, oracle=oracle)
    try:
        advisor.advise_region(TEXT)
        asked = len(oracle.asked)
        advisor.advise_region(TEXT)
        assert len(oracle.asked) == 2 * asked > 0
        advisor.advise_region(TEXT, oracle=False)
        advisor.advise_region(TEXT, oracle=False)
        assert len(oracle.asked) == 2 * asked
    finally:
        advisor.executor.shutdown(wait=False)


def test_what_is_kept_is_bounded(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advisor, "decide", lambda *_, **__: {"advice": {}})
    for rows in range(1, RECENT + 10):
        advisor.recent.put(f"question {rows}", {})
    advisor.advise_region(TEXT)
    assert len(advisor.recent._kept) == RECENT


def test_what_torch_keeps_of_every_region_is_dropped(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a server grows by 28 KB for each text that is new."""

    def kept() -> int:
        sources = len(torch.fx.graph_module._loader.eval_cache)  # type: ignore[attr-defined]
        return sources + sum(name.startswith("<eval_with_key>") for name in linecache.cache)

    monkeypatch.setattr("app.advisor.FORGET_EVERY", 1)
    monkeypatch.setattr(leftovers, "MOST_CALLS", 40)
    texts = [TEXT.replace("128", str(128 + 8 * n)) for n in range(6)]
    seen = []
    for text in texts:
        assert advisor.advise_region(text)["advice"]["tool"]
        seen.append((kept(), len(FakeTensorMode.cache)))
    assert max(sources for sources, _ in seen) <= 2 * seen[0][0]
    assert max(calls for _, calls in seen) < 2 * 40
    leftovers.forget()
    assert kept() == 0
