"""The same region at sizes that a CPU, or Triton's interpreter, gets through in a moment.

Sizes are coupled (a view splits 4096 into 32 heads of 128), so a replacement counts only when the whole program
still fits together on FakeTensors.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch

from profiler.region.language import trees
from profiler.region.language.program import program, shape_of
from profiler.region.language.text import parse, to_text
from profiler.region.model import Input, Region, RegionError

SMALL = 48  # sizes up to here stay
ODD = (37, 41, 43, 47, 29, 31, 23, 19, 53, 59)  # tails of every block size
EVEN = (64, 32, 16, 8)
SEARCH_S = 4.0
LARGEST_TENSOR = 20_000  # elements; the interpreter takes about a second for ten times as many


def reduced(region: Region, binding: Mapping[str, int] | None = None) -> Region | None:
    """The region with smaller sizes, symbols replaced; the region itself (bound) where all are small.

    None where no consistent smaller sizes were found. Sizes are replaced wherever they stand: in the inputs, their
    ranges and strides, and as equal integers of the statements.
    """
    bound = with_sizes(region, dict(region.bindings[0] if binding is None else binding), {})
    if bound is None or not _fits(bound):
        return None
    current, changed, stuck = bound, False, set[int]()
    end = time.monotonic() + SEARCH_S
    while time.monotonic() < end:
        large = [s for s in _sizes(current) if s > SMALL and s not in stuck]
        if not large:
            break
        size = max(large)
        for change in _changes(size, _sizes(current) | _numbers(current), _numbers(current)):
            made = with_sizes(current, {}, change)
            if made is not None and _fits(made):
                current, changed = made, True
                break
        else:
            stuck.add(size)
    if not changed:
        return current if not stuck else None
    return _fewer_elements(current, end)


def _fewer_elements(region: Region, end: float) -> Region:
    """Sizes lowered further while a tensor of many small dimensions is too large for the interpreter."""
    while _largest(region) > LARGEST_TENSOR and time.monotonic() < end:
        for size in sorted((s for s in _sizes(region) if s > 3), reverse=True):
            made = with_sizes(region, {}, {size: max(3, size // 4 * 2 + 1)} if size > 4 else {size: 3})
            if made is not None and _fits(made):
                region = made
                break
        else:
            return region
    return region


def _largest(region: Region) -> int:
    nodes = program(region).module.graph.nodes
    return max((n.meta["val"].numel() for n in nodes if isinstance(n.meta.get("val"), torch.Tensor)), default=0)


def with_sizes(region: Region, symbols: Mapping[str, int], sizes: Mapping[int, int],
               dtypes: Mapping[str, str] | None = None) -> Region | None:  # fmt: skip
    """The region with symbols bound, sizes replaced and dtypes exchanged; None where the text does not parse."""
    swap = _Swap(symbols, sizes, dtypes or {})
    inputs = tuple(_input(i, symbols, sizes, dtypes or {}) for i in region.inputs)
    if sizes:
        extents = [s for i in inputs for s in i.shape if isinstance(s, int) and s > 1]
        inputs = tuple(_ranged(i, sizes, min(extents, default=1)) for i in inputs)
    tree = trees.module("\n".join(region.statements))
    statements = tuple(line for n in tree.body for line in ast.unparse(swap.visit(n)).split("\n"))
    outputs = tuple(ast.unparse(swap.visit(trees.expression(o))) for o in region.outputs)
    rest = () if symbols else region.symbols
    other = to_text(replace(region, inputs=inputs, statements=statements, outputs=outputs, symbols=rest))
    try:
        return parse(other, region.name)
    except RegionError:
        return None


class _Swap(ast.NodeTransformer):
    """Symbols to numbers, numbers to numbers, dtype names to dtype names."""

    def __init__(self, symbols: Mapping[str, int], sizes: Mapping[int, int], dtypes: Mapping[str, str]) -> None:
        self.symbols, self.sizes, self.dtypes = symbols, sizes, dtypes
        self.torch_names = {TORCH_NAMES[a]: TORCH_NAMES[b] for a, b in dtypes.items()}

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.symbols:
            return ast.copy_location(ast.Constant(self.symbols[node.id]), node)
        return ast.copy_location(ast.Name(self.dtypes.get(node.id, node.id), node.ctx), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node.value = self.visit(node.value)
        if isinstance(node.value, ast.Name) and node.value.id == "torch":
            node.attr = self.torch_names.get(node.attr, node.attr)
        elif node.attr in self.torch_names and node.attr == "bfloat16":
            node.attr = {"float32": "float", "float16": "half"}[self.torch_names[node.attr]]
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, int) and not isinstance(node.value, bool) and node.value in self.sizes:
            return ast.copy_location(ast.Constant(self.sizes[node.value]), node)
        return node


TORCH_NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f64": "float64"}


def _input(item: Input, symbols: Mapping[str, int], sizes: Mapping[int, int], dtypes: Mapping[str, str]) -> Input:
    old = shape_of(item, symbols) if symbols else tuple(s for s in item.shape)
    shape = tuple(sizes.get(s, s) if isinstance(s, int) else s for s in old)
    strides = item.strides
    if strides is not None and sizes:
        strides = _strides(tuple(int(s) for s in old), strides, tuple(int(s) for s in shape))
    return replace(
        item,
        dtype=dtypes.get(item.dtype, item.dtype),
        shape=shape,
        strides=strides,
        below=sizes.get(item.below, item.below) if item.below is not None else None,
        offsets=sizes.get(item.offsets, item.offsets) if item.offsets is not None else None,
    )


def _ranged(item: Input, sizes: Mapping[int, int], least: int) -> Input:
    """An index range that no size is tied to shrinks below every dimension: it can then not leave its table."""
    if item.below is None or item.below in sizes.values():
        return item
    return replace(item, below=min(item.below, least))


def _strides(old: tuple[int, ...], strides: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
    """The same order of dimensions, dense again where it was dense; a padded or broadcast layout keeps its strides."""
    order = sorted(range(len(old)), key=lambda d: (strides[d], old[d]))
    expected, dense = 1, True
    for d in order:
        dense &= strides[d] == expected or old[d] == 1
        expected *= old[d]
    if not dense:
        return strides
    result, step = [0] * len(new), 1
    for d in order:
        result[d] = step
        step *= new[d]
    return tuple(result)


def _changes(size: int, known: set[int], written: set[int]) -> Iterator[dict[int, int]]:
    """Ways to shrink one size, likeliest first.

    Together with a number that divides it (128 = 2 × 64, 4096 = 32 × 128): that part and all its multiples scale.
    Alone, to an odd size or a small even one.
    """
    odd = [t for t in ODD if t not in known]
    parts = sorted((o for o in known if 4 < o < size and size % o == 0), reverse=True)
    tied = [{n: n // part * target for n in known if n % part == 0} for part in parts for target in _targets(part)]
    alone = [{size: target} for target in [*odd[:1], *EVEN] if target < size]
    halves = [{size: size // by} for by in (2, 4, 8, 16, 64, 256) if size % by == 0 and size // by > SMALL // 4]
    # A number that divides it and stands in the statements is most often a part of it; else the size stands alone.
    if any(o in written for o in parts):
        yield from (c for c in tied[:24] if any(o in written for o in c))
    yield from alone
    yield from tied[:60]
    yield from halves


def _targets(part: int) -> tuple[int, ...]:
    return tuple(t for t in (16, 8, 2) if t < part)


def _sizes(region: Region) -> set[int]:
    sizes = {s for i in region.inputs for s in i.shape if isinstance(s, int)}
    return sizes | {i.offsets for i in region.inputs if i.offsets is not None}


def _numbers(region: Region) -> set[int]:
    """Integers of the statements that can be sizes: small ones are axes, counts and steps."""
    parsed = [trees.module("\n".join(region.statements)), *(trees.module(o) for o in region.outputs)]
    return {
        n.value
        for tree in parsed
        for n in ast.walk(tree)
        if isinstance(n, ast.Constant) and isinstance(n.value, int) and not isinstance(n.value, bool) and n.value > 4
    }


def _fits(region: Region) -> bool:
    try:
        built = program(region)
    except RegionError:
        return False
    values = [n.meta.get("val") for n in built.module.graph.nodes]
    return all(v.numel() > 0 for v in values if isinstance(v, torch.Tensor))
