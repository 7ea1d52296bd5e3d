"""docs/advice-review.md: the largest pieces of advice for every recorded trace, each judged from the trace alone.

    python -m tools.docs.advice_review --ask FILE.json   # what is advised today, to be judged
    python -m tools.docs.advice_review                   # the page, from tests/records/advice-review.json

The record has, for each trace, what a reader of the trace expected before the advice was read, and a judgement of each
piece of advice: right, debatable or wrong, with the reason. A test holds the record to what is advised today: advice
that changes is to be judged again.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.objects.trace import TraceBody
from app.trace_report.actions.listed import saving_words, with_alternatives
from app.trace_report.report import report
from kernels import host
from profiler.trace.errors import TraceError
from tools.docs.measured_page import RECORDS, ROOT

Json = dict[str, Any]

TRACES = ROOT / "tests" / "data" / "traces"
RECORD = RECORDS / "advice-review.json"
PAGE = ROOT / "docs" / "advice-review.md"
LARGEST = 3
JUDGED = ("right", "debatable", "wrong")
HEAD = """# The advice, judged trace by trace

Written by `python -m tools.docs.advice_review` from `tests/records/advice-review.json`. For every recorded trace the
{largest} largest pieces of advice: the first of the step's actions, and where these are fewer the regions that take
most of the step. What is expected was written down from the trace alone, before the advice was read: by one reader, on
{date}, who had the events and no other figure. Then each piece was judged against it. Nothing was measured by
following the advice; what was is in [traces](traces.md) and [measured on an H100](measured-h100.md).

The table of `tests/data/traces/FINDINGS.md` names regions with their tool. Of these regions some have an action for the
whole step in front of the table's tool, by what each is predicted to save: CUDA graphs before attention by hand of the
llama with eager attention, before attention by hand of both T5, before routing, masked fill and expert combine of
Mixtral and before the depthwise convolution of ConvNeXt, whose steps wait for launches; torch.compile of the whole
model before gather, multiply and scatter-add and before segment softmax by hand of the graph networks. Every other
region of the table has the table's tool first, or a record that measured another
(`tests/app/trace_report/findings.py`).

{counts}
"""


def trace_files() -> list[Path]:
    """The recorded traces."""
    files = [*TRACES.glob("*.json.gz"), *TRACES.glob("*.json")]
    return sorted(p for p in files if ".et." not in p.name and p.name != "expected.json")


def recorded_host() -> host.Host:
    """A host with torch and Triton and no other package, as the traces' table has it."""
    return host.Host("NVIDIA H200", (9, 0), {}, frozenset({"torch", "triton"}), host.probe_host().features)


def advised(path: Path) -> list[Json]:
    """The largest pieces of advice of one trace: name of the piece, what it says, what it saves, its call."""
    try:
        trace = report(path, path.name)
    except TraceError as error:
        return [{"piece": "error", "says": error.message, "saves": "", "call": error.remedy[:400]}]
    return largest(trace)


def largest(trace: TraceBody) -> list[Json]:
    """The first actions of a trace; where they are fewer than LARGEST, then the longest regions without one of them."""
    first = [action for action, _ in with_alternatives(trace.get("actions") or [])][:LARGEST]
    pieces = [
        {"piece": a["id"], "says": a["title"], "saves": saving_words(a), "call": a["call"], "because": a["because"]}
        for a in first
    ]
    told = {a["region"] for a in first if a["scope"] == "region"}
    for region in trace["regions"]:
        advice = region["advice"]
        if len(pieces) >= LARGEST or advice is None or region["key"] in told:
            continue
        pieces.append({
            "piece": region["key"], "says": f"{region['name']}: {advice['headline']}",
            "saves": f"{region['share_of_step'] or 0.0:.1%} of the step", "call": advice["call"],
            "because": advice["action"],
        })  # fmt: skip
    return pieces


def ask() -> Json:
    """What is advised today for every trace."""
    host.assume(recorded_host())
    return {path.name: advised(path) for path in trace_files()}


def counts(record: Mapping[str, Json]) -> Counter[str]:
    """Pieces by judgement."""
    return Counter(piece["judged"] for trace in record.values() for piece in trace["advice"])


def page(record: Json) -> str:
    """The whole document."""
    by_judgement = counts(record["traces"])
    total = sum(by_judgement.values())
    words = ", ".join(f"{by_judgement[name]} {name} ({by_judgement[name] / total:.1%})" for name in JUDGED)
    first = record["first"]
    told = (
        f"Of {total} pieces of advice: {words}. The same reading gave first "
        f"{first['right']} right, {first['debatable']} debatable and {first['wrong']} wrong; both are in-sample: the "
        f"expectations were read while the advice was mended, and {first['judged_again']} times a piece that changed "
        "was judged again. What a reader expected is of the step as it was recorded; what the advice saves is of the "
        "step without the profiler ([measured](measured.md#what-the-profiler-takes)), and was judged so."
    )
    head = HEAD.format(largest=LARGEST, date=record["date"], counts=told)
    return "\n".join(
        [head, *(line for name in sorted(record["traces"]) for line in _trace(name, record["traces"][name]))]
    )


def _trace(name: str, trace: Json) -> Iterator[str]:
    yield f"## {name.removesuffix('.gz').removesuffix('.json')}\n"
    yield f"Expected: {_cell(trace['expected'])}\n"
    yield "| advice | saves | judged | because |"
    yield "|-|-|-|-|"
    for piece in trace["advice"]:
        yield f"| {_cell(piece['says'])} | {_cell(piece['saves'])} | {piece['judged']} | {_cell(piece['reason'])} |"
    yield ""


def _cell(text: str) -> str:
    return " ".join(str(text).replace("|", "/").split())


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ask", type=Path, metavar="FILE", help="write what is advised today, to be judged")
    parsed = parser.parse_args(arguments)
    if parsed.ask is not None:
        parsed.ask.write_text(json.dumps(ask(), indent=1) + "\n", encoding="utf-8")
        return
    PAGE.write_text(page(json.loads(RECORD.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
