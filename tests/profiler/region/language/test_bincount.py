"""bincount in a region: as long as minlength says, in the type that torch gives, and refused where data decides."""

from __future__ import annotations

import pytest
import torch

from profiler.region.graph.lowering import lower
from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.model import RegionError

DECLARED = "x: i64[50].below(9)\nw: f32[50]\nv: f64[50]\nh: f16[50]\n"
CALLS = (
    "torch.bincount(x, minlength=9)", "x.bincount(minlength=12)", "bincount(x, None, 9)", "torch.bincount(x, w, 9)",
    "torch.bincount(x, weights=v, minlength=9)", "x.to(i32).bincount(h, 9)",
)  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_its_size_and_type_are_those_of_torch(call: str) -> None:
    built = program(parse(f"{DECLARED}y = {call}\nreturn y\n"))
    graph = lower(parse(f"{DECLARED}y = {call}\nreturn y\n"))
    values = [torch.randint(0, 9, (50,)), torch.rand(50), torch.rand(50).double(), torch.rand(50).half()]
    ((there,), (lowered,)) = (module(*values) for module in (built.module, graph.module))
    assert (built.outputs[0].shape, built.outputs[0].dtype) == (there.shape, there.dtype)
    assert torch.equal(lowered, there)
    assert graph.output_tensors[0].shape == tuple(there.shape)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("torch.bincount(x)", "depends on the data"),
        ("x.bincount(w)", "depends on the data"),
        ("torch.bincount(w, minlength=9)", "one dimension of integers"),
        ("torch.bincount(x.view(5, 10), minlength=9)", "one dimension of integers"),
        ("torch.bincount(x, w[:3], 9)", "a weight for each value"),
        ("torch.bincount(x, minlength=10**13)", "more than any GPU holds"),
    ],
)
def test_what_has_no_size_or_no_kernel_is_refused(call: str, message: str) -> None:
    with pytest.raises(RegionError, match=message):
        program(parse(f"{DECLARED}y = {call}\nreturn y\n"))
