"""Generated pools and depthwise convolutions: every way to lay a window, against eager."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from kernels.codegen.generated import generate, made
from profiler.region.graph.lowering import lower
from profiler.region.language.program import program
from profiler.region.language.text import parse
from tests.kernels.interpreted.codegen.test_generated_axes import gradients

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

IMAGES = {1: (2, 3, 21), 2: (2, 3, 11, 12), 3: (1, 2, 6, 7, 8)}


def compare(text: str, kept: tuple[str, ...] = (), x: torch.Tensor | None = None) -> None:
    """As eager in float64, NaN where it is; nothing stays a call but `kept`."""
    region = parse(text)
    generator = torch.Generator().manual_seed(1)
    inputs = []
    for fake in program(region).inputs:
        value = torch.randn(fake.shape, generator=generator).to(fake.dtype)
        inputs.append(torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype).copy_(value))
    if x is not None:
        inputs[0] = x
    result = generate(lower(region))
    assert result.kept == kept
    tolerance = 1e-5 if inputs[0].dtype == torch.float32 else 1e-2
    wide = program(region).module(*(i.double() for i in inputs))
    for got, wanted in zip(result.module(*inputs), wide, strict=True):
        torch.testing.assert_close(got.to(wanted.dtype), wanted, equal_nan=True, rtol=tolerance, atol=tolerance)


def image(rank: int, dtype: str = "f32", layout: str = "") -> str:
    return f"x: {dtype}[{', '.join(map(str, IMAGES[rank]))}]{layout}\n"


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, 2, 0), (3, 2, 1), (3, 1, 1), (2, 3, 0), (3, 3, 1)])
@pytest.mark.parametrize("ceil", [False, True])
def test_pools(rank: int, kernel: int, stride: int, padding: int, ceil: bool) -> None:
    given = f"{kernel}, {stride}, {padding}"
    lines = [image(rank), f"a = F.max_pool{rank}d(x, {given}, 1, ceil_mode={ceil})\n"]
    lines.append(f"b = F.avg_pool{rank}d(torch.tanh(x), {given}, ceil_mode={ceil})\n")
    lines.append(f"c = F.avg_pool{rank}d(x, {given}, ceil_mode={ceil}, count_include_pad=False) * 2\n")
    compare("".join([*lines, "return a, b, c\n"]))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_dilated_windows(rank: int) -> None:
    compare(f"{image(rank)}return F.max_pool{rank}d(F.relu(x), 2, 1, 1, 2) + 1\n")


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("layout", ["", ".channels_last"])
def test_sixteen_bits_and_channels_last(dtype: str, layout: str) -> None:
    compare(f"{image(2, dtype, layout)}return F.avg_pool2d(x, 3, 2, 1), F.max_pool2d(x, 3, 2, 1) * 2\n")


def test_unequal_sides_and_a_divisor_of_ones_own() -> None:
    compare(f"{image(2)}return F.avg_pool2d(x, (3, 2), (1, 2), (1, 0), divisor_override=5), F.max_pool2d(x, (2, 3))\n")


INDICES = "a, i = aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])\nreturn a, i\n"


def test_places_of_the_largest_with_ties_nan_and_infinities() -> None:
    x = torch.randn(IMAGES[2])
    x[0, 0] = 1.0
    x[0, 1] = -math.inf
    x[0, 2, 3:6, 4] = math.nan
    x[1, 0, 2] = math.inf
    compare(image(2) + INDICES, x=x)
    compare(image(2) + "return F.max_pool2d(x, 2), F.avg_pool2d(x, 2)\n", x=x)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("parts", [1, "whole"])
def test_adaptive_averages_of_equal_windows(rank: int, parts: int | str) -> None:
    sizes = {1: (7,), 2: (11, 3), 3: (3, 7, 2)}[rank] if parts == "whole" else (1,) * rank
    compare(f"{image(rank)}return F.adaptive_avg_pool{rank}d(x * 2, {sizes if rank > 1 else sizes[0]}) + 1\n")


def test_a_window_too_large_to_be_written_out_stays_a_call_or_is_a_reduction() -> None:
    compare("x: f32[1, 2, 20, 20]\nreturn F.max_pool2d(x, 9, 1) * 2\n", ("max_pool2d_with_indices",))
    compare("x: f32[1, 2, 20, 20]\nreturn F.avg_pool2d(x, 10) * 2\n")


def test_an_adaptive_average_of_unequal_windows_stays_a_call() -> None:
    compare("x: f32[1, 2, 10, 10]\nreturn F.adaptive_avg_pool2d(x, (3, 3)) * 2\n", ("_adaptive_avg_pool2d",))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(
    "call",
    [
        "F.conv1d(x, w, b, padding=3, groups=6)[..., :21]",
        "F.conv1d(x, w, None, stride=2, groups=6)",
        "F.conv1d(F.silu(x), w, b, padding=2, dilation=2, groups=6)",
    ],
)
def test_depthwise_convolutions_of_rows(call: str, dtype: str) -> None:
    declared = f"x: {dtype}[2, 6, 21]\nw: {dtype}[6, 1, 4]\nb: {dtype}[6]\n"
    compare(f"{declared}y = {call}\nreturn F.silu(y)\n")


@pytest.mark.parametrize(("stride", "dilation", "layout"), [*itertools.product((1, 2), (1, 2), ("", ".channels_last"))])
def test_depthwise_convolutions_of_images(stride: int, dilation: int, layout: str) -> None:
    declared = f"x: f32[2, 4, 9, 10]{layout}\nw: f32[4, 1, 3, 3]\nb: f32[4]\n"
    given = f"stride={stride}, padding={dilation}, dilation={dilation}, groups=4"
    compare(f"{declared}y = F.conv2d(x, w, b, {given})\nreturn F.relu6(y) + 1\n")


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_an_infinite_weight_is_left_out_where_its_tap_is_in_the_border(rank: int, dtype: str) -> None:
    shape = (2, 4, *(5, 6, 7)[:rank])
    text = (
        f"x: {dtype}[{', '.join(map(str, shape))}]\nw: {dtype}[4, 1{', 3' * rank}]\n"
        f"return F.conv{rank}d(x, w, padding=1, groups=4)\n"
    )
    result = generate(lower(parse(text)))
    assert result.kept == ()
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(shape, generator=generator).to(program(parse(text)).inputs[0].dtype)
    w = torch.randn(4, 1, *[3] * rank, generator=generator).to(x.dtype)
    for channel, (tap, value) in enumerate(((0, math.inf), (-1, -math.inf), (0, math.nan))):
        w[channel].view(-1)[tap] = value
    wanted = torch.zeros(shape, dtype=torch.float64)
    for tap in itertools.product(range(3), repeat=rank):
        spots = [(slice(max(0, 1 - t), n + min(0, 1 - t)), t - 1) for t, n in zip(tap, shape[2:], strict=True)]
        of_image = x.double()[(..., *(slice(s.start + by, s.stop + by) for s, by in spots))]
        of_weight = w.double()[(slice(None), 0, *tap)].view(-1, *[1] * rank)
        wanted[(..., *(s for s, _ in spots))] += of_image * of_weight
    assert 0 < int(torch.isfinite(wanted[:, :3]).sum()) < wanted[:, :3].numel()
    tolerance = 1e-5 if dtype == "f32" else 1e-2
    (got,) = result.module(x, w)
    torch.testing.assert_close(got.double(), wanted, equal_nan=True, rtol=tolerance, atol=tolerance)


def test_a_convolution_over_channels_stays_a_call() -> None:
    compare("x: f32[2, 4, 9, 10]\nw: f32[6, 4, 1, 1]\nreturn F.relu(F.conv2d(x, w))\n", ("convolution",))
    compare("x: f32[2, 4, 9, 10]\nw: f32[4, 2, 3, 3]\nreturn F.relu(F.conv2d(x, w, groups=2))\n", ("convolution",))


TRAINED = {
    "largest, side by side": ("F.max_pool2d(x * 2, 2)", ()),
    "average, side by side": ("F.avg_pool2d(torch.sigmoid(x), (2, 4))", ()),
    "average of all": ("F.adaptive_avg_pool2d(x * 2, (1, 1))", ()),
    "largest of windows that overlap": ("F.max_pool2d(x * 2, 3, 2, 1)", ("max_pool2d_with_indices_backward",)),
    "average of windows that overlap": ("F.avg_pool2d(x * 2, 3, 1, 1)", ("avg_pool2d_backward",)),
    "depthwise": ("F.silu(F.conv2d(x, w, padding=1, groups=3))", ("convolution_backward",)),
}


@pytest.mark.parametrize("name", TRAINED)
def test_gradients_of_windows(name: str) -> None:
    step, kept = TRAINED[name]
    weight = "w: f32[3, 1, 3, 3].requires_grad\n" if "w," in step else ""
    text = f"x: f32[2, 3, 8, 8].requires_grad\n{weight}y = {step}\nreturn y\n"
    assert made(lower(parse(text))).kept == kept
    gradients(text)


@pytest.mark.parametrize("dtype", ["i64", "i32", "i16", "i8", "u8"])
def test_divisions_of_integers(dtype: str) -> None:
    text = (
        f"x: {dtype}[15]\ny: {dtype}[8, 1]\n"
        'return x % 3, x // 4, x % y, x // y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc"), '
        'torch.div(x, y, rounding_mode="floor"), x % 5 + 1\n'
    )
    region = parse(text)
    whole = program(region).inputs[0].dtype
    x = torch.arange(-7, 8).to(whole)
    y = torch.tensor([-5, -3, -2, -1, 1, 2, 3, 4])[:, None].to(whole)
    result = generate(lower(region))
    assert result.kept == ()
    for got, wanted in zip(result.module(x, y), program(region).module(x, y), strict=True):
        assert torch.equal(got, wanted)


LOOKUPS = {
    "computed places": "return x[(i * 3 + 1) % 8, j // 2 % 40] * 2",
    "along a dimension": "return torch.take_along_dim(x, i[:, None, None] % 8, 0) + 1",
    "a pair": "return x[i, j] * 2",
    "a pair apart": "return x[i, :, k] * 2",
    "a grid": "return x[:, j[:, None], k[:3]] + 1",
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_indices_of_several_tensors(name: str) -> None:
    text = "x: f32[8, 40, 6]\ni: i64[5].below(8)\nj: i64[5].below(40)\nk: i64[5].below(6)\n" + LOOKUPS[name] + "\n"
    region = parse(text)
    inputs = [torch.randn(8, 40, 6), *(torch.randint(-n, n, (5,)) for n in (8, 40, 6))]
    result = generate(lower(region))
    assert (len(result.sources), result.kept) == (1, ())
    for got, wanted in zip(result.module(*inputs), program(region).module(*inputs), strict=True):
        torch.testing.assert_close(got, wanted)
