"""The page of what is advised and launched: as its record says, and its record as the rule says today."""

from __future__ import annotations

import pytest

from app.accuracy.corpus.programs import DEVELOPMENT, FIT, load_programs
from tools.corpus.unproven import (
    MENDED,
    PAGE,
    Before,
    Row,
    Run,
    gained,
    launched_section,
    page,
    read_before,
    read_rows,
    reason_of,
    row_of,
    runs_of,
)

AGAIN = "python -m tools.corpus.unproven --write"
FEW = 3
RAN = Run("ok", "", {"triton:generated": 10.0, "compile": 8.0, "eager": 20.0})


def test_the_page_is_its_records() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(read_rows(), read_before(), runs_of(read_rows())), AGAIN


def test_the_record_has_every_program_that_may_be_looked_at_once() -> None:
    names = [p.name for p in load_programs(FIT, DEVELOPMENT)]
    assert [r.program for r in read_rows()] == names, AGAIN
    assert list(read_before().offered) == names


def _some(rows: list[Row]) -> list[Row]:
    """The first few of each kind, in the record's order."""
    kinds = [(r.advised.startswith("triton:"), r.launched, bool(r.lacking)) for r in rows]
    return [r for n, r in enumerate(rows) if kinds[:n].count(kinds[n]) < FEW]


@pytest.mark.parametrize("row", _some(read_rows()), ids=lambda row: row.program)
def test_some_programs_are_advised_as_the_record_says(row: Row) -> None:
    program = next(p for p in load_programs(FIT, DEVELOPMENT) if p.name == row.program)
    assert row_of(program) == row, AGAIN


def test_alike_reasons_are_counted_together() -> None:
    assert reason_of("nothing fuses mul_3 with add_12 over 4,096 rows") == "nothing fuses … with … over N rows"
    assert reason_of("aten.cumsum.default is not in the generator's table") == reason_of(
        "aten.cumsum.default is not in the generator's table"
    )


def test_a_kernel_that_is_not_offered_counts_as_unproven() -> None:
    rows = [
        Row("a", "norm", "forward", "triton:generated", True),
        Row("b", "norm", "forward", "triton:custom", False, "aten.x is not in the generator's table"),
        Row("c", "norm", "training", "compile", False),
    ]
    text = page(rows, Before("0123abc", "2026-11-25", {"a": (), "b": (), "c": ()}), {"a": RAN})
    assert "| norm | forward | 2 | 2 | 1 | 1 |" in text
    assert "| norm | training | 1 | 0 | 0 | 0 |" in text
    assert "| b | norm | forward | aten.x is not in the generator's table |" in text
    assert "- Of these 1 have a kernel that can be launched: `triton:generated` 1." in text


def test_a_family_gains_what_had_no_kernel_and_loses_what_has_none_now() -> None:
    rows = [
        Row("a", "norm", "forward", "compile", False, offered=("triton:generated", "triton:layer_norm")),
        Row("b", "norm", "forward", "compile", False, offered=("triton:generated",)),
        Row("c", "norm", "forward", "compile", False),
        Row("d", "scan", "training", "compile", False),
    ]
    had = {"a": (), "b": ("triton:generated",), "c": ("triton:generated",), "d": ()}
    lines = gained(rows, Before("0123abc", "2026-11-25", had))
    assert "| norm | forward | 3 | 2 | 2 | 1 | 1 |" in lines
    assert "| scan | training | 1 | 0 | 0 | 0 | 0 |" in lines
    assert "| all |  | 4 | 2 | 2 | 1 | 1 |" in lines
    assert "`0123abc` (2026-11-25" in "".join(lines)


def test_a_kernel_that_was_wrong_or_never_ran_is_told_and_not_counted() -> None:
    rows = [Row(n, "norm", "forward", "triton:generated", True) for n in "abc"]
    rows.append(Row("d", "norm", "forward", "triton:custom", False))
    text = "\n".join(launched_section(rows, {"a": RAN, "b": Run("mismatch", "output 0", {"eager": 9.0})}))
    assert "Of the 3 that can be launched, 1 ran and were right" in text
    assert "median 1.25, at most 1 in 0 of 1, above 1.1 in 1" in text
    assert "1 were timed next to eager" in text, "none of them next to max-autotune"
    assert "| a | `triton:generated` | 10.0 | `compile` | 8.0 | 1.25 |" in text
    assert "| b | `triton:generated` | mismatch: output 0 |  |" in text
    assert "| c | `triton:generated` | not run |  |" in text
    assert "| d |" not in text


def test_most_advised_kernels_were_launched() -> None:
    runs = runs_of(read_rows())
    named = [r for r in read_rows() if r.launched and r.advised.startswith("triton:")]
    assert set(runs) <= {r.program for r in named}
    assert sum(run.status == "ok" for run in runs.values()) >= 0.85 * len(named)
    assert not set(MENDED) & {name for name, run in runs.items() if run.status == "ok"}, "it has run since"
    assert all(runs[r.program].times_us[r.advised] > 0 for r in named if runs.get(r.program, RAN).status == "ok"
               and r.program in runs)  # fmt: skip
