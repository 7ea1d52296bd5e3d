"""The bundler by Python's rules of scope: what a made-up package computes, its single file computes too."""

from __future__ import annotations

from typing import Any

import pytest

from kernels.starter_kit.bundle import bundle
from kernels.starter_kit.module import BundleError

FIRST = '''"""The first."""
from __future__ import annotations

import math
from dataclasses import dataclass

# How far.
SCALE = 2
"""Twice."""


def _helper(x: int) -> int:
    return x * SCALE


@dataclass(frozen=True)
class Pair:
    a: int
    b: int = SCALE

    def total(self) -> int:
        SCALE = 100
        return self.a + self.b + SCALE - 100


def area(r: float) -> float:
    return math.pi * r


def unused() -> None:
    raise RuntimeError
'''
SECOND = '''"""The second."""
import numpy as math
from kernels.first import Pair, area as surface
from kernels import first

SCALE = 3


def _helper(x: int) -> int:
    """Another one of this name. \u00b5"""
    return x + SCALE  # \u00b5 is two bytes


def both(x: int, area: int = 5) -> tuple:
    from kernels.third import late

    first_helper = [_helper(_helper) for _helper in ()]
    u = "\u00b5"; v = _helper(x)
    return (first._helper(x), v, surface(0.0), area, Pair(1).total(), late(x), u, first_helper)
'''
THIRD = """from kernels.second import SCALE


def late(x):
    return x * SCALE
"""
ENTRY = "from kernels.second import both\n\nRESULT = both(10)\n"
TEXTS = {"kernels.first": FIRST, "kernels.second": SECOND, "kernels.third": THIRD, "kernels.entry": ENTRY}


def executed(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "made_up"}
    import sys
    from types import ModuleType

    sys.modules["made_up"] = ModuleType("made_up")  # dataclasses look there
    exec(compile(text, "bundle", "exec"), names)  # noqa: S102 - our own text
    return names


def test_names_mean_something_else_in_one_file() -> None:
    made = bundle("kernels.entry", TEXTS)
    assert executed(made)["RESULT"] == (20, 13, 0.0, 5, 3, 30, "\u00b5", [])
    assert "unused" not in made
    assert "# How far." in made
    assert '"""Twice."""' in made
    assert "# The second." in made


def test_bundle_is_not_the_same_twice() -> None:
    assert bundle("kernels.entry", TEXTS) == bundle("kernels.entry", dict(reversed(TEXTS.items())))


def test_a_definition_can_stand_for_another() -> None:
    instead = {("kernels.third", "late"): ("kernels.other", "late")}
    made = bundle("kernels.entry", {**TEXTS, "kernels.other": "def late(x):\n    return -x\n"}, instead)
    assert executed(made)["RESULT"][5] == -10


def test_unknown_name_of_ours_is_left_in_the_file() -> None:
    with pytest.raises(BundleError, match="nowhere"):
        bundle("kernels.entry", {"kernels.entry": "from kernels.device import nowhere\nx = nowhere\n"})
