"""Backward regions of a compiled model, recorded here: each names the forward that it computes the gradient of."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from profiler.region.mining.compiled_pairs import (
    ATTENTION,
    CONVOLUTION,
    KERNEL,
    PRODUCTS,
    SILENT,
    GraphForward,
)
from profiler.region.mining.mine import MinedRegion, Mining, mine
from profiler.region.mining.units import Argument, Sig, Unit
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
    units = [
        kernel(0, "triton_red_fused_add_native_layer_norm_0"), kernel(1, "triton_poi_fused_gelu_view_1", 90.0),
        kernel(2, "triton_poi_fused_mul_silu_2"),
    ]  # fmt: skip
    forward = GraphForward(units)
    pairs = {
        "triton_poi_fused_gelu_gelu_backward_4": 1, "triton_poi_fused_mul_silu_silu_backward_5": 2,
        "triton_per_fused_add_native_layer_norm_backward_sum_6": 0,
    }  # fmt: skip
    for name, op in pairs.items():
        found = forward.own(kernel(9, name))
        assert found is not None and found.op == op, name
    assert forward.own(kernel(9, "triton_red_fused_sum_view_7")) is None


WORDS = "gelu silu layer norm softmax embedding mean relu tanh cat rope sigmoid".split()
NAMES = (
    "mm", "bmm", "addmm", "linear", "gelu", "gelu_backward", "silu", "silu_backward", "cudnn_convolution", "_backward",
    "convolution_backward", "_flash_attention_forward", "_flash_attention_backward", "native_layer_norm",
    "native_layer_norm_backward", "sum",
)  # fmt: skip


def made(dice: random.Random, op: int) -> Unit:
    """A compiled kernel of some words, or an operation of a few small tensors."""
    if dice.random() < 0.4:
        words = "_".join(dice.choices(WORDS, k=dice.randint(1, 4)))
        return kernel(op, f"triton_poi_fused_{words}_{op}", dice.choice((1.0, 2.0, 3.0)))
    sizes = [tuple(dice.choices((2, 3, 4), k=dice.randint(1, 3))) for _ in range(dice.randint(0, 4))]
    args = tuple(Argument("tensor", (Sig("f32", dims),)) for dims in sizes)
    return Unit(op, dice.choice(NAMES), True, 1, args, NONE, NONE, float(op), kernels=[op], time_us=1.0)


def searched(unit: Unit, forward: Sequence[Unit]) -> Unit | None:
    """One forward unit after the other."""
    if (sizes := product_sizes(unit)) is not None:
        return next((u for u in forward if product_sizes(u) == sizes), None)
    if unit.name.startswith("triton_"):
        kernels = [u for u in forward if u.name.startswith("triton_")]
        best = max(kernels, key=lambda u: (len(words_of(unit) & words_of(u)), u.time_us), default=None)
        return best if best is not None and words_of(unit) & words_of(best) else None
    family = next((f for f in (ATTENTION, CONVOLUTION) if f in unit.base), "")
    of = unit.base.removesuffix("_backward")
    if not family and of == unit.base:
        return None
    of_operation = [u for u in forward if (family in u.base if family else u.base.endswith(of))]
    wide = [(u, [d for d in dims_of(u) if len(d) > 1][:3]) for u in of_operation]
    return next((u for u, wanted in wide if wanted and set(wanted) <= set(dims_of(unit))), None)


def dims_of(unit: Unit) -> list[tuple[int, ...]]:
    return [a.sigs[0].dims for a in unit.args]


def words_of(unit: Unit) -> set[str]:
    return {w for w in KERNEL.sub("", unit.name).split("_") if w and w not in SILENT and not w.isdigit()}


def product_sizes(unit: Unit) -> tuple[object, ...] | None:
    dims = dims_of(unit)[unit.name == "addmm" :][:2]
    if unit.name not in PRODUCTS or len(dims) < 2 or min(map(len, dims)) < 2:
        return None
    batch, rows, columns = 1, dims[0][-2], dims[1][0 if unit.name == "linear" else -1]
    for size in dims[0][:-2]:
        batch *= size
    if unit.name == "linear":
        batch, rows = 1, rows * batch
    return batch, sorted((rows, dims[0][-1], columns))


@pytest.mark.parametrize("seed", range(20))
def test_the_sorted_units_give_what_a_search_through_all_of_them_does(seed: int) -> None:
    dice = random.Random(seed)
    forward = [made(dice, op) for op in range(60)]
    graph = GraphForward(forward)
    answers = [(graph.own(u), searched(u, forward)) for u in (made(dice, op) for op in range(100, 300))]
    assert all(one is other for one, other in answers)
    assert 20 < sum(one is not None for one, _ in answers) < 200


def test_a_graph_of_20_000_units_each_way_is_not_searched_once_for_each() -> None:
    dice = random.Random(0)
    graph = GraphForward([made(dice, op) for op in range(20_000)])
    assert sum(graph.own(made(dice, op)) is not None for op in range(20_000, 40_000)) > 10_000
