"""What a child does for its answers: a text is read once and lowered once, whatever is asked of it."""

from __future__ import annotations

from typing import Any

import pytest

from app.analysis import answering
from app.analysis.questions import (
    AnyRequest,
    DecideRequest,
    DeviceRequest,
    DevicesRequest,
    OutlineRequest,
    Question,
    ReplayRequest,
)
from app.thresholds import DEFAULTS
from kernels.libraries import coverage
from profiler.hardware import DEVICES
from profiler.region.graph import lowering
from profiler.region.graph.patterns import match
from profiler.region.language import syntax
from profiler.region.language.text import parse

FORWARD = "x: f32[64, 1{n}]\nw: f32[1{n}]\ny = x * rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w\nreturn y\n"
TRAINED = "x: f32[64, 1{n}].requires_grad\ny = gelu(x) * 2\nreturn y\n"


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[Any]:
    """The first argument of each call from now on."""
    function, calls = getattr(module, name), []

    def call(first: Any, *more: Any, **named: Any) -> Any:
        calls.append(first)
        return function(first, *more, **named)

    monkeypatch.setattr(module, name, call)
    return calls


def questions(text: str) -> list[AnyRequest]:
    question = Question(text, {"share_of_step": 0.2, "device": "H200"})
    return [
        OutlineRequest(question),
        DecideRequest(question),
        DeviceRequest(question, "NVIDIA L4"),
        DevicesRequest(question),
    ]


@pytest.mark.parametrize(("form", "lowerings"), [(FORWARD, 1), (TRAINED, 2)], ids=["forward", "and its gradients"])
def test_a_text_is_read_once_and_each_of_its_graphs_is_made_once(
    form: str, lowerings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of forward and backward there is a graph of what was written as well, in which patterns are looked for."""
    text = form.replace("1{n}", "96")
    reads = counted(monkeypatch, syntax, "read")
    lowered = counted(monkeypatch, lowering, "_traced")
    for request in questions(text):
        answering.answer(request, DEFAULTS)
    assert reads == [text]
    assert len(lowered) == lowerings
    answering.answer(ReplayRequest(text), DEFAULTS)  # reads the region at small sizes too, which is another text
    assert reads.count(text) == 1


@pytest.mark.parametrize("form", [FORWARD, TRAINED])
def test_the_calls_on_another_device_are_those_of_a_region_that_is_lowered_anew(form: str) -> None:
    """What is tried on a graph meanwhile, such as generating kernels, leaves it as it was."""
    from app.analysis import service
    from app.analysis.device_host import as_host
    from kernels.host import probe_host

    text = form.replace("1{n}", "80")
    prepared = service.prepare_region(text, device="H200")
    graph = lowering.written_alone(lowering.lower(parse(text)))
    for device in DEVICES:
        host = as_host(probe_host(), device)
        assert prepared.covers_on(host) == coverage(graph, match(graph), host), device.name
