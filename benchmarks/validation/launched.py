"""What is advised, launched: the regions of `launched_regions` validated on one GPU, `python
benchmarks/validation/launched.py --seconds 480 --out FOLDER`.

Several validations compile side by side and take turns at the card, the most telling ones first; among them the
attention that a trace of a soft-capped block was found to have. The region that takes a large part of the card is
measured by itself, then the generator's lost programs (`tools.fuzz.new_operations`) are run again. Everything is
written when it is there: validations.json, records/, block/, programs.json. `--only NAME ...` takes these alone,
`--more advised` the corpus's programs that are advised a kernel which has not run yet, `--more trained` regions with
gradients; what validations.json has already is kept. Prints a table.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.validation.launched_regions import REGIONS, TRAINED, Launched, advised, large  # noqa: E402
from benchmarks.validation.validate import Worker, hold_card, share_cores, share_gpu  # noqa: E402
from benchmarks.validation.validate_table import summary  # noqa: E402
from tools.gpu.visible import visible_gpus  # noqa: E402 (run as a file)

Json = dict[str, Any]

LARGE_S, PROGRAMS_S = 110.0, 60.0
"""Kept of the whole for the region that is measured by itself, and for the generator's programs."""
LEAST_S = 45.0
"""With less, no validation is begun."""
BUDGET_S = 170.0
BLOCK, LARGE, PROGRAMS = "attention-of-a-trace", "large", "programs"
NAMES = (*REGIONS, BLOCK, LARGE, PROGRAMS)
MORE: Mapping[str, Callable[[], Mapping[str, Launched]]] = {"advised": advised, "trained": lambda: TRAINED}
LOST = (
    "quantised:19", "scan:30", "scatter:14", "scatter:3", "arg:25", "arg:20", "quantised:14", "pool:27", "scatter:5",
    "scatter:2", "scatter:18",
)  # fmt: skip
"""Programs of tests/records/new-operations-h100.json above 1.1 of torch.compile's time, and the one that was wrong."""


class Results:
    """validations.json of the folder: what is there already is kept."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "validations.json"
        self.lock = threading.Lock()
        self.body: Json = json.loads(self.path.read_text()) if self.path.exists() else {"regions": {}}

    def add(self, name: str, item: Launched, body: Json) -> None:
        """One validation, or why there is none."""
        with self.lock:
            self.body["regions"][name] = {
                "part": item.part, "text": item.text, "without": list(item.without), **summary(body),
            }  # fmt: skip
            if "failed" not in body:
                self.body |= {"device": body["device"], "software": body["software"], "date": body["date"]}
            fresh = self.path.with_suffix(".new")
            fresh.write_text(json.dumps(self.body, indent=1) + "\n")
            fresh.replace(self.path)
        print(f"{body.get('verdict_s', 0.0):6.1f} s  {name}: {said_of(body)}", flush=True)


def said_of(body: Json) -> str:
    """A validation in a line: every candidate with its time, the fastest first, and what became of the others."""
    if "failed" in body:
        return str(body["failed"])
    timed = [(c["time_us"]["median"], c["name"]) for c in body["candidates"] if c["status"] == "ok" and c["time_us"]]
    others = [f"{c['name']}: {c['status']}" for c in body["candidates"] if c["status"] not in ("ok", "not_installed")]
    return ", ".join([f"{name} {us:,.0f}" for us, name in sorted(timed)] + others) + f" ({body['reason'][:90]})"


def ask(
    worker: Worker, name: str, item: Launched, ends: float, folder: Path, caches: Path, most_s: float = BUDGET_S
) -> Json:
    """One validation that ends before `ends` does, and takes most_s at most."""
    left = ends - time.monotonic()
    if left < LEAST_S:
        return {"failed": "no time left"}
    text = folder / "regions" / f"{name}.txt"
    text.parent.mkdir(parents=True, exist_ok=True)
    text.write_text(item.text)
    budget = min(most_s, left - 5.0)
    return worker.ask(
        budget + 20.0, text=str(text), cache_dir=str(caches), budget_s=budget, record=str(folder / "records"),
        shared=worker.shared, without=list(item.without),
    )  # fmt: skip


def side_by_side(
    items: Mapping[str, Launched], block: bool, cores: frozenset[int], ends: float, results: Results, folder: Path,
    caches: Path, count: int, most_s: float,
) -> None:  # fmt: skip
    """These regions in their order, and the trace's, as soon as it is there."""
    jobs: queue.PriorityQueue[tuple[int, str, Launched]] = queue.PriorityQueue()
    for place, (name, item) in enumerate(items.items()):
        jobs.put((place, name, item))
    recorded = threading.Event()

    def record_block() -> None:
        try:
            region = region_of_block(folder, max(10.0, ends - time.monotonic()))
            if isinstance(region, str):
                results.add(BLOCK, Launched("trace", ""), {"failed": region})
            else:
                jobs.put((3, BLOCK, region))
        finally:
            recorded.set()

    def work(worker: Worker) -> None:
        while True:
            try:
                _, name, item = jobs.get(timeout=0.5)
            except queue.Empty:
                if recorded.is_set():
                    break
                continue
            results.add(name, item, ask(worker, name, item, ends, folder, caches, most_s))
        worker.kill()

    with hold_card(0):
        workers = share_gpu(visible_gpus()[0], count, cores, caches)
        threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
        if block:
            threads.append(threading.Thread(target=record_block))
        else:
            recorded.set()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def region_of_block(folder: Path, limit_s: float) -> Launched | str:
    """The attention of a recorded block as it was found in its trace; or why there is none."""
    command = [sys.executable, str(Path(__file__).with_name("soft_capped_block.py")), "--out", str(folder / "block")]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return "its trace was not recorded in time"
    if ended.returncode:
        return f"no attention was found in its trace: {ended.stderr[-300:]}"
    first = json.loads((folder / "block" / "block.json").read_text())["regions"][0]
    advice = first["advice"] or {}
    print(f"block: {first['name']}: {advice.get('headline')}", flush=True)
    return Launched("trace", first["text"])


