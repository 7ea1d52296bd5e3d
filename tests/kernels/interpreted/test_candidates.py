"""Candidates of the registry, built and run: each gives what the region says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from kernels.host import Host
from kernels.registry import build, candidates
from profiler.region.graph import lower
from profiler.region.model import Region
from profiler.region.text import parse
from tests.kernels.interpreted.checking import assert_as_exact_as_eager

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

HOST = Host(versions={}, packages=frozenset({"torch", "triton"}), features=frozenset({"F.rms_norm"}))

REGIONS = {
    "rms_norm": "x: bf16[16, 128]\nw: bf16[128]\nv = x.float().pow(2).mean(-1, keepdim=True)\n"
    "y = (x.float() * torch.rsqrt(v + 1e-6)).to(bf16) * w\nreturn y\n",
    "rms_norm called": "x: f32[16, 128]\nw: f32[128]\ny = F.rms_norm(x, (128,), w, 1e-5)\nreturn y\n",
    "softmax": "x: f16[6, 200]\ny = torch.softmax(x, -1)\nreturn y\n",
    "attention": "q: f32[2, 2, 16, 8]\nk: f32[2, 2, 16, 8]\nv: f32[2, 2, 16, 8]\n"
    "s = q @ k.transpose(-2, -1) * 0.35\np = torch.softmax(s, -1)\ny = p @ v\nreturn y\n",
    "example": "x: bf16[16, 32]\nw: bf16[32, 64]\nb: bf16[64]\nmask: bf16[16, 64]\nz = x @ w\nz = z + b\n"
    "z = gelu(z)\ny = z * mask\nreturn y\n",
}


def available(text: str) -> list[str]:
    return [c.name for c in candidates(lower(parse(text)), HOST) if c.available and c.tool != "compile"]


@pytest.mark.parametrize("name", REGIONS)
def test_every_available_candidate_gives_what_the_region_says(name: str) -> None:
    text = REGIONS[name]
    found = available(text)
    assert "eager" in found
    assert "triton:generated" in found
    for candidate in found:

        def built(region: Region, candidate: str = candidate) -> Callable[..., Sequence[torch.Tensor]]:
            return build(candidate, region, {}, "cpu")

        assert_as_exact_as_eager(text, built)


def test_the_hand_written_kernels_are_offered_where_they_fit() -> None:
    assert "triton:rms_norm" in available(REGIONS["rms_norm"])
    assert "triton:rms_norm" in available(REGIONS["rms_norm called"])
    assert "triton:softmax" in available(REGIONS["softmax"])
    assert "library:torch.nn.functional.scaled_dot_product_attention" in available(REGIONS["attention"])
