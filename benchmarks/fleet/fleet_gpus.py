"""Two validations at once through Ray on a host with two GPUs, and what the neighbour does to the measured times.

python -m benchmarks.fleet.fleet_gpus --accelerator H200 --out fleet-gpus.json      (needs two GPUs and Ray)

Three times the same pair of regions, one bound by memory and one by arithmetic: each alone (`measure_slot` 1, one
after the other), both at once (`measure_slot` 2, each on a GPU of its own), and both asked at once where
`measure_slot` is 1, so that they take turns. Every run is a real validation; the table compares the candidates' times.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from app.jobs.local_runner import Limits
from app.jobs.ray import model
from app.jobs.ray.runner import RayRunner
from app.objects.task import ProbedHost

ROOT = Path(__file__).resolve().parent.parent.parent
VALIDATE = [sys.executable, "-m", "app.jobs.tasks", "validate", "{fd}", "spare"]
REGIONS = {
    "memory": "x: bf16[16384, 8192]\nw: bf16[8192]\ny = F.rms_norm(x, (8192,), w)\nreturn y\n",
    "arithmetic": "x: bf16[8192, 8192]\nw: bf16[8192, 8192]\ny = relu(x @ w)\nreturn y\n",
}
CANDIDATES = {"memory": ["eager", "compile", "triton:rms_norm"], "arithmetic": ["eager", "compile"]}


@dataclass
class Run:
    """One validation: when its child began and ended, on which GPU, and what it measured."""

    region: str
    began: float = 0.0
    ended: float = 0.0
    answer: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def gpu(self) -> str:
        return str((self.answer.get("conditions") or {}).get("device", {}).get("uuid", ""))

    @property
    def times_us(self) -> dict[str, float]:
        candidates = self.answer.get("candidates") or []
        return {c["name"]: c["time_us"]["median"] for c in candidates if c.get("time_us")}


@contextmanager
def fleet(folder: Path, accelerator: str, gpus: int, slots: int) -> Iterator[RayRunner]:
    """A cluster of this host alone, which measures on so many GPUs at once."""
    from ray.cluster_utils import Cluster

    resources = {**model.resources(accelerator, 0), model.MEASURE_SLOT: slots}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 8, "num_gpus": gpus, "include_dashboard": False, "resources": resources},
    )
    runner = RayRunner(cluster.address, token_file=folder / "token", wait_s=600)
    runner.keep(VALIDATE, logs=folder, cwd=ROOT)  # as the server does
    try:
        yield runner
    finally:
        runner.close()
        cluster.shutdown()  # type: ignore[no-untyped-call]


def validate(runner: RayRunner, device: str, name: str, folder: Path, budget_s: float) -> Run:
    """See one region through."""
    run = Run(name)

    def on_progress(said: dict[str, Any]) -> None:
        if said.get("phase") != "waiting" and not run.began:
            run.began = time.monotonic()

    request = {"on": device, "region": REGIONS[name], "candidates": CANDIDATES[name], "budget_s": budget_s}
    log = folder / f"{name}-{secrets.token_hex(4)}.log"
    ended = runner.run(VALIDATE, request, limits=Limits(500, 5), log=log, on_progress=on_progress, cwd=ROOT)
    run.ended = time.monotonic()
    run.answer = ended.value or {}
    run.error = "" if ended.error is None else f"{ended.error} {log.read_text()[-2000:] if log.exists() else ''}"
    return run


def validate_both(runner: RayRunner, device: str, folder: Path, budget_s: float) -> list[Run]:
    """Both regions asked for at once."""
    runs: list[Run] = []
    lanes = [
        threading.Thread(target=lambda n=name: runs.append(validate(runner, device, n, folder, budget_s)))
        for name in REGIONS
    ]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    return sorted(runs, key=lambda run: run.region)


def overlap_s(runs: list[Run]) -> float:
    """Seconds that both ran."""
    return max(0.0, min(run.ended for run in runs) - max(run.began for run in runs))


def runs_to_json(runs: list[Run]) -> list[dict[str, Any]]:
    """The record of some runs."""
    keys = ("outcome", "reason", "software")
    return [
        {"region": r.region, "gpu": r.gpu, "seconds": round(r.ended - r.began, 2), "times_us": r.times_us,
         "phases_s": (r.answer.get("conditions") or {}).get("phases_s"), "error": r.error,
         **{key: r.answer.get(key) for key in keys}}
        for r in runs
    ]  # fmt: skip


def compare(alone: list[list[Run]], other: list[list[Run]]) -> list[dict[str, Any]]:
    """Per candidate: the median of its times alone, with the other arrangement, and their ratio with its spread."""
    rows = []
    for region in sorted(REGIONS):
        base, now = ([r.times_us for runs in many for r in runs if r.region == region] for many in (alone, other))
        for name in CANDIDATES[region]:
            before, after = ([t[name] for t in times if name in t] for times in (base, now))
            if before and after:
                middle = statistics.median(before)
                rows.append(
                    {"region": region, "candidate": name, "alone_us": round(middle, 2),
                     "now_us": round(statistics.median(after), 2), "ratio": round(statistics.median(after) / middle, 4),
                     "ratio_low": round(min(after) / max(before), 4), "ratio_high": round(max(after) / min(before), 4)}
                )  # fmt: skip
    return rows


def table(title: str, rows: list[dict[str, Any]]) -> str:
    """The comparison for people."""
    return "\n".join(
        [title, f"{'region':<12}{'candidate':<20}{'alone us':>11}{'now us':>11}{'ratio':>8}   low to high"]
        + [
            f"{row['region']:<12}{row['candidate']:<20}{row['alone_us']:>11.2f}{row['now_us']:>11.2f}"
            f"{row['ratio']:>8.4f}   {row['ratio_low']:.4f} to {row['ratio_high']:.4f}"
            for row in rows
        ]
    )


def main() -> None:
    """Run the three arrangements, print the tables; --out keeps everything. Exit status 1 where a claim is not met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accelerator", default="H200")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--budget-s", type=float, default=60.0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fleet-gpus-"))
    (folder / "token").write_text(secrets.token_hex(32))
    (folder / "token").chmod(0o600)
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(folder / "token"))
    device = model.node_from_ray(
        {"NodeID": "", "Alive": True, "Resources": {"GPU": 1, **model.resources(arguments.accelerator, 0)}},
        cast("ProbedHost", {}),
    ).device
    assert device is not None
    many = range(arguments.repeats)
    budget = arguments.budget_s
    with fleet(folder, arguments.accelerator, arguments.gpus, 1) as runner:
        warm = [validate(runner, device, name, folder, budget) for name in REGIONS]  # compile caches, for all alike
        alone = [[validate(runner, device, name, folder, budget) for name in REGIONS] for _ in many]
        turns = [validate_both(runner, device, folder, budget) for _ in many]
    with fleet(folder, arguments.accelerator, arguments.gpus, 2) as runner:
        both = [validate_both(runner, device, folder, budget) for _ in many]
    claims = {
        "each on a GPU of its own where two may run": all(len({r.gpu for r in runs} - {""}) == 2 for runs in both),
        "they did run at once": all(overlap_s(runs) > 0 for runs in both),
        "one at a time where measure_slot is 1": all(overlap_s(runs) == 0 for runs in turns),
        "every candidate has a time": all(
            set(r.times_us) == set(CANDIDATES[r.region]) for runs in (*alone, *both, *turns) for r in runs
        ),
        "nothing failed": not any(r.error for runs in (*alone, *both, *turns, warm) for r in runs),
    }
    record = {
        "date": time.strftime("%Y-%m-%d"), "accelerator": device, "gpus": arguments.gpus,
        "repeats": arguments.repeats, "budget_s": budget, "claims": claims,
        "overlap_s": {"both": [round(overlap_s(r), 2) for r in both], "turns": [round(overlap_s(r), 2) for r in turns]},
        "neighbour": compare(alone, both), "turns": compare(alone, turns),
        "runs": {
            name: [runs_to_json(r) for r in several]
            for name, several in (("alone", alone), ("both", both), ("turns", turns))
        },
    }  # fmt: skip
    if arguments.out:
        arguments.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(table("both at once, each on its own GPU", compare(alone, both)))
    print(table("asked at once, measured in turns", compare(alone, turns)))
    for claim, holds in claims.items():
        print(f"{'yes' if holds else 'NO '}  {claim}")
    print([r.error[:1500] for runs in (*alone, *both, *turns, warm) for r in runs if r.error][:2])
    raise SystemExit(0 if all(claims.values()) else 1)


if __name__ == "__main__":
    main()
