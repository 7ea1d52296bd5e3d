"""No region that the benchmark scores is known by name or shape to what answers it: rule, coverage, fit."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.estimate.rates import SHIPPED
from kernels.hand_written import WRITTEN
from tests.conftest import ROOT

TEXTS = {p.stem: p.read_text() for p in sorted((ROOT / "tests" / "regions").glob("*.txt"))}
FOLDERS = ("app/advice", "app/accuracy", "kernels/libraries")
SOURCES = sorted({p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")})
"""The rule, the coverage data, the fit; and the benchmark's code, whose labels.json alone knows regions."""
KERNELS = {kernel.name.partition(":")[2] for kernel in WRITTEN}
NAMES = sorted(TEXTS.keys() - KERNELS)
"""A kernel's own name (jagged_mean) is no region's, though a region is called the same."""
TELLING = 512
"""A shape without a size this large (heads of 64, 128 or 256) is a list of what a call takes, and no region's."""


def shapes(text: str) -> Iterator[tuple[int, ...]]:
    """The shapes of a region's inputs that have two dimensions or more."""
    for sizes in re.findall(r"^\w+: \w+\[([\d, ]+)\]", text, re.MULTILINE):
        found = tuple(int(s) for s in sizes.split(","))
        if len(found) > 1 and max(found) >= TELLING:
            yield found


SHAPES = sorted({s for text in TEXTS.values() for s in shapes(text)})


def code(path: Path) -> ast.AST:
    """Without comments, which decide nothing."""
    return ast.parse(path.read_text())


def words(tree: ast.AST) -> Iterator[str]:
    """Every name and every string, docstrings among them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def sequences(tree: ast.AST) -> Iterator[tuple[int, ...]]:
    """Every tuple, list and set of whole numbers; and those in strings: 8192x4096, or 8192, 4096."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            values = [e.value for e in node.elts if isinstance(e, ast.Constant) and type(e.value) is int]
            if len(values) == len(node.elts):
                yield tuple(values)
    for word in words(tree):
        for match in re.findall(r"\d+(?:\s*[x×,]\s*\d+)+", word):
            yield tuple(int(n) for n in re.findall(r"\d+", match))


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_region_is_known_by_name_or_shape(path: Path) -> None:
    tree = code(path)
    text = "\n".join(words(tree))
    assert [n for n in NAMES if re.search(rf"(?<!\w){n}(?!\w)", text)] == []
    assert sorted(set(sequences(tree)) & set(SHAPES)) == []


def test_no_region_is_in_the_rates() -> None:
    """Calls and kernels by their names, lengths of rows, shares: nothing of a region."""
    text = SHIPPED.read_text()
    assert [n for n in NAMES if re.search(rf"(?<!\w){n}(?!\w)", text)] == []
    assert not re.search(r"\d+x\d+", text)


def test_the_search_finds_what_it_looks_for() -> None:
    planted = ast.parse(f'RATES = {{"{NAMES[0]}": 0.5}}\nif sizes == {SHAPES[0]}:\n    note = "at 8192x4096"\n')
    assert NAMES[0] in words(planted)
    assert {SHAPES[0], (8192, 4096)} <= set(sequences(planted))
    assert (8192, 4096) in SHAPES
    assert len(SOURCES) > 30
