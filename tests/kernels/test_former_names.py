"""Spellings that stand in stored records, exported files and users' code import what they always did."""

from __future__ import annotations

import importlib
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.former_names import FORMER_NAMES, present_name
from kernels.hand_written import WRITTEN
from kernels.operations import operations
from tests.conftest import ROOT

NAMES_BY_MODULE: dict[str, str] = json.loads((Path(__file__).parent / "former_names.json").read_text())
"""Every module that was moved -> the public names that it had the day before."""
LAUNCHER = re.compile(r"from (kernels[\w.]*) import (\w+)\\n")


@pytest.mark.parametrize("module", NAMES_BY_MODULE)
def test_a_former_name_is_the_present_module_with_all_that_it_had(module: str) -> None:
    present = importlib.import_module(present_name(module))
    assert importlib.import_module(module) is present
    assert present.__name__ == present_name(module) != module
    assert present.__spec__ is not None
    assert present.__spec__.name == present.__name__
    assert [n for n in NAMES_BY_MODULE[module].split() if not hasattr(present, n)] == []


def test_every_former_name_is_held_here_and_stands_for_a_file() -> None:
    assert set(NAMES_BY_MODULE) == {f"kernels.{name}" for name in FORMER_NAMES}
    for present in FORMER_NAMES.values():
        assert (ROOT / "kernels" / f"{present.replace('.', '/')}.py").is_file(), present
    for former in FORMER_NAMES:
        path = ROOT / "kernels" / former.replace(".", "/")
        assert not path.exists(), "a package of a former name would hide what the name stands for"
        assert not path.with_suffix(".py").exists()


def test_calls_in_the_archive_and_in_advice_import_what_they_name() -> None:
    archive = (ROOT / "app" / "archive" / "records").glob("*.json")
    records = [*archive, ROOT / "tests" / "records" / "validations-h200.json"]
    calls = {found for path in records for found in LAUNCHER.findall(path.read_text())}
    calls |= {found for w in WRITTEN for found in LAUNCHER.findall(w.call.replace("\n", "\\n"))}
    assert len(calls) >= 15
    for module, name in calls:
        assert callable(getattr(importlib.import_module(module), name)), (module, name)


def test_every_launcher_that_advice_prints_keeps_its_short_public_spelling() -> None:
    for written in WRITTEN:
        module, name = LAUNCHER.findall(written.call.replace("\n", "\\n"))[0]
        assert re.fullmatch(r"kernels\.\w+", module), module
        assert present_name(module) in {o.run.__module__ for o in operations()}, (module, name)


def test_a_replacement_under_a_former_name_is_seen_under_the_present_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernels.ops.norm import rms_norm

    monkeypatch.setattr("kernels.rms_norm.NAME", "another")
    assert rms_norm.NAME == "another"


def test_a_function_pickled_under_a_former_name_is_read() -> None:
    by_former_name = pickle.dumps(operations, protocol=0).replace(b"kernels.operations", b"kernels.catalogue")
    assert b"catalogue" in by_former_name
    assert pickle.loads(by_former_name) is operations  # noqa: S301 - written two lines above


def test_the_file_of_a_former_name_is_told_without_importing_it() -> None:
    script = (
        "import importlib.util, sys, kernels\n"
        "assert not {'torch', 'triton', 'numpy'} & set(sys.modules)\n"
        "origin = importlib.util.find_spec('kernels.softmax').origin\n"
        "assert origin.endswith('kernels/ops/softmax/softmax.py'), origin\n"
        "assert importlib.util.find_spec('kernels.no_such_operation') is None\n"
        "assert not {'torch', 'triton', 'numpy', 'kernels.ops.softmax.softmax'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=60)
