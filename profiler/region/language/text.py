"""The region language: text to Region and back. Torch-free; names and shapes are checked by `program`."""

from __future__ import annotations

import ast
from functools import lru_cache

from profiler.region.language import syntax
from profiler.region.language.syntax import error, nearest
from profiler.region.limits import MAX_BYTES, MAX_RANK, MAX_SIZE, check_operations
from profiler.region.model import FLOATING, ITEMSIZE, Input, Region, RegionError, Size, Symbol

MAX_INPUTS = 128
MAX_SIZES = 64

SUFFIXES = ("requires_grad", "channels_last", "strides", "below", "offsets", "mask")
RESERVED = frozenset({*syntax.MODULES, "range", "sizes", *ITEMSIZE})


REMEMBERED = 8
"""Texts whose regions are kept: several parts of a process ask about the one in hand."""


def parse(text: str, name: str = "region") -> Region:
    """Read a region. RegionError carries line, column, a caret's extent and a hint.

    The last texts are remembered, so that a text is read once on its way through a process. A region is not changed:
    who needs another takes `dataclasses.replace`, and copies a node before rewriting it.

    >>> parse("x: bf16[8, 4]\\ny = gelu(x)\\nreturn y").outputs
    ('y',)
    """
    text = text.removeprefix("\ufeff")  # editors of Windows put a byte order mark there
    try:
        region = _read(text)
    except RegionError as fault:
        fault.text = text
        raise
    return region if region.name == name else region.named(name)


@lru_cache(maxsize=REMEMBERED)
def _read(text: str) -> Region:
    return _region(syntax.read(text), text)


def to_text(region: Region) -> str:
    """Canonical text: `parse(to_text(region)) == region`."""
    lines = [f"{s.name}: sizes[{', '.join(map(str, s.sizes))}]" for s in region.symbols]
    lines += [_input_text(i) for i in region.inputs]
    lines += region.statements
    returned = ", ".join(region.outputs) + ("," if region.output_tuple and len(region.outputs) == 1 else "")
    return "\n".join([*lines, f"return {returned}"]) + "\n"


def _region(module: ast.Module, text: str) -> Region:
    symbols: list[Symbol] = []
    inputs: list[Input] = []
    nodes: list[ast.stmt] = []
    returned: ast.expr | None = None
    declared: set[str] = set()
    for node in module.body:
        if returned is not None:
            raise error(node, "there is text after the return")
        if isinstance(node, ast.AnnAssign):
            if nodes:
                raise error(node, "inputs come before the operations")
            _declare(node, symbols, inputs, declared)
        elif isinstance(node, ast.Return):
            if node.value is None:
                raise error(node, "return at least one tensor")
            syntax.check_expression(node.value)
            returned = node.value
        else:
            syntax.check_statement(node)
            nodes.append(node)
    if not inputs:
        raise RegionError("a region needs at least one input", code="region-no-inputs", hint="x: bf16[8192, 4096]")
    if returned is None:
        line = module.body[-1].end_lineno or 1
        raise RegionError("a region ends with a return", code="region-no-return", line=line, hint="return y")
    _check_sizes(symbols)
    check_operations(nodes)
    outputs = list(returned.elts) if isinstance(returned, ast.Tuple) else [returned]
    if not outputs:
        raise error(returned, "return at least one tensor")
    return Region(
        inputs=tuple(inputs),
        statements=tuple(line for node in nodes for line in ast.unparse(node).split("\n")),
        outputs=tuple(ast.unparse(o) for o in outputs),
        symbols=tuple(symbols),
        nodes=tuple(nodes),
        returned=tuple(outputs),
        source=text,
        output_tuple=isinstance(returned, ast.Tuple),
    )


def _declare(node: ast.AnnAssign, symbols: list[Symbol], inputs: list[Input], declared: set[str]) -> None:
    if not isinstance(node.target, ast.Name) or node.value is not None:
        raise error(node, "an input is written `x: bf16[8192, 4096]`")
    name = node.target.id
    if name in declared:
        raise error(node.target, f"{name} is declared twice", code="region-declared-twice")
    if name in RESERVED or name.startswith("_") or len(name) > syntax.MAX_NAME:
        raise error(node.target, f"{name[: syntax.MAX_NAME]} cannot be the name of an input")
    declared.add(name)
    if isinstance(node.annotation, ast.Subscript) and getattr(node.annotation.value, "id", "") == "sizes":
        if inputs:
            raise error(node, "sizes that vary are declared before the inputs")
        symbols.append(Symbol(name, _numbers(node.annotation.slice, "sizes")))
        return
    if len(inputs) >= MAX_INPUTS:
        raise error(node, f"more than {MAX_INPUTS} inputs", code="region-too-long")
    inputs.append(_input(name, node.annotation, {s.name: s for s in symbols}))


def _input(name: str, annotation: ast.expr, symbols: dict[str, Symbol]) -> Input:
    suffixes: list[tuple[str, ast.expr, tuple[ast.expr, ...] | None]] = []
    node = annotation
    while not isinstance(node, ast.Subscript):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.keywords:
            suffixes.append((node.func.attr, node, tuple(node.args)))
            node = node.func.value
        elif isinstance(node, ast.Attribute):
            suffixes.append((node.attr, node, None))
            node = node.value
        else:
            hint = f"{name}: {node.id}[()]" if isinstance(node, ast.Name) and node.id in ITEMSIZE else ""
            raise error(node, "a type is written `bf16[8192, 4096]`", hint=hint or "a scalar is f32[()]")
    if not isinstance(node.value, ast.Name) or node.value.id not in ITEMSIZE:
        dtype = ast.unparse(node.value)[:40]
        hint = nearest(dtype, ITEMSIZE) or f"dtypes are {' '.join(ITEMSIZE)}"
        raise error(node.value, f"{dtype} is no dtype of the language", hint=hint, code="region-unknown-dtype")
    shape = _shape(node.slice, symbols, ITEMSIZE[node.value.id])
    options: dict[str, object] = {}
    for suffix, where, arguments in reversed(suffixes):
        if ("ones" if suffix == "mask" else suffix) in options:
            raise error(where, f".{suffix} is given twice")
        options |= _suffix(suffix, where, arguments, node.value.id, shape)
    item = Input(name, node.value.id, shape, line=annotation.lineno, **options)  # type: ignore[arg-type]
    if (item.strides is not None and item.channels_last) or (item.below is not None and item.offsets is not None):
        raise error(annotation, "these two suffixes say different things")
    return item


