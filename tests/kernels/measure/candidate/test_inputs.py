"""Inputs are what the text says, equal in every process, and fresh for every set."""

from __future__ import annotations

import weakref

import pytest
import torch

from kernels.measure.candidate import inputs
from kernels.measure.candidate.worker import Worker
from profiler.region.language.program import program
from profiler.region.language.text import parse

SEED = 8063097956645046803


def made(text, **arguments):
    region = parse(text + "\nreturn x")
    return inputs.input_set(region, region.bindings[0], "cpu", 1, **arguments)[0]


def test_seeds_are_equal_across_processes():
    # found by another process; hash() would give another number in each
    assert inputs.seed_of(3, "x", [("N", 5)]) == SEED


TWO = "x: f32[256, 64]\ny: f32[256, 32]\nz: f32[256, 64]\nreturn x, y, z"


def test_of_new_contents_only_one_input_is_there_at_a_time(monkeypatch):
    """A set that fills most of the card is renewed one input after the other: none stays for the next one's sake."""
    made: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []
    draw = inputs.one_input

    def drawn(*arguments):
        alive.append(sum(ref() is not None for ref in made))
        value = draw(*arguments)
        made.append(weakref.ref(value))
        return value

    worker = Worker(None)
    task = worker._build(lambda *_: lambda *x: x, "any", parse(TWO), {})
    values = worker.checker.timed_inputs(task, 0, 1)
    monkeypatch.setattr(inputs, "one_input", drawn)
    inputs.refill(values, worker.checker.timed_one_by_one(task, 0, 2))
    assert alive == [0, 0, 0]
    monkeypatch.undo()
    assert all(map(torch.equal, values, worker.checker.timed_inputs(task, 0, 2)))


def test_new_contents_of_another_number_than_the_inputs_are_refused():
    values, more = [torch.zeros(4)], [torch.ones(4), torch.ones(4)]
    with pytest.raises(ValueError, match="more contents"):
        inputs.refill(values, more)
    with pytest.raises(ValueError, match="fewer contents"):
        inputs.refill(values, [])


def test_what_new_contents_take_is_the_largest_input_and_what_it_is_drawn_as():
    text = "x: bf16[256, 64]\ny: i64[8].below(1000)\nreturn x"
    assert inputs.renewed_bytes(parse(text), {}) == 256 * 64 * (2 + 4)
    huge = "x: bf16[1048576, 8192]\nreturn x"
    assert inputs.renewed_bytes(parse(huge), {}) == 2 * 2**33 + 4 * inputs.PIECE


def test_sets_differ_and_repeat():
    first, second = made("x: f32[64]"), made("x: f32[64]", number=1)
    assert not torch.equal(first, second)
    assert torch.equal(first, made("x: f32[64]"))


def test_indices_stay_below_their_bound_and_use_it():
    values = made("x: i64[4096].below(37)")
    assert (values.min(), values.max()) == (0, 36)


def test_offsets_are_sorted_from_zero_to_the_end():
    values = made("x: i64[33].offsets(1000)")
    assert values[0] == 0
    assert values[-1] == 1000
    assert (values.diff() >= 0).all()


def test_masks_have_their_share_of_ones():
    values = made("x: bf16[64, 1024].mask(0.9)").float()
    assert set(values.unique().tolist()) == {0.0, 1.0}
    assert values.mean().item() == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "f16", "f8e4m3", "f8e5m2"])
@pytest.mark.parametrize("distribution", inputs.DISTRIBUTIONS)
def test_floats_are_finite_and_vary(dtype, distribution):
    values = made(f"x: {dtype}[2048]", distribution=distribution).float()
    assert values.isfinite().all()
    # tiny values underflow in 8 bits: few are left there
    assert values.std() > 0
    if distribution == "uniform":
        assert values.min() >= 0


def test_layouts_are_as_declared():
    assert made("x: f32[2, 3, 4, 5].channels_last").is_contiguous(memory_format=torch.channels_last)
    assert made("x: f32[8, 16].strides(1, 8)").stride() == (1, 8)
    broadcast = made("x: f32[8, 16].strides(0, 1)")
    assert broadcast.stride() == (0, 1)
    assert torch.equal(broadcast[0], broadcast[7])
    assert broadcast.std() > 0


def test_a_chain_of_products_keeps_its_size():
    lines = ["x: f16[64, 512]", *(f"w{i}: f16[512, 512]" for i in range(4))]
    chain = parse("\n".join([*lines, "y = x @ w0 @ w1 @ w2 @ w3", "return y"]))
    built = program(chain)
    scales = inputs.weight_scales(built.module)
    assert set(scales) == {"w0", "w1", "w2", "w3"}
    values = inputs.input_set(chain, {}, "cpu", 0, scales=scales)
    (out,) = built.module(*values)
    assert 0.3 < out.float().std() < 3  # unscaled it would be 512² and overflow f16


def test_a_transposed_weight_is_scaled_by_its_own_fan_in():
    region = parse("x: f32[8, 512]\nw: f32[32, 512]\na = x @ w.t()\nb = linear(x, w)\nreturn a, b")
    assert inputs.weight_scales(program(region).module)["w"] == pytest.approx(512**-0.5)


def test_attention_operands_are_no_weights():
    region = parse("q: f32[2, 4, 64, 32]\nk: f32[2, 4, 64, 32]\nreturn q @ k.transpose(-2, -1)")
    assert inputs.weight_scales(program(region).module) == {}


@pytest.mark.parametrize(
    ("size", "memory", "sets"),
    [(1_000_000, 1e12, 150), (200_000_000, 1e12, 2), (1, 1e12, inputs.MAX_SETS), (4e9, 6e9, 1), (25_000_000, 1e12, 6)],
)
def test_sets_together_are_three_times_l2(size, memory, sets):
    assert inputs.set_count(int(size), 50e6, memory) == sets


def test_same_bits_sees_a_negative_zero_and_not_a_nan():
    ones = torch.tensor([0.0, float("nan"), 1.0])
    assert inputs.same_bits(ones, ones.clone())
    assert not inputs.same_bits(ones, torch.tensor([-0.0, float("nan"), 1.0]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn,
                                   torch.float8_e5m2])  # fmt: skip
def test_poisoned_memory_is_nan_in_every_floating_type(dtype):
    values = inputs.poisoned(1024, "cpu").view(dtype)
    assert values.float().isnan().all()


def test_special_inputs_hold_what_kernels_get_wrong():
    values = made("x: bf16[16, 64]", distribution=inputs.SPECIAL).float()
    assert values[0].isnan().sum() == 1
    assert (values[1] == float("inf")).sum() == (values[2] == float("-inf")).sum() == 1
    assert [v.unique().tolist() for v in values[3:6]] == [[0.0], [1.5], [float("-inf")]]
    assert values[6:].isfinite().all()
    assert made("x: f32[64]", distribution=inputs.SPECIAL).isfinite().all()
