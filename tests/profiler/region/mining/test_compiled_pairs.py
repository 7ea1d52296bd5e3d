"""Backward regions of a compiled model, recorded here: each names the forward that it computes the gradient of."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from profiler.region.mining.compiled_pairs import own_forward
from profiler.region.mining.mine import MinedRegion, Mining, mine
from profiler.region.mining.units import Unit
from profiler.trace.model import NONE
from profiler.trace.read.reader import read_trace
from tests.profiler.region.recording import record

ROWS, WIDTHS = 100, (64, 128, 32, 48)


@pytest.fixture(scope="module")
def mining(tmp_path_factory: pytest.TempPathFactory) -> Mining:
    """Three products of their own sizes with other operations between, compiled as one graph."""
    weights = [torch.randn(a, b, requires_grad=True) for a, b in pairwise(WIDTHS)]

    def model(x: torch.Tensor) -> torch.Tensor:
        first, second, third = weights
        return F.layer_norm(F.silu(F.gelu(x @ first) @ second) @ third, (WIDTHS[-1],))

    compiled = torch.compile(model, backend="aot_eager")
    x = torch.randn(ROWS, WIDTHS[0], requires_grad=True)

    def train() -> None:
        compiled(x).sum().backward()

    train()
    return mine(read_trace(record(tmp_path_factory.mktemp("compiled") / "t.json", train)))


def partner(mining: Mining, region: MinedRegion) -> MinedRegion | None:
    return next((r for r in mining.regions if r.id_hint == region.forward_of), None)


def backward(mining: Mining, operation: str) -> list[MinedRegion]:
    return [r for r in mining.regions if r.operations == (operation,) and r.backward]


def test_both_gradients_of_a_product_name_that_product(mining: Mining) -> None:
    sizes = {tuple(sorted((ROWS, *pair))) for pair in pairwise(WIDTHS)}
    seen = []
    for region in backward(mining, "mm"):
        made = partner(mining, region)
        assert made is not None, region.title
        of_gradient, of_product = (_sizes(r.shapes[0].operands[:2]) for r in (region, made))
        assert of_gradient == of_product
        seen.append(of_gradient)
    assert sorted(seen) == sorted([*sizes, *sizes])


def _sizes(operands: tuple[str, ...]) -> tuple[int, ...]:
    """The three sizes of a product of two matrices, from their texts: "x: f32[100, 64]"."""
    listed = [o[o.index("[") + 1 : o.index("]")].split(", ") for o in operands]
    return tuple(sorted({int(n) for dims in listed for n in dims}))


@pytest.mark.parametrize(
    ("operation", "forward"), [("gelu_backward", "gelu"), ("silu_backward", "silu"),
                               ("native_layer_norm_backward", "native_layer_norm")],
)  # fmt: skip
def test_an_operations_gradient_names_the_region_of_that_operation(
    mining: Mining, operation: str, forward: str
) -> None:
    (region,) = backward(mining, operation)
    made = partner(mining, region)
    assert made is not None
    assert forward in made.operations


def kernel(op: int, name: str, time_us: float = 10.0) -> Unit:
    return Unit(op, name, False, 1, (), NONE, NONE, float(op), kernels=[op], time_us=time_us)


def test_a_compiled_kernel_goes_by_the_words_of_its_name_and_by_none_where_none_are_shared() -> None:
    forward = [
        kernel(0, "triton_red_fused_add_native_layer_norm_0"), kernel(1, "triton_poi_fused_gelu_view_1", 90.0),
        kernel(2, "triton_poi_fused_mul_silu_2"),
    ]  # fmt: skip
    pairs = {
        "triton_poi_fused_gelu_gelu_backward_4": 1, "triton_poi_fused_mul_silu_silu_backward_5": 2,
        "triton_per_fused_add_native_layer_norm_backward_sum_6": 0,
    }  # fmt: skip
    for name, op in pairs.items():
        found = own_forward(kernel(9, name), forward)
        assert found is not None and found.op == op, name
    assert own_forward(kernel(9, "triton_red_fused_sum_view_7"), forward) is None
