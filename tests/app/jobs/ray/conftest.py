"""One Ray cluster and one driver for all tests of the fleet; pytest's processes share none."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from tests.app.jobs.ray.cluster import Fleet, look


@pytest.fixture(scope="package")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    if importlib.util.find_spec("ray") is None:  # importing it would fix its settings before they are made
        pytest.skip("needs Ray: pip install tritonworthy[ray]")
    found = Fleet(tmp_path_factory.mktemp("fleet"))
    yield found
    found.cluster.shutdown()  # type: ignore[no-untyped-call]


@pytest.fixture(scope="package")
def ray_runner(fleet: Fleet) -> Iterator[Any]:
    from app.jobs.ray.runner import RayRunner

    runner = RayRunner(fleet.cluster.address, token_file=fleet.token_file, lanes=4, wait_s=30, look=look)
    yield runner
    runner.close()
