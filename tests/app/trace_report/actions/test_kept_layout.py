"""Where a compiled model keeps images channels-last: Inductor's own decision on the same convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn
from torch._inductor.graph import GraphLowering
from torch.fx.experimental.proxy_tensor import make_fx

from app.trace_report.actions.kept_layout import convolutions, keeps_channels_last
from app.trace_report.actions.ranking import plan
from app.trace_report.actions.whole_step import COMPILE
from tests.app.trace_report.test_speedup import region, trace

Json = dict[str, Any]
Sizes = tuple[int, int, int, int]
"""Of a convolution: channels in and out, the window's side, groups."""
SIDE = 16
MODELS: dict[str, Sequence[Sizes]] = {
    "usual": [(3, 96, 7, 1), (96, 128, 3, 1)],
    "depthwise": [(96, 96, 7, 96), (96, 384, 1, 1)],
    "grouped": [(224, 224, 3, 2), (224, 448, 1, 1)],
    "narrowing": [(256, 96, 3, 1), (96, 256, 3, 1)],
    "a narrowing point": [(256, 96, 1, 1), (96, 256, 3, 1)],
    "small": [(3, 32, 3, 1), (32, 64, 3, 1)],
    "small and narrowing": [(64, 32, 3, 1), (32, 128, 3, 1)],
    "mostly grouped": [(224, 224, 3, 2), (224, 8, 1, 1)],
}


def by_inductor(sizes: Sequence[Sizes], trained: bool) -> bool:
    layers = [nn.Conv2d(i, o, k, padding=k // 2, groups=g, bias=False, device="meta") for i, o, k, g in sizes]
    inputs = [torch.empty(2, i, SIDE, SIDE, device="meta") for i, _, _, _ in sizes]
    graph = make_fx(lambda *x: [layer(t) for layer, t in zip(layers, x, strict=True)])(*inputs)
    for node in graph.graph.nodes:
        if node.op == "get_attr":
            node.meta["val"] = getattr(graph, node.target)
    for node, value in zip(graph.graph.find_nodes(op="placeholder"), inputs, strict=True):
        node.meta["val"] = value
    with mock.patch.object(torch.backends.mkldnn, "is_available", return_value=False):  # which takes all that a CPU has
        return bool(GraphLowering.decide_layout_opt(graph, is_inference=not trained))


def regions(sizes: Sequence[Sizes]) -> list[Json]:
    made = []
    for i, o, k, groups in sizes:
        told = f", groups={groups}" if groups > 1 else ""
        text = f"x: f32[2, N, {SIDE}, {SIDE}]\nw: f32[{o}, {i // groups}, {k}, {k}].requires_grad\n"
        flops = 2.0 * 2 * SIDE * SIDE * o * i // groups * k * k
        made.append(
            region("a", 100.0, "skip", None, text=f"{text}y = relu(conv2d(x, w{told}))\nreturn y\n",
                   cost={"gemm_flops": flops}, shapes=[{"binding": {"N": i}, "calls": 1.0}])
        )  # fmt: skip
    return made


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_it_is_what_inductor_decides(name: str, trained: bool) -> None:
    assert keeps_channels_last(regions(MODELS[name]), trained) is by_inductor(MODELS[name], trained)  # type: ignore[arg-type]


def test_groups_and_channels_that_differ_from_call_to_call_are_read_from_each() -> None:
    text = "N: sizes[448, 896]\nK: sizes[4, 8]\nx: f32[96, N, 14, 14]\nw: f32[N, 112, 3, 3].requires_grad\n"
    shapes = [{"binding": {"N": 448, "K": 4}, "calls": 4.0}, {"binding": {"N": 896, "K": 8}, "calls": 12.0}]
    found = SimpleNamespace(**region("a", 1.0, text=f"{text}y = conv2d(x, w, groups=K)\nreturn y\n", shapes=shapes))
    told = list(convolutions(vars(found)))  # type: ignore[arg-type]
    assert [(c.weight, c.groups) for c in told] == [((448, 112, 3, 3), 4), ((896, 112, 3, 3), 8)]


@pytest.mark.parametrize(("name", "left_us"), [("usual", 700.0), ("grouped", 1000.0)])
def test_kernels_that_turn_images_around_stay_where_the_layout_does(name: str, left_us: float) -> None:
    """Two regions of 500 µs, of which torch.compile leaves all, and 150 µs of each turn images around."""
    made = [
        {**r, "name": n, "busy_us_per_step": 500.0, "time_us_per_step": 500.0, "gpu_paced_us_per_step": 500.0,
         "advice": {**r["advice"], "alternatives": [
             {"candidate": c, "admitted": True, "time_us": {"low": 500.0, "mid": 500.0, "high": 500.0}}
             for c in ("eager", "compile")]}}
        for n, r in zip("ab", regions(MODELS[name]), strict=True)
    ]  # fmt: skip
    rows = [{"name": "nchwToNhwcKernel", "label": "", "kind": "", "time_us": 300.0, "calls_per_step": 2.0,
             "regions": [0, 1]}]  # fmt: skip
    known = plan(trace(made, where={"kernels": rows}, backward_time_us=1.0))  # type: ignore[arg-type]
    assert known is not None
    compiled = [p.after_us[1] for p in known[1] if p.option.id == COMPILE and p.after_us]
    assert (compiled or [1000.0]) == [pytest.approx(left_us)]
