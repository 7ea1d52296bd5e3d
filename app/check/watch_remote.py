"""Watch on a server: its hosts measure regions again, on each kind of GPU, and it says what flipped since."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from app.check.remote import Remote, RemoteError

Json = dict[str, Any]

MOST_PAGES = 50
"""Of the server's validations that are looked through for regions."""


def watch(
    server: Remote,
    texts: Sequence[tuple[str, str]],
    kinds: Sequence[str] | None,
    *,
    fresh: bool,
    say: Callable[[str, Json], None],
) -> list[Json]:
    """Rows as `tritonworthy watch` has them, one for each region and kind.

    texts: (name, text); without any the regions that the server has measured. kinds: every kind of its fleet without
    any, or its own GPU. fresh: measure also what was measured under the same versions. Raises RemoteError.
    """
    kinds = list(kinds or _kinds(server))
    rows: list[Json] = []
    asked = [(name, _queue(server, text, kinds, fresh)) for name, text in texts or _measured(server)]
    for name, jobs in asked:
        for job_id, device in jobs:
            say(name, {"phase": "waiting", "candidate": "", "message": f"for {device or 'the server'}"})
            rows.append(_row(server, name, job_id, device))
    return rows


def _kinds(server: Remote) -> list[str]:
    """The kinds that take work; none for a server without a fleet."""
    fleet = server.get("/api/v1/device").get("fleet")
    if fleet is None:
        return []
    kinds = [str(kind["device"]) for kind in fleet if kind["slots"]]
    if not kinds:
        raise RemoteError("no host of the server's fleet takes work")
    return kinds


def _measured(server: Remote) -> list[tuple[str, str]]:
    """Every region that the server has timed something of, newest first."""
    found: dict[str, str] = {}
    after = ""
    for _ in range(MOST_PAGES):
        page = server.get(f"/api/v1/validations?limit=200{after}")
        for item in page["items"]:
            if item["device"]:
                found.setdefault(item["region"], item["name"])
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    if not found:
        raise RemoteError("the server has measured nothing: name regions")
    return [(name, text) for text, name in found.items()]


def _queue(server: Remote, text: str, kinds: Sequence[str], fresh: bool) -> list[tuple[str, str | None]]:
    """(job, device) of each validation that was asked for."""
    body: Json = {"region": text, "reuse": not fresh, **({"device": list(kinds)} if kinds else {})}
    job = server.post("/api/v1/validations", body)
    return [(v["id"], v["device"]) for v in job.get("validations") or [{"id": job["id"], "device": None}]]


def _row(server: Remote, name: str, job_id: str, device: str | None) -> Json:
    """What the server says of one validation once it has ended; one that failed is unmeasured, with its error."""
    job = server.ended(job_id)
    if job["state"] == "done":
        return {**server.get(f"/api/v1/validations/{job_id}/since"), "name": name}
    why = (job.get("error") or {}).get("message") or "it was cancelled"
    return {
        "name": name, "record": None, "device": device, "action": "validate", "because": why, "changed": [], "was": {},
        "now": {}, "outcome": "unmeasured", "before": None, "after": None,
    }  # fmt: skip
