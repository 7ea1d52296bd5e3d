"""What would break: operations lost or counted twice, weights allocated, values that a program reads unnoticed."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from profiler.program.model import NO_PARENT, Program
from profiler.program.record import Workload, record
from profiler.region import op_kinds
from tests.profiler.program import programs


def recorded(make: Callable[[], tuple[Any, torch.Tensor]], *, training: bool = False) -> Program:
    def workload() -> Workload:
        module, inputs = make()
        return Workload(module, (inputs,), {})

    return record("program", workload, training=training)


def test_flops_of_matrix_products_are_those_that_torch_counts_of_a_run_with_memory() -> None:
    for training in (False, True):
        module, x = programs.blocks()
        with FlopCounterMode(display=False) as counter:
            module.train(training)
            result = module(x)
            if training:
                result.sum().backward()
        program = recorded(programs.blocks, training=training)
        products = sum(c.operation.flops for c in program.calls if c.operation and c.operation.kind == op_kinds.GEMM)
        seen = counter.get_flop_counts()["Global"]
        assert products == seen[torch.ops.aten.addmm] + seen.get(torch.ops.aten.mm, 0), training


def test_outermost_operations_are_those_that_the_profiler_sees_in_a_run_with_memory() -> None:
    module, x = programs.blocks()
    module.eval()
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as recording:
        module(x)
    seen = Counter(e.name for e in recording.events() if e.cpu_parent is None and e.name.startswith("aten::"))
    program = recorded(programs.blocks)
    outermost = Counter(c.name for c in program.calls if c.parent == NO_PARENT)
    assert outermost == Counter({n: c for n, c in seen.items() if n != "aten::dropout"})  # which does nothing here


def test_gradients_are_not_copied_because_the_recorder_holds_them() -> None:
    names = Counter(c.name for c in recorded(programs.blocks, training=True).calls)
    assert "aten::new_empty_strided" not in names
    assert names["torch::autograd::AccumulateGrad"] == len(list(programs.blocks()[0].parameters()))


def test_each_forward_call_is_in_its_module_and_in_the_function_that_made_it() -> None:
    program = recorded(programs.blocks)
    gelu = next(c for c in program.calls if c.name == "aten::gelu")
    stack = [program.frames[i] for i in program.stacks[gelu.stack]]
    line = inspect.getsourcelines(programs.Block.forward)[1]
    assert "nn.Module: Block_0" in stack
    assert stack[-1] == f"tests/profiler/program/programs.py({line}): forward"


def test_backward_calls_have_the_number_of_the_forward_call_that_they_answer() -> None:
    program = recorded(programs.blocks, training=True)
    forward = {c.sequence for c in program.calls if not c.backward and c.name == "aten::addmm"}
    backward = {c.sequence for c in program.calls if c.backward and c.name == "AddmmBackward0"}
    assert forward == backward
    assert len(forward) == 6


def test_a_value_that_is_read_is_named_with_its_line_and_the_rest_is_recorded() -> None:
    program = recorded(programs.reads)
    source, first = inspect.getsourcelines(programs.Reads.forward)
    line = first + next(i for i, text in enumerate(source) if "tests look for" in text)
    assert [(g.where, g.ends) for g in program.gaps] == [(f"tests/profiler/program/programs.py:{line}", False)]
    assert program.calls[-1].name in ("aten::relu", "aten::clamp_min")


def test_what_comes_before_an_error_is_recorded() -> None:
    program = recorded(programs.stops)
    assert [(g.what, g.ends) for g in program.gaps] == [("ValueError: no more after 2 dimensions", True)]
    assert "aten::softmax" in {c.name for c in program.calls}


def test_a_module_that_returns_its_loss_by_name_trains_on_that_alone() -> None:
    program = recorded(programs.losses, training=True)
    assert Counter(c.name for c in program.calls)["torch::autograd::AccumulateGrad"] == 2


def test_attention_is_the_fused_call_that_a_gpu_has() -> None:
    def long_heads() -> tuple[nn.Module, torch.Tensor]:
        return programs.Block(4096), torch.randn(2, 64, 4096)  # heads of 1,024: no fused kernel takes them

    fused = {c.name for c in recorded(programs.blocks).calls}
    assert "aten::_scaled_dot_product_cudnn_attention" in fused
    assert "aten::_scaled_dot_product_attention_math" in {c.name for c in recorded(long_heads).calls}


@pytest.mark.parametrize("how", programs.VALUES_READ)
def test_the_host_waits_once_for_a_value_that_it_reads(how: str) -> None:
    program = recorded(lambda: (programs.VALUES_READ[how], torch.randn(64, 64)))
    assert sum(call.waits for call in program.calls) == 1


@pytest.mark.parametrize("how", programs.VALUES_READ)
def test_what_is_read_is_named_with_its_line_and_does_not_end_the_record(how: str) -> None:
    program = recorded(lambda: (programs.VALUES_READ[how], torch.randn(64, 64)))
    if how in ("cpu", "to", "to by name"):  # nothing is assumed: the values are copied
        assert program.gaps == ()
        return
    lines = inspect.getsourcelines(programs)[0]
    places = [gap.where.rpartition(":") for gap in program.gaps]
    assert {file for file, _, _ in places} == {"tests/profiler/program/programs.py"}
    assert not any(gap.ends for gap in program.gaps)
    named = {lines[int(line) - 1].strip() for _, _, line in places}
    wanted = "end.synchronize()" if how == "an event's" else f'"{how}": '
    assert any(line.startswith(wanted) for line in named), named


def test_a_wait_for_the_gpu_is_a_call_of_cudas_name() -> None:
    program = recorded(lambda: (programs.VALUES_READ["synchronize"], torch.randn(64, 64)))
    assert [(c.name, c.operation is None) for c in program.calls if c.waits] == [("cudaDeviceSynchronize", True)]


def test_what_is_not_alike_is_as_many_as_there_are_values() -> None:
    program = recorded(lambda: (programs.VALUES_READ["unique"], torch.randn(64, 64)))
    (doubled,) = (c.operation for c in program.calls if c.name == "aten::mul" and c.operation is not None)
    assert [w.shape for w in doubled.writes] == [(64 * 64,)]


def test_more_values_than_can_be_made_up_end_the_record_in_words() -> None:
    program = recorded(lambda: (lambda x: (x * 2).tolist(), torch.empty(1 << 13, 1 << 13)))
    assert [(g.what.partition(": ")[2], g.ends) for g in program.gaps] == [
        ("67,108,864 values are read (tolist): more than 16,777,216 are not assumed", True)
    ]


@pytest.mark.parametrize("how", programs.NONE_READ)
def test_the_host_waits_for_nothing_where_it_reads_no_value_of_the_gpu(how: str) -> None:
    program = recorded(lambda: (programs.NONE_READ[how], torch.randn(64, 64)))
    assert not [call.name for call in program.calls if call.waits]
    assert "aten::_local_scalar_dense" not in {call.name for call in program.calls if call.operation}


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_layer_says_that_a_gpu_runs_it_otherwise(kind: type[nn.Module]) -> None:
    program = recorded(lambda: (kind(16, 16), torch.randn(4, 2, 16)))
    assert [gap.what for gap in program.gaps if "cuDNN" in gap.what]
    assert not any(gap.ends for gap in program.gaps)


def test_padding_with_nothing_is_a_copy() -> None:
    program = recorded(programs.pads_nothing)
    names = [c.name for c in program.calls]
    assert names[names.index("aten::pad") :][:3] == ["aten::pad", "aten::constant_pad_nd", "aten::clone"]
    (padded,) = (c for c in program.calls if c.name == "aten::constant_pad_nd")
    assert padded.operation is None


def test_a_number_of_the_hosts_is_filled_in_and_no_tensor_is_made_of_it() -> None:
    program = recorded(programs.sets_numbers)
    names = [c.name for c in program.calls]
    assert names.count("aten::fill_") == 2
    (first, _) = (c.operation for c in program.calls if c.name == "aten::fill_")
    assert first is not None
    assert first.writes[0].shape == (32,)
    assert not any(gap.ends for gap in program.gaps)
