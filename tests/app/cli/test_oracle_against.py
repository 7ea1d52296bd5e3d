"""tritonworthy oracle --against: which environment is asked, what differs, and with which status."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from app import cli
from app.cli.environments import named
from app.cli.environments.compared import ComparedMode, ComparedOracles, compare_predictions, compared_text
from app.cli.environments.named import environment_of
from app.cli.inputs import InputError
from profiler.oracle.environment import Environment
from profiler.oracle.model import Extern, OracleKernel, Prediction
from tests.app.check.contracts.answers import ONE
from tests.profiler.oracle.test_environment import empty, other

__all__ = ["empty", "other"]

SOURCE = "import triton\n@triton.jit\ndef {name}(x):\n    {body}\n"
SUM = OracleKernel("sum_0", "reduction", 1, 100, ("aten.sum",), SOURCE.format(name="sum_0", body="return x"))
ADD = OracleKernel("add_1", "pointwise", 1, 50, ("aten.add",), SOURCE.format(name="add_1", body="return x + 1"))
HERE = Prediction("NVIDIA H200", "default", {}, False, (SUM, ADD), torch="2.13.0", triton="3.7.1")
BOTH = OracleKernel("both_0", "reduction", 1, 100, ("aten.sum", "aten.add"), SOURCE.format(name="both_0", body="pass"))
THERE = Prediction("NVIDIA H200", "default", {}, False, (BOTH,), (Extern("mm", 2),), torch="2.14.0", triton="3.8.0")


def test_kernels_that_one_has_and_the_other_has_not_are_named_with_a_diff_of_the_sources() -> None:
    mode = compare_predictions(HERE, THERE)
    assert mode["outcome"] == "differs"
    assert mode["only_here"] == ["reduction of aten.sum", "pointwise of aten.add"]
    assert mode["only_there"] == ["reduction of aten.sum, aten.add", "library call mm", "library call mm"]
    assert mode["diff"].startswith("--- torch 2.13.0\n+++ torch 2.14.0\n")
    assert "-def sum_0(x):" in mode["diff"] and "+def both_0(x):" in mode["diff"]
    assert "import triton" not in mode["diff"]
    text = compared_text(answer(mode))
    assert "torch 2.13.0, Triton 3.7.1: 2 launches, 150 bytes; torch 2.14.0, Triton 3.8.0: 3 launches" in text
    assert "  only torch 2.14.0: library call mm" in text


def test_kernels_of_one_kind_written_otherwise_differ() -> None:
    rewritten = replace(SUM, source=SUM.source.replace("return x", "return 0 + x"))
    mode = compare_predictions(HERE, replace(HERE, kernels=(rewritten, ADD), torch="2.14.0"))
    assert (mode["outcome"], mode["only_here"], mode["only_there"]) == ("differs", [], [])
    assert "the same kinds of kernels of the same operations, written otherwise" in compared_text(answer(mode))


def test_imports_and_settings_of_another_version_are_no_difference() -> None:
    newer = replace(SUM, source=SUM.source.replace("import triton\n", "import triton\n# backend_hash 2\n"))
    mode = compare_predictions(HERE, replace(HERE, kernels=(newer, ADD), torch="2.14.0"))
    assert (mode["outcome"], mode["diff"]) == ("same", "")


def test_one_that_has_no_answer_is_no_difference() -> None:
    mode = compare_predictions(HERE, replace(THERE, kernels=(), unavailable="AttributeError: moved"))
    assert (mode["outcome"], mode["diff"], mode["only_here"]) == ("unavailable", "", [])
    assert "AttributeError: moved" in compared_text(answer(mode))


def answer(mode: ComparedMode) -> ComparedOracles:
    return {"name": "r", "text": ONE.text, "device": "NVIDIA H200", "environment": "/e/bin/python", "modes": [mode]}


def test_the_same_torch_elsewhere_is_status_0(other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    region = tmp_path / "region.txt"
    region.write_text("x: bf16[4096, 4096]\ny = gelu(x) * 2\nreturn y\n")
    assert cli.main(["oracle", str(region), "--device", "H200", "--against", str(other), "--json"]) == 0
    (mode,) = json.loads(capsys.readouterr().out)["modes"]
    assert (mode["outcome"], mode["here"]["kernels"]) == ("same", mode["there"]["kernels"])


def test_what_is_no_environment_is_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    region = tmp_path / "region.txt"
    region.write_text("x: bf16[8]\ny = gelu(x)\nreturn y\n")
    assert cli.main(["oracle", str(region), "--against", str(tmp_path / "none")]) == 1
    assert "no Python interpreter" in capsys.readouterr().err


def test_a_requirement_picks_the_newest_of_your_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    yours = {"/a": "2.13.0+cpu", "/b": "2.14.0", "/c": "2.14.1+cu130"}
    monkeypatch.setattr(named, "inspect_environment", lambda path: Environment(path, yours[str(path)], "3.7"))
    variables = {named.VARIABLE: "/a:/b::/c"}
    assert environment_of("torch==2.14.*", variables).torch == "2.14.1+cu130"
    assert environment_of("torch==2.13.0", variables).torch == "2.13.0+cpu"
    with pytest.raises(InputError, match=r"/b has 2\.14\.0"):
        environment_of("torch==2.12.*", variables)
    with pytest.raises(InputError, match="it names none"):
        environment_of("torch==2.12.*", {})
