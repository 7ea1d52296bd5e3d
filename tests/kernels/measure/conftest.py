from __future__ import annotations

import pytest
import torch

from kernels.measure.processes import Zygote


@pytest.fixture(autouse=True)
def gradients():
    """A worker switches them by its region, for its own process: here that is the tests'."""
    before = torch.is_grad_enabled()
    yield
    torch.set_grad_enabled(before)


@pytest.fixture(scope="session")
def zygote():
    """One process that children are forked from, in interpreter mode, for all tests."""
    with Zygote(interpret=True) as made:
        made.wait_ready()
        yield made
