"""How much code a kernel is: what somebody who takes one home has to keep, without its test and its benchmark.

A kernel with a file of its own brings along what it calls: the others that its tuner chooses among, and the tuner.
Counting takes up to 0.2 s a kernel, and advice is given in less: `python -m tools.records.own_lines` keeps what it
counts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from kernels.starter_kit.bundle import bundle
from profiler.region.language import trees

_LAUNCHER = re.compile(r"from (kernels\.\w+) import (\w+(?:, \w+)*)\n")
_ENTRY = "kernels.your_region"


def code_lines(text: str) -> int:
    """Lines with code: neither empty, nor a comment, nor in a docstring. Raises SyntaxError for what is no Python."""
    told = set(_docstrings(_statements(trees.module(text))))
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in told
        for number, line in enumerate(text.splitlines(), 1)
    )


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """The tree and what has statements in it: most nodes are expressions, which nobody defines anything in."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inside = getattr(node, field, ())
            pending += inside if isinstance(inside, list) else ()


def _docstrings(nodes: Iterable[ast.AST]) -> Iterable[int]:
    for node in nodes:
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node, clean=False):
            first = node.body[0]
            yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


def counted(call: str) -> int:
    """Code lines of the launcher that a candidate's `call` imports and of all that it needs; ValueError without one."""
    from kernels.starter_kit.entry import INSTEAD

    launcher = _LAUNCHER.match(call)
    if launcher is None:
        raise ValueError(f"imports no launcher: {call[:80]!r}")
    module, names = launcher.groups()
    return code_lines(bundle(_ENTRY, {_ENTRY: f"from {module} import {names}\n\nUSED = ({names},)\n"}, INSTEAD))
