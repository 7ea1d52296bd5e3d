"""docs/errors.md lists every code that the API can answer with, and no other."""

from __future__ import annotations

import re

from app.jobs.exit_reason import ExitReason
from app.storage.job_table import LOST
from app.web.server.problems import CODES
from tests.conftest import ROOT

IN_CODE = re.compile(
    r"""Problem\(\s*\d{3},\s*"([a-z-]+)"|(?:Trace|Lost)Error\(\s*"([a-z-]+)"|^\s+code = "([a-z-]+)"$""", re.M
)

NEVER_ANSWERED = {"bad-request", "forbidden", "unavailable"}
"""For statuses that Starlette could raise and nothing here does."""


def test_codes_and_exit_reasons_are_documented() -> None:
    documented = set(re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "docs" / "errors.md").read_text(), re.M))
    found = {LOST["code"], *CODES.values(), *(r.value for r in ExitReason if r is not ExitReason.OK)} - NEVER_ANSWERED
    for folder in ("app", "profiler/trace"):
        for path in (ROOT / folder).rglob("*.py"):
            for groups in IN_CODE.findall(path.read_text(encoding="utf-8")):
                found.add(next(filter(None, groups)))
    assert documented == found
