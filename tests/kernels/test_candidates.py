"""Which candidates a region has, in which order, and what is said of those it has not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kernels import baselines
from kernels.candidates import HELION, build, candidates
from kernels.codegen.index import Unsupported
from kernels.host import Host
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse

HOST = Host(packages=frozenset({"torch", "triton"}), features=frozenset({"F.rms_norm"}))
FIRST = ["eager", "compile", "compile-max-autotune"]


def offered(text: str) -> dict[str, str]:
    """Name -> reason, "" where available."""
    return {c.name: c.reason if not c.available else "" for c in candidates(lower(parse(text)), HOST)}


def test_baselines_come_first_and_the_generated_kernel_last() -> None:
    names = list(offered("x: bf16[64, 128]\ny = torch.softmax(x * 2, -1)\nreturn y\n"))
    assert names[:3] == FIRST
    assert names[-1] == "triton:generated"
    assert names.index("library:torch.softmax") < names.index("triton:softmax")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x: bf16[64, 32]\nw: bf16[32, 64]\ny = x @ w\nreturn y\n", "no kernel to generate"),
        ("x: f32[64, 32]\ny = torch.asin(x)\nreturn y\n", "asin"),
        ("x: f32[64, 32]\ny = F.pad(x, (-1, 0)) * 2\nreturn y\n", "negative padding"),
        ("x: f32[64, 32]\ny = (x % 3) + 1\nreturn y\n", "fmod"),
        (
            "x: f32[64, 32].requires_grad\nm: f32[64, 32]\ny = x * torch.tanh(m)\nm.add_(1)\nreturn y\n",
            "in the backward reads an input",
        ),
    ],
)
def test_what_cannot_be_generated_is_said(text: str, reason: str) -> None:
    assert reason in offered(text)["triton:generated"]
    with pytest.raises(Unsupported, match=reason):
        build("triton:generated", parse(text), {}, "cpu")


@pytest.mark.parametrize(
    "text",
    [
        "x: f32[64, 32]\ny = x.sum(0)\nreturn y\n",
        "x: f32[4000, 4000]\ny = x.sum()\nreturn y\n",
        "x: f32[64, 32]\ny = F.dropout(x, 0.5)\nreturn y\n",
        "x: f32[64, 32].requires_grad\ny = torch.tanh(x)\nreturn y\n",
        "x: f32[64, 32].requires_grad\nw: f32[32].requires_grad\ny = torch.tanh(x)\nreturn y\n",
        "x: f32[64, 32]\nx.add_(1)\nreturn x * 2\n",
    ],
)
def test_sums_over_any_axis_dropout_and_gradients_are_generated(text: str) -> None:
    assert offered(text)["triton:generated"] == ""


def test_a_hand_written_kernel_is_refused_where_the_region_does_more() -> None:
    reasons = offered("x: bf16[64, 128]\ny = torch.softmax(x, -1) * 2\nreturn y\n")
    assert "does more" in reasons["triton:softmax"]
    assert reasons["triton:generated"] == ""
    assert "another axis" in offered("x: f32[64, 128]\ny = torch.softmax(x, 0)\nreturn y\n")["triton:softmax"]


def test_generated_candidates_show_their_whole_text() -> None:
    found = {c.name: c for c in candidates(lower(parse("x: f32[64, 128]\ny = torch.tanh(x) * 2\nreturn y\n")), HOST)}
    source = found["triton:generated"].source
    assert "@triton.jit" in source
    assert "# y = torch.tanh(x) * 2" in source
    compile(source, "kernel.py", "exec")


def test_eager_and_unknown_names() -> None:
    region = parse("x: f32[4, 8]\ny = x + 1\nreturn y\n")
    x = torch.randn(4, 8)
    (out,) = build("eager", region, {}, "cpu")(x)
    torch.testing.assert_close(out, x + 1)
    assert not out.requires_grad
    for name in ("nonsense", "library:nonsense", "triton:nonsense"):
        with pytest.raises(KeyError):
            build(name, region, {}, "cpu")


def test_modes_are_torch_compiles_own_names() -> None:
    known = set(torch._inductor.list_mode_options())
    assert {m for m in baselines.MODES.values() if m} <= known
    assert set(baselines.CALLS) == {"eager", *baselines.MODES}


def test_symbols_are_bound() -> None:
    region = parse("N: sizes[3, 5]\nx: f32[N, 8]\ny = x * 2\nreturn y\n")
    for size in (3, 5):
        (out,) = build("eager", region, {"N": size}, "cpu")(torch.ones(size, 8))
        assert out.shape == (size, 8)


def test_cuda_graphs_are_measured_only_where_asked_for() -> None:
    found = {c.name: c for c in candidates(lower(parse("x: f32[64, 128]\ny = torch.tanh(x) * 2\nreturn y\n")), HOST)}
    assert [n for n, c in found.items() if c.on_request] == ["compile-reduce-overhead"]
    assert found["compile-reduce-overhead"].available


def test_a_call_that_nothing_here_can_try_is_not_said_to_be_unsupported() -> None:
    same = {c.name: c for c in candidates(lower(parse("x: bf16[64, 128]\ny = torch.softmax(x, -1)\nreturn y\n")), HOST)}
    already = same["library:torch.softmax"]
    assert "already" in already.reason
    assert already.untried
    assert not any(c.untried for c in same.values() if c.available)


def test_helion_is_in_the_race_where_it_is_installed() -> None:
    graph = lower(parse("x: bf16[64, 96]\nreturn softmax(x.float(), -1).to(bf16)\n"))
    assert HELION not in {c.name for c in candidates(graph, Host())}
    for gpu, available in ((None, False), ("NVIDIA H200", True)):
        host = replace(Host(), packages=frozenset({"torch", "triton", "helion"}), gpu=gpu)
        (candidate,) = (c for c in candidates(graph, host) if c.name == HELION)
        assert candidate.available is available and "hl.tile" in candidate.source
    refused = lower(parse("x: bf16[64, 96]\nreturn x.float().cumsum(0)\n"))
    (candidate,) = (c for c in candidates(refused, host) if c.name == HELION)
    assert not candidate.available and "cumsum" in candidate.reason
