"""These tests run kernels in Triton's interpreter, which must be asked for before Triton is imported.

`tests/kernels/test_interpreted.py` starts them in a process of their own; collected anywhere else they are left out.
"""

from __future__ import annotations

import os
import zlib

import pytest
import torch

collect_ignore_glob = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["*test_*.py"]  # in folders below as well

if not collect_ignore_glob:
    from tests.kernels.interpreted.interpreter import speed_up

    speed_up()


@pytest.fixture(autouse=True)
def _same_numbers_every_time(request: pytest.FixtureRequest) -> None:
    """What a test draws without a seed of its own depends on its name, not on the tests before it."""
    torch.manual_seed(zlib.crc32(request.node.nodeid.rpartition("::")[2].encode()))
