"""Generated kernels that read elements from another place: repeated and rolled tensors, resized images."""

from __future__ import annotations

import pytest
import torch

from kernels.codegen.expressions.upsampling import nearest_places
from kernels.codegen.generated import generate
from kernels.codegen.index import Unsupported
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from tests.kernels.interpreted.checking import assert_as_exact_as_eager, generated
from tests.kernels.interpreted.codegen.test_generated_axes import gradients

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

DTYPES = ["f32", "bf16"]

REPEATED = {
    "of an input": "x.repeat(2, 3)",
    "with a dimension in front": "(x * 2).repeat(4, 1, 3) + 1",
    "of a turned input": "x.transpose(0, 1).repeat(2, 2)",
    "of one column": "x[:, :1].repeat(1, 12) * x[:, :12]",
    "a slice of it": "(x * 2).repeat(1, 3)[:, 3:40]",
    "and its sum": "x.repeat(1, 2).sum(-1)",
    "of a row's mean": "x - x.mean(-1, keepdim=True).repeat(1, 40)",
    "no time": "x.repeat(2, 0) + 1",
}

ROLLED = {
    "rows": "roll(x, 3, 0) * 2",
    "both ways, of what is computed": "roll(x * 2, (3, -5), (0, 1))",
    "all elements in a row": "roll(torch.tanh(x), 7) + x",
    "of rows of a softmax": "roll(softmax(x * 2, -1), (1, 5), (0, 1))",
    "one dimension twice": "roll(x, (1, 2), (0, 0))",
    "one dimension there and back": "roll(x * 2, (1, -1), (0, 0))",
    "further than its size": "roll(x, 85, 1) - roll(x, -85, 1)",
    "of what counts from the end": "roll(x.flip(1), 4, 1)",
    "one row of it": "roll(x * 2, 2, 0)[1] + roll(x, 2, 0)[0]",
    "sums over its rows": "roll(x, (1, -4), (0, 1)).sum(0)",
    "sums over its columns": "roll(x * 2, (1, -4), (0, 1)).sum(1)",
    "side by side": "cat([roll(x, 1, 0), roll(x, 1, 1)], 0)",
    "of a scan": "roll(x.cumsum(-1), 2, 0)",
    "of fills": "roll(torch.arange(40), 3, 0) * x",
    "back in windows": "roll(x.view(2, 3, 4, 10), (1, 2), (1, 2)).view(6, 40) + 1",
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REPEATED)
def test_repeated_tensors(name: str, dtype: str) -> None:
    assert_as_exact_as_eager(f"x: {dtype}[6, 40]\ny = {REPEATED[name]}\nreturn y\n", generated)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ROLLED)
def test_rolled_tensors(name: str, dtype: str) -> None:
    assert_as_exact_as_eager(f"x: {dtype}[6, 40]\ny = {ROLLED[name]}\nreturn y\n", generated)


def test_a_rolled_input_is_read_once() -> None:
    text = "x: f32[8, 32, 32, 64]\nr: f32[8, 32, 32, 64]\nreturn r + roll(x, (3, 3), (1, 2))\n"
    (source,) = generate(lower(parse(text))).sources
    assert source.text.count("tl.load(") == 2


def test_rolls_of_rolls_are_kernels_of_their_own_and_no_tower_of_loads() -> None:
    text = "x: f32[9, 40]\nh = x\nfor i in range(6):\n    h = torch.lerp(h, roll(h * 2, i, 0), 0.5)\nreturn h\n"
    sources = generate(lower(parse(text))).sources
    assert len(sources) <= 6 and all(s.text.count("tl.load(") <= 4 for s in sources)
    assert_as_exact_as_eager(text, generated)


# images

SIZES = {
    "twice": "scale_factor=2.0",
    "each side by its own factor": "scale_factor=(3.0, 1.0)",
    "to sizes that do not divide": "size=(7, 21)",
    "to one side": "size=(9, 10)",
    "smaller": "size=(3, 4)",
    "half": "scale_factor=0.5",
    "by a fraction": "scale_factor=1.7",
    "to one element": "size=(1, 2)",
}


