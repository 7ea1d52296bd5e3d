"""A trace as `tools/corpus/record_models.py` packs it, made of one that was recorded on an H200 for tests."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from tests.profiler.trace.files import TRACES

EAGER = "handrolled_blocks_bf16_eager.json.gz"
ABOUT = {"name": "handrolled", "maker": "unet", "mode": "infer", "dtype": "bf16", "batch": 4, "size": 2048}


def recorded(folder: Path, name: str = "handrolled", source: str = EAGER) -> Path:
    """folder/NAME.json.gz: the trace, saying what was recorded."""
    body = json.loads(gzip.decompress((TRACES / source).read_bytes()))
    target = folder / f"{name}.json.gz"
    with gzip.open(target, "wt", compresslevel=1) as out:
        json.dump(body | {"corpus": ABOUT | {"name": name}}, out)
    return target
