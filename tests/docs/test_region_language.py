"""docs/region-language.md says what is so: its examples run, its lists and limits are the code's."""

from __future__ import annotations

import re

import pytest

from profiler.region import limits
from profiler.region.language import characters, text, vocabulary
from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.model import ITEMSIZE, RegionError
from tests.conftest import ROOT

DOCS = (ROOT / "docs" / "region-language.md").read_text(encoding="utf-8")
EXAMPLES: list[str] = re.findall(r"```\n(.*?)```", DOCS, re.DOTALL)


def function_lists() -> str:
    """The section as it should be: one list for each module, sorted."""
    parts = []
    for module, names in vocabulary.functions().items():
        parts.append(f"**`{module}.`** {' '.join(f'`{n}`' for n in sorted(names))}")
    methods = sorted(vocabulary.METHODS - vocabulary.TORCH)
    parts.append(f"**methods besides** {' '.join(f'`{n}`' for n in methods)}")
    return "\n\n".join(parts)


def limit_rows() -> str:
    """The table as it should be."""
    rows = {
        "the text": f"{characters.MAX_CHARS:,} characters, {characters.MAX_LINES} lines of {characters.MAX_LINE:,}",
        "brackets that are open": str(characters.MAX_BRACKETS),
        "inputs": f"{text.MAX_INPUTS}, of {limits.MAX_RANK} dimensions",
        "sizes of a symbol": str(text.MAX_SIZES),
        "one size": f"{limits.MAX_SIZE:,}",
        "operations, loops unrolled": f"{limits.MAX_OPERATIONS:,}",
        "operations as torch runs them, what a split gives and the backward counted": f"{limits.MAX_LOWERED:,}",
        "lists within lists": str(limits.MAX_NESTING),
        "values in one list, results of one operation": f"{limits.MAX_ITEMS:,}",
        "dimensions of a result": str(limits.MAX_RESULT_RANK),
        "one tensor": f"{limits.MAX_BYTES >> 40} TiB",
        "all tensors together": f"{limits.MAX_REGION_BYTES >> 40} TiB",
    }
    return "\n".join(f"| {of} | {most} |" for of, most in rows.items())


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example_does_not_run(example: str) -> None:
    region = parse(example)
    for binding in region.bindings:
        assert program(region, binding).outputs


def test_examples_are_found() -> None:
    assert len(EXAMPLES) >= 8


def test_functions_listed_are_those_of_the_tables() -> None:
    assert function_lists() in DOCS


def test_limits_listed_are_those_of_the_code() -> None:
    assert limit_rows() in DOCS


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
