"""Intervals, ratios and the gate, against numbers known beforehand."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.measure import stats
from profiler.hardware import find_device

H200 = find_device("NVIDIA H200")


def test_the_interval_of_a_ratio_covers_the_true_ratio_about_as_often_as_it_says():
    generator = np.random.default_rng(7)
    hits = 0
    for trial in range(200):
        base = generator.normal(100, 3, 15)
        other = generator.normal(80, 3, 15)
        span = stats.ratio(other, base, seed=trial)
        hits += span.low <= 0.8 <= span.high
    # 95 % nominal; a percentile bootstrap over 15 rounds falls a little short
    assert 0.85 * 200 <= hits <= 200


def test_drift_that_hits_both_alike_cancels_in_the_ratio():
    drift = np.linspace(1.0, 1.5, 9)
    span = stats.ratio(80 * drift, 100 * drift)
    assert span.high - span.low < 0.12  # unpaired, 80..120 against 100..150 would spread over 0.53..1.2
    assert span.median == pytest.approx(0.8)


def test_bindings_weigh_by_their_calls():
    small, large = np.full(5, 10.0), np.full(5, 1000.0)
    assert stats.weighted([small, large], [99, 1])[0] == pytest.approx((99 * 10 + 1000) / 100)
    assert stats.weighted([small, large], [0, 0])[0] == pytest.approx(505)


def test_one_outlier_in_a_round_does_not_move_its_figure():
    assert stats.medians([[10, 10, 10, 10, 5000]])[0] == 10


def test_the_gate_refuses_a_copy_faster_than_memory_and_lets_a_real_one_pass():
    # 8.6 GB copied at 4.3 TB/s was seen on an H200; its datasheet says 4.8 TB/s
    touched = 8.6e9
    least = stats.least_possible_us(touched, 0, None, H200)
    assert not stats.impossible(touched / 4.3e12 * 1e6, least)
    assert stats.impossible(touched / 5.5e12 * 1e6, least)


def test_the_gate_says_nothing_about_data_that_fits_l2():
    assert stats.least_possible_us(40e6, 0, None, H200) == 0


@pytest.mark.parametrize(("dtype", "rate"), [("bf16", 790e12), ("f32", 60e12), ("f8e4m3", 1500e12), ("i8", 1500e12)])
def test_the_gate_lets_real_matrix_rates_pass_and_refuses_twice_the_peak(dtype, rate):
    flops = 2 * 8192**3
    least = stats.least_possible_us(0, flops, dtype, H200)
    assert not stats.impossible(flops / rate * 1e6, least)
    assert stats.impossible(flops / 4.2e15 * 1e6, least)
