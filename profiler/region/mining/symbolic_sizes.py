"""One region at several sizes: texts that differ in sizes only become one text with symbols. Torch-free."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from profiler.region.language.text import MAX_SIZES, parse
from profiler.region.model import RegionError

T = TypeVar("T")

NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
"""A whole number standing on its own: neither in a name or dtype nor part of a float."""

WEIGHTED = frozenset({"gemm", "grouped_gemm", "gemm_tail", "convolution", "embedding"})
"""Kinds whose weights tell regions apart: only the sizes of other inputs vary in one region."""
WEIGHTS = frozenset({"w", "b", "table", "mean", "var"})

SYMBOLS = ("N", "M", "K", "L", "P", "Q", "R", "S", "T", "U", "V", "W")


@dataclass(frozen=True, slots=True)
class Sized(Generic[T]):
    """A text with its calls. identity: equal for what may be one region."""

    text: str | None
    kind: str
    identity: object
    group: Sequence[T]


@dataclass(frozen=True, slots=True)
class Merged(Generic[T]):
    """One region: its text, a binding of its symbols for each group of calls, and the groups."""

    text: str | None
    bindings: tuple[tuple[tuple[str, int], ...], ...]
    groups: tuple[Sequence[T], ...]


def merge(items: Sequence[Sized[T]]) -> list[Merged[T]]:
    """Joins items of equal identity whose texts differ in sizes only."""
    families: dict[object, list[Sized[T]]] = defaultdict(list)
    merged: list[Merged[T]] = []
    for item in items:
        if item.text is None:
            merged.append(Merged(None, ((),), (item.group,)))
        else:
            families[item.identity, item.kind, _skeleton(item.text, item.kind)].append(item)
    single_strided = [f[0] for f in families.values() if len(f) == 1 and STRIDES.search(f[0].text or "")]
    for key in [k for k, f in families.items() if f[0] in single_strided]:
        del families[key]
    for item in _permute(single_strided):
        families[item.identity, item.kind, _skeleton(item.text or "", item.kind)].append(item)
    for family in list(families.values()):
        by_text: dict[str | None, Sized[T]] = {}
        for item in family:
            existing = by_text.get(item.text)
            group = item.group if existing is None else [*existing.group, *item.group]
            by_text[item.text] = Sized(item.text, item.kind, item.identity, group)
        distinct = list(by_text.values())
        for at in range(0, len(distinct), MAX_SIZES):
            merged += _join_if_written(distinct[at : at + MAX_SIZES])
    return merged


def _join_if_written(family: Sequence[Sized[T]]) -> list[Merged[T]]:
    """One region, or each its own where the language has no text for all: an empty size, a bound that varies."""
    joined = _join(family)
    if len(family) == 1:
        return [joined]
    try:
        parse(joined.text or "")
    except RegionError:
        return [_join([item]) for item in family]
    return [joined]


def _skeleton(text: str, kind: str) -> str:
    """The text with its sizes blanked: those of weights stay, where weights tell regions apart."""
    lines = []
    for line in text.splitlines():
        name = line.split(":")[0].rstrip("0123456789")
        keep = (kind in WEIGHTED and name in WEIGHTS) or ".strides(" in line
        lines.append(line if keep else NUMBER.sub("#", line))
    return "\n".join(lines)


STRIDES = re.compile(
    r"^(\w+): (\w+)\[([\d, ]+)\](\.requires_grad)?\.strides\(([\d, ]+)\)(\.below\(\d+\))?$", re.MULTILINE
)


def _permute(items: Sequence[Sized[T]]) -> list[Sized[T]]:
    """Strides are numbers, so sizes cannot vary with them: where several items differ in sizes only, their transposed
    inputs are written as they lie in memory, with the permute that leads to them. Others stay as they are.
    """
    families: dict[object, list[tuple[Sized[T], str]]] = defaultdict(list)
    for item in items:
        in_memory = _in_memory_order(item.text or "")
        families[item.identity, item.kind, _skeleton(in_memory, item.kind)].append((item, in_memory))
    return [
        item if len(family) == 1 else Sized(in_memory, item.kind, item.identity, item.group)
        for family in families.values()
        for item, in_memory in family
    ]


def _in_memory_order(text: str) -> str:
    lines, view_lines = [], []
    for line in text.splitlines():
        match = STRIDES.match(line)
        memory = _memory(match) if match else None
        if match is None or memory is None:
            lines.append(line)
            continue
        name, dtype, _, grad, _, below = match.groups()
        shape, views = memory
        lines.append(f"{name}: {dtype}[{', '.join(map(str, shape))}]{grad or ''}{below or ''}")
        view_lines.append(f"{name} = {name}{views}")
    first = next(i for i, line in enumerate(lines) if not re.match(r"\w+: ", line))
    return "\n".join([*lines[:first], *view_lines, *lines[first:]]) + "\n"


def _memory(match: re.Match[str]) -> tuple[list[int], str] | None:
    """(sizes from the slowest dimension to the fastest, the views that lead from there); None where gaps are inside.

    A dimension repeated in place (stride 0) is one expanded; rows that lie apart are the beginnings of longer rows.
    """
    sizes, strides = ([int(n) for n in match[g].split(",")] for g in (3, 5))
    repeated = [d for d in range(len(sizes)) if strides[d] == 0 and sizes[d] > 1]
    order = sorted(range(len(sizes)), key=lambda d: (d not in repeated, -strides[d], d))
    shape = [1 if d in repeated else sizes[d] for d in order]
    step, cut = 1, ""
    for at in reversed(range(len(order))):
        if shape[at] == 1:
            continue
        stride = strides[order[at]]
        if stride != step:
            if cut or stride <= step or step != shape[-1] or at == len(order) - 1:
                return None
            cut, shape[-1], step = f"[..., :{shape[-1]}]", stride, stride
        step *= shape[at]
    views = cut
    if order != list(range(len(order))):
        views += f".permute({', '.join(str(order.index(d)) for d in range(len(order)))})"
    if repeated:
        views += f".expand({', '.join(map(str, sizes))})"
    return shape, views


def _join(family: Sequence[Sized[T]]) -> Merged[T]:
    texts = [f.text or "" for f in family]
    groups = tuple(f.group for f in family)
    if len(texts) == 1:
        return Merged(texts[0], ((),), groups)
    numbers = [[int(n) for n in NUMBER.findall(t)] for t in texts]
    columns = list(zip(*numbers, strict=True))
    names: dict[tuple[int, ...], str] = {}
    used_names = set(re.findall(r"[A-Za-z_]\w*", texts[0]))
    free = [s for s in SYMBOLS if s not in used_names] + [f"N{i}" for i in range(1, 100)]
    for column in columns:
        if len(set(column)) > 1 and column not in names:
            names[column] = free[len(names)]
    at = iter(columns)
    body = NUMBER.sub(lambda m: names.get(next(at), m.group()), texts[0])
    head = "".join(f"{name}: sizes[{', '.join(map(str, column))}]\n" for column, name in names.items())
    bindings = tuple(tuple((name, column[i]) for column, name in names.items()) for i in range(len(texts)))
    return Merged(head + body, bindings, groups)
