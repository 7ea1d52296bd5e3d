"""Times of single kernels on an H200, of 2026-11-22 and 23 (torch 2.11.0+cu130): the rates have their mechanism.

The rates were fitted with these kernels in sight. What the atlas makes of programs is held to others, in test_prices.
"""

from __future__ import annotations

import pytest

from app.analysis.analyze import shape_of
from app.estimate import predict
from app.estimate.call_time import least_bytes, own_us
from app.estimate.facts import ShapeFacts
from app.estimate.rates import WITHOUT_ATLAS
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from profiler.region.model import Binding
from tests.app.advice.cases import H200


def eager_us(found: ShapeFacts) -> float:
    return predict.eager_us(found, H200, WITHOUT_ATLAS)


def compiled_us(found: ShapeFacts, mode: str = "default") -> float:
    return predict.compiled_us(found, H200, mode, WITHOUT_ATLAS)


def shape(text: str) -> ShapeFacts:
    return shape_of(lower(parse(text)), Binding())


@pytest.mark.parametrize(
    ("text", "measured_us"),
    [
        # booleans are converted to i64 (205 µs), and those summed (130)
        ("x: bool[2048, 32768]\nreturn x.sum(-1)\n", 335),
        # columns of 16-bit numbers: half the bytes in flight
        ("x: bf16[200704, 384]\nreturn x.sum(0)\n", 104),
        ("x: bf16[12544, 1536]\nreturn x.sum(0)\n", 29),
        # gradients of weights: few tiles, a long inner size, which cuBLAS splits
        ("x: bf16[200704, 384]\nw: bf16[200704, 96]\nreturn x.t() @ w\n", 58),
        ("x: bf16[50176, 768]\nw: bf16[50176, 192]\nreturn x.t() @ w\n", 33),
        ("x: bf16[12544, 1536]\nw: bf16[12544, 384]\nreturn x.t() @ w\n", 30),
    ],
)
def test_eager_operations_take_what_their_kernels_took(text: str, measured_us: float) -> None:
    assert eager_us(shape(text)) == pytest.approx(measured_us, rel=0.35)


def test_a_product_whose_inner_size_is_short_keeps_processors_idle() -> None:
    """Three tiles for 132 processors, and nothing to split: not a third faster than with four times the work."""
    short, long = (shape(f"a: bf16[384, {k}]\nb: bf16[{k}, 96]\nreturn a @ b\n") for k in (512, 2048))
    assert eager_us(long) < 3 * eager_us(short)


GELU = "x: bf16[{n}, {k}].requires_grad\nw: bf16[{m}, {k}].requires_grad\nb: bf16[{m}].requires_grad\n"
GELU += "return gelu(linear(x, w, b))\n"


@pytest.mark.parametrize(
    ("n", "k", "m", "eager", "compiled"), [(200704, 96, 384, 544, 504), (50176, 192, 768, 284, 266)]
)
def test_gelu_and_its_gradients_go_by_elements_and_their_sum_is_apart(
    n: int, k: int, m: int, eager: float, compiled: float
) -> None:
    found = shape(GELU.format(n=n, k=k, m=m))
    assert eager_us(found) == pytest.approx(eager, rel=0.1)
    assert compiled_us(found) == pytest.approx(compiled, rel=0.1)


def test_wide_numbers_hide_the_arithmetic_of_erf() -> None:
    """Twice the bytes of as many numbers: memory sets the pace."""
    narrow, wide = (shape(f"x: {dtype}[8192, 8192]\nreturn gelu(x)\n") for dtype in ("bf16", "f32"))
    assert compiled_us(wide) < 1.5 * predict.compiled_us(narrow, H200, rates=WITHOUT_ATLAS)


EDGES = "index: i64[4199977].below(200000)\nx2: i64[4199977].below(200000)\n"
HEADS = f"x: f32[200000, 4, 64].requires_grad\na: f32[4199977, 4, 1].requires_grad\n{EDGES}"
HEADS += "z = a * x.index_select(0, index)\nx2 = x2.view(-1, 1, 1).expand_as(z)\n"
HEADS += "return zeros([200000, 4, 64], dtype=f32).scatter_add(0, x2, z)\n"
FLAT = f"x: f32[200000, 256].requires_grad\na: f32[4199977, 1].requires_grad\n{EDGES}"
FLAT += "z = a * x.index_select(0, index)\nx2 = x2.view(-1, 1).expand_as(z)\n"
FLAT += "return zeros([200000, 256], dtype=f32).scatter_add(0, x2, z)\n"


def test_additions_by_tiles_of_three_axes_are_slow_until_they_are_tuned() -> None:
    """A weight for each edge and head: 16.1 ms by default, 7.7 tuned; for each edge: 7.7 and 7.6."""
    heads, flat = shape(HEADS), shape(FLAT)
    untuned, tuned = (compiled_us(heads, mode) for mode in ("default", "max-autotune"))
    assert untuned == pytest.approx(16100, rel=0.15)
    assert tuned == pytest.approx(7700, rel=0.25)
    for mode in ("default", "max-autotune"):
        assert compiled_us(flat, mode) == pytest.approx(7650, rel=0.15)


