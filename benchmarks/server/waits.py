"""What people wait for, against the commit before: `python -m benchmarks.server.waits --base FOLDER [--rounds 10]`.

FOLDER is a checkout of the commit before (`git worktree add FOLDER COMMIT`); both servers run with this Python. In each
round each of the two has a life of its own, on an empty data folder, so nothing that it is asked was asked before; they
take turns, and who is first changes from round to round. The clock starts when the server says that it is warm.

small, training, large   upload of a trace: until the API lists its parts, until the page has them, until every part
                         has its advice; from the first byte sent
advise                   advice on a region that nobody asked about, without and with the oracle
validate                 a validation on a host without a GPU, to its end
memory                   of the server and all its processes (PSS): idle, and at most under several uploads at once

A trace is looked at by polling: times are late by one poll at most, 20 ms or what an answer takes, 100 ms for the last
advice. Run it where nothing else runs. Writes a record and the claims that it does not bear out; 1 where there is one.
"""

from __future__ import annotations

import argparse
import gzip
import html
import http.client
import json
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.server.checkout import Server, commit
from benchmarks.server.load import region
from benchmarks.server.processes import MB, MemoryWatch, tree_pss
from benchmarks.traces.repeated import repeat
from tools.server import ROOT
from tools.stamp import stamp

Json = dict[str, Any]

RECORD = ROOT / "tests" / "records" / "waits.json"
TRACES = ROOT / "tests" / "data" / "traces"
SMALL = ROOT / "app" / "examples" / "handrolled_blocks.json.gz"
TRAINING = "llama_train_bf16_eager.json.gz"
REPEATED = "t5_train_autocast_eager.json.gz"
LARGE_BYTES = 215_000_000
VERSIONS = ("fastapi", "uvicorn", "torch")

CLAIMS_S = {
    "small.parts_s": 0.7,
    "training.parts_s": 3.0,
    "training.all_s": 6.0,
    "large.parts_s": 6.0,
    "advise.off_s": 0.3,
    "advise.auto_s": 0.3,
    "validate.end_s": 2.0,
}
"""Longest p50 of this checkout. Of parts: until the page has them, which is later than the API."""

ROUNDS = 10
ADVICES = 5
"""Of each kind in a round."""

UPLOADS = 8
SIDES = ("before", "here")
POLL_S, ADVICE_POLL_S = 0.02, 0.1
"""A trace that has its parts is long: it is looked at less often, or the looking takes the server's time."""

QUIET_LOAD = 1.0
"""Most load average before the first round: on a busy machine the same commit was seen 2.7 times as slow as itself."""

IDLE_S = 5.0
"""From ready to the look at an idle server's memory."""

END_S = 600.0
BLOCK = 1 << 20


class WaitError(RuntimeError):
    """The server did not do what was to be timed."""


# ---------------------------------------------------------------------------------------------------------- requests


