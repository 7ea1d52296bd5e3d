"""A server under attack: `python -m benchmarks.server.attacks [--seconds 60] [--base FOLDER]`.

Texts and traces that once filled the memory, hung the thread of advice or ended in a fault (tests/data/attacks) are
sent ten at once, again and again, to the API and to the pages. Meanwhile one client asks the widget 20 times a second
and another /healthz, at a constant rate whatever becomes of the requests before. Told: their latencies from when each
was due, what every attack was answered, the memory (PSS) of the server and all its processes at most and afterwards,
and whether advice on a plain text works then.

A watchdog kills the server where it takes more than --watchdog-gb, and the record says so. --base: a checkout of the
commit before, attacked first. Writes a record and the claims that it does not bear out; 1 where there is one.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.server.checkout import Server, commit
from benchmarks.server.load import http, open_loop
from benchmarks.server.processes import MB, MemoryWatch, below, table, tree_pss
from tools.server import ROOT
from tools.stamp import stamp

Json = dict[str, Any]
Statuses = dict[str, dict[str, Counter[str]]]
"""Name of an attack -> way -> status -> how many were answered so."""

RECORD = ROOT / "tests" / "records" / "attacks.json"
ATTACKS = ROOT / "tests" / "data" / "attacks"
VERSIONS = ("fastapi", "uvicorn", "torch")

SECONDS, AT_ONCE = 60.0, 10
WIDGET_RATE, WIDGET_P99_MS = 20.0, 100.0
HEALTH_RATE = 20.0
HOST_SHARE = 0.5
"""Of the host's memory: most that the server may take with all its processes."""

WATCHDOG_GB = 12.0
ANSWER_S = 180.0
"""An attack that is not answered by then counts as unanswered."""

SETTLE_S = 15.0
"""From the last answer to the look at what the memory has come down to."""

PLAIN = "x: bf16[4096, 1031]\nb: bf16[1031]\ny = gelu(x + b) * 2.5\nreturn y\n"
REFUSED = frozenset({400, 403, 404, 409, 413, 422, 429, 503, 504})
"""Apart from 200 and 201, what an attack may be answered: refused, too much, or stopped at its limit."""


Send = Callable[[httpx.Client, int], httpx.Response]
"""Makes the request, with a number that no other request has."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One text or one trace, and the ways in which it is sent, by name: in turn."""

    name: str
    ways: dict[str, Send]


def attacks(folder: Path) -> list[Attack]:
    """Every text of texts.json by the API, without and with the oracle, and by the page; every trace of traces/."""
    generated = []
    for group in json.loads((folder / "texts.json").read_text()).values():
        for name, text in group.items():
            ways = {"oracle off": _by_api(text, "off"), "oracle auto": _by_api(text, "auto"), "page": _by_page(text)}
            generated.append(Attack(name, ways))
    traces = sorted((folder / "traces").glob("*.json.gz"))
    return generated + [Attack(path.name, {"upload": _by_upload(path)}) for path in traces]


def choose_attack(listed: list[Attack], number: int) -> tuple[Attack, str]:
    """The attack and its way that come at that number: each attack once, then each in its next way.

    By a stride, so that texts and traces, and those of a kind, mix.
    """
    passed, place = divmod(number, len(listed))
    at = place * stride(len(listed)) % len(listed)
    attack = listed[at]
    return attack, list(attack.ways)[(passed + at) % len(attack.ways)]


def stride(count: int) -> int:
    """About 0.38 of a count, without a common factor: its steps come by every member before one comes again."""
    return next(s for s in itertools.count(max(1, round(0.38 * count))) if math.gcd(s, count) == 1)


def _by_api(text: str, oracle: str) -> Send:
    def send(client: httpx.Client, number: int) -> httpx.Response:
        return client.post("/api/v1/advice", json={"region": text + "\n" * (number % 1000), "oracle": oracle})

    return send


def _by_page(text: str) -> Send:
    """As a person opens a link; from another site the same is refused, which would be no attack."""

    def send(client: httpx.Client, number: int) -> httpx.Response:
        asked = {"text": text + "\n" * (number % 1000)}
        return client.get("/region", params=asked, headers={"Accept": "text/html", "Sec-Fetch-Site": "none"})

    return send


def _by_upload(path: Path) -> Send:
    plain = gzip.decompress(path.read_bytes())

    def send(client: httpx.Client, number: int) -> httpx.Response:
        body = gzip.compress(plain + b" " * number, 1, mtime=0)
        return client.post("/api/v1/traces", content=body, params={"name": f"attack {number}", "wait": 120})

    return send


