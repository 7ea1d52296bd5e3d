"""Counted bytes against the DRAM bytes that `ncu` read: its CSV, the comparison, the record and its table. Torch-free.

A run of a region under the profiler is two segments between marker kernels: the region's own kernels, then a kernel
that only reads a large buffer, so that what the region left dirty in L2 is written back where it can be counted.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

READ, WRITTEN, TIME = "dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum"
L2_READ, L2_WRITTEN = "lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_write.sum"
METRICS = (READ, WRITTEN, TIME)
L2_METRICS = (L2_READ, L2_WRITTEN)
SECTOR_BYTES = 32
MARKER = "spin_kernel"
"""The kernel behind torch.cuda._sleep: nothing else launches it, so it can stand between runs."""

TOLERANCE = 0.10

_SCALE = {
    "": 1, "byte": 1, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9, "tbyte": 1e12, "sector": 1, "nsecond": 1e-3,
    "ns": 1e-3, "usecond": 1, "us": 1, "msecond": 1e3, "ms": 1e3, "second": 1e6, "s": 1e6,
}  # fmt: skip
"""Unit as ncu writes it -> factor to bytes, sectors or µs."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel that ran: DRAM bytes, µs, and bytes asked of L2 by the processors where that was read."""

    name: str
    bytes_read: int
    bytes_written: int
    time_us: float
    l2_bytes_read: int | None = None
    l2_bytes_written: int | None = None

    @property
    def bytes_moved(self) -> int:
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True, slots=True)
class Run:
    """One region in one mode under one cache control. flushed: bytes written by the reading kernel behind it."""

    region: str
    mode: str  # "eager" or "compile"
    kernels: tuple[Kernel, ...]
    flushed: int = 0

    @property
    def bytes_read(self) -> int:
        return sum(k.bytes_read for k in self.kernels)

    @property
    def bytes_written(self) -> int:
        return sum(k.bytes_written for k in self.kernels)


@dataclass(frozen=True, slots=True)
class Counted:
    """What the cost model counts for a kernel, or for the whole region."""

    label: str
    bytes_read: int
    bytes_written: int

    @property
    def bytes_moved(self) -> int:
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True, slots=True)
class Comparison:
    """A region in one mode: counted against measured, per region and, where they are as many, per kernel.

    warm: the same with the caches left alone, writes with what was still in L2 at the end. ratio: measured / counted.
    """

    region: str
    mode: str
    text: str
    counted: Counted
    kernels: tuple[Kernel, ...]
    lined_up: tuple[Counted, ...]
    warm: Mapping[str, int] = field(default_factory=dict)
    floor_us: float = 0.0
    explanation: str = ""

    @property
    def bytes_read(self) -> int:
        return sum(k.bytes_read for k in self.kernels)

    @property
    def bytes_written(self) -> int:
        return sum(k.bytes_written for k in self.kernels)

    @property
    def ratio(self) -> float:
        return (self.bytes_read + self.bytes_written) / self.counted.bytes_moved

    @property
    def agrees(self) -> bool:
        return abs(self.ratio - 1) <= TOLERANCE


def parse_csv(text: str) -> list[Kernel]:
    """The kernels of `ncu --csv` in the order in which they ran, from either of its pages.

    `--page raw` has one row per kernel, one column per metric and a row of units below the header; the details page
    has one row per kernel and metric. Lines before the header (==PROF==, the program's own output) are left out.
    ValueError: no header, or a metric that is missing or "n/a".
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID",')), None)
    if start is None:
        raise ValueError("no CSV header in what ncu wrote: " + " | ".join(lines[-3:])[:300])
    rows = list(csv.reader(line for line in lines[start:] if line.startswith('"')))
    header = rows[0]
    by_id: dict[str, tuple[str, dict[str, float]]] = {}
    if "Metric Name" in header:
        for values in rows[1:]:
            row = dict(zip(header, values, strict=False))
            name, metrics = by_id.setdefault(row["ID"], (row["Kernel Name"], {}))
            if row["Metric Name"]:
                metrics[row["Metric Name"]] = _number(row["Metric Value"], row["Metric Unit"], name)
    else:
        units = dict(zip(header, rows[1], strict=False)) if len(rows) > 1 and not rows[1][0] else {}
        for values in rows[2 if units else 1 :]:
            row = dict(zip(header, values, strict=False))
            wanted = [m for m in (*METRICS, *L2_METRICS) if m in row]
            name = row["Kernel Name"]
            by_id[row["ID"]] = name, {m: _number(row[m], units.get(m, ""), name) for m in wanted}
    return [_kernel(name, metrics) for name, metrics in by_id.values()]


def _number(value: str, unit: str, kernel: str) -> float:
    """ "2,000.5" in Mbyte -> 2000500000.0. ValueError where ncu has no value."""
    try:
        return float(value.replace(",", "")) * _SCALE[unit.lower()]
    except (ValueError, KeyError):
        raise ValueError(f"ncu gave {value!r} {unit!r} for {kernel}") from None


def _kernel(name: str, metrics: Mapping[str, float]) -> Kernel:
    missing = [m for m in METRICS if m not in metrics]
    if missing:
        raise ValueError(f"ncu gave no {', '.join(missing)} for {name}")
    sectors = [round(metrics[m]) * SECTOR_BYTES if m in metrics else None for m in L2_METRICS]
    return Kernel(shorten(name), round(metrics[READ]), round(metrics[WRITTEN]), metrics[TIME], *sectors)


def shorten(name: str) -> str:
    """`void at::native::vectorized_elementwise_kernel<4, ...>(int, ...)` -> `vectorized_elementwise_kernel`."""
    plain = re.sub(r"\(anonymous namespace\)::|^void |^std::enable_if<.*?>::type ", "", name)
    depth, kept = 0, []
    for letter in plain:
        depth += (letter in "<(") - (letter in ">)")
        if depth == 0 and letter not in ">)":
            kept.append(letter)
        elif letter == "(" and depth == 1 and kept:
            break
    return "".join(kept).strip().rsplit("::", 1)[-1][:100]


def split_runs(kernels: Sequence[Kernel], order: Sequence[tuple[str, str]]) -> list[Run]:
    """Kernels -> runs: marker, the region's kernels, marker, the reading kernel; one such pair per entry of `order`.

    ValueError where the markers do not come out even: then no kernel can be told from another.
    """
    segments: list[list[Kernel]] = []
    for kernel in kernels:
        if MARKER in kernel.name:
            segments.append([])
        elif segments:
            segments[-1].append(kernel)
        else:
            raise ValueError(f"{kernel.name} ran before the first marker")
    if len(segments) != 2 * len(order):
        raise ValueError(f"{len(segments)} segments for {len(order)} runs")
    pairs = zip(order, segments[::2], segments[1::2], strict=True)
    return [Run(r, m, tuple(own), sum(k.bytes_written for k in behind)) for (r, m), own, behind in pairs]


def compare(
    run: Run, text: str, counted: Counted, parts: Sequence[Counted], warm: Run | None, floor_us: float, why: str = ""
) -> Comparison:
    """One region's comparison. parts: what the cost model counts kernel by kernel, in order."""
    lined_up = tuple(parts) if len(parts) == len(run.kernels) else ()
    left = {} if warm is None else {
        "bytes_read": warm.bytes_read, "bytes_written": warm.bytes_written, "bytes_written_back_after": warm.flushed,
    }  # fmt: skip
    return Comparison(run.region, run.mode, text, counted, run.kernels, lined_up, left, floor_us, why)


