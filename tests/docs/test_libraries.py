"""docs/libraries.md is what the catalogue says, and names every call."""

from __future__ import annotations

import subprocess
import sys

from kernels.libraries.catalogue import ENTRIES, OPERATIONS
from tools.docs.library_table import PAGE, main, page


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tools.docs.library_table"
    assert main(["--check"]) == 0


def test_the_page_has_every_operation_and_every_call() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.startswith("## ") and line[3].isdigit()] == [
        f"## {o.row}. {o.name} — {o.verdict}" for o in OPERATIONS
    ]
    assert not [e.candidate for e in ENTRIES if f"`{e.candidate.removeprefix('library:')}`" not in text]


def test_the_catalogue_is_read_without_torch() -> None:
    code = "import sys; import tools.docs.library_table as t; t.page(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=PAGE.parent.parent)
