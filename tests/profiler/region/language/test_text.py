"""Round trips, and every way a text can be wrong: line, column, code, hint, and never a crash."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.region.language import syntax
from profiler.region.language.text import parse, to_text
from profiler.region.model import Input, RegionError
from tests.profiler.region import texts

ALL = {k: v for k, v in vars(texts).items() if k.isupper()}


@pytest.mark.parametrize("name", ALL)
def test_text_that_does_not_round_trip(name: str) -> None:
    region = parse(ALL[name])
    assert parse(to_text(region)) == region
    assert to_text(parse(to_text(region))) == to_text(region)


def test_inputs_read_with_every_suffix() -> None:
    region = parse(
        "N: sizes[37, 911]\nM: sizes[1, 2]\n"
        "x: bf16[N, 4096].requires_grad\nc: f32[2, 3, 4, 5].channels_last\ns: f16[8, 4].strides(1, 8)\n"
        "i: i64[N].below(128)\no: i64[513].offsets(131072)\nm: bf16[N, M].mask(0.9)\nt: f32[()]\nreturn x\n"
    )
    assert region.bindings == ({"N": 37, "M": 1}, {"N": 911, "M": 2})
    assert region.inputs[0] == Input("x", "bf16", ("N", 4096), requires_grad=True)
    assert region.inputs[1].channels_last
    assert region.inputs[2].strides == (1, 8)
    assert region.inputs[3].below == 128
    assert region.inputs[4].offsets == 131072
    assert region.inputs[5].ones == 0.9
    assert region.inputs[6].shape == ()
    assert parse(to_text(region)) == region


WRONG = {
    "": ("region-no-inputs", 1, 1),
    "x: bf16[2]\n": ("region-no-return", 1, 1),
    "x: bfl6[2]\nreturn x": ("region-unknown-dtype", 1, 4),
    "x: bf16[2]\nx: bf16[2]\nreturn x": ("region-declared-twice", 2, 1),
    "x: f32\nreturn x": ("region-syntax", 1, 4),
    "x: f32[2**60]\nreturn x": ("region-syntax", 1, 8),
    "x: f32[1152921504606846976]\nreturn x": ("region-too-large", 1, 8),
    "x: f32[1099511627776, 1099511627776]\nreturn x": ("region-too-large", 1, 8),
    "x: f32[N]\nreturn x": ("region-unknown-name", 1, 8),
    "x: f32[4].below(3)\nreturn x": ("region-syntax", 1, 4),
    "x: f32[4].frobnicate\nreturn x": ("region-unknown-name", 1, 4),
    "x: i64[4].requires_grad\nreturn x": ("region-syntax", 1, 4),
    "x: bf16[2]\ny = __import__('os')\nreturn y": ("region-unknown-name", 2, 5),
    "x: bf16[2]\ny = x.__class__\nreturn y": ("region-unknown-name", 2, 5),
    "x: bf16[2]\ny = [a for a in x]\nreturn y": ("region-syntax", 2, 5),
    "x: bf16[2]\ny = lambda: x\nreturn y": ("region-syntax", 2, 5),
    "x: bf16[2]\nimport os\nreturn x": ("region-syntax", 2, 1),
    "x: bf16[2]\nwhile x: pass\nreturn x": ("region-syntax", 2, 1),
    "x: bf16[2]\nreturn x\ny = x": ("region-syntax", 3, 1),
    "x: bf16[2]\n  y = x\nreturn y": ("region-syntax", 2, 2),
    "x: bf16[2]\ny = x < x < x\nreturn y": ("region-syntax", 2, 5),
    "x: bf16[2]\nx[0] = 1\nreturn x": ("region-syntax", 2, 1),
    "x: bf16[2]\ny = 'a' f'{x}'\nreturn y": ("region-syntax", 2, 5),
    "x: bf16[2]\0\nreturn x": ("region-syntax", 1, 11),
    "x: bf16[2]\ny = " + "-" * 15_000 + "x\nreturn y": ("region-too-long", 2, 2001),
    "x: bf16[2]\ny = x" + ".T" * 7_000 + "\nreturn y": ("region-too-long", 2, 2001),
    "x: bf16[2]\ny = " + "(" * 300 + "x" + ")" * 300 + "\nreturn y": ("region-too-deep", 2, 45),
    "x" * 20_000: ("region-too-long", 1, 1),
    "N: sizes[1, 2]\nM: sizes[1]\nx: f32[N, M]\nreturn x": ("region-sizes", 1, 1),
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_text_named_with_its_place(text: str) -> None:
    started = time.perf_counter()
    with pytest.raises(RegionError) as caught:
        parse(text)
    fault = caught.value
    assert (fault.code, fault.line, fault.column) == WRONG[text]
    assert fault.message
    assert "\n" not in fault.message
    assert time.perf_counter() - started < 5.0
    str(fault)


def test_hint_names_the_nearest_dtype() -> None:
    with pytest.raises(RegionError) as caught:
        parse("x: bfl6[2]\nreturn x")
    assert caught.value.hint == "did you mean bf16?"


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=300))
def test_any_text_parses_or_says_why(text: str) -> None:
    try:
        region = parse(text)
    except RegionError as fault:
        assert fault.line >= 1
    else:
        assert parse(to_text(region)) == region


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(["x", "y", "=", "(", ")", "[", "]", "@", "+", "-", "return", "\n", ": bf16[2]", ".T",
                                 "gelu", "for i in range(3):\n  ", "1e400", "0x", "None", "...", ",", "**", "'"]),
                max_size=40))  # fmt: skip
def test_shuffled_tokens_parse_or_say_why(tokens: list[str]) -> None:
    try:
        region = parse("x: bf16[2]\n" + " ".join(tokens))
    except RegionError as fault:
        assert fault.code.startswith("region-")
    else:
        assert parse(to_text(region)) == region


def test_a_text_that_is_asked_about_again_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks, and under which name; what is wrong with a text is said each time."""
    reads: list[str] = []
    read = syntax.read
    monkeypatch.setattr(syntax, "read", lambda text: (reads.append(text), read(text))[1])
    text, wrong = "x: f32[3, 17]\nreturn gelu(x)\n", "x: f32[3, 17]\n\nreturn gelu(x\n"
    first, second = parse(text, "one"), parse(f"\ufeff{text}", "another")
    assert (first.name, second.name) == ("one", "another")
    assert first == second
    assert reads == [text]
    for _ in range(2):
        with pytest.raises(RegionError) as raised:
            parse(wrong)
        assert (raised.value.line, raised.value.text) == (3, wrong)
