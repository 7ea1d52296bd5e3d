"""The landscape's worker and planner as on a GPU, but on the CPU: Triton's interpreter, timed by the host's clock.

Figures of this clock are no evidence of anything: tests look at what is done with them.
"""

from __future__ import annotations

import os
import time

import torch
from msgspec.structs import replace

from kernels.measure import planner
from kernels.measure.candidate import timing
from kernels.measure.landscape import worker
from kernels.measure.messages import Card
from kernels.tuning import Variant
from tests.kernels.measure.candidate.host_clock import HostClock

CARD = Card("host clock", 0, "host-clock", 10**9, 10**9, 0.0, 1, "0.0")


class Surveyor(worker.Surveyor):
    """On the CPU, whatever card is asked for. LANDSCAPE_FAULTS: number of warps -> "die" or "hang"."""

    def open(self, request):
        return super().open(replace(request, device="cpu"))

    def point(self, request):
        variant: Variant = self.cells[request.key].variant
        faults = dict(f.split("=") for f in os.environ.get("LANDSCAPE_FAULTS", "").split() if f)
        what = faults.get(str(variant.warps))
        if what == "die":
            os.abort()
        if what == "hang":
            time.sleep(60)
        return super().point(request)


def plan(channel):
    """The real planner, with a card."""

    def with_card(request):
        answer = planner.answer_to(request)
        return replace(answer, plan=replace(answer.plan, device=CARD)) if answer.plan else answer

    planner.main(channel, with_card)


def main(channel):
    timing.DeviceClock = HostClock
    torch.set_num_threads(1)
    worker.Surveyor = Surveyor
    worker.main(channel)
