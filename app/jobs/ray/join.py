"""Joining the fleet's cluster, with the ways that it can fail told in a sentence."""

from __future__ import annotations

from pathlib import Path

from app.jobs.ray.model import FleetError
from app.jobs.ray.runner import RayRunner


def join(address: str, token_file: Path, lanes: int, wait_s: float) -> RayRunner:
    """A driver of the cluster; FleetError where there is none, no Ray or no token."""
    try:
        return RayRunner(address, token_file=token_file, lanes=lanes, wait_s=wait_s)
    except ImportError:
        raise FleetError("Ray is not installed here: pip install 'tritonworthy[ray]'") from None
    except (OSError, RuntimeError, ValueError) as error:
        raise FleetError(str(error).splitlines()[0][:300]) from error
