"""Watch on a server: its hosts measure regions again, on each kind of GPU, and it says what flipped since."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from app.check.watch import weights
from app.cli.remote import Remote, RemoteError

Json = dict[str, Any]

MOST_PAGES = 50
"""Of the server's validations that are looked through for regions."""
FULL = 429


@dataclass(frozen=True, slots=True)
class Watched:
    """A region that is to be measured again. shapes: sizes with their calls per step, None for those of the text."""

    name: str
    text: str
    shapes: list[Json] | None = None


@dataclass(slots=True)
class Going:
    """A validation that was asked for. known: it had been measured before it was asked for."""

    name: str
    job: str
    device: str | None
    known: bool
    row: Json | None = None


def watch(
    server: Remote,
    regions: Sequence[Watched],
    kinds: Sequence[str] | None,
    *,
    fresh: bool,
    say: Callable[[str, Json], None],
) -> list[Json]:
    """Rows as `tritonworthy watch` has them, one for each region and kind.

    regions: without any those that the server has measured. kinds: without any every kind of its fleet, or its own GPU.
    fresh: measure also what was measured under the same versions. Where the server takes no more, those that wait are
    seen through first. Raises RemoteError as long as nothing was asked for; after that a fault makes a row unmeasured.
    """
    kinds = list(kinds or _kinds(server))
    going: list[Going] = []
    for region in regions or _measured_regions(server):
        for kind in kinds or (None,):
            going.append(_queue(server, region, kind, fresh, going, say))
    for one in going:
        _see_through(server, one, say)
    return [one.row for one in going if one.row is not None]


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
    found: dict[str, Watched] = {}
    for item in _validations(server):
        if item["device"] and item["region"] not in found:
            shapes = [{**dict(sizes), "calls": calls} for sizes, calls in weights(item) if sizes]
            found[item["region"]] = Watched(item["name"], item["region"], shapes or None)
    if not found:
        raise RemoteError("the server has measured nothing: name regions")
    return list(found.values())


def _validations(server: Remote) -> Iterator[Json]:
    after = ""
    for _ in range(MOST_PAGES):
        page = server.get(f"/api/v1/validations?limit=200{after}")
        yield from page["items"]
        if page["next"] is None:
            return
        after = f"&after={page['next']}"


def _queue(
    server: Remote, region: Watched, kind: str | None, fresh: bool, going: Sequence[Going], say: Callable[..., None]
) -> Going:
    """Ask for one; where the queue is full, see the oldest that waits through and ask again."""
    body: Json = {"region": region.text, "reuse": not fresh, "shapes": region.shapes}
    asked = {key: value for key, value in body.items() if value is not None} | ({"device": [kind]} if kind else {})
    while True:
        try:
            job = server.post("/api/v1/validations", asked)
            return Going(region.name, job["id"], kind, job["state"] == "done")
        except RemoteError as error:
            open_ones = [one for one in going if one.row is None]
            if error.status == FULL and open_ones:
                _see_through(server, open_ones[0], say)
            elif going:
                return Going(region.name, "", kind, False, _unmeasured_row(region.name, kind, str(error)))
            else:
                raise


def _see_through(server: Remote, one: Going, say: Callable[[str, Json], None]) -> None:
    """Wait for its end; what the server then says of it."""
    if one.row is not None:
        return
    say(one.name, {"phase": "waiting", "candidate": "", "message": f"for {one.device or 'the server'}"})
    try:
        job = server.ended(one.job)
        if job["state"] != "done":
            why = (job.get("error") or {}).get("message") or "it was cancelled"
            one.row = _unmeasured_row(one.name, one.device, why)
            return
        row = {**server.get(f"/api/v1/validations/{one.job}/regression"), "name": one.name}
        one.row = _unchanged_row(row) if one.known else row
    except RemoteError as error:
        one.row = _unmeasured_row(one.name, one.device, str(error))


def _unchanged_row(row: Json) -> Json:
    """What had been measured under these versions: nothing is held to anything, as without a server."""
    because = "nothing was upgraded since the server measured it"
    nothing: Json = dict.fromkeys(("outcome", "before", "after"))
    return {**row, **nothing, "action": "unchanged", "because": because, "changed": []}


def _unmeasured_row(name: str, device: str | None, why: str) -> Json:
    return {
        "name": name, "record": None, "device": device, "action": "validate", "because": why, "changed": [], "was": {},
        "now": {}, "outcome": "unmeasured", "before": None, "after": None,
    }  # fmt: skip
