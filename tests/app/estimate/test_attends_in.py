"""Attention that a text widens before it multiplies is priced in the dtype in which a call for it is given it."""

from __future__ import annotations

import pytest

from app.analysis.analyze import shape_of
from app.estimate.call_time import SDPA, library_us
from app.estimate.rates import FITTED
from app.estimate.region_features import attends_in
from profiler.region import op_kinds
from profiler.region.graph.lowering import lower, written_alone
from profiler.region.graph.patterns import match
from profiler.region.language.text import parse
from profiler.region.model import Binding
from tests.app.advice.cases import H200

TEXT = """q: {dtype}[8, 8, 512, 64]{trained}
k: {dtype}[8, 8, 512, 64]{trained}
v: {dtype}[8, 8, 512, 64]{trained}
p = softmax(q{widen} @ k{widen}.transpose(-2, -1) * 0.125, -1)
return (p @ v{widen}).to({dtype})
"""


@pytest.mark.parametrize(("dtype", "widen", "given"), [
    ("bf16", ".to(f32)", "bf16"), ("f16", ".float()", "f16"), ("bf16", "", ""), ("f32", "", ""),
])  # fmt: skip
@pytest.mark.parametrize("trained", ["", ".requires_grad"])
def test_a_call_is_given_the_numbers_from_before_they_are_widened(
    dtype: str, widen: str, given: str, trained: str
) -> None:
    graph = written_alone(lower(parse(TEXT.format(dtype=dtype, widen=widen, trained=trained))))
    assert attends_in(graph, match(graph)) == given


@pytest.mark.parametrize("trained", ["", ".requires_grad"])
def test_a_call_for_widened_attention_takes_what_it_takes_for_narrow_and_not_what_f32_takes(trained: str) -> None:
    widened, narrow, wide = (
        shape_of(lower(parse(TEXT.format(dtype=dtype, widen=widen, trained=trained))), Binding())
        for dtype, widen in (("bf16", ".to(f32)"), ("bf16", ""), ("f32", ""))
    )
    as_given = library_us(widened, H200, SDPA, FITTED, given="bf16")
    assert as_given == pytest.approx(library_us(narrow, H200, SDPA, FITTED), rel=0.05)
    assert 2 * as_given < library_us(wide, H200, SDPA, FITTED)


def test_a_call_for_another_part_of_the_region_multiplies_what_the_text_does() -> None:
    """The f32 product behind the attention stays one, whatever a call for the attention is given."""
    text = TEXT.format(dtype="bf16", widen=".to(f32)", trained="").replace("return", "w: f32[64, 64]\nattended =")
    lines = text.splitlines()
    inputs = [line for line in lines if ": " in line.split("=")[0]]
    body = [line for line in lines if line not in inputs]
    both = shape_of(lower(parse("\n".join([*inputs, *body, "return attended, attended.float() @ w", ""]))), Binding())
    product = [o.name for o in both.operations if o.kind == op_kinds.GEMM][-1:]
    alone = [library_us(both, H200, "torch.mm", FITTED, part=frozenset(product), given=given) for given in ("", "bf16")]
    assert alone[0] == alone[1]
