"""What a program does with integers: whether one writes by an index of the input, or reads by one that it computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from kernels.measure.candidate.reference import SELECTING, label
from profiler.region.model import Region

WRITING = frozenset({"index_put", "index_copy", "index_fill", "scatter", "setitem", "masked_scatter", "put"})
"""Where two elements of the index are equal, which value stays is not defined. Adding ones are not among them."""
READING = frozenset({"gather", "getitem", "index", "index_select", "take", "take_along_dim", "embedding"}) | WRITING

VIEWS = frozenset({"getitem", "expand", "expand_as", "view", "reshape", "unsqueeze", "flatten", "to", "long"})


def with_distinct(region: Region, module: torch.fx.GraphModule) -> Region:
    """The region with those integer inputs `distinct` that it writes by: else its result would be left to chance."""
    names = {
        index.target
        for node in module.graph.nodes
        if label(node).rstrip("_") in WRITING and not _accumulates(node)
        for index in map(_origin, _integers(node))
        if index.op == "placeholder"
    }
    return replace(region, inputs=tuple(replace(i, distinct=i.name in names) for i in region.inputs))


def reads_by_value(module: torch.fx.GraphModule) -> bool:
    """Some index is computed from numbers: of NaN and infinities it may point anywhere, and the GPU faults.

    Indices from sort, topk and argmax lie inside whatever they select from.
    """
    return any(
        _from_numbers(index)
        for node in module.graph.nodes
        if label(node).rstrip("_") in READING
        for index in _integers(node)
    )


def _accumulates(node: torch.fx.Node) -> bool:
    given = node.args[3] if len(node.args) > 3 else node.kwargs.get("accumulate", False)
    return bool(given) and label(node).rstrip("_") == "index_put"


def _integers(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """Arguments that are integer tensors, but the first, which is read or written."""
    first = node.args[0] if node.args else None
    for used in node.all_input_nodes:
        value: Any = used.meta.get("val")
        if used is not first and isinstance(value, torch.Tensor) and value.dtype in (torch.int64, torch.int32):
            yield used


def _origin(node: torch.fx.Node) -> torch.fx.Node:
    """What this is a view of."""
    while label(node) in VIEWS and len(node.all_input_nodes) == 1:
        node = node.all_input_nodes[0]
    return node


def _from_numbers(node: torch.fx.Node) -> bool:
    """Some floating input decides this node's value, by another way than selecting."""
    seen: set[torch.fx.Node] = set()
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        value: Any = one.meta.get("val")
        if one.op == "placeholder" and isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
            return True
        if not _selected(one):
            waiting += one.all_input_nodes
    return False


def _selected(node: torch.fx.Node) -> bool:
    """Indices by which values are selected, which lie inside; the values of sort, topk and max are numbers like any."""
    if label(node) == "getitem" and label(node.all_input_nodes[0]) in SELECTING:
        return bool(node.args[1] != 0)
    return label(node) in ("argmax", "argmin", "argsort")
