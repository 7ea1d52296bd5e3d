"""Starts a child for every row and says who may build and who may record."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.corpus.recording.child import child
from tools.corpus.recording.made import Place
from tools.corpus.recording.rows import Row, in_order


@dataclass
class Running:
    """One child. entered: when it came into its state. shared: others built while it recorded."""

    row: Row
    process: Any
    pipe: Any
    started: float
    state: str = "starting"
    entered: float = 0.0
    shared: bool = False


STATE_SECONDS = {"starting": 60.0, "ready": 90.0, "building": 30.0, "built": 90.0, "recording": 15.0, "recorded": 30.0}
PATIENCE_S = 8.0
"""A recording starts next to a slow builder after this long, and the report says so."""


class Parent:
    """Starts children and gives leave: several build at a time, one records, and while it records nobody builds."""

    def __init__(self, rows: Sequence[Row], place: Place, folder: Path, seconds: float, workers: int) -> None:
        self.waiting = in_order(rows)
        self.place, self.folder, self.workers = place, folder, workers
        self.builders = min(8, workers)
        self.begin = time.monotonic()
        self.end = self.begin + seconds
        self.running: list[Running] = []
        self.report: list[dict[str, Any]] = []
        method = "fork" if forked_children_reach(place.device) else "spawn"
        self.context: Any = multiprocessing.get_context(method)
        print(f"children by {method}", flush=True)

    def run(self) -> None:
        while self.running or (self.waiting and time.monotonic() < self.end - 8):
            while self.waiting and len(self.running) < self.workers and time.monotonic() < self.end - 8:
                self.start(self.waiting.pop(0))
            self.listen()
            self.give_leave()
            self.stop_late()
        self.report += [{"name": r.name, "state": "not started"} for r in self.waiting]

    def start(self, row: Row) -> None:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=child, args=(row, self.place, self.folder, theirs))
        process.start()
        theirs.close()
        now = time.monotonic()
        self.running.append(Running(row, process, ours, now, entered=now))

    def listen(self) -> None:
        pipes = {r.pipe: r for r in self.running}
        for pipe in multiprocessing.connection.wait(list(pipes), timeout=0.05):
            item = pipes[pipe]
            try:
                state, error = item.pipe.recv()
            except (EOFError, OSError):
                state, error = "failed", f"died in state {item.state}"
            item.state, item.entered = state, time.monotonic()
            if state in ("done", "failed"):
                self.close(item, state, error)

    def close(self, item: Running, state: str, error: str) -> None:
        item.process.join(1.0)
        if item.process.is_alive():
            item.process.kill()
        self.running.remove(item)
        took = time.monotonic() - item.started
        line = {"name": item.row.name, "state": state, "error": error, "seconds": round(took, 1), "shared": item.shared}
        self.report.append(line)
        print(f"{time.monotonic() - self.begin:6.1f} s  {item.row.name}: {state} {error}", flush=True)

    def give_leave(self) -> None:
        by = {s: [r for r in self.running if r.state == s] for s in ("ready", "building", "built", "recording")}
        if by["recording"]:
            return
        now = time.monotonic()
        late = by["building"] and now - min(r.entered for r in by["building"]) > PATIENCE_S
        if by["built"] and (not by["building"] or late):
            self.go(by["built"][0], "recording", shared=bool(by["building"]))
        elif not by["built"]:
            for item in by["ready"][: self.builders - len(by["building"])]:
                self.go(item, "building")

    def go(self, item: Running, state: str, shared: bool = False) -> None:
        item.state, item.entered, item.shared = state, time.monotonic(), shared
        with contextlib.suppress(OSError):
            item.pipe.send(state)

    def stop_late(self) -> None:
        now = time.monotonic()
        for item in list(self.running):
            if now - item.entered > STATE_SECONDS[item.state] or now > self.end:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(item.process.pid, signal.SIGKILL)
                self.close(item, "failed", f"too long in state {item.state}")


def forked_children_reach(device: str) -> bool:
    """Whether a forked child can use the device: not where an import has started the driver in this process."""
    if device == "cpu":
        return True
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def probe() -> None:
        import torch

        try:
            torch.ones(1, device=device).sum().item()
            theirs.send(True)
        except Exception:
            theirs.send(False)
        os._exit(0)

    process = context.Process(target=probe)
    process.start()
    answer = bool(ours.recv()) if ours.poll(30.0) else False
    process.join(5.0)
    return answer
