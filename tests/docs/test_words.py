"""Names are in standard English: the words that docs/glossary.md retired do not come back, and become fewer."""

from __future__ import annotations

import pytest

from tools.checks.words import GLOSSARY, counts_of, retired_words, uses_in, uses_in_folders, with_counts, words_of

REMAINING = {
    "apart": 23,
    "beside": 12,
    "found": 12,
    "obstacle": 9,
    "obstacles": 9,
    "paced": 8,
    "pump": 2,
    "since": 28,
    "tally": 7,
    "twin": 1,
    "twins": 1,
    "walks": 3,
}
"""Word -> how many names still have it, each name once a file. `python -m tools.checks.words --write` sets them."""

MEND = "say it otherwise (docs/glossary.md); where words were removed: python -m tools.checks.words --write"


def test_no_name_with_a_retired_word_is_added_and_each_removal_is_recorded() -> None:
    uses = uses_in_folders()
    counts = counts_of(uses)
    differing = {word for word in counts | REMAINING if counts.get(word) != REMAINING.get(word)}
    assert {word: counts.get(word, 0) for word in differing} == {w: REMAINING.get(w, 0) for w in differing}, "\n".join(
        [MEND, *(f"{use.path}:{use.line}: {use.identifier}" for use in uses if use.word in differing)]
    )


def test_every_retired_word_has_another_to_say() -> None:
    retired = retired_words(GLOSSARY.read_text(encoding="utf-8"))
    assert len(retired) > 20
    assert all(retired.values())
    assert [word for word in retired if words_of(word) != {word}] == []
    assert set(REMAINING) <= set(retired)


@pytest.mark.parametrize(
    ("source", "identifiers"),
    [
        ("zygote = 1", ["zygote"]),
        ("def open_zygote(): ...", ["open_zygote"]),
        ("class Zygote: ...", ["Zygote"]),
        ("def start(zygote): ...", ["zygote"]),
        ("start(zygote=1)", ["zygote"]),
        ("pool.zygote.stop()", ["zygote"]),
        ("import zygote as fork", ["zygote"]),
        ("from kernels.measure import fork as zygote", ["zygote"]),
        ("class Pool:\n    zygote: int", ["zygote"]),
        ("MAX_ZYGOTES_ = ZYGOTE_S = 1", ["ZYGOTE_S"]),
        ("zygote = 1\nzygote = 2", ["zygote"]),
        ("'a zygote'  # zygote", []),
        ("found = 1", ["found"]),
        ("found = 1\nfor found in (): ...", ["found", "found"]),
        ("def show(found): ...", ["found"]),
        ("if (found := look()): ...", ["found"]),
        ("self.found = look()", ["found"]),
        ("class Pool:\n    found: int", ["found"]),
        ("class Found: ...", ["Found"]),
        ("with look() as found: ...", ["found"]),
        ("match look():\n    case found: ...", ["found"]),
        ("not_found = pool.found", []),
    ],
)
def test_a_retired_word_is_seen_in_every_kind_of_name(source: str, identifiers: list[str]) -> None:
    assert [use.identifier for use in uses_in(source, "pool.py", ["zygote", "found"])] == identifiers


def test_a_module_named_by_a_retired_word_is_seen() -> None:
    assert [use.identifier for use in uses_in("", "kernels/measure/zygote.py", ["zygote"])] == ["zygote"]


def test_the_counts_are_written_into_the_table_alone() -> None:
    test = 'A = {\n    "x": 1,\n}\nREMAINING = {\n    "ghost": 3,\n}\nB = {\n    "ghost": 3,\n}\n'
    written = with_counts(test, {"twin": 2, "zygote": 1})
    assert written == test.replace('"ghost": 3', '"twin": 2,\n    "zygote": 1', 1)
    assert with_counts(written, {}) == test.replace('    "ghost": 3,\n', "", 1)
    with pytest.raises(ValueError, match="REMAINING"):
        with_counts("A = {\n}\n", {})
