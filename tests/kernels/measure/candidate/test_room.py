"""The room that roundings give a result: as large as they are, no larger, and on the right side of a step."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernels.measure.candidate import rounded_attention
from kernels.measure.candidate.correctness import compare
from kernels.measure.candidate.inputs import input_set
from kernels.measure.candidate.reference import Reference, reference
from kernels.measure.candidate.room import Room, rooms
from kernels.measure.candidate.rounding import Rounding
from kernels.measure.judge import Verdict, judge
from kernels.measure.messages import Case, OutputError
from profiler.region.language.program import program
from profiler.region.language.text import parse


class Asked:
    """A region with inputs: its reference, its rooms, and eager's outputs."""

    def __init__(self, text: str, *values: torch.Tensor, seed: int = 1) -> None:
        region = parse(text)
        built = program(region)
        self.module = built.module
        self.values = list(values) or input_set(region, {}, "cpu", seed)
        needs = [i.requires_grad for i in region.inputs]
        generator = torch.Generator().manual_seed(seed)
        upstream = [torch.randn(o.shape, generator=generator).to(o.dtype) if region.requires_grad else None
                    for o in built.outputs]  # fmt: skip
        self.upstream = upstream
        self.expected: Reference = reference(self.module, self.values, needs, upstream)
        self.rooms: list[Room] = rooms(self.module, self.values, needs, upstream, self.expected, seed)

    def of(self, *outputs: torch.Tensor) -> list[OutputError]:
        return compare(outputs, self.expected, frozenset(), self.rooms)


def error_of(one: OutputError) -> float:
    assert one.in_room is not None
    return one.in_room.error


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_eager_lies_well_within_the_room_of_its_roundings(dtype: str) -> None:
    asked = Asked(f"x: {dtype}[64, 256]\nb: {dtype}[256]\ny = F.gelu(x + b) * x\nreturn torch.tanh(y) * y - x\n")
    (eager,) = asked.of(*asked.module(*asked.values))
    assert 0.1 < error_of(eager) < 1.0


def test_an_accumulation_in_bf16_lies_far_beyond_it() -> None:
    asked = Asked("x: bf16[32, 128]\nw: bf16[128, 48]\nreturn x @ w\n")
    x, w = asked.values
    total = torch.zeros(32, 48, dtype=torch.bfloat16)
    for k in range(128):
        total = total + (x[:, k : k + 1].float() * w[k : k + 1].float()).bfloat16()
    (short,), (right,) = asked.of(total), asked.of(x @ w)
    assert error_of(short) > 2.5
    assert error_of(right) < 0.6


def gradients(asked: Asked, backend: SDPBackend) -> Sequence[torch.Tensor]:
    given = [v.detach().clone().requires_grad_() for v in asked.values]
    with sdpa_kernel(backend):
        out = F.scaled_dot_product_attention(*given)
        return (out.detach(), *torch.autograd.grad(out, given, asked.upstream[0]))


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
@pytest.mark.parametrize("spread", [0.01, 1.0, 30.0])
def test_the_gradients_of_attention_have_the_room_of_what_cancels_in_them(backend: SDPBackend, spread: float) -> None:
    """Values that are nearly alike, and scores that leave one key of a row: nearly all of the gradient cancels."""
    generator = torch.Generator().manual_seed(7)
    q, k = (torch.randn(1, 2, 64, 32, generator=generator).mul(spread**0.5 * 4).bfloat16() for _ in range(2))
    v = (3 + spread * 0.1 * torch.randn(1, 2, 64, 32, generator=generator)).bfloat16()
    text = "\n".join(f"{n}: bf16[1, 2, 64, 32].requires_grad" for n in "qkv")
    asked = Asked(text + "\nreturn F.scaled_dot_product_attention(q, k, v)\n", q, k, v)
    found = asked.of(*gradients(asked, backend))
    assert max(map(error_of, found)) < 1.5
    scaled = asked.of(*(1.05 * g.float() for g in gradients(asked, backend)))
    assert max(map(error_of, scaled)) > 2


