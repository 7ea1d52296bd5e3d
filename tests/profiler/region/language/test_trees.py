"""One thread at a time builds a tree; what others do to the parser meanwhile is tried again."""

from __future__ import annotations

import ast
import threading
import time
from typing import Any

import pytest

from profiler.region.language import trees
from tests.conftest import ROOT


def test_two_threads_are_never_in_the_parser_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most, plain = [0], [0], ast.parse

    def slow(*args: Any, **more: Any) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.01)
        inside[0] -= 1
        return plain(*args, **more)

    monkeypatch.setattr(ast, "parse", slow)
    threads = [threading.Thread(target=trees.module, args=("x = 1",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


@pytest.mark.parametrize(("faults", "raised"), [(1, False), (4, False), (5, True)])
def test_a_mismatch_is_tried_again_and_not_for_ever(monkeypatch: pytest.MonkeyPatch, faults: int, raised: bool) -> None:
    plain, left = ast.parse, [faults]

    def faulty(*args: Any, **more: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise SystemError("AST constructor recursion depth mismatch (before=30, after=22)")
        return plain(*args, **more)

    monkeypatch.setattr(ast, "parse", faulty)
    if raised:
        with pytest.raises(SystemError):
            trees.expression("a + b")
    else:
        assert ast.unparse(trees.expression("a + b")) == "a + b"


def test_what_is_no_python_is_a_syntax_error() -> None:
    with pytest.raises(SyntaxError):
        trees.module("x =")
    with pytest.raises(SyntaxError):
        trees.expression("x = 1")


def test_nobody_goes_around_it() -> None:
    places = [p for part in ("app", "profiler", "kernels") for p in (ROOT / part).rglob("*.py")]
    assert len(places) > 200
    users = [str(p.relative_to(ROOT)) for p in places if "ast.parse(" in p.read_text(encoding="utf-8")]
    assert users == ["profiler/region/language/trees.py"]
