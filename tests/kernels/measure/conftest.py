from __future__ import annotations

import pytest

from kernels.measure.processes.processes import Zygote


@pytest.fixture(scope="session")
def zygote():
    """One process that children are forked from, in interpreter mode, for all tests."""
    with Zygote(interpret=True) as made:
        made.wait_ready()
        yield made
