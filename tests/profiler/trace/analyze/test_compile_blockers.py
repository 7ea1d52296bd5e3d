"""What would stop torch.compile: each kind is found in a small trace that shows it, and in none that does not."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from profiler.trace import read_trace
from profiler.trace.analyze.compile_blocker_kinds import KINDS
from profiler.trace.analyze.compile_blockers import CompileBlocker, find_compile_blockers
from profiler.trace.analyze.forward_calls import Windows
from tests.profiler.trace.files import annotation, kernel, launch, op, written

Event = dict[str, object]

# A linear layer before, something, a linear layer after.
WEIGHT, INPUT = [64, 64], [8, 64]
LINEAR = {"Input Dims": [INPUT, WEIGHT], "Input type": ["float", "float"]}


class Program:
    """Events of one thread, in order: each call takes 10 µs, and what lies under it is placed inside."""

    def __init__(self, start: float = 100.0) -> None:
        self.at, self.events, self.correlation = start, [], 0

    def call(
        self, name: str, *, kernels: int = 0, copy: str = "", under: Iterable[str] = (), **args: object
    ) -> Program:
        start = self.at
        self.events.append(op(name, start, 10, **args))
        inner = start
        for number, nested in enumerate(under):
            inner = start + 1 + number
            self.events.append(op(nested, inner, 8 - 2 * number))
        for _ in range(kernels):
            self._launched(inner + 0.5)
        if copy:
            self._launched(inner + 0.5, copy)
        self.at += 20
        return self

    def _launched(self, at: float, copy: str = "") -> None:
        self.correlation += 1
        self.events.append(launch(at, self.correlation, name="cudaMemcpyAsync" if copy else "cudaLaunchKernel"))
        made = kernel(at + 5, 2, self.correlation, name=copy or "void gemm(float*)")
        self.events.append(made | {"cat": "gpu_memcpy"} if copy else made)

    def linear(self, weight: int = 64) -> Program:
        dims = {"Input Dims": [INPUT, [weight, 64]], "Input type": ["float", "float"]}
        return self.call("aten::linear", kernels=1, **dims)

    def raw(self, *events: Event) -> Program:
        self.events += events
        self.at += 20
        return self


def found_in(tmp_path: Path, program: Program, *more: Event) -> tuple[CompileBlocker, ...]:
    trace = read_trace(written(tmp_path, json.dumps({"traceEvents": [*program.events, *more]})))
    return find_compile_blockers(trace, trace.steps)


TO_HOST, TO_GPU = "Memcpy DtoH (Device -> Pinned)", "Memcpy HtoD (Pageable -> Device)"
PINNED = "Memcpy HtoD (Pinned -> Device)"
READ = {"under": ["aten::_local_scalar_dense"], "copy": TO_HOST}

BETWEEN = {
    "scalar-read": ("aten::item", READ),
    "tensor-branch": ("aten::is_nonzero", {"under": ["aten::item", "aten::_local_scalar_dense"], "copy": TO_HOST}),
    "value-comparison": ("aten::equal", {"under": ["aten::item"], "copy": TO_HOST, "kernels": 1}),
    "data-dependent-size": ("aten::masked_select", {"under": ["aten::nonzero"], "copy": TO_HOST, "kernels": 2}),
    "custom-op": ("mylib::fused_thing", {"kernels": 1}),
    "quantised-packed": ("quantized::linear_dynamic", {}),
    "recurrent": ("aten::lstm", {"under": ["aten::_cudnn_rnn"], "kernels": 3}),
    "torchscript": ("<forward op>", {"kernels": 1}),
    "sparse": ("aten::_sparse_mm", {"kernels": 1}),
    "complex": ("aten::mul", {"kernels": 1, "Input Dims": [[8, 32]], "Input type": ["c10::complex<float>"]}),
    "resize": ("aten::resize_", {}),
    "communication": ("c10d::allreduce_", {"kernels": 1}),
    "copy-to-host": ("aten::to", {"under": ["aten::_to_copy", "aten::copy_"], "copy": TO_HOST}),
    "copy-from-host": ("aten::to", {"under": ["aten::_to_copy", "aten::copy_"], "copy": TO_GPU}),
    "view-written": (
        "aten::copy_",
        {"kernels": 1, "Input Dims": [[8, 4], [8, 4]], "Input Strides": [[64, 1], [4, 1]], "Input type": ["float"] * 2},
    ),
}


@pytest.mark.parametrize("kind", BETWEEN)
def test_each_kind_is_named_between_two_layers(kind: str, tmp_path: Path):
    name, how = BETWEEN[kind]
    [blocker] = found_in(tmp_path, Program().linear().call(name, **how).linear(32))
    assert (blocker.kind, blocker.op, blocker.calls_per_step, blocker.within) == (kind, name, 1.0, "order")
    assert (blocker.effect, blocker.title) == (KINDS[kind].effect, KINDS[kind].title)


@pytest.mark.parametrize("kind", sorted(BETWEEN.keys() - {"custom-op", "recurrent"}))  # those may be its last layer
def test_none_is_the_models_behind_its_last_layer(kind: str, tmp_path: Path):
    """Loss, metrics, logging: what follows the model is not compiled with it."""
    name, how = BETWEEN[kind]
    program = Program().linear().linear(32)
    assert found_in(tmp_path, program.call(name, **how)) == ()


MASK_WRITE = {"under": ["aten::_index_put_impl_", "aten::nonzero"], "copy": TO_HOST, "kernels": 3}
WHOLE = {"kernels": 1, "Input Dims": [[8, 4], [8, 4], []], "Input Strides": [[4, 1], [4, 1], []]}
NO_OBSTACLE = {
    "a number on the host": ("aten::item", {"under": ["aten::_local_scalar_dense"]}),
    "x[mask] = 0": ("aten::index_put_", MASK_WRITE),
    "an index by whole numbers": ("aten::index", {"kernels": 1}),
    "repeat_interleave with output_size": ("aten::repeat_interleave", {"kernels": 1}),
    "nonzero of a tensor on the host": ("aten::nonzero", {}),
    "a copy from pinned memory": ("aten::to", {"copy": PINNED}),
    "a write into a whole tensor": ("aten::masked_fill_", WHOLE),
    "semi-structured weights": ("aten::_sparse_semi_structured_linear", {"kernels": 1}),
    "a custom operation on the host": ("mylib::tokenise", {}),
    "a histogram between bounds": ("aten::histc", {"kernels": 1}),
}


@pytest.mark.parametrize("case", NO_OBSTACLE)
def test_what_torch_compile_takes_is_no_obstacle(case: str, tmp_path: Path):
    name, how = NO_OBSTACLE[case]
    assert found_in(tmp_path, Program().linear().call(name, **how).linear(32)) == ()


def test_a_constant_made_on_the_gpu_is_no_copy_from_the_host(tmp_path: Path):
    program = Program().linear().call("aten::to", copy=TO_GPU).call("aten::lift_fresh").linear(32)
    assert found_in(tmp_path, program) == ()


@pytest.mark.parametrize("marker", ["Optimizer.step#SGD.step", "enumerate(DataLoader)#_Iter.__next__"])
def test_optimizer_and_data_loader_are_not_the_model(marker: str, tmp_path: Path):
    program = Program().linear().linear(32)
    at = program.at
    program.call("aten::item", **READ).linear().linear(32)
    assert found_in(tmp_path, program, annotation(marker, at - 2, 14)) == ()


def test_backward_is_not_looked_at(tmp_path: Path):
    program = Program().linear()
    node = op("autograd::engine::evaluate_function: FooBackward0", program.at - 2, 16)
    program.call("mylib::fused_thing", kernels=1).linear(32)
    assert found_in(tmp_path, program, node) == ()


def test_the_loop_round_a_model_is_not_the_model(tmp_path: Path):
    """Two passes: the `if` between them stands before the first layer comes again."""
    program = Program()
    for _ in range(2):
        program.linear(100).linear(32).call("aten::is_nonzero", under=["aten::item"], copy=TO_HOST)
    assert found_in(tmp_path, program) == ()


def test_equal_layers_are_one_pass(tmp_path: Path):
    program = Program().linear().linear().call("aten::item", **READ).linear().linear()
    assert [o.kind for o in found_in(tmp_path, program)] == ["scalar-read"]


def module(name: str, start: float, duration: float) -> Event:
    frame = {"ph": "X", "cat": "python_function", "name": f"nn.Module: {name}", "pid": 1, "tid": 1, "args": {}}
    return frame | {"ts": start, "dur": duration}


def test_modules_decide_where_they_are_recorded(tmp_path: Path):
    """Read in Net's forward, though no layer precedes it; not behind Net, nor in a metric that is a module."""
    program = Program().call("aten::item", **READ).linear().linear(32)
    net = module("Net_0", 95, program.at - 100)
    program.call("aten::item", **READ)
    metric = module("Accuracy_0", program.at - 1, 12)
    program.call("aten::item", **READ)
    [blocker] = found_in(tmp_path, program, net, metric)
    assert (blocker.within, blocker.modules, blocker.calls_per_step) == ("module", ("Net_0",), 1.0)


