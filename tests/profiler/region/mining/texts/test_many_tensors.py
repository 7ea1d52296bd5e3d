"""Optimizers' steps, loss scaling and gradients as texts of one tensor: they compute what torch's classes do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.mining.mine import MinedRegion, mine
from profiler.region.mining.texts.many_tensors import Gradients, accumulations, gradients_of
from profiler.region.mining.units import DTYPES
from profiler.trace.model import Step, Trace
from profiler.trace.read.reader import read_trace
from tests.profiler.region.mined import mined
from tests.profiler.region.recording import record
from tests.profiler.trace.files import real

SIZES = ((48, 32), (48,), (7, 48), (7,), (7, 5))
LONG_AGO = 1e7
"""Steps after which Adam's bias corrections are one."""

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda p, **how: torch.optim.SGD(p, lr=0.1, **how),
    "SGD with a penalty": lambda p, **how: torch.optim.SGD(p, lr=0.1, weight_decay=0.02, **how),
    "SGD with momentum": lambda p, **how: torch.optim.SGD(p, lr=0.05, momentum=0.9, **how),
    "SGD with both": lambda p, **how: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.02, **how),
    "Adam": lambda p, **how: torch.optim.Adam(p, **how),
    "Adam with a penalty": lambda p, **how: torch.optim.Adam(p, weight_decay=0.02, **how),
    "AdamW": lambda p, **how: torch.optim.AdamW(p, **how),
    "RMSprop": lambda p, **how: torch.optim.RMSprop(p, **how),
    "Adagrad": lambda p, **how: torch.optim.Adagrad(p, **how),
}
FUSED = [n for n in OPTIMIZERS if n != "RMSprop" and n != "Adagrad"]
WAYS = [
    *((n, {"foreach": True}) for n in OPTIMIZERS), *((n, {"foreach": False}) for n in OPTIMIZERS),
    *((n, {"fused": True}) for n in FUSED),
]  # fmt: skip
STATE: Mapping[str, Sequence[str]] = {"m": ("exp_avg", "momentum_buffer"), "v": ("exp_avg_sq", "square_avg", "sum")}


