"""Write docs/libraries.md from the catalogue: `python -m tools.docs.library_table`, with --check to only compare."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from kernels.libraries.catalogue import COMPILED, ENTRIES, OPERATIONS
from kernels.libraries.model import COMPILE, VERDICTS, Entry, Operation
from kernels.packages import install_command
from profiler.region import operations
from profiler.region.operations import Falls

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "libraries.md"

HEAD = """# What libraries cover

Generated from `kernels/libraries/catalogue` by `python -m tools.docs.library_table`; a test holds it to the data.

Each row is an operation as people write it. The verdict is for that form: {verdicts}.
Under a row stand the calls that are known for it, torch's own first, and `torch.compile` where it covers it, each
with what has to hold: the least GPU, the dtypes of the main operand, the direction, sizes and layout. A condition that
cannot be known on a host is neither kept nor broken. What is installed is looked up on the host, not in this table.
*Measured* says that `tritonworthy validate` rewrites a region to the call and times it; where not, the reason is given.
"""

FALLBACK = """
## What torch.compile leaves to aten

Nothing fuses across these calls on a GPU (torch {torch}; `profiler/region/operations.py`, which a test compares with
the Inductor that is installed), nor across any operation on complex numbers.

{rows}
"""


def page() -> str:
    """The whole document."""
    verdicts = ", ".join(f"`{short}` {text}" for short, text in VERDICTS.items())
    parts = [HEAD.format(verdicts=verdicts)]
    parts += [_operation(o) for o in OPERATIONS]
    parts.append(FALLBACK.format(torch=operations.TORCH, rows="\n\n".join(_fallbacks())))
    return "\n".join(parts)


def _fallbacks() -> Iterator[str]:
    for falls in Falls:
        names = sorted(o.name for o in operations.OPERATIONS if o.falls == falls)
        if names and falls != Falls.NEVER:
            yield f"**{falls.value[0].upper()}{falls.value[1:]}**: " + " ".join(f"`{n}`" for n in names)


def _operation(row: Operation) -> str:
    lines = [f"## {row.row}. {row.name} — {row.verdict}", ""]
    if row.inexpressible:
        lines += [f"No region says it: {row.inexpressible}. {row.note}".rstrip() + ("." if row.note else ""), ""]
        return "\n".join(lines)
    if row.note:
        lines += [f"{row.note[0].upper()}{row.note[1:]}.", ""]
    entries = [e for e in (*ENTRIES, *COMPILED) if row.row in e.rows]
    if not entries:
        return "\n".join([*lines, "Nothing to call.", ""])
    lines += ["| call | holds where | since | gives up | measured | source |", "|-|-|-|-|-|-|"]
    return "\n".join([*lines, *(_line(e) for e in entries), ""])


def _line(entry: Entry) -> str:
    name = "torch.compile" if entry.candidate == COMPILE else entry.candidate.removeprefix("library:")
    package = "" if entry.package == "torch" else f" ({install_command(entry.package)})"
    holds = "; ".join(c.text for c in entry.all_conditions) or "always"
    measured = "yes" if entry.adapter or entry.candidate == COMPILE else f"no: {entry.unmeasured}"
    cells = (f"`{name}`{package}", holds, entry.since, entry.gives_up, measured, entry.source)
    return "| " + " | ".join(c.replace("|", "\\|") or "–" for c in cells) + " |"


def main(arguments: list[str]) -> int:
    """Write the page; with --check, 1 where it is not what the data gives."""
    text = page()
    if "--check" in arguments:
        return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
