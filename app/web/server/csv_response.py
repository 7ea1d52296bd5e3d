"""A table as CSV, to be opened by a spreadsheet or read by a program."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from fastapi.responses import Response

Cell = str | float | int | None

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_response(name: str, header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Response:
    """The rows below a header, as a file of that name; None is an empty cell.

    A text that a spreadsheet would run as a formula gets an apostrophe in front; numbers stay as they are.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows([_cell(value) for value in row] for row in rows)
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


def _cell(value: Cell) -> Cell:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