class Model(nn.Module):
    """Parameters of several sizes, each with a gradient of its own values."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors = nn.ParameterList([nn.Parameter(torch.randn(*s)) for s in SIZES])

    def forward(self) -> Tensor:
        return torch.stack([(t * t.detach().cos()).sum() for t in self.tensors]).sum()


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([t.detach().reshape(-1) for t in tensors])


def _state(optimizer: torch.optim.Optimizer, model: Model) -> dict[str, Tensor]:
    state = {"p": _flat(list(model.tensors)), "g": _flat([t.grad for t in model.tensors if t.grad is not None])}
    for name, keys in STATE.items():
        for key in keys:
            values = [optimizer.state[t][key] for t in model.tensors if key in optimizer.state[t]]
            if len(values) == len(SIZES):
                state[name] = _flat(values)
    return {name: tensor.clone() for name, tensor in state.items()}


def _trained(path: Path, name: str, how: dict[str, Any]) -> tuple[MinedRegion, dict[str, Tensor], dict[str, Tensor]]:
    """The step's region, and the optimizer's tensors before and after the last step that was recorded."""
    torch.manual_seed(0)
    model = Model()
    optimizer = OPTIMIZERS[name](model.parameters(), **how)
    seen: list[dict[str, Tensor]] = []

    def step() -> None:
        optimizer.zero_grad()
        model().backward()
        seen.append(_state(optimizer, model))
        optimizer.step()
        seen.append(_state(optimizer, model))

    step()
    for state in optimizer.state.values():
        if "step" in state:
            state["step"] = torch.tensor(LONG_AGO)
    trace = read_trace(record(path, step))
    region = next(r for r in mine(trace).regions if r.title.startswith("optimizer step"))
    return region, seen[-2], seen[-1]


@pytest.mark.parametrize(("name", "how"), WAYS, ids=[f"{n} {next(iter(h))} {next(iter(h.values()))}" for n, h in WAYS])
def test_a_step_over_many_tensors_computes_what_the_optimizer_does(
    name: str, how: dict[str, Any], tmp_path: Path
) -> None:
    region, before, after = _trained(tmp_path / "t.json", name, how)
    assert region.text is not None, region.missing
    built = program(parse(region.text))
    results = built.module(*(before[i.name] for i in parse(region.text).inputs))
    names = parse(region.text).outputs
    for result_name, result in zip(names, results if isinstance(results, tuple) else (results,), strict=True):
        torch.testing.assert_close(result, after[result_name], rtol=1e-4, atol=1e-5)
    assert "p" in names
    assert any("as one of" in a for a in region.assumed)


def test_of_lists_that_were_not_recorded_the_gradients_tell_the_size() -> None:
    """GPT-2 in two recordings: the classes differ, the parameters do not."""
    texts = [
        next(r.text or r.missing for r in mined(f"gpt2_train_autocast_eager{n}.json.gz")[1].regions
             if r.title.startswith("optimizer step"))
        for n in ("", "_stack")
    ]  # fmt: skip
    elements = {i.shape for text in texts for i in parse(text).inputs}
    assert elements == {(81_912_576,)}


def test_gradients_of_several_passes_count_once(tmp_path: Path) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(3):
            model().backward()
        optimizer.step()

    regions = {r.title: r for r in mine(read_trace(record(tmp_path / "t.json", step))).regions}
    count = sum(t.numel() for t in model.tensors)
    for title in ("optimizer step (foreach)", "gradient accumulation"):
        assert regions[title].text is not None, regions[title].missing
    assert {i.shape for i in parse(regions["optimizer step (foreach)"].text or "").inputs} == {(count,)}
    assert {i.shape for i in parse(regions["gradient accumulation"].text or "").inputs} == {(2 * count,)}


@pytest.mark.parametrize(
    "name",
    [
        "gpt2_train_autocast_eager",
        "large_t5_train_autocast_2steps",
        "timm_resnet50_train_fp32",
        "llama_train_bf16_eager",
    ],
)
def test_the_gradients_of_each_step_are_those_that_a_walk_through_its_operations_finds(name: str) -> None:
    trace = real(f"{name}.json.gz")
    handed = accumulations(trace)
    for step in trace.steps:
        assert gradients_of(trace, step, handed) == _walked(trace, step)
    assert any(gradients_of(trace, step, handed).tensors for step in trace.steps)


def _walked(trace: Trace, step: Step) -> Gradients:
    names = [trace.names[int(n)] for n in trace.ops.name]
    adds = {int(p) for n, p in zip(names, trace.ops.parent, strict=True) if n in ("aten::add", "aten::add_")}
    inside = [
        i for i, (n, start) in enumerate(zip(names, trace.ops.start_us, strict=True))
        if n == "torch::autograd::AccumulateGrad" and step.start_us <= start < step.end_us
    ]  # fmt: skip
    elements: dict[str, int] = {}
    count = 0
    for i in [i for i in inside if i not in adds] or inside:
        detail = trace.details[int(trace.ops.detail[i])] if trace.ops.detail[i] >= 0 else None
        if detail is not None and detail.types and detail.types[0] in DTYPES:
            dtype = DTYPES[detail.types[0]]
            elements[dtype] = elements.get(dtype, 0) + math.prod(d for d in detail.dims[0] if isinstance(d, int))
            count += 1
    return Gradients(count, elements)


def test_an_optimizer_that_no_recipe_is_gets_no_text(tmp_path: Path) -> None:
    model = Model()
    optimizer = torch.optim.Adamax(model.parameters(), foreach=True)

    def step() -> None:
        optimizer.zero_grad()
        model().backward()
        optimizer.step()

    region = next(r for r in mine(read_trace(record(tmp_path / "t.json", step))).regions if "optimizer" in r.title)
    assert region.text is None
    assert "which optimizer" in region.missing


def test_loss_scaling_is_a_region_with_a_text(tmp_path: Path) -> None:
    grads, overflows, inverse = [torch.randn(*s) for s in SIZES], torch.zeros(1), torch.tensor(0.25)

    def unscale() -> None:
        torch._amp_foreach_non_finite_check_and_unscale_([g.clone() for g in grads], overflows, inverse)

    region = next(r for r in mine(read_trace(record(tmp_path / "t.json", unscale))).regions if "scaling" in r.title)
    assert region.text is not None, region.missing
    overflow, scaled = program(parse(region.text)).module(_flat(grads), inverse)
    assert not overflow
    torch.testing.assert_close(scaled, _flat(grads) * 0.25)


def test_a_step_whose_parameters_differ_in_type_gets_no_text(tmp_path: Path) -> None:
    tensors = [nn.Parameter(torch.randn(64, dtype=d)) for d in (torch.float32, torch.bfloat16)]
    optimizer = torch.optim.SGD(tensors, lr=0.1, foreach=True)

    def step() -> None:
        optimizer.zero_grad()
        torch.stack([t.float().sum() for t in tensors]).sum().backward()
        optimizer.step()

    region = next(r for r in mine(read_trace(record(tmp_path / "t.json", step))).regions if "optimizer" in r.title)
    assert region.text is None
    assert "several types" in region.missing
