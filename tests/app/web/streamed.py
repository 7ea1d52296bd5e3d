"""A real trace's stages for the child `parts` of children.py, which gives the next one when the test says so."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.trace_report.report import Advised, Parts, stages
from tests.conftest import ROOT

TRACE = ROOT / "app" / "examples" / "handrolled_blocks.json.gz"
LONGEST_S = 60.0
"""Only so long is an event waited for: a test that fails is to end."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Streamed:
    """What $PARTS names, and the folder where a file lets the child go on."""

    path: Path
    parts: Json
    regions: list[Json]
    whole: Json

    def give(self, name: object) -> None:
        """Let the child say its stage of that number, or its "end"."""
        (self.path.parent / str(name)).touch()


@functools.cache
def _read() -> tuple[Json, list[Json], Json]:
    """The parts, each region as advised on, and the whole."""
    advised: dict[int, Json] = {}
    parts: Json = {}
    whole: Json = {}
    for stage in stages(TRACE, TRACE.name):
        if isinstance(stage, Parts):
            parts = json.loads(json.dumps(stage.trace))  # as it was: its regions are filled in later
        elif isinstance(stage, Advised):
            advised[stage.position] = json.loads(json.dumps(stage.region))
        else:
            whole = stage.trace
    return parts, [advised[i] for i in range(len(advised))], whole


def streamed(folder: Path, error: Json | None = None) -> Streamed:
    """The stages of a bundled trace, written to a fresh folder. error: what the reading ends with instead."""
    folder.mkdir(parents=True)
    parts, regions, whole = _read()
    told = {"parts": parts, "regions": regions, "whole": whole, **({"error": error} if error else {})}
    (folder / "stages.json").write_text(json.dumps(told))
    return Streamed(folder / "stages.json", parts, regions, whole)


def until(true: Callable[[], Any]) -> Any:
    """What `true` answers as soon as it is true."""
    deadline = time.monotonic() + LONGEST_S
    while not (found := true()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found
