"""Generated quantisers: int8 and 8-bit floats with scales of a tensor, a row, a block, as torch rounds and casts."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.codegen.generated import generate
from profiler.region.graph.lowering import lower
from profiler.region.language.program import program
from profiler.region.language.text import parse
from tests.kernels.interpreted.checking import inputs_of

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

QUANTISERS = {
    "int8 rows": "x: {d}[9, 640]\nh = x.float()\ns = h.abs().amax(-1, keepdim=True) / 127\n"
    "return torch.round(h / s).clamp(-128, 127).to(i8), s\n",
    "int8 blocks": "x: {d}[6, 640]\nb = x.float().view(6, 5, 128)\ns = b.abs().amax(-1, keepdim=True) / 127\n"
    "return torch.round(b / s).clamp(-128, 127).to(i8).view(6, 640), s.squeeze(-1)\n",
    "int8 tensor": "x: {d}[30, 64]\nh = x.float()\ns = h.abs().amax() / 127\n"
    "return torch.round(h / s).clamp(-128, 127).to(i8), s\n",
    "f8 rows": "x: {d}[9, 640]\nh = x.float()\ns = h.abs().amax(-1, keepdim=True) / 448\n"
    "return (h / s).clamp(-448, 448).to(f8e4m3), s\n",
    "norm and f8": "x: {d}[9, 640]\nw: {d}[640]\nh = F.rms_norm(x.float(), (640,)) * w.float()\n"
    "s = h.abs().amax(-1, keepdim=True) / 57344\nreturn (h / s).clamp(-57344, 57344).to(f8e5m2), s\n",
    "unpacked": "w: u8[16, 32]\ns: {d}[16, 2]\nq = stack((w & 15, w >> 4), -1).view(16, 64).to({d}) - 8\n"
    "return (q.view(16, 2, 32) * s[:, :, None]).view(16, 64)\n",
    "there and back": "x: f32[9, 64]\ny = (x * 3).to(f8e4m3)\nreturn y, y.float() * 2\n",
}


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", QUANTISERS)
def test_quantisers_give_every_step_that_torch_gives(name: str, dtype: str) -> None:
    region = parse(QUANTISERS[name].format(d=dtype))
    values = inputs_of(region, 3)
    made = generate(lower(region))
    for mine, wanted in zip(made.module(*values), program(region).module(*values), strict=True):
        assert mine.dtype == wanted.dtype
        if mine.dtype in (torch.float32, torch.bfloat16):
            torch.testing.assert_close(mine, wanted, rtol=1e-6 if mine.dtype == torch.float32 else 1e-2, atol=0)
        elif name == "norm and f8":  # whose sum of squares is added in another order
            off = (mine.view(torch.uint8).int() - wanted.view(torch.uint8).int()).abs()
            assert int(off.max()) <= 1
            assert int(off.sum()) <= 3
        else:
            assert torch.equal(mine.view(torch.uint8), wanted.view(torch.uint8))


def test_halves_are_rounded_to_even() -> None:
    region = parse("x: f32[8]\nreturn torch.round(x), torch.round(x * 1.0).to(i8)\n")
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 2.4999998, 8388609.0, 3.7])
    rounded, small = generate(lower(region)).module(x)
    assert torch.equal(rounded, torch.round(x))
    assert torch.equal(small[:6], torch.round(x[:6]).to(torch.int8))


@pytest.mark.parametrize("dtype", ["f8e4m3", "f8e5m2"])
def test_what_is_beyond_an_8_bit_float_is_what_torch_makes_of_it(dtype: str) -> None:
    region = parse(f"x: f32[12]\ny = (x * 1.0).to({dtype})\nreturn y, y.float() + 0.0\n")
    x = torch.tensor(
        [448.0, 463.9, 464.0, 464.1, -480.0, 57344.0, 61439.0, 61440.0, math.inf, -math.inf, math.nan, 1e-9]
    )
    for mine, wanted in zip(generate(lower(region)).module(x), program(region).module(x), strict=True):
        torch.testing.assert_close(mine.float(), wanted.float(), rtol=0, atol=0, equal_nan=True)


def test_every_8_bit_float_and_what_lies_between_is_rounded_as_torch_rounds() -> None:
    numbers = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().nan_to_num()
    ordered = numbers.unique()
    x = torch.cat([ordered, (ordered[1:] + ordered[:-1]) / 2, ordered * 0.999])[:512]
    region = parse(f"x: f32[{x.numel()}]\nreturn (x * 1.0).to(f8e4m3).float() + 0.0\n")
    assert torch.equal(generate(lower(region)).module(x)[0], x.to(torch.float8_e4m3fn).float())


def test_places_of_rounding_to_decimals_are_refused() -> None:
    with pytest.raises(Exception, match="rounding to decimals"):
        generate(lower(parse("x: f32[8]\nreturn torch.round(x, decimals=2)\n")))
