"""Lookups that ask for a sparse gradient: refused where a gradient passes through the table, taken everywhere else."""

from __future__ import annotations

import pytest

from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from profiler.region.model import RegionError

BAG = """i: i64[64].below(50)
w: f32[50, 16]{table}
s: f32[64]{weights}
o: i64[9].offsets(64)
y = F.embedding_bag(i, w, o[:8], mode='sum', sparse={sparse}, per_sample_weights=s)
return y
"""
GRADIENT = ".requires_grad"


@pytest.mark.parametrize("weights", ["", GRADIENT])
def test_a_sparse_gradient_of_the_table_is_refused_by_its_name_and_says_what_to_write(weights: str) -> None:
    with pytest.raises(RegionError, match="sparse=True") as caught:
        lower(parse(BAG.format(table=GRADIENT, weights=weights, sparse=True)))
    assert (caught.value.code, caught.value.line) == ("region-type", 5)
    assert "leave sparse out" in caught.value.hint
    dense = lower(parse(BAG.format(table=GRADIENT, weights=weights, sparse=False)))
    assert [t.shape for t in dense.output_tensors[:2]] == [(8, 16), (50, 16)]


@pytest.mark.parametrize("weights", ["", GRADIENT])
def test_without_a_gradient_of_the_table_sparse_says_nothing(weights: str) -> None:
    """As without: the same operations, and the gradient of the samples' weights alone."""
    asked, plain = (lower(parse(BAG.format(table="", weights=weights, sparse=s))) for s in (True, False))
    assert [o.target for o in asked.operations] == [o.target for o in plain.operations]
    assert [t.shape for t in asked.output_tensors] == [(8, 16), *([(64,)] if weights else [])]
