"""Python's parser, one thread at a time.

CPython 3.11 counts the depth of the tree that it builds once for all threads (gh-106905): a collection in the middle
lets another thread in, and both end with SystemError, "AST constructor recursion depth mismatch". Two of the soak's
29,000 requests did.
"""

from __future__ import annotations

import ast
import threading

_one = threading.RLock()  # what a collection runs in the middle may parse too
TRIES = 5
"""Others parse, torch and the templates, and know nothing of the lock."""


def module(text: str) -> ast.Module:
    """As `ast.parse`, with all that it raises for a text that it does not take."""
    tree = _parse(text, "exec")
    assert isinstance(tree, ast.Module)
    return tree


def expression(text: str) -> ast.expr:
    """The one expression of a text."""
    tree = _parse(text, "eval")
    assert isinstance(tree, ast.Expression)
    return tree.body


def dotted_name(node: ast.expr) -> str:
    """`a.b.c` of a chain of attributes; "" where it hangs on something else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted_name(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def _parse(text: str, mode: str) -> ast.mod:
    for tries_left in range(TRIES - 1, -1, -1):
        try:
            with _one:
                return ast.parse(text, mode=mode)
        except SystemError:
            if not tries_left:
                raise
    raise AssertionError("unreachable")
