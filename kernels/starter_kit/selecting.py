"""Outputs that are indices into something the region computes: what they point into, as text.

Equal values have several indices, and rounding makes values equal: such an output is right by the values it selects.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace

from kernels.measure.candidate.reference import SELECTING, selections
from profiler.region.language import trees
from profiler.region.language.program import program
from profiler.region.model import Region

MODULES = ("torch", "F")


def selected(region: Region, sizes: Mapping[str, int]) -> tuple[dict[int, int], Region | None]:
    """({output: dimension}, the region that returns what those outputs point into, in that order).

    An output whose source is no plain name of the text, or a name that is assigned again, is left out; None where none
    is left.
    """
    dims = {number: dim for number, (_, dim, _) in selections(program(region, sizes).module).items()}
    places: dict[int, tuple[int, str]] = {}
    for number, dim in dims.items():
        name = _source(region, region.outputs[number])
        if name is not None:
            places[number] = dim, name
    if not places:
        return {}, None
    sources = replace(region, outputs=tuple(name for _, name in places.values()), returned=(), output_tuple=True)
    return {number: dim for number, (dim, _) in places.items()}, sources


def _source(region: Region, output: str) -> str | None:
    """The name whose values `output`, or the call that assigned it, selects from."""
    tree = trees.module("\n".join(region.statements)).body
    assigned = [n for n, statement in enumerate(tree) if output in _targets(statement)]
    if assigned:
        statement = tree[assigned[-1]]
        value, after = getattr(statement, "value", None), tree[assigned[-1] + 1 :]
    else:
        value, after = trees.expression(output), []
    if isinstance(value, ast.Subscript):  # torch.topk(p, 8)[1]
        value = value.value
    if not isinstance(value, ast.Call):
        return None
    function, source = value.func, value.args[0] if value.args else None
    if isinstance(function, ast.Attribute) and not _is_module(function.value):
        source = function.value
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name not in SELECTING or not isinstance(source, ast.Name):
        return None
    return None if any(source.id in _targets(s) for s in after) else source.id


def _is_module(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in MODULES


def _targets(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement assigns."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
