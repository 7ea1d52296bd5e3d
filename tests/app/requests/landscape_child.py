"""The child of a job for tests: a validation with a Triton candidate, or the drawn landscape. `python ... MODE FD`."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from kernels.measure.model import CandidateResult, Interval, Validation, to_json
from tests.app.requests.landscape_sample import DEVICE, sample

MODE, FD = sys.argv[1], int(sys.argv[2])
REQUEST = json.loads(sys.stdin.readline())


def say(message: object) -> None:
    os.write(FD, json.dumps(message).encode() + b"\n")


def candidate(name: str, tool: str, status: str = "ok") -> CandidateResult:
    return CandidateResult(name=name, tool=tool, status=status, time_us=Interval(5.0, 4.9, 5.1), call=f"call {name}")


if "candidate" not in REQUEST:
    found = (candidate("eager", "eager"), candidate("triton:matmul_epilogue", "triton"),
             candidate("triton:generated", "triton", "mismatch"))  # fmt: skip
    made = Validation("confirmed", "test data", REQUEST["region"], found, device=DEVICE, best="triton:matmul_epilogue")
    say({"type": "result", "value": to_json(made)})
elif MODE == "slow":
    say({"type": "progress", "phase": "points", "candidate": REQUEST["candidate"], "fraction": 0.5, "message": "BM=64"})
    time.sleep(60)
elif MODE == "nonsense":
    say({"type": "result", "value": {**sample(REQUEST["candidate"]), "best": "no such point"}})
else:
    say({"type": "result", "value": {**sample(REQUEST["candidate"]), "binding": REQUEST["binding"]}})
