"""Which Python the region language is: a whitelist over `ast`. Nothing here is ever evaluated. Torch-free."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Iterator

from profiler.region.model import RegionError

MAX_CHARS = 16_000
MAX_LINES = 600
MAX_DEPTH = 60  # nesting of one expression; a person's code stays far below
MAX_NODES = 12_000

BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
UNARY = (ast.USub, ast.UAdd, ast.Invert, ast.Not)
COMPARE = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
EXPRESSIONS = (
    ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Attribute, ast.Subscript, ast.Slice, ast.Name, ast.Constant,
    ast.Tuple, ast.List, ast.keyword, ast.Starred,
)  # fmt: skip
CONTEXT = (ast.Load, ast.Store, ast.operator, ast.unaryop, ast.cmpop)

SUGGESTIONS: dict[type[ast.AST], str] = {
    ast.Lambda: "write the operation out as a statement",
    ast.ListComp: "use `for i in range(n):` with a list and `.append`",
    ast.GeneratorExp: "use `for i in range(n):` with a list and `.append`",
    ast.While: "only `for i in range(n):` with a number is unrolled",
    ast.If: "data-dependent control flow is not part of a region; `where(condition, a, b)` is",
    ast.IfExp: "use `where(condition, a, b)`",
    ast.Import: "torch, F and aten are always there",
    ast.ImportFrom: "torch, F and aten are always there",
    ast.FunctionDef: "write the inputs as `x: bf16[8192, 4096]` and the body below them",
    ast.BoolOp: "use `&` and `|` on tensors",
    ast.NamedExpr: "write the assignment on its own line",
    ast.JoinedStr: "strings are only for options such as approximate='tanh'",
}


def error(node: ast.AST, message: str, *, hint: str = "", code: str = "region-syntax") -> RegionError:
    """A RegionError at an ast node's position; the text is filled in by `text.parse`."""
    column = getattr(node, "col_offset", 0)
    end = getattr(node, "end_col_offset", None)
    if getattr(node, "end_lineno", None) != getattr(node, "lineno", None):
        end = None
    return RegionError(
        message,
        code=code,
        line=getattr(node, "lineno", 1),
        column=column + 1,
        end_column=None if end is None else end + 1,
        hint=hint,
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """A "did you mean" hint, or ""."""
    found = difflib.get_close_matches(name, sorted(known), n=5, cutoff=0.7)
    found.sort(key=lambda k: sorted(k) != sorted(name))  # swapped letters first: gleu is gelu rather than glu
    return f"did you mean {found[0]}?" if found else ""


def read(text: str) -> ast.Module:
    """The text as a module whose every node is in the language. Raises RegionError, within bounded work."""
    if len(text) > MAX_CHARS:
        raise RegionError(f"the text has {len(text)} characters; at most {MAX_CHARS} are read", code="region-too-long")
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise RegionError("the text holds a null byte", code="region-syntax", line=line)
    if text.count("\n") >= MAX_LINES:
        raise RegionError(f"the text has more than {MAX_LINES} lines", code="region-too-long")
    try:
        module = ast.parse(text)
    except SyntaxError as fault:
        raise RegionError(
            f"this is not Python: {fault.msg}",
            code="region-syntax",
            line=fault.lineno or 1,
            column=max(1, fault.offset or 1),
            end_column=fault.end_offset if fault.end_lineno == fault.lineno else None,
        ) from None
    except (RecursionError, MemoryError, ValueError):
        lines = text.splitlines()  # Python does not say where; nesting beyond its stack needs a long line
        longest = max(range(len(lines)), key=lambda i: len(lines[i]))
        raise RegionError(
            "the expression is nested too deeply to read", code="region-too-deep", line=longest + 1
        ) from None
    _bounded(module)
    return module


def _bounded(module: ast.Module) -> None:
    """Depth and size, without recursion: a text nested to exhaustion must not exhaust us."""
    stack: list[tuple[ast.AST, int]] = [(module, 0)]
    seen = 0
    while stack:
        node, depth = stack.pop()
        seen += 1
        if depth > MAX_DEPTH or seen > MAX_NODES:
            where = node if hasattr(node, "lineno") else module
            raise error(where, "the expression is nested too deeply or too long", code="region-too-deep")
        stack.extend((child, depth + 1) for child in ast.iter_child_nodes(node))


def check_expression(expression: ast.expr) -> None:
    """Every node of an expression is in the language."""
    for node in ast.walk(expression):
        if isinstance(node, CONTEXT):
            continue
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not _is_operation(node):
            raise error(node, f"the name {node.attr} is private", code="region-unknown-name")
        if isinstance(node, ast.Name) and node.id.startswith("__"):
            raise error(node, f"the name {node.id} is private", code="region-unknown-name")
        if isinstance(node, ast.Constant) and not isinstance(node.value, int | float | bool | str | type(None)):
            if node.value is not Ellipsis:
                raise error(node, f"{type(node.value).__name__} constants are not part of the language")
        elif isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) >= 2**63:
            raise error(node, "the number does not fit 64 bits")
        if isinstance(node, ast.BinOp) and type(node.op) not in BINARY:
            raise error(node, "this operator is not part of the language")
        if isinstance(node, ast.UnaryOp) and not isinstance(node.op, UNARY):
            raise error(node, "this operator is not part of the language")
        if isinstance(node, ast.Compare) and (len(node.ops) > 1 or not isinstance(node.ops[0], COMPARE)):
            raise error(node, "only one comparison of two values at a time", hint="use `&` between two comparisons")
        if not isinstance(node, EXPRESSIONS):
            raise error(node, f"{_kind(node)} is not part of the language", hint=_hint(node))


