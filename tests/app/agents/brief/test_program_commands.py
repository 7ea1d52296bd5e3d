"""What would break: a brief of a program whose commands to prove a change fail when they are run as they stand."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from app import cli
from app.agents.brief.commands import AFTER, BEFORE, KERNEL, PREDICTED
from tests.profiler.trace.files import TRACES

PROGRAM = """
import torch
from torch import nn

class Norm(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)

def make_model():
    return Norm(), torch.randn(64, 40)
"""
OWN = "import torch\n\ndef mine(x):\n    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)\n"
RIGHT = (0, 2, 3)
"""Kept, not timed for want of a GPU, or deleted: it says nothing that the command could not be run."""


def test_each_command_of_a_programs_brief_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(PROGRAM)
    (tmp_path / "own.py").write_text(OWN)
    for name in (BEFORE, AFTER):  # what the user records
        shutil.copy(TRACES / "large_t5_train_autocast_2steps.json.gz", tmp_path / name)
    assert cli.main(["advise", "model.py:make_model", "--device", "H200", "--oracle", "off", "--brief"]) == 0
    brief = json.loads(capsys.readouterr().out)
    assert brief["of"] == "module"
    assert "predicted" in brief["warnings"][0]
    told = [proof["command"].replace(KERNEL, "own.py:mine") for proof in brief["verify"]]
    assert [shlex.split(c)[1] for c in told] == ["check", "advise", "validate", "validate"]
    for command in told:
        status = cli.main([*shlex.split(command)[1:]])
        printed = capsys.readouterr()
        assert status in (RIGHT if " validate " in command else (0,)), (command, printed.err)
        if " validate " in command:
            assert json.loads(printed.out)["candidates"]
    assert (tmp_path / PREDICTED).is_file()
