"""The ladder: one piece of work by eager, torch.compile, Triton and CUDA, with the code and what each does for you."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypedDict

from app.web.learning import tuned

FOLDER = Path(__file__).resolve().parent.parent.parent / "examples" / "ladder"
WORK_CASE = "tail"
"""The recorded case that is this work: app.web.learning.tuned."""

DONE, CHOSEN, YOURS = "it does", "it tries several", "you do"


@dataclass(frozen=True, slots=True)
class Rung:
    """One tool. gets, gives_up: as the sources state them; peak: of hand-tuned code, by them too."""

    tool: str
    name: str
    file: str
    gets: str
    gives_up: str
    peak: str


RUNGS: tuple[Rung, ...] = (
    Rung("eager", "Eager PyTorch", "eager.txt", "one kernel for each operation",
         "every intermediate goes through memory", ""),
    Rung("compile", "torch.compile", "compile.txt", "fusion, and Triton written for you",
         "opaque where it does not fuse; the first call takes seconds", "about 70 %"),
    Rung("triton", "Triton", "triton.txt", "the fusion you want, tuned over shapes, NVIDIA and AMD from one source",
         "warp specialisation, NVLink", "about 85 %"),
    Rung("cuda", "CUDA", "cuda.cu", "everything the hardware has", "weeks, tuning for each shape, one vendor",
         "about 100 %"),
)  # fmt: skip

WORK = ("Fusing operations", "Index arithmetic and bounds", "Wide, coalesced loads", "Shared memory and barriers",
        "Registers and instruction order", "Tile size, warps, stages", "Which block does what",
        "The same source on another vendor")  # fmt: skip

AUTOMATES: dict[str, tuple[str, ...]] = {
    "eager": ("–", DONE, DONE, DONE, DONE, DONE, DONE, DONE),
    "compile": (DONE, DONE, DONE, DONE, DONE, CHOSEN, DONE, DONE),
    "triton": (YOURS, YOURS, DONE, DONE, DONE, CHOSEN, YOURS, DONE),
    "cuda": (YOURS, YOURS, YOURS, YOURS, DONE, YOURS, YOURS, YOURS),
}
"""By tool, in the order of WORK. In CUDA the compiler still gives registers and orders instructions."""


class RungRow(TypedDict):
    """A tool with its code, its lines of code, and the recorded time of this work by it. automates: in WORK's order."""

    tool: str
    name: str
    code: str
    lines: int
    gets: str
    gives_up: str
    peak: str
    time_us: float | None
    automates: tuple[str, ...]


class Measurements(TypedDict):
    """What the work was measured on. times_us: by tool, the recorded medians; Triton's is this app's own kernel's."""

    device: str
    torch: str
    triton: str
    case: str
    times_us: dict[str, float]


@cache
def rungs() -> tuple[RungRow, ...]:
    """Every rung of the ladder, from the least effort to the most."""
    times = load_measurements()["times_us"]
    rows: list[RungRow] = []
    for rung in RUNGS:
        text = (FOLDER / rung.file).read_text(encoding="utf-8").strip()
        rows.append(
            {
                "tool": rung.tool, "name": rung.name, "code": text, "lines": _count_lines(text), "gets": rung.gets,
                "gives_up": rung.gives_up, "peak": rung.peak, "time_us": times.get(rung.tool),
                "automates": AUTOMATES[rung.tool],
            }
        )  # fmt: skip
    return tuple(rows)


@cache
def load_measurements() -> Measurements:
    """The recorded times of this work."""
    record = tuned.load_cases()
    case = next(c for c in record["cases"] if c["name"] == WORK_CASE)
    return {
        "device": record["device"], "torch": record["torch"], "triton": record["triton"], "case": case["case"],
        "times_us": case["times_us"],
    }  # fmt: skip


def _count_lines(text: str) -> int:
    """Lines with code: neither empty nor a comment."""
    return sum(bool(line.strip()) and not line.strip().startswith(("#p", "# ", "//")) for line in text.splitlines())