@pytest.mark.parametrize("layout", ["", ".channels_last"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_the_nearest_element(size: str, dtype: str, layout: str) -> None:
    text = f"y = F.interpolate(F.silu(x), {SIZES[size]}, mode='nearest') * 2"
    assert_as_exact_as_eager(f"x: {dtype}[2, 3, 6, 10]{layout}\n{text}\nreturn y\n", generated)


@pytest.mark.parametrize("corners", [True, False])
@pytest.mark.parametrize("layout", ["", ".channels_last"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_bilinear(size: str, dtype: str, layout: str, corners: bool) -> None:
    text = f"y = F.interpolate(F.silu(x), {SIZES[size]}, mode='bilinear', align_corners={corners}) * 2"
    assert_as_exact_as_eager(f"x: {dtype}[2, 3, 6, 10]{layout}\n{text}\nreturn y\n", generated)


@pytest.mark.parametrize("size", ["size=16", "size=21", "size=3", "scale_factor=2"])
def test_the_nearest_element_of_a_row(size: str) -> None:
    assert_as_exact_as_eager(f"x: f32[2, 3, 7]\nreturn F.interpolate(x, {size}, mode='nearest') + 1\n", generated)


@pytest.mark.parametrize("size", ["size=(5, 10, 7)", "scale_factor=2", "scale_factor=(1, 3, 2)"])
def test_the_nearest_element_of_a_volume(size: str) -> None:
    text = f"x: f32[2, 3, 4, 5, 6]\nreturn F.interpolate(x * 2, {size}, mode='nearest') + 1\n"
    assert_as_exact_as_eager(text, generated)


@pytest.mark.parametrize("mode", ["'nearest'", "'bilinear'"])
def test_one_place_of_a_resized_image(mode: str) -> None:
    text = f"x: f32[2, 3, 6, 10]\nreturn F.interpolate(x, size=(9, 9), mode={mode})[..., 3, 2] * 2\n"
    assert_as_exact_as_eager(text, generated)


def test_an_image_of_whole_factors_is_read_with_no_step_before_it_in_memory() -> None:
    text = "x: bf16[2, 64, 32, 32]\nreturn F.interpolate(F.silu(x), scale_factor=2.0, mode='nearest') + 1\n"
    assert len(generate(lower(parse(text))).sources) == 1


@pytest.mark.parametrize("size", [1, 2, 7, 13, 64, 255])
@pytest.mark.parametrize("new", [1, 2, 7, 13, 64, 255, 517])
def test_the_nearest_places_are_those_of_torch(size: int, new: int) -> None:
    image = torch.arange(size, dtype=torch.float32).view(1, 1, size)
    there = torch.nn.functional.interpolate(image, size=new, mode="nearest")[0, 0]
    assert nearest_places(size, new, None).tolist() == there.int().tolist()


def test_a_factor_that_aten_does_not_look_at_is_refused() -> None:
    """To the size itself and to twice it aten has code of its own: 10 rows by 2.04 are 20, each row twice."""
    assert nearest_places(8, 8, 1.0).tolist() == list(range(8))
    with pytest.raises(Unsupported, match="1 times the size"):
        nearest_places(8, 8, 1.1)
    assert nearest_places(10, 20, 2.0).tolist() == [i // 2 for i in range(20)]
    with pytest.raises(Unsupported, match="2 times the size"):
        nearest_places(10, 20, 2.04)


# gradients

TRAINED = {
    "repeat": "x: {d}[6, 40].requires_grad\nreturn torch.tanh(x).repeat(2, 3) * 2\n",
    "roll": "x: {d}[6, 40].requires_grad\nreturn torch.tanh(roll(x * 2, (1, -3), (0, 1)))\n",
    "nearest twice": "x: {d}[2, 3, 6, 10].requires_grad\n"
    "return F.interpolate(torch.tanh(x), scale_factor=2, mode='nearest') * 2\n",
    "nearest six times": "x: {d}[2, 3, 6, 10].requires_grad\n"
    "return F.interpolate(torch.tanh(x), scale_factor=6, mode='nearest') * 2\n",
    "nearest of channels last": "x: {d}[2, 3, 6, 10].requires_grad.channels_last\n"
    "return F.interpolate(torch.tanh(x), scale_factor=(1, 3), mode='nearest') * 2\n",
    "nearest of a row": "x: {d}[2, 3, 7].requires_grad\n"
    "return F.interpolate(torch.tanh(x), scale_factor=2, mode='nearest') * 2\n",
    "nearest of a volume": "x: f32[2, 3, 4, 5, 6].requires_grad\n"
    "return F.interpolate(torch.tanh(x), scale_factor=2, mode='nearest') * 2\n",
    "nearest by a fraction": "x: {d}[2, 3, 6, 10].requires_grad\n"
    "return F.interpolate(torch.tanh(x), scale_factor=1.5, mode='nearest') * 2\n",
    "bilinear": "x: {d}[2, 3, 6, 10].requires_grad\n"
    "return F.interpolate(torch.tanh(x), scale_factor=2, mode='bilinear') * 2\n",
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", TRAINED)
def test_gradients_of_moved_elements(name: str, dtype: str) -> None:
    gradients(TRAINED[name].format(d=dtype))


@pytest.mark.parametrize(("factor", "calls"), [("2", 0), ("6", 0), ("1.5", 1)])
def test_the_gradient_of_whole_factors_is_generated_and_any_other_a_call(factor: str, calls: int) -> None:
    from kernels.codegen.generated import trained

    text = f"x: f32[2, 3, 6, 10].requires_grad\nreturn F.interpolate(x * 2, scale_factor={factor}, mode='nearest')\n"
    assert len(trained(lower(parse(text))).kept) == calls
