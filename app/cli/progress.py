"""How far a command is, on stderr: a bar where that is a terminal, else a line for each step."""

from __future__ import annotations

import sys

from app.objects.trace import OracleProgress

BAR_CHARS = 24


def progress_line(progress: OracleProgress) -> str:
    """How many of a trace's regions Inductor has been asked about."""
    ended, asked = progress["answered"] + progress["failed"], progress["asked"]
    return f"Inductor asked: {ended} of {asked} region{'s' * (asked != 1)}"


def progress_bar(progress: OracleProgress) -> str:
    """The same, with a bar in front."""
    ended = progress["answered"] + progress["failed"]
    full = BAR_CHARS * ended // max(1, progress["asked"])
    return f"[{'#' * full}{'-' * (BAR_CHARS - full)}] {progress_line(progress)}"


def show_oracle_progress(progress: OracleProgress) -> None:
    """On stderr; nothing where nobody is asked."""
    if not progress["asked"]:
        return
    if sys.stderr.isatty():
        print(f"\r{progress_bar(progress)}", end="\n" if progress["done"] else "", file=sys.stderr, flush=True)
    else:
        print(progress_line(progress), file=sys.stderr, flush=True)
