"""How much memory this process had at most."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")
LINE = "VmHWM:"


def peak_bytes() -> int:
    """Resident bytes at most, of the program that runs now.

    getrusage(2) would say of a child what its parent held when it was started, where that is more: the kernel keeps
    the larger over exec. It is asked where there is no /proc.
    """
    if STATUS.is_file():
        peak = next((line for line in STATUS.read_text().splitlines() if line.startswith(LINE)), "")
        if peak:
            return int(peak.split()[1]) * 1024  # "VmHWM:   12345 kB"
    told = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return told if sys.platform == "darwin" else told * 1024
