"""A region as a Python function computes what the region computes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kernels.measure.candidate.inputs import input_set
from kernels.measure.candidate.reduce import reduced
from kernels.measure.candidate.reference import NoReferenceError, reference
from kernels.starter_kit.region_code import function
from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.model import Region
from tests.conftest import ROOT

DRAWN = ("dropout_add_layernorm", "top_p_sampling_sort", "kv_cache_append")
"""Their results are random; the last writes twice where an index comes twice, in any order."""
NAMES = sorted(p.stem for p in (ROOT / "tests" / "regions").glob("*.txt"))


def made(region: Region, exact: bool) -> Any:
    names: dict[str, Any] = {"torch": torch, "F": F, "math": math}
    exec(compile(function(region, "f", exact), "region", "exec"), names)  # noqa: S102 - of the repository's regions
    return names["f"]


def results(value: Any) -> list[torch.Tensor]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


@pytest.mark.parametrize("name", [n for n in NAMES if n not in DRAWN])
def test_region_as_python_computes_something_else(name: str) -> None:
    region = parse((ROOT / "tests" / "regions" / f"{name}.txt").read_text())
    small = reduced(region)
    if small is None:
        pytest.skip("no small sizes")
    inputs = input_set(small, {}, "cpu", 1, distribution="uniform")
    module = program(small).module
    for mine, wanted in zip(results(made(small, False)(*inputs)), module(*inputs), strict=True):
        assert mine.dtype == wanted.dtype
        assert torch.equal(mine.double().nan_to_num(), wanted.double().nan_to_num())
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    none = [False] * len(inputs)
    try:
        best = reference(module, inputs, none, [None] * 99).outputs
    except NoReferenceError:
        with pytest.raises(RuntimeError):
            made(small, True)(*wide)
        return
    for mine, wanted in zip(results(made(small, True)(*wide)), best, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-10, atol=1e-10, equal_nan=True, check_dtype=False)


LANGUAGE = {
    "augmented": "x: f32[4, 6]\ny = x\ny += 1\ny *= x\nreturn y, x\n",
    "numbers": "x: f32[4, 6]\nn = max(x.shape[0], 3) * min(2, 5)\ny = max(x, x + n)\nreturn y * math.sqrt(n)\n",
    "loop": "x: f32[4, 6]\nrows = []\nfor i in range(4):\n    rows.append(x[i] * i)\nreturn stack(rows)\n",
    "factory": "x: f32[4, 6]\nat = arange(6)\nreturn where(at[None] > 2, x, float('-inf'))\n",
    "finfo": "x: bf16[4, 6]\nreturn x.masked_fill(x > 0, torch.finfo(bf16).min), exp(x.float()).to(bf16)\n",
    "shadow": "gelu: f32[4, 6]\nabs = gelu * 2\nreturn F.gelu(abs), torch.abs(gelu)\n",
}


@pytest.mark.parametrize("name", LANGUAGE)
def test_the_language_means_something_else_as_python(name: str) -> None:
    region = parse(LANGUAGE[name])
    inputs = input_set(region, {}, "cpu", 3)
    kept = [x.clone() for x in inputs]
    wanted = program(region).module(*(x.clone() for x in inputs))
    for mine, other in zip(results(made(region, False)(*inputs)), wanted, strict=True):
        assert torch.equal(mine, other)
        assert mine.dtype == other.dtype
    assert all(torch.equal(a, b) for a, b in zip(inputs, kept, strict=True))
