"""A run of benchmarks/traces/applied.py into tests/records/applied-h200.json.

`python -m tools.records.applied_record FILE [--date "2026-11-27, third run"]` takes the run's applied.json. A model
that the record has with the same prediction gets the first of what it was advised, as it was listed; one that the
record lacks becomes a row; one that it has with another prediction keeps its row. What was applied beside what is
followed together (`--alternatives`) becomes a row of `separate` of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]

RECORD = Path(__file__).resolve().parent.parent.parent / "tests" / "records" / "applied-h200.json"
FIRST = 3
"""Of the advice, how many pieces a row keeps."""
HOST = ("processor", "processors", "load")


def first_advised(answer: Json) -> list[Json]:
    """Of a model's answer the first pieces of advice, as listed: title, the run's option for it ("" for none), what it
    saves alone and adds to those before it (µs), and the title of what it stands in the place of."""
    titles = {a["id"]: a["title"] for a in answer["actions"]}
    return [
        {"title": a["title"], "option": a["option"], "saves_us": a["saves_us"], "adds_us": a["adds_us"],
         "instead_of": titles.get(a["instead_of"], "")}
        for a in answer["actions"][:FIRST]
    ]  # fmt: skip


def row_of(answer: Json, date: str) -> Json:
    """The record's row for a model whose options that are followed together were timed. Raises KeyError elsewhere."""
    eager, followed = answer["eager"], answer["followed"]
    listed = first_advised(answer)
    return {
        "model": answer["model"], "group": answer["group"], "date": date, "recorded_us": answer["profiled_us"],
        "pace": answer["pace"], "parts": answer["parts"], "eager_us": eager["wall_us"], "followed": followed,
        "advised": [a["title"] for a in listed], "listed": listed, "predicted_us": answer["predicted_us"],
        "found_us": answer["found"]["+".join(followed)]["wall_us"], "found_in": "same run",
        "host": {k: eager["host"][k] for k in HOST}, "processor_share": eager.get("processor_share"),
        "profiled": eager["profiled"],
    }  # fmt: skip


def separate_rows(answer: Json, date: str) -> list[Json]:
    """Rows for options that were applied without what is followed together, or with it: predicted and found, in µs."""
    rows = []
    for other in answer.get("alternatives", ()):
        time_us = answer["found"].get(other["what"], {}).get("wall_us")
        if time_us is not None:
            rows.append({
                "model": answer["model"], "date": date, "applied": other["what"].split("+"),
                "titles": other["titles"], "eager_us": answer["eager"]["wall_us"],
                "predicted_us": other["predicted_us"], "found_us": time_us,
            })  # fmt: skip
    return rows


def merge(record: Json, run: Json, date: str) -> list[str]:
    """Changes the record in place; a line for each model that says what was done."""
    said = []
    rows = {m["model"]: m for m in record["models"]}
    for answer in run["models"]:
        name = answer["model"]
        if "actions" not in answer:
            said.append(f"{name}: left out, {answer.get('why') or 'it was not advised'}")
            continue
        known = rows.get(name)
        if known is not None and known["predicted_us"] == answer["predicted_us"]:
            known["listed"] = first_advised(answer)
            said.append(f"{name}: the first {len(known['listed'])} of its advice")
        elif known is not None:
            said.append(f"{name}: keeps its row, it was predicted in another run")
        elif "wall_us" in answer["found"].get("+".join(answer["followed"]), {}):
            record["models"].append(row_of(answer, date))
            said.append(f"{name}: a new row")
        else:
            said.append(f"{name}: left out, what is followed together was not timed")
        others = separate_rows(answer, date)
        done = {(r["model"], r["date"], tuple(r["applied"])) for r in record.get("separate", ())}
        new = [r for r in others if (r["model"], r["date"], tuple(r["applied"])) not in done]
        if new:
            record.setdefault("separate", []).extend(new)
            said.append(f"{name}: {len(new)} applied separately")
    return said


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("file", type=Path, help="applied.json of the run")
    parser.add_argument("--date", help="how the record names the run; the run's own date without it")
    arguments = parser.parse_args()
    run = json.loads(arguments.file.read_text(encoding="utf-8"))
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    if run["device"] != record["device"]:
        print(f"the run is of {run['device']}, the record of {record['device']}", file=sys.stderr)
        return 1
    print("\n".join(merge(record, run, arguments.date or run["date"])))
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
