"""Random region texts, each taken through all that the API's advice does: `python -m tools.fuzz.fuzz_regions --texts
1500`.

An answer or a RegionError is right; any other exception would be a 500, and is printed with its text, as are texts over
their time or memory. Runs in child processes that are killed at their limits; the same texts for the same seed. Exits 1
where something failed. `--keep FOLDER` writes the failures as files for tests/fuzz/corpus/advice.

`--served` asks a server instead, as a client does, without the oracle: its children have its limits. Right is an
advice, a refusal of the text, or that a limit was met (422 `advice-limit`, 503 `advice-timeout`).
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import multiprocessing
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TEXTS_OF_A_CHILD = 400
"""A child is replaced after so many: torch keeps something of every graph."""
START_S = 120.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one text: seconds on the clock; and bytes of address space of a child."""

    wall_s: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A text that was neither answered nor refused. why: the exception and its place, or the limit it met."""

    name: str
    text: str
    why: str


def draw_texts(seed: int, texts: int, calls: int) -> Iterator[tuple[str, str]]:
    """(name, text) of everything that a run tries."""
    from tests.fuzz import region_texts

    for i in range(texts):
        yield f"text {seed} {i}", region_texts.text(f"text {seed} {i}")
    for i in range(calls):
        yield f"call {seed} {i}", region_texts.call(f"call {seed} {i}")


def try_text(text: str) -> str:
    """Whether a text was "answered" or "refused"; raises what would be a 500."""
    from app.analysis import service
    from app.analysis.device_choice import DeviceUnknownError
    from app.storage.database import finite
    from profiler.region.graph.torch_caches import forget
    from profiler.region.model import RegionError

    forget()
    try:
        json.dumps(finite(service.advise_region(text)), allow_nan=False)
    except (RegionError, DeviceUnknownError) as error:
        str(error).encode()
        return "refused"
    return "answered"


def place_of(error: BaseException) -> str:
    """The exception, and the last line of the project that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename.startswith(str(ROOT)) and "/tools/" not in f.filename]
    at = f" at {Path(own[-1].filename).relative_to(ROOT)}:{own[-1].lineno}" if own else ""
    message = str(error).strip().splitlines()
    return f"{type(error).__name__}: {message[0][:120] if message else ''}{at}"


def child(work: Connection, limits: Limits) -> None:
    """Answers each text with ("answered" | "refused" | what failed)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    try_text("x: f32[8, 8].requires_grad\nreturn softmax(x @ x, -1)\n")  # what is imported late is imported now
    work.send("ready")
    while True:
        text = work.recv()
        if text is None:
            return
        try:
            work.send(try_text(text))
        except BaseException as error:  # every kind is what is looked for
            work.send(place_of(error))


class Child:
    """One process and the text it has in hand."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        context = multiprocessing.get_context("spawn")
        self.work, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=child, args=(theirs, limits), daemon=True)
        self.process.start()
        theirs.close()
        self.item: tuple[str, str] | None = None
        self.done = 0
        self.ready = False
        self.deadline = time.monotonic() + START_S

    def give(self, item: tuple[str, str]) -> None:
        self.item, self.done = item, self.done + 1
        self.deadline = time.monotonic() + self.limits.wall_s
        self.work.send(item[1])

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.work.close()


def run(items: Iterator[tuple[str, str]], processes: int, limits: Limits, counts: Counter[str]) -> Iterator[Failure]:
    """The failures among the items, in the order in which they come out."""
    children: list[Child] = []
    more = True
    while more or children:
        while more and len(children) < processes:
            children.append(Child(limits))
        wait([c.work for c in children], timeout=max(0.0, min(c.deadline for c in children) - time.monotonic()))
        for one in list(children):
            message = _message_of(one)
            if message is None:
                continue
            if one.item is not None:
                counts[message if message in ("answered", "refused") else "failed"] += 1
                if message not in ("answered", "refused"):
                    yield Failure(*one.item, message)
                one.item = None
            elif message != "ready":
                raise RuntimeError(f"a child did not start: {message}")
            spent = one.process.exitcode is not None or message.startswith("no answer") or one.done >= TEXTS_OF_A_CHILD
            item = None if spent or not more else next(items, None)
            more = more and (spent or item is not None)
            if item is None:
                one.stop()
                children.remove(one)
            else:
                one.give(item)


