"""Region -> the program a user would run: a torch.fx graph over real torch functions, checked on FakeTensors.

The text is interpreted, never executed: each whitelisted name is looked up, called on FakeTensors (no memory, no
device), and recorded as a node. Fake mode accepts some calls that CUDA refuses; `_refuse` makes those checks.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from profiler.region.language import grouped_fake, scalar_values, syntax, vocabulary
from profiler.region.language.checks import label_of
from profiler.region.language.recorder import Recorder, empty_input, one_line, quiet, shape_of
from profiler.region.language.scalar_values import has_tensor
from profiler.region.language.signatures import Target
from profiler.region.language.syntax import error, nearest
from profiler.region.limits import MAX_ITEMS, MAX_OPERATIONS, operations, size_of_range
from profiler.region.model import Region, RegionError

__all__ = ["Program", "empty_input", "program", "program_in", "shape_of"]


PAIR = ("values", "indices")
"""What sort, topk, max and the like call their two results."""


@dataclass(frozen=True)
class Program:
    """The calls that a user would make, as a graph. inputs are fakes with the shapes of one binding."""

    region: Region
    graph: torch.fx.Graph
    inputs: tuple[FakeTensor, ...]
    outputs: tuple[FakeTensor, ...]
    mode: FakeTensorMode

    @cached_property
    def module(self) -> torch.fx.GraphModule:
        """module(*inputs) -> tuple of outputs, on any device. Made when it is asked for: torch compiles a text for it,
        and most programs are only looked at."""
        return torch.fx.GraphModule(torch.nn.Module(), self.graph)


def program(region: Region, binding: Mapping[str, int] | None = None, device: str = "cpu") -> Program:
    """Build and check the region at one binding of its symbols (default: the first).

    Raises RegionError, with the place in `region.source`, for unknown names and shapes that do not fit.
    """
    return program_in(region, region.bindings[0] if binding is None else binding, device)


def program_in(
    region: Region, sizes: Mapping[str, int | torch.SymInt], device: str, mode: FakeTensorMode | None = None
) -> Program:
    """The same in a fake mode of the caller's: sizes may then be torch.SymInt of the mode's ShapeEnv."""
    grouped_fake.install()
    try:
        with quiet():
            return _Builder(region, dict(sizes), device, mode).build()
    except RegionError as fault:
        fault.text = fault.text or region.source
        raise


class _Builder:
    """Walks the statements once; values are fx nodes, numbers, strings, dtypes, slices, or tuples and lists of them."""

    def __init__(
        self, region: Region, sizes: Mapping[str, int | torch.SymInt], device: str, mode: FakeTensorMode | None = None
    ) -> None:
        self.region = region
        self.device = device
        self.sizes = cast("Mapping[str, int]", sizes)  # a SymInt acts as an int
        self.recorder = Recorder(device, mode)
        self.names: dict[str, object] = dict(sizes)
        self.rounds = 1  # of the loops around the statement in hand
        self.line = 0

    def build(self) -> Program:
        try:
            return self.built()
        except (RegionError, MemoryError):
            raise
        except Exception as fault:  # what torch raises about a shape, a dtype or a number outside of a call
            message = f"this line cannot be evaluated: {one_line(fault)}"
            raise RegionError(message, code="region-type", line=max(1, self.line)) from None

    def built(self) -> Program:
        recorder = self.recorder
        with recorder.recording():
            inputs = {item.name: recorder.input(item, self.sizes) for item in self.region.inputs}
            self.names |= inputs
            fakes = [node.meta["val"] for node in inputs.values()]
            for statement in self.region.nodes:
                self.statement(statement)
            results = []
            for expression in self.region.returned:
                self.line = expression.lineno
                value = self.value(expression)
                if not isinstance(value, torch.fx.Node):
                    raise error(expression, "a region returns tensors", code="region-type")
                if value.meta["val"].is_complex():
                    hint = "return torch.view_as_real(...), or .real and .imag"
                    raise error(expression, "a complex tensor cannot be returned", hint=hint, code="region-dtype")
                results.append(value)
        recorder.graph.output(tuple(results))
        outputs = tuple(n.meta["val"] for n in results)
        return Program(self.region, recorder.graph, tuple(fakes), outputs, recorder.mode)

    def statement(self, node: ast.stmt) -> None:
        self.line = node.lineno
        if isinstance(node, ast.Assign):
            self.assign(node.targets[0], self.value(node.value))
        elif isinstance(node, ast.AugAssign):
            assert isinstance(node.target, ast.Name)
            self.names[node.target.id] = self.binary(node, node.op, self.lookup(node.target), self.value(node.value))
        elif isinstance(node, ast.For):
            self.loop(node)
        elif isinstance(node, ast.Expr) and syntax.is_append(node.value):
            self.append(node.value)
        elif isinstance(node, ast.Expr):
            self.value(node.value)

    def assign(self, target: ast.expr, value: object) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
            return
        assert isinstance(target, ast.Tuple)
        if isinstance(value, torch.fx.Node) and isinstance(value.meta["val"], torch.Tensor):
            count = value.meta["val"].shape[0] if value.meta["val"].dim() else 0
            if count == len(target.elts):
                value = tuple(self.emit(target, operator.getitem, (value, i), {}) for i in range(count))
        if not isinstance(value, tuple | list) or len(value) != len(target.elts):
            size = len(value) if isinstance(value, tuple | list) else 1
            raise error(target, f"{len(target.elts)} names for {size} values", code="region-type")
        for name, part in zip(target.elts, value, strict=True):
            self.assign(name, part)

    def loop(self, node: ast.For) -> None:
        assert isinstance(node.iter, ast.Call) and isinstance(node.target, ast.Name)
        values = [self.value(a) for a in node.iter.args]
        bounds = [v for v in values if isinstance(v, int) and not isinstance(v, bool)]
        if len(bounds) < len(values):
            raise error(node.iter, "range takes whole numbers", code="region-type")
        try:
            count = size_of_range(tuple(bounds))
        except ValueError as fault:
            raise error(node.iter, str(fault), code="region-type") from None
        if self.rounds * count * sum(operations(s) for s in node.body) > MAX_OPERATIONS:
            raise error(node.iter, f"the loop unrolls to more than {MAX_OPERATIONS} operations", code="region-too-long")
        around = self.rounds
        self.rounds *= max(1, count)
        for value in range(*bounds):
            self.names[node.target.id] = value
            for statement in node.body:
                self.statement(statement)
        self.rounds = around

    def append(self, node: ast.expr) -> None:
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        target = self.value(node.func.value)
        if not isinstance(target, list) or len(node.args) != 1 or node.keywords:
            raise error(node, "only a list has append, with one value", code="region-type")
        if len(target) >= MAX_ITEMS:
            raise error(node, f"more than {MAX_ITEMS} values in one list", code="region-too-long")
        target.append(scalar_values.copy_for_keeping(node, self.value(node.args[0])))

    def lookup(self, node: ast.Name) -> object:
        if node.id in self.names:
            return self.names[node.id]
        dtype = vocabulary.dtype("", node.id)
        if dtype is not None:
            return dtype
        hint = nearest(node.id, [*self.names, *vocabulary.known_names("")])
        names = ", ".join(list(self.names)[:12])
        raise error(node, f"{node.id} is not known here", hint=hint or f"known: {names}", code="region-unknown-name")

    def value(self, node: ast.expr) -> object:
        if isinstance(node, ast.Constant):
            return self.constant(node)
        if isinstance(node, ast.Name):
            return self.lookup(node)
        if isinstance(node, ast.Tuple):
            return tuple(scalar_values.copy_for_keeping(node, self.value(e)) for e in node.elts)
        if isinstance(node, ast.List):
            return [scalar_values.copy_for_keeping(node, self.value(e)) for e in node.elts]
        if isinstance(node, ast.BinOp):
            return self.binary(node, node.op, self.value(node.left), self.value(node.right))
        if isinstance(node, ast.UnaryOp):
            return self.call(node, scalar_values.UNARY[type(node.op)], (self.value(node.operand),), {})
        if isinstance(node, ast.Compare):
            pair = (self.value(node.left), self.value(node.comparators[0]))
            return self.call(node, scalar_values.COMPARE[type(node.ops[0])], pair, {})
        if isinstance(node, ast.Subscript):
            return self.call(node, operator.getitem, (self.value(node.value), self.index(node.slice)), {})
        if isinstance(node, ast.Attribute):
            return self.attribute(node)
        if isinstance(node, ast.Call):
            return self.function_call(node)
        raise error(node, f"{type(node).__name__} is not part of the language")

    def index(self, node: ast.expr) -> object:
        if isinstance(node, ast.Slice):
            parts = (node.lower, node.upper, node.step)
            return slice(*(None if p is None else self.value(p) for p in parts))
        if isinstance(node, ast.Tuple):
            return tuple(self.index(e) for e in node.elts)
        return self.value(node)

    def constant(self, node: ast.Constant) -> object:
        """A string can only be an option of some function or an equation."""
        text = node.value
        if isinstance(text, str) and text not in vocabulary.STRINGS and text not in scalar_values.FLOATS:
            if not vocabulary.EQUATION.fullmatch(text):
                raise error(node, f"{text[:30]!r} is no option", code="region-type")
        return text

    def binary(self, node: ast.AST, op: ast.operator, left: object, right: object) -> object:
        return self.call(node, scalar_values.BINARY[type(op)], (left, right), {})

    def attribute(self, node: ast.Attribute) -> object:
        limits = self.limits_of_dtype(node)
        if limits is not None:
            return limits
        path = _path(node)
        if path is not None and path[0] not in self.names:
            module, name = ".".join(path[:-1]), path[-1]
            constant = vocabulary.constant(module, name)
            if constant is not None:
                return constant
            hint = nearest(name, vocabulary.known_names(module))
            raise error(node, f"{'.'.join(path)[:80]} is not known", hint=hint, code="region-unknown-name")
        value = self.value(node.value)
        if isinstance(value, tuple) and len(value) == 2 and node.attr in PAIR and all(map(has_tensor, value)):
            return value[PAIR.index(node.attr)]
        fake = value.meta["val"] if isinstance(value, torch.fx.Node) else None
        if fake is None or node.attr not in vocabulary.PROPERTIES:
            hint = nearest(node.attr, vocabulary.PROPERTIES | vocabulary.METHODS)
            raise error(node, f".{node.attr} is not known", hint=hint, code="region-unknown-name")
        if node.attr in ("T", "mT"):
            if fake.dim() < 2:
                raise error(node, f".{node.attr} needs two dimensions, not {fake.dim()}", code="region-shape")
            if node.attr == "T" and fake.dim() > 2:
                return self.emit(node, "permute", (value, *reversed(range(fake.dim()))), {})
            return self.emit(node, "transpose", (value, -2, -1), {})
        if node.attr in ("real", "imag"):
            return self.emit(node, getattr(torch, node.attr), (value,), {})
        return tuple(fake.shape) if node.attr == "shape" else getattr(fake, node.attr)

    def limits_of_dtype(self, node: ast.Attribute) -> float | None:
        """torch.finfo(x.dtype).min and the like."""
        call = node.value
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            return None
        if _path(call.func) not in (["torch", "finfo"], ["torch", "iinfo"]):
            return None
        args = [self.value(a) for a in call.args]
        if node.attr not in ("min", "max", "eps", "tiny") or len(args) != 1 or not isinstance(args[0], torch.dtype):
            raise error(node, "it is written torch.finfo(x.dtype).min", code="region-type")
        try:
            number: float = getattr(getattr(torch, call.func.attr)(args[0]), node.attr)
        except (TypeError, AttributeError) as fault:
            raise error(node, str(fault)[:200], code="region-type") from None
        return number

    def function_call(self, node: ast.Call) -> object:
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            raise error(node, "* and ** are not part of the language")
        kwargs = {str(k.arg): self.value(k.value) for k in node.keywords}
        if isinstance(node.func, ast.Attribute):
            path = _path(node.func)
            if path is None or path[0] in self.names:
                return self.method_call(node, node.func, kwargs)
            module, name = ".".join(path[:-1]), path[-1]
        elif isinstance(node.func, ast.Name):
            module, name = "", node.func.id
        else:
            raise error(node, "call a function by its name")
        args = tuple(self.value(a) for a in node.args)
        if module == "" and name == "float" and len(args) == 1 and args[0] in scalar_values.FLOATS:
            return float(args[0])
        table = scalar_values.BUILTINS if module == "" else vocabulary.MATH if module == "math" else {}
        if callable(table.get(name)) and not kwargs and not has_tensor(args):
            return scalar_values.apply(node, table[name], args)
        target = vocabulary.function(module, name)
        if target is None:
            full = (f"{module}.{name}" if module else name)[:80]
            hint = nearest(name, vocabulary.known_names(module))
            raise error(node.func, f"{full} is not known", hint=hint, code="region-unknown-name")
        if "device" in kwargs or (name in vocabulary.FACTORIES and module != "aten"):
            kwargs["device"] = torch.device(self.device)
        return self.call(node, target, args, kwargs)

    def method_call(self, node: ast.Call, func: ast.Attribute, kwargs: dict[str, object]) -> object:
        value = self.value(func.value)
        if not isinstance(value, torch.fx.Node):
            raise error(func, f"only tensors have methods; .{func.attr} is called on a plain value", code="region-type")
        if func.attr not in vocabulary.METHODS:
            hint = nearest(func.attr, vocabulary.METHODS)
            raise error(func, f".{func.attr} is not known", hint=hint, code="region-unknown-name")
        args = tuple(self.value(a) for a in node.args)
        if func.attr in vocabulary.PLAIN_METHODS:
            return self.number(node, getattr(value.meta["val"], func.attr), args, kwargs)
        if "device" in kwargs:
            kwargs["device"] = torch.device(self.device)
        return self.emit(node, func.attr, (value, *args), kwargs)

    def number(
        self, node: ast.AST, method: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        """What a method of a tensor says about its shape."""
        if has_tensor(args) or has_tensor(tuple(kwargs.values())):
            raise error(node, "this takes numbers", code="region-type")
        try:
            result = method(*args, **kwargs)
        except (TypeError, ValueError, IndexError, RuntimeError) as fault:
            raise error(node, one_line(fault), code="region-type") from None
        return tuple(result) if isinstance(result, tuple) else result

    def emit(self, node: ast.AST, target: Target, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        return self.recorder.emit(node, self.line, target, args, kwargs)

    def call(
        self, node: ast.AST, target: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        """A plain value where nothing in the arguments is a tensor, else a node."""
        is_factory = getattr(target, "__name__", "") in vocabulary.FACTORIES
        if is_factory or has_tensor(args) or has_tensor(tuple(kwargs.values())):
            return self.emit(node, target, args, kwargs)
        if target not in scalar_values.OPERATORS:
            raise error(node, f"{label_of(target)} needs a tensor", code="region-type")
        return scalar_values.apply(node, target, args)


def _path(node: ast.Attribute) -> list[str] | None:
    """["torch", "nn", "f"] for a chain of plain names, None where something else is inside."""
    parts = [node.attr]
    current: ast.expr = node.value
    while isinstance(current, ast.Attribute):
        parts.append(current.attr)
        current = current.value
    if not isinstance(current, ast.Name):
        return None
    return [current.id, *reversed(parts)]
