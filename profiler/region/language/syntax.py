"""Which Python the region language is: a whitelist over `ast`. Nothing here is ever evaluated. Torch-free."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable

from profiler.region.language import trees
from profiler.region.language.characters import check_characters, longest_statement, read_lines
from profiler.region.model import RegionError

MAX_DEPTH = 60  # nesting of one expression; a person's code stays far below
DEEP_STATEMENT = 6_000
"""Characters. CPython 3.11's parser raises MemoryError for nesting too. Of 20 shapes tried, the shortest text that
makes it do so is a row of 6,000 signs ("----x"); "x**x**x..." takes 9,000 characters."""
MAX_NODES = 12_000
MAX_NAME = 60

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

MODULES = frozenset({"torch", "F", "aten", "math", "nn"})
"""Names that stand for modules: nothing of a region can be called so."""

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


def nearest(name: str, names: Iterable[str]) -> str:
    """A "did you mean" hint, or ""."""
    if len(name) > MAX_NAME:
        return ""
    matches = difflib.get_close_matches(name, sorted(names), n=5, cutoff=0.7)
    matches.sort(key=lambda k: sorted(k) != sorted(name))  # swapped letters first: gleu is gelu rather than glu
    return f"did you mean {matches[0]}?" if matches else ""


def read(text: str) -> ast.Module:
    """The text as a module whose every node is in the language. Raises RegionError, within bounded work."""
    check_characters(text)
    try:
        module = trees.module(text)
    except SyntaxError as fault:
        raise _unreadable(fault) from None
    except (RecursionError, MemoryError, ValueError) as fault:
        if isinstance(fault, MemoryError) and longest_statement(text) < DEEP_STATEMENT:
            raise  # the process's own memory is at its end: that says nothing of the text
        lines = read_lines(text)  # Python does not say where; nesting beyond its stack needs a long line
        longest = max(range(len(lines)), key=lambda i: len(lines[i]))
        message = "the expression is nested too deeply to read"
        raise RegionError(message, code="region-too-deep", line=longest + 1) from None
    _check_bounds(module)
    return module


def _unreadable(fault: SyntaxError) -> RegionError:
    if fault.msg == "too many nested parentheses":
        return RegionError("too many brackets are open", code="region-too-deep", line=fault.lineno or 1)
    column = max(1, fault.offset or 1)
    same_line = fault.end_lineno == fault.lineno and (fault.end_offset or 0) > column
    return RegionError(
        f"this is not Python: {fault.msg[:200]}",
        code="region-syntax",
        line=max(1, fault.lineno or 1),
        column=column,
        end_column=fault.end_offset if same_line else None,
    )


def _check_bounds(module: ast.Module) -> None:
    """Depth and size, without recursion: a text nested to exhaustion must not exhaust us."""
    stack: list[tuple[ast.AST, int, ast.AST]] = [(module, 0, module)]
    count = 0
    while stack:
        node, depth, place = stack.pop()
        count += 1
        place = node if hasattr(node, "lineno") else place
        if depth > MAX_DEPTH or count > MAX_NODES:
            raise error(place, "the expression is nested too deeply or too long", code="region-too-deep")
        stack.extend((child, depth + 1, place) for child in ast.iter_child_nodes(node))


def check_expression(expression: ast.expr) -> None:
    """Every node of an expression is in the language."""
    for node in ast.walk(expression):
        if isinstance(node, CONTEXT):
            continue
        name = _name_in(node)
        if name is not None and len(name) > MAX_NAME:
            raise error(node, f"a name of {len(name)} characters; at most {MAX_NAME}", code="region-too-long")
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not _is_operation(node):
            raise error(node, f"the name {node.attr} is private", code="region-unknown-name")
        if isinstance(node, ast.Name) and node.id.startswith("__"):
            raise error(node, f"the name {node.id} is private", code="region-unknown-name")
        if isinstance(node, ast.Constant) and not isinstance(node.value, int | float | bool | str | type(None)):
            if node.value is not Ellipsis:
                raise error(node, f"{type(node.value).__name__} constants are not part of the language")
        elif isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) >= 2**63:
            raise error(node, "the number does not fit 64 bits", code="region-too-large")
        if isinstance(node, ast.BinOp) and type(node.op) not in BINARY:
            raise error(node, "this operator is not part of the language")
        if isinstance(node, ast.UnaryOp) and not isinstance(node.op, UNARY):
            raise error(node, "this operator is not part of the language")
        if isinstance(node, ast.Compare) and (len(node.ops) > 1 or not isinstance(node.ops[0], COMPARE)):
            raise error(node, "only one comparison of two values at a time", hint="use `&` between two comparisons")
        if not isinstance(node, EXPRESSIONS):
            raise error(node, f"{_kind(node)} is not part of the language", hint=_hint(node))


def _name_in(node: ast.AST) -> str | None:
    """The identifier that a node itself carries."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else node.arg if isinstance(node, ast.keyword) else None


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
            raise error(node.target, "augmented assignment needs a plain name", hint="x[0].add_(y) adds in place")
        _check_target(node.target)
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
            raise error(name, "assign to a plain name", hint="x[...] = y is written x[...].copy_(y)")
        if name.id in MODULES or name.id.startswith("__") or len(name.id) > MAX_NAME:
            raise error(name, f"{name.id[:MAX_NAME]} cannot be assigned", code="region-unknown-name")


def _check_loop(node: ast.For) -> None:
    call = node.iter
    ranged = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"
    if not isinstance(node.target, ast.Name) or node.orelse or not ranged:
        raise error(node, "only `for i in range(n):` is unrolled")
    _check_target(node.target)
    assert isinstance(call, ast.Call)
    if call.keywords or not 1 <= len(call.args) <= 3:
        raise error(call, "range takes one to three numbers")
    check_expression(call)


def _statement_name(node: ast.stmt) -> str:
    names = {"Import": "import", "ImportFrom": "import", "FunctionDef": "def", "ClassDef": "class", "While": "while",
             "If": "if", "With": "with", "Try": "try", "Delete": "del", "Expr": "an expression on its own"}  # fmt: skip
    return names.get(type(node).__name__, type(node).__name__.lower())
