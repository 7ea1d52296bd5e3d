"""What an edit changed in generated code: applied to the text before, the difference gives the text after."""

from __future__ import annotations

import pytest

from app.web.views.region.code_changes import MOST_LINES, code_change

BEFORE = "\n".join(f"line {n}" for n in range(40))


@pytest.mark.parametrize(
    "after",
    [
        BEFORE.replace("line 7\n", "line seven\n"),
        BEFORE + "\nmore",
        BEFORE.removeprefix("line 0\n"),
        "",
        "--- x\n+++ y",
    ],
)
def test_the_lines_that_stay_and_come_are_those_of_the_text_after(after: str) -> None:
    change = code_change("ours", BEFORE, after)
    shown = [line for line in change["lines"] if line["change"] != "place"]
    came = [line["text"][1:] for line in shown if line["change"] in ("same", "added")]
    went = [line["text"][1:] for line in shown if line["change"] in ("same", "removed")]
    assert set(came) <= set(after.split("\n"))
    assert set(went) <= set(BEFORE.split("\n"))
    assert change["added"] - change["removed"] == len(after.split("\n")) - len(BEFORE.split("\n"))
    assert change["added"] == sum(line["change"] == "added" for line in shown)


def test_the_same_code_has_no_difference() -> None:
    assert code_change("ours", BEFORE, BEFORE)["lines"] == []


def test_code_that_is_not_there_yet_is_said_to_be_unknown_and_not_to_be_new() -> None:
    change = code_change("Inductor", None, BEFORE)
    assert (change["unknown"], change["lines"]) == (True, [])


def test_a_long_difference_is_cut_and_says_by_how_much() -> None:
    change = code_change("ours", "", "\n".join(str(n) for n in range(2 * MOST_LINES)))
    assert len(change["lines"]) == MOST_LINES
    assert change["left"] + MOST_LINES == change["added"] + change["removed"] + 1
