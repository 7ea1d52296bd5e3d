"""Every region text of the tests has Helion source or a reason: what is written for a person crashes on none."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from kernels.codegen.helion.source import write
from kernels.codegen.index import Unsupported
from kernels.measure.candidate.inputs import one_input
from profiler.region.graph.lowering import lower
from profiler.region.language.program import program
from profiler.region.language.text import parse
from tests.kernels.codegen.helion.tile_by_tile import run

TESTS = Path(__file__).parents[3]
TEXTS = {str(p.relative_to(TESTS)): p for p in sorted(TESTS.glob("regions/**/*.txt"))}
SMALL = 12_000_000
"""Elements of all inputs, up to which a source is also run: larger ones take seconds each."""


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_refused_or_has_source_that_computes_what_eager_does(name: str) -> None:
    region = parse(TEXTS[name].read_text())
    try:
        source = write(lower(region))
    except Unsupported as why:
        assert str(why)
        return
    compile(source.text, name, "exec")
    if sum(math.prod(map(int, item.shape)) for item in region.inputs) > SMALL:
        return
    values = [one_input(item, {}, "cpu", number) for number, item in enumerate(region.inputs)]
    for got, own in zip(run(source.text, values, 65536), program(region, None, "cpu").module(*values), strict=True):
        assert (got.shape, got.dtype) == (own.shape, own.dtype)
        error = (got.double() - own.double()).norm() / own.double().norm()
        assert error <= 0.01, float(error)