def ask(port: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
    """One request on a connection of its own: status and body."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=END_S)) as connection:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def ask_json(port: int, method: str, path: str, body: Any = None) -> tuple[int, Json]:
    """The same in JSON both ways."""
    data = None if body is None else json.dumps(body)
    headers = {} if data is None else {"Content-Type": "application/json"}
    status, answer = ask(port, method, path, data, **headers)
    return status, json.loads(answer)


def poll(look: Callable[[], Json], until: Callable[[Json], bool], every_s: float = POLL_S) -> Json:
    """What `look` answers as soon as `until` is true of it. Asks no more than half of the time."""
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline:
        began = time.monotonic()
        answer = look()
        if until(answer):
            return answer
        time.sleep(max(every_s, time.monotonic() - began))
    raise WaitError(f"nothing came in {END_S:.0f} s")


# ------------------------------------------------------------------------------------------------------------ traces


@dataclass(frozen=True, slots=True)
class Sent:
    """A trace as it is sent. compressed: the file is gzip, and so is what is sent."""

    path: Path
    compressed: bool

    def body(self, number: int) -> tuple[Iterator[bytes], int]:
        """The bytes and how many: so many spaces stand behind the JSON, so that no two uploads are the same."""
        if self.compressed:
            data = gzip.compress(gzip.decompress(self.path.read_bytes()) + b" " * number, 6, mtime=0)
            return iter([data]), len(data)
        return self._blocks(number), self.path.stat().st_size + number

    def _blocks(self, number: int) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            while data := file.read(BLOCK):
                yield data
        yield b" " * number


def has_parts(trace: Json) -> bool:
    """Whether a trace lists its parts, with or without their advice. `parts_ready` says so where the server has it."""
    if trace["status"] != "reading":
        return True
    return bool(trace.get("regions")) and trace.get("parts_ready") is not False


def shows(page: str, trace: Json) -> bool:
    """Whether a page names the trace's first part; a trace without parts has nothing to show."""
    names = [r["name"] for r in trace["regions"]]
    return not names or html.escape(names[0]) in page or names[0] in page


def upload(port: int, sent: Sent, number: int) -> Json:
    """Seconds from the first byte: `sent_s` answered, `parts_s` the page has the parts, `listed_s` the API, `all_s`."""
    body, size = sent.body(number)
    began = time.monotonic()
    status, answer = ask(port, "POST", f"/api/v1/traces?name=wait-{number}", body, **{"Content-Length": str(size)})
    sent_s = time.monotonic() - began
    if status not in (200, 201):
        raise WaitError(f"{sent.path.name} was answered {status}: {answer[:300]!r}")
    if status == 200:
        raise WaitError(f"{sent.path.name} was here already")
    where = f"/api/v1/traces/{json.loads(answer)['id']}"

    def look() -> Json:
        return ask_json(port, "GET", where)[1]

    first = poll(look, has_parts)
    listed_s = time.monotonic() - began
    poll(lambda: {"page": _page(port, where)}, lambda seen: shows(seen["page"], first))
    parts_s = time.monotonic() - began
    if first["status"] != "reading":
        last, all_s = first, listed_s
    else:
        last = poll(look, lambda trace: trace["status"] != "reading", ADVICE_POLL_S)
        all_s = time.monotonic() - began
    if last["status"] != "ready":
        raise WaitError(f"{sent.path.name} ended {last['status']}: {last.get('error')}")
    advised = sum(r["advice"] is not None for r in last["regions"])
    return {
        "sent_s": sent_s, "listed_s": listed_s, "parts_s": parts_s, "all_s": all_s,
        "kernels": last["kernels"], "parts": len(last["regions"]), "advised": advised,
    }  # fmt: skip


def _page(port: int, where: str) -> str:
    return ask(port, "GET", where.removeprefix("/api/v1"), None, Accept="text/html")[1].decode()


def large_trace(source: Path, target: Path) -> None:
    """A trace of LARGE_BYTES, not compressed: of the same step again and again, unless the source is that long."""
    packed = source
    if _unpacked_bytes(source) < LARGE_BYTES * 0.99:
        packed = target.with_suffix(".gz")
        repeat(source, packed, LARGE_BYTES)
    with gzip.open(packed) as file, target.open("wb") as out:
        shutil.copyfileobj(file, out, BLOCK)
    if packed != source:
        packed.unlink()


def _unpacked_bytes(source: Path) -> int:
    size = 0
    with gzip.open(source) as file:
        while data := file.read(BLOCK):
            size += len(data)
    return size


# ----------------------------------------------------------------------------------------------------------- a round


def advise(port: int, rng: random.Random, oracle: str) -> float:
    """Seconds of one advice on a text that is new."""
    text = region(rng)
    began = time.monotonic()
    status, answer = ask_json(port, "POST", "/api/v1/advice", {"region": text, "oracle": oracle})
    took_s = time.monotonic() - began
    if status != 200:
        raise WaitError(f"advice was answered {status}: {answer}")
    return took_s


def validate(port: int, rng: random.Random) -> float:
    """Seconds from asking for a validation to its end, on a host without a GPU."""
    began = time.monotonic()
    status, job = ask_json(port, "POST", "/api/v1/validations", {"region": region(rng)})
    if status != 202:
        raise WaitError(f"a validation was answered {status}: {job}")
    path = f"/api/v1/jobs/{job['id']}"
    job = poll(lambda: ask_json(port, "GET", path)[1], lambda job: job["state"] not in ("queued", "running"))
    took_s = time.monotonic() - began
    if job["state"] != "done":
        raise WaitError(f"a validation ended {job['state']}: {job.get('error')}")
    return took_s


def upload_together(server: Server, sent: Sent, count: int) -> Json:
    """So many uploads at once: peak memory of all processes, and the seconds of the slowest to its advice."""
    watch = MemoryWatch(server.pid)
    with ThreadPoolExecutor(count) as pool:
        ended = list(pool.map(lambda number: upload(server.port, sent, 1000 + number), range(count)))
    return {
        "uploads": count,
        "uploads_peak_mb": watch.stop(),
        "uploads_slowest_s": max(one["all_s"] for one in ended),
        "uploads_slowest_parts_s": max(one["parts_s"] for one in ended),
    }


def one_round(checkout: Path, traces: Mapping[str, Sent], number: int, several: int) -> Json:
    """A server's life: every figure once, of advice ADVICES times. several: uploads at once at the end; 0 for none."""
    rng = random.Random(number)  # both sides are asked about the same texts
    with tempfile.TemporaryDirectory() as name, Server(checkout, Path(name), {}) as server:
        start_s = server.start()
        warm_s = start_s + server.warm()
        if ask_json(server.port, "GET", "/api/v1/device")[1].get("gpu") is not None:
            raise WaitError("this host has a GPU: `validate` is of hosts without one")
        time.sleep(IDLE_S)
        figures: Json = {"start_s": start_s, "warm_s": warm_s, "memory": {"idle_mb": tree_pss(server.pid) / MB}}
        for kind, sent in traces.items():
            figures[kind] = upload(server.port, sent, number)
        figures["advise"] = {
            f"{oracle}_s": [advise(server.port, rng, oracle) for _ in range(ADVICES)] for oracle in ("off", "auto")
        }
        figures["validate"] = {"end_s": validate(server.port, rng)}
        if several:
            figures["memory"] |= upload_together(server, traces["large"], several)
        return figures


# ------------------------------------------------------------------------------------------------------------ record


def figures(rounds: list[Json]) -> Json:
    """name -> p50, least, most and how many, of everything that the rounds tell; lists count each value."""
    values: dict[str, list[float]] = {}

    def gather(prefix: str, nested: Mapping[str, Any]) -> None:
        for key, value in nested.items():
            if isinstance(value, Mapping):
                gather(f"{prefix}{key}.", value)
            else:
                values.setdefault(prefix + key, []).extend(value if isinstance(value, list) else [value])

    for one in rounds:
        gather("", one)
    return {
        name: {"p50": _short(statistics.median(v)), "low": _short(min(v)), "high": _short(max(v)), "count": len(v)}
        for name, v in values.items()
    }


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def ratios(before: Json, here: Json) -> dict[str, float]:
    """p50 of this checkout over that of the commit before, of times and memory: below 1 is better."""
    both = [name for name in here if name in before and name.endswith(("_s", "_mb")) and before[name]["p50"] > 0]
    return {name: round(here[name]["p50"] / before[name]["p50"], 3) for name in both}


def failed_claims(record: Json) -> list[str]:
    """The claims that a record does not bear out, in words."""
    here, said = record["here"], []
    if record["rounds"] < ROUNDS:
        said.append(f"{record['rounds']} rounds, not {ROUNDS}")
    if record["load_at_start"] > QUIET_LOAD:
        said.append(f"measured at a load average of {record['load_at_start']}, not below {QUIET_LOAD:g}")
    for name, most_s in CLAIMS_S.items():
        if name not in here:
            said.append(f"{name} was not measured")
        elif here[name]["p50"] > most_s:
            said.append(f"{name}: {here[name]['p50']} s, not {most_s:g}")
    if (trace := here.get("small.kernels")) and trace["p50"] != 136:
        said.append(f"the small trace has {trace['p50']:.0f} kernels, not 136")
    for kind in ("small", "training", "large"):
        before, now = (record[side].get(f"{kind}.advised", {"low": 0})["low"] for side in SIDES)
        if now < before:
            said.append(f"{kind}: {now:.0f} parts have advice, {before:.0f} had before")
    if record["commits"]["here"]["changed"]:
        said.append("measured with changes that are not in a commit")
    said += [f"{name} was not measured" for name in ("memory.idle_mb", "memory.uploads_peak_mb") if name not in here]
    return said


def main() -> int:
    """1 where a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, required=True, help="checkout of the commit before")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--memory-rounds", type=int, default=2, help="with several uploads at once (default: the first 2)"
    )
    parser.add_argument("--uploads", type=int, default=UPLOADS, help=f"at once (default: {UPLOADS})")
    parser.add_argument("--traces", type=Path, default=TRACES, help=f"folder of {TRAINING} and {REPEATED}")
    parser.add_argument("--large", type=Path, help=f"a trace of 215 MB instead of {REPEATED} repeated, .json.gz")
    parser.add_argument("--only", nargs="+", choices=("small", "training", "large"), help="of the traces; for a trial")
    parser.add_argument("--out", type=Path, help="the record; without it nothing is written")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    checkouts = dict(zip(SIDES, (args.base, ROOT), strict=True))
    with tempfile.TemporaryDirectory() as name:
        large = Path(name) / "large.json"
        traces = {
            "small": Sent(SMALL, True),
            "training": Sent(args.traces / TRAINING, True),
            "large": Sent(large, False),
        }
        traces = {kind: sent for kind, sent in traces.items() if args.only is None or kind in args.only}
        if "large" in traces:
            large_trace(args.large or args.traces / REPEATED, large)
        rounds: dict[str, list[Json]] = {side: [] for side in SIDES}
        for number in range(args.rounds):
            for side in SIDES if number % 2 == 0 else reversed(SIDES):
                several = args.uploads if number < args.memory_rounds and "large" in traces else 0
                rounds[side].append(one_round(checkouts[side], traces, number + 1, several))
                print(f"round {number + 1}, {side}: {json.dumps(rounds[side][-1])}", flush=True)
        sizes = {kind: {"file": sent.path.name, "bytes": sent.path.stat().st_size} for kind, sent in traces.items()}
    by_side = {side: figures(rounds[side]) for side in SIDES}
    record = {
        **stamp(VERSIONS),
        "cores": len(os.sched_getaffinity(0)),
        "load_at_start": round(load, 2),
        "commits": {side: commit(checkout) for side, checkout in checkouts.items()},
        "rounds": args.rounds,
        "traces": sizes,
        **by_side,
        "ratios": ratios(by_side["before"], by_side["here"]),
    }
    for name, ratio in record["ratios"].items():
        before, here = by_side["before"][name], by_side["here"][name]
        print(f"{name:34} {before['p50']:10.3f} -> {here['p50']:10.3f}  x {ratio}")
    if args.out:
        args.out.write_text(json.dumps(record, indent=1) + "\n")
    for line in (said := failed_claims(record)):
        print(f"does not hold: {line}")
    return int(bool(said))


if __name__ == "__main__":
    raise SystemExit(main())
