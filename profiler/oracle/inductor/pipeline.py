"""Ask Inductor itself: its whole pipeline runs on fake tensors, and its code is kept instead of being compiled.

Forward regions go through compile_fx as torch.compile's would. Nothing is launched; no kernel is built. Leans on
private API: each assumption is a test in tests/profiler/oracle/inductor/test_contract.py.
"""

from __future__ import annotations

import contextlib
import functools
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch._dynamo.utils import counters
from torch._inductor import select_algorithm
from torch._inductor.codegen.triton import TritonScheduling
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.fx_passes import joint_graph, pad_mm
from torch._inductor.graph import GraphLowering
from torch._inductor.runtime.coordinate_descent_tuner import CoordescTuner
from torch._inductor.virtualized import V

from profiler.hardware import Device
from profiler.oracle.compiler.targets import TARGETS
from profiler.oracle.inductor.attention import whole_attention
from profiler.oracle.inductor.call_sites import Tensors
from profiler.oracle.inductor.fake_gpu import DEVICE, fake_gpu, takes_device
from profiler.oracle.inductor.training import NoBackwardError, compile_training, patterns_on_cpu
from profiler.oracle.model import Operand
from profiler.region.language.checks import dtype_name
from profiler.region.language.program import Program, program
from profiler.region.model import Region


@dataclass(frozen=True, slots=True)
class WrapperText:
    """One wrapper as Inductor wrote it, for the "forward" or the "backward" stage. tensors: what its names hold."""

    stage: str
    text: str
    tensors: Tensors


@dataclass(slots=True)
class InductorOutput:
    """What one run of Inductor wrote.

    texts: one wrapper for each graph. bytes_moved: by kernel name. counts: its counters. assumed: what it would have
    timed. lines: node of the program -> line of the region's text.
    """

    texts: list[WrapperText] = field(default_factory=list)
    bytes_moved: dict[str, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    assumed: list[str] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)


class _Unbuilt:
    """Stands where the compiled module would: there is nothing to call."""

    __file__ = ""

    @staticmethod
    def call(*_: object) -> None:
        raise AssertionError("the oracle never launches what Inductor wrote")


def _bytes_moved(kernel: Any) -> int:
    """Inductor's own count; for a template ours, because Inductor's leaves out what the fused epilogue reads."""
    if not isinstance(kernel, select_algorithm.TritonTemplateKernel):
        return int(kernel.estimate_kernel_num_bytes())
    graph = V.graph
    sizes: Any = graph.sizevars
    hint = getattr(sizes, "optimization_hint", None) or sizes.size_hint  # torch 2.13, before
    names = {str(a) for a in kernel.args.python_argdefs()[1]}
    buffers = [n for n in names if n in graph.name_to_buffer or n in graph.graph_inputs]
    return sum(int(hint(graph.get_numel(n))) * int(graph.get_dtype(n).itemsize) for n in buffers)


def _tensors(graph: GraphLowering) -> Tensors:
    """Each buffer of the graph as it is laid out, by the name that the wrapper gives it.

    What has no layout of its own, or a symbolic one, is left out.
    """
    named: dict[str, Any] = {**graph.constants, **graph.graph_inputs, **graph.name_to_buffer}
    tensors: dict[str, tuple[Operand, ...]] = {}
    for name, value in named.items():
        results = getattr(value, "outputs", None)  # of a call with several results: some may be no tensors
        parts = results if isinstance(results, list | tuple) and results else [value]
        held = tuple(operand for operand in map(_operand, parts) if operand is not None)
        if held:
            tensors[name] = held
    return tensors


def _operand(value: Any) -> Operand | None:
    """Of a tensor, or of a node of Inductor's graph; None for what is neither, and for symbolic sizes."""
    try:
        if isinstance(value, torch.Tensor):
            shape, stride, dtype = value.shape, value.stride(), value.dtype
        else:
            shape, stride, dtype = value.get_size(), value.get_stride(), value.get_dtype()
        return Operand(dtype_name(dtype), tuple(map(int, shape)), tuple(map(int, stride)))
    except (AttributeError, NotImplementedError, TypeError, RuntimeError):
        return None