def _is_operation(node: ast.Attribute) -> bool:
    """aten._softmax, torch._int_mm and the like have no public spelling; `vocabulary` says which exist."""
    return isinstance(node.value, ast.Name) and node.value.id in ("aten", "torch") and not node.attr.startswith("__")


def _kind(node: ast.AST) -> str:
    return {"ListComp": "a comprehension", "Lambda": "a lambda"}.get(type(node).__name__, type(node).__name__)


def _hint(node: ast.AST) -> str:
    return next((hint for kind, hint in SUGGESTIONS.items() if isinstance(node, kind)), "")


def check_statement(node: ast.stmt, *, inside_loop: bool = False) -> None:
    """Assignments, augmented assignments, `for i in range(n)`, `list.append(value)`; `return` is the caller's."""
    if isinstance(node, ast.Assign):
        if len(node.targets) != 1:
            raise error(node, "assign to one target at a time")
        _check_target(node.targets[0])
        check_expression(node.value)
    elif isinstance(node, ast.AugAssign):
        if not isinstance(node.target, ast.Name):
            raise error(node.target, "augmented assignment needs a plain name")
        if type(node.op) not in BINARY:
            raise error(node, "this operator is not part of the language")
        check_expression(node.value)
    elif isinstance(node, ast.For):
        _check_loop(node)
        for statement in node.body:
            check_statement(statement, inside_loop=True)
    elif isinstance(node, ast.Expr) and is_append(node.value):
        check_expression(node.value)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        check_expression(node.value)  # an in-place method: x.add_(y)
    else:
        where = " inside a loop" if inside_loop else ""
        raise error(node, f"{_statement_name(node)} is not part of the language{where}", hint=_hint(node))


def is_append(node: ast.expr) -> bool:
    """`values.append(x)`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "append"
        and isinstance(node.func.value, ast.Name)
    )


def _check_target(target: ast.expr) -> None:
    names: list[ast.expr] = list(target.elts) if isinstance(target, ast.Tuple) else [target]
    for name in names:
        if not isinstance(name, ast.Name):
            raise error(name, "assign to a plain name", hint="`x[...] = y` is `x = where(...)` or `x.index_put(...)`")
        if name.id in ("torch", "F", "aten") or name.id.startswith("__"):
            raise error(name, f"{name.id} cannot be assigned", code="region-unknown-name")


def _check_loop(node: ast.For) -> None:
    call = node.iter
    ranged = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"
    if not isinstance(node.target, ast.Name) or node.orelse or not ranged:
        raise error(node, "only `for i in range(n):` is unrolled")
    assert isinstance(call, ast.Call)
    if call.keywords or not 1 <= len(call.args) <= 3:
        raise error(call, "range takes one to three numbers")
    check_expression(call)


def _statement_name(node: ast.stmt) -> str:
    names = {"Import": "import", "ImportFrom": "import", "FunctionDef": "def", "ClassDef": "class", "While": "while",
             "If": "if", "With": "with", "Try": "try", "Delete": "del", "Expr": "an expression on its own"}  # fmt: skip
    return names.get(type(node).__name__, type(node).__name__.lower())


def names_read(node: ast.AST) -> Iterator[ast.Name]:
    """Names that an expression or statement loads."""
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
            yield child
