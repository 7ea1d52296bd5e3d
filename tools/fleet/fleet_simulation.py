"""What a fleet of 10, 100 and 1,000 GPUs would do: tests/records/fleet-simulation.json, docs/fleet-simulation.md, SVG.

python -m tools.fleet.fleet_simulation --run     simulate (minutes), record, write the page
python -m tools.fleet.fleet_simulation           write the page from the record

Measured: how long validations took (the archive's phases), what one costs the store (tests/records/fleet-store.json)
and Ray (tests/records/fleet-overhead.json), what advice costs the web. Everything else is assumed, and said to be.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tools.fleet.fleet_model import DAY_S, Fleet, Outcome, Scenario, Store, Supply, limits_per_day

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDS = ROOT / "tests" / "records"
RECORD = RECORDS / "fleet-simulation.json"
PAGE = ROOT / "docs" / "fleet-simulation.md"
SEED = 20261122

PER_GPU = 200
"""Validations a day for each GPU: 200,000 for a thousand."""

SHARES = {"NVIDIA H200": (0.32, 0.35), "NVIDIA H100": (0.28, 0.25), "NVIDIA L40S": (0.12, 0.10),
          "AMD Instinct MI300X": (0.12, 0.10), "NVIDIA B200": (0.08, 0.12), "NVIDIA A100": (0.08, 0.08)}  # fmt: skip
"""Assumed: each kind's share of the GPUs, and of what is asked. The newest is asked for more than there is of it."""

ASSUMED: Json = {"burst_share": 0.4, "burst_size": 200.0, "burst_span_s": 60.0, "swing": 0.6, "zipf": 1.1,
           "mtbf_s": 30 * DAY_S, "repair_s": 2 * 3600.0}  # fmt: skip
REGIONS_PER_DAY = 0.5
"""Assumed: distinct contents that could be asked for, by the number of validations a day."""


def load_measurements() -> Json:
    """What the simulation takes from measurements, with where from."""
    archive = [json.loads(p.read_text(encoding="utf-8")) for p in (ROOT / "app/archive/records").glob("*.json")]
    lengths = sorted(round(sum(r["conditions"]["phases_s"].values()), 2) for r in archive if r["device"])
    store = json.loads((RECORDS / "fleet-store.json").read_text(encoding="utf-8"))
    overhead = json.loads((RECORDS / "fleet-overhead.json").read_text(encoding="utf-8"))
    return {
        "lengths_s": lengths, "advice_s": store["advice_s"], "beats": store["beats"], "events": store["events"],
        "sqlite": store["sqlite"][0]["median_s"], "postgresql": store["postgresql"][0]["median_s"],
        "overhead_s": max(0.0, overhead["overhead_s"]["median"]),
    }  # fmt: skip


def supply(gpus: int, per_gpu_slot: bool) -> list[Supply]:
    """Six kinds in hosts of eight (of one, where there are ten GPUs in all), one slot a host or one a GPU."""
    supplies = []
    for kind, (share, asked) in SHARES.items():
        count = max(1, round(gpus * share))
        hosts = count if gpus < 50 else max(1, round(count / 8))
        slots = max(1, round(count / hosts)) if per_gpu_slot else 1
        supplies.append(Supply(kind, count, hosts, slots, asked))
    return supplies


def scenario(figures: Json, gpus: int, *, database: str = "postgresql", per_gpu_slot: bool = False, factor: float = 1.0,
             deduplicate: bool = False, cap: float = math.inf) -> Scenario:  # fmt: skip
    """A day of a fleet. Lanes and web processes as many as its slots and submissions take: they are bought by setting
    a number, slots are not."""
    times = figures[database]
    store = Store(
        database, 1 if database == "sqlite" else 2, times["submit"], times["claim"], times["heartbeat"],
        times["progress"], times["finish"], figures["beats"], figures["events"],
    )  # fmt: skip
    parts = supply(gpus, per_gpu_slot)
    per_day = PER_GPU * gpus * factor
    return Scenario(
        supply=parts, per_day=per_day, lengths_s=figures["lengths_s"], store=store,
        web=max(1, math.ceil(3 * per_day * figures["advice_s"] / DAY_S)), web_s=figures["advice_s"],
        lanes=sum(s.hosts * s.slots for s in parts), overhead_s=figures["overhead_s"],
        regions=max(10, round(PER_GPU * gpus * REGIONS_PER_DAY)), deduplicate=deduplicate, cap=cap, **ASSUMED,
    )  # fmt: skip


