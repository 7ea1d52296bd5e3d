"""Indices that would leave a result to chance, or fault on NaN, are seen in the program."""

from __future__ import annotations

import pytest
import torch

from kernels.measure.candidate.indices import reads_by_value, with_distinct
from kernels.measure.candidate.inputs import input_set
from profiler.region.language.program import program
from profiler.region.language.text import parse

INPUTS = "cache: f32[64, 8]\nrows: f32[40, 8]\nslot: i64[40].below(64)\n"


def slots(text: str, seed: int = 1) -> torch.Tensor:
    region = parse(text)
    region = with_distinct(region, program(region).module)
    (found,) = (v for v in input_set(region, {}, "cpu", seed) if v.dtype == torch.int64)
    return found


@pytest.mark.parametrize("line", [
    "cache.index_put((slot,), rows)", "torch.index_copy(cache, 0, slot, rows)",
    "cache.scatter(0, slot[:, None].expand(40, 8), rows)",
])  # fmt: skip
def test_rows_are_written_to_distinct_places(line: str) -> None:
    tensor = slots(f"{INPUTS}return {line}\n")
    assert len(tensor.unique()) == 40
    assert int(tensor.min()) >= 0
    assert int(tensor.max()) < 64
    assert not torch.equal(tensor, slots(f"{INPUTS}return {line}\n", seed=2))


@pytest.mark.parametrize("line", [
    "cache.index_put((slot,), rows, accumulate=True)", "cache[slot] + rows", "torch.index_add(cache, 0, slot, rows)",
])  # fmt: skip
def test_reads_and_sums_meet_the_same_row_more_than_once(line: str) -> None:
    assert len(slots(f"{INPUTS}return {line}\n").unique()) < 40


def test_more_places_than_there_are_stay_random() -> None:
    text = INPUTS.replace("below(64)", "below(16)")
    assert len(slots(f"{text}return cache.index_put((slot,), rows)\n").unique()) <= 16


@pytest.mark.parametrize(("text", "computed"), [
    ("x: f32[8, 32]\nk = (x > 0).sum(-1, keepdim=True)\nreturn torch.gather(x, 1, k - 1)\n", True),
    ("x: f32[8, 32]\ni = torch.argmax(x, -1, keepdim=True)\nreturn torch.gather(x, 1, i)\n", False),
    ("x: f32[8, 32]\ni: i64[8, 4].below(32)\nreturn torch.gather(x, 1, i)\n", False),
    ("x: f32[8, 32]\ns, i = torch.sort(x, -1)\nreturn torch.gather(x, 1, i[:, :4])\n", False),
    ("x: f32[8, 32]\nz, i = torch.sort(x, -1)\nk = (1 + z > z.cumsum(-1)).sum(-1, keepdim=True)\n"
     "return torch.gather(z, 1, k - 1)\n", True),
    ("x: f32[8, 32]\nreturn x * 2\n", False),
])  # fmt: skip
def test_an_index_that_numbers_decide_is_told_from_one_that_selects(text: str, computed: bool) -> None:
    assert reads_by_value(program(parse(text)).module) is computed
