"""The shipped atlases, from the recordings of points: `python -m tools.corpus.write_atlas`. Two minutes on one core.

Prints each group's error on the programs that were held out, as docs/atlas.md has it.
"""

from __future__ import annotations

from pathlib import Path

from app.atlas.atlas import file_name, read, write
from app.atlas.fit import fit_atlas
from app.atlas.shipped import SHIPPED
from app.atlas.table import as_table
from kernels.calibrate import points
from profiler.hardware import Device, find_device

RECORDED = Path(points.__file__).resolve().parent / "recorded"


def main() -> None:
    """Fit and write each, with the others' points for what it was not measured at, and print its errors."""
    recorded = [points.read_recording(recording) for recording in sorted(RECORDED.glob("*.jsonl.gz"))]
    measured = [(known_device(conditions["device"]), conditions, own) for conditions, own in recorded]
    for device, conditions, own in measured:
        others = [(other, theirs) for other, _, theirs in measured if other != device]
        path = SHIPPED / file_name(device)
        write(path, fit_atlas(conditions, own, device, others))
        print(as_table(read(path), path.stat().st_size), end="\n\n")


def known_device(name: str) -> Device:
    """What is recorded is in the table of devices."""
    device = find_device(name)
    assert device is not None, name
    return device


if __name__ == "__main__":
    main()