def summary(of: Scenario, out: Outcome) -> Json:
    """One row of the record."""
    waits = np.asarray(out.waits_s or [0.0])
    slots = {s.kind: s.hosts * s.slots for s in of.supply}
    busy = {kind: out.busy_slot_s[kind] / (slots[kind] * out.ended_s) for kind in slots}
    p95 = {k: round(float(np.quantile(w, 0.95)), 1) for k, w in out.by_kind_s.items() if w}
    gpu_s = sum(out.busy_slot_s.values())
    return {
        "gpus": sum(s.gpus for s in of.supply), "slots": sum(slots.values()), "store": of.store.name,
        "web": of.web, "lanes": of.lanes, "deduplicate": of.deduplicate,
        "cap": None if math.isinf(of.cap) else of.cap,
        "asked": out.asked, "ends": dict(sorted(out.ends.items())), "lost": out.lost,
        "wait_s": {"mean": round(float(waits.mean()), 1)}
        | {f"p{q}": round(float(np.quantile(waits, q / 100)), 1) for q in (50, 95, 99, 100)},
        "p95_by_kind_s": p95, "most_waiting": out.most_waiting,
        "busy": {k: round(v, 4) for k, v in busy.items()},
        "store_busy": round(out.store_busy_s / (of.store.writers * out.ended_s), 4),
        "web_busy": round(out.web_busy_s / (of.web * out.ended_s), 4),
        "gpu_hours": round(gpu_s / 3600, 1),
        "gpu_s_per_validation": round(gpu_s / max(1, out.ends["done"]), 2),
        "store_cpu_hours": round(out.store_busy_s / 3600, 2), "web_cpu_hours": round(out.web_busy_s / 3600, 2),
        "limits_per_day": {k: round(v) for k, v in limits_per_day(of).items()},
    }  # fmt: skip


RUNS: tuple[tuple[str, Json], ...] = (
    ("10 GPUs", {"gpus": 10, "database": "sqlite"}),
    ("100 GPUs", {"gpus": 100, "database": "sqlite"}),
    ("1,000 GPUs", {"gpus": 1000}),
    ("1,000 GPUs, on SQLite", {"gpus": 1000, "database": "sqlite"}),
    ("1,000 GPUs, default queue cap of 32", {"gpus": 1000, "cap": 32}),
    ("1,000 GPUs, deduplicated", {"gpus": 1000, "deduplicate": True}),
    ("1,000 GPUs, a slot for each GPU", {"gpus": 1000, "per_gpu_slot": True}),
    ("1,000 GPUs, asked twice as much", {"gpus": 1000, "factor": 2.0}),
    ("1,000 GPUs, asked twice as much, deduplicated", {"gpus": 1000, "factor": 2.0, "deduplicate": True}),
)


def simulate() -> Json:
    """All runs."""
    figures = load_measurements()
    rows = []
    for name, options in RUNS:
        of = scenario(figures, **options)
        rows.append({"name": name, **summary(of, Fleet(of, SEED).run())})
        print(name, rows[-1]["wait_s"], rows[-1]["ends"], flush=True)
    return {"seed": SEED, "measured": figures, "rows": rows, "bottlenecks": bottlenecks(figures)}


def bottlenecks(figures: Json) -> list[Json]:
    """For each size, what is busy all the time first, and at how many validations a day."""
    rows = []
    for gpus in (10, 100, 1000):
        limits = limits_per_day(scenario(figures, gpus))
        limits = {k: v for k, v in limits.items() if k not in ("web", "lanes")}
        limits["store, SQLite"] = limits_per_day(scenario(figures, gpus, database="sqlite"))["store"]
        limits["store, PostgreSQL"] = limits.pop("store")
        order = sorted(limits.items(), key=lambda item: item[1])
        rows.append({"gpus": gpus, "asked": PER_GPU * gpus, "limits": [[k, round(v)] for k, v in order]})
    return rows


