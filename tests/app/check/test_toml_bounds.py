"""A configuration that would take long to parse is refused before it is parsed, and no other is."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.check.config import ConfigError, from_mapping, read_toml
from app.check.toml_bounds import MAX_CHARS, MAX_KEY_PARTS, BoundsError, check_bounds

LONG_KEY = ".".join(["a"] * 20_000)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("[check]\nstep_time_us = " + "9" * 60_000, 2, "more than 200 characters"),
        ("[check]\nstep_time_us = 0x" + "f" * 60_000, 2, "more than 200 characters"),
        ("[check]\nstep_time_us = 1." + "9" * 60_000, 2, "more than 200 characters"),
        ("k" * 60_000 + " = 1", 1, "more than 200 characters"),
        (f"{LONG_KEY} = 1", 1, "more than 8 parts"),
        (f"\n[{LONG_KEY}]", 2, "more than 8 parts"),
        (f"[assertions]\nlibrary.{LONG_KEY} = 1", 2, "more than 8 parts"),
        ("a = {" + " . ".join(['"a"', "'b'", "c"] * 4000) + " = 1}", 1, "more than 8 parts"),
        ('# """\n' + LONG_KEY + " = 1", 2, "more than 8 parts"),
        ('a = """x""""\n' + LONG_KEY + " = 1", 2, "more than 8 parts"),
        ("[check]\nname = 'x'\n" + "#" * MAX_CHARS, None, "at most 65536 characters"),
        ("a = " + "[" * 60_000, None, "nested too deep"),
    ],
)
def test_what_would_take_long_to_parse_is_refused_with_its_line(text: str, line: int | None, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_toml(text, "ci.toml")
    assert said in caught.value.message
    assert caught.value.line == line
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("value", [10**60_000, {"a": -(10**5000)}, [10**5000]], ids=["alone", "object", "list"])
def test_a_number_of_any_length_in_json_is_refused_and_not_shown(value: Any) -> None:
    for data in ({"check": {"step_time_us": value}}, {"assertions": {"triton": value}}):
        with pytest.raises(ConfigError) as caught:
            from_mapping(data)
        assert "too long to show" in caught.value.message


def test_a_key_of_any_length_in_json_is_not_repeated_whole() -> None:
    for data in ({"k" * 60_000: 1}, {"check": {"k" * 60_000: 1}}, {"assertions": {"k" * 60_000: "warn"}}):
        with pytest.raises(ConfigError) as caught:
            from_mapping(data)
        assert len(caught.value.message) < 700


BARE = st.text(st.sampled_from("abzAZ09_-"), min_size=1, max_size=5)
TEXT = st.text(st.sampled_from("ab.#='[]{},\" "), max_size=30)
BASIC = TEXT.map(lambda text: '"' + text.replace('"', '\\"') + '"')
LITERAL = TEXT.map(lambda text: "'" + text.replace("'", "") + "'")
BLOCK = st.builds(
    lambda text, quotes: '"""' + text.replace('"', '\\"') + "\n" + quotes + '"""',
    TEXT,
    st.sampled_from(["", '"', '""']),
)
VALUE = st.one_of(BASIC, LITERAL, BLOCK, st.sampled_from(["1.5e3", "1979-05-27T07:32:00.999", "[1, 2.5]", "-inf"]))
LINE = st.tuples(st.lists(st.one_of(BARE, BASIC, LITERAL), min_size=1, max_size=12), VALUE, st.sampled_from(["", "#'"]))


@settings(max_examples=300, deadline=None)
@given(st.lists(LINE, max_size=4), st.sampled_from([".", " . ", "\t."]))
def test_a_text_is_refused_for_its_keys_alone(lines: list[tuple[list[str], str, str]], dot: str) -> None:
    text = "".join(f"{dot.join(key)} = {value} {comment}\n" for key, value, comment in lines)
    for key, value, _ in lines:
        tomllib.loads(f"{dot.join(key)} = {value}")  # what is written here is TOML
    longest = max((len(key) for key, *_ in lines), default=0)
    if longest <= MAX_KEY_PARTS:
        check_bounds(text)
        return
    with pytest.raises(BoundsError) as caught:
        check_bounds(text)
    first = next(i for i, (key, *_) in enumerate(lines) if len(key) > MAX_KEY_PARTS)
    before = "".join(f"{dot.join(key)} = {value} {comment}\n" for key, value, comment in lines[:first])
    assert caught.value.line == before.count("\n") + 1
