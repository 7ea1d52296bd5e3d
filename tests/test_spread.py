"""The suite is spread over the cores by names of files (conftest.py): one that is renamed would fall out silently."""

from __future__ import annotations

from tests.conftest import APART, LONG, ROOT, TOGETHER


def test_every_name_by_which_the_suite_is_spread_is_a_file_or_folder() -> None:
    assert [name for name in (*LONG, *APART, *TOGETHER) if not (ROOT / name).exists()] == []
