"""tritonworthy accuracy: advice, given today without the Archive, held against what was measured."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app.accuracy import table
from app.accuracy.corpus.oracle_process import oracle_process
from app.cli.corpus_accuracy import BLIND_REFUSED, add_blind, show_third, write_development, write_docs
from app.cli.options import given_path
from app.objects.accuracy import AccuracyFigures, FittedRates, KernelTable
from app.objects.record import ArchiveRecord

if TYPE_CHECKING:
    from app.accuracy.question import Question
    from app.accuracy.samples import Samples
    from app.estimate.rates import Rates

ROOT = Path(__file__).resolve().parent.parent.parent
KERNELS = ROOT / "tests" / "records" / "kernels-h200.json"

OK, FAILED = 0, 2


def add_accuracy(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Hook `accuracy` into the command line."""
    accuracy = commands.add_parser(
        "accuracy",
        help="how good the advice is: today's rule against the Archive's measurements",
        description="Puts every record of the Archive to today's rule, which does not see it, and compares the advice"
        " with what was measured: regret, right or wrong, predicted against measured speed-up; and other policies.",
    )
    accuracy.add_argument(
        "--records", type=given_path, metavar="DIR", help="this folder's records, instead of the shipped"
    )
    accuracy.add_argument(
        "--corpus",
        choices=("fit", "development", "blind"),
        help="what was measured of this third of the corpus, instead of the shipped records; blind is refused: see the"
        " part of that name",
    )
    accuracy.add_argument("--json", action="store_true", help="print the figures as JSON")
    accuracy.add_argument(
        "--oracle",
        choices=("auto", "off"),
        default="off",
        help="ask Inductor what torch.compile would make of each region: seconds for each. Not with --write",
    )
    basis = accuracy.add_mutually_exclusive_group()
    basis.add_argument(
        "--without-atlas",
        action="store_true",
        help="predict by the rates alone, without what the device's atlas knows. Not with --write",
    )
    basis.add_argument(
        "--scaled-atlas",
        action="store_true",
        help="predict by another device's atlas, scaled, as on a device that nobody measured. Not with --write",
    )
    accuracy.add_argument(
        "--write",
        action="store_true",
        help="write docs/accuracy.md, its charts and the figures of /accuracy; with --corpus development that third's"
        " figures by every way of predicting",
    )
    accuracy.add_argument("--worse", action="store_true", help="with --write: publish figures that got worse as well")
    accuracy.set_defaults(run=_accuracy)
    parts = accuracy.add_subparsers(title="parts", metavar="")
    add_blind(parts)
    fit = parts.add_parser(
        "fit",
        help="fit the rates of the estimate anew, from the Archive's half that may be tuned on and the kernels' table",
        description="Writes app/estimate/rates.json, the rates that every prediction multiplies with: their version,"
        " what they were fitted on, what they leave over by family. Needs no GPU. The same sources give the same file.",
    )
    fit.add_argument("--check", action="store_true", help="write nothing; fail where the shipped rates are others")
    fit.set_defaults(run=_fit)


def _accuracy(arguments: argparse.Namespace) -> int:
    """With the shipped atlases: figures are the same on every host, whatever its user measured."""
    from app.atlas import user_atlas

    with user_atlas.using_folder(None):
        return _compare(arguments)


def _compare(arguments: argparse.Namespace) -> int:
    if fault := _fault(arguments):
        print(fault, file=sys.stderr)
        return FAILED
    rates = _rates(arguments)
    if arguments.corpus is not None:
        if arguments.write:
            return write_development(as_json=arguments.json)
        return show_third(arguments.corpus, rates, ask=arguments.oracle == "auto", as_json=arguments.json)
    return _archive(arguments, rates)


def _fault(arguments: argparse.Namespace) -> str:
    """What is wrong with what was asked for; nothing where it goes together."""
    if arguments.corpus == "blind":
        return BLIND_REFUSED
    if arguments.records is not None and not arguments.records.is_dir():
        return f"{arguments.records}: no such folder"
    if arguments.records is not None and arguments.corpus is not None:
        return "--records and --corpus each say which records: give one of them"
    if arguments.write and (_is_other_than_shipped(arguments) or arguments.corpus == "fit"):
        return (
            "--write is for the shipped records, as advice is given: without the oracle, with the atlas;"
            " or for --corpus development, which is written by every way of predicting"
        )
    return ""


