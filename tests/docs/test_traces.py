"""docs/traces.md is what the code says of the recorded traces today."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kernels.host import Host
from tests.app.trace_report.reports import recording_host, reported
from tests.conftest import DATA
from tools.docs import trace_table

TRACES = DATA / "traces"


def test_the_page_is_up_to_date(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As the command says it, with the reports that other tests have made as well."""
    hosts: list[Host] = []

    def report_as_assumed(path: Path, name: str) -> dict[str, object]:
        assert (path, hosts) == (TRACES / name, [recording_host()])
        return reported(name)

    monkeypatch.setattr(trace_table, "assume", hosts.append)
    monkeypatch.setattr(trace_table, "report", report_as_assumed)
    monkeypatch.setattr(sys, "argv", ["trace_table", "--check"])
    assert trace_table.main() == 0, capsys.readouterr().out
    monkeypatch.setattr(trace_table, "TOP", trace_table.TOP + 1)
    monkeypatch.setattr(trace_table, "read", lambda: {name: reported(name) for name in trace_table.names()})
    assert trace_table.main() == 1
    assert "is stale: python -m tools.docs.trace_table" in capsys.readouterr().out


def test_every_trace_of_the_manifests_first_table_is_on_it() -> None:
    there = {p.name for p in TRACES.glob("*.json.gz") if ".et." not in p.name}
    elsewhere = ("hta_", "tl_", "kineto_", "param_")
    assert set(trace_table.names()) == {name for name in there if not name.startswith(elsewhere)}
    page = trace_table.PAGE.read_text()
    for name in trace_table.names():
        assert f"\n## {name.removesuffix('.json.gz')}\n" in page
