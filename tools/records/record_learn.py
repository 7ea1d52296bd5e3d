"""Writes app/examples/ladder/tuned.json: the part of tests/records/kernels-h200.json that /learn shows.

`python -m tools.records.record_learn`. The times are those that the tuner saw, each the median of its own repetitions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from app.web.learning.tuned import RECORDED

RECORD = Path(__file__).resolve().parent.parent.parent / "tests" / "records" / "kernels-h200.json"

CASES = (
    # name in the address, title, operation, case, file of its kernels
    ("softmax", "Softmax over rows", "softmax", "bf16 rows=16384 columns=4096", "softmax.py"),
    ("matmul", "Matrix product", "matmul", "bf16 m=4096 k=4096 n=4096", "matmul.py"),
    ("tail", "Bias, GELU, mask", "bias_activation_mask", "bf16 rows=8192 columns=16384", "bias_activation_mask.py"),
    ("attention", "Attention", "flash_attention", "bf16 b=16 kv=16 s=1024 d=64", "flash_attention.py"),
)


def select_fields(record: dict[str, Any]) -> dict[str, Any]:
    """What /learn needs of the record."""
    rows = {(r["operation"], r["case"]): r for r in record["rows"]}
    cases = []
    runs = set()
    for name, title, operation, case, file in CASES:
        row = rows[operation, case]
        tried = [{"variant": v, "time_us": t} for v, t in row["chosen"]["tried_us"].items()]
        runs.add(row["run"])
        rivals = row["candidates"]
        times = {c: rivals[c]["median_us"] for c in ("eager", "compile", "triton") if c in rivals}
        cases.append(
            {"name": name, "title": title, "operation": operation, "case": case, "file": file,
             "chosen": row["chosen"]["variant"], "tuning_s": row["chosen"]["tuning_s"],
             "tried": tried, "times_us": times}
        )  # fmt: skip
    first = record["runs"][sorted(runs)[0]]
    return {"device": first["device"], "torch": first["torch"], "triton": first["triton"], "dates": sorted(runs),
            "cases": cases}  # fmt: skip


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(select_fields(json.loads(RECORD.read_text())), indent=1) + "\n", encoding="utf-8")
