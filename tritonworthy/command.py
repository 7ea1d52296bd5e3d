"""The command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import app
from app.cli.inputs import InputError

BAD_INPUT = 1


class CommandError(RuntimeError):
    """The command could not answer; its own words."""


def run_command(name: str, *arguments: str, text: str = "", answered: Collection[int] = (0,)) -> str:
    """What a command prints. text: its standard input; answered: statuses with which it has printed an answer.

    Raises InputError where the input is wrong, CommandError for everything else.
    """
    root = str(Path(app.__file__).resolve().parents[1])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-P", "-m", "app.cli", name, *arguments],  # -P: nothing of the current folder is imported
        input=text,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    if done.returncode in answered and done.stdout:
        return done.stdout
    said = done.stderr.strip() or f"tritonworthy {name} ended with {done.returncode}"
    raise InputError(said) if done.returncode == BAD_INPUT else CommandError(said)
