"""A region's text as Python functions: as it stands, and in float64. Nothing is run here: text becomes text."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from profiler.region.language import scalar_values, trees, vocabulary
from profiler.region.language.program import shape_of
from profiler.region.language.text import to_text
from profiler.region.model import Input, Region

NARROWING = frozenset({"float", "half", "bfloat16"})
"""Methods that round to a type; in float64 nothing is rounded."""
FLOATS = frozenset(n for n, d in vocabulary.DTYPES.items() if d.is_floating_point)


def function(region: Region, name: str, exact: bool = False) -> str:
    """The region as `def name(inputs): ...`. exact: every floating type it names is float64."""
    tree = trees.module(to_text(region))
    writer = _Writer(region, exact)
    body = [writer.statement(node) for node in tree.body if not isinstance(node, ast.AnnAssign)]
    text = ast.unparse(ast.Module(body=body, type_ignores=[]))
    lines = [f"def {name}({', '.join(i.name for i in region.inputs)}):"]
    if exact:
        lines.append('    """The same without any rounding: every floating type is float64."""')
    else:
        lines += ['    """What is to be computed.', "", *(f"    {t}" for t in _declared(region)), '    """']
    lines += [f"    {line}" for line in (*_symbols(region, writer), *text.splitlines())]
    return "\n".join(lines)


def _declared(region: Region) -> list[str]:
    """The lines that declare sizes and inputs."""
    return to_text(region).splitlines()[: len(region.symbols) + len(region.inputs)]


def _symbols(region: Region, writer: _Writer) -> list[str]:
    """Sizes that the statements name, read from the inputs' shapes."""
    names = []
    for symbol in region.symbols:
        place = next(((i.name, i.shape.index(symbol.name)) for i in region.inputs if symbol.name in i.shape), None)
        if symbol.name in writer.read and place is not None:
            names.append(f"{symbol.name} = {place[0]}.shape[{place[1]}]")
        elif symbol.name in writer.read:
            raise ValueError(f"{symbol.name} stands in no input's shape")
    return names


