"""Validate regions on this host's GPUs, each one twice, and record them in the Archive: `make bench-validate`, or
`python benchmarks/validation/validate.py [--regions DIR | REGION.txt ...]`.

One process a GPU takes region after region from a queue. The first validation of a region starts with empty caches of
Inductor, Triton and the tuner, later ones have those of the first: their spans are the verdict's, cold and warm.
What the last run says of the one before is the repeatability: how far the ratios to eager moved, and whether the
outcome is the same. Writes validations.json (a summary) and records/ into --out, and prints the table: per region
every candidate, the winner, the advice before and after.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.validation.validate_table import repeatability, summary, table  # noqa: E402
from kernels.measure.gpu_lock import locked, open_lock  # noqa: E402
from tools.gpu.visible import visible_gpus  # noqa: E402 (run as a file)

Json = dict[str, Any]

LEAST_CORES = 8
"""For a GPU: its candidates compile side by side."""
LEAST_S = 20.0
"""Left of the total: with less, no validation is begun."""
WORKER = [sys.executable, str(Path(__file__).resolve().with_name("validate_worker.py"))]


class Worker:
    """benchmarks/validation/validate_worker.py on one GPU, started again behind a region that it does not survive."""

    def __init__(self, gpu: str, cores: frozenset[int] = frozenset(), shared: Json | None = None) -> None:
        self.shared = shared
        self.environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
        # Its own cores: one GPU's compiling is not to move the wall times that another's candidates are judged by.
        self.command = ["taskset", "-c", ",".join(map(str, sorted(cores))), *WORKER] if cores else WORKER
        self.process: subprocess.Popen[str] | None = None

    def ask(self, limit_s: float, **request: Any) -> Json:
        """One validation; {"failed": why} where there is none within limit_s."""
        if self.process is None:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                start_new_session=True,
            )  # fmt: skip
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        late = threading.Timer(limit_s, self.kill)
        late.start()
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            body: Json = json.loads(line)
        except (OSError, json.JSONDecodeError):
            self.kill()
            return {"failed": f"no answer within {limit_s:.0f} s, or its process ended"}
        finally:
            late.cancel()
        return body

    def kill(self) -> None:
        """End it and all that it started."""
        process, self.process = self.process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def share_cores(gpus: Sequence[str], cores: Sequence[int]) -> dict[str, frozenset[int]]:
    """A part of the cores for each GPU, no core in two parts. No part where there is one GPU, or too few cores."""
    whole = list(dict.fromkeys(siblings(core) & frozenset(cores) for core in cores))
    each = len(whole) // len(gpus)
    if len(gpus) < 2 or len(cores) // len(gpus) < LEAST_CORES or not each or shutil.which("taskset") is None:
        return dict.fromkeys(gpus, frozenset())
    return {gpu: frozenset().union(*whole[n * each : (n + 1) * each]) for n, gpu in enumerate(gpus)}


def siblings(core: int) -> frozenset[int]:
    """The hardware threads of one core, which slow each other. Itself alone where the system does not say."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text()
    except OSError:
        return frozenset({core})
    spans = (part.split("-") for part in text.strip().split(","))
    return frozenset(n for span in spans for n in range(int(span[0]), int(span[-1]) + 1))


def share_gpu(gpu: str, count: int, cores: frozenset[int], folder: Path) -> list[Worker]:
    """`count` workers of one GPU, which compile side by side on all of these cores but one; that one is for timing."""
    turn = folder / f"turn-{gpu.replace('/', '-')}"
    timing = siblings(min(cores)) & cores
    shared = {"turn": str(turn), "parts": count, "cores": sorted(timing)}
    return [Worker(gpu, cores - timing, shared) for _ in range(count)]


def runs(
    worker: Worker, repeat: int, budget_s: float, ends: float, records: Path, jobs: queue.Queue[Path], caches: Path
) -> Iterator[tuple[Path, int, Json]]:
    """What one GPU does: (text, which run, its validation) until nothing is left, or no time.

    Again only when all regions have been measured once, and on the same GPU.
    """
    done: list[Path] = []
    for run in range(repeat):
        again = list(done)
        while True:
            try:
                text = again.pop(0) if run else jobs.get_nowait()
            except (queue.Empty, IndexError):
                break
            left = ends - time.monotonic()
            if left < LEAST_S:
                yield text, run, {"failed": "no time left"}
                continue
            budget = min(budget_s, left - 5)
            body = worker.ask(
                budget + 25, text=str(text), cache_dir=str(caches / text.stem), budget_s=budget,
                record=None if run else str(records), shared=worker.shared,
            )  # fmt: skip
            if run == 0 and "failed" not in body:
                done.append(text)
            yield text, run, body
    worker.kill()