QUANTISED = "x: f32[4, 8]\nreturn torch.round(x * 0.7).clamp(-127, 127).to(torch.int8)\n"


def test_a_number_at_a_border_may_fall_on_either_side_and_no_other_may() -> None:
    x = torch.arange(32, dtype=torch.float32).reshape(4, 8)
    x[0, 3] = torch.nextafter(torch.tensor(2.5 / 0.7), torch.tensor(9.0))
    asked = Asked(QUANTISED, x)
    right = torch.round(x.double() * 0.7).to(torch.int8)
    for place, outside in (((0, 3), 0.0), ((0, 4), 1 / 32)):
        other = right.clone()
        other[place] += 1 if other[place] < x.double()[place] * 0.7 else -1
        (found,) = asked.of(other)
        assert found.error == 1 / 32
        assert found.in_room is not None
        assert found.in_room.outside == outside


@pytest.mark.parametrize(("text", "outside"), [("x > 0.5", 1 / 64), ("torch.exp(x) > 1.6487212707001282", 0.0)])
def test_a_comparison_of_inputs_has_no_border_and_of_results_it_has(text: str, outside: float) -> None:
    x = torch.full((8, 8), 3.0)
    x[2, 2] = 0.5
    asked = Asked(f"x: f32[8, 8]\nreturn {text}\n", x)
    wrong = asked.expected.outputs[0].clone()
    wrong[2, 2] = ~wrong[2, 2]
    (found,) = asked.of(wrong)
    assert found.in_room is not None
    assert found.in_room.outside == outside


def test_float8_is_judged_by_its_steps() -> None:
    asked = Asked("x: f32[64, 64]\nreturn (x * 3.0).to(torch.float8_e4m3fn)\n")
    (x,) = asked.values
    (right,) = asked.of((x * 3.0).to(torch.float8_e4m3fn))
    (scaled,) = asked.of((x * 3.03).to(torch.float8_e4m3fn))
    assert right.in_room is not None
    assert scaled.in_room is not None
    assert right.in_room.outside == 0.0
    assert scaled.in_room.outside > 0.05
    assert scaled.error < 0.0625  # within the rounding of the type, by the norm


def test_an_index_may_point_at_what_rounding_makes_as_large() -> None:
    x = torch.tensor([[1.0, 2.0, 2.0 + 2**-22, 0.0]])
    asked = Asked("x: f32[1, 4]\nreturn (x * 1.1).argmax(-1)\n", x)
    for index, outside in ((2, 0.0), (1, 0.0), (0, 1.0)):
        (found,) = asked.of(torch.tensor([index]))
        assert (found.in_room.outside if found.in_room else 0.0) == outside


def test_a_row_that_is_off_shows_though_the_norm_hides_it() -> None:
    asked = Asked("x: bf16[512, 64]\nreturn torch.tanh(x * 0.5 + x)\n")
    (right,) = asked.module(*asked.values)
    wrong = right.clone()
    wrong[300] = (wrong[300].float() * 1.03).bfloat16()
    (found,), (before,) = asked.of(wrong), asked.of(right)
    assert found.error < 1.5 * before.error
    assert found.in_room is not None
    assert before.in_room is not None
    assert found.in_room.row > 4 > 2 * before.in_room.row


def test_the_same_seed_gives_the_same_room() -> None:
    text = "x: bf16[32, 64]\nreturn softmax(x * 3.0, -1) * 2.0\n"
    first, second = Asked(text), Asked(text)
    assert first.rooms[0].size is not None
    assert second.rooms[0].size is not None
    assert torch.equal(first.rooms[0].size, second.rooms[0].size)


