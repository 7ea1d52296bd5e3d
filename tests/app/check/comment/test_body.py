"""The comment's text: its marker, and how it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from app.check.comment.body import begins_with, fit, marker_of
from app.check.formats.markdown import marker
from tests.app.check.validators import markdown

LINK = "https://example.org/o/r/actions/runs/3"
HEAD = f"{marker('nightly')}\n\n### Tritonworthy\n"
DETAILS = "<details><summary>What to write</summary>\n\n```python\n" + "x = 1\n" * 200 + "```\n\n</details>\n"


@pytest.mark.parametrize("name", ["nightly", "a b", "Ünder_score", "", "-->"])
def test_the_marker_that_a_report_has_is_known_again(name: str) -> None:
    assert marker_of(f"{marker(name)}\n\ntext") == marker(name)
    assert begins_with(f"{marker(name)}\r\n\r\ntext", marker(name))
    assert not begins_with(f"{marker(name + 'x')}\n", marker(name))


@pytest.mark.parametrize("text", ["", "# A readme\n", "<!-- other -->\n", f" {marker('x')}\n", f"> {marker('x')}\n"])
def test_what_is_no_report_has_no_marker(text: str) -> None:
    assert marker_of(text) is None


def test_a_short_report_is_left_as_it_is() -> None:
    assert fit(HEAD, len(HEAD), "GitHub", LINK) == HEAD


def test_a_long_report_says_that_it_was_cut_and_where_the_whole_is() -> None:
    text = HEAD + "a line\n" * 400
    cut = fit(text, 1000, "GitHub", LINK)
    assert 900 < len(cut) <= 1000
    assert cut.startswith(HEAD)
    assert "**Cut here.** The report has 2,8" in cut and "a comment on GitHub at most 1,000" in cut
    assert cut.endswith(f"[the whole report](<{LINK}>).\n")


def test_a_link_that_is_none_is_left_out() -> None:
    for link in ("", "javascript:alert(1)", "https://a> [b](", "https://a b"):
        assert "](" not in fit(HEAD + "a line\n" * 400, 1000, "GitHub", link)


def test_code_and_details_that_are_cut_are_closed() -> None:
    cut = fit(HEAD + DETAILS, 700, "GitHub")
    assert len(cut) <= 700
    assert cut.count("```") == 2 and cut.count("</details>") == 1
    assert markdown(cut)[-3].type == "paragraph_open", "the last paragraph is text and not code"


@given(
    blocks=st.lists(
        st.sampled_from(["word " * 20, "| a | b |\n|:-|-:|\n| 1 | 2 |", DETAILS, "````\n```\n````"]), max_size=12
    ),
    most=st.integers(400, 3000),
)
def test_however_it_is_cut_it_is_a_report_of_the_allowed_length(blocks: list[str], most: int) -> None:
    text = HEAD + "\n".join(f"\n{block}\n" for block in blocks)
    cut = fit(text, most, "GitLab", LINK)
    assert len(cut) <= max(most, 0)
    assert marker_of(cut) == marker("nightly")
    assert cut.count("<details>") == cut.count("</details>")
    rendered = MarkdownIt("commonmark", {"html": True}).render(cut)
    assert cut == text or "<strong>Cut here.</strong>" in rendered
