"""Kills at random moments under load: `python -m benchmarks.server.kills [--kills 500] [--as-init]`.

A server reads traces, validates without a GPU, checks and advises, while at random moments one of its processes is
ended by SIGKILL or (one in four) SIGTERM: the server itself (one in ten), a process that it started itself (one in ten:
a template, after which nothing is worked on for seconds), else one that works, below those at any depth. A server is
started again at once on the same data folder. At the end everything that was accepted must be there exactly once, done
or failed with a reason; no process may have outlived its parent (orphan) or have ended without being waited for
(zombie) for longer than STRAY_S; nothing may be left in the data folder that belongs to nothing.

--as-init: the server is process 1 of a PID namespace, as in a container without an init; needs root. Killing it is the
end of all processes in there. Orphans become its children there, else this program's.

Writes a record, one part for each of the two, and what is wrong; 1 where something is.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import sqlite3
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx

from app.settings import Settings
from app.storage.store import Store
from app.web.server.retention import remove_left_folders, remove_orphans
from benchmarks.server.checkout import Server, commit
from benchmarks.server.kills_load import (
    ANSWER_S,
    FAULTS,
    LISTS,
    Load,
    account,
    list_all,
    look,
    wait_for_all,
    whole_trace,
)
from benchmarks.server.processes import Process, adopt_orphans, below, command, reap, table
from tools.server import ROOT
from tools.stamp import stamp

Json = dict[str, Any]

RECORD = ROOT / "tests" / "records" / "kills.json"
VERSIONS = ("fastapi", "uvicorn", "sqlalchemy", "torch")
PARTS = ("as_child", "as_init")

KILLS = 500
SERVER_SHARE, FIRST_SHARE, TERM_SHARE = 0.1, 0.1, 0.25
"""Of all kills: the server; its own children; SIGTERM."""

PAUSE_S = 1.5
"""Mean time between two kills: most jobs take a few seconds, so some end and some do not."""

STRAY_S = 20.0
"""Who has lost its parent, or has ended and was not waited for, is left behind after so long."""

STOP_S = 10.0
"""Longest from SIGTERM to the end of the server: then `docker stop` kills it."""

END_S = 5.0
"""A process whose server has stopped may take so long to end."""

LOOK_S = 0.25
SHOWN = 10
"""Of each sort of fault, so many are told in words."""


# ------------------------------------------------------------------------------------------------------ who is killed


def victims(server: int, processes: Mapping[int, Process]) -> dict[int, list[Process]]:
    """The living processes below the server by depth, 1 for its children."""
    by_depth: dict[int, list[Process]] = {}
    for pid, depth in below(server, processes).items():
        if not processes[pid].dead:
            by_depth.setdefault(depth, []).append(processes[pid])
    return by_depth


def choose(by_depth: Mapping[int, list[Process]], first: bool, rng: random.Random) -> tuple[int, Process] | None:
    """One of the first depth, or one below it: a depth, each as likely as any other, then one of its processes.

    None where there is none of that sort.
    """
    depths = sorted(depth for depth in by_depth if (depth == 1) is first)
    if not depths:
        return None
    depth = rng.choice(depths)
    return depth, rng.choice(sorted(by_depth[depth], key=lambda process: process.life))


class Strays:
    """Who is left behind: watched from `start` to `stop`, in a thread. This process has adopted all orphans before."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.parents: dict[tuple[int, int], int] = {}
        self.commands: dict[tuple[int, int], str] = {}
        self.first_seen_s: dict[tuple[str, tuple[int, int]], float] = {}
        self.left: dict[tuple[str, tuple[int, int]], str] = {}
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._watch, name="strays", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def _watch(self) -> None:
        while not self.done.wait(LOOK_S):
            self.look(table(), os.getpid(), time.monotonic())

    def look(self, processes: Mapping[int, Process], me: int, now: float) -> None:
        """One look at all processes below this one. Pure but for `reap` of our own dead, which is an init's task."""
        own = self.server.process.pid if self.server.process else 0
        strange: dict[tuple[str, tuple[int, int]], Process] = {}
        for pid in below(me, processes):
            process = processes[pid]
            if process.life not in self.parents:
                self.parents[process.life], self.commands[process.life] = process.parent, command(pid) or process.name
            if process.dead and process.parent == me:
                if pid != own:
                    reap(pid)
            elif process.dead:
                strange["zombie", process.life] = process
            elif process.parent != self.parents[process.life] or (process.parent == me and pid != own):
                strange["orphan", process.life] = process
        self.first_seen_s = {key: self.first_seen_s.get(key, now) for key in strange}
        for key, first_seen_s in self.first_seen_s.items():
            if now - first_seen_s >= STRAY_S:
                self.left[key] = self.commands[key[1]]

    def stop(self) -> None:
        self.done.set()
        self.thread.join()

    def told(self, what: str) -> list[str]:
        """The commands of those that were left behind so."""
        return [command for (kind, _), command in self.left.items() if kind == what]