def page(record: Json) -> str:
    """docs/fleet-simulation.md."""
    figures, rows = record["measured"], record["rows"]
    by_name = {row["name"]: row for row in rows}
    plain, again = by_name["1,000 GPUs"], by_name["1,000 GPUs, deduplicated"]
    capped = by_name["1,000 GPUs, default queue cap of 32"]
    first = record["bottlenecks"][-1]["limits"][0]
    lengths = figures["lengths_s"]
    saved = again["ends"].get("same", 0) / again["asked"]
    lines = [
        "# A fleet of a thousand GPUs, simulated",
        "",
        "Nobody here has a thousand GPUs. This page is a discrete-event simulation"
        " (`python -m tools.fleet.fleet_simulation --run`, simpy,",
        f"seed {record['seed']}): one day of a fleet of six kinds, {PER_GPU} validations a day for each GPU,"
        " bursts from CI, hosts that fail.",
        "",
        "**Measured** and fed into it:",
        "",
        f"- how long a validation takes: the {len(lengths)} of the archive, on an H200, {lengths[0]:.1f} to"
        f" {lengths[-1]:.0f} s, {np.mean(lengths):.1f} s on average; drawn with replacement, for all kinds alike",
        f"- what it costs the store, in seconds of its transactions: {_job_s(figures, 'sqlite') * 1e3:.0f} ms on"
        f" SQLite, {_job_s(figures, 'postgresql') * 1e3:.0f} ms on PostgreSQL ({figures['events']} progress events,"
        f" {figures['beats']} heartbeats), on a busy machine of two cores",
        f"- what it costs the web before it is queued: {figures['advice_s'] * 1e3:.0f} ms of advice"
        " (the same machine)",
        f"- what Ray adds to a job: {figures['overhead_s'] * 1e3:.0f} ms, with a child that only answers; a server"
        " without a fleet keeps",
        "  the next validation's process ready, and a host of a fleet does not: its seconds of imports are not in this"
        " figure",
        "",
        "**Assumed**: the kinds' shares below; 40 % of what is asked comes in bursts of about 200 within a minute; the"
        " rate swings",
        "by 60 % over the day; contents by Zipf's law (exponent 1.1) over half as many regions as validations; a host"
        " fails once in",
        "30 days for two hours; hosts of eight GPUs (of one, in the fleet of ten) that measure one thing at a time;"
        " PostgreSQL with",
        "two writers at once. **Not simulated**: Ray's own scheduler, the network, reading traces, other users of the"
        " cluster.",
        "",
        "| kind | share of the GPUs | share of what is asked |",
        "|-|-|-|",
        *(f"| {kind} | {there:.0%} | {asked:.0%} |" for kind, (there, asked) in SHARES.items()),
        "",
        "## What waits",
        "",
        "![Waiting times](fleet-waits.svg)",
        "",
        *_table(rows),
        "",
        "Waits are from the submission to the run that counted; the last four columns are the store's busy share, runs"
        " that a failing",
        "host lost, answers of an equal validation, and submissions refused. A host that fails costs its job an"
        " attempt: the lease runs out, and it",
        f"is done again. At 1,000 GPUs {plain['lost']} runs were lost so in the day, and"
        f" {plain['ends'].get('given up', 0)} jobs given up.",
        "",
        "## What saturates first",
        "",
        "![Validations a day that each part can take](fleet-limits.svg)",
        "",
        f"**{first[0][0].upper() + first[0][1:]}, at {first[1]:,} validations a day** for the fleet of 1,000 (asked:"
        f" {record['bottlenecks'][-1]['asked']:,}): one",
        "measurement at a time on a host of eight GPUs leaves seven of them idle. The kind that is asked for more than"
        " its share of the",
        "GPUs is full first. What each part could take, if it were the only limit:",
        "",
        *_limits(record["bottlenecks"]),
        "",
        "The queue's default cap of 32 (`TRITONWORTHY_QUEUE_CAP`) is met far earlier:"
        f" {capped['ends'].get('refused', 0):,} of {capped['asked']:,} submissions were",
        f"answered with 429. Without a cap at most {plain['most_waiting']:,} waited at once: a fleet needs a cap of"
        " that order. Lanes",
        f"(`TRITONWORTHY_FLEET_LANES`, 16 a server) have to add up to the slots: {plain['slots']} here.",
        "",
        "## What deduplication saves",
        "",
        "The same region, shapes, kind and versions measured once a day:"
        f" {again['ends'].get('same', 0):,} of {again['asked']:,} validations ({saved:.0%}) are answered",
        f"by another's, and GPU time falls from {plain['gpu_hours']:,.0f} to {again['gpu_hours']:,.0f} hours."
        " The share is Zipf's, not measured,",
        'and so is what it saves: in the queue whoever asks says `"reuse": true`, see [In CI](ci.md).',
        "",
        "## What it costs",
        "",
        f"{plain['gpu_s_per_validation']:.1f} s of a measuring slot for each validation. The day of 1,000 GPUs takes"
        f" {plain['gpu_hours']:,.0f} slot-hours of {plain['slots'] * 24:,}; one slot holds",
        f"a host of eight GPUs. The web takes {plain['web_cpu_hours']:,.0f} CPU-hours, the store"
        f" {plain['store_cpu_hours']:,.0f}.",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def _job_s(figures: Json, name: str) -> float:
    times = figures[name]
    fixed = float(times["submit"] + times["claim"] + times["finish"])
    return fixed + float(figures["beats"] * times["heartbeat"] + figures["events"] * times["progress"])


def _table(rows: Sequence[Json]) -> list[str]:
    head = "| fleet | asked | slots | wait: mean | p95 | p99 | longest | busiest kind | store | lost | same | refused |"
    lines = [head, "|-|" + "-|" * 11]
    for row in rows:
        kind, busy = max(row["busy"].items(), key=lambda item: item[1])
        wait = row["wait_s"]
        spans = " | ".join(_span(wait[name]) for name in ("mean", "p95", "p99", "p100"))
        lines.append(
            f"| {row['name']} | {row['asked']:,} | {row['slots']:,} | {spans} | {kind} {busy:.0%} |"
            f" {row['store_busy']:.1%} | {row['lost']} | {row['ends'].get('same', 0):,} |"
            f" {row['ends'].get('refused', 0):,} |"
        )
    return lines


def _limits(rows: Sequence[Json]) -> list[str]:
    lines = ["| GPUs | asked a day | first | then | and then |", "|-|-|-|-|-|"]
    for row in rows:
        three = " | ".join(f"{name}: {value:,}" for name, value in row["limits"][:3])
        lines.append(f"| {row['gpus']:,} | {row['asked']:,} | {three} |")
    stores = {name: value for name, value in rows[-1]["limits"] if name.startswith("store")}
    said = ", ".join(f"{name}: {value:,}" for name, value in sorted(stores.items()))
    store = json.loads((RECORDS / "fleet-store.json").read_text(encoding="utf-8"))
    slowest = {name: min(run["jobs_per_s"] for run in store[name]) for name in ("postgresql", "sqlite")}
    least = ", ".join(f"{round(rate * 86_400, -3):,.0f} a day on {name}" for name, rate in slowest.items())
    return (
        [
            *lines,
            "",
            f"The store is no limit at any size ({said} validations a day, by the seconds of its transactions and the"
            " writers assumed).",
            f"Whole jobs one after the other, clients and database on the same two busy cores, went at {least}"
            " (the slower of one thread and four).",
        ]
        if all(value > rows[-1]["asked"] for value in stores.values())
        else [*lines, "", f"The store: {said} validations a day."]
    )


def _span(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def bars(title: str, unit: str, rows: Sequence[tuple[str, float]], mark: tuple[str, float] | None = None) -> str:
    """A small chart of horizontal bars on a logarithmic axis that begins at 1."""
    top = max([value for _, value in rows] + [mark[1] if mark else 1.0])
    left, width, step = 300, 330, 22
    height = 48 + step * len(rows) + (18 if mark else 0)

    def x(value: float) -> float:
        return left + width * math.log10(max(1.0, value)) / math.log10(max(10.0, top))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" font-family="sans-serif" font-size="12"'
        f' role="img"><title>{title}</title><rect width="760" height="{height}" fill="#fff"/>',
        f'<text x="12" y="20" font-size="14" font-weight="bold">{title}</text>',
    ]
    for n, (name, value) in enumerate(rows):
        y = 34 + step * n
        parts.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{name}</text>')
        parts.append(f'<rect x="{left}" y="{y}" width="{x(value) - left:.1f}" height="16" fill="#3b6ea5"/>')
        parts.append(f'<text x="{x(value) + 6:.1f}" y="{y + 12}">{value:,.0f}{unit}</text>')
    if mark:
        bottom = 34 + step * len(rows)
        parts.append(f'<path d="M{x(mark[1]):.1f} 30V{bottom + 4}" stroke="#b3261e" stroke-dasharray="4 3"/>')
        parts.append(
            f'<text x="{x(mark[1]):.1f}" y="{bottom + 17}" text-anchor="middle" fill="#b3261e">{mark[0]}</text>'
        )
    return "".join([*parts, "</svg>\n"])


def charts(record: Json) -> Mapping[str, str]:
    """The page's pictures by file name."""
    waits = [(f"{row['name']}", row["wait_s"]["p95"]) for row in record["rows"]]
    last = record["bottlenecks"][-1]
    return {
        "fleet-waits.svg": bars("95 % of validations begin within (seconds, logarithmic)", " s", waits),
        "fleet-limits.svg": bars(
            "1,000 GPUs: validations a day that each part can take (logarithmic)", "",
            [(name, value) for name, value in last["limits"]], (f"asked: {last['asked']:,}", last["asked"]),
        ),
    }  # fmt: skip


def main() -> None:
    """Simulate with --run; then, or without, write the page and the charts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", action="store_true", help="simulate and record first")
    if parser.parse_args().run:
        RECORD.write_text(json.dumps(simulate(), indent=1) + "\n", encoding="utf-8")
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    PAGE.write_text(page(record), encoding="utf-8")
    for name, svg in charts(record).items():
        (PAGE.parent / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
