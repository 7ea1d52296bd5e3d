"""tritonworthy report: a trace or a region as one HTML file that opens offline.

Needs jinja2 and plotly, which the other commands do not. Exit status: 0 written; 1 the input is wrong;
2 the file cannot be written.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from app.archive import record_store
from app.cli.advise import advise_region
from app.cli.inputs import is_trace, read_text, read_trace, unpacked_alone
from app.cli.options import given_path, workload_options
from app.objects.region import RegionBody
from app.objects.trace import TraceBody

OK, NOT_WRITTEN = 0, 2


def add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Hook `report` into the command line."""
    report = commands.add_parser(
        "report",
        help="a trace or a region in one HTML file that opens offline",
        description="Writes what the page of a trace or a region shows, charts and numbers, into one file: no script,"
        " nothing to load. A region's has the archive's nearest measurement.",
    )
    report.add_argument(
        "file",
        metavar="FILE",
        help="a trace (.json, .sqlite of nsys, .gz, .zst, or alone in a .zip), a region's text, or - for stdin",
    )
    report.add_argument("--out", type=given_path, metavar="PATH", help="by default the file's name with .html")
    workload_options(report)
    report.set_defaults(run=_report)


def _report(arguments: argparse.Namespace) -> int:
    trace, region = _advise(arguments)
    written = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    from app.web.views.report import region_report, trace_report

    if trace is not None:
        page = trace_report(trace, written=written)
    else:
        assert region is not None
        recorded = record_store.nearest(
            region["text"] or "", record_store.user_folder(), record_store.FOLDER, device=arguments.device
        )
        page = region_report(region, nearest=recorded, written=written)
    name = Path("region" if arguments.file == "-" else arguments.file).name.removesuffix(".gz")
    out = arguments.out or Path(name).with_suffix(".html")
    try:
        out.write_text(page, encoding="utf-8")
    except OSError as error:
        print(f"{out}: {error.strerror}", file=sys.stderr)
        return NOT_WRITTEN
    print(out)
    return OK


def _advise(arguments: argparse.Namespace) -> tuple[TraceBody, None] | tuple[None, RegionBody]:
    """What is written down: a trace with its regions, else one region."""
    from app.trace_report.by_record import by_archive

    if arguments.file != "-" and is_trace(Path(arguments.file)):
        with unpacked_alone([Path(arguments.file)]) as files:
            return by_archive(read_trace(files[0])), None
    return None, advise_region(arguments, read_text(arguments.file))
