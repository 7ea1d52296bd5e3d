"""Floating-point operations of one aten operation. The convention, with every number, is in docs/cost.md.

Matrix products, convolutions and attention: torch's own registry (`torch.utils.flop_counter`) where it is right, two
per multiply-add. The rest is counted by the formula as it is written down: one for each addition, multiplication,
division, comparison, square root and evaluation of a function. Casts, copies, selections, sorting, bit operations and
arithmetic on integers count nothing. `docs/cost.md` says the formula of each number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

import torch
import torch.fx
from torch.utils.flop_counter import flop_registry

from profiler.region import op_kinds
from profiler.region.graph.nodes import integers
from profiler.region.language.opaque_ops import LIBRARY
from profiler.region.language.vocabulary import DTYPE_NAMES
from profiler.region.model import PACKED
from profiler.region.operations import find, flops_of, kind_of

ACCUMULATING = frozenset({"index_add", "index_add_", "index_reduce", "scatter_add", "scatter_add_", "scatter_reduce",
                          "scatter_reduce_", "embedding_dense_backward", "segment_reduce"})  # fmt: skip
POOLS = frozenset({"max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool2d", "max_pool3d", "avg_pool2d",
                   "avg_pool1d", "avg_pool3d", "avg_pool2d_backward", "avg_pool3d_backward"})  # fmt: skip
FUSED_ATTENTION = "_scaled_dot_product_"
"""Begins the names of the calls that torch's counter knows, forward and backward."""
NOTHING = frozenset(
    {op_kinds.VIEW, op_kinds.CONSTANT, op_kinds.COPY, op_kinds.GATHER, op_kinds.SORT, op_kinds.COMMUNICATION}
)


def flops(node: torch.fx.Node) -> int:
    """FLOPs of one call of an aten graph, from the shapes of the fake tensors that it reads and writes.

    None where all of its results have no elements.
    """
    results = list(_results(node.meta.get("val")))
    if results and not any(t.numel() for t in results):
        return 0
    target = str(node.target)
    name, kind = op_kinds.base_name(target), kind_of(target)
    if target.startswith(f"{LIBRARY}.attention"):
        return _attention(node)
    if name == "convolution_backward":
        return _convolution_backward(node)
    packet = getattr(node.target, "_overloadpacket", None)
    if packet in flop_registry:
        if name.startswith(FUSED_ATTENTION):
            return _fused_attention(node)
        args = torch.fx.node.map_arg(node.args, lambda n: n.meta["val"])
        kwargs = torch.fx.node.map_arg(node.kwargs, lambda n: n.meta["val"])
        counted = int(flop_registry[packet](*args, **kwargs, out_val=node.meta["val"]))
        return counted * _numbers_an_element(node)
    if name in PRODUCTS:
        return PRODUCTS[name](_tensors(node.args), _largest(node.meta["val"]))
    if kind in NOTHING or not _floating(node):
        return 0
    return _elementwise_flops(node, name.removesuffix("_") if name.endswith("_") else name, kind)


def _numbers_an_element(node: torch.fx.Node) -> int:
    """2 where both factors are packed in pairs along the inner size, which torch's registry counts once."""
    factors = _tensors(node.args[:2])
    return 2 if factors and all(DTYPE_NAMES.get(t.dtype) in PACKED for t in factors) else 1


def _elementwise_flops(node: torch.fx.Node, name: str, kind: str) -> int:
    """What is neither a matrix product nor free: elements times the formula's length."""
    operands, result = _operands(node), _largest(node.meta["val"])
    widest = max([result, *(t.numel() for t in operands)])
    if kind == op_kinds.FFT:
        return _fft(node, name)
    if kind == op_kinds.NORMALISATION:
        return widest * _norm(node, name)
    if name in POOLS:
        back = name.endswith("_backward")
        return math.prod(integers(node.args[2 if back else 1])) * (operands[0].numel() if back else result)
    if kind == op_kinds.SCATTER:
        adds = name in ACCUMULATING or True in node.args[3:4] or node.kwargs.get("accumulate") is True
        source = operands[0] if name == "embedding_dense_backward" else operands[-1]
        return source.numel() if adds else 0
    if name in ("nll_loss_forward", "nll_loss2d_forward"):
        return operands[1].numel()
    if kind in (op_kinds.REDUCTION, op_kinds.SOFTMAX, op_kinds.SCAN):
        return widest * flops_of(name, kind)
    if kind == op_kinds.RANDOM:
        return result * flops_of(name, kind)
    if name == "_cdist_forward":
        return 3 * result * operands[0].shape[-1]
    if name == "clamp":
        return result * sum(bound is not None for bound in (*node.args[1:], *node.kwargs.values()))
    return result * flops_of(name, kind, tanh=node.kwargs.get("approximate", "none") == "tanh")


