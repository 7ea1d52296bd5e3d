from __future__ import annotations

import pytest

from kernels.measure.processes.processes import ForkServer


@pytest.fixture(scope="session")
def fork_server():
    """One process that children are forked from, in interpreter mode, for all tests."""
    with ForkServer(interpret=True) as made:
        made.wait_ready()
        yield made
