"""The traces of several ranks as a brief: that of the rank which the others wait for. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from app.agents.brief.tokens import MAX_TOKENS
from app.agents.brief.trace import trace_brief
from app.objects.brief import Brief
from app.trace_report.ranks import RankReports, spread_text


def ranks_brief(reports: RankReports, files: Sequence[str], *, most: int = MAX_TOKENS) -> Brief:
    """What to do about the slowest rank's step, with the spread as its first warning. files: as commands take them."""
    spread, ranks = reports["spread"], reports["ranks"]
    slowest = next((t for t in ranks if spread and t.get("rank") == spread["slowest"]), ranks[0])
    told = [f"this is rank {slowest.get('rank')} of {len(ranks)}"]
    told += spread_text(spread).splitlines()[-1:] if spread else []
    own = [file for file in files if file.endswith(slowest["name"])]
    return trace_brief(slowest, own[0] if own else files[0], warnings=told, most=most)
