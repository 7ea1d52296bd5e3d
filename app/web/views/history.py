"""What the history shows: its rows in words, the address of a view of it, and its CSV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import urlencode

from app.objects.job import HistoryEntry
from app.storage.history import KINDS, SORTS, Wanted
from app.units import duration, share, span
from app.web.labels import OUTCOME_LABELS, format_time
from app.web.server.csv_response import Cell
from app.web.views.trace.step import RESOURCES

MAX_SEARCH = 200
"""Characters of a search that are looked at."""

STATES: Mapping[str, str] = {
    "reading": "reading", "ready": "ready", "failed": "failed", "queued": "waiting", "running": "running",
    "cancelled": "cancelled", "done": "done",
}  # fmt: skip

CSV_HEADER = (
    "kind", "id", "name", "state", "device", "created_at", "bottleneck", "bottleneck_share", "action", "saves_us",
    "saves_us_low", "saves_us_high", "step_time_us", "summary",
)  # fmt: skip


class HistoryRow(HistoryEntry):
    """A row of the history. state: in a word; bottleneck, saves: of the finding, in words; rename, delete: where that
    is asked for. All "" without."""

    url: str
    when: str
    state: str
    bottleneck: str
    saves: str
    rename: str
    delete: str


def parse_wanted(kind: str, q: str, sort: str) -> Wanted:
    """What the address asks for; what it cannot mean is the default."""
    return Wanted(
        kind if kind in KINDS else None,
        " ".join(q[:MAX_SEARCH].split()),
        sort if sort in SORTS else "newest",
    )


def write_query(wanted: Wanted, after: str = "", **more: str) -> str:
    """The address's query, only with what is not the default; "" for everything, newest first."""
    sort = "" if wanted.sort == "newest" else wanted.sort
    fields = {"kind": wanted.kind or "", "q": wanted.q, "sort": sort, "after": after, **more}
    query = urlencode({name: value for name, value in fields.items() if value})
    return f"?{query}" if query else ""


def history_rows(items: Iterable[HistoryEntry]) -> list[HistoryRow]:
    """Rows of partials/home/recent.html and of the history's table."""
    return [_row(item) for item in items]


def _row(item: HistoryEntry) -> HistoryRow:
    folder = {"trace": "traces", "region": "regions", "validation": "validations"}[item["kind"]]
    url = f"/{folder}/{item['id']}"
    finding, status = item["finding"], item["status"]
    row: HistoryRow = {
        **item,
        "url": url,
        "when": format_time(item["created_at"]),
        "state": OUTCOME_LABELS[status][0].lower() if status in OUTCOME_LABELS else STATES.get(status, status),
        "bottleneck": "",
        "saves": "",
        "rename": "" if item["kind"] == "validation" else f"{url}/rename",
        "delete": f"{url}/delete" if item["kind"] == "trace" else "",
    }
    if finding and finding["critical"]:
        resource = RESOURCES.get(finding["critical"], finding["critical"])
        row["bottleneck"] = f"{resource[:1].upper()}{resource[1:]}, {share(finding['share'] or 0.0)} of the step"
    if finding and finding["saves_us"]:
        saves = finding["saves_us"]
        of_step = f" of {duration(finding['step_time_us'])}" if finding["step_time_us"] else ""
        row["saves"] = f"saves {duration(saves['mid'])}{of_step} ({span(saves, 'duration')})"
    return row


def csv_rows(items: Iterable[HistoryEntry]) -> Iterator[tuple[Cell, ...]]:
    """The same as CSV_HEADER has it, times in µs."""
    for item in items:
        finding = item["finding"]
        saves = finding["saves_us"] if finding else None
        yield (
            *(item["kind"], item["id"], item["name"], item["status"], item["device"], item["created_at"]),
            *((finding["critical"], finding["share"], finding["action"]) if finding else (None, None, None)),
            *((saves["mid"], saves["low"], saves["high"]) if saves else (None, None, None)),
            finding["step_time_us"] if finding else None,
            item["summary"],
        )
