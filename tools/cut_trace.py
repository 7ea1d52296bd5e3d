"""Cut a trace after some of its steps: `python -m tools.cut_trace LARGE.json.gz CUT.json.gz --steps 2`.

What is left is what the profiler would have written had it stopped there: the header, names of processes and threads,
all that the host began before the last of these steps ended, and of the GPU what the host launched until then. Nothing
in an event is changed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

Event = dict[str, Any]

STEP = re.compile(r"ProfilerStep#\d+$")
ON_GPU = {"kernel", "gpu_memcpy", "gpu_memset", "cuda_sync"}
SPAN = {"Trace"}
"""The profiler's own span over the whole recording: it ends with the recording, not with a step."""


def cut_after(document: dict[str, Any], steps: int) -> dict[str, Any]:
    """The same document with the events of its first steps."""
    events: list[Event] = document["traceEvents"]
    spans = sorted(
        (float(e["ts"]), float(e["ts"]) + float(e["dur"]))
        for e in events
        if e.get("cat") == "user_annotation" and STEP.match(str(e.get("name")))
    )
    if not 0 < steps <= len(spans):
        raise ValueError(f"the trace has {len(spans)} steps on the host, {steps} were asked for")
    end_us = spans[steps - 1][1]
    before = [e for e in events if e["ph"] != "M" and float(e["ts"]) < end_us]
    launched = {
        e["args"]["correlation"] for e in before if e.get("cat") not in ON_GPU and "correlation" in e.get("args", {})
    }
    names = {e["name"] for e in before if e.get("cat") == "user_annotation"}
    flows = [e for e in before if e.get("cat") == "fwdbwd"]
    whole = {e["id"] for e in flows if e["ph"] == "s"} & {e["id"] for e in flows if e["ph"] == "f"}

    def keeps(event: Event) -> bool:
        category = event.get("cat")
        if event["ph"] == "M" or category in SPAN:
            return True
        if category in ON_GPU:
            return event["args"].get("correlation") in launched
        if category == "ac2g":
            return event["id"] in launched
        if category == "fwdbwd":
            return event["id"] in whole
        if category == "gpu_user_annotation":
            return event["name"] in names
        return float(event["ts"]) < end_us or event["name"] == "Record Window End"

    return document | {"traceEvents": [e for e in events if keeps(e)]}


def read_json(path: Path) -> dict[str, Any]:
    """The trace as json.load reads it."""
    data = path.read_bytes()
    document: dict[str, Any] = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return document


def write_json(path: Path, document: dict[str, Any]) -> None:
    """One event a line, packed the same whenever it is written."""
    header = json.dumps({k: v for k, v in document.items() if k != "traceEvents"}, separators=(",", ":"))
    lines = ",\n".join(json.dumps(e, separators=(",", ":")) for e in document["traceEvents"])
    text = f'{header[:-1]},"traceEvents":[\n{lines}\n]}}\n'
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def main() -> int:
    """0 written; 2 too few steps."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("cut", type=Path)
    parser.add_argument("--steps", type=int, required=True)
    arguments = parser.parse_args()
    try:
        document = cut_after(read_json(arguments.trace), arguments.steps)
    except ValueError as refused:
        print(refused, file=sys.stderr)
        return 2
    write_json(arguments.cut, document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
