"""tritonworthy accuracy of the corpus: thirds that may be looked at, and the one command that reads the blind one."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from app.accuracy.corpus.oracle_process import oracle_process

if TYPE_CHECKING:
    from app.accuracy.corpus.corpus_figures import Prediction
    from app.estimate.rates import Rates
    from app.objects.corpus import CorpusRun, ThirdFigures

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"

OK, FAILED = 0, 2

BLIND_REFUSED = (
    "the blind third is read by `tritonworthy accuracy blind` alone, which puts every look on record: whoever sees its"
    " figures without that can choose by them, and then they are no blind test"
)


class CheckoutError(Exception):
    """No commit can be named for what is measured."""


def add_blind(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Hook `accuracy blind` into the command line."""
    blind = parts.add_parser(
        "blind",
        help="look at the corpus's blind third, on record: date, commit and figures are appended and published",
        description="Holds today's advice, with the oracle, against what was measured of the blind third; once by each"
        " device's own atlas, once by another's scaled. Appends the look to app/accuracy/corpus/looks.json, writes"
        " docs/accuracy.md, and then prints the figures. Seconds for each program.",
    )
    blind.add_argument("--json", action="store_true", help="print the look as JSON")
    blind.set_defaults(run=look_at_blind)


def look_at_blind(arguments: argparse.Namespace) -> int:
    """One look: all figures by both ways of predicting, recorded before they are shown."""
    from app.accuracy.corpus import looks
    from app.accuracy.corpus.corpus_figures import LOOKED_AT, without_programs
    from app.accuracy.corpus.document import as_text
    from app.accuracy.corpus.measured import load_measured
    from app.accuracy.corpus.programs import BLIND

    try:
        commit, changed = commit_of(ROOT)
    except CheckoutError as fault:
        print(f"a look is recorded with the commit that was looked with: {fault}", file=sys.stderr)
        return FAILED
    if not load_measured(BLIND):
        print("no program of the blind third was measured yet", file=sys.stderr)
        return FAILED
    runs = run_all(BLIND, LOOKED_AT)
    if any(d["unanswered"] == d["measured"] for run in runs for d in run["devices"]):
        print("the oracle answered nothing: that would be no look at the advice as it is given", file=sys.stderr)
        return FAILED
    look = looks.append_look([without_programs(r) for r in runs], today(), commit, changed, looks.LOOKS)
    write_docs()
    print(json.dumps(look, indent=1) if arguments.json else "\n\n".join(as_text(f) for f in look["figures"]))
    return OK


def show_third(third: str, rates: Rates, *, ask: bool, as_json: bool) -> int:
    """The figures of a third that may be looked at, by one way of predicting, with its programs."""
    from app.accuracy.corpus import tables
    from app.accuracy.corpus.corpus_figures import prediction_of
    from app.accuracy.corpus.document import as_text
    from app.accuracy.table import plain

    (run,) = run_all(third, [prediction_of(rates, ask)])
    print(json.dumps(run, indent=1) if as_json else f"{as_text(run)}\n\n{plain(tables.programs(run))}")
    return OK


def write_development(*, as_json: bool) -> int:
    """Every way of predicting on the development third, for docs/accuracy.md and the page."""
    from app.accuracy.corpus import looks
    from app.accuracy.corpus.corpus_figures import COMPARED, without_programs
    from app.accuracy.corpus.document import as_text
    from app.accuracy.corpus.programs import DEVELOPMENT

    try:
        commit, changed = commit_of(ROOT)
    except CheckoutError as fault:
        print(f"the figures are written with the commit that made them: {fault}", file=sys.stderr)
        return FAILED
    figures = [without_programs(r) for r in run_all(DEVELOPMENT, COMPARED)]
    body: ThirdFigures = {"date": today(), "commit": commit, "changed": changed, "figures": figures}
    looks.write_json(looks.DEVELOPED, body)
    write_docs()
    print(json.dumps(body, indent=1) if as_json else "\n\n".join(as_text(f) for f in figures))
    return OK


def run_all(third: str, predictions: Sequence[Prediction]) -> list[CorpusRun]:
    """The third by each way of predicting; the oracle is asked once a program."""
    from app.accuracy.corpus.corpus_figures import remembering, third_figures

    with oracle_process(any(p.oracle for p in predictions)) as oracle:
        asked = remembering(oracle) if oracle is not None else None
        return [third_figures(third, p, asked, done=_progress(p.name)) for p in predictions]


def _progress(name: str) -> Callable[[int, int], None]:
    def done(number: int, of: int) -> None:
        if number == of or number % 10 == 0:
            print(f"{name}: {number} of {of}", file=sys.stderr)

    return done


def write_docs() -> None:
    """docs/accuracy.md and its charts, of what is committed."""
    from app.accuracy import page
    from app.accuracy.corpus import looks
    from app.accuracy.figures import load_committed

    texts = page.files(load_committed(), looks.load_looks(looks.LOOKS), looks.load_development(looks.DEVELOPED))
    for name, body in texts.items():
        (DOCS / name).write_text(body, encoding="utf-8")


def today() -> str:
    """The day, the same all over the world."""
    return datetime.now(UTC).date().isoformat()


def commit_of(checkout: Path) -> tuple[str, bool]:
    """The checkout's commit, and whether tracked files differ from it. CheckoutError where there is none."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(checkout), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    with suppress(OSError, subprocess.CalledProcessError):
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--untracked-files=no"))
    raise CheckoutError(f"{checkout} is no git checkout with a commit")
