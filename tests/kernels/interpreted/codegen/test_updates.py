"""Generated regions that write into their inputs, and gradients that are not there: as eager leaves them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from kernels.agreement import fault_of
from kernels.candidates import build
from kernels.codegen.generated import trained
from kernels.codegen.graph.updates import updates
from kernels.codegen.index import Unsupported
from profiler.region.graph.lowering import lower
from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.model import Region
from tests.kernels.interpreted.checking import assert_as_exact_as_eager, generated, inputs_of

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

Call = Callable[..., Sequence[torch.Tensor]]
Results = list[torch.Tensor | None]


def run(region: Region, call: Call, values: Sequence[torch.Tensor], calls: int = 1) -> Results:
    """Outputs, gradients (None where there is none) and what the inputs hold after so many calls in a row."""
    values = [v.detach().clone().requires_grad_(i.requires_grad) for v, i in zip(values, region.inputs, strict=True)]
    made = [tuple(call(*values)) for _ in range(calls)]
    results: Results = []
    for outputs in made:
        results += [o.detach() for o in outputs]
        generator = torch.Generator().manual_seed(5)
        pairs = [(o, torch.randn(o.shape, generator=generator).to(o.dtype)) for o in outputs if o.requires_grad]
        if region.requires_grad:
            wanted = [v for v in values if v.requires_grad]
            ends, upstream = [o for o, _ in pairs], [g for _, g in pairs]
            results += torch.autograd.grad(ends, wanted, upstream, allow_unused=True)
    return [*results, *(v.detach() for v in values)]


def compare(text: str, calls: int = 1) -> None:
    """All of `run` by eager's own error, and None where it is."""
    region = parse(text)
    values = inputs_of(region)
    wide = [v.double() if v.dtype.is_floating_point else v for v in values]
    plain = program(region).module
    eager, mine = (run(region, c, values, calls) for c in (plain, build("triton:generated", region, {}, "cpu")))
    exact = run(region, plain, wide, calls)
    assert any(not torch.equal(before, after) for before, after in zip(values, eager[-len(values) :], strict=True)) or (
        None in eager
    )
    for number, (there, here, right) in enumerate(zip(eager, mine, exact, strict=True)):
        if there is None or here is None or right is None:
            assert there is here is right is None, number
            continue
        assert (here.shape, here.dtype) == (there.shape, there.dtype)
        assert fault_of(here, there, right) == "", number


BATCH_NORM = """x: {d}[8, 6, 4, 4]{g}{l}
w: f32[6]{g}
b: f32[6]{g}
mean: f32[6]
var: f32[6]
y = relu(batch_norm(x, mean, var, w, b, training=True))
return y
"""


