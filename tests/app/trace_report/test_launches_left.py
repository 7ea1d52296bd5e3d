"""The launches that are left of a region, by our rules, against the kernels that Inductor writes for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.analysis import service
from app.analysis.advice_inputs import TraceFacts
from app.analysis.analyze import AdviceContext, AnalyzedRegion, decide, prepare
from app.trace_report.launches_left import compiled_launches, launches_left
from kernels.host import Host
from profiler.hardware import Device, find_device
from profiler.oracle.cache import Cache
from profiler.oracle.process import Oracle
from profiler.region.language.text import parse
from profiler.region.model import Workload

TEXTS = {
    "batch norm behind a convolution": (
        "x: f32[64, 64, 56, 56].requires_grad.channels_last\nw: f32[64, 64, 3, 3].requires_grad\n"
        "g: f32[64].requires_grad\nb: f32[64].requires_grad\nmean: f32[64]\nvar: f32[64]\n"
        "z = conv2d(x, w, padding=[1, 1])\nreturn relu(batch_norm(z, mean, var, g, b, training=True))\n"
    ),
    "GELU by hand": (
        "x: bf16[8192, 3072].requires_grad\nz = x + 0.044715 * x ** 3.0\n"
        "return 0.5 * x * (1.0 + tanh(0.7978845608 * z))\n"
    ),
    "SwiGLU": "gate: bf16[8192, 8192].requires_grad\nup: bf16[8192, 8192].requires_grad\nreturn silu(gate) * up\n",
    "LayerNorm behind a residual": (
        "x: f32[8192, 768].requires_grad\nr: f32[8192, 768].requires_grad\nw: f32[768].requires_grad\n"
        "b: f32[768].requires_grad\nreturn layer_norm(x + r, [768], w, b, 1e-05)\n"
    ),
    "forward alone": "x: bf16[8192, 3072]\nw: bf16[3072]\nreturn rms_norm(x, [3072], w, 1e-06)\n",
}


def h200() -> Device:
    device = find_device("NVIDIA H200")
    assert device is not None
    return device


def prepared(text: str, launches: float | None = None) -> AnalyzedRegion:
    host = Host(gpu="NVIDIA H200", capability=(9, 0), versions={"torch": "2.11.0"}, packages=frozenset({"torch"}))
    return prepare(parse(text), Workload(), h200(), AdviceContext(facts=TraceFacts(launches=launches), host=host))


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    asked = Oracle(Cache(tmp_path_factory.mktemp("oracle")), timeout_s=120.0)
    yield asked
    asked.stop()


@pytest.mark.parametrize("name", TEXTS)
def test_forward_and_backward_launch_what_inductor_makes_of_them(name: str, oracle: Oracle) -> None:
    """Inductor compiles the two apart, sums a channel over all images in blocks, and a row's gradients alone."""
    region = prepared(TEXTS[name])
    (asked,) = service.predict_compile(oracle, region).predictions[:1]
    assert not asked.unavailable
    shape = region.facts.heaviest
    assert shape is not None
    assert compiled_launches(shape.cost) == pytest.approx(asked.launches, rel=0.2)  # in two a weight is turned around


def test_what_a_library_launches_beyond_one_kernel_stays() -> None:
    """A convolution that turns its images around launches four kernels, compiled or not."""
    text = "x: f32[8, 64, 56, 56]\nw: f32[64, 64, 3, 3]\nreturn relu(conv2d(x, w) + 1.0)\n"
    one, four = prepared(text), prepared(text, launches=6.0)
    left = [launches_left(r.facts, decide(r).advice)["compile"] for r in (one, four)]
    assert left == [pytest.approx(2 / 3), pytest.approx(5 / 6)]


def test_what_an_operation_of_several_kernels_launches_goes_away_with_it() -> None:
    text = "x: bf16[8192, 3072]\nreturn tanh(x * 2.0) + 1.0\n"
    region = prepared(text, launches=4.0)
    assert launches_left(region.facts, decide(region).advice)["compile"] == pytest.approx(1 / 4)
