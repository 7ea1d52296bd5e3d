"""RunState: what is known of a calibration that is under way, in its folder, so that it can be gone on with."""

from __future__ import annotations

import datetime
import fcntl
import os
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kernels.calibrate.points import Conditions
from kernels.host import Host
from kernels.measure.conditions import Reading

FILE = "calibration.json"


class CalibrationError(Exception):
    """A calibration that cannot begin, or that measured nothing; the message says why and what to do."""


class RunState(msgspec.Struct):
    """Where it is measured, for how long so far, and under which conditions."""

    device: str
    torch: str
    triton: str
    seconds: float = 0.0
    others: int | None = None
    sm_clocks_mhz: list[float] = []
    memory_clocks_mhz: list[float] = []

    def note_others(self, count: int) -> bool:
        """Whether these are more processes of others than were seen before."""
        more = count > (self.others or 0)
        self.others = max(self.others or 0, count)
        return more

    def note_clocks(self, reading: Reading) -> None:
        """One reading under load."""
        if clock := reading.get("sm_clock_mhz"):
            self.sm_clocks_mhz.append(clock)
        if clock := reading.get("memory_clock_mhz"):
            self.memory_clocks_mhz.append(clock)

    def conditions(self) -> Conditions:
        """As a recording of points keeps them."""
        told = Conditions(
            device=self.device, torch=self.torch, triton=self.triton, date=datetime.date.today().isoformat(),
            minutes=round(self.seconds / 60, 1),
        )  # fmt: skip
        if self.sm_clocks_mhz:
            told["sm_clock_mhz"] = statistics.median(self.sm_clocks_mhz)
        if self.memory_clocks_mhz:
            told["memory_clock_mhz"] = statistics.median(self.memory_clocks_mhz)
        if self.others is not None:
            told["others"] = self.others
        return told

    def save(self, folder: Path) -> None:
        """Whole or not at all."""
        written = folder / f".{FILE}.{os.getpid()}"
        written.write_bytes(msgspec.json.encode(self))
        written.replace(folder / FILE)


def open_state(folder: Path, host: Host) -> RunState:
    """The folder's own, or a new one. CalibrationError where the folder's points are of another device or torch."""
    now = RunState(host.gpu or "", host.versions.get("torch", ""), host.versions.get("triton", ""))
    try:
        before = msgspec.json.decode((folder / FILE).read_bytes(), type=RunState)
    except FileNotFoundError:
        return now
    except msgspec.DecodeError as fault:
        raise CalibrationError(f"{folder / FILE} is damaged ({fault}): remove {folder}, or begin anew") from None
    if (before.device, before.torch, before.triton) != (now.device, now.torch, now.triton):
        raise CalibrationError(
            f"{folder} has points of {before.device} with torch {before.torch} and triton {before.triton}; this is"
            f" {now.device} with torch {now.torch} and triton {now.triton}: remove it, or begin anew"
        )
    return before


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """One calibration at a time in a folder. CalibrationError where there is another."""
    with (folder / "alone.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CalibrationError(f"another calibration is at work in {folder}") from None
        yield
