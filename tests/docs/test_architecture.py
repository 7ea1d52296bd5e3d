"""The way that imports run between files: never in a circle. What may import what is declared in pyproject.toml."""

from __future__ import annotations

import re
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import grimp
import pytest

from tests.conftest import ROOT


def circle(*packages: str) -> list[str]:
    """Modules that import each other in a circle, each followed by one that it imports; [] where there are none.

    Imports within functions and for type checkers count too.
    """
    graph = grimp.build_graph(*packages, cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_a_file_that_is_imported_by_what_it_imports() -> None:
    assert circle("app", "kernels", "profiler", "tritonworthy") == []


@pytest.mark.parametrize(
    "back",
    [
        "from circular_sample import a",
        "def late() -> None:\n    import circular_sample.a",
        "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from circular_sample.a import value",
    ],
    ids=["at the top", "in a function", "for type checkers"],
)
def test_a_circle_that_would_not_be_noticed(back: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "circular_sample"
    folder.mkdir()
    texts = {"__init__": "", "a": "from circular_sample.b import c\n\nvalue = c", "b": "from . import c", "c": back}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(f"{text}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    found = circle("circular_sample")
    assert found[0] == found[-1]
    steps = {(one[-1], other[-1]) for one, other in pairwise(found)}
    assert steps == {("a", "b"), ("b", "c"), ("c", "a")}


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
APP_TABLE, _, KERNELS_TABLE = ARCHITECTURE.partition("## The rooms of `kernels`")


def test_every_file_that_the_walks_name_is_there() -> None:
    named = set(re.findall(r"`([\w/]+/\w+\.py)`", ARCHITECTURE))
    assert len(named) > 20
    missing = [n for n in named if not any((ROOT / start / n).is_file() for start in ("", "app", "profiler/region"))]
    assert missing == []


def test_every_room_of_app_stands_in_the_table() -> None:
    assert rooms_of("app") == rooms_named(APP_TABLE)


def test_every_room_of_kernels_stands_in_its_table() -> None:
    assert rooms_of("kernels") == rooms_named(KERNELS_TABLE)
    families = set(re.findall(r"`(\w+)/`", re.findall(r"^\| `ops/` \|.*", KERNELS_TABLE, re.M)[0]))
    assert rooms_of("kernels/ops") == families - {"ops"} | {"shared"}


def rooms_of(package: str) -> set[str]:
    return {p.name for p in (ROOT / package).iterdir() if (p / "__init__.py").exists()}


def rooms_named(section: str) -> set[str]:
    """The rooms of a table's first column; those inside another room are left out."""
    return {room for row in re.findall(r"^\| (`.*?) \|", section, re.M) for room in re.findall(r"`(\w+)/`", row)}


def test_tests_stand_in_the_rooms_of_what_they_test() -> None:
    """tests/attacks, tests/faults, tests/browser, tests/docs and tests/fuzz test the whole, and mirror nothing."""
    for package in ("app", "benchmarks", "tools", "tritonworthy"):
        folders = {p.parent.relative_to(ROOT / "tests") for p in (ROOT / "tests" / package).rglob("test_*.py")}
        assert len(folders) > 1
        assert [str(folder) for folder in sorted(folders) if not (ROOT / folder).is_dir()] == []


def test_tools_import_no_benchmark() -> None:
    """The other way they may: a benchmark counts and writes with tools."""
    imported = re.compile(r"(?m)^\s*(?:from|import) (benchmarks|tests\.benchmarks)\b")
    sources = {str(p.relative_to(ROOT)): p.read_text(encoding="utf-8") for p in (ROOT / "tools").rglob("*.py")}
    assert len(sources) > 20
    assert [name for name, text in sources.items() if imported.search(text)] == []
    assert imported.search((ROOT / "benchmarks" / "server" / "uploads.py").read_text(encoding="utf-8"))


def test_no_folder_has_more_files_than_a_reader_takes_in() -> None:
    packages = ("app", "kernels", "profiler", "tritonworthy", "tools", "benchmarks", "tests")
    files = [p for name in packages for p in (ROOT / name).rglob("*.py")] + [*(ROOT / "templates").rglob("*.html")]
    counts = Counter(str(p.parent.relative_to(ROOT)) for p in files)
    assert {"app/web/pages", "templates", "templates/partials/trace"} <= set(counts)
    assert {folder: count for folder, count in counts.items() if count > 23} == {}
