"""A worker whose times are reckoned instead of measured: `python -m tests.kernels.calibrate.stand_in WORK`.

All else is the worker's own. Variables of the environment say what happens at which program: see `Reckoned`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import msgspec

from kernels.calibrate.points import CandidateTimes, CompiledTimes, GeneratedTimes, Times
from kernels.calibrate.shares import Work
from kernels.calibrate.worker import end_with_the_starter, work
from profiler.region.model import ITEMSIZE, Region

COMMAND = (sys.executable, "-m", "tests.kernels.calibrate.stand_in")


class Reckoned:
    """2 µs and what inputs take at 4 TB/s. STAND_IN_FAULT: the process is killed at each text that has this in it.
    STAND_IN_PAUSE_S: that each program takes."""

    events_us = 1.25

    def eager(self, region: Region) -> Times:
        fault = os.environ.get("STAND_IN_FAULT")
        if fault and fault in region.source:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(float(os.environ.get("STAND_IN_PAUSE_S", "0.01")))
        moved = 0
        for item in region.inputs:
            size = ITEMSIZE[item.dtype]
            for extent in item.shape:
                size *= int(extent)
            moved += size
        time_us = round(3.3 + moved / 4e6, 2)
        return {"cold_us": time_us, "warm_us": round(0.6 * time_us + 1, 2), "host_us": 5.0}

    def compiled(self, region: Region, with_eager: bool) -> CompiledTimes:
        times: CompiledTimes = {"kernels": [], "externs": []}
        times.update(self.eager(region))  # type: ignore[typeddict-item]
        return times

    def generated(self, region: Region) -> GeneratedTimes:
        return {**self.eager(region), "generated": [], "kept": []}

    def own(self, region: Region) -> CandidateTimes:
        return {**self.eager(region), "candidates": {}}

    def autotuned(self, region: Region) -> CompiledTimes:
        return {**self.compiled(region, False), "default": self.compiled(region, True)}


if __name__ == "__main__":
    end_with_the_starter()
    told = msgspec.json.decode(sys.argv[1], type=Work)
    work(Reckoned(), told.shares, told.until, Path(told.file))
