"""A real trace whose kernels, modules, files and annotations are called by hostile names."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from tests.app.check.hostile import NAMES
from tests.conftest import ROOT

EXAMPLE = ROOT / "app" / "examples" / "handrolled_blocks.json.gz"


def write_hostile_trace(path: Path) -> None:
    """Operations keep their names, or nothing would be recognised; everything else that people read is hostile."""
    trace = json.loads(gzip.decompress(EXAMPLE.read_bytes()))
    names = [n for n in NAMES if n]
    for number, event in enumerate(trace["traceEvents"]):
        evil = names[number % len(names)]
        if event.get("cat") == "kernel":
            event["name"] = f"{evil}{event['name']}"
        elif event.get("cat") == "python_function" and event["name"].startswith("nn.Module: "):
            event["name"] = f"nn.Module: {evil}_0"
        elif event.get("cat") == "python_function":
            event["name"] = f"{evil}.py({number}): {evil}"
    path.write_bytes(gzip.compress(json.dumps(trace).encode("utf-8", "surrogatepass")))