def _is_other_than_shipped(arguments: argparse.Namespace) -> bool:
    by_shipped = arguments.oracle == "off" and not arguments.without_atlas and not arguments.scaled_atlas
    return arguments.records is not None or not by_shipped


def _rates(arguments: argparse.Namespace) -> Rates:
    from app.estimate.rates import FITTED, SCALED_ATLAS, WITHOUT_ATLAS

    return WITHOUT_ATLAS if arguments.without_atlas else SCALED_ATLAS if arguments.scaled_atlas else FITTED


def _archive(arguments: argparse.Namespace, rates: Rates) -> int:
    from app.accuracy.case import cases
    from app.accuracy.figures import COMMITTED, figures, load_committed, text_of, worse
    from app.archive import record_store

    records = record_store.records(arguments.records or record_store.FOLDER)
    if not cases(records):
        print("no record has two timed candidates: there is nothing to compare", file=sys.stderr)
        return FAILED
    kernels = json.loads(KERNELS.read_text()) if KERNELS.is_file() else None
    if not _is_other_than_shipped(arguments):
        result = compute_figures(records, kernels)
    else:
        with oracle_process(arguments.oracle == "auto") as oracle:
            result = figures(records, kernels, oracle=oracle, rates=rates)
    if arguments.write:
        fallen = worse(result, load_committed()) if COMMITTED.is_file() else []
        if fallen and not arguments.worse:
            print("\n".join([*fallen, "The advice got worse: mend it, or publish that with --worse"]), file=sys.stderr)
            return FAILED
        COMMITTED.write_text(text_of(result), encoding="utf-8")
        write_docs()
    print(text_of(result) if arguments.json else as_text(result))
    return OK


def compute_figures(records: Sequence[ArchiveRecord], kernels: KernelTable | None) -> AccuracyFigures:
    """The figures as they are committed: with leave-one-out."""
    from app.accuracy.figures import figures
    from app.accuracy.fitting import LeaveOneOut

    questions, everything = read_samples(records, kernels)
    return figures(records, kernels, fit=LeaveOneOut(everything), asked=questions)


def read_samples(records: Sequence[ArchiveRecord], kernels: KernelTable | None) -> tuple[list[Question], Samples]:
    """The records' questions, and everything that rates are fitted on, of both halves. Ten seconds or so."""
    from app.accuracy.case import cases
    from app.accuracy.fitting import gather_samples
    from app.accuracy.question import question

    questions = [question(case) for case in cases(records)]
    return questions, gather_samples(questions, kernels)


def fit_rates(records: Sequence[ArchiveRecord], kernels: KernelTable | None) -> str:
    """rates.json as these records and the table of kernels make it."""
    from app.accuracy.fitting import rates_json, text_of

    questions, everything = read_samples(records, kernels)
    return text_of(rates_json(questions, kernels, everything))


def _fit(arguments: argparse.Namespace) -> int:
    from app.archive import record_store
    from app.estimate.rates import SHIPPED

    text = fit_rates(
        record_store.records(record_store.FOLDER), json.loads(KERNELS.read_text()) if KERNELS.is_file() else None
    )
    if arguments.check:
        same = SHIPPED.is_file() and SHIPPED.read_text(encoding="utf-8") == text
        print(
            "the shipped rates are the fit's"
            if same
            else "the shipped rates are others: run `tritonworthy accuracy fit`"
        )
        return OK if same else FAILED
    SHIPPED.write_text(text, encoding="utf-8")
    rates: FittedRates = json.loads(text)
    print(f"{SHIPPED}: {rates['version']}\n")
    print(table.plain(table.left_over(rates)))
    return OK


def as_text(result: AccuracyFigures) -> str:
    """All tables, for a shell."""
    parts = [
        ("The advice", table.advice(result)),
        ("Compared with other policies", table.policies(result)),
        ("Region by region", table.regions(result)),
        ("What the sources claim", table.claims(result)),
    ]
    return "\n\n".join(f"{title}\n{table.plain(rows)}" for title, rows in parts)
