"""What environments answer to the contract of tests/data/contracts/upgrade, whose lock was accepted under torch 2.11.0.

    python -m tools.records.contracts ENV [ENV ...] --record tests/records/contracts.json

ENV: an interpreter, or a virtual environment's folder. Needs no GPU. The lock was written by
`tritonworthy check --accept --environment ENV` in that folder.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from pathlib import Path
from typing import TypedDict, cast

from app import cli
from app.objects.check import Report

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLE = ROOT / "tests" / "data" / "contracts" / "upgrade"


class Answer(TypedDict):
    """One environment's. messages: of the findings."""

    torch: str
    triton: str
    exit_code: int
    kernels: int | None
    messages: list[str]


def answer_of(environment: str) -> Answer:
    """What a check says of the example in this environment."""
    printed = io.StringIO()
    config = str(EXAMPLE / "tritonworthy.toml")
    with contextlib.redirect_stdout(printed):
        status = cli.main(["check", "--config", config, "--environment", environment, "--format", "json"])
    report = cast("Report", json.loads(printed.getvalue()))
    (row,) = report["contracts"]
    return {
        "torch": row["torch"],
        "triton": row["triton"],
        "exit_code": status,
        "kernels": row["kernels"],
        "messages": [finding["message"] for finding in report["errors"]],
    }


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environments", nargs="+", metavar="ENV")
    parser.add_argument("--record", type=Path, required=True)
    arguments = parser.parse_args()
    answers = [answer_of(environment) for environment in arguments.environments]
    command = "python -m tools.records.contracts ENV ... --record tests/records/contracts.json"
    arguments.record.write_text(json.dumps({"made_by": command, "answers": answers}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
