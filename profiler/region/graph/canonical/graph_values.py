"""The canonical values of a graph: each call of its aten module interpreted over values."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.fx import Node
from torch.utils._python_dispatch import TorchDispatchMode

from profiler.region.graph.canonical import identities
from profiler.region.graph.canonical.operations import Made, canonical, hashable, inward, schema_names
from profiler.region.graph.canonical.values import Shape, Table, Value
from profiler.region.graph.nodes import name_of

Result = Value | tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class GraphValues:
    """values: of each node of a graph's module; results: each value that some call gives, also in another shape, once;
    constant: the calls that depend on no input.
    """

    table: Table
    values: Mapping[Node, Result]
    results: tuple[Value, ...]
    constant: frozenset[Node]

    def of(self, node: object) -> Value | None:
        value = self.values.get(node) if isinstance(node, Node) else None
        return value if isinstance(value, Value) else None


def call_value(
    table: Table, target: Any, name: str, args: Any, kwargs: Any, result: Any, sources: Any, rounding_used: bool = False
) -> Result:
    """What one aten call gives. args, kwargs: values in the place of tensors; sources: the same with fakes.

    rounding_used: as in `Made`.
    """
    names = schema_names(target)
    given = {n: v for (n, _), v in zip(names, args, strict=False)} | dict(kwargs)
    for n, default in names:
        given.setdefault(n, default)
    fakes = {n: v for (n, _), v in zip(names, sources, strict=False)}
    fakes |= {n: result for n in given if n not in fakes}
    known = canonical(Made(table, name, given, result, fakes, rounding_used))
    if known is not None:
        return known
    draws = torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())
    return unknown(table, str(target), given | ({"": id(result)} if draws else {}), result)


def unknown(table: Table, op: str, given: Mapping[str, Any], result: Any) -> Result:
    """A call that is only itself."""
    operands = [v for v in given.values() if isinstance(v, Value)]
    for listed in given.values():
        if isinstance(listed, (list, tuple)):
            operands += [v for v in listed if isinstance(v, Value)]
    attrs = tuple((n, _without_values(v)) for n, v in given.items())
    if isinstance(result, torch.Tensor):
        return table.make(op, operands, attrs, tuple(result.shape))
    if isinstance(result, (tuple, list)):
        return tuple(table.make(op, operands, (*attrs, i), shape_of(r)) for i, r in enumerate(result))
    return table.make(op, operands, attrs, ())


def _without_values(given: Any) -> Any:
    if isinstance(given, Value):
        return "tensor"
    if isinstance(given, (list, tuple)):
        return tuple(map(_without_values, given))
    return hashable(given)


def shape_of(fake: object) -> Shape:
    """Of a tensor; () for what is none."""
    return tuple(fake.shape) if isinstance(fake, torch.Tensor) else ()


@functools.lru_cache(maxsize=4)
def graph_values(module: torch.fx.GraphModule) -> GraphValues:
    """The module's values; those of the last modules are kept."""
    return _interpreted(module)


def _interpreted(module: torch.fx.GraphModule) -> GraphValues:
    table = Table(identities)
    values: dict[Node, Result] = {}
    constant: set[Node] = set()
    for node in module.graph.nodes:
        if node.op == "output":
            continue
        fake = node.meta.get("val")
        if node.op != "call_function":
            values[node] = table.make("input", (), (node.name,), shape_of(fake))
        elif node.target is operator.getitem:
            whole = values[node.args[0]]
            index = node.args[1]
            values[node] = (
                whole[index] if isinstance(whole, tuple) else table.make("part", (whole,), (index,), shape_of(fake))
            )
        else:
            values[node] = _call(table, node, values)
        if node.op == "call_function" and all(n in constant for n in node.all_input_nodes):
            constant.add(node)
        value = values[node]
        if isinstance(value, Value):
            value.nodes = (*value.nodes, node)
            if (inner := inward(table, value)) is not value:
                inner.nodes = (*inner.nodes, node)
            if isinstance(fake, torch.Tensor) and fake.dtype == torch.bool:
                table.truths.add(value)
            if value.op == "reshape":
                value.args[0].reshaped = (*value.args[0].reshaped, node)
    results = dict.fromkeys(v for v in values.values() if isinstance(v, Value) and v.op != "input")
    results |= dict.fromkeys(v.args[0] for v in list(results) if v.op == "reshape")
    return GraphValues(table, values, tuple(results), frozenset(constant))


def _call(table: Table, node: Node, values: dict[Node, Result]) -> Result:
    def value(given: Node) -> Any:
        return values[given]

    args = torch.fx.node.map_arg(node.args, value)
    kwargs = torch.fx.node.map_arg(node.kwargs, value)
    sources = [a.meta.get("val") if isinstance(a, Node) else a for a in node.args]
    schema = getattr(node.target, "_schema", None)
    if schema is not None and schema.is_mutable:  # what it writes into is another value from here on
        made = table.make(str(node.target), (), (node.name,), shape_of(node.meta.get("val")))
        written = node.args[0] if node.args else None
        if isinstance(written, Node):
            values[written] = made
        return made
    name, fake = name_of(node), node.meta.get("val")
    return call_value(table, node.target, name, args, kwargs, fake, sources, name in CASTS and _rounding_used(node))


CASTS = frozenset({"_to_copy", "to"})
DIFFERENCES = frozenset({"sub", "add", "rsub"})


def _rounding_used(node: Node) -> bool:
    """It rounds a float to a shorter one, and a difference to what it rounds is taken: an error that is fed back, a
    number split in two. There the rounding is what is computed.
    """
    source = node.args[0] if node.args else None
    before, after = (n.meta.get("val") if isinstance(n, Node) else None for n in (source, node))
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
        return False
    if not before.is_floating_point() or not after.is_floating_point() or after.itemsize >= before.itemsize:
        return False
    rounded = [node, *(u for u in node.users if u.op == "call_function" and name_of(u) in CASTS)]
    return any(
        name_of(u) in DIFFERENCES and source in u.all_input_nodes
        for n in rounded
        for u in n.users
        if u.op == "call_function"
    )


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Interprets what a function does to tensors without data, as it does it."""

    def __init__(self, table: Table) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table
        self._values: dict[int, Value] = {}
        self._kept: list[torch.Tensor] = []

    def bind(self, tensor: torch.Tensor, value: Value) -> None:
        self._values[id(tensor)] = value
        if tensor.dtype == torch.bool:
            self.table.truths.add(value)
        self._kept.append(tensor)

    def value(self, tensor: torch.Tensor) -> Value:
        return self._values[id(tensor)]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))

        def value(given: Any) -> Any:
            if isinstance(given, torch.Tensor):
                return self._values[id(given)]
            return type(given)(map(value, given)) if isinstance(given, (list, tuple)) else given

        given = [value(a) for a in args]
        options = {k: value(v) for k, v in (kwargs or {}).items()}
        made = call_value(self.table, func, _base_name(func), given, options, result, args)
        for fake, one in _pairs(result, made):
            self.bind(fake, one)
        return result


@functools.lru_cache(maxsize=1024)
def _base_name(target: Any) -> str:
    from profiler.region import op_kinds

    return op_kinds.base_name(str(target))


def _pairs(result: Any, made: Result) -> list[tuple[torch.Tensor, Value]]:
    if isinstance(result, torch.Tensor):
        return [(result, made)] if isinstance(made, Value) else []
    if not isinstance(made, tuple):
        return []
    return [(r, m) for r, m in zip(result, made, strict=False) if isinstance(r, torch.Tensor)]
