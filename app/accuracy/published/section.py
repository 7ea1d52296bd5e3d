"""The section of docs/accuracy.md on other people's measurements. A pure function of the comparison."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from app.accuracy import table
from app.accuracy.published.model import Compared, Comparison


def section(compared: Comparison) -> str:
    """By device, mode, candidate and kernel: rows, the share within 20 % and 30 %, by how much they are off."""
    left = "\n".join(f"- {reason} ({count})" for reason, count in sorted(compared.left_out.items())) or "- none"
    tables = "\n\n".join(table.markdown(_rows(compared.rows, title, named)) for title, named in GROUPINGS.items())
    return f"""## Other people's measurements

Written by `python -m tools.records.published_measurements`. {compared.source} ({compared.licence}) publishes the times
of its benchmark scripts by shape, in `{compared.file}` at {compared.commit[:8]}. Each is held
against what this product predicts for that region on that device: no rate was fitted on these rows, the software is
theirs (years of torch and Triton), and their timing takes in the host where a kernel is short. Full is the forward with
its backward.

{tables}

Not compared:

{left}
"""


GROUPINGS: Mapping[str, Callable[[Compared], str]] = {
    "device": lambda r: r.device,
    "device and mode": lambda r: f"{r.device}, {r.mode}",
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