class Killer:
    """Kills, starts the server again, and notes what it did."""

    def __init__(self, server: Server, rng: random.Random, pause_s: float) -> None:
        self.server, self.rng, self.pause_s = server, rng, pause_s
        self.killed: Counter[str] = Counter()
        self.commands: Counter[str] = Counter()
        self.depths: Counter[int] = Counter()
        self.start_s: list[float] = []
        self.term_s: list[float] = []
        self.died: list[str] = []

    def run(self, kills: int) -> None:
        """Returns after so many kills, with a server that lives."""
        while self.killed.total() < kills:
            time.sleep(self.rng.uniform(0, 2 * self.pause_s))
            self.revive()
            number = signal.SIGTERM if self.rng.random() < TERM_SHARE else signal.SIGKILL
            if (who := self.rng.random()) < SERVER_SHARE:
                self._kill_server(number)
            else:
                self._kill_child(number, who < SERVER_SHARE + FIRST_SHARE)
            if (count := self.killed.total()) and count % 50 == 0:
                print(f"{count} kills", flush=True)

    def revive(self) -> None:
        """Start a server where there is none: it has ended of its own accord, or because a child was killed."""
        if self.server.ended:
            self.died.append(self.server.log.read_text(errors="replace")[-500:])
            self._start()

    def _kill_server(self, number: signal.Signals) -> None:
        self.killed[f"server {number.name}"] += 1
        took_s = self.server.end(number)
        if number is signal.SIGTERM:
            self.term_s.append(took_s)
        self._start()

    def _kill_child(self, number: signal.Signals, first: bool) -> None:
        chosen = choose(victims(self.server.serving, table()), first, self.rng)
        if chosen is None:
            return  # nobody works now
        depth, victim = chosen
        what = command(victim.pid)
        with suppress(ProcessLookupError):
            os.kill(victim.pid, number)
            self.killed[f"child {number.name}"] += 1
            self.commands[what] += 1
            self.depths[depth] += 1

    def _start(self) -> None:
        self.start_s.append(self.server.start())

    def summary(self) -> Json:
        return {
            "kills": self.killed.total(),
            "killed": dict(sorted(self.killed.items())),
            "depths": {str(depth): count for depth, count in sorted(self.depths.items())},
            "commands": dict(self.commands.most_common()),
            "died_by_itself": self.died[:SHOWN],
            "start_s_p50": round(statistics.median(self.start_s), 2) if self.start_s else None,
            "stop_s_max": round(max(self.term_s), 2) if self.term_s else None,
        }


def list_remaining() -> list[str]:
    """What runs below this process although the server has stopped, and END_S later still does."""
    deadline = time.monotonic() + END_S
    while True:
        living = [process for of in victims(os.getpid(), table()).values() for process in of]
        if not living or time.monotonic() > deadline:
            return [command(process.pid) or process.name for process in living]
        time.sleep(LOOK_S)


