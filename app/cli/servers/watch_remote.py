"""Watch on a server: its hosts measure regions again, on each kind of GPU, and it says what flipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from app.check.watch import weights
from app.cli.options import Sizes
from app.cli.servers.remote import Answer, Remote, RemoteError
from app.objects.evidence import Figures
from app.objects.record import Regression

Say = Callable[[str, Mapping[str, object]], None]
"""Tells how far the measurement of a region is."""

MOST_PAGES = 50
"""Of the server's validations that are looked through for regions."""
FULL = 429


@dataclass(frozen=True, slots=True)
class Watched:
    """A region that is to be measured again. shapes: sizes with their calls per step, None for those of the text."""

    name: str
    text: str
    shapes: list[Sizes] | None = None


@dataclass(slots=True)
class Request:
    """A validation that was asked for. measured: before it was asked for."""

    name: str
    job: str
    device: str | None
    measured: bool
    row: Regression | None = None


def watch_on_server(
    server: Remote,
    regions: Sequence[Watched],
    kinds: Sequence[str] | None,
    *,
    fresh: bool,
    say: Say,
) -> list[Regression]:
    """Rows as `tritonworthy watch` has them, one for each region and kind.

    regions: without any those that the server has measured. kinds: without any every kind of its fleet, or its own GPU.
    fresh: measure also what was measured under the same versions. Where the server takes no more, those that wait are
    seen through first. Raises RemoteError as long as nothing was asked for; after that a fault makes a row unmeasured.
    """
    kinds = list(kinds or _kinds(server))
    requests: list[Request] = []
    for region in regions or _measured_regions(server):
        for kind in kinds or (None,):
            requests.append(_queue(server, region, kind, fresh, requests, say))
    for one in requests:
        _finish(server, one, say)
    return [one.row for one in requests if one.row is not None]


def _kinds(server: Remote) -> list[str]:
    """The kinds that take work; none for a server without a fleet."""
    fleet = server.get("/api/v1/device").get("fleet")
    if fleet is None:
        return []
    kinds = [str(kind["device"]) for kind in fleet if kind["slots"]]
    if not kinds:
        raise RemoteError("no host of the server's fleet takes work")
    return kinds


def _measured_regions(server: Remote) -> list[Watched]:
    """Every region that the server has timed something of, newest first, with the sizes and calls that it was at."""
    watched: dict[str, Watched] = {}
    for item in _validations(server):
        if item["device"] and item["region"] not in watched:
            measured = weights(cast("Figures", item))
            shapes: list[Sizes] = [{**dict(sizes), "calls": calls} for sizes, calls in measured if sizes]
            watched[item["region"]] = Watched(item["name"], item["region"], shapes or None)
    if not watched:
        raise RemoteError("the server has measured nothing: name regions")
    return list(watched.values())


def _validations(server: Remote) -> Iterator[Answer]:
    after = ""
    for _ in range(MOST_PAGES):
        page = server.get(f"/api/v1/validations?limit=200{after}")
        yield from page["items"]
        if page["next"] is None:
            return
        after = f"&after={page['next']}"


def _queue(
    server: Remote, region: Watched, kind: str | None, fresh: bool, requests: Sequence[Request], say: Say
) -> Request:
    """Ask for one; where the queue is full, see the oldest that waits through and ask again."""
    body = {"region": region.text, "reuse": not fresh, "shapes": region.shapes}
    question = {key: value for key, value in body.items() if value is not None} | ({"device": [kind]} if kind else {})
    while True:
        try:
            job = server.post("/api/v1/validations", question)
            return Request(region.name, job["id"], kind, job["state"] == "done")
        except RemoteError as error:
            open_ones = [one for one in requests if one.row is None]
            if error.status == FULL and open_ones:
                _finish(server, open_ones[0], say)
            elif requests:
                return Request(region.name, "", kind, False, _unmeasured_row(region.name, kind, str(error)))
            else:
                raise


def _finish(server: Remote, one: Request, say: Say) -> None:
    """Wait for its end; what the server then says of it."""
    if one.row is not None:
        return
    say(one.name, {"phase": "waiting", "candidate": "", "message": f"for {one.device or 'the server'}"})
    try:
        job = server.wait_for(one.job)
        if job["state"] != "done":
            why = (job.get("error") or {}).get("message") or "it was cancelled"
            one.row = _unmeasured_row(one.name, one.device, why)
            return
        answer = server.get(f"/api/v1/validations/{one.job}/regression")
        row = cast("Regression", {**answer, "name": one.name})
        one.row = _unchanged_row(row) if one.measured else row
    except RemoteError as error:
        one.row = _unmeasured_row(one.name, one.device, str(error))


def _unchanged_row(row: Regression) -> Regression:
    """What had been measured under these versions: nothing is held to anything, as without a server."""
    return {
        **row, "outcome": None, "before": None, "after": None, "action": "unchanged", "changed": [],
        "because": "nothing was upgraded since the server measured it",
    }  # fmt: skip


def _unmeasured_row(name: str, device: str | None, why: str) -> Regression:
    return {
        "name": name, "record": None, "device": device, "action": "validate", "because": why, "changed": [], "was": {},
        "now": {}, "outcome": "unmeasured", "before": None, "after": None,
    }  # fmt: skip
