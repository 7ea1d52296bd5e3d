"""docs/adapters.md is what the catalogue, the Archive and the recorded signatures say."""

from __future__ import annotations

from kernels.libraries.catalogue import ENTRIES
from tools.docs.adapter_table import CONTRACTS, NONE, PAGE, STANDINGS, UNHELD, main, page, standing
from tools.records.record_contracts import contracts


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tools.docs.adapter_table"
    assert main(["--check"]) == 0


def test_every_call_stands_somewhere_and_what_has_no_adapter_says_why() -> None:
    for entry in ENTRIES:
        name, why = standing(entry)
        assert name in STANDINGS
        assert name != NONE or len(why) > 3, entry.candidate


def test_contracts_are_of_calls_and_signatures_that_there_are() -> None:
    calls = {e.candidate.removeprefix("library:") for e in ENTRIES}
    assert set(CONTRACTS) <= calls and set(CONTRACTS.values()) <= set(contracts())


def test_no_package_that_was_read_is_left_without_a_contract() -> None:
    unheld = {e.package for e in ENTRIES if standing(e)[0] == UNHELD}
    assert not unheld & {"flashinfer", "quack", "vllm", "unsloth", "sageattention", "torchao"}
