"""Lines of texts written for it: what they do not tell is at the function, and large ones are soon read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Watched

pytestmark = pytest.mark.browser

PARSER = Path(__file__).parents[3] / "static" / "source_lines.js"
MOST_MS = 10_000


@pytest.fixture
def page(open_page: Any) -> Page:
    watched: Watched = open_page()
    watched.page.goto("about:blank")
    watched.page.evaluate(PARSER.read_text(encoding="utf-8"))
    return watched.page


def lines(page: Page, text: str, *calls: tuple[list[str], int, int], at: int = 1, name: str = "f") -> list[str]:
    """Of each call (names, turn, turns) its line, "?" behind one that is only likely."""
    rows = [[at, name, *call] for call in calls]
    found = page.evaluate("([t, c]) => sourceLines.linesOfCalls(sourceLines.parse(t), c)", [text, rows])
    return [f"{to['line']}{'?' if to['likely'] else ''}" for to in found]


TWICE = (["g"], 0, 2), (["g"], 1, 2)


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    if c:\n        x = g(x)\n    else:\n        x = h(g(x))\n    k = g\n    return k(x)\n",
        "def f(x):\n    try:\n        x = g(x)\n    except E:\n        x = h(g(x))\n    k = g\n    return k(x)\n",
        "def f(x):\n    x = g(x) if c else x\n    y = g(x)\n    k = g\n    return k(x)\n",
        "def f(x):\n    x = c and g(x)\n    y = g(x)\n    k = g\n    return k(x)\n",
    ],
)
def test_where_a_branch_may_not_run_turns_tell_no_line(page: Page, text: str) -> None:
    assert lines(page, text, *TWICE) == ["0", "0"]


def test_a_branch_around_the_function_takes_nothing_from_its_turns(page: Page) -> None:
    text = "if there:\n    def f(x):\n        x = g(x)\n        return g(x)\n"
    assert lines(page, text, *TWICE, at=2) == ["3", "4"]


@pytest.mark.parametrize(
    ("body", "names", "line"),
    [
        ("h = n // 2 + d", ["aten::add"], "0"),  # what the program counts
        ("i = n + 1", ["aten::add"], "0"),
        ("i = 1_000 * n", ["aten::mul"], "0"),
        ("if n * 3 > 4: pass", ["aten::mul"], "0"),
        ("y = x + z", ["aten::add"], "2?"),
        ("y = x * 0.5", ["aten::mul"], "2?"),
        ("y = x + z", ["add", "aten::add"], "0"),  # a function of this name was called
        ("y = x + z", ["helper", "aten::add"], "0"),
        ("y = 1.0 / x", ["__rdiv__", "aten::mul"], "2?"),
        ("y = torch.add(x, z)", ["add", "aten::add"], "2"),
        ("n = n + 1\n    y = x + z", ["aten::add"], "3?"),
    ],
)
def test_an_operator_stands_for_an_operation_that_no_function_called(
    page: Page, body: str, names: list[str], line: str
) -> None:
    assert lines(page, f"def f(x):\n    {body}\n    return helper2(x)\n", (names, 0, 1)) == [line]


def module(classes: int, body: int) -> str:
    rows = "".join(f"        x = (x + y{n}) * self.a(x) - z[i{n}]\n" for n in range(body))
    init = "    def __init__(self):\n        self.a = nn.Linear(1, 2)\n"
    return "".join(f"class C{n}(nn.Module):\n{init}    def forward(self, x):\n{rows}" for n in range(classes))


def timed(page: Page, text: str, calls: list[list[object]]) -> tuple[float, int]:
    """Milliseconds, and how often a pattern was tried."""
    took: list[float] = page.evaluate(
        """([text, calls]) => {
          const exec = RegExp.prototype.exec, start = performance.now();
          let tried = 0;
          RegExp.prototype.exec = function (...of) { tried += 1; return exec.apply(this, of); };
          try { sourceLines.linesOfCalls(sourceLines.parse(text), calls); } finally { RegExp.prototype.exec = exec; }
          return [performance.now() - start, tried];
        }""",
        [text, calls],
    )
    return took[0], int(took[1])


def test_a_large_file_of_many_classes_is_soon_read(page: Page) -> None:
    text = module(40, 96)
    names = [["module Conv", "n1", "n2", "aten::add"], ["module Linear"], ["aten::add"]]
    calls: list[list[object]] = [[4 + 100 * (i % 40), "forward", names[i % 3], 0, 3] for i in range(800)]
    ms, tried = timed(page, text, calls)
    assert ms < MOST_MS
    assert tried < 1.5 * timed(page, text, calls[:120])[1]  # each text is searched once, however many calls


def test_a_long_function_is_soon_read(page: Page) -> None:
    text = "def f(x):\n" + "".join(f"    x = (x + y{n}) * self.a(x) - z[i{n}]\n" for n in range(4000))
    calls: list[list[object]] = [[1, "f", [f"n{i}", "aten::add"], 0, 3] for i in range(100)]
    ms, tried = timed(page, text, calls)
    assert ms < MOST_MS
    assert tried < 1.5 * timed(page, text, calls[:1])[1]
