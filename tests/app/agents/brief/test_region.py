"""Briefs of regions' texts: the examples and the corpus within the bound, with the advice's own figures."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from app.agents.brief.region import region_brief
from app.agents.brief.tokens import MAX_TOKENS, json_text, token_bound
from app.analysis import service
from app.objects.brief import Brief
from tests.app.objects.exact import differences
from tests.conftest import ROOT

EXAMPLES = sorted((ROOT / "app" / "examples").glob("*.txt"))
CORPUS: Any = json.loads(gzip.decompress((ROOT / "app/accuracy/corpus/programs.json.gz").read_bytes()))
PROGRAMS = [p["text"] for p in (CORPUS if isinstance(CORPUS, list) else CORPUS["programs"])]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_is_told_by_its_advice(path: Any) -> None:
    region = service.advise_region(path.read_text(), device="H200")
    brief = region_brief(region, path.name)
    advice = region["advice"]
    assert advice is not None
    assert token_bound(json_text(brief)) <= MAX_TOKENS
    assert differences(Brief, json.loads(json_text(brief))) == []
    (action,) = brief["do"]
    assert (action["tool"], action["edit"]["after"]) == (advice["tool"], advice["call"])
    assert action["edit"]["before"].split() == (region["text"] or "").split()
    call, faster = brief["call"], advice["region_speedup"]
    assert call is not None and call["now_us"] and call["advised_us"] and faster and action["saves_us"]
    assert call["now_us"]["mid"] / call["advised_us"]["mid"] == pytest.approx(faster["mid"], rel=0.01)
    assert action["saves_us"]["mid"] == pytest.approx(call["now_us"]["mid"] - call["advised_us"]["mid"], rel=0.01)
    assert call["floor_us"] == pytest.approx(advice["floor_us"], rel=1e-3)


def test_programs_of_the_corpus_are_within_the_bound() -> None:
    assert len(PROGRAMS) > 100
    for text in PROGRAMS[::12]:
        brief = region_brief(service.advise_region(text, device="H200"), "region.txt")
        assert token_bound(json_text(brief)) <= MAX_TOKENS


def test_what_is_to_be_left_says_why_and_has_no_edit() -> None:
    region = service.advise_region("x: bf16[8192, 4096]\nw: bf16[4096, 4096]\ny = x @ w\nreturn y\n", device="H200")
    brief = region_brief(region, "gemm.txt")
    assert brief["do"] == []
    assert brief["do_not"][0]["what"] == "anything else than it is"
    assert "cuBLAS" in brief["do_not"][0]["because"]


def test_a_way_that_the_rule_leaves_out_says_so() -> None:
    region = service.advise_region((ROOT / "app/examples/attention_by_hand.txt").read_text(), device="H200")
    advice = region["advice"]
    assert advice is not None
    excluded = {a["candidate"]: a["excluded_by"] for a in advice["alternatives"] if a.get("excluded_by")}
    told = {entry["what"]: entry["because"] for entry in region_brief(region, "a.txt")["do_not"]}
    assert excluded["triton:flash_attention"] in told["Triton flash_attention"]


def test_a_text_from_stdin_has_a_word_in_its_commands() -> None:
    region = service.advise_region("x: f32[64]\ny = gelu(x)\nreturn y\n", device="H200")
    assert region_brief(region, "-")["more"] == "tritonworthy advise REGION.txt --json"
