"""When and with what something was measured: what every record of a tool begins with."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
from collections.abc import Iterable
from typing import Any


def stamp(packages: Iterable[str]) -> dict[str, Any]:
    """date (UTC), and versions of Python and of these packages."""
    versions = {"python": platform.python_version()} | {n: importlib.metadata.version(n) for n in packages}
    return {"date": datetime.datetime.now(datetime.UTC).date().isoformat(), "versions": versions}
