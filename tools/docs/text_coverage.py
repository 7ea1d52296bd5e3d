"""How much of a step's kernel time stands in a region with a text: `python -m tools.docs.text_coverage [FOLDER ...]`.

A table, one line a trace: what share of the kernel time has a text, what share no operation is behind (CUDA graphs,
communication, launches before the window), and the largest regions without a text with the reason. Folders default to
tests/data/traces; --all also lists each trace's regions without a text, the longest first.

--record FILE COMMIT DATE [FOLDER ...] writes the figures to a file instead. So an earlier commit is measured: this file
is put into a checkout of it and run there, over the traces of today.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from profiler.region.mining.mine import COPIES, MinedRegion, Mining, mine
from profiler.trace.model import Trace
from profiler.trace.read.reader import read_trace

ROOT = Path(__file__).resolve().parent.parent.parent
TRACES = ROOT / "tests" / "data" / "traces"
NOTABLE = 0.005
"""Share of the kernel time from which on a reason is named."""
NAMED = 2
"""Reasons that a line of the table names."""

HEAD = """| trace | kernel time of a step, ms | has a text | no operation behind it | longest without a text |
|-|-|-|-|-|"""
HEAD_BEFORE = """| trace | kernel time, ms | had a text | has a text | no operation behind it | longest without a text |
|-|-|-|-|-|-|"""
BEFORE = ROOT / "tests" / "records" / "text-coverage-before.json"
"""What an earlier commit's reading gave: `python -m tools.docs.text_coverage --record FILE COMMIT DATE`, run there."""


@dataclass(frozen=True, slots=True)
class Lack:
    """A reason why regions have no text, with their kernel time."""

    reason: str
    time_us: float
    titles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TextCoverage:
    """One trace. Times are per step; rest_us: kernels that no recorded operation is behind, and communication."""

    name: str
    has_shapes: bool
    kernel_time_us: float
    text_us: float
    rest_us: float
    lacks: tuple[Lack, ...]

    @property
    def share(self) -> float | None:
        """Of the step's kernel time; None without kernels."""
        return self.text_us / self.kernel_time_us if self.kernel_time_us else None


def coverage_of(name: str, trace: Trace, mining: Mining) -> TextCoverage:
    """What of the mined steps has a text, and why the rest has none, the longest reason first."""
    without: dict[str, list[MinedRegion]] = {}
    for region in mining.regions:
        if region.text is None:
            without.setdefault(_short(region), []).append(region)
    lacks = [
        Lack(reason, sum(r.time_us_per_step for r in regions), tuple(r.title for r in regions))
        for reason, regions in without.items()
    ]
    return TextCoverage(
        name,
        trace.has_shapes,
        mining.kernel_time_us,
        sum(r.time_us_per_step for r in mining.regions if r.text is not None),
        sum(r.time_us for r in mining.rests if r.name != COPIES),
        tuple(sorted(lacks, key=lambda lack: -lack.time_us)),
    )


def _short(region: MinedRegion) -> str:
    """The reason without the name of a custom operation or a kernel, so that equal ones are one."""
    for ending in ("is a custom operation", "was not recorded", "shapes were not recorded"):
        if ending in region.missing:
            return "a custom operation" if "custom" in ending else region.missing.split(":")[0]
    return region.missing.split(":")[0]


def files(folder: Path) -> list[Path]:
    """The folder's traces, without execution traces."""
    return sorted(p for p in folder.glob("*.json*") if ".et." not in p.name and p.name != "expected.json")


def read(folders: Iterable[Path] = (TRACES,)) -> Iterator[TextCoverage]:
    """The coverage of every trace in the folders."""
    for path in (p for folder in folders for p in files(folder)):
        trace = read_trace(path)
        yield coverage_of(path.name, trace, mine(trace))


def record(path: Path, commit: str, date: str, rows: Iterable[TextCoverage]) -> None:
    """Writes what was measured of a commit as JSON: kernel time and time with a text in µs, a trace."""
    traces = {r.name: {"kernel_time_us": round(r.kernel_time_us, 3), "text_us": round(r.text_us, 3)} for r in rows}
    told = {"commit": commit, "date": date, "traces": traces}
    path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Before:
    """What an earlier commit gave of today's traces: shares of their kernel time with a text, by the file's name."""

    commit: str
    date: str
    shares: Mapping[str, float]