def measure(
    texts: Sequence[Path], repeat: int, budget_s: float, total_s: float, out: Path, caches: Path, side_by_side: int = 1
) -> dict[str, list[Json]]:
    """Every text's validations, by its name; the summary is written after each."""
    ends = time.monotonic() + total_s
    jobs: queue.Queue[Path] = queue.Queue()
    for text in texts:
        jobs.put(text)
    runs_by_region: dict[str, list[Json]] = {text.stem: [] for text in texts}
    lock = threading.Lock()

    def work(worker: Worker) -> None:
        for text, run, body in runs(worker, repeat, budget_s, ends, out / "records", jobs, caches):
            with lock:
                runs_by_region[text.stem].append(body)
                said = body.get("failed") or f"{body['outcome']}, best {body['best']}: {body['reason'][:110]}"
                print(f"{body.get('verdict_s', 0):6.1f} s  {text.stem} ({run + 1}): {said}", flush=True)
                write(runs_by_region, out)

    parts = share_cores(visible_gpus(), sorted(os.sched_getaffinity(0)))
    with contextlib.ExitStack() as stack:
        workers: list[Worker] = []
        for number, (gpu, cores) in enumerate(parts.items()):
            if side_by_side > 1:
                stack.enter_context(hold_card(number))
                workers += share_gpu(gpu, side_by_side, cores or frozenset(os.sched_getaffinity(0)), caches)
            else:
                workers.append(Worker(gpu, cores))
        threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return runs_by_region


@contextlib.contextmanager
def hold_card(number: int) -> Iterator[None]:
    """The card's lock (number: among the visible ones): others' validations wait, and ours make no context early."""
    properties = torch.cuda.get_device_properties(number)
    with open_lock(str(getattr(properties, "uuid", "")) or str(number)) as file:
        if not locked(file):
            raise SystemExit(f"another measures on GPU {number}")
        yield


def write(runs_by_region: Mapping[str, Sequence[Json]], out: Path) -> None:
    """validations.json, whole or as it was."""
    body = {"regions": {name: [summary(v) for v in runs] for name, runs in runs_by_region.items() if runs}}
    done = [v for runs in runs_by_region.values() for v in runs if "failed" not in v]
    if done:
        body |= {"device": done[0]["device"], "software": done[0]["software"], "date": done[0]["date"]}
    body["repeatability"] = repeatability(body["regions"])
    fresh = out / "validations.json.new"
    fresh.write_text(json.dumps(body, indent=1) + "\n")
    fresh.replace(out / "validations.json")


def main() -> int:
    """0 where every region gave a validation each time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="*", type=Path)
    parser.add_argument("--regions", type=Path, default=ROOT / "tests" / "regions", help="folder of REGION.txt")
    parser.add_argument("--repeat", type=int, default=2, help="validations of each region")
    parser.add_argument("--budget", type=float, default=150.0, help="seconds for one validation")
    parser.add_argument("--total", type=float, default=1e9, help="seconds for all of them")
    parser.add_argument(
        "--side-by-side", type=int, default=1, help="validations of one GPU that compile together and take turns at it"
    )
    parser.add_argument("--caches", type=Path, help="folder of caches to begin with and to keep; else empty ones")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    asked = parser.parse_args()
    if not visible_gpus():
        parser.error("this needs a GPU")
    asked.out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(asked.out / "records", ignore_errors=True)
    texts = asked.texts or sorted(asked.regions.glob("*.txt"))
    with tempfile.TemporaryDirectory(prefix="tritonworthy-caches-") as folder:
        caches = asked.caches or Path(folder)
        runs_by_region = measure(texts, asked.repeat, asked.budget, asked.total, asked.out, caches, asked.side_by_side)
    print(table(json.loads((asked.out / "validations.json").read_text())))
    return (
        0 if all(len(r) == asked.repeat and not any("failed" in v for v in r) for r in runs_by_region.values()) else 1
    )


if __name__ == "__main__":
    sys.exit(main())