def programs(seconds: float, cores: frozenset[int], gpu: str, out: Path) -> None:
    """The generator's lost programs once more."""
    command = [sys.executable, "-m", "tools.fuzz.new_operations", "--only", *LOST, "--seconds", f"{seconds:.0f}"]
    command += ["--processes", str(max(1, len(cores) - 2)), "--out", str(out)]
    try:
        subprocess.run(
            command, cwd=ROOT, timeout=seconds + 10.0, check=False, env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
        )
    except subprocess.TimeoutExpired:
        print("programs: stopped at the limit", flush=True)


def own_cores(gpu: str) -> frozenset[int]:
    """The part of this host's cores for the GPU, where others may use the other GPUs; what it was given, where that
    is less than the host has."""
    given = sorted(os.sched_getaffinity(0))
    count = len(list(Path("/proc/driver/nvidia/gpus").glob("*"))) or torch.cuda.device_count()
    if len(given) < (os.cpu_count() or 1) or not gpu.isdigit() or int(gpu) >= count:
        return frozenset(given)
    return share_cores([str(n) for n in range(count)], given)[gpu] or frozenset(given)


def main(arguments: Sequence[str]) -> int:
    """0 where every region gave a validation."""
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--seconds", type=float, default=480.0, help="for all of it")
    reader.add_argument("--budget", type=float, default=BUDGET_S, help="seconds that one validation may take")
    reader.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES), metavar="NAME", help=", ".join(NAMES))
    reader.add_argument("--more", choices=list(MORE), help="instead: programs advised a kernel of ours, or trained")
    reader.add_argument("--every", action="store_true", help="all candidates of every region")
    reader.add_argument(
        "--side-by-side", type=int, default=2, help="validations that compile and check beside each other"
    )
    reader.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    asked = reader.parse_args(arguments)
    ends = time.monotonic() + asked.seconds
    gpus = visible_gpus()
    if not gpus:
        reader.error("this needs a GPU")
    asked.out.mkdir(parents=True, exist_ok=True)
    cores = own_cores(gpus[0])
    os.sched_setaffinity(0, cores)
    results = Results(asked.out)
    chosen = {
        n: Launched(r.part, r.text, () if asked.every else r.without) for n, r in REGIONS.items() if n in asked.only
    }
    if asked.more:
        chosen, asked.only = dict(MORE[asked.more]()), []
    later = {LARGE: LARGE_S, PROGRAMS: PROGRAMS_S}
    reserved = sum(seconds for name, seconds in later.items() if name in asked.only)
    with tempfile.TemporaryDirectory(prefix="tritonworthy-caches-") as caches:
        if chosen or BLOCK in asked.only:
            side_by_side(
                chosen, BLOCK in asked.only, cores, max(ends - reserved, time.monotonic() + asked.seconds / 2), results,
                asked.out, Path(caches), asked.side_by_side, asked.budget,
            )  # fmt: skip
        if LARGE in asked.only:
            item = large(torch.cuda.get_device_properties(0).total_memory)
            worker = Worker(gpus[0], cores)
            until = ends - (PROGRAMS_S if PROGRAMS in asked.only else 0.0)
            results.add(LARGE, item, ask(worker, LARGE, item, until, asked.out, Path(caches), asked.budget))
            worker.kill()
    left = ends - time.monotonic()
    if PROGRAMS in asked.only and left > 15.0:
        programs(left - 5.0, cores, gpus[0], asked.out / "programs.json")
    table(results.body["regions"])
    return 1 if any("failed" in region for region in results.body["regions"].values()) else 0


def table(regions: Mapping[str, Json]) -> None:
    """Each region: the fastest, and every other candidate's time over its."""
    for name, region in regions.items():
        if "failed" in region:
            print(f"{name:26} {region['failed']}")
            continue
        times = {n: c["time_us"]["median"] for n, c in region["candidates"].items() if c.get("time_us")}
        best = min(times.values(), default=0.0)
        ordered = sorted(times.items(), key=lambda pair: pair[1])
        print(f"{name:26} " + ", ".join(f"{n} {us:,.0f} µs ({us / best:.2f})" for n, us in ordered))
        for other, candidate in region["candidates"].items():
            if candidate["status"] not in ("ok", "not_installed"):
                print(f"{'':26} {other}: {candidate['status']}: {candidate['message'][:150]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
