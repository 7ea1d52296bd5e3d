"""Other people's measurements: takes their table into the project, and predicts each row anew.

    python -m tools.records.published_measurements --liger all_benchmark_data.csv --commit HASH   the table, then below
    python -m tools.records.published_measurements --tracelens CHECKOUT --commit HASH             the other, then below
    python -m tools.records.published_measurements            predictions for the shipped tables: app/accuracy/published
    python -m tools.records.published_measurements --page     the section of docs/accuracy.md, of the shipped figures

Needs no GPU and no network. Of Liger's CSV the speeds of those kernels are kept that `app.accuracy.published.liger`
can write; how TraceLens's reports are read is in `tools.records.tracelens_reports`.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from app.accuracy.published.compare import compare
from app.accuracy.published.model import COMPARED, TABLES, Comparison, Row, Table, comparisons, table
from app.accuracy.published.section import section
from tools.records.tracelens_reports import read_tracelens

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
TITLE, NEXT = "## Other people's measurements\n", "\n## In-sample: the Archive\n"
KERNELS = frozenset("softmax layer_norm rms_norm cross_entropy relu_squared embedding group_norm kl_div".split())
MODES = frozenset({"forward", "full"})


def main(arguments: list[str]) -> int:
    """Writes what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--liger", type=Path, help="Liger-Kernel's benchmark/data/all_benchmark_data.csv")
    parser.add_argument("--tracelens", type=Path, help="a checkout of AMD-AGI/TraceLens")
    parser.add_argument("--commit", default="", help="of the repository that the table is from")
    parser.add_argument("--page", action="store_true", help="only write the section of docs/accuracy.md anew")
    asked = parser.parse_args(arguments)
    if (asked.liger or asked.tracelens) and len(asked.commit) != 40:
        parser.error("--commit: the 40 digits of the commit that the table is from")
    if asked.liger and asked.tracelens:
        parser.error("--commit is of one repository: --liger and --tracelens one after another")
    if asked.liger:
        _write(TABLES["Liger-Kernel"], read_liger(asked.liger, asked.commit))
    if asked.tracelens:
        _write(TABLES["TraceLens"], read_tracelens(asked.tracelens, asked.commit))
    if not asked.page:
        for source in TABLES:
            _write(COMPARED[source], compare(table(source)))
    PAGE.write_text(placed(PAGE.read_text(encoding="utf-8"), comparisons()), encoding="utf-8")
    return 0


def read_liger(path: Path, commit: str) -> Table:
    """Rows of the kernels that can be compared; of several times for one shape the last published."""
    rows: dict[tuple[str, ...], Row] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            wanted = line["kernel_name"] in KERNELS and line["kernel_operation_mode"] in MODES
            if wanted and line["metric_name"] == "speed" and line["metric_unit"] == "ms":
                config = json.loads(line["extra_benchmark_config_str"])
                key = (line["kernel_name"], line["kernel_provider"], line["kernel_operation_mode"], line["x_value"],
                       line["extra_benchmark_config_str"], line["gpu_name"])  # fmt: skip
                rows[key] = Row(
                    *key[:3], int(float(line["x_value"])), config, line["gpu_name"], 1e3 * float(line["y_value_50"]),
                    line["liger_version"],
                )  # fmt: skip
    return Table("Liger-Kernel", commit, "benchmark/data/all_benchmark_data.csv", "BSD-2-Clause", tuple(rows.values()))


def placed(page: str, compared: Sequence[Comparison]) -> str:
    """The page with the section before the Archive's, in the place of one that is there."""
    before, title, after = page.partition(NEXT)
    if not title:
        raise ValueError("docs/accuracy.md has no section on the Archive")
    before = before.partition(TITLE)[0].rstrip("\n")
    return f"{before}\n\n{section(compared)}{NEXT}{after}"


def _write(path: Path, value: Table | Comparison) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