def _shape(node: ast.expr, symbols: dict[str, Symbol], itemsize: int) -> tuple[Size, ...]:
    elements = list(node.elts) if isinstance(node, ast.Tuple) else [node]
    if len(elements) > MAX_RANK:
        raise error(node, f"more than {MAX_RANK} dimensions", code="region-too-large")
    shape: list[Size] = []
    total = 1
    for element in elements:
        if isinstance(element, ast.Name):
            if element.id not in symbols:
                hint = nearest(element.id, symbols) or f"declare it: {element.id}: sizes[128, 512]"
                raise error(element, f"{element.id} is no size", hint=hint, code="region-unknown-name")
            shape.append(element.id)
            total *= max(symbols[element.id].sizes)
        else:
            size = _number(element, "a dimension")
            shape.append(size)
            total *= size
    if total * itemsize > MAX_BYTES:
        raise error(node, f"the tensor has {total:.3g} elements: more than any GPU holds", code="region-too-large")
    return tuple(shape)


def _suffix(
    suffix: str, where: ast.expr, arguments: tuple[ast.expr, ...] | None, dtype: str, shape: tuple[Size, ...]
) -> dict[str, object]:
    if suffix not in SUFFIXES:
        hint = nearest(suffix, SUFFIXES) or f"suffixes are {', '.join(SUFFIXES)}"
        raise error(where, f".{suffix} says nothing about an input", hint=hint, code="region-unknown-name")
    if suffix in ("requires_grad", "channels_last"):
        if arguments:
            raise error(where, f".{suffix} takes no arguments")
        if suffix == "requires_grad" and dtype not in FLOATING:
            raise error(where, f"{dtype} cannot require a gradient")
        if suffix == "channels_last" and len(shape) != 4:
            raise error(where, ".channels_last needs four dimensions")
        return {suffix: True}
    if suffix == "strides":
        strides = tuple(_number(a, "a stride", least=0) for a in arguments or ())
        if len(strides) != len(shape):
            raise error(where, f".strides needs {len(shape)} numbers")
        sizes = [s for s in shape if isinstance(s, int)]
        reach = sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) if len(sizes) == len(shape) else 0
        if reach * ITEMSIZE[dtype] > MAX_BYTES:
            raise error(where, "the strides reach beyond what any GPU holds", code="region-too-large")
        return {"strides": strides}
    if arguments is None or len(arguments) != 1:
        raise error(where, f".{suffix} takes one number")
    if suffix == "mask":
        share = arguments[0].value if isinstance(arguments[0], ast.Constant) else None
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise error(where, ".mask takes the share of ones, 0 to 1")
        return {"ones": float(share)}
    if dtype in FLOATING or dtype == "bool":
        raise error(where, f".{suffix} needs an integer type, not {dtype}")
    number = _number(arguments[0], f".{suffix}", least=1 if suffix == "below" else 0)
    if number > 2 ** (8 * ITEMSIZE[dtype] - (dtype != "u8")) - (suffix == "offsets"):
        raise error(arguments[0], f"{number} does not fit {dtype}")
    if suffix == "offsets" and len(shape) != 1:
        raise error(where, ".offsets needs one dimension")
    return {suffix: number}


def _number(node: ast.expr, what: str, least: int = 0) -> int:
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool) or not isinstance(node.value, int):
        raise error(node, f"{what} must be a whole number")
    if not least <= node.value <= MAX_SIZE:
        raise error(node, f"{what} must be between {least} and {MAX_SIZE}", code="region-too-large")
    return node.value


def _numbers(node: ast.expr, what: str) -> tuple[int, ...]:
    elements = list(node.elts) if isinstance(node, ast.Tuple) else [node]
    if not elements:
        raise error(node, f"{what} needs at least one number")
    if len(elements) > MAX_SIZES:
        raise error(node, f"more than {MAX_SIZES} {what}", code="region-too-long")
    return tuple(_number(e, what, least=1) for e in elements)


def _check_sizes(symbols: list[Symbol]) -> None:
    if len({len(s.sizes) for s in symbols}) > 1:
        counts = ", ".join(f"{s.name} has {len(s.sizes)}" for s in symbols)
        raise RegionError(f"sizes vary together, so all need as many: {counts}", code="region-sizes")


def _input_text(item: Input) -> str:
    shape = ", ".join(map(str, item.shape)) if item.shape else "()"
    text = f"{item.name}: {item.dtype}[{shape}]"
    if item.requires_grad:
        text += ".requires_grad"
    if item.channels_last:
        text += ".channels_last"
    if item.strides is not None:
        text += f".strides({', '.join(map(str, item.strides))})"
    if item.below is not None:
        text += f".below({item.below})"
    if item.offsets is not None:
        text += f".offsets({item.offsets})"
    if item.ones is not None:
        text += f".mask({item.ones!r})"
    return text