# ---------------------------------------------------------------------------------------------------- what is on disk

TEMPORARY = re.compile(r"^tmp|^spare-|\.(tmp|part|partial)$")
KEPT_LOG = re.compile(r"answers-\d")
"""Of the children that answer questions: a fixed number of files, begun anew by those that come after."""


def left_to_retention(data: Path, temporary: Path) -> int:
    """Removes, as retention does a day later, the uploads that a server had begun when it was killed and the temporary
    folders of killed validations; how many."""
    settings = Settings(data_dir=data)
    store = Store(settings.url, settings.uploads_dir)
    try:
        later_s = time.time() + 1.0
        uploads = remove_orphans(SimpleNamespace(store=store, settings=settings), later_s)
        return uploads + remove_left_folders(temporary, later_s)
    finally:
        store.close()


def left_files(data: Path) -> list[str]:
    """Files in a data folder whose server has stopped that belong to nothing: uploads of no trace and of no open job,
    logs of no job, temporary names."""
    with closing(sqlite3.connect(data / "tritonworthy.db")) as database:
        files = {row[0] for row in database.execute("SELECT file FROM traces")}
        jobs = {row[0] for row in database.execute("SELECT id FROM jobs")}
        marks = ",".join("?" * len(FINAL_STATES))
        waiting = database.execute(f"SELECT request FROM jobs WHERE state NOT IN ({marks})", FINAL_STATES)
        requests = " ".join(str(row[0]) for row in waiting)
    leftovers = []
    for path in sorted(p for p in data.rglob("*") if p.is_file()):
        place = path.relative_to(data)
        stem = path.name.partition(".")[0]
        unused = place.parts[0] == "uploads" and stem not in files and path.name not in requests
        nobodys = place.parts[0] == "logs" and stem not in jobs and not KEPT_LOG.fullmatch(stem)
        if unused or nobodys or TEMPORARY.search(path.name):
            leftovers.append(str(place))
    return leftovers


FINAL_STATES = ("done", "failed", "cancelled")


def database_says(data: Path) -> str:
    """ "ok", or what SQLite finds wrong with its file."""
    with closing(sqlite3.connect(data / "tritonworthy.db")) as database:
        return "; ".join(str(row[0]) for row in database.execute("PRAGMA integrity_check"))


# ------------------------------------------------------------------------------------------------------------- a run


def killed_under_load(args: argparse.Namespace) -> Json:
    """One run from the first start to the last look."""
    with tempfile.TemporaryDirectory() as name, Server(ROOT, Path(name), {}, as_init=args.as_init) as server:
        server.start()
        server.warm()
        strays, load = Strays(server), Load(server.url, args.seed)
        strays.start()
        killer = Killer(server, random.Random(args.seed), args.pause_s)
        began = time.monotonic()
        with httpx.Client(base_url=server.url, timeout=2 * ANSWER_S) as client:
            whole = whole_trace(client)
            load.start()
            try:
                killer.run(args.kills)
            finally:
                load.finish()
            minutes = (time.monotonic() - began) / 60
            killer.revive()
            wait_for_all(client, load.accepted)
            outcomes = {one.id: look(client, one) for one in load.accepted}
            rows = {kind: [row for row in list_all(client, kind) if row.get("name") != "kills 0"] for kind in LISTS}
        time.sleep(STRAY_S + 2 * LOOK_S)  # who is left behind by now is noticed by then
        died = server.ended
        last_stop_s = server.stop()
        after = list_remaining()
        strays.stop()
        if load.unexpected:
            lines = server.log.read_text(errors="replace").splitlines()
            print("\n".join(line[:300] for line in lines if " INFO " not in line)[-6000:])
        faults = account(load.accepted, outcomes, rows, load.cut, whole)
        states = Counter(f"{one.kind} {(outcomes[one.id].job or {}).get('state')}" for one in load.accepted)
        reasons = Counter(_reason(outcomes[one.id].job) for one in load.accepted)
        return {
            "seed": args.seed,
            "minutes": round(minutes, 1),
            **killer.summary(),
            "died_at_the_end": died,
            "last_stop_s": round(last_stop_s, 2),
            "statuses": dict(sorted(load.statuses.items())),
            "cut_off": dict(sorted(load.cut.items())),
            "unexpected": load.unexpected[:SHOWN],
            "accepted": dict(sorted(Counter(one.kind for one in load.accepted).items())),
            "states": dict(sorted(states.items())),
            "reasons": {reason: count for reason, count in reasons.most_common() if reason},
            "whole": {**asdict(whole), "notes": sorted(whole.notes)},
            **{fault: len(faults[fault]) for fault in FAULTS},
            "orphans": len(strays.told("orphan")),
            "zombies": len(strays.told("zombie")),
            "left_after_stop": after,
            "database": database_says(server.data),
            "left_to_retention": left_to_retention(server.data, server.temporary),
            "left_files": len(left := left_files(server.data)),
            "left_in_tmp": sorted(path.name for path in server.temporary.iterdir())[:SHOWN],
            "faults": {fault: told[:SHOWN] for fault, told in faults.items() if told},
            "left": {"orphans": strays.told("orphan")[:SHOWN], "zombies": strays.told("zombie")[:SHOWN],
                     "files": left[:SHOWN]},
        }  # fmt: skip