def test_along_one_axis_torch_compile_has_eagers_convolution() -> None:
    """87.5 µs in both; an image's it lays out anew."""
    line = shape("x: bf16[1, 4096, 2051]\nw: bf16[4096, 1, 4]\nreturn F.conv1d(x, w, groups=4096)\n")
    assert eager_us(line) == pytest.approx(88, rel=0.15)
    assert compiled_us(line) == pytest.approx(eager_us(line), rel=0.05)
    image = shape("x: f32[16, 64, 512, 512]\nw: f32[64, 1, 3, 3]\nreturn F.conv2d(x, w, groups=64)\n")
    assert compiled_us(image) < 0.9 * predict.eager_us(image, H200, rates=WITHOUT_ATLAS)


def test_a_backend_that_no_table_has_is_as_fast_as_what_torch_picks() -> None:
    """Heads of 64 through cuDNN: 161 µs, as without a backend named; those of 128 reach more of the matmul rate."""
    text = "".join(f"{n}: bf16[16, 16, 1024, 64]\n" for n in "qkv")
    text += "return softmax((q @ k.transpose(-1, -2)) * 0.125, -1) @ v\n"
    call = "torch.nn.functional.scaled_dot_product_attention"
    times = [predict.library_us(shape(text), H200, f"{call}{backend}") for backend in ("", ".cudnn")]
    assert times == [pytest.approx(161, rel=0.15)] * 2


MLP = (
    # (region, µs): two products in one kernel, measured on 2026-11-23
    # 67 million GELU between the products take longer than memory and matrix units
    ("x: bf16[524288, 128]\nv: bf16[128, 128]\nw: bf16[128, 128]\nb: bf16[128]\nc: bf16[128]\n"
     "return gelu(x @ v + b) @ w + c\n", 103),
    # the residual is read a second time
    ("x: bf16[16384, 4096]\nw: bf16[64, 4096]\nb: bf16[64]\nv: bf16[4096, 64]\nc: bf16[4096]\n"
     "return x + F.linear(gelu(F.linear(x, w, b)), v, c)\n", 122),
)  # fmt: skip


@pytest.mark.parametrize(("text", "measured_us"), MLP)
def test_two_products_in_one_kernel(text: str, measured_us: float) -> None:
    """By the kernel's own rate, and by what nobody has fitted: a kernel that is still to be written."""
    assert own_us(shape(text), H200, "triton:fused_mlp", WITHOUT_ATLAS) == pytest.approx(measured_us, rel=0.2)
    assert predict.written_us(shape(text), H200) == pytest.approx(measured_us, rel=0.2)


def test_a_residual_that_fits_into_l2_is_read_once() -> None:
    for m, k, again in ((131072, 128, False), (4096, 4096, True), (64, 4096, False)):
        found = shape(f"x: bf16[{m}, {k}]\nv: bf16[{k}, 64]\nw: bf16[64, {k}]\nreturn x + relu(x @ v) @ w\n")
        assert found.reread == 2 * m * k
        assert least_bytes(found, H200) == found.cost.ideal.bytes_moved + again * found.reread


@pytest.mark.parametrize(
    ("returned", "count"),
    [
        ("x + relu(x @ v) @ w", 4096 * 64), ("x @ x[:64].t() + x", 4096 * 64),
        ("(x @ v) / x.norm(dim=-1, keepdim=True)", 0),  # its lengths can be taken on the same walk
        ("torch.addmm(x, x @ v, w)", 0), ("relu(x) @ v", 0),
    ],
)  # fmt: skip
def test_only_what_is_read_behind_a_product_is_a_residual(returned: str, count: int) -> None:
    found = shape(f"x: bf16[4096, 64]\nv: bf16[64, 64]\nw: bf16[64, 64]\nreturn {returned}\n")
    assert found.reread == 2 * count


@pytest.mark.parametrize(
    ("returned", "count"),
    [
        ("gelu(relu(x @ v) @ w)", 0),  # finished while the next tile is multiplied
        ("relu(gelu(x @ v) @ w)", 1), ("silu(gelu(x @ v)) @ w", 2),
        ("silu(x @ v) * (x @ w)", 0),  # a gate, whatever its order
        ("torch.softmax(x @ v, -1) @ w", 0), ("gelu(x) @ w", 0),
    ],
)  # fmt: skip
def test_only_activations_between_two_products_keep_the_matrix_units_waiting(returned: str, count: int) -> None:
    found = shape(f"x: bf16[4096, 64]\nv: bf16[64, 64]\nw: bf16[64, 64]\nreturn {returned}\n")
    assert found.between == count * 4096 * 64