def test_an_annotation_of_the_forward_decides_where_there_are_no_modules(tmp_path: Path):
    program = Program().linear().call("aten::item", **READ).linear(32)
    forward = annotation("## forward ##", 99, program.at - 99)
    program.call("aten::item", **READ).linear()
    [blocker] = found_in(tmp_path, program, forward)
    assert (blocker.within, blocker.calls_per_step) == ("annotation", 1.0)


def test_calls_are_counted_by_step(tmp_path: Path):
    program, steps = Program(), []
    for number in range(3):
        start = program.at - 1
        program.linear(100).call("aten::item", **READ).call("aten::item", **READ).linear(32)
        steps.append(annotation(f"ProfilerStep#{number}", start, program.at - start - 1))
    [blocker] = found_in(tmp_path, program, *steps)
    assert blocker.calls_per_step == 2.0 and len(blocker.at) == 6


def test_a_wait_and_a_kernel_without_operation_are_seen_between_layers_only(tmp_path: Path):
    program = Program().linear()
    wait = launch(program.at, 90, name="cudaDeviceSynchronize")
    program.raw(wait, launch(program.at + 5, 91), kernel(program.at + 9, 3, 91, name="void mine::attention<8>(float*)"))
    program.linear(32)
    program.raw(launch(program.at, 92, name="cudaDeviceSynchronize"))  # the profiler's own, at the end
    found = {(o.kind, o.op): o.calls_per_step for o in found_in(tmp_path, program)}
    assert found == {("extension-call", "mine::attention"): 1.0, ("synchronise", "cudaDeviceSynchronize"): 1.0}


