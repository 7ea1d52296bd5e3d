"""How long a verdict takes, as a user of the server waits for it: `python benchmarks/validation/verdict.py`, on a host
with a GPU.

Each case is a job in a child process by the server's own runner, first with empty caches of Inductor, Triton and the
tuner, then with warm ones; the child is the spare that a server keeps (with --no-spare, a fresh one). first_s: from
submitting to the first progress; verdict_s: to the answer; phases_s as the session counts them. Writes verdicts.json to
$OUT (or --out).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from app.jobs.local_runner import Limits, LocalRunner  # noqa: E402 (run as a file)
from kernels.host import probe_host, to_json  # noqa: E402

Json = dict[str, Any]

EXAMPLES = ROOT / "app" / "examples"
COMMAND = [sys.executable, "-m", "app.jobs.tasks", "validate", "{fd}", "spare"]
SETTLED_S = 12.0
"""After which a spare has done its imports: the time between two validations, which nobody waits for."""
ROWS = "N: sizes[2048, 8192, 16384]\nx: bf16[N, 4096]\nweight: bf16[4096]\n"
CASES: dict[str, Json] = {
    "RMSNorm by hand, 3 shapes": {
        "region": ROWS + "\n".join((EXAMPLES / "rms_norm_by_hand.txt").read_text().splitlines()[2:]) + "\n",
        "shapes": [{"binding": {"N": n}, "calls": 1.0} for n in (2048, 8192, 16384)],
    },
    "GEMM, bias, GELU, mask": {"region": (EXAMPLES / "gemm_gelu_mask.txt").read_text()},
}


def verdict(request: Json, folder: Path, spare: bool) -> Json:
    """One job; its spans in seconds, outcome and the candidates that ran."""
    runner, log = LocalRunner(), folder / "log"
    if spare:
        runner.keep(COMMAND, logs=folder, cwd=ROOT)
        time.sleep(SETTLED_S)
    said: list[tuple[float, str]] = []
    started = time.monotonic()

    def tell(progress: Json) -> None:
        said.append((round(time.monotonic() - started, 2), f"{progress['phase']}: {progress['message']}"))

    ended = runner.run(
        COMMAND if spare else COMMAND[:-1],
        request,
        limits=Limits(300.0),
        log=log,
        on_progress=tell,
        cwd=ROOT,
    )
    spent = time.monotonic() - started
    value = ended.value
    if not isinstance(value, dict):
        return {"failed": f"{ended.reason}: {log.read_text(errors='replace')[-600:]}"}
    return {
        "first_s": said[0][0] if said else None,
        "said": [line for line in said if "round" not in line[1]],
        "verdict_s": round(spent, 2),
        "phases_s": value["conditions"].get("phases_s"),
        "prepare_s": value["conditions"].get("prepare_s"),
        "outcome": value["outcome"],
        "best": value["best"],
        "candidates": {c["name"]: [c["status"], c["compile_s"]] for c in value["candidates"]},
        "device": value["device"],
        "software": value["software"],
        "date": value["date"],
    }


def main() -> int:
    """0 where each case gave a verdict each time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spare", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--warm", type=int, default=2, help="runs with warm caches, behind the cold one")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")) / "verdicts.json")
    asked = parser.parse_args()
    host = to_json(probe_host())  # as the server does when it starts
    runs_by_region: dict[str, list[Json]] = {}
    for name, case in CASES.items():
        runs_by_region[name] = []
        with tempfile.TemporaryDirectory() as folder:
            for run in range(1 + asked.warm):
                request = {**case, "host": host, "cache_dir": str(Path(folder) / "caches")}
                body = verdict(request, Path(folder), asked.spare)
                runs_by_region[name].append(body)
                asked.out.write_text(json.dumps(runs_by_region, indent=1) + "\n")
                kind = "warm" if run else "cold"
                said = body.get("failed") or {k: body[k] for k in ("first_s", "verdict_s", "phases_s")}
                print(f"{name}, {kind}: {said}", flush=True)
    return 1 if any("failed" in body for runs in runs_by_region.values() for body in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
