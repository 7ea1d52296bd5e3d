"""What a recorded run of benchmarks/operations/kernels.py says: rows won, tied and lost against each peer, and the
docs' table.

`python benchmarks/operations/kernel_table.py` writes docs/kernels.md from tests/records/kernels-h200.json; a test
holds the two equal.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
RECORD = ROOT / "tests" / "records" / "kernels-h200.json"
F32 = RECORD.with_name("f32-products-h200.json")
PUBLISHED = ROOT / "tests" / "records" / "peers-h200.json"
"""Times of others on another H200, by triton.testing.do_bench: "operation, case" -> peer -> µs."""
DOC = ROOT / "docs" / "kernels.md"

sys.path.insert(0, str(ROOT))
from benchmarks.operations.kernel_peers import UNFAIR, UNLIKE  # noqa: E402 (run as a file)

OURS = "triton"
PLAIN = frozenset({"eager", "compile", "max-autotune"})
"""Candidates that torch makes of the reference; others are calls of libraries, peers."""
FASTEST, FASTEST_PLAIN = "the fastest, where a library's call ran", "the fastest of eager and torch.compile, elsewhere"
TIE = 0.03
"""Times within 3 % of each other are a tie: machines of one kind differ by more."""
ASKED, ASKED_OF_FIRST = 0.70, 1.05
"""Of the geometric mean over memory-bound rows, and of each row of the first set."""
MEMORY_BOUND = 1.0
"""A row whose bytes at the copy rate take this many times longer than its FLOPs at the matmul rate, at least."""


@dataclass(frozen=True, slots=True)
class Row:
    """One case. times_us: by candidate, those that ran; limit_us: bytes at the copy rate or FLOPs at the matmul rate,
    the larger; memory: bytes are. published_us: of others, from another run on another H200 by another method.
    spread: half of our time's interval, over the time."""

    operation: str
    case: str
    peer_row: str
    region: str
    times_us: Mapping[str, float]
    limit_us: float
    memory: bool
    published_us: Mapping[str, float] = field(default_factory=dict)
    spread: float = 0.0

    @property
    def ours_us(self) -> float:
        return self.times_us[OURS]

    @property
    def others_us(self) -> dict[str, float]:
        """What ours is held against: not references that nobody would run (UNFAIR), nor another product (UNLIKE)."""
        left_out = {OURS, *(PLAIN if self.operation in UNFAIR else ()), *UNLIKE.get((self.operation, self.case), ())}
        return {n: t for n, t in self.times_us.items() if n not in left_out}

    @property
    def fastest(self) -> tuple[str, float] | None:
        """The fastest other candidate and its time; None where eager alone ran next to ours, which proves little."""
        others = [(t, n) for n, t in self.others_us.items()]
        return (min(others)[1], min(others)[0]) if any(n != "eager" for _, n in others) else None

    @property
    def has_peer(self) -> bool:
        """Whether a library's call ran beside ours. A reference alone, compiled, is no peer: it has no kernel that
        anybody wrote for this."""
        return any(n != OURS and n not in PLAIN for n in self.times_us)

    @property
    def ratio(self) -> float | None:
        """Our time over the fastest other's."""
        return self.ours_us / self.fastest[1] if self.fastest else None


def rows_of(record: Mapping[str, Any]) -> list[Row]:
    """The rows in which ours ran."""
    published = json.loads(PUBLISHED.read_text())
    rows = []
    for r in record["rows"]:
        times = {n: c["median_us"] for n, c in r["candidates"].items() if "median_us" in c}
        if OURS not in times:
            continue
        run = record["runs"][r["run"]]
        moved = r["bytes"] / run["copy_bytes_per_s"] * 1e6
        computed = r["flops"] / run["matmul_flops_per_s"] * 1e6
        rows.append(
            Row(r["operation"], r["case"], r["peer_row"], r["region"], times, max(moved, computed),
                moved >= MEMORY_BOUND * computed, published.get(f"{r['operation']}, {r['case']}", {}),
                (r["candidates"][OURS]["high_us"] - r["candidates"][OURS]["low_us"]) / 2 / times[OURS])
        )  # fmt: skip
    return rows


