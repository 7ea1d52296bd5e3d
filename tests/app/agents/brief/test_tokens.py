"""The bound of tokens is above what an encoder counts, and texts that are cut are within it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from app.agents.brief.tokens import CUT, cut, json_text, token_bound
from tests.conftest import DATA

COUNTED: dict[str, Any] = json.loads((DATA / "measurements" / "token_counts.json").read_text(encoding="utf-8"))


def test_no_answer_has_more_tokens_than_the_bound_says_nor_far_fewer() -> None:
    ratios = [token_bound(row["text"]) / row["tokens"] for row in COUNTED["texts"]]
    assert len(ratios) == 6
    assert min(ratios) > 1.15 and max(ratios) < 1.35


@given(st.text())
@example("\u00e9" * 50)
@example("\ud800")
def test_a_token_has_three_bytes_at_most_in_the_mean(text: str) -> None:
    assert 3 * token_bound(text) >= len(text.encode("utf-8", "replace"))


def test_signs_that_no_vocabulary_has_count_by_their_bytes() -> None:
    assert token_bound("漢字") == len("漢字".encode())


@given(st.text(), st.integers(5, 60))
def test_what_is_cut_is_a_beginning_within_its_bound(text: str, most: int) -> None:
    short = cut(text, most)
    assert token_bound(short) <= most
    assert short == text or text.startswith(short.removesuffix(CUT))


def test_a_text_is_cut_between_words() -> None:
    assert cut("one two three four five six seven", 5) == "one two" + CUT


def test_json_for_a_stream_without_other_letters_is_still_json() -> None:
    value = {"a": "é µs"}
    text = json_text(value, ascii_only=True)
    assert text.isascii() and json.loads(text) == value
