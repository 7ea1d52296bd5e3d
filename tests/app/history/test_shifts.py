"""Shifts: none in noise, small ones that last, none from a run that stands alone, and where they begin."""

from __future__ import annotations

import math

import numpy as np
import pytest

from app.history.noise import Logs, Noise
from app.history.shifts import USUAL, Detection, Sensitivity, detect, locate


def found(logs: Logs, sensitivity: Sensitivity = USUAL) -> Detection:
    return detect(logs, [0.0] * len(logs), sensitivity)


def noise(runs: int, sd: float = 0.005, seed: int = 0) -> Logs:
    return np.random.default_rng(seed).normal(0, sd, runs)


def test_noise_alone_raises_no_alarm_in_5000_runs() -> None:
    detections = [found(noise(500, seed=seed)) for seed in range(10)]
    assert sum(len(detection.alarms) for detection in detections) <= 2
    assert sum(len(detection.shifts) for detection in detections) <= 2


def test_a_shift_of_one_standard_deviation_is_told_once_it_has_lasted() -> None:
    for seed in range(5):
        logs = noise(200, 0.01, seed)
        logs[100:] += 0.02
        detection = found(logs)
        assert [round(shift.log_ratio, 2) for shift in detection.shifts] == [0.02], seed
        (shift,) = detection.shifts
        assert shift.earliest <= 100 <= shift.latest
        assert 100 <= detection.alarms[0].run <= 125


def test_a_large_shift_is_told_at_its_first_run() -> None:
    logs = noise(60)
    logs[40:] += 0.1
    detection = found(logs[:41])
    assert [(alarm.run, alarm.first) for alarm in detection.alarms] == [(40, 40)]
    (shift,) = detection.shifts
    assert shift.lone
    assert not found(logs).shifts[0].lone


def test_a_run_that_stands_alone_begins_no_level() -> None:
    logs = noise(80)
    logs[50] += 0.2
    detection = found(logs)
    assert [alarm.run for alarm in detection.alarms] == [50]
    assert detection.shifts == ()
    assert detection.outliers == {50}


def test_up_and_down_again_are_two_shifts() -> None:
    logs = noise(120)
    logs[40:80] += 0.05
    assert [shift.first for shift in found(logs).shifts] == [40, 80]


def test_few_runs_want_a_larger_difference() -> None:
    def told(runs: int, share: float) -> bool:
        logs = noise(runs + 1, 0.003)
        logs[-1] = math.log1p(share)
        return bool(found(logs).shifts)

    assert told(60, 0.03)
    assert not told(5, 0.03)
    assert told(5, 0.3)
    assert not told(3, 0.3)


def test_less_than_the_least_change_is_not_told() -> None:
    logs = noise(100, 1e-5)
    logs[50:] += 0.004
    assert not found(logs).shifts
    assert found(logs, Sensitivity(min_change=0.001)).shifts


@pytest.mark.parametrize("seed", range(8))
def test_the_place_of_a_shift_is_that_of_least_squares(seed: int) -> None:
    logs = noise(40, 0.01, seed)
    logs[25:] += 0.03
    errors = [
        float(np.sum((logs[:k] - logs[:k].mean()) ** 2) + np.sum((logs[k:] - logs[k:].mean()) ** 2))
        for k in range(1, 40)
    ]  # fmt: skip
    place = locate(logs, Noise(0.01, 0.01, 30, 0.03))
    assert place.best == 1 + int(np.argmin(errors))
    assert place.earliest <= place.best <= place.latest


def test_the_interval_of_a_place_holds_the_true_one_mostly() -> None:
    held = 0
    for seed in range(100):
        logs = noise(60, 0.01, seed)
        logs[30:] += 0.02
        place = locate(logs, Noise(0.01, 0.01, 58, 0.03))
        held += place.earliest <= 30 <= place.latest
    assert held >= 85
