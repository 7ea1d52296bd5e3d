"""The Archive as text: a table of records, one whole record. Pure functions; no control character gets through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from app.archive import nearness, schema
from app.archive.schema import region_of
from app.objects.common import Interval
from app.objects.evidence import Candidate, CandidateShape, Reading
from app.objects.record import ArchiveRecord, ArchiveRow, NearestRecord
from profiler.hardware import find_device
from profiler.region.model import Region

COLUMNS = ("record", "region", "dtypes", "shapes", "device", "torch", "triton", "date", "outcome", "advice", "fastest",
           "× eager")  # fmt: skip
WIDEST = 34
READINGS: Mapping[str, str] = {
    "sm_clock_mhz": "SM clock {:.0f} MHz", "memory_clock_mhz": "memory clock {:.0f} MHz", "power_w": "{:.0f} W",
    "power_limit_w": "power limit {:.0f} W", "temperature_c": "{:.0f} °C", "memory_used_mib": "{:.0f} MiB in use",
    "other_processes": "{:.0f} other processes",
}  # fmt: skip


def mark(record: ArchiveRecord | ArchiveRow) -> str:
    """The end of a record's id, by which it can be named."""
    return str(record["id"]).rpartition("-")[2]


def row(record: ArchiveRecord) -> ArchiveRow:
    """One record in a list: what the table shows, and for --json."""
    region = region_of(record)
    return {
        "id": record["id"],
        "name": record["name"],
        "dtypes": list(dict.fromkeys(i.dtype for i in region.inputs)),
        "shapes": _shapes(region, record),
        "device": record["device"],
        "torch": nearness.software(record, "torch") or None,
        "triton": nearness.software(record, "triton") or None,
        "date": record["date"],
        "outcome": record["outcome"],
        "advice": after["tool"] if (after := record.get("advice_after")) else None,
        "fastest": record.get("best"),
        "ratio_to_eager": next(
            (ratio["median"] for c in record["candidates"]
             if c["name"] == record.get("best") and (ratio := c.get("ratio_to_eager"))), None
        ),
    }  # fmt: skip


def wanted(record: ArchiveRecord, device: str | None, region: str | None, outcome: str | None) -> bool:
    """Whether the filters let a record through: device by any of its names, region by a part of its name or text."""
    if outcome not in (None, record["outcome"]):
        return False
    if region is not None and region.lower() not in f"{record['name']}\n{record['region']}".lower():
        return False
    recorded = str(record["device"])
    if device is None or device.lower() in recorded.lower():
        return True
    return find_device(device) is not None and nearness.same_device(device, recorded)


def table(records: Sequence[ArchiveRecord]) -> str:
    """A line for each record."""
    rows = []
    for listed in map(row, records):
        ratio = listed["ratio_to_eager"]
        cells = [
            mark(listed), listed["name"], " ".join(listed["dtypes"]), listed["shapes"], listed["device"],
            listed["torch"], listed["triton"], listed["date"], listed["outcome"], listed["advice"], listed["fastest"],
            "" if ratio is None else f"{ratio:.3g}",
        ]  # fmt: skip
        rows.append([_short(plain(str(cell or "not told")), WIDEST) for cell in cells])
    widths = [max(len(r[n]) for r in [list(COLUMNS), *rows]) for n in range(len(COLUMNS))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in [list(COLUMNS), *rows]]
    return "\n".join(lines)


