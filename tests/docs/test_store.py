"""docs/store.md says what the record says."""

from __future__ import annotations

import json

from tests.conftest import ROOT


def test_the_figures_of_the_fleet_are_the_records() -> None:
    answer = json.loads((ROOT / "tests" / "records" / "fleet-jobs.json").read_text())
    text = (ROOT / "docs" / "store.md").read_text(encoding="utf-8")
    rows = {}
    for line in text.splitlines():
        name, _, value = line.strip("| ").partition(" | ")
        rows[name] = value

    def range_s(name: str) -> str:
        return f"{answer[name]['median']} s, {answer[name]['most']} s"

    wanted = {
        "jobs accepted": answer["accepted"],
        "workers killed, servers killed": f"{answer['kills']['worker']}, {answer['kills']['web']}",
        "done": answer["done"],
        "failed, both attempts killed": answer["failed"],
        "cancelled, as asked": answer["cancelled"],
        "second attempts": answer["attempts"]["2"],
        "submissions without an answer (the server was down, or died); of these taken after all": (
            f"{answer['unanswered_submissions']}; {answer['of_these_taken']}"
        ),
        "events followed across servers to the end, without a gap": answer["streams_followed"],
        "last event after its commit, median and most": range_s("last_event_late_s"),
        "cancelled by the other server, median and most": range_s("cancelled_by_another_server_s"),
        "waiting job taken by the other server, median and most": range_s("taken_by_another_server_s"),
    }
    assert {name: rows.get(name) for name in wanted} == {name: str(value) for name, value in wanted.items()}
    assert f"PostgreSQL {answer['versions']['postgresql']}" in text
    assert answer["failed"] == sum(answer["errors"].values())
