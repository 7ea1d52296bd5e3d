"""The section of docs/accuracy.md on other people's measurements. A pure function of the comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from app.accuracy import table
from app.accuracy.published.model import Compared, Comparison


def section(compared: Sequence[Comparison]) -> str:
    """By source, and in it by device, mode, candidate and kernel: rows, the share within 20 % and 30 %, and by how much
    they are off."""
    parts = "\n".join(_part(c) for c in compared)
    return f"""## Other people's measurements

Written by `python -m tools.records.published_measurements`. Others publish times by shape; each is held against what
this product predicts for that region on that device. No rate was fitted on these rows, and the software is theirs
(years of torch and Triton).

{parts}"""


def _part(compared: Comparison) -> str:
    left = "\n".join(f"- {reason} ({count})" for reason, count in sorted(compared.left_out.items())) or "- none"
    groupings = {title: GROUPINGS[title] for title in TIMED[compared.source].groupings}
    tables = "\n\n".join(table.markdown(_rows(compared.rows, title, named)) for title, named in groupings.items())
    return f"""### {compared.source}

{compared.licence}, `{compared.file}` at {compared.commit[:8]}. {TIMED[compared.source].what}

{tables}

Not compared:

{left}
"""


class Timed(NamedTuple):
    """What a source's times are, and which tables say something of them."""

    what: str
    groupings: Sequence[str]


TIMED: Mapping[str, Timed] = {
    "Liger-Kernel": Timed(
        "The times of its benchmark scripts, which take in\nthe host where a kernel is short. Full is the forward with"
        " its backward.",
        ("device", "device and mode", "candidate", "kernel"),
    ),
    "TraceLens": Timed(
        "Kernels of eager PyTorch's operations in traces\nof the same models on two devices, without the host: medians"
        " of one operation at one shape.",
        ("device", "device and kernel"),
    ),
}
GROUPINGS: Mapping[str, Callable[[Compared], str]] = {
    "device": lambda r: r.device,
    "device and mode": lambda r: f"{r.device}, {r.mode}",
    "device and kernel": lambda r: f"{r.device}, {r.kernel.replace('_', ' ')}",
    "candidate": lambda r: f"`{r.candidate}`",
    "kernel": lambda r: r.kernel.replace("_", " "),
}


def _rows(rows: Sequence[Compared], title: str, named: Callable[[Compared], str]) -> list[table.Row]:
    lines: list[table.Row] = [(title, "rows", "within 20 %", "within 30 %", "off by")]
    for name in sorted({named(r) for r in rows}):
        own = [r for r in rows if named(r) == name]
        off = math.exp(sum(math.log(r.ratio) for r in own) / len(own))
        lines.append((name, str(len(own)), _share(own, 0.2), _share(own, 0.3), table.number(off)))
    return lines


def _share(rows: Sequence[Compared], bound: float) -> str:
    return table.percent(sum(r.within(bound) for r in rows) / len(rows))
