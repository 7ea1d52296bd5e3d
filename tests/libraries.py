"""Libraries of the extra `integrations`, which CI has. Elsewhere a test that needs a missing one is skipped."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


def library(name: str) -> Any:
    """The module, which is typed as far as its tests are."""
    if os.environ.get("CI"):
        return importlib.import_module(name)
    return pytest.importorskip(name, reason=f"needs {name}: pip install tritonworthy[integrations]")
