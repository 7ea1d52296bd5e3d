"""Noise: what a sample was drawn with, whatever a few outliers do, and never less than a run measures itself."""

from __future__ import annotations

import math

import numpy as np
import pytest

from app.history.noise import level_of, noise_of, standard_error


def test_noise_is_what_the_runs_were_drawn_with() -> None:
    sds = [noise_of(np.random.default_rng(seed).normal(0, 0.004, 40), 1, 0.0).sd for seed in range(50)]
    assert np.mean(sds) == pytest.approx(0.004, rel=0.06)


def test_an_outlier_moves_the_tail_alone() -> None:
    residuals = np.random.default_rng(1).normal(0, 0.004, 60)
    before = noise_of(residuals, 1, 0.0)
    residuals[30] = 0.3
    after = noise_of(residuals, 1, 0.0)
    assert after.sd < 1.2 * before.sd
    assert after.tail_sd > 5 * before.tail_sd
    assert after.farthest == 0.3
    assert abs(level_of(residuals)) < 0.002


def test_noise_is_never_less_than_a_run_leaves_open_itself() -> None:
    equal = np.zeros(20)
    assert noise_of(equal, 1, 0.01).sd == 0.01
    assert noise_of(equal, 1, 0.0).sd > 0


def test_the_standard_error_of_a_median_is_that_of_drawn_medians() -> None:
    rng = np.random.default_rng(0)
    medians = np.median(rng.normal(0, 0.05, (4000, 25)), axis=1)
    assert standard_error(25, 0.05) == pytest.approx(float(np.std(medians)), rel=0.05)
    assert standard_error(1, 0.05) == 0.0
    assert standard_error(9, None) == 0.0
    assert not math.isnan(standard_error(2, 0.0))
