"""Tracing against make_fx: the same nodes by the same names, with the same tensors and lines."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.fx
from torch.fx.experimental.proxy_tensor import make_fx

from kernels.codegen.graph import prepare
from profiler.region.graph import lowering
from profiler.region.graph.lazy_code import code_when_run
from profiler.region.graph.lowering import lower, written_alone
from profiler.region.graph.tracing import BeyondTracingError, traced
from profiler.region.language.text import parse

REGIONS = Path(__file__).parents[3] / "regions"
TEXTS = sorted(p for f in ("", "samples", "training") for p in (REGIONS / f).glob("*.txt"))


def shown(module: torch.fx.GraphModule) -> list[tuple[object, ...]]:
    """Every node as far as anybody reads it; storages by the order in which they come."""
    storages: dict[int, int] = {}

    def tensor(value: object) -> object:
        if isinstance(value, tuple | list):
            return [tensor(part) for part in value]
        if not isinstance(value, torch.Tensor):
            return repr(value)
        storage = storages.setdefault(value.untyped_storage()._cdata, len(storages))
        place = (storage, value.storage_offset(), value.requires_grad)
        return (*value.shape, "by", *value.stride(), value.dtype, value.device, *place)

    return [
        (n.op, n.name, str(n.target), repr(n.args), repr(n.kwargs), n.meta.get("custom"), tensor(n.meta.get("val")))
        for n in module.graph.nodes
    ]


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_a_region_is_traced_as_make_fx_does(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def both(run, inputs, runner):
        ours = traced(run, inputs, lambda: runner.custom)
        with torch.fx.traceback.preserve_node_meta():
            theirs = make_fx(run)(*inputs)
        assert shown(ours) == shown(theirs)
        compared.append(run)
        return ours

    monkeypatch.setattr(lowering, "_traced", both)
    region = parse(path.read_text())
    written_alone(lower(region))
    assert len(compared) == (2 if region.requires_grad else 1)


@pytest.mark.parametrize("name", ["layer_norm_call", "group_norm_silu", "cross_entropy", "mse_loss"])
def test_parts_are_traced_as_by_make_fxs_decompositions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def both(runner, run, inputs, in_place):
        assert not in_place
        ours = traced(run, inputs, lambda: runner.custom, prepare._table())
        with torch.fx.traceback.preserve_node_meta():
            theirs = make_fx(run, decomposition_table=dict(prepare._table()))(*inputs)
        assert shown(ours) == shown(theirs)
        compared.append(run)
        return ours

    monkeypatch.setattr(prepare, "_traced", both)
    prepare.prepare(lower(parse((REGIONS / "training" / f"{name}.txt").read_text())))
    assert compared


def test_a_tensor_from_nowhere_is_beyond_tracing() -> None:
    x, other = torch.ones(4), torch.ones(4)
    with pytest.raises(BeyondTracingError):
        traced(lambda value: (value + other,), [x], lambda: None)


def test_a_tensor_that_gets_another_shape_is_left_to_make_fx() -> None:
    with pytest.raises(BeyondTracingError):
        traced(lambda value: (value.mul(2).unsqueeze_(0),), [torch.ones(4)], lambda: None)
    text = "x: f32[2, 3, 8, 8]\ny = F.adaptive_avg_pool2d(x.to(memory_format=torch.channels_last), [1, 1])\nreturn y\n"
    graph = lower(parse(text))
    assert graph.output_tensors[0].shape == (2, 3, 1, 1)


def test_a_module_without_its_code_computes_the_same() -> None:
    region = parse("x: f32[8]\ny = relu(x) * 2\nreturn y\n")
    x = torch.randn(8)
    with code_when_run():
        late = lower(region).module
    assert torch.equal(late(x)[0], lower(region).module(x)[0])
