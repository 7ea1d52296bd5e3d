"""docs/region-language.md says what is so: its examples run, its lists and limits are the code's."""

from __future__ import annotations

import re

import pytest

from profiler.region import limits
from profiler.region.language import characters, text, vocabulary
from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.model import ITEMSIZE, RegionError
from profiler.region.op_kinds import POINTWISE
from profiler.region.operations import OPERATIONS, Op
from tests.conftest import ROOT
from tools.docs import operation_lists

DOCS = (ROOT / "docs" / "region-language.md").read_text(encoding="utf-8")
EXAMPLES: list[str] = re.findall(r"```\n(.*?)```", DOCS, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example_does_not_run(example: str) -> None:
    region = parse(example)
    for binding in region.bindings:
        assert program(region, binding).outputs


def test_examples_are_found() -> None:
    assert len(EXAMPLES) >= 8


def test_the_lists_are_current() -> None:
    assert operation_lists.language_page(DOCS) == DOCS, "run: python -m tools.docs.operation_lists"
    cost = operation_lists.COST.read_text(encoding="utf-8")
    assert operation_lists.cost_page(cost) == cost, "run: python -m tools.docs.operation_lists"
    assert operation_lists.main(["--check"]) == 0


def test_functions_listed_are_those_of_the_tables() -> None:
    listed = {m: set(re.findall(r"`(\w+)`", names)) for m, names in re.findall(r"(?m)^\*\*`(.*)\.`\*\* (.*)$", DOCS)}
    wanted = {module: set(names) for module, names in vocabulary.functions().items()}
    assert listed == wanted, "run: python -m tools.docs.operation_lists"


def test_limits_listed_are_those_of_the_code() -> None:
    assert f"| the text | {characters.MAX_CHARS:,} characters, {characters.MAX_LINES} lines" in DOCS
    assert f"| operations, loops unrolled | {limits.MAX_OPERATIONS:,} |" in DOCS


def test_an_operation_that_is_added_is_listed_on_both_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    added = Op("softermax", POINTWISE, flops=7, language="torch")
    monkeypatch.setattr(operation_lists, "OPERATIONS", (*OPERATIONS, added))
    monkeypatch.setattr(vocabulary, "functions", lambda: {"torch": frozenset({"abs", "softermax"})})
    cost = operation_lists.COST.read_text(encoding="utf-8")
    assert "`softermax` 7 |" in operation_lists.cost_page(cost)
    assert "**`torch.`** `abs` `softermax`\n" in operation_lists.language_page(DOCS)


def test_types_and_suffixes_are_all_named() -> None:
    for name in ITEMSIZE:
        assert f"`{name}`" in DOCS
    for name in text.SUFFIXES:
        assert f"`.{name}" in DOCS


def test_error_codes_are_all_named() -> None:
    sources = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "profiler" / "region").rglob("*.py"))
    codes = set(re.findall(r'code(?:: str)?\s?=\s?"(region-[a-z-]+)"', sources))
    assert codes - {"region-invalid"} == set(re.findall(r"`(region-[a-z-]+)`", DOCS))


LEFT_OUT = {
    "if": "if x: y = x", "while": "while x: y = x", "nonzero": "y = nonzero(x)", "x[mask]": "y = x[x > 0]",
    "where": "y, z = where(x > 0)", "unique": "y = unique(x)", "bincount": "y = bincount(x)",
    "repeat_interleave": "y = repeat_interleave(x, x.long(), 0)", "x[i] = y": "x[0] = x",
    "x[:, 0] += y": "x[:, 0] += x", "out=": "y = add(x, x, out=x)", "generator=": "y = rand(2, generator=None)",
    "imports": "import os", "lambdas": "y = (lambda: x)()", "comprehensions": "y = [x for a in x]",
    "*args": "y = cat(*x)", "strings": "y = x.to('cuda')",
}  # fmt: skip


@pytest.mark.parametrize("what", LEFT_OUT)
def test_what_the_docs_leave_out_is_refused(what: str) -> None:
    assert what in DOCS[DOCS.index("## What is left out") :]
    with pytest.raises(RegionError):
        program(parse(f"x: f32[8, 4]\n{LEFT_OUT[what]}\nreturn x\n"))
