"""Every region text of the tests has Helion source or a reason: what is written for a person crashes on none."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kernels.codegen.helion.source import write
from kernels.codegen.index import Unsupported
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse

TESTS = Path(__file__).parents[3]
TEXTS = {str(p.relative_to(TESTS)): p for p in sorted(TESTS.glob("regions/**/*.txt"))}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_has_source_or_is_refused(name: str) -> None:
    try:
        source = write(lower(parse(TEXTS[name].read_text())))
    except Unsupported as why:
        assert str(why)
        return
    assert "region" in [getattr(n, "name", "") for n in ast.parse(source.text).body]
