"""What was made last: once for those who ask again, no more than there is room for, nothing of what failed."""

from __future__ import annotations

import pytest

from app.lru_cache import Recent


def test_it_is_made_once_and_what_was_not_asked_for_longest_goes_first():
    made: list[str] = []
    kept: Recent[str] = Recent(2)

    def asked(key: str) -> str:
        return kept.of(key, lambda: made.append(key) or key.upper())

    assert [asked(k) for k in ("a", "b", "a", "c", "a", "b")] == ["A", "B", "A", "C", "A", "B"]
    assert made == ["a", "b", "c", "b"]


def test_what_fails_is_told_and_made_again():
    kept: Recent[int] = Recent(2)
    with pytest.raises(KeyError):
        kept.of("a", lambda: {}["none"])
    assert kept.of("a", lambda: 1) == 1