# ------------------------------------------------------------------------------------------------------ who attacks


@dataclass(slots=True)
class Attackers:
    """So many threads; each sends the next attack as soon as its last was answered, until the time is over."""

    url: str
    attacks: list[Attack]
    seconds: float
    at_once: int = AT_ONCE
    statuses: Statuses = field(default_factory=dict)
    slowest_s: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Returns when each has its last answer."""
        turns = itertools.count()
        until = time.monotonic() + self.seconds
        threads = [threading.Thread(target=self._attack, args=(turns, until)) for _ in range(self.at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _attack(self, turns: Iterator[int], until: float) -> None:
        with httpx.Client(base_url=self.url, timeout=ANSWER_S) as client:
            while time.monotonic() < until:
                with self.lock:
                    number = next(turns)
                attack, way = choose_attack(self.attacks, number)
                began = time.monotonic()
                try:
                    status = str(attack.ways[way](client, number).status_code)
                except httpx.TimeoutException:
                    status = "unanswered"
                except httpx.TransportError:
                    status = "no server"
                    time.sleep(0.1)
                with self.lock:
                    self.statuses.setdefault(attack.name, {}).setdefault(way, Counter())[status] += 1
                    self.slowest_s = max(self.slowest_s, time.monotonic() - began)


def health_requests(host: str) -> Iterator[bytes]:
    """GET /healthz for ever."""
    while True:
        yield http("GET", "/healthz", host)


def ask_health(port: int, seconds: float) -> Json:
    """What /healthz answered at its constant rate."""
    requests = health_requests(f"127.0.0.1:{port}")
    seen, took_s = asyncio.run(open_loop("127.0.0.1", port, requests, HEALTH_RATE, seconds, connections=4))
    return seen.summary(HEALTH_RATE, took_s)


# ------------------------------------------------------------------------------------------------------- one server


def plain_advice(url: str) -> Json:
    """Advice on a text without a fault: what status, and the seconds."""
    began = time.monotonic()
    try:
        status = str(httpx.post(f"{url}/api/v1/advice", json={"region": PLAIN}, timeout=ANSWER_S).status_code)
    except httpx.TransportError as error:
        status = type(error).__name__
    return {"status": status, "seconds": round(time.monotonic() - began, 2)}


def ask_ready(url: str) -> str:
    """What /readyz says."""
    try:
        return str(httpx.get(f"{url}/readyz", timeout=ANSWER_S).status_code)
    except httpx.TransportError as error:
        return type(error).__name__


def under_attack(checkout: Path, folder: Path, args: argparse.Namespace) -> Json:
    """One server from its start to its end."""
    with tempfile.TemporaryDirectory() as name:
        space = int(args.address_space_gb * 1e9) or None
        with Server(checkout, Path(name), {}, address_space_bytes=space) as server:
            server.start()
            server.warm()
            idle_mb, idle_processes = tree_pss(server.pid) / MB, len(below(server.pid, table()))
            watch = MemoryWatch(server.pid, limit_bytes=args.watchdog_gb * 1e9, over=server.kill_tree)
            attackers = Attackers(server.url, attacks(folder), args.seconds, args.at_once)
            widget_client = _widget_client(server.port, args.seconds)
            health: list[Json] = []
            health_client = threading.Thread(target=lambda: health.append(ask_health(server.port, args.seconds)))
            health_client.start()
            began = time.monotonic()
            attackers.run()
            last_answer_s = time.monotonic() - began
            health_client.join()
            widget = json.loads(widget_client.communicate()[0])
            after = plain_advice(server.url)
            time.sleep(args.settle_s)
            peak_mb, killed = watch.stop(), watch.exceeded
            figures = {
                "seconds": args.seconds, "at_once": args.at_once, "last_answer_s": round(last_answer_s, 1),
                "killed_by_watchdog": killed, "server_ended": server.ended,
                "idle_mb": round(idle_mb), "peak_mb": round(peak_mb), "after_mb": round(tree_pss(server.pid) / MB),
                "idle_processes": idle_processes, "after_processes": len(below(server.pid, table())),
                "widget": widget, "healthz": health[0],
                "plain_advice_after": after, "readyz_after": ask_ready(server.url),
                "slowest_answer_s": round(attackers.slowest_s, 1),
                "answers": answers(attackers.statuses),
                "statuses": attackers.statuses,
            }  # fmt: skip
            # What hangs in a thread does not end by SIGTERM, and whoever waits for it waits for nothing.
            server.kill_tree()
        return figures


def _widget_client(port: int, seconds: float) -> subprocess.Popen[bytes]:
    """A process of its own: its latencies are not those of the attackers' threads."""
    command = [sys.executable, "-m", "benchmarks.server.load", "--port", str(port), "--plan", "widget", "--rate",
               str(WIDGET_RATE), "--seconds", str(seconds)]  # fmt: skip
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)


