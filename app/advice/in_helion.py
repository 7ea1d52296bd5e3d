"""When Helion is the way to write a region's kernel: a third of Triton's lines at equal speed. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable

from kernels.measure.model import CandidateResult

HELION, TRITON = "helion:generated", "triton:generated"
WRITE_IT = "write it in Helion: "
"""What the note of a measurement begins with."""
VERSION = "==1.5.0"
"""The newest that can be imported beside torch 2.11 as well (docs/helion.md)."""
SHARE_OF_LINES = 1 / 3
"""Of generated Triton's lines of code, up to which a source that tunes for a minute is worth naming."""


def is_short(helion_lines: int, triton_lines: int) -> bool:
    """Both have a source, and Helion's is at most a third of Triton's."""
    return 0 < helion_lines <= SHARE_OF_LINES * triton_lines


def predicted_note(helion_lines: int, triton_lines: int, installed: bool) -> str:
    """What the generated kernel's option says of it, "" where it is not short enough. Its speed is not predicted."""
    if not is_short(helion_lines, triton_lines):
        return ""
    get = "measure helion:generated" if installed else f"pip install helion{VERSION}, worth installing to try"
    return f"in Helion {helion_lines} lines instead of {triton_lines} ({get})"


def measured_note(
    timed: Iterable[CandidateResult], helion_lines: int, triton_lines: int, tie_margin: float
) -> str:  # fmt: skip
    """What a validation says that measured both: "" where Helion lost to Triton, or is not short enough.

    Whether one of the two won at all is the caller's to ask.
    tie_margin: by how much times may differ and count as equal.
    """
    times = {c.name: c.time_us.median for c in timed if c.time_us is not None}
    if HELION not in times or TRITON not in times or not is_short(helion_lines, triton_lines):
        return ""
    ratio = times[HELION] / times[TRITON]
    if ratio > 1 + tie_margin:
        return ""
    return f"{WRITE_IT}{helion_lines} lines instead of {triton_lines} of Triton, and {ratio:.2f} times the time"
