"""What a region is: patterns found in its graph, however it was written, with the roles that a library call needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from profiler.region import op_kinds
from profiler.region.graph.canonical.pattern import matches, readings
from profiler.region.graph.forms import FORMS
from profiler.region.graph.fusion import through_views
from profiler.region.graph.library_calls import gemms, library_calls
from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match
from profiler.region.graph.operation import Operation
from profiler.region.graph.scores import functions as score_functions
from profiler.region.operations import title_of


def match(graph: Graph) -> tuple[Match, ...]:
    """Every pattern found, the one that covers most first; no two share an operation."""
    forms = [*matches(graph, readings(FORMS))]
    candidates = [*forms, *_scored(graph, forms), *library_calls(graph), *gemms(graph)]
    candidates.sort(key=lambda m: (-len(m.operations), m.output))
    chosen: list[Match] = []
    covered: set[str] = set()
    for item in candidates:
        if not item.operations & covered:
            chosen.append(item)
            covered |= item.operations
    return tuple(chosen)


def _scored(graph: Graph, forms: Iterable[Match]) -> list[Match]:
    """Attention whose scores no form names."""
    named = {m.output for m in forms if m.kind.endswith("attention")}
    own = [m for m in score_functions.matches(graph) if m.by_hand and m.output not in named]
    return [score_functions.plain(m) or replace(m, kind=score_functions.NAMED) for m in own]


def region_kind(graph: Graph, matches: Iterable[Match]) -> tuple[str, str]:
    """(kind, title) of the whole region: what a performance engineer would call it."""
    working = [o for o in graph.operations if o.kind not in (op_kinds.VIEW, op_kinds.CONSTANT)]
    if not working:
        return "copy", "views only"
    names = {o.name for o in working}
    matched = list(matches)
    made = {m.output: m.operations for m in score_functions.matches(graph)}
    for item in matched:
        if names <= item.operations | made.get(item.output, frozenset()):  # what makes its mask is its own
            return item.kind, item.title
    if not any(m.kind.endswith("attention") for m in matched):
        tail = _gemm_tail(graph, working)
        if tail is not None:
            return tail
    main = next((m for m in matched if m.kind not in ("gemm", "softmax") or m.by_hand), None)
    if main is not None and not (main.kind in ("swiglu", "geglu") and any(m.kind == "gemm" for m in matched)):
        inside = main.operations | made.get(main.output, frozenset())
        others = [o for o in working if o.name not in inside]
        return main.kind, f"{main.title} with {_list_names(others)}"
    return _by_kinds(graph, working)


def _gemm_tail(graph: Graph, working: list[Operation]) -> tuple[str, str] | None:
    gemms = [o for o in working if o.kind == op_kinds.GEMM]
    others = [o for o in working if o.kind != op_kinds.GEMM]
    if len(gemms) != 1 or not others:
        return None
    rowwise = [o for o in others if o.kind in (op_kinds.NORMALISATION, op_kinds.SOFTMAX, op_kinds.REDUCTION)]
    dequantised = any(_feeds(graph, o, gemms[0]) for o in others)
    if dequantised:
        return "quantised_gemm" if _quantised(graph) else "gemm", f"GEMM after {_list_names(others)}"
    parts = tail_names(graph, gemms[0], others)
    return ("gemm_reduction" if rowwise else "gemm_tail"), f"GEMM with {_join(parts)} tail"


def tail_names(graph: Graph, gemm: Operation, tail: list[Operation]) -> list[str]:
    """Names of what follows a matrix product: GELU, mask, residual; the bias only where it is alone."""
    width = gemm.writes[0].elements
    inputs = dict(graph.inputs)
    masks = {i.name for i in graph.region.inputs if i.ones is not None or "mask" in i.name or i.dtype == "bool"}
    parts: list[str] = []
    for operation in tail:
        if operation.label == "to":
            continue
        outside = [n for n in (through_views(graph, i) for i in operation.inputs) if n in inputs]
        full = [n for n in outside if inputs[n].elements == width]
        part = title_of(operation.label)
        if operation.label == "add" and outside:
            part = "residual" if full else "bias"
        elif operation.label == "mul" and full:
            part = "mask" if full[0] in masks else "gate" if "gate" in full[0] else "product"
        elif operation.label in ("mul", "div") and not outside:
            part = "scale"
        parts.append(part)
    names = [p for p in dict.fromkeys(parts) if p != "bias"]
    return names or ["bias"]


def _feeds(graph: Graph, operation: Operation, gemm: Operation) -> bool:
    """The operation's result reaches the product's operands."""
    pending = list(gemm.inputs)
    inputs = {n for n, _ in graph.inputs}
    visited: set[str] = set()
    while pending:
        name = pending.pop()
        if name == operation.name:
            return True
        if name not in visited and name not in inputs:
            visited.add(name)
            pending += graph.operation(name).inputs
    return False


def _quantised(graph: Graph) -> bool:
    return any(t.dtype in ("i8", "u8", "f8e4m3", "f8e5m2", "i32") and len(t.shape) == 2 for _, t in graph.inputs)


def _list_names(operations: Iterable[Operation]) -> str:
    labels = [title_of(o.label) for o in operations if o.label != "to"]
    names = list(dict.fromkeys(labels)) or ["cast"]
    return _join(names[:4]) + (" and more" if len(names) > 4 else "")


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


TITLES: dict[str, tuple[str, str]] = {
    op_kinds.CONVOLUTION: ("convolution", "convolution"),
    op_kinds.ATTENTION: ("attention", "SDPA attention"),
    op_kinds.NORMALISATION: ("normalisation", "normalisation"),
    op_kinds.SOFTMAX: ("softmax", "softmax"),
    op_kinds.SORT: ("sort", "sort or top-k"),
    op_kinds.SCAN: ("scan", "scan"),
    op_kinds.SCATTER: ("scatter", "scatter"),
    op_kinds.GATHER: ("gather", "gather"),
    op_kinds.FFT: ("fft", "FFT"),
    op_kinds.REDUCTION: ("reduction", "reduction"),
    op_kinds.RANDOM: ("pointwise", "dropout"),
}


def _by_kinds(graph: Graph, working: list[Operation]) -> tuple[str, str]:
    present = [o.kind for o in working]
    gemms = present.count(op_kinds.GEMM)
    if gemms == len(working):
        return "gemm", "GEMM" if gemms == 1 else f"{gemms} GEMMs"
    if gemms > 1:
        rest = [o for o in working if o.kind != op_kinds.GEMM]
        return "gemm_chain", f"{gemms} GEMMs with {_list_names(rest)}"
    if all(k in (op_kinds.POINTWISE, op_kinds.COPY, op_kinds.RANDOM) for k in present):
        if all(k == op_kinds.COPY for k in present):
            return "copy", "layout copy"
        if len(working) == 1:
            return "pointwise", title_of(working[0].label)
        return "pointwise", "pointwise chain"
    for kind, (name, title) in TITLES.items():
        if kind in present:
            others = [o for o in working if o.kind != kind]
            return name, f"{title} with {_list_names(others)}" if others else title
    return "other", _list_names(working)
