"""docs/store.md says what the record says."""

from __future__ import annotations

import json

from tests.conftest import ROOT


def test_the_figures_of_the_fleet_are_the_records() -> None:
    found = json.loads((ROOT / "tests" / "records" / "fleet-jobs.json").read_text())
    text = (ROOT / "docs" / "store.md").read_text(encoding="utf-8")
    rows = {}
    for line in text.splitlines():
        name, _, value = line.strip("| ").partition(" | ")
        rows[name] = value

    def range_s(name: str) -> str:
        return f"{found[name]['median']} s, {found[name]['most']} s"

    wanted = {
        "jobs accepted": found["accepted"],
        "workers killed, servers killed": f"{found['kills']['worker']}, {found['kills']['web']}",
        "done": found["done"],
        "failed, both attempts killed": found["failed"],
        "cancelled, as asked": found["cancelled"],
        "second attempts": found["attempts"]["2"],
        "submissions without an answer (the server was down, or died); of these taken after all": (
            f"{found['unanswered_submissions']}; {found['of_these_taken']}"
        ),
        "events followed across servers to the end, without a gap": found["streams_followed"],
        "last event after its commit, median and most": range_s("last_event_late_s"),
        "cancelled by the other server, median and most": range_s("cancelled_by_another_server_s"),
        "waiting job taken by the other server, median and most": range_s("taken_by_another_server_s"),
    }
    assert {name: rows.get(name) for name in wanted} == {name: str(value) for name, value in wanted.items()}
    assert f"PostgreSQL {found['versions']['postgresql']}" in text
    assert found["failed"] == sum(found["errors"].values())
