"""Read the operands of the library calls in a wrapper: dtype, shape and stride of each tensor, and the constants.

The wrapper's text says which tensors a call gets and how it views them; the graph that it was written from says how
each of them is laid out. The text is parsed, never run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from profiler.oracle.model import CallSite, Constant, Operand
from profiler.region.model import ITEMSIZE

Tensors = Mapping[str, tuple[Operand, ...]]
"""Name in the wrapper -> the tensor that it holds, or those of a call with several results."""

DTYPES: Mapping[str, str] = {
    "float64": "f64", "float32": "f32", "bfloat16": "bf16", "float16": "f16", "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2", "float8_e8m0fnu": "f8e8m0", "float4_e2m1fn_x2": "f4e2m1x2",
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8",
    "bool": "bool",
}  # fmt: skip
"""torch's names of types -> the region language's."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an operation. default: what it is where it is left out. written: whether the call changes it."""

    name: str
    default: Constant = None
    has_default: bool = False
    written: bool = False


Schema = Callable[[str], tuple[Parameter, ...]]
"""Full name of a call, "torch.ops.aten.topk.default" -> its parameters; () where there is no schema."""


class _UnknownError(Exception):
    """An expression whose value cannot be told from the text."""


@dataclass(slots=True)
class _Names:
    """What the wrapper's names hold at one place of its text."""

    tensors: Tensors
    assigned: dict[str, tuple[Operand, ...]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> tuple[Operand, ...]:
        if name in self.tensors:
            return self.tensors[name]
        if name in self.assigned:
            return self.assigned[name]
        raise _UnknownError(name)


def read_sites(
    body: ast.AST, calls: Sequence[tuple[ast.Call, str]], tensors: Tensors, schema: Schema
) -> dict[int, CallSite]:
    """id() of each call -> its site. body: of the function that the calls stand in. calls: with their full names; of
    a tensor's method ("sum") with the method's.
    """
    if not calls:
        return {}
    results: dict[int, str] = {}
    events: list[tuple[int, int, ast.AST]] = []
    for node in ast.walk(body):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            results[id(node.value)] = node.targets[0].id
            events.append((node.lineno, 1, node))
    named = {id(call): name for call, name in calls}
    events.extend((call.lineno, 0, call) for call, _ in calls)
    names = _Names(tensors)
    sites: dict[int, CallSite] = {}
    for _, _, node in sorted(events, key=lambda e: e[:2]):
        if isinstance(node, ast.Call):
            sites[id(node)] = _site(node, named[id(node)], results.get(id(node), ""), names, schema)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                names.assigned[node.targets[0].id] = _tensors(node.value, names)
            except _UnknownError:
                names.assigned.pop(node.targets[0].id, None)
    return sites


def _site(call: ast.Call, name: str, result: str, names: _Names, schema: Schema) -> CallSite:
    """One call described; without operands where one of them is not known."""
    parameters = schema(name)
    given = _arguments(call, name, parameters)
    constants: list[tuple[str, Constant]] = []
    inputs: list[Operand] = []
    passed: list[str] = []
    known = True
    for parameter, value in given:
        try:
            constants.append((parameter, _constant(value)))
            continue
        except _UnknownError:
            pass
        try:
            for operand in _operands(value, names):
                inputs.append(operand)
                passed.append(parameter)
        except _UnknownError:
            known = known and not _is_tensor(value)
    left_out = {p.name for p in parameters if p.has_default} - {n for n, _ in given}
    constants.extend((p.name, p.default) for p in parameters if p.name in left_out)
    if not known:
        return CallSite(constants=tuple(constants))
    written = {p.name for p in parameters if p.written}
    outputs = _outputs(call, result, names) or tuple(o for n, o in zip(passed, inputs, strict=True) if n in written)
    return CallSite(tuple(inputs), outputs, tuple(passed), tuple(constants))


def _arguments(call: ast.Call, name: str, parameters: Sequence[Parameter]) -> list[tuple[str, ast.expr]]:
    """The call's arguments by parameter, without what it writes into; a method's object first."""
    values = list(call.args)
    if isinstance(call.func, ast.Attribute) and "." not in name:  # a method of a tensor
        values.insert(0, call.func.value)
    order = [p.name for p in parameters]
    by_position = [(order[i] if i < len(order) else str(i), v) for i, v in enumerate(values)]
    return by_position + [(k.arg, k.value) for k in call.keywords if k.arg is not None and k.arg != "out"]


def _outputs(call: ast.Call, result: str, names: _Names) -> tuple[Operand, ...]:
    """What is passed as `out`, else what the result is; () where neither is known."""
    try:
        for keyword in call.keywords:
            if keyword.arg == "out":
                return tuple(_operands(keyword.value, names))
        return names.tensors[result] if result in names.tensors else _tensors(call, names)
    except _UnknownError:
        return ()


def _is_tensor(node: ast.expr) -> bool:
    """Whether an argument of unknown value can be a tensor: no type, device, layout or generator."""
    return not ast.unparse(node).startswith(("torch.", "device(", "None"))


def _operands(node: ast.expr, names: _Names) -> Iterable[Operand]:
    """The tensors that an argument holds: one, or those of a list. Raises _UnknownError."""
    if isinstance(node, ast.List | ast.Tuple):
        for item in node.elts:
            if not (isinstance(item, ast.Constant) and item.value is None):
                yield from _operands(item, names)
        return
    yield from _tensors(node, names)


def _tensors(node: ast.expr, names: _Names) -> tuple[Operand, ...]:
    """What an expression of the wrapper holds. Raises _UnknownError."""
    match node:
        case ast.Name(id=name):
            return names[name]
        case ast.Call(func=ast.Name(id="reinterpret_tensor"), args=[base, shape, stride, *_]):
            return (Operand(_one(base, names).dtype, _numbers(shape), _numbers(stride)),)
        case ast.Call(func=ast.Name(id=maker), args=[shape, stride, dtype, *_]) if maker.startswith("empty_strided"):
            return (Operand(_dtype(dtype), _numbers(shape), _numbers(stride)),)
        case ast.Call(func=ast.Name(id="copy_if_misaligned"), args=[base]):
            return (_one(base, names),)
        case ast.Subscript(value=base, slice=ast.Slice(lower=lower, upper=upper, step=None)):
            whole = _one(base, names)
            first = 0 if lower is None else _number(lower)
            last = whole.shape[0] if upper is None else _number(upper)
            return (replace(whole, shape=(last - first, *whole.shape[1:])),)
        case ast.Call(func=ast.Attribute(value=base, attr="view"), args=[dtype]) if "torch." in ast.unparse(dtype):
            return (_as_dtype(_one(base, names), _dtype(dtype)),)
        case ast.Call(func=ast.Attribute(attr="dtype"), args=[base, dtype]) if ".view." in ast.unparse(node.func):
            return (_as_dtype(_one(base, names), _dtype(dtype)),)
        case ast.Call(func=ast.Attribute(value=base, attr="view"), args=[ast.List() | ast.Tuple() as shape]):
            return (_contiguous(_one(base, names).dtype, _numbers(shape)),)
        case ast.Call(func=ast.Attribute(value=base, attr="view"), args=[_, *_] as sizes):
            return (_contiguous(_one(base, names).dtype, tuple(map(_number, sizes))),)
        case ast.Call(func=ast.Attribute(value=base, attr="sum"), keywords=[ast.keyword(arg="dim", value=axis)]):
            before, dim = _one(base, names), _number(axis)
            return (_contiguous(before.dtype, before.shape[:dim] + before.shape[dim:][1:]),)
    raise _UnknownError(ast.unparse(node))


def _one(node: ast.expr, names: _Names) -> Operand:
    held = _tensors(node, names)
    if len(held) != 1:
        raise _UnknownError(ast.unparse(node))
    return held[0]


def _contiguous(dtype: str, shape: tuple[int, ...]) -> Operand:
    stride: list[int] = []
    step = 1
    for size in reversed(shape):
        stride.insert(0, step)
        step *= max(1, size)
    return Operand(dtype, shape, tuple(stride))


def _as_dtype(operand: Operand, dtype: str) -> Operand:
    """The same bytes as elements of another type."""
    before, after = ITEMSIZE.get(operand.dtype), ITEMSIZE.get(dtype)
    if before is None or after is None:
        raise _UnknownError(dtype)
    if before == after:
        return replace(operand, dtype=dtype)
    if not operand.shape:
        raise _UnknownError(dtype)
    return _contiguous(dtype, (*operand.shape[:-1], operand.shape[-1] * before // after))


def _dtype(node: ast.expr) -> str:
    """`torch.bfloat16` -> bf16."""
    match node:
        case ast.Attribute(value=ast.Name(id="torch"), attr=name):
            return DTYPES.get(name, name)
    raise _UnknownError(ast.unparse(node))


def _number(node: ast.expr) -> int:
    value = _scalar(node)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _UnknownError(ast.unparse(node))
    return value


def _numbers(node: ast.expr) -> tuple[int, ...]:
    if not isinstance(node, ast.Tuple | ast.List):
        raise _UnknownError(ast.unparse(node))
    return tuple(map(_number, node.elts))


def _constant(node: ast.expr) -> Constant:
    """A number, a truth value, a type, or a list of them. Raises _UnknownError where it is none."""
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(map(_scalar, node.elts))
    return _scalar(node)


def _scalar(node: ast.expr) -> bool | int | float | str | None:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _scalar(operand)
            if isinstance(value, int | float):
                return -value
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() as op, right=right):
            a, b = _number(left), _number(right)
            return a * b if isinstance(op, ast.Mult) else a + b if isinstance(op, ast.Add) else a - b
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str(text))]):
            return float(text)
        case ast.Attribute(value=ast.Name(id="math" | "torch"), attr="inf" | "nan" as text):
            return float(text)
        case ast.Attribute(value=ast.Name(id="torch"), attr=name) if name in DTYPES:
            return DTYPES[name]
    raise _UnknownError(ast.unparse(node))