def record_text(record: ArchiveRecord | NearestRecord) -> str:
    """One record whole: region, where and with what, conditions, outcome, candidates, times of every shape."""
    software, conditions = record.get("software") or {}, record.get("conditions") or {}
    lines = [f"{record['name']} ({record['id']})"]
    if "elsewhere" in record:
        lines.append(cast("NearestRecord", record)["elsewhere"]["because"])
    lines += ["", *("  " + line for line in record["region"].rstrip().splitlines()), ""]
    lines.append(f"measured   {record['date']} on {record['device']}")
    lines.append("software   " + ", ".join(f"{k} {v}" for k, v in software.items()))
    lines.append(f"before     {_reading(conditions.get('before') or {})}")
    lines.append(f"after      {_reading(conditions.get('after') or {})}")
    lines.append(
        f"rounds     {conditions.get('rounds', 'not told')}, decided by {conditions.get('decided_by', 'not told')}"
    )
    lines += [f"warning    {text}" for text in conditions.get("warnings") or ()]
    missing = schema.lacking(record)
    lines += [f"not told   {', '.join(missing)}"] if missing else []
    lines += [f"libraries  {record['coverage']}"] if record.get("coverage") else []
    lines += ["", f"{record['outcome']}: {record['reason']}"]
    for title, advice in (("before", record.get("advice_before")), ("after", record.get("advice_after"))):
        if advice:
            lines.append(f"advice {title}: {advice.get('tool')}: {advice.get('headline')}")
    for candidate in record["candidates"]:
        lines += ["", *_candidate(candidate, record.get("best"))]
    return "\n".join(plain(line) for line in lines)


def plain(text: str) -> str:
    """Without control characters: a record may come from anywhere, and a terminal obeys them."""
    return "".join(c if c.isprintable() else " " if c in "\t\n" else "\ufffd" for c in text)


def _candidate(candidate: Candidate, best: str | None) -> list[str]:
    figures = [candidate["status"] + (", the fastest" if candidate["name"] == best else "")]
    figures += (
        [f"error {candidate['error_vs_eager']:.3g} × eager's"] if candidate.get("error_vs_eager") is not None else []
    )
    figures += [f"first call {candidate['compile_s']:.3g} s"] if candidate.get("compile_s") is not None else []
    figures += [f"{len(candidate['kernels'])} kernels"] if candidate.get("kernels") else []
    lines = [f"{candidate['name']}: {', '.join(figures)}"]
    if candidate.get("message"):
        lines.append(f"  {candidate['message']}")
    shapes = candidate.get("shapes") or []
    parts: list[tuple[str, CandidateShape | Candidate]] = [(_binding(s) or "per call", s) for s in shapes]
    if len(parts) != 1:
        parts.append(("weighted", candidate))
    lines += [f"  {title:<16} {_figures(part)}" for title, part in parts if part.get("time_us")]
    return lines


def _figures(part: CandidateShape | Candidate) -> str:
    time_us, share, wall_us, peak = (
        part.get("time_us"), part.get("share_of_limit"), part.get("wall_us"), part.get("peak_bytes"),
    )  # fmt: skip
    text = f"{_span(time_us)} µs" if time_us else ""
    for said, ratio in (("eager", part.get("ratio_to_eager")), ("the best other", part.get("ratio_to_best_other"))):
        text += f"; {_span(ratio)} × {said}" if ratio else ""
    text += f"; {share:.0%} of the limit" if share is not None else ""
    text += f"; wall {wall_us:.4g} µs" if wall_us is not None else ""
    return text + (f"; peak {peak / 2**20:.4g} MiB" if peak is not None else "")


def _span(span: Interval) -> str:
    return f"{span['median']:.4g} [{span['low']:.4g}, {span['high']:.4g}]"


def _binding(shape: CandidateShape) -> str:
    return ", ".join(f"{k}={v}" for k, v in sorted(shape["binding"].items()))


def _shapes(region: Region, record: ArchiveRecord) -> str:
    inputs = " ".join("×".join(map(str, i.shape)) or "()" for i in region.inputs)
    measured: dict[str, list[int]] = {}
    for binding, _ in schema.shapes_of(record):
        for name, size in binding:
            measured.setdefault(name, []).append(size)
    return "; ".join([*(f"{n}={','.join(map(str, sizes))}" for n, sizes in measured.items()), inputs])


def _reading(reading: Reading) -> str:
    figures: Mapping[str, object] = reading
    known = [said.format(figure) for k, said in READINGS.items() if isinstance(figure := figures.get(k), int | float)]
    slowed = reading.get("throttle") or []
    return ", ".join([*known, *([f"slowed by {', '.join(map(str, slowed))}"] if slowed else [])]) or "not told"


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
