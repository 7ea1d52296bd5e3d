"""Which calls of a region Inductor leaves to aten on a GPU: rows of `operations`, decided by sizes and arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from profiler.region.graph.reduction_splits import splits
from profiler.region.op_kinds import base_name
from profiler.region.operations import Falls, falls

SORTED_AT_ONCE = 512
"""Elements of a row that Inductor sorts in one block (torch._inductor.ir.Sort.create)."""
WINDOW, WINDOW_OF_THREE = 25, 125
"""Elements of a pool's window that Inductor unrolls (torch._inductor.lowering)."""
ADDED_BY_ATEN = (torch.int64, torch.bool)
"""Types without an atomic addition in Triton (torch._inductor.utils.needs_fallback_due_to_atomic_add_limitations)."""


def falls_back(node: torch.fx.Node) -> bool:
    """The call of an aten graph stays a call of aten under torch.compile, from the fakes it reads and writes."""
    tensors = [*_tensors(n.meta.get("val") for n in node.all_input_nodes), *_tensors([node.meta.get("val")])]
    if any(t.is_complex() for t in tensors):
        return True
    condition = falls(base_name(str(node.target)))
    decides = CONDITIONS.get(condition)
    return condition == Falls.ALWAYS if decides is None else decides(node, _arguments(node), tensors)


Arguments = Mapping[str, Any]
Condition = Callable[[torch.fx.Node, Arguments, Sequence[torch.Tensor]], bool]


def _always(*_: object) -> bool:
    return True


def _long(node: torch.fx.Node, arguments: Arguments, tensors: Sequence[torch.Tensor]) -> bool:
    x = tensors[0]
    return bool(x.dim()) and x.shape[arguments.get("dim", -1)] > SORTED_AT_ONCE


def _sorts(node: torch.fx.Node, arguments: Arguments, tensors: Sequence[torch.Tensor]) -> bool:
    """isin compares with few elements one by one, and sorts both sets else (torch._decomp.decompositions.isin)."""
    if len(tensors) < 3:
        return False
    elements, others = tensors[0].numel(), tensors[1].numel()
    if others < 10 * elements**0.145:
        return False
    return (elements + others if arguments.get("assume_unique") else others) > SORTED_AT_ONCE


def _paired_scan(node: torch.fx.Node, arguments: Arguments, tensors: Sequence[torch.Tensor]) -> bool:
    x = tensors[0]
    columns = x.shape[arguments["dim"]] if x.dim() else 1
    return columns > 1 and splits(x.numel() // columns, columns, x.stride()[arguments["dim"]] == 1)


def _window(node: torch.fx.Node, arguments: Arguments, tensors: Sequence[torch.Tensor]) -> bool:
    name = base_name(str(node.target))
    if "adaptive" in name:
        axes = 3 if "3d" in name else 2
        sizes = list(zip(tensors[0].shape[-axes:], _as_list(arguments["output_size"], axes), strict=True))
        if all(size % target == 0 for size, target in sizes):
            return False  # a plain pool, of windows that do not overlap
        return axes == 3 or math.prod(-(-(size + target - 1) // target) for size, target in sizes) > WINDOW
    axes = 3 if "3d" in name else 1 if "1d" in name else 2
    kernel = _as_list(arguments["kernel_size"], axes)
    stride = _as_list(arguments.get("stride") or kernel, axes)
    if name.endswith("_backward"):
        most = WINDOW_OF_THREE if axes == 3 else WINDOW
        return math.prod(map(_overlapping, kernel, stride)) > most
    return math.prod(kernel) > WINDOW and kernel != stride


def _overlapping(kernel: int, stride: int) -> int:
    """Windows that one element is in, along one dimension."""
    return max(max(at // stride - max(0, (at - kernel) // stride), 1) for at in range(2 * kernel))


def _reduced(node: torch.fx.Node, arguments: Arguments, tensors: Sequence[torch.Tensor]) -> bool:
    added = "mean" if "index_reduce" in str(node.target) else "sum"
    return arguments.get("reduce") != added or tensors[0].dtype in ADDED_BY_ATEN


def _whole(node: torch.fx.Node, arguments: Arguments, tensors: Sequence[torch.Tensor]) -> bool:
    power = arguments.get("exponent")
    small = isinstance(power, int) and power >= 0
    return not any(t.is_floating_point() for t in tensors) and not small


def _atomic(node: torch.fx.Node, arguments: Arguments, tensors: Sequence[torch.Tensor]) -> bool:
    adds = arguments.get("accumulate") if "index_put" in str(node.target) else True
    return bool(adds) and tensors[0].dtype in ADDED_BY_ATEN


def _atomic_or_bf16(node: torch.fx.Node, arguments: Arguments, tensors: Sequence[torch.Tensor]) -> bool:
    return tensors[0].dtype in (*ADDED_BY_ATEN, torch.bfloat16)


CONDITIONS: Mapping[Falls, Condition] = {
    Falls.PARTS: _always, Falls.SORT_OPS: _always, Falls.LONG: _long, Falls.SORTS: _sorts,
    Falls.PAIRED_SCAN: _paired_scan, Falls.WINDOW: _window, Falls.REDUCED: _reduced, Falls.WHOLE: _whole,
    Falls.ATOMIC: _atomic, Falls.ATOMIC_BF16: _atomic_or_bf16,
}  # fmt: skip
"""What decides them; the rest holds always, or for nothing that a region can say."""


def _arguments(node: torch.fx.Node) -> dict[str, Any]:
    """What a call is given, by the schema's names."""
    schema = getattr(getattr(node.target, "_schema", None), "arguments", ())
    return {a.name: value for a, value in zip(schema, node.args, strict=False)} | dict(node.kwargs)


def _tensors(values: Iterable[object]) -> list[torch.Tensor]:
    tensors = []
    for value in values:
        tensors += [value] if isinstance(value, torch.Tensor) else []
        tensors += [v for v in value if isinstance(v, torch.Tensor)] if isinstance(value, tuple | list) else []
    return tensors


def _as_list(value: int | Sequence[int], count: int) -> list[int]:
    """One number for each dimension; the schema takes one for all of them."""
    numbers = [value] if isinstance(value, int) else list(value)
    return numbers * count if len(numbers) == 1 else numbers