def test_a_triton_kernel_launched_by_hand_is_no_obstacle(tmp_path: Path):
    program = Program().linear()
    program.raw(launch(program.at, 91), kernel(program.at + 4, 3, 91, name="_rms_norm_fwd")).linear(32)
    assert found_in(tmp_path, program) == ()


def test_a_wait_inside_an_operation_is_the_operations_own(tmp_path: Path):
    program = Program().linear()
    inside = launch(program.at + 3, 90, name="cudaStreamSynchronize")
    program.call("aten::item", **READ).linear(32)
    assert [o.kind for o in found_in(tmp_path, program, inside)] == ["scalar-read"]


def test_a_compiled_frame_inside_another_is_a_graph_break_and_variants_are_recompilations(tmp_path: Path):
    regions = [
        op("Torch-Compiled Region: 0/0", 100, 90),
        op("aten::mul", 105, 5),  # compiled by a backend that runs aten operations
        op("aten::is_nonzero", 120, 10),
        op("TorchDynamo Cache Lookup", 135, 1),
        op("Torch-Compiled Region: 1/0", 140, 40),
        op("Torch-Compiled Region: 0/1", 200, 50),
    ]
    trace = read_trace(written(tmp_path, json.dumps({"traceEvents": regions})))
    found = {o.kind: o for o in find_compile_blockers(trace, trace.steps)}
    assert set(found) == {"compiled-in-parts", "recompiled"}
    assert found["compiled-in-parts"].op == "aten::is_nonzero"
    assert found["compiled-in-parts"].because.startswith("frame 1 inside frame 0")
    assert found["recompiled"].because.startswith("frame 0 in 2 variants")


def test_two_compiled_functions_side_by_side_are_no_graph_break(tmp_path: Path):
    regions = [op("Torch-Compiled Region: 0/0", 100, 50), op("Torch-Compiled Region: 1/0", 160, 50)]
    trace = read_trace(written(tmp_path, json.dumps({"traceEvents": regions})))
    assert find_compile_blockers(trace, trace.steps) == ()


def test_other_layers_of_other_sizes_are_not_many_shapes(tmp_path: Path):
    program, steps = Program(), []
    for number in range(4):
        start = program.at - 1
        program.linear(100).linear(90).linear(80).linear(70)
        steps.append(annotation(f"ProfilerStep#{number}", start, program.at - start - 1))
    assert found_in(tmp_path, program, *steps) == ()


def test_windows_that_nest_and_overlap():
    windows = Windows([(10, 50), (20, 30), (40, 60), (70, 80)])
    assert [at for at in range(0, 100, 5) if at in windows] == [10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 70, 75]
    assert [windows.innermost(at) for at in (5, 25, 30, 45, 55, 60)] == [
        None, (20, 30), (10, 50), (40, 60), (40, 60), None,
    ]  # fmt: skip
    assert windows.starting_in(20, 70).spans == [(20, 30), (40, 60)]
