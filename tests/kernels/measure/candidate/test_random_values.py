"""What depends on random numbers is what two runs under other seeds differ in: outputs, inputs, gradients."""

from __future__ import annotations

import pytest
import torch

from kernels.measure.candidate.random_values import random_gradients, random_inputs, random_outputs
from kernels.measure.candidate.reference import reference
from profiler.region.language.program import program
from profiler.region.language.text import parse

GIVEN = "x: f32[8, 8]\ny: f32[8, 8]\nm: f32[8]\nv: f32[8]\n"
WRITING = (
    "h = F.dropout(x, 0.5)\nreturn F.batch_norm(h, m, v, training=True)",
    "h = F.dropout(x, 0.5)\nreturn F.batch_norm(h, m.abs(), v.abs(), training=False)",
    "h = F.dropout(x, 0.5)\nz = F.batch_norm(y, m, v, None, None, True)\nreturn h, z",
    "h = F.dropout(x, 0.5).unsqueeze(0)\nreturn F.instance_norm(h, m, v)",
    "h = F.dropout(x, 0.5)\nreturn aten.native_batch_norm(h, None, None, m, v, True, 0.1, 1e-5)[0]",
    "z = F.dropout(x, 0.5, True, inplace=True)\nreturn y * 2",
    "z = F.dropout(x[:, 2:], 0.5, True, True)\nreturn y * 2",
    "h = torch.rand_like(y)\nx.copy_(h)\nz = F.relu(x, inplace=True)\nreturn z + y",
    "z = x.t()\nx.add_(torch.rand_like(x))\nreturn z, y",
    "z = x.clone()\na, b = x.chunk(2)\na.add_(torch.rand_like(a))\nreturn x.view(-1), z",
    "z = x.t()\nz.mul_(torch.rand_like(x))\nreturn y.t(), z",
    "z = x + y\ny.bernoulli_(0.5)\nreturn z, torch.randperm(8)",
    "return F.dropout1d(x, 0.5), F.alpha_dropout(y, 0.5), F.alpha_dropout(y, 0.5, True), F.gumbel_softmax(x)",
)  # fmt: skip


@pytest.mark.parametrize("text", WRITING)
def test_random_outputs_and_inputs_are_those_that_differ_by_seed(text: str) -> None:
    module = program(parse(GIVEN + text)).module
    given = [torch.rand(8, 8) + 0.5, torch.rand(8, 8) + 0.5, torch.rand(8), torch.rand(8)]
    runs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        inputs = [t.clone() for t in given]
        runs.append(([o.clone() for o in module(*inputs)], inputs))
    (outputs, inputs), (other_outputs, other_inputs) = runs
    assert random_outputs(module) == {n for n, o in enumerate(outputs) if not torch.equal(o, other_outputs[n])}
    assert random_inputs(module) == {n for n, i in enumerate(inputs) if not torch.equal(i, other_inputs[n])}


TRAINED = "x: f32[8, 8].requires_grad\nw: f32[8, 8].requires_grad\ny: f32[8, 8].requires_grad\n"
GRADIENTS = (
    "return x @ w + F.dropout(y, 0.5)",
    "return (x * w).t().to(f64).sum(0), F.dropout(y, 0.5)",
    "return F.dropout(x @ w, 0.5) + y",
    "return x @ F.dropout(w, 0.5) + y * 2",
    "h = F.dropout(y, 0.5)\nreturn tanh(x + h) + w",
    "h = F.dropout(y, 0.5) + w\nreturn h * h + x",
    "h = F.dropout(y, 0.5) + w\nreturn x / h",
    "h = F.dropout(y, 0.5) + x\nreturn h / w",
    "return F.linear(torch.cat([x, F.dropout(y, 0.5)], 1), torch.cat([w, w], 1))",
    "return torch.where(torch.rand_like(x) > 0.5, x, w) - y",
    "return scaled_dot_product_attention(x[None], w[None], y[None], dropout_p=0.5)",
    "return (x + w)[torch.randperm(8)] + y",
)


@pytest.mark.parametrize("text", GRADIENTS)
def test_random_gradients_are_those_that_differ_by_seed(text: str) -> None:
    built = program(parse(TRAINED + text))
    given = [torch.rand(8, 8) + 0.5 for _ in range(3)]
    upstream = [torch.rand(tuple(o.shape)) for o in built.outputs]
    first, second = (_gradients(built.module, given, upstream, seed) for seed in (1, 2))
    differ = {n for n, (a, b) in enumerate(zip(first, second, strict=True)) if not torch.equal(a, b)}
    assert random_gradients(built.module) == differ


def _gradients(module: torch.fx.GraphModule, given: list[torch.Tensor], upstream: list[torch.Tensor], seed: int
               ) -> tuple[torch.Tensor, ...]:  # fmt: skip
    torch.manual_seed(seed)
    return reference(module, given, [True] * 3, upstream).outputs[len(upstream) :]


def test_where_random_numbers_are_written_on_the_way_every_gradient_may_be_random() -> None:
    module = program(parse(f"{TRAINED}h = x @ w\nh.mul_(torch.rand_like(h))\nreturn h + y")).module
    assert random_gradients(module) == {0, 1, 2}
