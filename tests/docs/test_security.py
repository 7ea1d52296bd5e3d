"""docs/security.md: every promise names tests that exist, and every attack that is tested is promised something."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| attack |")]
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@cache
def functions_of(path: Path) -> frozenset[str]:
    """Names of a file's test functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name.startswith("test_"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_each_promise_is_held_by_tests_that_exist(row: str) -> None:
    cells = [cell.strip() for cell in row.strip("|").split(" | ")]
    assert len(cells) == 3, "attack, promise, tests"
    named = NAMED.findall(cells[2])
    assert named, "no test holds it"
    assert len(named) == cells[2].count("`") // 2
    for place, name in named:
        assert (ROOT / place).is_file(), place
        assert not name or name in functions_of(ROOT / place), f"{place} has no {name}"


def test_every_attack_of_the_table_is_there() -> None:
    assert len(ROWS) >= 25


def test_every_file_of_attacks_is_under_a_promise() -> None:
    named = {place for place, _ in NAMED.findall(PAGE)}
    files = {str(p.relative_to(ROOT)) for p in (ROOT / "tests" / "attacks").glob("test_*.py")}
    assert files
    assert files <= named


def test_the_policy_and_the_page_point_to_each_other_and_settings_exist() -> None:
    from app.settings import PREFIX, Settings

    policy = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "docs/security.md" in policy and "../SECURITY.md" in PAGE
    for text in (policy, PAGE):
        for name in re.findall(rf"`{PREFIX}(\w+)`", text):
            assert name.lower() in Settings.model_fields, name
        for link in re.findall(r"\]\(([\w./]+\.md)\)", text):
            base = ROOT if text is policy else ROOT / "docs"
            assert (base / link).is_file(), link