def _attention(node: torch.fx.Node) -> int:
    """Two products forward, five backward, as torch's counter has it; half of it where a causal mask is."""
    backward = "backward" in str(node.target)
    q, k, v = _tensors(node.args[1:4] if backward else node.args[:3])
    causal = 2 if node.args[7 if backward else 5] else 1
    forward = int(2 * q.shape[:-1].numel() * k.shape[-2] * (q.shape[-1] + v.shape[-1])) // causal
    return forward * 5 // 2 if backward else forward


def _fused_attention(node: torch.fx.Node) -> int:
    """Two products forward, five backward, of as many heads as the queries have: with fewer of keys and values torch's
    own counter raises (torch 2.11)."""
    backward = "backward" in str(node.target)
    q, k, v = (t.shape for t in _tensors(node.args[1:4] if backward else node.args[:3]))
    inner, outer = (3 * q[-1], 2 * v[-1]) if backward else (q[-1], v[-1])
    return int(2 * q[:-1].numel() * k[-2] * (inner + outer))


def _convolution_backward(node: torch.fx.Node) -> int:
    """2 · |result| · C_in/groups · |kernel|, once for each of grad_input and grad_weight that is asked for.

    |result| is of the forward convolution; the input's where it is transposed. torch's registry counts every group
    against all channels (torch 2.13), 96 times too much for a depthwise kernel.
    """
    grad, source, weight = _tensors(node.args[:3])
    output_mask = node.args[10]
    gradients = sum(map(bool, output_mask[:2])) if isinstance(output_mask, list | tuple) else 0
    each = source if node.args[7] else grad
    return int(2 * each.numel() * weight.shape[1:].numel() * gradients)


def _grouped_flops(operands: list[torch.Tensor], result: int) -> int:
    """Rows in groups against one matrix each; or, with two flat operands, every group's share of the inner size."""
    a, b = operands[:2]
    if a.dim() == 2 and b.dim() == 2:
        return 2 * a.shape[0] * a.shape[1] * b.shape[1]
    return 2 * result * a.shape[-1]


PRODUCTS: Mapping[str, Callable[[list[torch.Tensor], int], int]] = MappingProxyType({
    "mv": lambda t, n: 2 * t[0].numel(),
    "addmv": lambda t, n: 2 * t[1].numel(),
    "dot": lambda t, n: 2 * t[0].numel(),
    "vdot": lambda t, n: 2 * t[0].numel(),
    "addbmm": lambda t, n: 2 * t[1].numel() * t[2].shape[-1],
    "_int_mm": lambda t, n: 2 * n * t[0].shape[-1],
    "_addmm_activation": lambda t, n: 2 * n * t[1].shape[-1],
    "_grouped_mm": _grouped_flops,
    "_scaled_grouped_mm": _grouped_flops,
    "_weight_int4pack_mm": lambda t, n: 2 * n * t[0].shape[-1],
    "_weight_int8pack_mm": lambda t, n: 2 * n * t[0].shape[-1],
})  # fmt: skip
"""Matrix products that torch's registry does not know, from their operands as they are passed, one that is passed twice
twice, and the elements of the result.
"""


def _norm(node: torch.fx.Node, name: str) -> int:
    """FLOPs per element of a normalisation. Weight and bias are the schema's arguments of that name."""
    arguments = getattr(getattr(node.target, "_schema", None), "arguments", ())
    arguments_by_name = {a.name: value for a, value in zip(arguments, node.args, strict=False)} | dict(node.kwargs)
    weighted = arguments_by_name.get("weight") is not None
    row = find(name)
    if row is not None and row.weighted is not None:
        return flops_of(name, op_kinds.NORMALISATION, weighted)
    return flops_of(name, op_kinds.NORMALISATION) + weighted + (arguments_by_name.get("bias") is not None)


def _fft(node: torch.fx.Node, name: str) -> int:
    """5 · n · log2(n) for a complex transform of n points, half of it for a real one, as FFTW counts."""
    (source,) = _operands(node)[:1]
    value: torch.Tensor = node.meta["val"]
    wide = value if name == "_fft_c2r" else source
    axes = integers(node.args[1]) if len(node.args) > 1 else range(wide.dim())
    points = math.prod(wide.shape[a] for a in axes)
    complex_flops = 5 * wide.numel() * math.log2(max(2, points))
    return int(complex_flops if name == "_fft_c2c" else complex_flops / 2)


def _operands(node: torch.fx.Node) -> list[torch.Tensor]:
    return _tensors(node.all_input_nodes)


def _tensors(nodes: Iterable[object]) -> list[torch.Tensor]:
    values = (n.meta["val"] for n in nodes if isinstance(n, torch.fx.Node))
    return [v for v in values if isinstance(v, torch.Tensor)]


def _results(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _results(part)


def _largest(value: object) -> int:
    return max((t.numel() for t in _results(value)), default=0)


def _floating(node: torch.fx.Node) -> bool:
    """Something that it reads or writes is a floating-point tensor."""
    tensors = [*_operands(node), *_results(node.meta.get("val"))]
    return any(t.is_floating_point() or t.is_complex() for t in tensors)