def _message_of(one: Child) -> str | None:
    """What a child says; that it died or has no time left; None while it works."""
    try:
        if one.work.poll():
            return str(one.work.recv())
    except (EOFError, OSError):
        one.process.join()
        return f"the process ended with {one.process.exitcode}"
    if time.monotonic() > one.deadline:
        return f"no answer in {one.limits.wall_s:.0f} s"
    return None


LIMITS_MET = ("advice-limit", "advice-timeout")


def run_served(items: Iterator[tuple[str, str]], processes: int, counts: Counter[str]) -> Iterator[Failure]:
    """The same of a server of this checkout: what it answers with any other status, or not at all, is a failure.

    processes: children of the server; two more questions are asked at once, so that some always wait.
    """
    import tempfile
    from concurrent.futures import ThreadPoolExecutor

    import httpx

    from tools.server import serving

    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder) / "data", {"ADVICE_PROCESSES": str(processes)}) as served,
        httpx.Client(base_url=served.url, timeout=120.0) as client,
        ThreadPoolExecutor(processes + 2) as threads,
    ):

        def ask(item: tuple[str, str]) -> tuple[tuple[str, str], str]:
            try:
                answer = client.post("/api/v1/advice", json={"region": item[1], "oracle": "off"})
            except httpx.TransportError as fault:
                return item, type(fault).__name__
            return item, judge_response(answer.status_code, answer.content)

        while several := list(itertools.islice(items, SERVED_CHUNK)):
            for item, message in threads.map(ask, several):
                counts[message if message in RIGHT else "failed"] += 1
                if message not in RIGHT:
                    yield Failure(*item, message)


SERVED_CHUNK = 400
RIGHT = ("answered", "refused", "limit met")


def judge_response(status: int, body: bytes) -> str:
    """One of RIGHT, or the status and what was said."""
    if status == 200:
        return "answered"
    try:
        code = str(json.loads(body).get("code", ""))
    except ValueError:
        return f"{status} without a problem: {body[:80]!r}"
    if status == 422 and code.startswith(("region-", "device-")):
        return "refused"
    return "limit met" if code in LIMITS_MET else f"{status} {code}"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=500, help="random regions")
    parser.add_argument("--aten", type=int, default=500, help="random calls with arguments of any kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--wall", type=float, default=10.0, help="seconds for one text")
    parser.add_argument("--memory", type=float, default=6.0, help="GiB of address space for a child")
    parser.add_argument("--served", action="store_true", help="ask a server, whose children have its own limits")
    parser.add_argument("--keep", type=Path, help="folder for the texts that failed")
    asked = parser.parse_args()
    counts: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    limits = Limits(asked.wall, int(asked.memory * 2**30))
    started = time.monotonic()
    items = draw_texts(asked.seed, asked.texts, asked.aten)
    for failure in (
        run_served(items, asked.processes, counts) if asked.served else run(items, asked.processes, limits, counts)
    ):
        seen[failure.why] += 1
        if asked.keep:
            asked.keep.mkdir(parents=True, exist_ok=True)
            data = failure.text.encode()
            (asked.keep / f"crash-{hashlib.sha256(data).hexdigest()[:16]}").write_bytes(data)
        if seen[failure.why] == 1:
            print(f"--- {failure.name}: {failure.why}\n{failure.text}", flush=True)
    for why, number in seen.most_common():
        print(f"{number:5} {why}")
    message = ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))
    print(f"{sum(counts.values())} texts in {time.monotonic() - started:.0f} s: {message}")
    return 1 if seen else 0


if __name__ == "__main__":
    sys.exit(main())
