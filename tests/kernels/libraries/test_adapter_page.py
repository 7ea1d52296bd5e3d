"""docs/adapters.md is what the catalogue, the Archive and the recorded signatures say."""

from __future__ import annotations

import json

from kernels.libraries.catalogue import ENTRIES
from tools.docs.adapter_table import (
    CONTRACTS,
    NONE,
    PAGE,
    RAN,
    STANDINGS,
    TESTS,
    UNHELD,
    main,
    page,
    passed_on_a_gpu,
    standing,
)
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


def test_every_adapter_ran_or_is_held_to_a_published_signature() -> None:
    assert [e.candidate for e in ENTRIES if standing(e)[0] == UNHELD] == []


def test_what_ran_on_a_gpu_says_where() -> None:
    for entry in ENTRIES:
        name, why = standing(entry)
        assert name != RAN or why == "the tests" or "record" in why or "validation" in why, entry.candidate
    assert standing(next(e for e in ENTRIES if e.candidate == "library:quack.rmsnorm"))[0] == RAN
    assert not passed_on_a_gpu() & set(json.loads((TESTS / "rewrites-h200.json").read_text())["failed"])
