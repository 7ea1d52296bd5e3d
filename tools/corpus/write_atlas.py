"""The shipped atlases, from the recordings of points: `python -m tools.corpus.write_atlas`. Two minutes on one core.

Prints each group's error on the programs that were held out, as docs/atlas.md has it.
"""

from __future__ import annotations

from pathlib import Path

from app.atlas.atlas import Atlas, read, write
from app.atlas.fit import fit_atlas
from app.atlas.shipped import SHIPPED, file_name
from kernels.calibrate import points
from profiler.hardware import find_device

RECORDED = Path(points.__file__).resolve().parent / "recorded"


def as_table(atlas: Atlas, size: int) -> str:
    """Markdown: a row for each group."""
    count = sum(len(g.interpolation.cold) for g in atlas.groups.values())
    lines = [
        f"**{atlas.device}**: {count:,} points, measured in {atlas.minutes:g} minutes on {atlas.date} with torch"
        f" {atlas.torch} and triton {atlas.triton}; the file has {size / 1e6:.2f} MB.",
        "",
        "| group | points | held out | within 20 % | median error | worst tenth above | inside the 80 % interval |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, group in atlas.groups.items():
        held = group.held_out
        lines.append(
            f"| {name} | {len(group.interpolation.cold)} | {held.points:g} | {held.within_20:.0%} | {held.median:.0%} |"
            f" {held.worst_tenth:.0%} | {held.inside_80:.0%} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Fit and write each, and print its errors."""
    for recording in sorted(RECORDED.glob("*.jsonl.gz")):
        conditions, measured = points.read_recording(recording)
        device = find_device(conditions["device"])
        assert device is not None  # what is recorded is in the table of devices
        path = SHIPPED / f"{file_name(device)}.json.gz"
        write(path, fit_atlas(conditions, measured, device))
        print(as_table(read(path), path.stat().st_size), end="\n\n")


if __name__ == "__main__":
    main()
