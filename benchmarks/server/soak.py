"""The server under load, on loopback: `python -m benchmarks.server.soak [--only widget regions mixed] [--minutes 30]`.

widget   1,000 requests a second at a constant rate, latencies from the moment each was due
regions  50 requests for region advice a second, one in ten with a text that is new
mixed    30 minutes of pages, advice, uploads, checks and validations; the server's memory, its file descriptors, and
         what became of every job that it accepted

Each part has a server of its own. Writes tests/records/soak.json and the table in docs/soak.md; 1 where a claim does
not hold. The client shares the machine with the server: run it where nothing else runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from benchmarks.server.soak_mixed import Mixed, Samples
from tools.server import ROOT, Served, serving
from tools.stamp import stamp

RECORD = ROOT / "tests" / "records" / "soak.json"
PAGE = ROOT / "docs" / "soak.md"
VERSIONS = ("fastapi", "starlette", "uvicorn", "h11", "pydantic", "sqlalchemy", "torch")

WIDGET_RATE, WIDGET_P99_MS = 1000.0, 50.0
REGION_RATE, REGION_P99_MS = 50.0, 300.0
MIXED_MINUTES, MB_A_MINUTE, DESCRIPTORS = 30.0, 1.0, 3
"""Most megabytes of memory more in a minute; most descriptors more at the end than at the beginning (medians)."""

Json = dict[str, Any]


def open_loop(served: Served, plan: str, rate: float, seconds: float, warm: float) -> Json:
    """One plan of benchmarks.server.load in a process of its own; and what the server took for it."""
    command = [sys.executable, "-m", "benchmarks.server.load", "--port", str(served.port), "--plan", plan, "--rate",
    str(rate),
               "--seconds", str(seconds), "--warm", str(warm)]  # fmt: skip
    before = cpu_s(served.pid)
    told = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    figures: Json = json.loads(told)
    return {**figures, "server_cpu_ms_per_request": round((cpu_s(served.pid) - before) * 1e3 / figures["requests"], 3)}


def cpu_s(pid: int) -> float:
    """Processor time that a process has taken, without its children."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def widget(served: Served, args: argparse.Namespace) -> Json:
    """The first claim."""
    return open_loop(served, "widget", args.widget_rate, args.seconds, 20.0)


def regions(served: Served, args: argparse.Namespace) -> Json:
    """The second claim."""
    return open_loop(served, "regions", args.region_rate, args.seconds, 4.0)


def mixed(served: Served, args: argparse.Namespace) -> Json:
    """The third claim."""
    samples = Samples(served.pid)
    figures = asyncio.run(Mixed(served.url, served.log, samples).run(args.minutes * 60))
    return {**figures, **samples.summary()}


PARTS: dict[str, Callable[[Served, argparse.Namespace], Json]] = {
    "widget": widget,
    "regions": regions,
    "mixed": mixed,
}


def failed_claims(record: Json) -> list[str]:
    """The claims that a record does not bear out, in words; those of a part that is not there are not looked at."""
    said = []
    for part, rate, p99 in (("widget", WIDGET_RATE, WIDGET_P99_MS), ("regions", REGION_RATE, REGION_P99_MS)):
        if (figures := record.get(part)) is None:
            continue
        if figures["rate"] < rate or figures["answered_per_s"] < 0.99 * rate:
            said.append(f"{part}: {figures['answered_per_s']} of {rate:g} requests a second were answered")
        if figures["p99_ms"] >= p99:
            said.append(f"{part}: 99 % within {figures['p99_ms']} ms, not {p99:g}")
        if figures["lost"] or set(figures["statuses"]) != {"200"}:
            said.append(f"{part}: statuses {figures['statuses']}, {figures['lost']} lost")
    if (figures := record.get("mixed")) is not None:
        if figures["minutes"] < MIXED_MINUTES - 0.1:
            said.append(f"mixed: {figures['minutes']} minutes, not {MIXED_MINUTES:g}")
        if figures["mb_per_minute"] >= MB_A_MINUTE:
            said.append(f"mixed: memory grows by {figures['mb_per_minute']} MB a minute, not below {MB_A_MINUTE:g}")
        if figures["descriptors_last"] - figures["descriptors_first"] > DESCRIPTORS:
            said.append(f"mixed: {figures['descriptors_first']} descriptors became {figures['descriptors_last']}")
        said += [
            f"mixed: {what}: {figures[what]}"
            for what in ("lost", "ended_twice", "silent", "unexpected")
            if figures[what]
        ]
        said += [
            f"mixed: no {kind} was done" for kind in ("read", "check", "validate") if not figures["jobs"].get(kind)
        ]
    return said