@pytest.mark.parametrize("layout", ["", ".channels_last"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("grad", ["", ".requires_grad"])
def test_a_batch_norm_leaves_its_running_statistics_as_eager_does(grad: str, dtype: str, layout: str) -> None:
    compare(BATCH_NORM.format(d=dtype, g=grad, l=layout))


def test_statistics_move_on_with_each_call_and_no_backward_waits_for_it() -> None:
    compare(BATCH_NORM.format(d="f32", g=".requires_grad", l=""), calls=3)


CHANGED = {
    "one input": "x.add_(1)\nreturn x * 2 + y\n",
    "into each other": "x.copy_(y)\ny.add_(1)\nreturn x * y\n",
    "and read before": "z = x * y\nx.mul_(z).add_(y)\nreturn z, (x + y).sum(-1)\n",
    "a state": "x.lerp_(y, 0.1)\nreturn torch.rsqrt(x.abs() + 1e-3) * y\n",
    "two": "x.mul_(0.9).add_(y, alpha=0.1)\ny.mul_(2)\nreturn x + y\n",
    "by a row": "x.copy_(y.sum(-1, keepdim=True) * 0.01)\nreturn x + 1\n",
}


@pytest.mark.parametrize("name", CHANGED)
def test_inputs_that_are_changed_in_place(name: str) -> None:
    compare(f"x: f32[6, 40]\ny: f32[6, 40]\n{CHANGED[name]}", calls=2)


def test_what_is_written_into_inputs_is_written_at_once_behind_the_kernels() -> None:
    made = trained(lower(parse(BATCH_NORM.format(d="f32", g=".requires_grad", l=""))))
    assert made.forward.kept == ("copy_",) and made.backward.kept == ()
    *_, last, _ = (n for n in made.forward.module.graph.nodes if n.op != "placeholder")
    assert last.target is torch.ops.aten._foreach_copy_.default


def test_a_changed_input_that_is_returned_holds_what_it_holds() -> None:
    compare("x: f32[6, 40]\nx.add_(1)\nreturn x * 2, x, x.view(-1)\n")


def test_inputs_that_would_be_copied_into_each_other_are_refused() -> None:
    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    for target, value in ((x, y), (y, x)):
        graph.call_function(torch.ops.aten.copy_.default, (target, value))
    with pytest.raises(Unsupported, match="itself written over"):
        updates(graph)


def test_a_backward_that_needs_what_was_written_over_is_refused() -> None:
    text = "x: f32[6, 40].requires_grad\nm: f32[6, 40]\ny = x * torch.tanh(m)\nm.add_(1)\nreturn y\n"
    with pytest.raises(Unsupported, match="in the backward reads an input"):
        trained(lower(parse(text)))


def test_a_copy_gives_what_is_copied_in_the_type_of_what_it_is_copied_into() -> None:
    text = "x: {}[6, 40]\ny: f32[40]\nreturn aten.copy(x, y) * 2\n"
    for dtype in ("f32", "bf16"):
        assert_as_exact_as_eager(text.format(dtype), generated)


# gradients that are not there

UNREACHED = {
    "a weight that is not used": "x: f32[4, 8, 6].requires_grad\nw: f32[8].requires_grad\n"
    "y = F.silu(F.group_norm(x, 4))\nreturn y\n",
    "an output of nothing": "x: f32[4, 32].requires_grad\ny: f32[4, 32].requires_grad\n"
    "return x * 2, full_like(y, 3.0)\n",
    "places": "x: f32[4, 32].requires_grad\nt: f32[32, 8].requires_grad\nreturn F.embedding(x.argmin(-1), t) * 2\n",
}


@pytest.mark.parametrize("name", UNREACHED)
def test_an_input_that_no_output_depends_on_has_no_gradient(name: str) -> None:
    compare(UNREACHED[name])


CALLS = {
    "only forward": "x: f32[2, 3, 4, 4].requires_grad\nz: f32[2, 3, 8, 8].requires_grad\n"
    "h = F.interpolate(x, scale_factor=2, mode='bilinear')\nreturn cat([h, z], 1)\n",
    "only backward": "x: f32[4, 32].requires_grad\nw: f32[16, 32].requires_grad\nb: f32[16].requires_grad\n"
    "return F.linear(x, w, b)\n",
}


@pytest.mark.parametrize("name", CALLS)
def test_a_half_that_is_another_librarys_call_leaves_the_region_to_it(name: str) -> None:
    with pytest.raises(Unsupported, match="no kernel to generate"):
        trained(lower(parse(CALLS[name])))


HALVES = {"only backward": "x: f32[4, 32].requires_grad\nreturn x.expand(3, 4, 32)\n"}


@pytest.mark.parametrize("name", HALVES)
def test_a_region_of_which_one_half_has_no_kernel_is_generated(name: str) -> None:
    region = parse(HALVES[name])
    made = trained(lower(region))
    assert sorted(map(len, (made.forward.sources, made.backward.sources)))[0] == 0 < len(made.sources)
    values = inputs_of(region)
    plain = program(region).module
    eager, mine = (run(region, c, values) for c in (plain, made))
    exact = run(region, plain, [v.double() for v in values])
    for there, here, right in zip(eager, mine, exact, strict=True):
        assert there is not None and here is not None and right is not None
        assert fault_of(here, there, right) == ""
