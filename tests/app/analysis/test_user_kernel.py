"""A kernel as the user names it: found in the file's text, which is not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.analysis.user_kernel import UserKernelError, named_kernel

TEXT = """\
import os
from math import *  # noqa
raise SystemExit("it was run")


class Norm:
    pass


if os.name:
    def branch(x):
        inner = x
        return inner
else:
    other = branch = None
one, (two, three) = 1, (2, 3)
"""


def test_a_function_is_found_wherever_the_module_binds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(TEXT.replace("from math import *  # noqa\n", ""))
    for name, line in (("Norm", 5), ("other", 14), ("three", 15), ("os", 1)):
        named = named_kernel(f"mine.py:{name}", tmp_path)
        assert named.line == line
        assert named.source == f"mine.py:{line} {name}"
    assert named_kernel("mine.py:branch", tmp_path).kernel.path == str(tmp_path / "mine.py")
    with pytest.raises(UserKernelError, match="has no inner"):
        named_kernel("mine.py:inner", tmp_path)


def test_what_a_star_import_may_bind_is_left_to_the_measurement(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TEXT)
    assert named_kernel("mine.py:anything", tmp_path).line == 1


def test_a_place_outside_of_where_the_command_runs_stays_as_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "mine.py").write_text(TEXT)
    assert named_kernel("mine.py:Norm", tmp_path).source == "mine.py:6 Norm"
    monkeypatch.chdir(tmp_path)
    assert named_kernel("../mine.py:Norm", tmp_path / "here").source == "mine.py:6 Norm"
