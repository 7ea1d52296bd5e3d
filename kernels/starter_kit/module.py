"""One of our modules as the statements that it is made of, each with its text and the comments above it."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernels.starter_kit.names import Found, Import, bound_by, imports, references
from profiler.region.language import trees

PACKAGES = frozenset({"kernels", "profiler", "app"})


class BundleError(Exception):
    """Some kernel cannot be put into one file; the message says why."""


@dataclass(frozen=True, slots=True)
class Item:
    """One statement. first, last: its lines, comments above and the docstring below included, counted from 0."""

    first: int
    last: int
    names: frozenset[str]
    found: Found


@dataclass(frozen=True)
class Module:
    """A module by name. bound: global name -> the items that bind it. imported: global name -> what it is."""

    name: str
    lines: tuple[bytes, ...]
    doc: str
    items: tuple[Item, ...]
    imported: Mapping[str, Import]

    def binding(self, name: str) -> tuple[Item, ...]:
        return tuple(i for i in self.items if name in i.names)


@cache
def module_of(name: str) -> Module | None:
    """One of our modules, read from its file; None where there is none of this name."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    if spec is None or spec.origin is None:
        return None
    return read(name, Path(spec.origin).read_text(encoding="utf-8"))


def read(name: str, text: str) -> Module:
    """A module of this text."""
    tree = trees.module(text)
    lines = tuple(text.encode().split(b"\n"))
    items: list[Item] = []
    imported: dict[str, Import] = {}
    body = tree.body
    end = 0
    for i, node in enumerate(body):
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))]) - 1
        last = (node.end_lineno or node.lineno) - 1
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imported |= imports(node)
        elif not _is_text(node):
            while first > end and lines[first - 1].startswith(b"#"):
                first -= 1
            if i + 1 < len(body) and _is_text(body[i + 1]) and bound_by(node):
                last = (body[i + 1].end_lineno or 0) - 1
            items.append(Item(first, last, frozenset(bound_by(node)), references(node, PACKAGES)))
        end = last + 1
    return Module(name, lines, ast.get_docstring(tree) or "", tuple(items), imported)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
