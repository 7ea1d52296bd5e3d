"""The runs of a history from the report of a check, one for each environment in which it measured or counted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from app.history.model import Entry, Environment, Measure
from app.history.to_json import entry_id, utc
from app.objects.check import ContractRow, Report
from app.objects.history import HistoryMeasure


@dataclass(frozen=True, slots=True)
class RunContext:
    """Of what a check was made, which its report does not say. base: the branch that this one is to be merged into.

    software: versions with which the traces were recorded, and this tool's. commits: git's, oldest first, where they
    are known.
    """

    at: str
    commit: str = ""
    branch: str = ""
    base: str = ""
    software: Mapping[str, str] = field(default_factory=dict)
    method: str = ""
    parents: tuple[str, ...] = ()
    dirty: bool = False
    commits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one trace measured, on which device and how it was recorded."""

    device: str
    method: str
    measures: Sequence[HistoryMeasure]


TOOL = "tritonworthy"
STEP_TIME = "step time"
"""The metric that this tool's version cannot change: it is as the trace has it."""
ORACLE = "oracle"
"""The method of what was counted in what torch.compile would run: the same without a GPU, and on any."""
CONTRACT_METRICS = (("kernels", "kernels", "kernels"), ("bytes_over_minimum", "bytes over the minimum", "bytes/byte"))
"""(key of a contract's row, metric, unit)."""


def entries_from(report: Report, run: RunContext) -> list[Entry]:
    """The runs: what the report's traces measured and its contracts counted, each with its own environment."""
    recorded = [
        Recorded(subject["device"] or "", subject.get("method", ""), subject.get("measures", ()))
        for subject in report["subjects"]
    ]
    return entries_made(report["name"], recorded, report.get("contracts") or (), run)


def entries_made(
    check: str, recorded: Sequence[Recorded], contracts: Sequence[ContractRow], run: RunContext
) -> list[Entry]:  # fmt: skip
    """`entries_from` the parts of a report."""
    kinds: dict[str, tuple[Environment, dict[tuple[str, str], Measure]]] = {}
    for environment, measure in (*_timed(recorded, run), *_counted(contracts, run)):
        name = repr((environment.device, sorted(environment.software.items()), environment.method))
        kinds.setdefault(name, (environment, {}))[1].setdefault((measure.subject, measure.metric), measure)
    entries = [
        Entry(check, utc(run.at), run.commit, run.branch, environment, tuple(of.values()), "", run.parents, run.dirty)
        for environment, of in kinds.values()
    ]
    return [replace(entry, id=entry_id(entry)) for entry in entries]


def contract_subject(name: str, of: str) -> str:
    """The name of what a contract counted: by what it is about, for a pattern is about several."""
    return f"contract {name}: {of}"


def _timed(recorded: Sequence[Recorded], run: RunContext) -> Iterator[tuple[Environment, Measure]]:
    """A method that was named stands before what the trace tells. Where regions begin and end is this tool's."""
    step_software = {name: version for name, version in run.software.items() if name != TOOL}
    for one in recorded:
        method = "; ".join(dict.fromkeys(part for part in (run.method, one.method) if part))
        for m in one.measures:
            software = step_software if m["metric"] == STEP_TIME else dict(run.software)
            measure = Measure(m["subject"], m["metric"], m["unit"], m["value"], m["samples"], m["spread"])
            yield Environment(one.device, software, method), measure


def _counted(contracts: Sequence[ContractRow], run: RunContext) -> Iterator[tuple[Environment, Measure]]:
    """By the torch and the device that each contract was asked for: a trace's own have no part in it."""
    for row in contracts:
        software = {"torch": row["torch"], "triton": row["triton"], TOOL: run.software.get(TOOL, "")}
        known = {name: version for name, version in software.items() if version}
        environment = Environment(row["device"] or "", known, ORACLE)
        for key, metric, unit in CONTRACT_METRICS:
            value = row.get(key)
            if isinstance(value, int | float) and math.isfinite(value) and value > 0:
                yield environment, Measure(contract_subject(row["name"], row["of"]), metric, unit, float(value))
