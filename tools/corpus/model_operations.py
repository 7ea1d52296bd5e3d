"""Single operations as programs of the fit third launch them, for a calibration: at sizes that models have.

    python -m tools.corpus.model_operations

Writes kernels/calibrate/model_operations.json.gz: of every program of the fit third each operation that eager launches,
forward and backward, as a text of its own; and the programs themselves, for the kernels that torch.compile makes of
them. No program of the other thirds is read.
"""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Iterator

import torch
import torch.fx

from app.accuracy.corpus.programs import FIT, load_programs
from app.atlas.operation_items import UNPRICED, operation_item
from kernels.calibrate.model_programs import FILE
from profiler.region import op_kinds
from profiler.region.graph.lowering import Graph, lower
from profiler.region.graph.operation import Operation, Tensor
from profiler.region.language.text import parse
from profiler.region.language.vocabulary import DTYPE_NAMES
from profiler.region.model import RegionError

SMALLEST_BYTES = 2**16
"""Operations on less take what a launch takes, which the drawn programs tell."""
MOST_BYTES = 2**31
"""Of one program: what every GPU with 16 GB can hold several times."""
MODULES = ("aten", "torch", "F")
"""Where an operation may have a name that the language knows."""
SPECIAL = {"inf": "math.inf", "-inf": "-math.inf", "nan": "math.nan"}
VIEWS = frozenset(
    getattr(torch.ops.aten, name).default for name in ("detach", "view", "unsqueeze", "expand", "t", "permute", "alias")
)
ATTENTION = "F.scaled_dot_product_attention"


def operations_of(graph: Graph) -> Iterator[str]:
    """Texts of the single operations of a lowered program."""
    nodes = {node.name: node for node in graph.module.graph.nodes}
    inputs = [n for n in graph.module.graph.nodes if n.op == "placeholder"]
    declared = {n: i.below for n, i in zip(inputs, graph.region.inputs, strict=False)}
    for operation in graph.operations:
        if operation.kind in UNPRICED or operation.mutated or operation_item(operation) is None:
            continue
        if _moved(operation) < SMALLEST_BYTES:
            continue
        spelled = (_text(nodes[operation.name], operation, declared, module) for module in MODULES)
        text = next((t for t in spelled if t is not None and _same(t, operation)), None)
        if text is not None:
            yield text