SETTINGS: Mapping[str, Any] = {
    "joint_graph_constant_folding": False,  # runs constructors on the device
    "force_disable_caches": True,
    "compile_threads": 1,
    "triton.autotune_at_compile_time": False,
    "max_autotune_report_choices_stats": False,
}
AUTOTUNE: Mapping[str, Any] = {
    **torch._inductor.list_mode_options("max-autotune-no-cudagraphs"),
    "max_autotune_gemm_backends": "TRITON,ATEN",
    "benchmark_epilogue_fusion": False,  # times the fused against the unfused product
}


@contextlib.contextmanager
def collect_output(output: InductorOutput, build: bool) -> Iterator[None]:
    """Whatever Inductor writes meanwhile is added to `output`. build: whether it is compiled as well."""
    generate = GraphLowering.codegen
    define: Any = TritonScheduling.define_kernel

    def codegen(graph: GraphLowering) -> Any:
        code = generate(graph)
        text = getattr(code[0], "value", code[0])
        output.texts.append(WrapperText("backward" if graph.is_backward else "forward", str(text), _tensors(graph)))
        return code

    def define_kernel(scheduling: Any, source: Any, schedule: Any, kernel: Any, *rest: Any, **more: Any) -> Any:
        name = define(scheduling, source, schedule, kernel, *rest, **more)
        with contextlib.suppress(Exception):  # a count that Inductor cannot make is a count that is not shown
            output.bytes_moved[str(name)] = _bytes_moved(kernel)
        return name

    def unbuilt(graph: GraphLowering) -> Any:
        graph.codegen()
        return _Unbuilt()

    before = Counter(counters["inductor"])
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(GraphLowering, "codegen", codegen))
        stack.enter_context(mock.patch.object(TritonScheduling, "define_kernel", define_kernel))
        if not build:
            stack.enter_context(mock.patch.object(GraphLowering, "compile_to_module", unbuilt))
        yield
    output.counts.update(Counter(counters["inductor"]) - before)


PADDED = "a product whose rows are no multiples of 16 bytes is padded: Inductor would time that"
UNPADDED = "a product of an odd number of rows is not padded: Inductor would time that"
TEMPLATES = "a Triton GEMM template wins the autotuning, with its largest tile: Inductor would time that"


@contextlib.contextmanager
def pretend_gpu(device: Device, mode: str, output: InductorOutput) -> Iterator[None]:
    """Everything that lets Inductor write code for a GPU that is not there."""
    first: Any = joint_graph.lazy_init

    def on_cpu(*_: object) -> Any:
        # The attention patterns build constants on the device: on the CPU they are the same patterns.
        return first(torch.device("cpu")) if takes_device(first) else first()

    settings = {**SETTINGS, **(AUTOTUNE if mode == "max-autotune" else {})}
    with contextlib.ExitStack() as stack:
        if not takes_device(first):
            first()
        stack.enter_context(fake_gpu(device))
        stack.enter_context(patterns_on_cpu())
        stack.enter_context(mock.patch.object(joint_graph, "lazy_init", on_cpu))
        stack.enter_context(inductor_config.patch({k: v for k, v in settings.items() if _is_setting(k)}))
        stack.enter_context(functorch_config.patch(enable_autograd_cache=False))
        stack.enter_context(whole_attention())
        stack.enter_context(_assume_padding(output))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        if mode == "max-autotune":
            stack.enter_context(_templates_win(output, device))
            if hasattr(CoordescTuner, "autotune_single_field"):  # torch 2.13: times how a mixed-order reduction splits
                first_split = staticmethod(lambda _, split, *__: split)
                stack.enter_context(mock.patch.object(CoordescTuner, "autotune_single_field", first_split))
        yield


def _is_setting(name: str) -> bool:
    """Whether this torch's Inductor has it: settings come and go."""
    holder: Any = inductor_config
    for part in name.split("."):
        if not hasattr(holder, part):
            return False
        holder = getattr(holder, part)
    return True


