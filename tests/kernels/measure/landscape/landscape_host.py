"""The landscape's worker and planner as on a GPU, but on the CPU: Triton's interpreter, timed by the host's clock.

Figures of this clock are no evidence of anything: tests look at what is done with them.
"""

from __future__ import annotations

import os
import time

import torch

from kernels.measure import planner
from kernels.measure.candidate import timing
from kernels.measure.landscape import worker
from kernels.tuning import Variant
from tests.kernels.measure.candidate.host_clock import HostClock

DEVICE = {"name": "host clock", "index": 0, "free_bytes": 1e9, "l2_bytes": 0.0, "uuid": "host-clock"}


class Surveyor(worker.Surveyor):
    """On the CPU, whatever card is asked for. LANDSCAPE_FAULTS: number of warps -> "die" or "hang"."""

    def open(self, spec):
        return super().open({**spec, "device": "cpu"})

    def point(self, spec):
        variant: Variant = self.cells[spec["key"]].variant
        faults = dict(f.split("=") for f in os.environ.get("LANDSCAPE_FAULTS", "").split() if f)
        what = faults.get(str(variant.warps))
        if what == "die":
            os.abort()
        if what == "hang":
            time.sleep(60)
        return super().point(spec)


class Planner:
    """The real planner, with a card."""

    @staticmethod
    def main(channel):
        message = channel.receive()
        answer = planner.answer_to(message)
        if "region_error" not in answer["result"]:
            answer["result"]["device"] = DEVICE
        channel.send({"id": message["id"], **answer})


def main(channel):
    timing.DeviceClock = HostClock
    torch.set_num_threads(1)
    worker.Surveyor = Surveyor
    worker.main(channel)
