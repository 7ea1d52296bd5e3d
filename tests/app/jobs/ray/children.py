"""Real child processes that say where they run. `python children.py NAME FD`; each dies with whoever started it."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

from app.jobs.tasks import _die_with_the_server

FD = int(sys.argv[2])
REQUEST = json.loads(sys.stdin.readline())
threading.Thread(target=_die_with_the_server, daemon=True).start()


def say(message: object) -> None:
    os.write(FD, json.dumps(message).encode() + b"\n")


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def where() -> None:
    """Holds its GPU for a while; which GPU, for which of Ray's raylets (the worker's parent), and when."""
    began = time.monotonic()
    here = {"pid": os.getpid(), "worker": os.getppid(), "raylet": parent(os.getppid())}
    if "pid_file" in REQUEST:
        Path(REQUEST["pid_file"]).write_text(json.dumps(here))
    say({"type": "progress", "phase": "measuring", "candidate": "eager", "fraction": 0.5, "message": "half"})
    time.sleep(REQUEST.get("hold_s", 0.0))
    print("measured")
    span = {"began": began, "ended": time.monotonic(), "gpus": os.environ.get("CUDA_VISIBLE_DEVICES")}
    secrets = sorted(name for name in os.environ if name.startswith(("TRITONWORTHY_TOKEN", "RAY_")))
    answer = {"outcome": "unmeasured", "reason": "", "region": REQUEST.get("region", ""), "candidates": []}
    told = {"conditions": {**here, **span}, "software": {"secrets": str(secrets)}, "device": REQUEST.get("on")}
    say({"type": "result", "value": {**answer, **told}})


def ceilings() -> None:
    """Rates that nobody measured, and where they were not: the way there and back is what is tested."""
    rate = {"name": "copy", "value": 4.25e12, "unit": "B/s", "how": f"raylet {parent(os.getppid())}"}
    told = {"software": {"torch": "0", "triton": "0"}, "conditions": {}, "ceilings": [rate]}
    say({"type": "result", "value": {"device": REQUEST.get("on"), "date": "2026-11-22", **told}})


globals()[sys.argv[1]]()
