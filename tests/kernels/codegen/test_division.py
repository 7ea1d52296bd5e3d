"""Division of a whole row by one number: a reciprocal and two corrections give what a division gives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.codegen.expressions import ops
from kernels.codegen.generated import generate
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

Floats = NDArray[np.float32]


def rounded_once(a: Floats, b: Floats, c: Floats) -> Floats:
    """a * b + c as a GPU's fma rounds it; the interpreter's rounds the product as well."""
    return np.asarray(np.longdouble(a) * np.longdouble(b) + np.longdouble(c)).astype(np.float32)


def over_row(x: Floats, divisor: Floats) -> Floats:
    """What the helper's own text computes, on arrays."""
    language = SimpleNamespace(abs=np.abs, where=np.where, fma=rounded_once, div_rn=np.divide)
    room: dict[str, Any] = {"tl": language, "INTERPRETED": False}
    text = ops.HELPERS["over_row"].replace("@triton.jit\n", "").replace(": tl.constexpr", "")
    exec(text, room)  # noqa: S102 - the generator's own text
    result: Floats = room["over_row"](x.copy(), divisor.copy())
    return result


def test_it_is_the_quotient_of_numbers_that_are_quantised() -> None:
    numbers = np.random.default_rng(0)
    x = numbers.standard_normal(1_000_000).astype(np.float32)
    divisor = np.abs(numbers.standard_normal(1_000_000)).astype(np.float32) / np.float32(127)
    assert np.array_equal(over_row(x, divisor), x / divisor)


def test_it_is_the_quotient_of_infinities_zeros_and_numbers_out_of_range() -> None:
    parts = [0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-39, 1.0, -1.0, 3.4e38, 1e-30, 5e20, 7e-21]
    x, divisor = (np.array(a, np.float32) for a in np.meshgrid(parts, parts))
    np.testing.assert_array_equal(over_row(x, divisor), x / divisor)


def test_it_is_at_most_a_step_off_for_any_bits() -> None:
    bits = np.random.default_rng(1).integers(0, 2**32, (2, 1_000_000), dtype=np.uint32).view(np.float32)
    x, divisor = bits
    got, wanted = over_row(x, divisor), x / divisor
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    assert np.all(np.minimum(np.abs(x), np.abs(wanted))[~same] < 2.0**-100)
    np.testing.assert_array_max_ulp(got[~same], wanted[~same], maxulp=1)


@pytest.mark.parametrize("scale", ["h.abs().amax(-1, keepdim=True)", "s"])
def test_a_quantisers_rows_are_divided_once(scale: str) -> None:
    text = f"x: bf16[64, 512]\ns: f32[64, 1]\nh = x.float()\nreturn torch.round(h / {scale}).to(i8), h.amax(-1)\n"
    (source,) = generate(lower(parse(text))).sources
    assert "over_row(" in source.text.split("@triton.autotune")[1]
    assert "div_rn" not in source.text.split("@triton.autotune")[1]


def test_results_of_sixteen_bits_take_the_reciprocal_alone() -> None:
    text = "x: bf16[64, 512]\nh = x.float()\nreturn (h / h.abs().amax(-1, keepdim=True)).to(bf16)\n"
    (source,) = generate(lower(parse(text))).sources
    assert "over_row" not in source.text
    assert "inverse = 1.0 / " in source.text


@pytest.mark.parametrize(("divisor", "called"), [("16", False), ("-0.25", False), ("3", True), ("1e-45", True)])
def test_powers_of_two_are_multiplied_by_their_reciprocal(divisor: str, called: bool) -> None:
    (source,) = generate(lower(parse(f"x: f32[64, 512]\nreturn torch.tanh(x) / {divisor}\n"))).sources
    assert ("div_rn(" in source.text) == called