def other_sizes(text: str) -> Iterator[str]:
    """The operation with a quarter and with four times the rows of its largest input, all that have as many alike."""
    wanted = _only(text)
    declared = [line for line in text.splitlines() if DECLARED.match(line)]
    rows = max((_sizes(line) for line in declared), key=math.prod, default=())[:1]
    if ".below(" in text:  # a smaller table would have places out of bounds
        return
    if wanted is None or not rows or rows[0] < 2 or any(_outer_is_not_first(line, rows[0]) for line in declared):
        return
    for count in (rows[0] // 4, rows[0] * 4):
        scaled = re.sub(rf"^(\w+: \w+\[){rows[0]}(?=[,\]])", rf"\g<1>{count}", text, flags=re.MULTILINE)
        other = _only(scaled) if count else None
        if other is not None and other.target == wanted.target and _moved(other) <= MOST_BYTES // 2:
            yield scaled


DECLARED = re.compile(r"\w+: \w+\[([\d, ]+)\](?:.*\.strides\(([\d, ]+)\))?")


def _sizes(line: str) -> tuple[int, ...]:
    shape = DECLARED.match(line)
    return tuple(map(int, shape[1].split(","))) if shape else ()


def _outer_is_not_first(line: str, rows: int) -> bool:
    """Whether more of these rows would lie over each other."""
    shape, sizes = DECLARED.match(line), _sizes(line)
    if not shape or not shape[2] or not sizes or sizes[0] != rows:
        return False
    strides = list(map(int, shape[2].split(",")))
    return strides[0] < max(strides)


def _moved(operation: Operation) -> int:
    return sum(t.bytes for t in (*operation.reads, *operation.writes))


def attention_of(graph: Graph) -> Iterator[str]:
    """The program itself where all that it launches is attention with its gradients."""
    launched = [o for o in graph.operations if o.kind not in UNPRICED]
    if graph.region.requires_grad and len(launched) == 2 and all(o.kind == op_kinds.ATTENTION for o in launched):
        yield graph.region.source


def _text(
    node: torch.fx.Node, operation: Operation, declared: dict[torch.fx.Node, int | None], module: str
) -> str | None:
    """The operation as a region of its own. None for what the language cannot say."""
    lines: list[str] = []
    names: dict[torch.fx.Node, str] = {}
    for source in node.all_input_nodes:
        value = source.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return None
        names[source] = f"x{len(names)}"
        kind = DTYPE_NAMES.get(value.dtype)
        below = _below(source, declared)
        if kind is None or (kind in ("i64", "i32") and not below and operation.kind != op_kinds.POINTWISE):
            return None
        shape = ", ".join(map(str, value.shape)) or "()"
        suffix = f".below({below})" if below else ""
        if not value.is_contiguous():
            suffix += f".strides({', '.join(map(str, value.stride()))})"
        lines.append(f"{names[source]}: {kind}[{shape}]{suffix}")
    name = ATTENTION if operation.kind == op_kinds.ATTENTION else f"{module}.{_base(node)}"
    arguments = [_printed(a, names) for a in node.args]
    if operation.kind == op_kinds.ATTENTION:
        words = ("attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
        arguments = arguments[:3] + [f"{w}={a}" for w, a in zip(words, arguments[3:], strict=False)]
    if None in arguments:
        return None
    for key, value in node.kwargs.items():
        if key in ("layout", "device", "pin_memory"):
            continue
        printed = _printed(value, names)
        if printed is None:
            return None
        arguments.append(f"{key}={printed}")
    call = f"{name}({', '.join(a for a in arguments if a is not None)})"
    results = sum(t.elements > 0 for t in operation.writes)
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return "\n".join([*lines, f"return {call}"])
    if not isinstance(value, (tuple, list)):
        return None
    made = [f"y{n}" for n in range(len(value))]
    kept = [n for n, v in zip(made, value, strict=True) if isinstance(v, torch.Tensor) and v.numel()]
    if len(kept) < min(1, results):
        return None
    return "\n".join([*lines, f"{', '.join(made)} = {call}", f"return {', '.join(kept)}"])


def _below(node: torch.fx.Node, declared: dict[torch.fx.Node, int | None]) -> int | None:
    """The bound of an input's indices, also where a view of them is meant."""
    while node.op == "call_function" and node.target in VIEWS and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return declared.get(node)


def _base(node: torch.fx.Node) -> str:
    return str(node.target).removeprefix("aten.").split(".")[0]


def _printed(value: object, names: dict[torch.fx.Node, str]) -> str | None:
    """An argument as the language writes it."""
    if isinstance(value, torch.fx.Node):
        return names.get(value)
    if isinstance(value, (list, tuple)):
        parts = [_printed(v, names) for v in value]
        return None if None in parts else f"[{', '.join(p for p in parts if p is not None)}]"
    if value is None or isinstance(value, (bool, int, float)):
        text = repr(value)
        return SPECIAL.get(text, text)
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, (torch.dtype, torch.memory_format)):
        return str(value)
    return None


def _same(text: str, wanted: Operation) -> bool:
    """Whether the text launches that operation on such tensors and nothing else."""
    only = _only(text)
    return only is not None and only.target == wanted.target and _shapes(only.reads) == _shapes(wanted.reads)


def _only(text: str) -> Operation | None:
    """The one operation that a text launches."""
    try:
        launched = [o for o in lower(parse(text)).operations if o.kind not in UNPRICED]
    except RegionError:
        return None
    return launched[0] if len(launched) == 1 else None


def _shapes(tensors: tuple[Tensor, ...]) -> list[tuple[object, ...]]:
    return [(t.shape, t.stride, t.dtype) for t in tensors]


def main() -> None:
    """Write the file; print counts."""
    operations: dict[str, str] = {}
    programs, launched = [], 0
    for program in load_programs(FIT):
        if program.bytes_moved <= MOST_BYTES:
            programs.append(program.text)
        graph = lower(parse(program.text))
        for text in (*operations_of(graph), *attention_of(graph)):
            operations.setdefault(text, program.name)
        launched += sum(o.kind not in UNPRICED for o in graph.operations)
    sizes = [other for text in sorted(operations) for other in other_sizes(text)]
    body = {"operations": sorted({*operations, *sizes}), "programs": programs}
    FILE.write_bytes(gzip.compress(json.dumps(body, indent=0).encode(), 9, mtime=0))
    counts = f"{len(operations)} of {launched} operations, {len(sizes)} at other sizes, {len(programs)} programs"
    print(f"{counts}, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
