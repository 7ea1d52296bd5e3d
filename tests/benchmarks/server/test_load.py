"""The load generator: its rate does not give way to a slow server, and what waits is counted from when it was due."""

from __future__ import annotations

import asyncio
import random

import pytest

from benchmarks.server.load import KNOWN, Seen, http, known_regions, open_loop, quantile, region, regions, widget
from profiler.region.language.program import program
from profiler.region.language.text import parse

STALL_S = 0.4
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def stalling(rate: float, seconds: float, connections: int) -> Seen:
    """A server of which every connection stands still once, when the first request after 0.3 s comes."""
    loop = asyncio.get_running_loop()
    first = 0.0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            while (await reader.readline()).strip():
                pass
            nonlocal first
            first = first or loop.time()
            at = loop.time() - first
            if 0.3 < at < 0.3 + STALL_S:
                await asyncio.sleep(0.3 + STALL_S - at)
            writer.write(ANSWER[:20])
            await writer.drain()
            writer.write(ANSWER[20:])
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    endless = iter(lambda: http("GET", "/", "127.0.0.1"), None)
    seen, _ = await open_loop("127.0.0.1", port, endless, rate, seconds, connections)
    await asyncio.sleep(0.1)  # each connection's end is read
    server.close()
    return seen


@pytest.mark.parametrize("connections", [2, 64])
def test_a_server_that_stalls_is_charged_for_all_that_was_due_meanwhile(connections: int) -> None:
    rate, seconds = 100.0, 1.2
    seen = asyncio.run(stalling(rate, seconds, connections))
    assert len(seen.latency_ms) == rate * seconds
    assert seen.statuses == {200: rate * seconds}
    slow = [ms for ms in seen.latency_ms if ms > 20]
    assert len(slow) >= 0.8 * STALL_S * rate
    assert max(slow) > 0.8 * STALL_S * 1e3
    assert sum(slow) / len(slow) == pytest.approx(STALL_S * 1e3 / 2, rel=0.5)


def test_an_answer_that_never_comes_is_lost() -> None:
    async def silent() -> Seen:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        requests = iter([http("GET", "/", "h")] * 3)
        seen, _ = await open_loop("127.0.0.1", port, requests, 50.0, 0.06, 3)
        server.close()
        return seen

    seen = asyncio.run(silent())
    assert (seen.lost, seen.latency_ms) == (3, [])


def test_quantiles() -> None:
    values = [float(i) for i in range(1, 101)]
    assert [quantile(values, q) for q in (0.5, 0.99, 0.999, 1.0)] == [50.0, 99.0, 100.0, 100.0]
    assert quantile([], 0.5) == 0.0


def test_regions_are_of_the_language_and_one_in_ten_is_new() -> None:
    rng = random.Random(0)
    for _ in range(12):
        program(parse(region(rng)))
    known = set(known_regions("h", 7))
    plan = regions("h", 7)
    sent = [next(plan) for _ in range(2000)]
    assert len(known) == KNOWN
    new = [s for s in sent if s not in known]
    assert len(set(new)) == len(new)
    assert 0.07 < len(new) / len(sent) < 0.13


def test_widgets_differ() -> None:
    plan = widget("h")
    assert len({next(plan) for _ in range(500)}) > 490
