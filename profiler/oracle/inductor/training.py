"""Forward + backward: AOTAutograd lays the joint graph out on the CPU, then it is moved to the GPU that is not there.

The C++ autograd engine asks for real devices, so the joint graph cannot be traced on fake CUDA tensors. It is the same
graph on either device, but for calls that dispatch by device: attention and dropout are given their CUDA form first.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Any
from unittest import mock

import torch
import torch._functorch.config as functorch_config
import torch.fx
import torch.nn.functional as F
from torch._decomp import decompositions
from torch._guards import detect_fake_mode
from torch._inductor import compile_fx as pipeline
from torch._inductor import decomposition as inductor_decompositions
from torch._inductor import pattern_matcher
from torch._inductor.fx_passes import fuse_attention
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from profiler.oracle.inductor.attention import attention
from profiler.oracle.inductor.fake_gpu import DEVICE
from profiler.region.language.program import Program


class NoBackwardError(Exception):
    """Inductor was asked for a backward graph, and none came out."""


def compile_training(built: Program) -> None:
    """Inductor's pipeline, forward and backward, for a program on CPU fakes. Needs `inductor.keeping` around it."""
    _as_on_cuda(built.module)
    required = [i.requires_grad for i in built.region.inputs]
    inputs = [x.detach().requires_grad_(r) for x, r in zip(built.inputs, required, strict=True)]
    with (
        torch.enable_grad(),
        _move_to_cuda(),
        _answer_as_cuda(),
        functorch_config.patch(force_non_lazy_backward_lowering=True),
    ):
        pipeline.compile_fx(built.module, inputs, inner_compile=_on_cuda(pipeline.compile_fx_inner))


def _as_on_cuda(module: torch.fx.GraphModule) -> None:
    """Calls that dispatch by device, in the form that they take on CUDA."""
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target is F.dropout:
            node.target = _dropout
        elif node.op == "call_function" and node.target is F.scaled_dot_product_attention:
            node.target = attention
    module.recompile()


def _dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    return torch.ops.aten.native_dropout(input, p, True)[0] if training else input


@contextlib.contextmanager
def _move_to_cuda() -> Iterator[None]:
    """The joint graph moves to CUDA before Inductor's first pass over it."""
    passes = pipeline._recursive_joint_graph_passes

    def after_moving(module: torch.fx.GraphModule, *rest: Any, **more: Any) -> Any:
        if "input_device" in more:
            more["input_device"] = torch.device(DEVICE)
        return passes(_move(module), *rest, **more)

    with mock.patch.object(pipeline, "_recursive_joint_graph_passes", after_moving):
        yield


NOT_THE_CPU = "cpu, which the region will not run on"


def _asking() -> tuple[FunctionType, ...]:
    """Decompositions with another formula for the CPU (torch 2.10 to 2.13)."""
    asking = (
        torch._refs.native_group_norm,
        torch._refs.native_layer_norm,
        decompositions.native_batch_norm_helper,
        inductor_decompositions.mm,
        inductor_decompositions.bmm,
        inductor_decompositions.addmm,
    )
    return tuple(inspect.unwrap(f) for f in asking)


@contextlib.contextmanager
def _answer_as_cuda() -> Iterator[None]:
    """Decompositions that ask whether a tensor is on the CPU hear that it is not.

    Their code compares `device.type` with a constant; for the time being that constant is one that nothing equals.
    """
    before = {f: f.__code__ for f in _asking()}
    try:
        for function, code in before.items():
            function.__code__ = code.replace(co_consts=tuple(_other(c) for c in code.co_consts))
        with mock.patch.object(inductor_decompositions, "is_gpu", return_value=True):
            yield
    finally:
        for function, code in before.items():
            function.__code__ = code


def _other(constant: Any) -> Any:
    if isinstance(constant, tuple):
        return tuple(_other(c) for c in constant)
    return NOT_THE_CPU if constant == "cpu" else constant


@contextlib.contextmanager
def patterns_on_cpu() -> Iterator[None]:
    """Inductor's attention patterns for training are traced through autograd: on the CPU, and moved as well.

    Has to be in place when the patterns are registered; they keep the function that they were registered with.
    """
    trace = pattern_matcher.joint_fwd_bwd

    def move_then_pass(function: Any, args: Sequence[Any], **more: Any) -> torch.fx.GraphModule:
        elsewhere = [a for a in args if isinstance(a, FakeTensor) and a.device.type == "cuda"]
        if not elsewhere:
            return trace(function, args, **more)
        return _move(trace(function, [_fake(a, "cpu") for a in args], **more), elsewhere[0].fake_mode)

    with (
        mock.patch.object(pattern_matcher, "joint_fwd_bwd", move_then_pass),
        mock.patch.object(fuse_attention, "joint_fwd_bwd", move_then_pass),
    ):
        yield


def _on_cuda(compile_one: Any) -> Any:
    """An inner compiler that gets CUDA fakes where AOTAutograd holds CPU ones."""

    def inner(module: torch.fx.GraphModule, example_inputs: Sequence[Any], **more: Any) -> Any:
        return compile_one(module, [_fake(x) for x in example_inputs], **more)

    return inner


def _fake(value: Any, device: str = DEVICE) -> Any:
    """The same tensor on the device, with its own mode; anything else as it is."""
    if not isinstance(value, FakeTensor) or value.device.type == torch.device(device).type:
        return value
    with value.fake_mode:
        fake = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
    return fake.requires_grad_(value.requires_grad) if device == "cpu" else fake


def _move(module: torch.fx.GraphModule, mode: FakeTensorMode | None = None) -> torch.fx.GraphModule:
    """The graph with every tensor on CUDA, its values propagated anew in `mode`, by default its own."""
    mode = mode or detect_fake_mode([n.meta.get("val") for n in module.graph.nodes])
    if mode is None:
        raise NoBackwardError("the joint graph holds no fake tensors")
    values: dict[torch.fx.Node, Any] = {}
    device = torch.device(DEVICE)

    def value_of(node: torch.fx.Node) -> Any:
        return values[node]

    with mode, torch.no_grad():
        for node in module.graph.nodes:
            if node.op == "placeholder":
                values[node] = torch.utils._pytree.tree_map(_fake, node.meta.get("val"))
            elif node.op == "call_function":
                kwargs = {k: device if k == "device" and v is not None else v for k, v in node.kwargs.items()}
                node.kwargs = kwargs
                values[node] = node.target(
                    *torch.fx.map_arg(node.args, value_of), **torch.fx.map_arg(node.kwargs, value_of)
                )
            elif node.op == "get_attr":
                values[node] = getattr(module, str(node.target))
            else:
                continue
            node.meta["val"] = values[node]
            if isinstance(values[node], torch.Tensor):
                node.meta["tensor_meta"] = torch.fx.passes.shape_prop._extract_tensor_metadata(values[node])
    return module
