"""Regions rewritten by algebra that keeps the value are recognised still, and mutants are not: each match is computed.

`python -m tools.fuzz.rewrites` draws 500.
"""

from __future__ import annotations

import pytest

from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from tests.profiler.region import texts
from tools.fuzz.float64 import agrees, values_of
from tools.fuzz.rewrites import FAMILIES, failure, mutant_failure, mutants, seen, variants

SAMPLE = sorted(set(variants(45, seed=11)))
MUTANTS = list(mutants())


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_not_recognised_as_it_stands(name: str) -> None:
    assert failure(name, FAMILIES[name].text) == ""


@pytest.mark.parametrize(("name", "text"), SAMPLE, ids=[f"{i}-{name}" for i, (name, _) in enumerate(SAMPLE)])
def test_a_rewrite_that_keeps_the_value_hides_the_pattern(name: str, text: str) -> None:
    assert failure(name, text) == "", text


@pytest.mark.parametrize(("name", "text"), MUTANTS, ids=[f"{i}-{name}" for i, (name, _) in enumerate(MUTANTS)])
def test_a_mutant_is_taken_for_what_it_is_not(name: str, text: str) -> None:
    assert mutant_failure(name, text) == "", text


def test_the_check_itself_would_not_see_a_wrong_role() -> None:
    """The reference is held to the graph: with another epsilon it does not agree."""
    from dataclasses import replace

    from profiler.region.graph.patterns import match

    graph = lower(parse(FAMILIES["rms_norm"].text))
    (only,) = (m for m in match(graph) if m.kind == "rms_norm")
    values = values_of(graph, 0)
    assert agrees(only, values)
    assert not agrees(replace(only, roles={**only.roles, "eps": 0.5}), values)


def small(text: str) -> str:
    """The text at sizes that a CPU computes at once."""
    for old, new in (("8192", "6"), ("4096", "6"), ("2048", "6"), ("1024", "8"), ("14336", "8"), ("128]", "8]")):
        text = text.replace(old, new)
    return text.replace("64:", "4:").replace(":64", ":4").replace("bf16", "f32").replace("32, 6, 8", "3, 6, 8")


@pytest.mark.parametrize("text", [texts.RMS_NORM, texts.LAYER_NORM, texts.CAUSAL, texts.GELU_TANH, texts.SWIGLU])
def test_a_match_of_the_texts_of_other_tests_gives_another_value(text: str) -> None:
    result = seen(lower(parse(small(text))))
    assert result.covering
    assert not result.wrong