def answers(statuses: Statuses) -> dict[str, int]:
    """How many attacks were answered so, by status."""
    return dict(sorted(sum((seen for ways in statuses.values() for seen in ways.values()), Counter[str]()).items()))


# ----------------------------------------------------------------------------------------------------------- record


def failed_claims(record: Json) -> list[str]:
    """The claims that a record does not bear out, in words."""
    here, said = record["here"], []
    if here["seconds"] < SECONDS or here["at_once"] < AT_ONCE:
        said.append(f"{here['at_once']} at once for {here['seconds']:g} s, not {AT_ONCE} for {SECONDS:g}")
    if record["commits"]["here"]["changed"]:
        said.append("measured with changes that are not in a commit")
    if record["address_space_mb"]:
        said.append("measured under a limit that the server did not set itself")
    if record["limit_mb"] > HOST_SHARE * record["host_mb"]:
        said.append(f"a limit of {record['limit_mb']} MB is no bound on a host of {record['host_mb']} MB")
    if here["peak_mb"] > record["limit_mb"]:
        said.append(f"memory: {here['peak_mb']} MB at most, not {record['limit_mb']}")
    if here["killed_by_watchdog"] or here["server_ended"]:
        said.append("the server did not survive")
    for who in ("widget", "healthz"):
        widget_answers = here[who]
        if widget_answers["lost"] or set(widget_answers["statuses"]) != {"200"}:
            said.append(f"{who}: statuses {widget_answers['statuses']}, {widget_answers['lost']} lost")
    if here["widget"]["p99_ms"] >= WIDGET_P99_MS:
        said.append(f"widget: 99 % within {here['widget']['p99_ms']} ms, not {WIDGET_P99_MS:g}")
    if here["widget"]["requests"] < 0.99 * WIDGET_RATE * here["seconds"]:
        said.append(f"widget: {here['widget']['requests']} answers")
    for status, count in here["answers"].items():
        if not status.isdigit() or int(status) not in REFUSED | {200, 201}:
            said.append(f"{count} attacks ended: {status}")
    if missing := sorted(set(record["attacks"]) - set(here["statuses"])):
        said.append(f"never sent: {', '.join(missing)}")
    if here["plain_advice_after"]["status"] != "200" or here["readyz_after"] != "200":
        said.append(f"afterwards: advice {here['plain_advice_after']['status']}, readyz {here['readyz_after']}")
    return said


def main() -> int:
    """1 where a claim does not hold."""
    host_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / MB
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attacks", type=Path, default=ATTACKS, help="folder of texts.json and traces/")
    parser.add_argument("--base", type=Path, help="checkout of the commit before, attacked as well")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    parser.add_argument("--settle-s", type=float, default=SETTLE_S)
    parser.add_argument("--limit-mb", type=float, default=round(host_mb / 4), help="claimed; a quarter of the host's")
    parser.add_argument("--watchdog-gb", type=float, default=WATCHDOG_GB, help="the server is killed above that")
    parser.add_argument("--address-space-gb", type=float, default=0.0,
                        help="RLIMIT_AS of each process that sets none of its own, for a trial where others work: it "
                        "hides what a server without bounds takes, so no record is made with it")  # fmt: skip
    parser.add_argument("--out", type=Path, help="the record; without it nothing is written")
    args = parser.parse_args()
    checkouts = {"before": args.base, "here": ROOT} if args.base else {"here": ROOT}
    record: Json = {
        **stamp(VERSIONS),
        "cores": len(os.sched_getaffinity(0)),
        "host_mb": round(host_mb),
        "limit_mb": round(args.limit_mb),
        "watchdog_mb": round(args.watchdog_gb * 1000),
        "address_space_mb": round(args.address_space_gb * 1000),
        "attacks": [attack.name for attack in attacks(args.attacks)],
        "commits": {side: commit(checkout) for side, checkout in checkouts.items()},
    }
    for side, checkout in checkouts.items():
        record[side] = under_attack(checkout, args.attacks, args)
        print(f"{side}: {json.dumps({k: v for k, v in record[side].items() if k != 'statuses'})}", flush=True)
    if args.out:
        args.out.write_text(json.dumps(record, indent=1) + "\n")
    for line in (said := failed_claims(record)):
        print(f"does not hold: {line}")
    return int(bool(said))


if __name__ == "__main__":
    raise SystemExit(main())
