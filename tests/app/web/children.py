"""Children of jobs for tests of the web: `python children.py NAME FD`. Their answers have the API's shape."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

FD = int(sys.argv[2])
REQUEST = json.loads(sys.stdin.readline())


def say(message: object) -> None:
    os.write(FD, json.dumps(message).encode() + b"\n")


def trace() -> None:
    """A trace whose `events` is the size of the file that was uploaded, or a validation without a GPU."""
    if "path" not in REQUEST:
        validation()
        return
    advice = {
        "tool": "skip", "headline": "leave it", "action": "", "call": "", "mode": "", "criteria": [],
        "alternatives": [], "region_speedup": None, "step_speedup": None, "floor_us": None, "device": "",
        "validation": None, "notes": [],
    }  # fmt: skip
    source = {"trace": "", "module": "m", "line": "", "ops": []}
    regions = [
        {"name": name, "kind": "pointwise", "by_hand": False, "text": "x: f32[4]\nreturn x\n", "source": source}
        | {"shapes": [], "irregularity": None, "oracle": [], "recompiles": None}
        | {
            "cost": None,
            "advice": advice,
            "calls_per_step": 2.0,
            "share_of_step": share,
            "time_us_per_step": float("nan"),
        }
        for name, share in (("first", 0.6), ("second", 0.4))
    ]
    counts = {"events": Path(REQUEST["path"]).stat().st_size, "kernels": 3, "profiler_steps": 0, "steps": 1}
    say({"type": "result", "value": {**counts, "linked_share": 1.0, "notes": [], "regions": regions}})


def part_failed() -> None:
    """Reads the trace for real; advising on one of its regions raises."""
    from app.analysis import service
    from app.trace_report import report as trace_report

    whole = service.prepare

    with tempfile.TemporaryDirectory() as folder:

        def prepare(*arguments: object) -> object:
            # Several forks advise: the first of all to come here fails.
            with suppress(FileExistsError), open(Path(folder) / "failed", "x"):
                raise ZeroDivisionError("float division by zero")
            return whole(*arguments)

        service.prepare = prepare
        say({"type": "result", "value": trace_report.report(REQUEST["path"], REQUEST["name"])})


def validation() -> None:
    for number in range(3):
        say({"type": "progress", "phase": "measure", "candidate": "eager", "fraction": number / 3, "message": "…"})
        time.sleep(0.15)
    body = {
        "outcome": "unmeasured", "reason": "no GPU", "region": REQUEST["region"], "candidates": [], "device": None,
        "software": {}, "conditions": {}, "best": None, "floor_us": None, "date": "", "coverage": "",
        "advice_before": None, "advice_after": None,
    }  # fmt: skip
    say({"type": "result", "value": body})


def not_a_trace() -> None:
    say({"type": "error", "code": "trace-not-json", "message": "This is not JSON.", "remedy": "Send a trace."})


def hang() -> None:
    time.sleep(60)


def crash() -> None:
    os.abort()


def parts() -> None:
    """What the file that $PARTS names has of a trace, stage by stage, each when a file of its number appears there.

    0: the parts; 1, 2, ...: the advice on one region each, in their order; then the whole, or an error. A validation is
    one without a GPU.
    """
    if "path" not in REQUEST:
        validation()
        return
    stages = json.loads(Path(os.environ["PARTS"]).read_text())
    folder = Path(os.environ["PARTS"]).parent

    def wait_for(name: object) -> None:
        while not (folder / str(name)).exists():
            time.sleep(0.01)

    wait_for(0)
    say({"type": "part", "trace": stages["parts"]})
    for place, region in enumerate(stages["regions"]):
        wait_for(place + 1)
        say({"type": "part", "position": place, "region": region})
    wait_for("end")
    if "error" in stages:
        say({"type": "error", **stages["error"]})
    else:
        say({"type": "result", "value": stages["whole"]})


def replayed() -> None:
    """A recorded measurement, as if made now under the torch and at the times of the file that $REPLAYED names."""
    from app.advice.evidence import reissue_json

    body = json.loads(Path(os.environ["REPLAYED"]).read_text())
    body = {k: v for k, v in body.items() if k not in ("schema", "name")}
    before = REQUEST["advice_before"]
    say({"type": "result", "value": {**body, "advice_before": before, "advice_after": reissue_json(before, body)}})


globals()[sys.argv[1]]()
