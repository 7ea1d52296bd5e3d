"""docs/contributing.md: the files and commands that it sends a newcomer to are there, and its example is a page."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest
from fastapi import FastAPI

from app.web.server.access import Access
from app.web.server.contract import audit
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
ROWS = re.findall(r"(?m)^\| (an? .*?) \| (.*?) \| (.*?) \| (.*?) ?\|$", PAGE)


def test_every_task_has_a_row() -> None:
    assert [row[0].split()[1].strip("'s") for row in ROWS] == [
        "threshold", "criterion", "operation", "library", "kernel", "page", "kind",
    ]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_names_files_that_are_there(row: tuple[str, ...]) -> None:
    paths = re.findall(r"`([\w/.*]+/[\w.*]*)`", " ".join(row))
    assert paths
    for path in paths:
        folder, _, name = path.partition("NAME")
        assert list(ROOT.glob(folder if not name else f"{folder}*{name}")), path


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`python -m ([\w.]+)`", PAGE))))
def test_a_command_is_there(command: str) -> None:
    assert importlib.util.find_spec(command) is not None


def test_the_example_of_a_page_is_one_that_a_server_takes() -> None:
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    module: dict[str, Any] = {}
    exec(compile(source, "docs/contributing.md", "exec"), module)  # noqa: S102
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.include_router(module["router"])
    assert audit(app.routes).access == {("GET", "/packages"): Access.READ, ("GET", "/packages.json"): Access.READ}