class _Writer(ast.NodeTransformer):
    """Bare names get their module; a list of what holds a tensor tells torch's max from Python's."""

    def __init__(self, region: Region, exact: bool) -> None:
        self.exact = exact
        self.first = region.inputs[0].name
        self.tensors = {i.name for i in region.inputs}
        self.local = self.tensors | {s.name for s in region.symbols}
        self.read: set[str] = set()

    def statement(self, node: ast.stmt) -> ast.stmt:
        if isinstance(node, ast.For):
            assert isinstance(node.target, ast.Name)
            self.local.add(node.target.id)
            iterated = self.visit(node.iter)
            # Twice: what the end of the body makes a tensor is one at its beginning in the second round.
            before = [trees.module(ast.unparse(s)).body[0] for s in node.body]
            for part in before:
                self.statement(part)
            return ast.copy_location(ast.For(node.target, iterated, [self.statement(s) for s in node.body], []), node)
        if isinstance(node, ast.AugAssign):  # on a tensor Python would write into it, and the language does not
            assert isinstance(node.target, ast.Name)
            value = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
            node = ast.copy_location(ast.Assign([node.target], value), node)
            ast.fix_missing_locations(node)
        if isinstance(node, ast.Assign):
            held = self.holds(node.value)
            value = self.visit(node.value)
            for target in ast.walk(node.targets[0]):
                if isinstance(target, ast.Name):
                    self.local.add(target.id)
                    (self.tensors.add if held else self.tensors.discard)(target.id)
            return ast.copy_location(ast.Assign(node.targets, value), node)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Attribute) and called.attr == "append" and isinstance(called.value, ast.Name):
                self.tensors.add(called.value.id)
        made: ast.stmt = self.generic_visit(node)  # type: ignore[assignment]
        return made

    def holds(self, node: ast.expr) -> bool:
        """Whether a value is a tensor or has one inside."""
        if isinstance(node, ast.Attribute):
            return node.attr not in ("shape", "dtype", "ndim", "device") and self.holds(node.value)
        if isinstance(node, ast.Name):
            return node.id in self.tensors
        if isinstance(node, ast.Call):
            parts = [*node.args, *(k.value for k in node.keywords)]
            if isinstance(node.func, ast.Attribute):
                path = _path(node.func)
                if path is None or path[0] in self.local:
                    return node.func.attr not in vocabulary.PLAIN_METHODS and self.holds(node.func.value)
                return path[0] != "math"
            assert isinstance(node.func, ast.Name)
            return node.func.id not in scalar_values.BUILTINS or any(self.holds(p) for p in parts)
        return any(self.holds(c) for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.local:
            self.read.add(node.id)
            return node
        if node.id in vocabulary.DTYPES:
            wide = self.exact and node.id in FLOATS
            return _dotted("torch.float64" if wide else str(vocabulary.DTYPES[node.id]))
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        path = _path(node)
        if path is None or path[0] in self.local:
            made: ast.expr = self.generic_visit(node)  # type: ignore[assignment]
            return made
        dtype = vocabulary.dtype(".".join(path[:-1]), path[-1])
        if self.exact and dtype is not None and dtype.is_floating_point:
            return _dotted("torch.float64")
        module = ".".join(path[:-1])
        return _dotted(f"{_SPELT.get(vocabulary.MODULES.get(module, module), module)}.{path[-1]}")

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        held = any(self.holds(a) for a in (*node.args, *(k.value for k in node.keywords)))
        path = _path(node.func) if isinstance(node.func, ast.Attribute) else None
        if path in (["torch", "finfo"], ["torch", "iinfo"]):
            self.exact, before = False, self.exact  # the limit is that of the type in the text
            given = [self.visit(a) for a in node.args]
            self.exact = before
            return ast.Call(_dotted(".".join(path)), given, [])
        args = [self.visit(a) for a in node.args]
        keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        if name and (name not in scalar_values.BUILTINS or held):
            called: ast.expr = _dotted(_torch_name(name))
        elif isinstance(node.func, ast.Attribute):
            method = path is None or path[0] in self.local
            if method and self.exact and node.func.attr in NARROWING:
                called = ast.Attribute(self.visit(node.func.value), "double", ast.Load())
            else:
                called = self.visit(node.func)
            name = "" if method else node.func.attr
        else:
            called = node.func
        if name in vocabulary.FACTORIES and not (path and path[0] == "aten"):
            device = ast.Attribute(ast.Name(self.first, ast.Load()), "device", ast.Load())
            keywords = [k for k in keywords if k.arg != "device"] + [ast.keyword("device", device)]
        return ast.Call(called, args, keywords)


_SPELT: Mapping[str, str] = {"aten": "torch.ops.aten", "F": "F"}


def _torch_name(name: str) -> str:
    """`F.gelu`, `torch.exp` or plainly `range` for a bare name, as the language looks it up."""
    if name in vocabulary.FUNCTIONAL and vocabulary.function("F", name) is not None:
        return f"F.{name}"
    return f"torch.{name}" if name in vocabulary.TORCH else name


def _dotted(path: str) -> ast.expr:
    return trees.expression(path)


def _path(node: ast.expr) -> list[str] | None:
    """["torch", "exp"] for a chain of plain names."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return [node.id, *parts] if isinstance(node, ast.Name) else None


def inputs(region: Region, binding: Mapping[str, int], scales: Mapping[str, float], bound: int) -> list[str]:
    """The inputs at one binding, each as `Input(...)`. scales: of those that are weights. bound: of indices of
    which the text gives no range."""
    return [_input(i, binding, scales.get(i.name, 1.0), bound) for i in region.inputs]


def _input(item: Input, binding: Mapping[str, int], scale: float, bound: int) -> str:
    dtype = vocabulary.DTYPES[item.dtype]
    parts = [f'"{item.name}"', str(dtype), repr(shape_of(item, binding))]
    if item.strides is not None:
        parts.append(f"strides={tuple(item.strides)}")
    if item.channels_last:
        parts.append("channels_last=True")
    if item.offsets is not None:
        parts.append(f"offsets={item.offsets}")
    elif item.ones is not None:
        parts.append(f"ones={item.ones}")
    elif item.dtype == "bool":
        parts.append("ones=0.5")
    elif item.dtype not in FLOATS:
        parts.append(f"below={item.below if item.below is not None else min(100, bound)}")
    if item.requires_grad:
        parts.append("requires_grad=True")
    if scale != 1.0:
        parts.append(f"scale={scale:.6g}")
    return f"Input({', '.join(parts)})"
