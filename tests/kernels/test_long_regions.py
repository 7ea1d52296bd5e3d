"""Long regions: the generator answers soon, with a kernel or a reason, however deep the region is."""

from __future__ import annotations

import pytest

from app.analysis import service
from kernels.codegen import generated
from profiler.region.graph.cost import cost
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from profiler.region.limits import MAX_OPERATIONS
from tests.effort import calls_of


def loop(rounds: int, step: str) -> str:
    return f"x: bf16[4096, 4096]\nh = x\nfor i in range({rounds}):\n    h = {step}\nreturn h\n"


LONG = {
    "a recurrence through rows": loop(40, "(h * x).sum(-1, keepdim=True) + h.roll(i, 0)"),
    "adds": loop(1000, "h + 1.0"),
    "as many operations as there may be": loop(MAX_OPERATIONS - 2, "gelu(h)"),
    "matrix products between": loop(700, "gelu(h @ x)"),
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_a_long_region_is_refused_soon(text: str) -> None:
    graph = lower(parse(text))
    # 0.2 million calls, about 0.1 s of an idle core; it was minutes, or a RecursionError
    _, tried = calls_of(lambda: generated.attempt(graph), most=400_000)
    assert tried.refused.startswith("too long")


def test_a_chain_deeper_than_python_calls_is_generated_in_order() -> None:
    made = generated.generate(lower(parse(loop(200, "gelu(h)"))))
    (source,) = made.sources
    assert source.text.count("tl.load(") == 1 and source.text.count("tl.store(") == 1
    compile(source.text, "kernel", "exec")


def test_a_long_loop_is_costed_in_time_that_grows_with_it() -> None:
    half, _ = calls_of(lambda: cost(lower(parse(loop(500, "h + 1.0")))), most=10_000_000)
    made, found = calls_of(lambda: cost(lower(parse(loop(1000, "h + 1.0")))), most=10_000_000)
    assert made < 2.1 * half
    assert (found.unfused.launches, found.fused.launches) == (1000, 1)
    assert found.unfused.bytes_moved == 1000 * 2 * 4096 * 4096 * 2


def test_the_longest_region_gets_advice() -> None:
    answer = service.advise_region(LONG["as many operations as there may be"], device="H200")
    assert "too long" in " ".join(a["note"] for a in answer["advice"]["alternatives"])
