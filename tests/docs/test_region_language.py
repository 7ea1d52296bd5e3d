"""The language page tells the truth: every type, suffix, limit and error code, and its example parses."""

from __future__ import annotations

import re
from pathlib import Path

from profiler.region import program, syntax, text
from profiler.region.model import ITEMSIZE
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "region-language.md").read_text()


def test_example_of_the_page_does_not_parse() -> None:
    example = re.search(r"```\n(.*?)```", PAGE, re.DOTALL)
    assert example is not None
    assert program.program(text.parse(example.group(1))).outputs[0].shape == (8192, 16384)


def test_dtype_or_suffix_missing_from_the_page() -> None:
    assert "`" + " ".join(ITEMSIZE) + "`" in PAGE
    for suffix in text.SUFFIXES:
        assert f"`.{suffix}" in PAGE


def test_limit_on_the_page_is_another() -> None:
    for limit in (syntax.MAX_CHARS, syntax.MAX_LINES, text.MAX_INPUTS, program.MAX_OPERATIONS, text.MAX_RANK):
        assert f"{limit:,}" in PAGE


def test_error_code_missing_from_the_page() -> None:
    sources = "".join(p.read_text() for p in Path(syntax.__file__).parent.glob("*.py"))
    codes = set(re.findall(r'code="(region-[a-z-]+)"', sources)) - {"region-invalid"}
    assert codes
    for code in codes:
        assert f"`{code}`" in PAGE, code