def _reason(job: Json | None) -> str:
    """Code and message of a job that failed."""
    error = (job or {}).get("error") or {}
    return f"{error.get('code')}: {error.get('message')}" if error else ""


NOTHING = (*FAULTS, "orphans", "zombies", "left_files", "unexpected", "left_after_stop", "died_by_itself")
"""What there must be none of."""


def failed_claims(record: Json, parts: tuple[str, ...] = PARTS) -> list[str]:
    """The claims that a record does not bear out, in words; a part that is not there was not measured."""
    said = []
    for part in parts:
        if (figures := record.get(part)) is None:
            said.append(f"{part}: not measured")
            continue
        if figures["kills"] < KILLS:
            said.append(f"{part}: {figures['kills']} kills, not {KILLS}")
        if figures["changed"]:
            said.append(f"{part}: measured with changes that are not in a commit")
        said += [f"{part}: {what}: {figures[what]}" for what in NOTHING if figures[what]]
        if (figures["stop_s_max"] or 0) > STOP_S:
            said.append(f"{part}: {figures['stop_s_max']} s from SIGTERM to the end, not {STOP_S:g}")
        if figures["died_at_the_end"]:
            said.append(f"{part}: the server had ended by itself")
        if figures["database"] != "ok":
            said.append(f"{part}: the database: {figures['database']}")
        said += [f"{part}: no {kind} was done" for kind in LISTS if not figures["states"].get(f"{kind} done")]
        who = ("server", "child")
        said += [f"{part}: no {one} was killed" for one in who if not any(k.startswith(one) for k in figures["killed"])]
    return said


def main() -> int:
    """1 where a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--as-init", action="store_true", help="the server is process 1 of a PID namespace")
    parser.add_argument("--pause-s", type=float, default=PAUSE_S, help="mean time between two kills")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="the record; the part that is not run stays as it is there")
    args = parser.parse_args()
    adopt_orphans()
    part = "as_init" if args.as_init else "as_child"
    run = stamp(VERSIONS) | {"cores": len(os.sched_getaffinity(0)), **commit(ROOT)}
    record: Json = json.loads(args.out.read_text()) if args.out and args.out.exists() else {}
    record[part] = run | killed_under_load(args)
    print(json.dumps(record[part], indent=1))
    if args.out:
        args.out.write_text(json.dumps(record, indent=1) + "\n")
    for line in (said := failed_claims(record, (part,))):
        print(f"does not hold: {line}")
    return int(bool(said))


if __name__ == "__main__":
    raise SystemExit(main())
