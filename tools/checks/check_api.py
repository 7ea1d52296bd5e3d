"""The API held to /openapi.json: `python -m tools.checks.check_api --cases 5000 --record`.

schemathesis makes requests, good and bad, from the description alone, for every operation, and looks at every answer:
no 500, only statuses, content types, headers and bodies that are documented, good requests accepted, bad ones refused,
other methods told 405 with those that there are. The server is a real process with some things in it; jobs are real
too, but validations end after seconds, for a failed job is an answer like another.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from app.archive import record_store
from tools.server import ROOT, serving
from tools.stamp import stamp

RECORD = ROOT / "tests" / "records" / "api-conformance.json"
VERSIONS = ("schemathesis", "hypothesis", "fastapi", "starlette", "pydantic")
EXCLUDED = (
    "negative_data_rejection", "positive_data_acceptance", "not_a_server_error", "ignored_auth",
    "object_level_authorization",
)  # fmt: skip
"""The first three have stricter twins in tests/app/web/api/schemathesis_hooks.py; sign-in has tests of its own."""

REGION = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"
TIGHT = {"MAX_WAIT_S": "0.2", "JOB_TIMEOUT_S": "2", "READ_TIMEOUT_S": "180", "QUEUE_CAP": "4", "KILL_GRACE_S": "0.2"}

Json = dict[str, Any]


def sample_runs(count: int = 24) -> list[Json]:
    """Runs of a check of which the last third is 8 % slower: a step of about 4 ms, one run a day."""
    commits = [hashlib.sha1(f"commit {n}".encode(), usedforsecurity=False).hexdigest() for n in range(count)]
    return [
        {
            "schema": 1, "id": f"{n:032x}", "check": "nightly", "at": f"2026-11-{1 + n:02}T03:00:00Z",
            "commit": commits[n], "branch": "main", "parents": commits[max(0, n - 1) : n],
            "dirty": False,
            "environment": {
                "device": "NVIDIA H200", "software": {"torch": "2.13.0", "triton": "3.7.1"}, "method": "",
            },
            "measures": [
                {
                    "subject": "step", "metric": "time", "unit": "µs", "samples": 10, "spread": 0.004,
                    "value": 4000.0 * (1.08 if n >= 2 * count // 3 else 1.0) * (1 + 0.003 * ((n * 37) % 7 - 3) / 3),
                }
            ],
        }
        for n in range(count)
    ]  # fmt: skip


def furnish(url: str) -> dict[str, list[str]]:
    """Put something of each kind on a server: ids by the name of the parameter that takes them.

    Validations are records of the Archive, which every server has: nothing is measured.
    """
    with httpx.Client(base_url=f"{url}/api/v1", timeout=60) as client:
        data = (ROOT / "app" / "examples" / "handrolled_blocks.json.gz").read_bytes()
        trace = _good(client.post("/traces", params={"name": "blocks"}, content=data))
        asked = {"regions": [REGION], "assertions": {"compile": "warn"}}
        check = _good(client.post("/checks", json=asked))
        for job_id in (trace["id"], check["id"]):
            deadline = time.monotonic() + 180
            while (job := _good(client.get(f"/jobs/{job_id}")))["state"] != "done":
                if job["state"] in ("failed", "cancelled") or time.monotonic() > deadline:
                    raise RuntimeError(f"a job did not end well: {job}")
                time.sleep(0.2)
        _good(client.post("/history", json={"entries": sample_runs()}))
        series = [one["id"] for one in _good(client.get("/history"))["items"]]
        links = [_good(client.post("/links", json={"region": REGION}))["id"]]
        regions = [r["id"] for r in _good(client.get(f"/traces/{trace['id']}"))["regions"]]
    records = [str(record["id"]) for record in record_store.records()][:3]
    return {
        "trace_id": [trace["id"]], "region_id": regions[:5], "validation_id": records, "check_id": [check["id"]],
        "job_id": [trace["id"], check["id"]], "link_id": links,
        "series_id": series,
    }  # fmt: skip


def _good(response: httpx.Response) -> Json:
    response.raise_for_status()
    body: Json = response.json()
    return body


def run(cases: int, folder: Path, oracle: str = "off", phases: str = "examples,coverage,fuzzing") -> Json:
    """Furnish a server, ask it; schemathesis' report, with what it printed as `said`. cases: about so many in all."""
    known, report, log = folder / "furnished.json", folder / "report.json", folder / "schemathesis.log"
    with serving(folder / "data", {**TIGHT, "ORACLE": oracle}) as served:
        url = served.url
        known.write_text(json.dumps(furnish(url)))
        count = max(1, cases // len(httpx.get(f"{url}/openapi.json").json()["paths"]))
        environment = {
            **os.environ,
            "SCHEMATHESIS_HOOKS": "tests.app.web.api.schemathesis_hooks",
            "FURNISHED": str(known),
            "PYTHONPATH": str(ROOT),
        }
        command = [
            sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "run",
            f"{url}/openapi.json", "--checks", "all", "--exclude-checks", ",".join(EXCLUDED), "-n", str(count),
            "--phases", phases, "--continue-on-failure", "--generation-database", "none", "--request-timeout", "60",
            "--suppress-health-check", "all", "--warnings", "off", "--no-color",
            "--report", "json", "--report-json-path", str(report),
        ]  # fmt: skip
        with log.open("wb") as file:
            subprocess.run(command, cwd=folder, env=environment, stdout=file, stderr=file, check=False)
    if not report.exists():
        raise RuntimeError(f"schemathesis did not run: {log.read_text()[-3000:]}")
    figures: Json = json.loads(report.read_text())
    return {**figures, "said": log.read_text()}


def summary(report: Json) -> Json:
    """What is recorded of a run."""
    return {
        **stamp(VERSIONS),
        "seed": report["seed"],
        "seconds": round(report["running_time"], 1),
        "cases": report["test_cases"]["generated"],
        "operations": report["operations"]["tested"],
        "operations_described": report["operations"]["total"],
        "without_checks": report["test_cases"]["without_checks"],
        "errored": report["test_cases"]["errored"],
        "failures": {f["title"]: f["count"] for f in report["failures"]},
        "errors": {e["title"]: e["count"] for e in report["errors"]},
    }


def main() -> int:
    """0 where every answer was as documented."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000, help="about so many (default: 1000)")
    parser.add_argument("--oracle", choices=("auto", "off"), default="off", help="whether Inductor is asked")
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.relative_to(ROOT)}")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = run(args.cases, Path(folder), args.oracle)
    figures = summary(report)
    if figures["failures"] or figures["errors"]:
        print(report["said"])
    print(json.dumps(figures, indent=1))
    if args.record:
        RECORD.write_text(json.dumps(figures, indent=1) + "\n")
    return int(bool(figures["failures"] or figures["errors"]))


if __name__ == "__main__":
    raise SystemExit(main())