@contextlib.contextmanager
def _assume_padding(output: InductorOutput) -> Iterator[None]:
    """Where Inductor would time a padded product against the unpadded one: only for products bound by arithmetic.

    Padding wins where rows of an operand do not begin at multiples of 16 bytes, so that the library cannot load them
    whole; an odd number of rows alone costs nothing (one H200, torch 2.11: 6 of 6 and 11 of 11 products).
    """
    key_of = pad_mm.should_pad_bench_key
    ragged: list[bool] = []

    def remember(match: Any, first: Any, second: Any, *rest: Any, **more: Any) -> str:
        ragged[:] = [_ragged(first) or _ragged(second)]
        return str(key_of(match, first, second, *rest, **more))

    def answered(_: Any) -> bool:
        assumption = PADDED if ragged[0] else UNPADDED
        if assumption not in output.assumed:
            output.assumed.append(assumption)
        return ragged[0]

    with (
        mock.patch.object(pad_mm, "should_pad_bench_key", remember),
        mock.patch.object(pad_mm, "get_cached_should_pad", answered),
    ):
        yield


def _ragged(operand: torch.Tensor) -> bool:
    """Its rows do not all begin at multiples of 16 bytes."""
    strides = [int(s) for s, size in zip(operand.stride(), operand.shape, strict=True) if int(size) > 1]
    return any(s != 1 and s * operand.element_size() % 16 for s in strides)


@contextlib.contextmanager
def _templates_win(output: InductorOutput, device: Device) -> Iterator[None]:
    """Autotuning without a device: the largest tile of a Triton template counts as the fastest, and library calls
    the slowest. Times of nothing; only the order counts.
    """
    cache = select_algorithm.AlgorithmSelectorCache
    preference = functools.partial(_preference, room=TARGETS[device.arch].shared_block_bytes)

    def timings(_: Any, /, choices: Any, *__: object, **___: object) -> Any:
        if TEMPLATES not in output.assumed:
            output.assumed.append(TEMPLATES)
        return lambda offered: {c: 1.0 + place for place, c in enumerate(sorted(offered, key=preference))}

    def nothing(*_: object, **__: object) -> Any:
        return lambda *_, **__: {}

    before = cache.__dict__["make_benchmark_fn"]
    replaced: Any = classmethod(timings) if isinstance(before, classmethod) else timings
    with (
        mock.patch.object(cache, "make_benchmark_fn", replaced),
        mock.patch.object(cache, "make_precompile_fn", nothing),
        mock.patch.object(select_algorithm, "PRINT_AUTOTUNE", False),
        inductor_config.patch(autotune_num_choices_displayed=0),
    ):
        yield


def _preference(choice: Any, room: int) -> tuple[bool, bool, int]:
    """Triton before libraries, tiles whose pipeline fits into shared memory first, large tiles before small ones."""
    description = str(getattr(choice, "description", ""))
    tile = {k: int(v) for k, v in re.findall(r"(BLOCK_[MNK]|num_stages)=(\d+)", description)}
    m, n, k, stages = (tile.get(name, 0) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_stages"))
    template = isinstance(choice, select_algorithm.TritonTemplateCaller)
    item = getattr(getattr(getattr(choice, "layout", None), "dtype", None), "itemsize", 2)
    return not template, stages * (m + n) * k * item > room, -m * n


def ask(region: Region, binding: Mapping[str, int] | None, device: Device, mode: str = "default") -> InductorOutput:
    """What Inductor writes for a region, forward + backward where an input requires gradients.

    Raises what Inductor raises.
    """
    output = InductorOutput()
    with pretend_gpu(device, mode, output), collect_output(output, build=False):
        built = program(region, binding, "cpu" if region.requires_grad else DEVICE)
        output.lines |= {n.name: int((n.meta.get("custom") or {}).get("line", 0)) for n in built.module.graph.nodes}
        (compile_training if region.requires_grad else compile_forward)(built)
    if region.requires_grad and not any(wrapper.stage == "backward" for wrapper in output.texts):
        raise NoBackwardError("Inductor wrote no backward graph")
    return output


def compile_forward(built: Program) -> None:
    """Inductor's pipeline on the program's fakes, without gradients."""
    with torch.no_grad():
        compile_fx(built.module, list(built.inputs), inner_compile=compile_fx_inner)
