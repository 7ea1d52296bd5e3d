"""Two web processes on one PostgreSQL, killed and started again in the middle: no job is lost, none is done twice.

The servers are `tritonworthy serve` with children that sleep (benchmarks/fleet/fleet_server.py); the large run is
benchmarks/fleet/fleet_jobs.py, its record tests/records/fleet-jobs.json.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.fleet import fleet_jobs
from tests.conftest import ROOT

RECORD = ROOT / "tests" / "records" / "fleet-jobs.json"


@pytest.mark.timeout(600)
def test_servers_and_workers_that_are_killed_lose_no_job_and_do_none_twice(tmp_path: Path, postgres_url: str) -> None:
    with fleet_jobs.running(tmp_path, postgres_url) as fleet:
        # Each does what the other was asked for: a cancel within a second and a tick, a job within a second.
        soon = fleet_jobs.measure_reactions(fleet, 1)
        assert max(found["most"] for found in soon.values()) < 5
        found = fleet_jobs.storm(fleet, 80, seed=7, worker_every_s=1.0, web_every_s=1.0, web_kills=1, followed=6)
    assert found["kills"]["worker"] > 0
    assert found["kills"]["web"] > 0
    assert found["accepted"] == 82
    assert found["done"] + found["failed"] + found["cancelled"] == found["accepted"] + found["of_these_taken"]
    # A job fails only where both of its attempts were killed.
    assert found["failed"] <= found["attempts"]["2"]
    fleet_jobs.until(lambda: not fleet.processes(""))


def test_the_record_is_of_two_thousand_jobs_and_nothing_was_lost() -> None:
    answer = json.loads(RECORD.read_text())
    assert answer["jobs"] >= 2000
    assert min(answer["kills"].values()) >= 5
    assert answer["accepted"] >= answer["jobs"]
    assert answer["done"] + answer["failed"] + answer["cancelled"] == answer["accepted"] + answer["of_these_taken"]
    assert answer["failed"] == sum(answer["errors"].values())
    assert answer["two_runs_at_once"] == 0
