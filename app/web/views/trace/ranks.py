"""The ranks of one job side by side. Pure functions of the API's traces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

from app.objects.trace import Rank, TraceSummary
from app.trace_report.ranks import spread_json
from profiler.trace.analyze.ranks import rank_numbers


class RankRow(Rank):
    """One rank of a group. id, name: of its trace."""

    id: str
    name: str
    slowest: bool


class RankSpread(TypedDict):
    """How far the ranks are apart. spread: of their own times, of a step; waiting_share: of a step."""

    ranks: list[Rank]
    slowest: int
    spread: float
    waiting_share: float


class RankSection(TypedDict, total=False):
    """The ranks of a group; {} for fewer than two that are ready."""

    ranks: list[RankRow]
    spread: RankSpread


def rank_section(traces: Iterable[TraceSummary]) -> RankSection:
    """The ranks of a group side by side, the slowest marked; {} for fewer than two that are ready.

    A rank is the one that its trace names, else the one in its file's name, else its place among the traces. traces:
    oldest first; of a file that was read again the last reading counts.
    """
    newest = {t.get("sha256") or t["id"]: t for t in traces if t.get("status") == "ready" and t.get("step_parts")}
    ready = list(newest.values())
    numbers = rank_numbers([t["name"] for t in ready], [t.get("rank") for t in ready])
    ranked: list[TraceSummary] = [{**t, "rank": rank} for t, rank in zip(ready, numbers, strict=True)]
    spread = spread_json(ranked)
    if spread is None:
        return {}
    by_rank = dict(zip(numbers, ready, strict=True))
    rows: list[RankRow] = [
        {
            **r,
            "id": by_rank[r["rank"]]["id"],
            "name": by_rank[r["rank"]]["name"],
            "slowest": r["rank"] == spread["slowest"],
        }
        for r in spread["ranks"]
    ]
    return {"ranks": rows, "spread": spread}
