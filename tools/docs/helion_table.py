"""The measured part of docs/helion.md: `python -m tools.docs.helion_table [--from DIR --date DAY]`.

With --from the files of a run of benchmarks/operations/helion_regions.py become tests/records/helion-h200.json first.
The part between the page's marks is written from that record.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.accuracy.totals import geomean
from app.advice.in_helion import SHARE_OF_LINES, is_short

ROOT = Path(__file__).resolve().parents[2]
PAGE, RECORD = ROOT / "docs" / "helion.md", ROOT / "tests" / "records" / "helion-h200.json"
BEGIN, END = "<!-- measured -->\n", "<!-- /measured -->\n"
WAYS = ("eager", "max_autotune", "triton", "helion")
RIGHT = 2.0
"""Times eager's own error that a result may be off by, as everywhere here."""
LEAST_ERROR = 3e-7
"""Of a result in f32, in the 2-norm: its own rounding."""
TIE = 0.03
SHARED = ("device", "torch", "triton_version", "helion_version", "tuning_budget_s")

Region = Mapping[str, Any]


def gather(folder: Path, day: str) -> dict[str, Any]:
    """The record of a run: what all regions share once, then each region. Raises ValueError where they differ."""
    regions: list[dict[str, Any]] = []
    shared: dict[str, Any] = {}
    for path in sorted(folder.glob("*.json")):
        told = json.loads(path.read_text(encoding="utf-8"))
        mine = {k: told[k] for k in SHARED}
        if shared and mine != shared:
            raise ValueError(f"{path.name} is of {mine}, the others of {shared}")
        shared = mine
        kept = {"name": path.stem, **{k: v for k, v in told.items() if k not in (*mine, "done")}}
        regions.append(dict(json.loads(json.dumps(kept), parse_float=lambda text: float(f"{float(text):.4g}"))))
    return {"date": day, **shared, "regions": regions}


def _told(region: Region, way: str) -> Mapping[str, Any]:
    """What the run says of a way; nothing of one that it did not come to."""
    told: Mapping[str, Any] = region.get(way) or {}
    return told


def time_of(region: Region, way: str) -> float | None:
    """µs of a way that ran and was right; None of one that did not, or was not."""
    told = _told(region, way)
    if "time_us" not in told:
        return None
    allowed = RIGHT * max(_told(region, "eager").get("error", 0.0), LEAST_ERROR)
    return float(told["time_us"]) if way == "eager" or told["error"] <= allowed else None


def ratio(region: Region, way: str, over: str) -> float | None:
    """A way's time over another's."""
    mine, other = time_of(region, way), time_of(region, over)
    return mine / other if mine and other else None


def _geomean(values: Sequence[float]) -> str:
    return f"{geomean(values):.2f}" if values else "–"


def _said(value: float | None, digits: str) -> str:
    return "–" if value is None else format(value, digits)


def measured(record: Mapping[str, Any]) -> str:
    """The part between the marks."""
    regions: Sequence[Region] = record["regions"]
    ours = [r for r in (ratio(r, "helion", "triton") for r in regions) if r is not None]
    tuned = [r for r in (ratio(r, "helion", "max_autotune") for r in regions) if r is not None]
    short = [r for r in regions if is_short(r["helion_lines"], r["triton_lines"])]
    lines = [
        f"Run {record['date']} on an {record['device']}, torch {record['torch']}, Triton "
        f"{record['triton_version']}, Helion {record['helion_version']}, with {record['tuning_budget_s']} s of "
        "tuning a region at most. Times in µs, medians of `triton.testing.do_bench`, L2 cleared; *first*: seconds of "
        "Helion's first call, its tuning and compiling in it; *over*: Helion's time over the other's.",
        "",
        "| region | lines, Helion / Triton | first | eager | max-autotune | Triton | Helion | over Triton | over "
        "max-autotune |",
        "|-|-|-|-|-|-|-|-|-|",
        *(
            f"| {r['name']} | {r['helion_lines']} / {r['triton_lines']} "
            f"| {_said(_told(r, 'helion').get('first_s'), '.0f')} "
            f"| {' | '.join(_said(time_of(r, way), '.4g') for way in WAYS)} "
            f"| {_said(ratio(r, 'helion', 'triton'), '.2f')} | {_said(ratio(r, 'helion', 'max_autotune'), '.2f')} |"
            for r in regions
        ),
        "",
        f"Of {len(regions)} regions, Helion ran and was right on {len(ours)}: geometric mean {_geomean(ours)} of "
        f"generated Triton's time, {_geomean(tuned)} of max-autotune's; within {TIE:.0%} of Triton's or faster on "
        f"{sum(r <= 1 + TIE for r in ours)}. Its source has at most {SHARE_OF_LINES:.0%} of Triton's lines in "
        f"{len(short)}.",
    ]
    missing = [(r["name"], why) for r in regions if time_of(r, "helion") is None and (why := _why(r))]
    lines += ["", *(f"- {name}: {why}" for name, why in missing)] if missing else []
    return "\n".join(lines) + "\n"


def _why(region: Region) -> str:
    told = _told(region, "helion")
    if "time_us" in told:
        eager = _told(region, "eager").get("error", 0.0)
        return f"its result is off by {told['error']:.1e}, eager's by {eager:.1e}"
    said = told.get("failed") or region.get("failed", "not run")
    return " ".join(str(said).split()).replace("|", "/")[:160]


def current() -> str:
    """The page with the record's part; as it is while there is no record."""
    page = PAGE.read_text(encoding="utf-8")
    if not RECORD.exists():  # the page says that nothing has been timed
        return page
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{measured(json.loads(RECORD.read_text(encoding='utf-8')))}{END}{after}"


def main(arguments: Sequence[str]) -> int:
    """Write the record where asked, and the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--from", dest="folder", type=Path, help="folder of a run's files")
    parser.add_argument("--date", help="of that run, YYYY-MM-DD")
    asked = parser.parse_args(arguments)
    if asked.folder:
        if not asked.date:
            parser.error("--from needs --date")
        RECORD.write_text(json.dumps(gather(asked.folder, asked.date), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(current(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
