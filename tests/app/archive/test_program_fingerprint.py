"""One program, however it is spelled; and programs that only look alike."""

from __future__ import annotations

import pytest

from app.archive.program_fingerprint import LEVELS, fingerprint, roles
from app.objects.evidence import Match

X = "x: bf16[64, 32]\nw: bf16[32, 16]\nb: bf16[16]\n"

ALIKE = [
    (X + "y = x @ w\ny = y + b\nreturn gelu(y)\n", X + "return F.gelu(b + torch.matmul(x, w))\n"),
    (X + "y = x.float()\ny += 1.0\nreturn y\n", X + "return x.to(f32) + 1.0\n"),
    ("a: f32[8]\nreturn a.pow(2)\n", "other: f32[8]\nz = torch.pow(other, 2)\nreturn z\n"),
    ("a: f32[8, 4]\nb: f32[8, 4]\nreturn a @ b.T\n", "a: f32[8, 4]\nb: f32[8, 4]\nreturn a @ b.transpose(-2, -1)\n"),
    ("a: f32[8]\nb: f32[8]\nreturn a * b\n", "c: f32[8]\nd: f32[8]\nreturn d * c\n"),
    ("a: f32[8, 4]\nreturn softmax(a, dim=-1)\n", "a: f32[8, 4]\nreturn a.softmax(-1)\n"),
]
DIFFERENT = [
    ("a: f32[8]\nb: f32[8]\nreturn (a - b) * a\n", "a: f32[8]\nb: f32[8]\nreturn (a - b) * b\n"),
    ("a: f32[8]\nb: f32[8]\nreturn a * b\n", "a: f32[8]\nreturn a * a\n"),
    ("a: f32[8]\nb: f32[8]\nreturn a - b * 2\n", "a: f32[8]\nb: f32[8]\nreturn (a - b) * 2\n"),
    ("a: f32[8]\nreturn a * 2.0\n", "a: f32[8]\nreturn a * 3.0\n"),
    ("a: f32[8]\nreturn relu(a)\n", "a: f32[8].requires_grad\nreturn relu(a)\n"),
    ("a: f32[8, 8]\nreturn a.sum(0)\n", "a: f32[8, 8]\nreturn a.sum(1)\n"),
    ("a: f32[8]\nreturn a, a + 1\n", "a: f32[8]\nreturn a + 1, a\n"),
]


@pytest.mark.parametrize("pair", ALIKE)
def test_names_lines_and_spelling_do_not_count(pair: tuple[str, str]) -> None:
    assert fingerprint(pair[0], "same") == fingerprint(pair[1], "same")


@pytest.mark.parametrize("pair", DIFFERENT)
def test_what_is_computed_does(pair: tuple[str, str]) -> None:
    assert fingerprint(pair[0], "other-sizes") != fingerprint(pair[1], "other-sizes")


def test_layouts_count_first_and_sizes_next() -> None:
    plain, laid = ("x: f32[8, 4]SUFFIX\nreturn x * 2\n".replace("SUFFIX", s) for s in ("", ".strides(1, 8)"))
    larger = plain.replace("8", "16")
    assert fingerprint(plain, "same") != fingerprint(laid, "same")
    assert fingerprint(plain, "other-layout") == fingerprint(laid, "other-layout")
    assert fingerprint(plain, "other-layout") != fingerprint(larger, "other-layout")
    assert fingerprint(plain, "other-sizes") == fingerprint(larger, "other-sizes")


def test_loops_go_by_their_text() -> None:
    loop = "x: f32[8]\nfor i in range(3):\n    x = x * 2\nreturn x\n"
    assert fingerprint(loop, "same") == fingerprint(loop.replace("    x", "  x"), "same")
    assert fingerprint(loop, "same") != fingerprint(loop.replace("range(3)", "range(4)"), "same")


def test_a_text_that_cannot_be_read_is_like_itself_only() -> None:
    assert fingerprint("no region", "same") == fingerprint("no region", "same") != fingerprint("none", "same")


MANY_INPUTS = "".join(f"a{n}: f32[1]\n" for n in range(127)) + "y: f32[8]\nfor i in range(160):\n"
LONG = MANY_INPUTS + "".join(f"    t = ({', '.join(['y'] * 640)})\n" for _ in range(7)) + "return y + 1.0\n"


@pytest.mark.parametrize("level", LEVELS)
def test_a_text_that_takes_minutes_to_write_out_goes_by_its_text(level: Match) -> None:
    """10 KB: 91 million nodes for 128 inputs. On the web process it held the database for half a minute."""
    assert fingerprint(LONG, level) == fingerprint(LONG.replace("y +  1.0", "y + 1.0"), level)
    assert fingerprint(LONG, level) != fingerprint(LONG.replace("1.0", "2.0"), level)
    assert fingerprint(LONG, level) == fingerprint(LONG, "same"), "a text has no levels"
    assert [place for place, _ in roles(LONG)] == [f"{n:04}" for n in range(128)]
