"""CSV that a spreadsheet reads as it was meant, and runs nothing of."""

from __future__ import annotations

import csv
import io

from app.web.server.csv_response import csv_response


def test_cells_come_back_as_they_were() -> None:
    rows = [("a,b", 1.5, None), ('say "x"', -2, "two\nlines"), ("é", 0, "")]
    answer = csv_response("name", ("text", "number", "more"), rows)
    read = list(csv.reader(io.StringIO(bytes(answer.body).decode())))
    assert read[0] == ["text", "number", "more"]
    assert read[1:] == [["a,b", "1.5", ""], ['say "x"', "-2", "two\nlines"], ["é", "0", ""]]
    assert answer.headers["content-disposition"] == 'attachment; filename="name.csv"'


def test_a_text_that_would_be_a_formula_is_none_and_a_negative_number_stays_one() -> None:
    answer = csv_response("name", ("c",), [("=1+1",), ("+x",), ("-x",), ("@x",), (-1,)])
    read = [line[0] for line in csv.reader(io.StringIO(bytes(answer.body).decode()))][1:]
    assert read == ["'=1+1", "'+x", "'-x", "'@x", "-1"]
