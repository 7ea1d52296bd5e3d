"""A Ray cluster of three hosts on this machine: one that reads, one with two H200, one with an MI300X, as declared."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import Any

import app
from app.jobs.ray import model

H200, MI300X = "NVIDIA H200", "AMD Instinct MI300X"
GPUS = {H200: ("H200", 2), MI300X: ("AMD-Instinct-MI300X-OAM", 1)}
SMALL: dict[str, Any] = {"num_cpus": 2, "object_store_memory": 80 << 20}
NOTICED = {"health_check_period_ms": 1000, "health_check_failure_threshold": 6, "health_check_timeout_ms": 4000}
"""Sooner than Ray's own, and late enough for a machine that is busy with other tests."""


def look() -> dict[str, Any]:
    """What a host would be found to have: here only what it declares can be believed."""
    return {"versions": {"torch": "2.13.0"}}


class Fleet:
    """The cluster, and its hosts by what they have."""

    def __init__(self, folder: Path) -> None:
        self.token_file = folder / "token"
        self.token_file.write_text(secrets.token_hex(32))
        self.token_file.chmod(0o600)
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(self.token_file))
        from ray.cluster_utils import Cluster

        head = {"num_gpus": 0, "include_dashboard": False, "resources": model.resources(None, 2)}
        self.cluster = Cluster(initialize_head=True, head_node_args={**head, **SMALL, "_system_config": NOTICED})
        self.hosts = {device: self.add(device) for device in GPUS}

    def add(self, device: str, version: str = app.__version__) -> Any:
        accelerator, gpus = GPUS[device]
        return self.cluster.add_node(num_gpus=gpus, resources=model.resources(accelerator, 0, version), **SMALL)

    def raylet(self, device: str) -> int:
        """The process of a host that its workers are started by."""
        return int(self.hosts[device].all_processes["raylet"][0].process.pid)


def command(name: str, file: str = "children.py") -> list[str]:
    """The command line of a child of that file next to this one."""
    return [sys.executable, str(Path(__file__).parent / file), name, "{fd}"]