def table(record: Json) -> str:
    """The record for people: docs/soak.md."""
    told = f"{record['cores']} cores, shared with the client"
    lines = ["# Soak", "", f"`make soak` on loopback, {told}. Latencies count from when a request was due.", "",
             "| load | date | requests/s | p50 ms | p99 ms | p99.9 ms | claim |", "|-|-|-|-|-|-|-|"]  # fmt: skip
    for part, claim in (("widget", WIDGET_P99_MS), ("regions", REGION_P99_MS)):
        f = record[part]
        row = (f"{f['answered_per_s']:,.0f}", f"{f['p50_ms']:.1f}", f"{f['p99_ms']:.1f}", f"{f['p999_ms']:.1f}")
        lines.append(f"| {part} | {f['date']} | {' | '.join(row)} | p99 under {claim:g} ms |")
    f = record["mixed"]
    lines += [
        "", f"| mixed traffic, {f['date']} | figure | claim |", "|-|-|-|",
        f"| minutes | {f['minutes']:.0f} | {MIXED_MINUTES:g} |",
        f"| requests; jobs accepted and ended | {f['requests']:,}; {sum(f['jobs'].values()):,} | nothing lost |",
        f"| memory of the server, MB a minute (from {f['mb_first']:.0f} MB) | {f['mb_per_minute']:.2f} "
        f"| under {MB_A_MINUTE:g} |",
        f"| memory of all processes, MB, first and last third | {f['all_mb_first']}, {f['all_mb_last']} | |",
        f"| file descriptors, first and last third | {f['descriptors_first']}, {f['descriptors_last']} | flat |", "",
    ]  # fmt: skip
    return "\n".join(lines)


def main() -> int:
    """1 where a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="the others stay as recorded")
    parser.add_argument("--seconds", type=float, default=60.0, help="of widget and regions (default: 60)")
    parser.add_argument("--minutes", type=float, default=MIXED_MINUTES, help="of mixed traffic (default: 30)")
    parser.add_argument("--widget-rate", type=float, default=WIDGET_RATE, help="requests a second (default: 1000)")
    parser.add_argument("--region-rate", type=float, default=REGION_RATE, help="requests a second (default: 50)")
    parser.add_argument("--dry", action="store_true", help="print, and write nothing")
    args = parser.parse_args()
    record: Json = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for part in args.only:
        with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "data", {}) as served:
            started = time.monotonic()
            record[part] = {**stamp(VERSIONS), **PARTS[part](served, args)}
            if record[part].get("unexpected"):
                lines = served.log.read_text().splitlines()
                print("\n".join(line[:300] for line in lines if " INFO " not in line)[-6000:])
            print(f"{part} after {time.monotonic() - started:.0f} s: {json.dumps(record[part])}", flush=True)
    record["cores"] = len(os.sched_getaffinity(0))
    if not args.dry:
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
        if set(PARTS) <= set(record):
            PAGE.write_text(table(record))
            print(table(record))
    failures = failed_claims({k: v for k, v in record.items() if k in args.only})
    for line in failures:
        print(f"does not hold: {line}")
    return int(bool(failures))


if __name__ == "__main__":
    raise SystemExit(main())