def verdict(ours: float, other: float) -> str:
    """ "won", "tied" or "lost"."""
    if ours < other * (1 - TIE):
        return "won"
    return "lost" if ours > other * (1 + TIE) else "tied"


def behind_published(rows: Sequence[Row]) -> list[tuple[Row, str, float]]:
    """Rows in which a published time of another is less than ours: that peer and its time. The one that computes
    something else, by its own note (flex_alibi), is left out."""
    best = [(r, *min((t, n) for n, t in r.published_us.items() if n != "flex_alibi")) for r in rows if r.published_us]
    return [(r, n, t) for r, t, n in best if t < r.ours_us]


def published_geomean(rows: Sequence[Row]) -> float | None:
    """Of our time over the fastest other's, here or published, over the memory-bound rows that are published."""
    ratios = []
    for row in rows:
        if row.memory and row.published_us:
            here = list(row.others_us.values())
            ratios.append(row.ours_us / min([t for n, t in row.published_us.items() if n != "flex_alibi"] + here))
    return geomean(ratios)


def lost_rows(rows: Sequence[Row]) -> list[Row]:
    """Rows in which another candidate is faster by more than a tie."""
    return [r for r in rows if r.fastest and verdict(r.ours_us, r.fastest[1]) == "lost"]


def counts(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    """Peer -> rows won, tied, lost against it; FASTEST is whichever is that in each row with a library's call, of the
    others FASTEST_PLAIN."""
    verdicts: dict[str, dict[str, int]] = {}
    for row in rows:
        others = row.others_us
        if row.fastest:
            others[FASTEST if row.has_peer else FASTEST_PLAIN] = row.fastest[1]
        for name, time_us in others.items():
            verdicts.setdefault(name, {"won": 0, "tied": 0, "lost": 0})[verdict(row.ours_us, time_us)] += 1
    return verdicts


def geomean(values: Sequence[float]) -> float | None:
    """None of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def memory_bound_geomean(rows: Sequence[Row], has_peer: bool = True) -> float | None:
    """Of our time over the fastest other's, over the memory-bound rows with a library's call beside ours, or without
    one."""
    return geomean([r.ratio for r in rows if r.memory and r.ratio is not None and r.has_peer == has_peer])


def _cells(row: Row) -> str:
    others = sorted((t, n) for n, t in row.times_us.items() if n != OURS)
    listed = ", ".join(f"{n} {t:.4g}" for t, n in others)
    elsewhere = ", ".join(f"{n} {t:.4g}" for n, t in row.published_us.items())
    ratio = f"{row.ratio:.2f}" if row.ratio is not None else "–"
    name = " ".join(filter(None, (row.peer_row, row.region and f"({row.region})")))
    return (
        f"| {row.operation} | {row.case} | {name} | {row.limit_us:.4g} | {row.ours_us:.4g} "
        f"| {row.spread:.1%} | {row.limit_us / row.ours_us:.2f} | {listed} | {ratio} | {elsewhere} |"
    )


def _unlike(rows: Sequence[Row]) -> list[str]:
    """Lines on what is shown in a row and not held against ours there."""
    told = [
        f"- {r.operation}, {r.case}: {peer}, {r.times_us[peer]:,.4g} µs, is not held against ours there: it {why}."
        for r in rows
        for peer, why in UNLIKE.get((r.operation, r.case), {}).items()
        if peer in r.times_us
    ]
    return [*told, ""] if told else []


NAMED: Mapping[str, str] = {"liger-kernel": "liger", "quack-kernels": "quack", "flash-linear-attention": "fla"}
"""A package -> what its candidates' names begin with, where that is not the package's own."""


def _gave_a_time(package: str, timed: Iterable[str]) -> bool:
    """Whether one of these candidates is the package's: what is installed may take none of a run's rows."""
    begins = NAMED.get(package, package.replace("-", "_"))
    return any(re.match(rf"{re.escape(begins)}\b", name) for name in timed)


def _runs(record: Mapping[str, Any]) -> list[str]:
    """What was measured when, on what, compared with what."""
    lines = []
    for name, run in sorted(record["runs"].items()):
        count = sum(r["run"] == name for r in record["rows"])
        timed = {n for r in record["rows"] if r["run"] == name for n, c in r["candidates"].items() if "median_us" in c}
        peers = ", ".join(f"{n} {v}" for n, v in sorted(run["peers"].items()) if _gave_a_time(n, timed))
        peers = peers or "no package of others"
        lines.append(
            f"- {name}, {count} rows: {run['device']}, torch {run['torch']}, triton {run['triton']}, compared with "
            f"{run['beside'].replace(',', ', ')} ({peers}); copy {run['copy_bytes_per_s'] / 1e12:.2f} TB/s, cuBLAS "
            f"bf16 8192³ {run['matmul_flops_per_s'] / 1e12:.0f} TFLOP/s."
        )
    return lines


def _ratio(row: Row) -> float:
    return row.ratio or 0.0


def _met(met: bool) -> str:
    return "met" if met else "missed"


def _of(rows: Sequence[Row], has_peer: bool) -> str:
    mean = memory_bound_geomean(rows, has_peer)
    return "–" if mean is None else f"{mean:.3f}"


def page(
    record: Mapping[str, Any], losses: Mapping[tuple[str, str], str], unmeasured: Sequence[tuple[str, str]],
    second_set: frozenset[str],
) -> str:  # fmt: skip
    """docs/kernels.md. losses: (operation, case) -> what the kernel's file says of a lost row."""
    rows = rows_of(record)
    gates = counts(rows)
    mean = memory_bound_geomean(rows)
    both = geomean([r.ratio for r in rows if r.memory and r.ratio is not None])
    assert mean is not None
    assert both is not None
    first = [r for r in rows if r.operation not in second_set]
    second = [r for r in rows if r.operation in second_set]
    over = [r for r in first if r.ratio is not None and r.ratio > ASKED_OF_FIRST]
    lines = [
        "# The kernels compared with what users would pick instead",
        "",
        "Written by `python benchmarks/operations/kernel_table.py` from runs of `benchmarks/operations/kernels.py`"
        " (`make bench-kernels`):",
        "",
        *_runs(record),
        "",
        "A row's candidates are from one run. Times in µs, medians of cold calls on the device (the host's part of a "
        "call is left out), candidates taking turns in one process on one GPU; *±*: half the interval of ours, in %. "
        "*limit*: bytes at the copy rate or FLOPs at the matmul rate, the "
        "larger; *of it*: limit over our time; *ratio*: our time over the fastest other's in the same process; "
        "*published*: times of others from another run by triton.testing.do_bench, which reads more for the same "
        "kernel (Liger's RMSNorm at 16384 x 4096: 70 there, 66.6 here).",
        "",
        "| against | won | tied (within 3 %) | lost |",
        "|-|-|-|-|",
        *(
            f"| {n} | {c['won']} | {c['tied']} | {c['lost']} |"
            for n, c in sorted(gates.items(), key=lambda item: -sum(item[1].values()))
        ),
        "",
        f"Geometric mean of the ratio over the memory-bound rows with a library's call: {mean:.3f}; over those where "
        f"torch.compile alone ran beside ours: {memory_bound_geomean(rows, False):.3f}; over both: {both:.3f}; of our "
        f"time over the fastest of all that were measured here or published, over the published ones: "
        f"{published_geomean(rows):.3f}.",
        "",
        f"Asked for: {ASKED:.2f} at most, with a library's call {_met(mean <= ASKED)}, over both "
        f"{_met(both <= ASKED)}; no row of the first set over {ASKED_OF_FIRST}: {_met(not over)}, {len(over)} of "
        f"{len(first)} are (in {len(_unlike(rows)[:-1])} a peer that computes something else is not counted, "
        "told below)"
        + (f", the most {max(map(_ratio, over)):.2f} ({max(over, key=_ratio).operation})" if over else "")
        + f". The second set alone ({len(second)} rows): {_of(second, True)} with a library's call, "
        f"{_of(second, False)} without.",
        "",
        f"Of {sum(bool(r.published_us) for r in rows)} published rows, the fastest published time is less than ours "
        "in: "
        + (
            "; ".join(
                f"{r.peer_row} {r.case} ({n} {t:.4g}, ours {r.ours_us:.4g})" for r, n, t in behind_published(rows)
            )
            or "none"
        )
        + ".",
        "",
        "| operation | case | published row (region) | limit | ours | ± | of it | others | ratio | published |",
        "|-|-|-|-|-|-|-|-|-|-|",
        *map(_cells, rows),
        "",
        *_unlike(rows),
        *f32_products(),
        "## What a tile and an order are worth",
        "",
        *(f"- {n}: {t:.4g} µs" for n, t in record.get("demonstrations_us", {}).items()),
        "",
        "## Not measured yet",
        "",
        *(f"- {o}, {c}" for o, c in unmeasured),
        "",
        "## Rows lost, and why",
        "",
    ]
    published = {(r.operation, r.case): (n, t) for r, n, t in behind_published(rows)}
    behind = [r for r in rows if (r.operation, r.case) in published or r in lost_rows(rows)]
    for row in behind:
        why = losses.get((row.operation, row.case), "not explained yet")
        name, time_us = published.get((row.operation, row.case), row.fastest or ("", 0.0))
        where = ", published," if (row.operation, row.case) in published else ""
        lines.append(
            f"- {row.operation}, {row.case}: {name}{where} takes {time_us:.4g} us, ours {row.ours_us:.4g}. {why}"
        )
    return "\n".join(lines) + "\n"


OFFERED_CHUNK = "CHUNK=256,"
"""Of the tiles that are offered; rows of others show what CHUNK is worth."""


def f32_products(file: Path = F32) -> list[str]:
    """Lines on products of f32 on tensor cores: cuBLAS's exact one and ours by parts of bf16, in one process."""
    record = json.loads(file.read_text())
    lines = [
        "## Products of f32 on tensor cores",
        "",
        '`matmul(a, b, precision="bf16x6")`, kernels/ops/matmul/bf16_parts.py, and cuBLAS in f32 without TF32, in one '
        f"process ({record['device']}, {record['date']}, torch {record['software']['torch']}, triton "
        f"{record['software']['triton']}; `benchmarks/operations/f32_products.py`: L2 cleared before each of 7 calls, "
        "medians, the making of parts included). Errors in the 2-norm against float64: of normal numbers, and of "
        "numbers of one sign, whose sums grow. Tensor cores round what they have added towards zero: how much is "
        "added up between two additions in f32 (CHUNK) sets the error. Offered are tiles of CHUNK 256, of which two "
        "were measured so; of the others and of two more shapes the record has CHUNK 1024. FlagGems, whose product is "
        "of TF32 (tf32x3), is next to it in the table above.",
        "",
        "| M x K x N | how | µs | over cuBLAS | error | of one sign |",
        "|-|-|-|-|-|-|",
    ]
    rows = [r for r in record["rows"] if r["m"] == r["k"] == r["n"]]
    exact = next(r["median_us"] for r in rows if r["what"] == "cuBLAS")
    offered = [r for r in rows if OFFERED_CHUNK in r["what"]]
    alike = {_without_chunk(r["what"]) for r in offered}
    shown = [r for r in rows if "CHUNK" not in r["what"] or _without_chunk(r["what"]) in alike]
    for row in sorted(shown, key=lambda r: (r["what"] != "cuBLAS", r not in offered)):
        name = row["what"] if row["what"] == "cuBLAS" else f"`{row['what']}`"
        lines.append(
            f"| {row['m']} x {row['k']} x {row['n']} | {name} | {row['median_us']:,.0f} | "
            f"{row['median_us'] / exact:.2f} | {row['error']:.1e} | {row['error_of_one_sign']:.1e} |"
        )
    return [*lines, ""]


def _without_chunk(what: str) -> str:
    return re.sub(r"CHUNK=\d+, ", "", what)


def current() -> str:
    """The page as the record and the kernels' files have it now."""
    sys.path.insert(0, str(ROOT))
    from app.accuracy.tables import LATER  # not there where kernels are measured
    from kernels.operations import operations

    record = json.loads(RECORD.read_text())
    losses = {(o.name, c): why for o in operations() for c, why in o.loses.items()}
    there = {(r.operation, r.case) for r in rows_of(record)}
    missing = [(o.name, str(c)) for o in operations() for c in o.cases]
    return page(record, losses, [row for row in missing if row not in there], LATER)


def main() -> int:
    """Write the page."""
    DOC.write_text(current())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