def test_attention_in_parts_is_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a generator nothing is drawn: parts give what the whole gives."""
    generator = torch.Generator().manual_seed(3)
    given = [torch.randn(2, h, 16, 8, dtype=torch.float64, generator=generator) for h in (4, 2, 2)]
    mask = torch.rand(2, 1, 16, 16, generator=generator) < 0.8
    found = []
    for most in (1 << 26, 300):
        monkeypatch.setattr(rounded_attention, "MOST_SCORES", most)
        values = [v.clone().requires_grad_() for v in given]
        out = rounded_attention.attention(Rounding(), torch.float64, *values, attn_mask=mask, enable_gqa=True)
        found.append((out, *torch.autograd.grad(out.square().sum(), values)))
    values = [v.clone().requires_grad_() for v in given]
    out = F.scaled_dot_product_attention(*values, attn_mask=mask, enable_gqa=True)
    torch_own = (out, *torch.autograd.grad(out.square().sum(), values))
    for whole, parts, right in zip(*found, torch_own, strict=True):
        torch.testing.assert_close(parts, whole)
        torch.testing.assert_close(whole, right, rtol=1e-5, atol=1e-5)  # scores are in float32


def test_a_result_of_one_value_may_be_off_as_a_whole_by_two_roundings_and_by_no_more() -> None:
    """A gradient kept in bf16 before 1 / rows is multiplied in: all its elements are rounded the same way, twice."""

    def rounded(value: float) -> float:
        return float(torch.tensor(value, dtype=torch.float64).bfloat16())

    values = [1.0 + number / 128 for number in range(128)]
    value = min(values, key=lambda v: abs(rounded(v / 384 * 1.3) / (v / 384 * 1.3) - 1))  # once, it is hardly rounded
    text = "x: bf16[384, 256]\nreturn ((x.float() / 384).to(bf16).float() * 1.3).to(bf16)\n"
    asked = Asked(text, torch.full((384, 256), value).bfloat16())
    exact = value / 384 * 1.3
    factors = [1.0 + number / 64 for number in range(64)]  # that a kernel may keep it by
    twice = max((rounded(rounded(exact * f) / f) for f in factors), key=lambda made: abs(made / exact - 1))
    off = abs(twice / exact - 1)
    assert off > 2.0**-8

    def verdict(made: float) -> Verdict:
        full = torch.full((384, 256), made)
        eager = asked.module(*asked.values)
        return judge([Case("tiny", "float64", asked.of(full.bfloat16()))], [Case("tiny", "float64", asked.of(*eager))])

    assert verdict(twice).ok
    assert not verdict(rounded(exact * 1.013)).ok


def test_a_result_of_many_values_has_no_more_room_as_a_whole_for_it() -> None:
    asked = Asked("x: bf16[384, 256]\nreturn (x.float() / 384).to(bf16)\n")
    (room,) = asked.rooms
    assert 8 * room.slope < 0.001


MASKED = """q: bf16[1, 2, 192, 64].requires_grad
k: bf16[1, 2, 192, 64].requires_grad
v: bf16[1, 2, 192, 64].requires_grad
i = arange(192)
keep = (i[:, None] >= i[None, :]) & (i[:, None] - i[None, :] < 80)
s = ((q @ k.transpose(-1, -2)) * 0.125).masked_fill(~keep, float('-inf'))
return softmax(s.float(), -1).to(bf16) @ v
"""


def test_attention_with_a_mask_of_infinities_has_room_and_the_fused_gradients_of_positive_inputs_lie_in_it() -> None:
    """What a kernel subtracts from a row is off by its rounded result, for all of the row together."""
    torch.manual_seed(0)
    values = [torch.rand(1, 2, 192, 64).bfloat16() for _ in range(3)]
    asked = Asked(MASKED, *values)
    assert all(room.size is not None and bool((room.size > 0).all()) for room in asked.rooms)
    assert [room.together > 1.5 for room in asked.rooms[:2]] == [False, True], "the result, the queries' gradient"
    i = torch.arange(192)
    keep = (i[:, None] >= i[None, :]) & (i[:, None] - i[None, :] < 80)
    given = [t.clone().requires_grad_() for t in values]
    result = F.scaled_dot_product_attention(*given, attn_mask=keep)
    upstream = asked.upstream[0]
    assert upstream is not None
    fused = asked.of(result.detach(), *torch.autograd.grad(result, given, upstream))
    assert [round(error_of(one), 1) <= 1.0 for one in fused] == [True] * 4
    assert fused[1].error > 0.01, "as far off as that would not pass by eager's own error"
