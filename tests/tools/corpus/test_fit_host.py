"""The host's numbers that the estimates use are those that the corpus's fit third gives today."""

from __future__ import annotations

import numpy as np
import pytest

from app.estimate.rates import BY_THE_CORPUS, FITTED, Host
from tools.corpus.fit_host import fit_host, least


def test_the_shipped_numbers_are_the_commands() -> None:
    """Held to a twentieth: they move a little with how launches are counted."""
    found = fit_host()
    assert set(found) == BY_THE_CORPUS
    for name, value in found.items():
        assert getattr(Host(), name) == pytest.approx(value, rel=0.05), f"python -m tools.corpus.fit_host: {name}"
        assert getattr(FITTED.host, name) == getattr(Host(), name), "run `tritonworthy accuracy fit`"


def test_one_host_that_was_busy_does_not_move_what_the_others_say() -> None:
    launches = np.array([1.0, 2.0, 4.0, 8.0, 12.0, 3.0])
    walls = 40.0 + 25.0 * launches
    walls[-1] *= 9.0
    call, launch = least(np.column_stack((np.ones(6), launches)), walls, np.ones(6))
    assert call == pytest.approx(40.0, rel=0.1)
    assert launch == pytest.approx(25.0, rel=0.1)
