"""Which global names each statement of a module reads, and where they stand in its text.

Python's own rules of scope: a parameter that is called like an imported function is not that function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kernels.former_names import present_name

Position = tuple[int, int, int, int]
"""Line (from 1) and byte of the beginning and of the end, as ast counts them."""


@dataclass(frozen=True, slots=True)
class Import:
    """What an import binds: a module, or one name of it. name: None for the module itself. level 0: absolute."""

    module: str
    name: str | None = None

    def own(self, packages: frozenset[str]) -> bool:
        return self.module.partition(".")[0] in packages


@dataclass(frozen=True, slots=True)
class Reference:
    """A use of a global name. path: `("norms", "space")` for `norms.space`, else the name alone.

    imported: what a function-level import says that it is. hidden: local names around it, which a new name for it must
    not be.
    """

    path: tuple[str, ...]
    position: Position
    hidden: frozenset[str]
    imported: Import | None = None


@dataclass(slots=True)
class Found:
    """References of one statement, and function-level imports of our own modules, which are to go."""

    references: list[Reference] = field(default_factory=list)
    removed: list[ast.stmt] = field(default_factory=list)


def imports(node: ast.Import | ast.ImportFrom) -> dict[str, Import]:
    """Bound name -> what it is, by the present name of its module. `import a.b` binds a."""
    if isinstance(node, ast.Import):
        return {a.asname or a.name.partition(".")[0]: Import(present_name(a.name)) for a in node.names}
    return {a.asname or a.name: Import(present_name(node.module or ""), a.name) for a in node.names}


def bound_by(node: ast.stmt) -> set[str]:
    """Names that a statement binds at its own level, imports left out."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    return {n.id for n in _level(node) if isinstance(n, ast.Name) and isinstance(n.ctx, (ast.Store, ast.Del))}


def _level(node: ast.AST) -> Iterable[ast.AST]:
    """The node and what is below it, without the insides of functions, classes, lambdas and comprehensions."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (*_SCOPES, *_COMPREHENSIONS)):
            yield from _level(child)
        elif isinstance(child, _COMPREHENSIONS):
            yield from (n for n in ast.walk(child) if isinstance(n, ast.NamedExpr))


_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def _arguments(node: _Function) -> list[ast.arg]:
    a = node.args
    return [*a.posonlyargs, *a.args, *a.kwonlyargs, *([a.vararg] if a.vararg else []), *([a.kwarg] if a.kwarg else [])]


@dataclass(frozen=True, slots=True)
class _Scope:
    names: frozenset[str]
    own: Mapping[str, Import]  # names bound by imports of our modules
    is_class: bool = False


class _Visitor(ast.NodeVisitor):
    def __init__(self, packages: frozenset[str]) -> None:
        self.packages = packages
        self.scopes: list[_Scope] = []
        self.found = Found()

    def visit_Name(self, node: ast.Name) -> None:
        self.use((node.id,), node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.value, ast.Name):
            self.use((node.value.id, node.attr), node)
        else:
            self.visit(node.value)

    def use(self, path: tuple[str, ...], node: ast.expr) -> None:
        imported = None
        for scope in reversed(self.scopes):
            if scope.is_class and scope is not self.scopes[-1]:
                continue
            if path[0] in scope.own:
                imported = scope.own[path[0]]
                break
            if path[0] in scope.names:
                return
        hidden = frozenset().union(*(s.names for s in self.scopes if not s.is_class)) if self.scopes else frozenset()
        assert node.end_lineno is not None and node.end_col_offset is not None
        position = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
        self.found.references.append(Reference(path, position, hidden, imported))

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outside: list[ast.expr | None] = [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults,
                                          node.returns, *(a.annotation for a in _arguments(node))]  # fmt: skip
        self.visit_all(n for n in outside if n is not None)
        self.inside(node, node.body)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - ast's name

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit_all(n for n in (*node.args.defaults, *node.args.kw_defaults) if n is not None)
        self.inside(node, [node.body])

    def inside(self, node: _Function, body: Sequence[ast.AST]) -> None:
        names = {a.arg for a in _arguments(node)}
        own: dict[str, Import] = {}
        for statement in body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                names.add(statement.name)
                continue
            for part in _level(statement):
                names |= self.bound(part, own)
        self.scopes.append(_Scope(frozenset(names), own))
        self.visit_all(body)
        self.scopes.pop()

    def bound(self, part: ast.AST, own: dict[str, Import]) -> set[str]:
        if isinstance(part, ast.Name) and isinstance(part.ctx, (ast.Store, ast.Del)):
            return {part.id}
        if isinstance(part, ast.ExceptHandler) and part.name:
            return {part.name}
        if isinstance(part, (ast.Import, ast.ImportFrom)):
            made = imports(part)
            own |= {n: i for n, i in made.items() if i.own(self.packages)}
            if any(i.own(self.packages) for i in made.values()):
                self.found.removed.append(part)
            return {n for n in made if n not in own}
        children = ast.iter_child_nodes(part)
        return {c.name for c in children if isinstance(c, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.visit_all([*node.decorator_list, *node.bases, *(k.value for k in node.keywords)])
        names = frozenset[str]().union(*(bound_by(s) for s in node.body))
        self.scopes.append(_Scope(names, {}, is_class=True))
        self.visit_all(node.body)
        self.scopes.pop()

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        targets = [n for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)]
        self.visit(node.generators[0].iter)  # read outside
        self.scopes.append(_Scope(frozenset(t.id for t in targets), {}))
        for i, generator in enumerate(node.generators):
            self.visit_all(([generator.iter] if i else []) + generator.ifs)
        self.visit_all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])
        self.scopes.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension  # noqa: N815 - ast's names

    def visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)


def references(node: ast.stmt, packages: frozenset[str]) -> Found:
    """What a top-level statement reads. packages: whose imports are followed."""
    visitor = _Visitor(packages)
    visitor.visit(node)
    return visitor.found
