"""Regions rewritten by algebra that keeps the value are recognised still, and mutants are not: each match is computed.

`python -m tools.fuzz.rewrites --out tests/records/rewrites.json` draws 500 and keeps what came of them.
"""

from __future__ import annotations

import json

import pytest

from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from tests.conftest import ROOT
from tests.profiler.region import texts
from tools.fuzz.float64 import agrees, values_of
from tools.fuzz.rewrites import FAMILIES, Family, failure, mutant_failure, mutants, seen, variants

SAMPLE = sorted(variants(45, seed=11))
MUTANTS = list(mutants())


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_not_recognised_as_it_stands(name: str) -> None:
    assert failure(name, FAMILIES[name].text) == ""


@pytest.mark.parametrize(("name", "text"), SAMPLE, ids=[f"{i}-{name}" for i, (name, _) in enumerate(SAMPLE)])
def test_a_rewrite_that_keeps_the_value_hides_the_pattern(name: str, text: str) -> None:
    assert failure(name, text) == "", text


@pytest.mark.parametrize(
    "added", ["torch.where(m, 0.0, float('-inf'))", "torch.zeros(6, 6).masked_fill(~m, float('-inf'))"]
)
def test_what_makes_a_mask_that_is_added_is_counted_against_the_attention(added: str) -> None:
    text = FAMILIES["masked"].text.replace("torch.where(m, s, float('-inf'))", f"s + {added}")
    assert added in text
    assert failure("masked", text) == ""


def test_an_output_besides_the_attention_is_counted_as_its_own() -> None:
    """The mask's making belongs to the attention, another result that is made of the mask does not."""
    text = (
        FAMILIES["masked"]
        .text.replace("torch.where(m, s, float('-inf'))", "s + b")
        .replace("return", "b = torch.where(m, 0.0, float('-inf'))\nreturn exp(b).sum(),")
    )
    assert "attention" not in seen(lower(parse(text))).covering


def test_five_hundred_drawn_ones_were_not_all_recognised_or_a_mutant_was() -> None:
    record = json.loads((ROOT / "tests" / "records" / "rewrites.json").read_text(encoding="utf-8"))
    assert record["variants"] == sum(record["variants_by_family"].values()) >= 500
    assert set(record["variants_by_family"]) == set(FAMILIES)
    assert record["mutants"] == len(MUTANTS)
    assert (record["variants_failed"], record["mutants_failed"]) == (0, 0)
    assert len(set(SAMPLE)) == 45


def test_more_variants_than_there_are_is_no_endless_search() -> None:
    with pytest.raises(ValueError, match="40 distinct variants were asked for, 1 were found"):
        list(variants(40, seed=0, families={"alone": Family("softmax", "x: f32[2, 2]\nreturn x\n")}))


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
