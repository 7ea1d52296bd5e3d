"""tritonworthy accuracy: advice, given today without the Archive, held against what the Archive measured."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.accuracy import table

if TYPE_CHECKING:
    from app.accuracy.evaluation import Oracle

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "tests" / "records" / "kernels-h200.json"
DOCS = ROOT / "docs"

OK, FAILED = 0, 2


def add_accuracy(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Hook `accuracy` into the command line."""
    accuracy = commands.add_parser(
        "accuracy",
        help="how good the advice is: today's rule against the Archive's measurements",
        description="Puts every record of the Archive to today's rule, which does not see it, and compares the advice"
        " with what was measured: regret, right or wrong, predicted against measured speed-up; and other policies.",
    )
    accuracy.add_argument("--records", type=Path, metavar="DIR", help="this folder's records, instead of the shipped")
    accuracy.add_argument("--json", action="store_true", help="print the figures as JSON")
    accuracy.add_argument(
        "--oracle",
        choices=("auto", "off"),
        default="off",
        help="ask Inductor what torch.compile would make of each region: seconds for each. Not with --write",
    )
    accuracy.add_argument(
        "--write", action="store_true", help="write docs/accuracy.md, its charts and the figures of /accuracy"
    )
    accuracy.add_argument("--worse", action="store_true", help="with --write: publish figures that got worse as well")
    accuracy.set_defaults(run=_accuracy)


def _accuracy(arguments: argparse.Namespace) -> int:
    from app.accuracy import page
    from app.accuracy.case import cases
    from app.accuracy.figures import COMMITTED, committed, figures, text_of, worse
    from app.archive import shelf

    if arguments.records is not None and not arguments.records.is_dir():
        print(f"{arguments.records}: no such folder", file=sys.stderr)
        return FAILED
    if arguments.write and (arguments.records is not None or arguments.oracle != "off"):
        print("--write is for the shipped records, without the oracle: that is what is published", file=sys.stderr)
        return FAILED
    records = shelf.records(arguments.records or shelf.FOLDER)
    if not cases(records):
        print("no record has two timed candidates: there is nothing to compare", file=sys.stderr)
        return FAILED
    kernels = json.loads(KERNELS.read_text()) if KERNELS.is_file() else None
    with _oracle(arguments.oracle) as oracle:
        told = figures(records, kernels, oracle=oracle)
    if arguments.write:
        fallen = worse(told, committed()) if COMMITTED.is_file() else []
        if fallen and not arguments.worse:
            print("\n".join([*fallen, "The advice got worse: mend it, or publish that with --worse"]), file=sys.stderr)
            return FAILED
        COMMITTED.write_text(text_of(told), encoding="utf-8")
        for name, body in page.files(told).items():
            (DOCS / name).write_text(body, encoding="utf-8")
    print(text_of(told) if arguments.json else as_text(told))
    return OK


@contextmanager
def _oracle(wanted: str) -> Iterator[Oracle | None]:
    """What `figures` asks; None where it is off."""
    if wanted == "off":
        yield None
        return
    from app.accuracy.question import Question
    from app.evaluate import NOTHING_FORESEEN, Foreseen
    from app.service import foresee
    from profiler.oracle.process import Oracle as Process
    from profiler.oracle.process import UnansweredError

    process = Process()
    process.start()

    def ask(question: Question) -> Foreseen:
        try:
            return foresee(process, question.prepared)
        except UnansweredError as fault:
            print(f"{question.case.name}: {fault}", file=sys.stderr)
            return NOTHING_FORESEEN

    try:
        yield ask
    finally:
        process.stop()


def as_text(told: dict[str, Any]) -> str:
    """All tables, for a shell."""
    parts = [
        ("The advice", table.advice(told)),
        ("Beside other policies", table.policies(told)),
        ("Region by region", table.regions(told)),
        ("What the sources claim", table.claims(told)),
    ]
    return "\n\n".join(f"{title}\n{table.plain(rows)}" for title, rows in parts)
