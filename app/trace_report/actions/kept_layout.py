"""Whether torch.compile keeps a model's images channels-last: by the convolutions of its regions, as Inductor decides.

Of a graph that is trained Inductor leaves the layout as it is where any convolution is grouped with several channels a
group, where any has half as many channels of output as of input, or fewer, and a window, or where all of them are small
(torch._inductor.graph.GraphLowering.decide_layout_opt, torch 2.13). Of one that is not trained it weighs their FLOPs by
what channels-last makes of each kind. Then the kernels that turn images around stay, compiled or not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from app.trace_report.step_model import AnyRegion
from profiler.region.language import trees

CALLS = frozenset({"conv1d", "conv2d", "conv3d", "convolution"})
SMALL = 64
"""Channels of input and output up to which Inductor calls a convolution small."""
Kind = Literal["grouped", "narrowing", "small", "other"]
MULTIPLIERS: Mapping[Kind, float] = {"grouped": 1.358, "narrowing": 0.725, "small": 0.783, "other": 0.823}
"""Time channels-last over time as it is, by which Inductor decides where nothing is trained; grouped comes first."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """Of one convolution: its weight's shape [out, in of a group, window ...], its groups, FLOPs of a step."""

    weight: tuple[int, ...]
    groups: int
    flops: float

    @property
    def is_grouped(self) -> bool:
        """More than one group, of more than one channel: a depthwise one is none."""
        return self.groups > 1 and self.weight[1] > 1

    @property
    def is_narrowing(self) -> bool:
        """It has a window, and at most half as many channels come out as go in."""
        return self.weight[0] * 2 <= self.weight[1] and self.weight[2] > 1

    @property
    def is_small(self) -> bool:
        """Few channels go in and come out."""
        return max(self.weight[:2]) <= SMALL

    def kind(self, trained: bool) -> Kind:
        """The first of Inductor's kinds that it is of; where nothing is trained small is asked before narrowing."""
        if self.is_grouped:
            return "grouped"
        if self.is_small and not (trained and self.is_narrowing):
            return "small"
        return "narrowing" if self.is_narrowing else "small" if self.is_small else "other"


def keeps_channels_last(regions: Sequence[AnyRegion], trained: bool) -> bool:
    """Whether images stay channels-last in a compiled model of these regions; True where no convolution has a text.

    Two of Inductor's rules need its graph and are left out: it keeps the layout of graphs with 300 nodes or more for
    each convolution, and of convolutions with sizes that are not known.
    """
    listed = [one for region in regions for one in convolutions(region)]
    if not listed:
        return True
    if trained:
        kinds = {one.kind(True) for one in listed}
        return not kinds & {"grouped", "narrowing"} and kinds != {"small"}
    return sum(one.flops * MULTIPLIERS[one.kind(False)] for one in listed) <= sum(one.flops for one in listed)


def convolutions(region: AnyRegion) -> Iterator[Convolution]:
    """The convolutions of a region's text in every size that it has; none where a shape is not told."""
    text, cost = region.get("text") or "", region.get("cost")
    if not any(call in text for call in CALLS):
        return
    module = trees.module(text)
    sizes = {trees.dotted_name(n.target): n.annotation for n in module.body if isinstance(n, ast.AnnAssign)}
    calls = [c for c in ast.walk(module) if isinstance(c, ast.Call) and _called(c) in CALLS and len(c.args) > 1]
    flops = float(cost["gemm_flops"] or 0.0) if cost else 0.0
    for shape in region.get("shapes") or ():
        for call in calls:
            weight = _dims(sizes.get(trees.dotted_name(call.args[1])), shape["binding"])
            groups = next((_number(k.value, shape["binding"]) for k in call.keywords if k.arg == "groups"), 1)
            if weight is not None and len(weight) > 2 and groups is not None:
                yield Convolution(weight, groups, flops * float(shape["calls"]) / len(calls))


def _called(call: ast.Call) -> str:
    return trees.dotted_name(call.func).rpartition(".")[2]


def _dims(annotation: ast.expr | None, binding: Mapping[str, int]) -> tuple[int, ...] | None:
    """Of `f32[N, 112, 3, 3].requires_grad` the sizes in this binding; None where one is not known."""
    while isinstance(annotation, ast.Attribute | ast.Call):
        annotation = annotation.value if isinstance(annotation, ast.Attribute) else annotation.func
    if not isinstance(annotation, ast.Subscript):
        return None
    listed = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    dims = [_number(one, binding) for one in listed]
    return tuple(d for d in dims if d is not None) if None not in dims else None


def _number(node: ast.expr, binding: Mapping[str, int]) -> int | None:
    """A size, or the one that a letter stands for."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    return binding.get(node.id) if isinstance(node, ast.Name) else None
