"""Bisection: the order halves what is left, and following it finds each commit in about log2 of them."""

from __future__ import annotations

import math

from app.history.bisection import bisection_order


def test_the_middle_comes_first_and_the_bad_one_not_at_all() -> None:
    assert bisection_order(["a", "b", "c", "bad"]) == ["b", "a", "c"]
    assert bisection_order(["bad"]) == []
    assert bisection_order([]) == []


def test_what_was_measured_is_left_out() -> None:
    assert bisection_order(["a", "b", "c", "bad"], {"b"}) == ["c", "a"]


def test_following_the_order_finds_every_culprit() -> None:
    commits = list(range(100))
    for culprit in commits:
        left, tries = commits, 0
        while len(left) > 1:
            tried = int(bisection_order([str(c) for c in left])[0])
            tries += 1
            left = [c for c in left if c <= tried] if tried >= culprit else [c for c in left if c > tried]
        assert left == [culprit]
        assert tries <= math.ceil(math.log2(len(commits))) + 1