def before(path: Path = BEFORE) -> Before:
    """The record of the commit before. Raises OSError where it is missing."""
    told = json.loads(path.read_text(encoding="utf-8"))
    timed = {name: t for name, t in told["traces"].items() if t["kernel_time_us"]}
    return Before(told["commit"], told["date"], {n: t["text_us"] / t["kernel_time_us"] for n, t in timed.items()})


def table(rows: Sequence[TextCoverage], earlier: Before | None = None) -> str:
    """All of them as Markdown, with the mean over the traces that have kernels and over those with shapes.

    earlier: the shares of an earlier commit, which get a column and a sentence of their own.
    """
    head = HEAD if earlier is None else HEAD_BEFORE
    lines = [head, *(_row(r, earlier) for r in rows if r.share is not None)]
    return "\n".join([*lines, "", summary(rows), *([] if earlier is None else [_summary_before(rows, earlier)])])


def _summary_before(rows: Sequence[TextCoverage], earlier: Before) -> str:
    """What the same traces had, each counted alike."""
    known = [r for r in rows if r.share is not None and r.name in earlier.shares]
    shaped = [r for r in known if r.has_shapes]
    then, now = _mean(known, lambda r: earlier.shares[r.name]), _mean(known, _of_all)
    of_shaped = _mean(shaped, lambda r: earlier.shares[r.name])
    return (
        f"\nHad a text: the same measure at commit {earlier.commit[:8]} of {earlier.date}, the last one before this "
        f"was worked on. Mean of the {len(known)} traces that are in both: {_percent(then)} then, {_percent(now)} now; "
        f"of the {len(shaped)} with shapes {_percent(of_shaped)} then, {_percent(_mean(shaped, _of_all))} now."
    )


def summary(rows: Sequence[TextCoverage]) -> str:
    """One sentence: the mean share, each trace counted alike."""
    known = [r for r in rows if r.share is not None]
    shaped = [r for r in known if r.has_shapes]
    return (
        f"Mean of {len(known)} traces: {_percent(_mean(known, _of_all))}. Of the {len(shaped)} with shapes recorded: "
        f"{_percent(_mean(shaped, _of_all))}, and {_percent(_mean(shaped, _of_operations))} of the kernel time that "
        "operations are behind."
    )


def _of_all(row: TextCoverage) -> float:
    return row.share or 0.0


def _of_operations(row: TextCoverage) -> float:
    behind = row.kernel_time_us - row.rest_us
    return row.text_us / behind if behind > 0 else 1.0


def _mean(rows: Sequence[TextCoverage], of: Callable[[TextCoverage], float]) -> float:
    return sum(of(r) for r in rows) / len(rows) if rows else 0.0


def _row(row: TextCoverage, earlier: Before | None) -> str:
    named = [lack for lack in row.lacks if lack.time_us >= NOTABLE * row.kernel_time_us][:NAMED]
    reasons = "; ".join(
        f"{_titles(lack)} {_percent(lack.time_us / row.kernel_time_us)}: {lack.reason}" for lack in named
    )
    name = row.name.removesuffix(".gz").removesuffix(".json").removesuffix(".pt.trace")
    had = earlier.shares.get(row.name) if earlier else None
    then = [] if earlier is None else ["" if had is None else _percent(had)]
    cells = [
        name, f"{row.kernel_time_us / 1e3:.2f}", *then, _percent(row.share or 0.0),
        _percent(row.rest_us / row.kernel_time_us) if row.rest_us else "", reasons,
    ]  # fmt: skip
    return f"| {' | '.join(c.replace('|', '/') for c in cells)} |"


def _titles(lack: Lack) -> str:
    (title, _), *others = Counter(lack.titles).most_common() or [("", 0)]
    short = title if len(title) < 48 else f"{title[:45]}..."
    return f"{short} and {len(others)} more" if others else short


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def main() -> int:
    """Prints the table, or writes the record."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--record"]:
        if len(arguments) < 4:
            print("usage: python -m tools.docs.text_coverage --record FILE COMMIT DATE [FOLDER ...]", file=sys.stderr)
            return 2
        out, commit, date, *folders = arguments[1:]
        record(Path(out), commit, date, read([Path(f) for f in folders] or [TRACES]))
        return 0
    rows = list(read([Path(a) for a in arguments if not a.startswith("--")] or [TRACES]))
    print(table(rows))
    if "--all" in arguments:
        for row in rows:
            for lack in row.lacks:
                share = lack.time_us / row.kernel_time_us if row.kernel_time_us else 0.0
                print(f"{row.name}: {_percent(share)} {', '.join(dict.fromkeys(lack.titles))}: {lack.reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
