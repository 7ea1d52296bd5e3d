"""A job that costs next to nothing: `python fleet_child.py FD`. Keeps a diary, so that nothing done twice goes unseen.

It stands in for app.jobs.tasks under benchmarks/fleet/fleet_jobs.py: a real child process under the real queue and
runner,
which measures nothing. The region `x: f32[NUMBER]` says which job it is, and `y: f32[MS]` for how long it takes.
"""

import json
import os
import re
import secrets
import signal
import sys
import threading
import time
from pathlib import Path

request = json.loads(sys.stdin.readline())
number, duration_ms = (int(n) for n in re.findall(r"f32\[(\d+)\]", request["region"])[:2])
diary = Path(os.environ["FLEET_DIARY"], str(number))


def die_with_the_server() -> None:
    """As app.jobs.tasks does."""
    while os.read(0, 4096):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


def lives(pid: str) -> bool:
    """Whether a run that has not ended is still at it."""
    try:
        return "fleet_child" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


threading.Thread(target=die_with_the_server, daemon=True).start()
run = secrets.token_hex(8)
before = [line.split() for line in diary.read_text().splitlines()] if diary.exists() else []
ended = {words[1] for words in before if words[0] == "end"}
overlapping = [words[1] for words in before if words[0] == "begin" and words[1] not in ended and lives(words[2])]
with diary.open("a") as file:
    file.write(f"begin {run} {os.getpid()} {len(overlapping)}\n")
    file.flush()
    time.sleep(duration_ms / 1000)
    file.write(f"end {run}\n")
answer = {"outcome": "unmeasured", "reason": run, "region": request["region"], "candidates": []}
os.write(int(sys.argv[1]), json.dumps({"type": "result", "value": answer}).encode() + b"\n")
