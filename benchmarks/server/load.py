"""An open-loop HTTP client: requests leave at a constant rate, whatever becomes of those before.

`python -m benchmarks.server.load --port 8000 --plan widget --rate 1000 --seconds 60` prints JSON. Runs in a process of
its own with plain sockets: it takes a tenth of a millisecond a request, which leaves the other core to the server.

A latency counts from the moment at which a request was due, not from when a connection was free for it: a server that
stalls is charged for all that would have come meanwhile (coordinated omission).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

Json = dict[str, Any]

CONNECTIONS = 48
END_S = 30.0
"""Longest wait for the answers that are out when the last request has been sent."""
LATE_MS = 5.0
"""A request that left so long after it was due, with a connection free: then the client's host was too busy."""


@dataclass(slots=True)
class Seen:
    """What came back. latency_ms: from due to the last byte of the answer, in order of arrival."""

    latency_ms: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    lost: int = 0  # connections that broke with a request on them
    late: int = 0

    def summary(self, rate: float, seconds: float) -> Json:
        """Quantiles in ms."""
        ordered = sorted(self.latency_ms)
        quantiles = {name: round(quantile(ordered, q), 2) for name, q in QUANTILES.items()}
        return {
            "rate": rate,
            "seconds": round(seconds, 1),
            "requests": len(ordered),
            "answered_per_s": round(len(ordered) / seconds, 1),
            "statuses": {str(k): v for k, v in sorted(self.statuses.items())},
            "lost": self.lost,
            "late_at_client": self.late,
            **quantiles,
        }


QUANTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}


