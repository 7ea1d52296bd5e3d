"""Assertions read from TOML and JSON: every mistake names its key and, in a file, its line."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.check import history, regions, steps
from app.check.config import CRITERIA, DEFAULTS, OPTIONS, REQUIRED, Assertion, ConfigError, from_mapping, read_toml
from app.check.toml_keys import line_of

TOML = """\
# a comment
[check]
name = "nightly"
validate = true
share_of_step = 1

[assertions]
library = "off"
compile-fuses = { level = "error", min_share = 0.05, new_only = true }
"beats:norm" = ["error", { candidate = "triton:rms_norm", over = "compile" }]

[assertions.step-time]
level = "warn"
max_us = 16000
"""


def test_the_three_ways_to_write_an_assertion_are_read() -> None:
    config = read_toml(TOML)
    assert (config.name, config.validate, config.share_of_step) == ("nightly", True, 1.0)
    assert config.assertions == (
        Assertion("library", "library", "off"),
        Assertion("compile-fuses", "compile-fuses", "error", min_share=0.05, new_only=True),
        Assertion("beats:norm", "beats", "error", candidate="triton:rms_norm", over="compile", min_speedup=1.0,
                  evidence="recorded"),
        Assertion("step-time", "step-time", "warn", max_us=16000.0),
    )  # fmt: skip
    assert [a.name for a in config.active] == ["compile-fuses", "beats:norm", "step-time"]
    assert from_mapping(tomllib.loads(TOML)) == config


def test_without_assertions_the_defaults_hold_and_an_empty_table_asserts_nothing() -> None:
    assert read_toml("").assertions == DEFAULTS.assertions
    assert read_toml("[assertions]").assertions == ()


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("[check]\nname = 1", 2, 'check.name: a text is wanted, not 1'),
        ("[check]\n\nvalidate = 'yes'", 3, "true or false"),
        ("[check]\nnane = 'x'", 2, "check.nane: there is no such key; did you mean name?"),
        ("[check]\nname = 'A--b'", 2, "lower-case"),
        ("[check]\nshare_of_step = true", 2, "a share, 0 to 1 is wanted, not true"),
        ("[check]\nshare_of_step = 1.5", 2, "a share, 0 to 1"),
        ("[check]\nbudget_s = nan", 2, "seconds"),
        ("check = 3", 1, "check: a table is wanted"),
        ("[other]\nx = 1", 1, "other: there is no such key"),
        ("[assertions]\nlibary = 'warn'", 2, "assertions.libary: there is no such assertion; did you mean library?"),
        ("[assertions]\nlibrary = 'warning'", 2, "the level is off, warn or error, not 'warning'"),
        ("[assertions]\nlibrary = 3", 2, "assertions.library: a level"),
        ("[assertions]\nlibrary = ['warn', 2]", 2, "a level"),
        ("[assertions]\nlibrary = { min_share = 0.1 }", 2, "a level"),
        ("[assertions]\n\n\nlibrary = { level = 'warn', min_shar = 0.1 }", 4, "did you mean min_share?"),
        ("[assertions]\nlibrary = { level = 'warn', holds = true }", 2, "library has no such option"),
        ("[assertions]\nregression = { level = 'warn', min_share = 0.1 }", 2, "regression has no such option"),
        ("[assertions.triton]\nlevel = 'warn'\nmin_share = 'x'", 3, "assertions.triton.min_share: a share"),
        ("[assertions]\ntriton.level = 'warn'\ntriton.evidence = 'guessed'", 3, "predicted, recorded, measured"),
        ("[assertions]\nbeats = 'error'", 2, "beats needs the option candidate"),
        ('[assertions]\n"beats:a.b" = ["error", { candidate = "c", evidence = "predicted" }]', 2, "compares times"),
        ("[assertions]\nstep-time = { level = 'warn' }", 2, "needs the option max_us"),
        ('[assertions]\n"triton:" = "warn"', 2, "after the colon"),
        ("[assertions]\ntriton = 'warn'\n[assertions", 3, "not TOML"),
        ("[assertions]\ntriton = 1979-05-27", 2, "a level"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_file_line_and_key(text: str, line: int, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_toml(text, "ci.toml")
    assert caught.value.message.startswith(f"ci.toml:{line}: "), caught.value.message
    assert said in caught.value.message
    assert caught.value.line == line


def test_a_wrong_value_is_not_repeated_at_length() -> None:
    with pytest.raises(ConfigError) as caught:
        from_mapping({"assertions": {"triton": "x" * 100_000}})
    assert len(caught.value.message) < 300


def test_too_many_assertions_are_refused() -> None:
    with pytest.raises(ConfigError, match="at most 200"):
        from_mapping({"assertions": {f"triton:{n}": "warn" for n in range(201)}})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)
OPTION = st.sampled_from(sorted({o for options in OPTIONS.values() for o in options}))


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from([*OPTIONS, "nothing", "triton:x"]), st.one_of(JSON, st.dictionaries(OPTION, JSON))),
    st.dictionaries(st.sampled_from(["name", "validate", "device", "share_of_step", "budget_s", "no"]), JSON),
)
def test_whatever_json_comes_it_is_a_configuration_or_a_config_error(asserted: Any, check: Any) -> None:
    try:
        config = from_mapping({"check": check, "assertions": asserted})
    except ConfigError as error:
        assert error.key
        return
    assert {a.name for a in config.assertions} == set(asserted)


def test_every_kind_of_assertion_is_carried_out_and_none_is_made_up() -> None:
    assert set(OPTIONS) == {*regions.KINDS, *steps.KINDS, history.CHECK}
    assert set(REQUIRED) <= set(OPTIONS)


def test_criteria_are_the_rules_own() -> None:
    from app.analysis import service

    region = service.advise_region("x: bf16[8192, 4096]\ny = gelu(x) * 2\nreturn y\n")
    assert {c["name"] for c in region["advice"]["criteria"]} == set(CRITERIA)


@pytest.mark.parametrize(
    ("key", "line"),
    [("check.name", 3), ("assertions.library", 8), ('assertions."beats:norm".over', 10),
     ("assertions.step-time.max_us", 14), ("assertions.step-time", 12), ("assertions.none", 7), ("nothing", None)],
)  # fmt: skip
def test_lines_of_keys(key: str, line: int | None) -> None:
    assert line_of(TOML, key) == line
