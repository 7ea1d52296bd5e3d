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
from profiler.hardware import find_device

RECORDED = Path(points.__file__).resolve().parent / "recorded"


def main() -> None:
    """Fit and write each, and print its errors."""
    for recording in sorted(RECORDED.glob("*.jsonl.gz")):
        conditions, measured = points.read_recording(recording)
        device = find_device(conditions["device"])
        assert device is not None  # what is recorded is in the table of devices
        path = SHIPPED / file_name(device)
        write(path, fit_atlas(conditions, measured, device))
        print(as_table(read(path), path.stat().st_size), end="\n\n")


if __name__ == "__main__":
    main()
