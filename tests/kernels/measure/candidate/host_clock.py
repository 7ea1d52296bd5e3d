"""The real worker with the host's clock in the place of device events: its timed part runs on the CPU."""

from __future__ import annotations

import time

import torch

from kernels.measure.candidate import timing, worker

_now = time.perf_counter


class HostClock:
    """Marks are times of the host, which on the CPU are those of the work."""

    def mark(self):
        return _now()

    def elapsed_us(self, first, second):
        return (second - first) * 1e6

    def synchronize(self):
        pass

    def sleep_us(self, duration_us):
        pass


def main(channel):
    timing.DeviceClock = HostClock
    torch.set_num_threads(1)  # threads that wait for a core of a busy host are slow now and then
    worker.main(channel)