def quantile(ordered: Sequence[float], share: float) -> float:
    """The least value that at least this share of all do not exceed; 0 for none."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


class Connection(asyncio.Protocol):
    """One kept connection, one request at a time."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.asked: tuple[bytes, float] | None = None  # the request that is on its way, and when it was due
        self.buffer = b""
        self.needed = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.pool.idle(self)

    def send(self, data: bytes, due: float) -> None:
        self.asked = (data, due)
        self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        self.buffer = self.buffer + data if self.buffer else data
        if self.needed < 0:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self.buffer[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            self.status = int(head[9:12])
            self.needed = end + 4 + length
        if len(self.buffer) >= self.needed and self.asked is not None:
            seen = self.pool.seen
            seen.latency_ms.append((time.monotonic() - self.asked[1]) * 1e3)
            seen.statuses[self.status] += 1
            self.buffer, self.needed, self.asked = b"", -1, None
            self.pool.idle(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.pool.ended(self)


class Pool:
    """Connections to one server; what finds none that is free waits its turn."""

    def __init__(self, host: str, port: int, most: int) -> None:
        self.host, self.port, self.most = host, port, most
        self.seen = Seen()
        self.open = 0
        self.free: deque[Connection] = deque()
        self.waiting: deque[tuple[bytes, float]] = deque()
        self.again: set[int] = set()
        self.opening: set[asyncio.Task[None]] = set()

    async def connect(self) -> None:
        """One more connection; a server that takes none is asked again by the next request that waits."""
        self.open += 1
        try:
            await asyncio.get_running_loop().create_connection(lambda: Connection(self), self.host, self.port)
        except OSError:
            self.open -= 1

    def send(self, data: bytes, due: float) -> None:
        """Now, or as soon as a connection is free."""
        while self.free:
            connection = self.free.pop()
            if not connection.transport.is_closing():
                self.seen.late += (time.monotonic() - due) * 1e3 > LATE_MS
                connection.send(data, due)
                return
        self.waiting.append((data, due))
        if self.open < self.most:
            task = asyncio.get_running_loop().create_task(self.connect())
            self.opening.add(task)
            task.add_done_callback(self.opening.discard)

    def idle(self, connection: Connection) -> None:
        if self.waiting:
            connection.send(*self.waiting.popleft())
        else:
            self.free.append(connection)

    def ended(self, connection: Connection) -> None:
        """The server closed it. A request that was on its way to a connection kept too long is sent once more."""
        self.open -= 1
        if connection.asked is None:
            return
        key = id(connection.asked[0])
        if connection.buffer or key in self.again:
            self.seen.lost += 1
        else:
            self.again.add(key)
            self.send(*connection.asked)

    def close(self) -> None:
        for connection in self.free:
            connection.transport.close()


async def open_loop(
    host: str, port: int, requests: Iterator[bytes], rate: float, seconds: float, connections: int = CONNECTIONS
) -> tuple[Seen, float]:
    """Send `rate` requests a second for so long, wait for the last answer: what was seen, and the seconds it took."""
    pool = Pool(host, port, connections)
    seen = pool.seen
    for _ in range(connections):
        await pool.connect()
    kept: list[bytes] = []  # their identity is what `again` knows them by
    started = time.monotonic()
    total = round(rate * seconds)
    sent = 0
    while sent < total:
        due = started + sent / rate
        if (early := due - time.monotonic()) > 0:
            await asyncio.sleep(early)
            continue
        kept.append(next(requests))
        pool.send(kept[-1], due)
        sent += 1
        if sent % 16 == 0:
            await asyncio.sleep(0)
    deadline = time.monotonic() + END_S
    while len(seen.latency_ms) + seen.lost < total and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    seen.lost += total - len(seen.latency_ms) - seen.lost
    took = time.monotonic() - started
    pool.close()
    return seen, took


# ------------------------------------------------------------------------------------------------------- requests

BOUNDS = ("", "memory", "compute")
KINDS = ("", "gemm", "attention", "elementwise", "quantised_gemm", "normalisation", "reduction", "custom")


def http(method: str, path: str, host: str, body: Any = None, **headers: str) -> bytes:
    """A request as bytes."""
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *(f"{k.replace('_', '-')}: {v}" for k, v in headers.items())]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    return "\r\n".join([*lines, "", ""]).encode() + data


def widget(host: str, seed: int = 1) -> Iterator[bytes]:
    """The widget's three answers anywhere between 0 and 1, any bound, any kind: the API's call and the page's part."""
    rng = random.Random(seed)
    while True:
        answers: Json = {name: round(rng.random(), 3) for name in ("share_of_step", "uniqueness", "irregularity")}
        bound, kind = rng.choice(BOUNDS), rng.choice(KINDS)
        if rng.random() < PAGE_SHARE:
            query = urlencode({**answers, "bound": bound, "kind": kind})
            yield http("GET", f"/widget?{query}", host, HX_Request="true")
        else:
            yield http(
                "POST", "/api/v1/advice", host, {"widget": {**answers, "bound": bound or None, "kind": kind or None}}
            )


PAGE_SHARE = 0.1
"""Of the widget's requests, the page's HTML; the page itself asks only where its table does not know."""


def regions(host: str, seed: int = 1, new: float = 0.1) -> Iterator[bytes]:
    """Regions' texts: of a team's forty again and again, and one in ten that nobody has asked about."""
    rng = random.Random(seed)
    known = [region(rng) for _ in range(KNOWN)]
    while True:
        text = region(rng) if rng.random() < new else rng.choice(known)
        yield http("POST", "/api/v1/advice", host, {"region": text, "share_of_step": 0.1})


KNOWN = 40
POINTWISE = ("gelu", "silu", "relu", "tanh", "sigmoid", "exp", "abs")


def region(rng: random.Random) -> str:
    """A text of one of the kinds that traces are full of, its sizes and constants drawn anew."""
    rows, columns = 8 * rng.randrange(16, 4096), 64 * rng.randrange(4, 128)
    dtype = rng.choice(("bf16", "f16", "f32"))
    first, second = rng.choice(POINTWISE), rng.choice(POINTWISE)
    factor = round(rng.uniform(0.1, 9.9), 4)
    shape = f"{dtype}[{rows}, {columns}]"
    return rng.choice((
        f"x: {shape}\nr: {shape}\ny = {first}(x) * {factor}\ny = y + {second}(r)\nreturn y\n",
        f"x: {shape}\nw: {dtype}[{columns}]\ns = rsqrt((x * x).mean(-1, keepdim=True) + {factor}e-6)\ny = x * s * w\n"
        "return y\n",
        f"x: {shape}\nm: {shape}\ny = softmax(x * {factor} + m, -1)\nreturn y\n",
        f"x: {shape}\ny = {first}(x) * {factor}\nreturn y.sum(0)\n",
    ))  # fmt: skip


def every_table(host: str, seed: int) -> Iterator[bytes]:
    """The widget once for each bound and kind."""
    for bound, kind in itertools.product(BOUNDS, KINDS):
        answers = {"share_of_step": 0.2, "uniqueness": 0.5, "irregularity": 0.5, "bound": bound or None}
        yield http("POST", "/api/v1/advice", host, {"widget": {**answers, "kind": kind or None}})
        yield http("GET", f"/widget?{urlencode({'bound': bound, 'kind': kind})}", host, HX_Request="true")


def known_regions(host: str, seed: int) -> Iterator[bytes]:
    """The team's forty once."""
    rng = random.Random(seed)
    for _ in range(KNOWN):
        yield http("POST", "/api/v1/advice", host, {"region": region(rng), "share_of_step": 0.1})


WARM: dict[str, Callable[[str, int], Iterator[bytes]]] = {"widget": every_table, "regions": known_regions}
PLANS: dict[str, Callable[..., Iterator[bytes]]] = {"widget": widget, "regions": regions}


def main() -> int:
    """Print what was seen as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--plan", choices=PLANS, required=True)
    parser.add_argument("--rate", type=float, required=True, help="requests a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1, help="another seed asks about other regions")
    parser.add_argument("--warm", type=float, help="ask first, so many a second, for all that is asked again and again")
    args = parser.parse_args()
    requests = PLANS[args.plan](f"{args.host}:{args.port}", args.seed)
    if args.warm:
        warm = list(WARM[args.plan](f"{args.host}:{args.port}", args.seed))
        asyncio.run(open_loop(args.host, args.port, iter(warm), args.warm, len(warm) / args.warm))
    seen, took = asyncio.run(open_loop(args.host, args.port, requests, args.rate, args.seconds))
    print(json.dumps(seen.summary(args.rate, took)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
