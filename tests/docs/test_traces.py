"""docs/traces.md is what the code says of the recorded traces today."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.conftest import DATA, ROOT
from tools.docs import trace_table

TRACES = DATA / "traces"


def test_the_page_is_up_to_date() -> None:
    """In a process of its own: it takes the host to be another one."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "tools.docs.trace_table", "--check"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_trace_of_the_manifests_first_table_is_on_it() -> None:
    there = {p.name for p in TRACES.glob("*.json.gz") if ".et." not in p.name}
    elsewhere = ("hta_", "tl_", "kineto_", "param_")
    assert set(trace_table.names()) == {name for name in there if not name.startswith(elsewhere)}
    page = trace_table.PAGE.read_text()
    for name in trace_table.names():
        assert f"\n## {name.removesuffix('.json.gz')}\n" in page
