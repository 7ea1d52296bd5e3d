"""What a value can be read as, where a spelling is near another that gives something else, or is no number."""

from __future__ import annotations

import pytest

from kernels.candidates import Candidate, candidates
from kernels.host import Host
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from tests.kernels.libraries.hosts import H200

HEAD = "x: f32[64, 64]{g}\ny: f32[64, 64]\nw: f32[64, 64]\nb: f32[64]\nm: bool[64, 64]\n"


def offered(text: str, host: Host = H200) -> dict[str, Candidate]:
    return {c.name: c for c in candidates(lower(parse(text)), host) if c.available}


@pytest.mark.parametrize("line", [
    "x * y + 0.0 * y", "relu(x @ w) * b + 0.0 * b", "x * y * 0.0 + x", "(x * y * w) * 0", "x * y * 0.0",
    "(x * y) * 1e-300 * 1e-300 + x * y", "x * torch.rsqrt((1e4 * x.pow(0.01)).mean(-1, keepdim=True) + 1e-6) * b",
    "relu(x @ w) * (1e4 * x.pow(0.01))", "x * y * float('inf')",
])  # fmt: skip
@pytest.mark.parametrize("g", ["", ".requires_grad"])
def test_a_factor_of_zero_or_beyond_all_numbers_ends_no_advice(line: str, g: str) -> None:
    assert "eager" in offered(HEAD.format(g=g) + f"return {line}\n")


def test_a_product_with_a_mask_is_no_choice_by_it() -> None:
    """Where a masked number is none, the product is none as well, and the choice is 0."""
    epilogue = "triton:matmul_epilogue"
    assert epilogue in offered(HEAD.format(g="") + "return relu(x @ w) * m\n")
    chosen = "torch.where(m, relu(x @ w), 0.0)", "relu(x @ w).masked_fill(~m, 0.0)"
    assert not any(epilogue in offered(HEAD.format(g="") + f"return {line}\n") for line in chosen)


@pytest.mark.parametrize("line", ["torch.where(h > 0, h, 0.0)", "h.masked_fill(h < 0, 0.0)", "h * (h > 0)"])
def test_a_choice_of_what_is_above_zero_is_relu(line: str) -> None:
    assert "triton:matmul_epilogue" in offered(HEAD.format(g="") + f"h = x @ w\nreturn {line}\n")


def test_what_is_spread_over_more_rows_is_no_call_that_gives_fewer() -> None:
    text = HEAD.format(g="")
    call = "library:torch.ops.aten._addmm_activation"
    assert call in offered(text + "return relu(x @ w + b)\n")
    assert call in offered(text + "return relu(x @ w + b).expand(3, 64, 64)\n")
    spread = text.replace("m: bool[64, 64]", "m: f32[3, 64, 64]") + "return relu(x @ w).expand(3, 64, 64) * m\n"
    assert "triton:gemm_tail" not in offered(spread)


STATES = """a: f32[2, 3, 16]
b: f32[2, 3, 16]
h = torch.zeros({first})
s = []
for t in range(3):
    h = a[:, t] * h + b[:, t]
    s.append(h)
return torch.stack(s, 1)
"""


def test_a_first_state_of_more_axes_is_another_recurrence() -> None:
    name = "triton:linear_recurrence"
    assert name in offered(STATES.format(first="2, 16"))
    assert name not in offered(STATES.format(first="4, 2, 16"))


def test_fewer_heads_of_queries_than_of_keys_are_not_repeated() -> None:
    text = "q: f32[2, 1, 16, 32]\nk: f32[2, 8, 16, 32]\nv: f32[2, 8, 16, 32]\n"
    graph = lower(parse(text + "return softmax(q @ k.transpose(-1, -2) * 0.2, -1) @ v\n"))
    assert not any("repeat_interleave" in c.call for c in candidates(graph, H200))
