"""The batches of timed calls: each is enqueued while the device sleeps, however slow the host is just then."""

from __future__ import annotations

import pytest
import torch

from kernels.measure.candidate import timing
from kernels.measure.candidate.timing import MOST_SLEEP_US, Estimate, Rotation, cold_calls, enqueued


class Device:
    """A host whose time passes by its calls alone, and a device that sleeps when told to: both by one clock in µs."""

    def __init__(self) -> None:
        self.now_us = 0.0
        self.asleep_until_us = 0.0
        self.uncovered = 0
        self.marks = 0

    def call(self, host_us):
        def called(x):
            self.now_us += host_us
            return (x,)

        return called

    def mark(self):
        """What the device meets after its sleep has ended is not bracketed: the host's gap is in it."""
        self.marks += 1
        self.uncovered += self.now_us > self.asleep_until_us
        return self.now_us

    def elapsed_us(self, first, second):
        return second - first

    def synchronize(self):
        pass

    def sleep_us(self, duration_us):
        assert duration_us <= MOST_SLEEP_US
        self.asleep_until_us = self.now_us + duration_us


@pytest.fixture
def device(monkeypatch):
    made = Device()
    monkeypatch.setattr(timing, "_now", lambda: made.now_us * 1e-6)
    return made


def rotation():
    return Rotation([(torch.zeros(1),)])


@pytest.mark.parametrize("host_us", [200.0, 2000.0])
def test_a_host_that_has_become_slower_is_covered_by_what_it_takes_now(device, host_us):
    now_us = enqueued(device.call(host_us), rotation(), 5)
    assert now_us == pytest.approx(host_us)
    times = cold_calls(device.call(host_us), rotation(), 12, Estimate(10.0, 20.0), device)
    assert len(times) == 12
    assert device.uncovered > 12  # by what it took before, most calls would be timed with the host's gaps
    device.uncovered = 0
    cold_calls(device.call(host_us), rotation(), 12, Estimate(10.0, now_us), device)
    assert device.marks == 48
    assert device.uncovered == 0


def test_a_batch_is_no_larger_than_a_sleep_can_cover(device):
    cold_calls(device.call(3000.0), rotation(), 20, Estimate(10.0, 3000.0), device)
    assert device.uncovered == 0


def test_a_quick_call_of_a_slow_host_takes_its_turn_by_the_host(device):
    """13 µs on the GPU, 60 on the host: as many calls as the GPU's time allows would take five turns."""
    estimate = Estimate(13.0, 60.0)
    assert estimate.cold_us >= timing.COVER * 60.0
    assert Estimate(500.0, 60.0).cold_us == 500.0
    begun_us = device.now_us
    cold_calls(device.call(60.0), rotation(), int(4500 / estimate.cold_us), estimate, device)
    assert device.asleep_until_us - begun_us < 4500 + 60
