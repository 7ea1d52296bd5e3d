"""The load of `benchmarks.server.kills`, and the account of it: what was accepted, and what had become of each at the
end.

Every request asks for something that nobody asked for before, so what is there twice was made twice. A request that the
server's death cut off may or may not have been accepted: an upload is sent again until it is answered, with the same
bytes, and must be one trace all the same; the others are not, and may be there once.
"""

from __future__ import annotations

import gzip
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks.server.load import region
from tools.server import ROOT

Json = dict[str, Any]

TRACE = ROOT / "app" / "examples" / "handrolled_blocks.json.gz"
LISTS = {"read": "/api/v1/traces", "validate": "/api/v1/validations", "check": "/api/v1/checks"}
"""Kind of job -> where the things it makes are listed."""

FINAL = ("done", "failed", "cancelled")
LANES = {"upload": 3, "validate": 2, "check": 2, "advise": 2}
"""Clients of each sort; each asks, waits for the end, and asks again."""

PAUSE_S = {"upload": 0.2, "validate": 0.5, "check": 0.5, "advise": 0.3}
FOLLOW_S = 0.5
ANSWER_S = 60.0
NO_SERVER_S = 0.1
END_S = 900.0
"""Longest wait for the jobs that are open when the last kill was made."""

BUSY = frozenset({429, 503})
"""Statuses that a server gives to what it does not take now."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A job that the server answered with 200, 201 or 202. key: what was asked; "" where the answer does not tell."""

    id: str
    kind: str
    key: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the server says of one at the end. thing: the trace, validation or check; None where it is not there.

    done_events: how many times its stream of events says that it has ended.
    """

    job: Json | None
    thing: Json | None
    done_events: int


@dataclass(frozen=True, slots=True)
class Whole:
    """What a trace has that was read without a kill: parts, how many with advice, and the codes of its notes."""

    parts: int
    advised: int
    notes: frozenset[str]


@dataclass(slots=True)
class Load:
    """Clients in threads from `start` to `finish`; they outlive the server, whoever kills it."""

    url: str
    seed: int = 1
    accepted: list[Accepted] = field(default_factory=list)
    cut: Counter[str] = field(default_factory=Counter)  # kind -> requests without an answer that were not sent again
    statuses: Counter[str] = field(default_factory=Counter)
    unexpected: list[str] = field(default_factory=list)
    ready: list[str] = field(default_factory=list)  # traces that can be checked
    asked: int = 0
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Begin to ask."""
        lanes: dict[str, Callable[[httpx.Client, random.Random], None]] = {
            "upload": self._upload, "validate": self._validate, "check": self._check, "advise": self._advise,
        }  # fmt: skip
        for name, count in LANES.items():
            for number in range(count):
                rng = random.Random(f"{self.seed} {name} {number}")
                self.threads.append(threading.Thread(target=self._lane, args=(lanes[name], PAUSE_S[name], rng)))
        for thread in self.threads:
            thread.start()

    def finish(self) -> None:
        """Ask no more; returns when every client has its last answer."""
        self.over.set()
        for thread in self.threads:
            thread.join()

    def _lane(self, lane: Callable[[httpx.Client, random.Random], None], pause_s: float, rng: random.Random) -> None:
        with httpx.Client(base_url=self.url, timeout=ANSWER_S) as client:
            while not self.over.wait(pause_s * rng.uniform(0.5, 1.5)):
                lane(client, rng)

    def _number(self) -> int:
        with self.lock:
            self.asked += 1
            return self.asked

    def _ask(self, client: httpx.Client, method: str, path: str, *good: int, **more: Any) -> httpx.Response | None:
        """The answer; None where the server died over it. Asked again for as long as there is no server."""
        while True:
            try:
                answer = client.request(method, path, **more)
                break
            except httpx.TransportError as error:
                absent = isinstance(error, httpx.ConnectError)  # so nothing can have been accepted
                with self.lock:
                    self.statuses["no server" if absent else "no answer"] += 1
                time.sleep(NO_SERVER_S)
                if not absent or self.over.is_set():
                    return None
        with self.lock:
            self.statuses[str(answer.status_code)] += 1
            if answer.status_code not in {*good, *BUSY}:
                self.unexpected.append(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
        return answer

    def _accept(self, answer: httpx.Response | None, kind: str, key: str) -> str | None:
        """Enter the job in the account; its id, None where there is none."""
        if answer is None:
            with self.lock:
                self.cut[kind] += 1
            return None
        if not answer.is_success:
            return None
        job_id = str(answer.json()["id"])
        with self.lock:
            self.accepted.append(Accepted(job_id, kind, key))
        return job_id

    def _upload(self, client: httpx.Client, rng: random.Random) -> None:
        number = self._number()
        name, body = f"kills {number}", trace(number)
        while True:
            answer = self._ask(client, "POST", "/api/v1/traces", 200, 201, params={"name": name}, content=body)
            if answer is not None or self.over.is_set():
                break
        trace_id = self._accept(answer, "read", name)
        if trace_id is not None and self._follow(client, trace_id) == "done":
            with self.lock:
                self.ready.append(trace_id)

    def _validate(self, client: httpx.Client, rng: random.Random) -> None:
        text = region(rng)
        asked = {"region": text, "candidates": ["eager"]}
        answer = self._ask(client, "POST", "/api/v1/validations", 202, json=asked)
        job_id = self._accept(answer, "validate", text)
        if job_id is not None:
            self._follow(client, job_id)

    def _check(self, client: httpx.Client, rng: random.Random) -> None:
        with self.lock:
            traces = [rng.choice(self.ready)] if self.ready and rng.random() < 0.5 else []
        asked = {"traces": traces, "regions": [region(rng)], "assertions": {"compile": "warn", "triton": "error"}}
        answer = self._ask(client, "POST", "/api/v1/checks", 202, json=asked)
        job_id = self._accept(answer, "check", "")
        if job_id is not None:
            self._follow(client, job_id)

    def _advise(self, client: httpx.Client, rng: random.Random) -> None:
        oracle = rng.choice(("off", "auto"))
        self._ask(client, "POST", "/api/v1/advice", 200, json={"region": region(rng), "oracle": oracle})

    def _follow(self, client: httpx.Client, job_id: str) -> str | None:
        """How the job ended; None where nobody waits for it any more."""
        while not self.over.wait(FOLLOW_S):
            answer = self._ask(client, "GET", f"/api/v1/jobs/{job_id}", 200, 202)  # 202: the server stops
            if answer is not None and answer.is_success and (state := answer.json()["state"]) in FINAL:
                return str(state)
        return None


def trace(number: int) -> bytes:
    """The example's trace with so many spaces behind it: no two have the same content."""
    return gzip.compress(gzip.decompress(TRACE.read_bytes()) + b" " * number, 1, mtime=0)


# -------------------------------------------------------------------------------------------------------- at the end


def whole_trace(client: httpx.Client) -> Whole:
    """The trace of the load, read before anything is killed."""
    trace_id = (
        client.post("/api/v1/traces", params={"name": "kills 0"}, content=trace(0)).raise_for_status().json()["id"]
    )
    report = client.get(f"/api/v1/traces/{trace_id}", params={"wait": 120}).raise_for_status().json()
    while report["status"] == "reading":
        time.sleep(FOLLOW_S)
        report = client.get(f"/api/v1/traces/{trace_id}").raise_for_status().json()
    if report["status"] != "ready":
        raise RuntimeError(f"the trace could not be read: {report['error']}")
    advised = sum(r["advice"] is not None for r in report["regions"])
    return Whole(len(report["regions"]), advised, frozenset(note["code"] for note in report["notes"]))


def wait_for_all(client: httpx.Client, accepted: Iterable[Accepted]) -> None:
    """Returns when every job has ended, is not known, or the patience is over; the account tells which."""
    deadline = time.monotonic() + END_S
    for one in accepted:
        while time.monotonic() < deadline:
            answer = client.get(f"/api/v1/jobs/{one.id}")
            if answer.status_code == 404 or (answer.is_success and answer.json()["state"] in FINAL):
                break
            time.sleep(FOLLOW_S)


def look(client: httpx.Client, one: Accepted) -> Outcome:
    """What the server says of one job and of what it made."""
    job = client.get(f"/api/v1/jobs/{one.id}")
    thing = client.get(f"{LISTS[one.kind]}/{one.id}")
    done = 0
    if job.is_success and job.json()["state"] in FINAL:  # else the stream would not end
        events = client.get(f"/api/v1/jobs/{one.id}/events")
        done = sum(line == "event: done" for line in events.text.splitlines())
    return Outcome(job.json() if job.is_success else None, thing.json() if thing.is_success else None, done)


def list_all(client: httpx.Client, kind: str) -> list[Json]:
    """Everything of that kind that the server lists."""
    rows: list[Json] = []
    after: str | None = None
    while True:
        page = (
            client.get(LISTS[kind], params={"limit": 200} | ({"after": after} if after else {}))
            .raise_for_status()
            .json()
        )
        rows += page["items"]
        if (after := page["next"]) is None:
            return rows


def key_of(kind: str, row: Json) -> str:
    """What was asked for, as a list tells it; "" where it does not."""
    return str({"read": row.get("name"), "validate": row.get("region")}.get(kind) or "")


FAULTS = ("lost", "unfinished", "twice", "unexplained", "incomplete", "unasked")


def account(
    accepted: Iterable[Accepted],
    outcomes: Mapping[str, Outcome],
    rows: Mapping[str, list[Json]],
    cut: Mapping[str, int],
    whole: Whole,
) -> dict[str, list[str]]:
    """What is wrong, in words, by FAULTS.

    lost: accepted, and not there. unfinished: without an end. twice: there more than once, or ended more than once.
    unexplained: failed, and does not say why. incomplete: done, with less than it should have. unasked: there, though
    nothing was accepted and no request was cut off that could have made it.
    """
    said: dict[str, list[str]] = {fault: [] for fault in FAULTS}
    known = {(one.kind, one.id): one for one in accepted}  # an upload sent again may be answered with the same id
    for (kind, job_id), one in known.items():
        what, seen = f"{kind} {job_id}", outcomes[job_id]
        times = sum(row["id"] == job_id for row in rows[kind])
        if seen.job is None or seen.thing is None or times == 0:
            said["lost"].append(what)
            continue
        if times > 1:
            said["twice"].append(f"{what}: listed {times} times")
        if seen.job["state"] not in FINAL:
            said["unfinished"].append(f"{what}: {seen.job['state']}")
            continue
        if seen.done_events != 1:
            said["twice" if seen.done_events else "unfinished"].append(f"{what}: {seen.done_events} ends in its events")
        error = seen.job.get("error") or {}
        if seen.job["state"] == "failed" and not (error.get("code") and error.get("message")):
            said["unexplained"].append(f"{what}: {error}")
        if seen.job["state"] == "done":
            fault, why = _result(one, seen.thing, whole)
            if fault:
                said[fault].append(f"{what}: {why}")
    for kind in LISTS:
        _look_for_more(kind, {i for k, i in known if k == kind}, rows[kind], cut.get(kind, 0), said)
    return said


def _result(one: Accepted, thing: Json, whole: Whole) -> tuple[str, str]:
    """The fault of what a job made that is done, and why; ("", "") for none."""
    if one.kind != "read":
        return ("", "") if thing.get("outcome") else ("incomplete", "it has no outcome")
    parts = thing["regions"]
    if len({part["id"] for part in parts}) > whole.parts or len(parts) != len({part["id"] for part in parts}):
        return "twice", f"{len(parts)} parts, not {whole.parts}"
    if len(parts) < whole.parts:
        return "incomplete", f"{len(parts)} parts, not {whole.parts}"
    advised = sum(part["advice"] is not None for part in parts)
    if advised < whole.advised and not {note["code"] for note in thing["notes"]} - whole.notes:
        return "incomplete", f"{advised} parts with advice, not {whole.advised}, and no note says why"
    return "", ""


def _look_for_more(kind: str, accepted: set[str], rows: list[Json], cut: int, said: dict[str, list[str]]) -> None:
    """Rows of the same content, and rows that nobody was told of."""
    same: defaultdict[str, list[Json]] = defaultdict(list)
    for row in rows:
        if (key := key_of(kind, row)) and (row.get("status") or row.get("state")) != "failed":
            same[key].append(row)
    said["twice"] += [f"{kind} {key!r}: {len(of)} of it" for key, of in same.items() if len({r["id"] for r in of}) > 1]
    more = [row["id"] for row in rows if row["id"] not in accepted]
    if len(more) > cut:
        said["unasked"].append(f"{kind}: {len(more)} that were not accepted, {cut} requests were cut off")