def to_json(item: Comparison) -> dict[str, Any]:
    """A comparison as the record holds it. `kernels` carry what was counted for them where both are as many."""
    kernels = [asdict(k) for k in item.kernels]
    for kernel, part in zip(kernels, item.lined_up, strict=False):
        kernel["counted"] = asdict(part)
    return {
        "region": item.region, "mode": item.mode, "text": item.text,
        "counted": {"bytes_read": item.counted.bytes_read, "bytes_written": item.counted.bytes_written},
        "measured": {"bytes_read": item.bytes_read, "bytes_written": item.bytes_written},
        "ratio": round(item.ratio, 4), "agrees": item.agrees, "warm": dict(item.warm),
        "time_us": round(sum(k.time_us for k in item.kernels), 2), "floor_us": round(item.floor_us, 2),
        "explanation": item.explanation, "kernels": kernels,
    }  # fmt: skip


def run_of(item: Mapping[str, Any]) -> tuple[Run, Run | None]:
    """The runs behind one entry of a record: cold, and warm where it was taken."""
    names = Kernel.__dataclass_fields__
    kernels = tuple(Kernel(**{k: v for k, v in kernel.items() if k in names}) for kernel in item["kernels"])
    warm = item.get("warm") or None
    if warm is not None:
        whole = Kernel("all", warm["bytes_read"], warm["bytes_written"], 0.0)
        return Run(item["region"], item["mode"], kernels), Run(
            item["region"], item["mode"], (whole,), warm["bytes_written_back_after"]
        )
    return Run(item["region"], item["mode"], kernels), None


def table(items: Sequence[Mapping[str, Any]]) -> str:
    """One line per region and mode, in GB; the kernels that differ by more than the tolerance below their region."""
    head = ("region", "mode", "counted", "measured", "ratio", "read", "written", "warm w.", "kernels", "us", "floor")
    lines = [f"{head[0]:22}{head[1]:9}" + "".join(f"{h:>9}" for h in head[2:])]
    for item in items:
        counted, measured, warm = item["counted"], item["measured"], item["warm"]
        moved = [sum((c["bytes_read"], c["bytes_written"])) / 1e9 for c in (counted, measured)]
        parts = [measured[k] / max(1, counted[k]) for k in ("bytes_read", "bytes_written")]
        back = (
            (warm["bytes_written"] + warm["bytes_written_back_after"]) / max(1, counted["bytes_written"]) if warm else 0
        )
        numbers = f"{moved[0]:9.3f}{moved[1]:9.3f}{item['ratio']:9.3f}{parts[0]:9.3f}{parts[1]:9.3f}{back:9.3f}"
        lines.append(
            f"{item['region']:22}{item['mode']:9}{numbers}{len(item['kernels']):9}{item['time_us']:9.0f}"
            f"{item['floor_us']:9.0f}" + ("" if item["agrees"] else f"   {item['explanation'] or 'NOT EXPLAINED'}")
        )
        for kernel in item["kernels"]:
            part = kernel.get("counted")
            own = kernel["bytes_read"] + kernel["bytes_written"]
            other = part["bytes_read"] + part["bytes_written"] if part else own
            if abs(own - other) > max(TOLERANCE * other, 64e6):
                lines.append(f"    {kernel['name']:50} {other / 1e9:9.3f} counted{own / 1e9:9.3f} measured")
    return "\n".join(lines)
