"""Names in the profiler say what a value is: words of an old dialect do not come back."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

OLD = frozenset({"beside", "foreseen", "foretold", "found", "twin"})
FILES = sorted((ROOT / "profiler").rglob("*.py"))


def names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """What a module assigns, takes as a parameter, sets as an attribute or defines, with the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node.lineno


def test_each_way_to_give_a_name_is_seen() -> None:
    text = "a = 1\nself.b = 1\ndef c(d):\n    for e in d:\n        with e as f:\n            g: int = 1\nclass h: ...\n"
    assert {name for name, _ in names(ast.parse(text))} == set("abcdefgh")


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT / "profiler")))
def test_no_value_is_called_by_a_word_that_does_not_say_what_it_is(file: Path) -> None:
    given = [(name.strip("_"), line) for name, line in names(ast.parse(file.read_text(encoding="utf-8")))]
    assert [(name, line) for name, line in given if name in OLD] == []
