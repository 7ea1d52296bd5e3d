"""Which rows of the catalogue a region shows, torch.compile's among them: what the cases of test_rows are held to."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.host import Host
from kernels.libraries.catalogue import COMPILED, ENTRIES, OPERATIONS
from kernels.libraries.covers import asked_of, cover_of, everything
from kernels.libraries.facts import facts_of
from kernels.libraries.model import Cover, Operation
from profiler.region.graph.lowering import Graph
from profiler.region.graph.patterns import match as matches_of


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the catalogue in a region. covers: in the catalogue's order, empty where there is nothing to call."""

    operation: Operation
    covers: tuple[Cover, ...]

    @property
    def covered(self) -> bool:
        return any(c.covers for c in self.covers)


def rows_of(graph: Graph, host: Host) -> list[Row]:
    """Rows that the region shows, each with what covers it on this host; a row once for each part that shows it."""
    asked = asked_of(graph, host)
    rows = []
    for match in everything(graph, matches_of(graph)):
        facts = facts_of(match, graph, host)
        for row in OPERATIONS:
            if match.kind not in row.kinds or any(c.test(facts) is False for c in row.where):
                continue
            entries = [e for e in (*ENTRIES, *COMPILED) if row.row in e.rows and match.kind in e.kinds]
            rows.append(Row(row, tuple(cover_of(e, match, asked) for e in entries)))
    return rows
