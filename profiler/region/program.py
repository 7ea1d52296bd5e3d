"""Region -> the program a user would run: a torch.fx graph over real torch functions, checked on FakeTensors.

The text is interpreted, never executed: each whitelisted name is looked up, called on FakeTensors (no memory, no
device), and recorded as a node. Fake mode accepts some calls that CUDA refuses; `_refuse` makes those checks.
"""

from __future__ import annotations

import ast
import logging
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from profiler.region import syntax, vocabulary
from profiler.region.checks import label_of, refuse, tensors_in
from profiler.region.model import Input, Region, RegionError
from profiler.region.syntax import error, nearest

MAX_OPERATIONS = 1_500
MAX_ELEMENTS = 2**42
MAX_NUMBER = 2**63

BINARY: Mapping[type[ast.operator], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}  # fmt: skip
UNARY: Mapping[type[ast.unaryop], Callable[..., Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert, ast.Not: operator.not_,
}  # fmt: skip
COMPARE: Mapping[type[ast.cmpop], Callable[..., Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Program:
    """module(*inputs) -> tuple of outputs, on any device. inputs are fakes with the shapes of one binding."""

    region: Region
    module: torch.fx.GraphModule
    inputs: tuple[FakeTensor, ...]
    outputs: tuple[FakeTensor, ...]
    mode: FakeTensorMode


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's 40-line traceback per refused call, and without a CUDA context for a fake tensor.

    Up to torch 2.11 the first fake CUDA tensor makes a real one (init_gpu_context); a web process must not.
    """
    log = logging.getLogger("torch._subclasses.fake_tensor")
    level = log.level
    log.setLevel(logging.CRITICAL)
    original = getattr(fake_tensor, "init_gpu_context", None)
    if original is not None:
        setattr(fake_tensor, "init_gpu_context", lambda *_: None)  # noqa: B010 (its type forbids plain assignment)
    try:
        yield
    finally:
        log.setLevel(level)
        if original is not None:
            setattr(fake_tensor, "init_gpu_context", original)  # noqa: B010


def program(region: Region, binding: Mapping[str, int] | None = None, device: str = "cpu") -> Program:
    """Build and check the region at one binding of its symbols (default: the first).

    Raises RegionError, with the place in `region.source`, for unknown names and shapes that do not fit.
    """
    sizes = dict(region.bindings[0] if binding is None else binding)
    if not region.nodes:
        from profiler.region.text import parse, to_text

        region = parse(to_text(region), region.name)
    try:
        with _quiet():
            return _Builder(region, sizes, device).build()
    except RegionError as fault:
        fault.text = fault.text or region.source
        raise


def shape_of(item: Input, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The input's shape with its symbols replaced."""
    return tuple(sizes[s] if isinstance(s, str) else s for s in item.shape)


def empty_input(item: Input, sizes: Mapping[str, int], device: str) -> torch.Tensor:
    """An uninitialised tensor of the input's shape, dtype and layout."""
    shape, dtype = shape_of(item, sizes), vocabulary.DTYPES[item.dtype]
    if item.strides is not None:
        return torch.empty_strided(shape, item.strides, dtype=dtype, device=device)
    if item.channels_last:
        return torch.empty(shape, dtype=dtype, device=device, memory_format=torch.channels_last)
    return torch.empty(shape, dtype=dtype, device=device)


class _Builder:
    """Walks the statements once; values are fx nodes, numbers, strings, dtypes, slices, or tuples and lists of them."""

    def __init__(self, region: Region, sizes: Mapping[str, int], device: str) -> None:
        self.region = region
        self.device = device
        self.sizes = sizes
        self.mode = FakeTensorMode()
        self.graph = torch.fx.Graph()
        self.names: dict[str, Any] = dict(sizes)
        self.operations = 0
        self.line = 0

    def build(self) -> Program:
        fakes: list[Any] = []
        for item in self.region.inputs:
            with self.mode:
                fake = empty_input(item, self.sizes, self.device)
            node = self.graph.placeholder(item.name)
            node.meta["val"] = fake
            fakes.append(fake)
            self.names[item.name] = node
        for statement in self.region.nodes:
            self.statement(statement)
        results = []
        for expression in self.region.returned:
            self.line = expression.lineno
            value = self.value(expression)
            if not isinstance(value, torch.fx.Node):
                raise error(expression, "a region returns tensors", code="region-type")
            results.append(value)
        self.graph.output(tuple(results))
        module = torch.fx.GraphModule(torch.nn.Module(), self.graph)
        return Program(self.region, module, tuple(fakes), tuple(n.meta["val"] for n in results), self.mode)

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

    def assign(self, target: ast.expr, value: Any) -> None:
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
        bounds = [self.value(a) for a in node.iter.args]
        if not all(isinstance(b, int) and not isinstance(b, bool) for b in bounds):
            raise error(node.iter, "range takes whole numbers", code="region-type")
        try:
            values = range(*bounds)
        except ValueError as fault:
            raise error(node.iter, str(fault), code="region-type") from None
        if len(values) * len(node.body) > MAX_OPERATIONS:
            raise error(node.iter, f"the loop unrolls to more than {MAX_OPERATIONS} operations", code="region-too-long")
        for value in values:
            self.names[node.target.id] = value
            for statement in node.body:
                self.statement(statement)

    def append(self, node: ast.expr) -> None:
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        target = self.value(node.func.value)
        if not isinstance(target, list) or len(node.args) != 1 or node.keywords:
            raise error(node, "only a list has append, with one value", code="region-type")
        target.append(self.value(node.args[0]))

    def lookup(self, node: ast.Name) -> Any:
        if node.id in self.names:
            return self.names[node.id]
        found = vocabulary.dtype("", node.id)
        if found is not None:
            return found
        hint = nearest(node.id, [*self.names, *vocabulary.known("")])
        names = ", ".join(list(self.names)[:12])
        raise error(node, f"{node.id} is not known here", hint=hint or f"known: {names}", code="region-unknown-name")

    def value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.lookup(node)
        if isinstance(node, ast.Tuple):
            return tuple(self.value(e) for e in node.elts)
        if isinstance(node, ast.List):
            return [self.value(e) for e in node.elts]
        if isinstance(node, ast.BinOp):
            return self.binary(node, node.op, self.value(node.left), self.value(node.right))
        if isinstance(node, ast.UnaryOp):
            return self.call(node, UNARY[type(node.op)], (self.value(node.operand),), {})
        if isinstance(node, ast.Compare):
            pair = (self.value(node.left), self.value(node.comparators[0]))
            return self.call(node, COMPARE[type(node.ops[0])], pair, {})
        if isinstance(node, ast.Subscript):
            return self.call(node, operator.getitem, (self.value(node.value), self.index(node.slice)), {})
        if isinstance(node, ast.Attribute):
            return self.attribute(node)
        if isinstance(node, ast.Call):
            return self.function_call(node)
        raise error(node, f"{type(node).__name__} is not part of the language")

    def index(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Slice):
            parts = (node.lower, node.upper, node.step)
            return slice(*(None if p is None else self.value(p) for p in parts))
        if isinstance(node, ast.Tuple):
            return tuple(self.index(e) for e in node.elts)
        return self.value(node)

    def binary(self, node: ast.AST, op: ast.operator, left: Any, right: Any) -> Any:
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if numbers and isinstance(op, ast.Pow | ast.LShift) and (abs(left) > 2**32 or abs(right) > 64):
            raise error(node, "the number grows too large", code="region-too-large")
        return self.call(node, BINARY[type(op)], (left, right), {})

    def attribute(self, node: ast.Attribute) -> Any:
        path = _path(node)
        if path is not None and path[0] not in self.names:
            found = vocabulary.dtype(".".join(path[:-1]), path[-1])
            if found is not None:
                return found
            known = vocabulary.known(".".join(path[:-1]))
            raise error(
                node, f"{'.'.join(path)} is not known", hint=nearest(path[-1], known), code="region-unknown-name"
            )
        value = self.value(node.value)
        fake = value.meta["val"] if isinstance(value, torch.fx.Node) else None
        if fake is None or node.attr not in vocabulary.PROPERTIES:
            hint = nearest(node.attr, vocabulary.PROPERTIES | vocabulary.METHODS)
            raise error(node, f".{node.attr} is not known", hint=hint, code="region-unknown-name")
        if node.attr in ("T", "mT"):
            if fake.dim() < 2:
                raise error(node, f".{node.attr} needs two dimensions, not {fake.dim()}", code="region-shape")
            return self.emit(node, "transpose", (value, -2, -1), {})
        return tuple(fake.shape) if node.attr == "shape" else getattr(fake, node.attr)

    def function_call(self, node: ast.Call) -> Any:
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
        if module == "" and name == "float" and args in (("inf",), ("-inf",), ("nan",)):
            return float(args[0])
        if name in vocabulary.BUILTINS and module == "" and not any(_has_tensor(a) for a in args):
            return self.number(node, vocabulary.BUILTINS[name], args, kwargs)
        target = vocabulary.function(module, name)
        if target is None:
            full = f"{module}.{name}" if module else name
            hint = nearest(name, vocabulary.known(module))
            raise error(node.func, f"{full} is not known", hint=hint, code="region-unknown-name")
        if "device" in kwargs or (name in vocabulary.FACTORIES and module != "aten"):
            kwargs["device"] = torch.device(self.device)
        return self.call(node, target, args, kwargs)

    def method_call(self, node: ast.Call, func: ast.Attribute, kwargs: dict[str, Any]) -> Any:
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

    def number(self, node: ast.AST, target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            result = target(*args, **kwargs)
        except (TypeError, ValueError, IndexError, ZeroDivisionError, OverflowError) as fault:
            raise error(node, str(fault)[:200], code="region-type") from None
        if isinstance(result, torch.Size):
            return tuple(result)
        if isinstance(result, int) and abs(result) > MAX_NUMBER:
            raise error(node, "the number does not fit 64 bits", code="region-too-large")
        return result

    def call(self, node: ast.AST, target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A plain value where nothing in the arguments is a tensor, else a node."""
        made = getattr(target, "__name__", "") in vocabulary.FACTORIES
        if made or any(_has_tensor(a) for a in args) or any(_has_tensor(a) for a in kwargs.values()):
            return self.emit(node, target, args, kwargs)
        return self.number(node, target, args, kwargs)

    def emit(self, node: ast.AST, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.operations += 1
        if self.operations > MAX_OPERATIONS:
            raise error(node, f"more than {MAX_OPERATIONS} operations", code="region-too-long")
        fakes: Any = torch.fx.node.map_aggregate((args, kwargs), _fake)
        refuse(node, target, fakes[0], fakes[1])
        try:
            with self.mode, torch.no_grad():
                function = getattr(fakes[0][0], target) if isinstance(target, str) else target
                rest = fakes[0][1:] if isinstance(target, str) else fakes[0]
                result = function(*rest, **fakes[1])
        except Exception as fault:  # torch raises every kind; all of them mean that the call does not fit
            raise self.misfit(node, fault, fakes[0]) from None
        for tensor in tensors_in(result):
            if tensor.numel() > MAX_ELEMENTS:
                raise error(node, f"the result has {tensor.numel():.3g} elements", code="region-too-large")
        kind = "call_method" if isinstance(target, str) else "call_function"
        made = self.graph.create_node(kind, target, args, kwargs)
        made.meta["val"] = result
        made.meta["custom"] = {"line": self.line, "label": label_of(target)}
        if isinstance(result, tuple | list):
            return tuple(self.part(made, i, part) for i, part in enumerate(result))
        if not isinstance(result, torch.Tensor):
            raise error(node, "this gives no tensor", code="region-type")
        return made

    def part(self, made: torch.fx.Node, i: int, value: Any) -> torch.fx.Node:
        node = self.graph.call_function(operator.getitem, (made, i))
        node.meta["val"] = value
        node.meta["custom"] = made.meta["custom"]
        return node

    def misfit(self, node: ast.AST, fault: Exception, args: Any) -> RegionError:
        message = re.sub(
            r"\s+", " ", str(fault).strip().splitlines()[0] if str(fault).strip() else type(fault).__name__
        )
        message = re.sub(r"got (FakeTensor|meta tensor)", "got", message)[:240]
        shapes = [f"{vocabulary.DTYPE_NAMES.get(t.dtype, t.dtype)}{list(t.shape)}" for t in tensors_in(args)]
        return error(node, message, hint="operands: " + ", ".join(shapes) if shapes else "", code="region-shape")


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


def _fake(value: Any) -> Any:
    return value.meta["val"] if isinstance(value, torch.fx.Node) else value


def _has_tensor(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(_has_tensor(v) for v in value)
    if isinstance(value, slice):
        return any(_has_tensor(v) for v in (value.start, value.stop, value.step))
    return isinstance(value, torch.fx.Node)
