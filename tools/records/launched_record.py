"""What `benchmarks/validation/launched.py` and `tools.fuzz.new_operations --family rows` wrote, as records of a device:
`python -m tools.records.launched_record FOLDER ...` writes tests/records/launched-*.json and rows-*.json.

FOLDER: with validations.json, block/block.json, programs.json of one run, or rows-new.json and rows-old.json of two
states of the generator. Of a region that several folders have, the validation with more timed candidates is kept.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDS = ROOT / "tests" / "records"
LOSS = 1.1
LEFT_OUT = frozenset({"not_installed", "unsupported"})
"""Candidates of which nothing was to be measured."""


def short_name(device: str) -> str:
    """As records' files have it: "NVIDIA H200" is h200."""
    return device.removeprefix("NVIDIA ").split()[0].lower()


def timed(region: Json) -> dict[str, float]:
    """µs of each candidate that was timed, the fastest first."""
    times = {n: c["time_us"]["median"] for n, c in region.get("candidates", {}).items() if c.get("time_us")}
    return dict(sorted(times.items(), key=lambda pair: pair[1]))


def region_of(region: Json) -> Json:
    """What is kept of a validation."""
    kept: Json = {key: region[key] for key in ("part", "text", "outcome", "best", "reason", "failed") if key in region}
    candidates = {
        name: {"time_us": c["time_us"]} if c.get("time_us") else {"status": c["status"], "message": c["message"][:200]}
        for name, c in region.get("candidates", {}).items()
        if c["status"] not in LEFT_OUT
    }
    kept["candidates"] = candidates
    return kept


def launched(folders: Sequence[Path]) -> Json:
    """Of all folders with validations: the record. {} where there are none."""
    record: Json = {}
    for folder in folders:
        body = read(folder / "validations.json")
        if not body:
            continue
        if record and record["device"] != body["device"]:
            raise SystemExit(f"{folder} is of another device than those before it: {body['device']}")
        record |= {key: body[key] for key in ("device", "date", "software")}
        regions = record.setdefault("regions", {})
        for name, region in body["regions"].items():
            if len(timed(region)) > len(timed(regions.get(name, {}))) or name not in regions:
                regions[name] = region_of(region)
        block = read(folder / "block" / "block.json")
        if block:
            first = block["regions"][0]
            kept = ("name", "text", "time_us_per_step", "share_of_step")
            advice = {key: first["advice"][key] for key in ("tool", "mode", "headline", "call")}
            record["block"] = {**{key: first[key] for key in kept}, "advice": advice}
        programs = read(folder / "programs.json")
        if programs:
            record["programs"] = [trimmed(p) for p in programs["programs"]]
    return record


def trimmed(program: Json) -> Json:
    """A program without what each phase took."""
    return {key: value for key, value in program.items() if key not in ("seconds", "kept")}


def rows(folder: Path) -> Json:
    """Two states of the generator on the same programs. {} where one is missing."""
    states = [read(folder / f"rows-{state}.json") for state in ("new", "old")]
    if not all(states):
        return {}
    new, old = ({p["seed"]: p for p in state["programs"]} for state in states)
    programs = [
        {
            "number": number, "text": new[number]["text"],
            **{f"{name}_us": new[number][f"{name}_us"] for name in ("generated", "compiled")},
            "status": new[number]["status"], "message": new[number]["message"], "kernels": new[number]["kernels"],
            **{f"before_{name}_us": old.get(number, {}).get(f"{name}_us") for name in ("generated", "compiled")},
        }
        for number in sorted(new)
    ]  # fmt: skip
    where = {"device": states[0].get("gpu"), "torch": states[0].get("torch"), "triton": states[0].get("triton")}
    return {**where, "programs": programs}


def read(path: Path) -> Json:
    """A file's object; {} where there is no file."""
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def written(folders: Sequence[Path], date: str) -> Iterator[tuple[str, Json]]:
    """Names of records and what they hold. date: of the rows, whose files have none."""
    if record := launched(folders):
        yield f"launched-{short_name(record['device'])}", record
    for folder in folders:
        if compared := rows(folder):
            yield f"rows-{short_name(compared['device'])}", {"date": date, **compared}


def main(arguments: Sequence[str]) -> int:
    """The command."""
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("folders", nargs="+", type=Path)
    reader.add_argument("--date", required=True, help="of the measurement, such as 2026-11-26")
    asked = reader.parse_args(arguments)
    for name, record in written(asked.folders, asked.date):
        (RECORDS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(f"tests/records/{name}.json")
    return 0


# what the records say


def lines(record: Mapping[str, Any]) -> Iterator[str]:
    """Sentences and a table for docs/measured.md."""
    yield "## What is advised, launched\n"
    yield (
        "`python benchmarks/validation/launched.py`: forward and backward, µs of device time, the fastest first. What "
        f"was not timed stands with its reason ({record['date']}, torch {record['software']['torch']}).\n"
    )
    for name, region in record["regions"].items():
        times = timed(region)
        if not times:
            continue
        others = [f"{n}: {c['status']}" for n, c in region["candidates"].items() if "time_us" not in c]
        told = ", ".join(f"`{n}` {us:,.0f}" for n, us in times.items())
        yield f"- {name.replace('-', ' ')}: {told}" + (f"; not timed: {', '.join(others)}" if others else "")
    missing = [name.replace("-", " ") for name, region in record["regions"].items() if not timed(region)]
    yield f"\nNothing was timed of: {', '.join(missing)}.\n" if missing else ""
    programs = record.get("programs", [])
    lost = [p for p in programs if p["ratio"] and p["ratio"] > LOSS]
    if programs:
        told = ", ".join(f"{p['family']} {p['seed']} ({p['ratio']:.2f})" for p in lost)
        right = sum(p["status"] == "right" for p in programs)
        yield (
            f"{len(programs)} of the generator's programs that were lost or wrong on an H100 were run again: {right} "
            f"are right; above {LOSS} of torch.compile's time: {told}.\n"
        )
    block = record.get("block")
    if block:
        yield (
            "The attention of a trace is a soft-capped decoder block's, recorded eager: "
            f"{block['share_of_step']:.0%} of its step. Advised: {block['advice']['headline']}.\n"
        )


def row_lines(record: Mapping[str, Any]) -> Iterator[str]:
    """The generator's reductions, now and before, against torch.compile."""
    yield "## Generated reductions over rows of every shape\n"
    programs = record["programs"]
    swing = max(max(a / b, b / a) for a, b in ((p["compiled_us"], p["before_compiled_us"]) for p in programs))
    yield (
        f"`python -m tools.fuzz.new_operations --family rows` ({record['date']}, {record['device']}, torch "
        f"{record['torch']}): µs of device time, caches cold; the ratio is to torch.compile, timed in turns. Before: "
        "the ratio of the generator's state before its reductions were mended, in its own run. Between the two runs "
        f"torch.compile's own times differ by up to {swing:.1f} times, why is not known: only large changes tell.\n"
    )
    now, before = [p["generated_us"] / p["compiled_us"] for p in programs], [_before(p) for p in programs]
    yield (
        f"Of {len(programs)} programs {sum(p['status'] == 'right' for p in programs)} are right. Median ratio "
        f"{statistics.median(now):.2f}, worst {max(now):.2f}; before {statistics.median(before):.2f} and "
        f"{max(before):.2f}.\n"
    )
    yield "| program | now | torch.compile | ratio | before |"
    yield "|-|-|-|-|-|"
    for program in programs:
        inputs, _, call = program["text"].strip().rpartition("\n")
        title = f"{inputs.splitlines()[0].removeprefix('x: ')}: {call.removeprefix('return ')}"[:90]
        ours, theirs = program["generated_us"], program["compiled_us"]
        yield f"| `{title}` | {ours:,.1f} | {theirs:,.1f} | {ours / theirs:.2f} | {_before(program):.2f} |"
    yield ""


def _before(program: Json) -> float:
    """The ratio of the former state."""
    return float(program["before_generated_us"]) / float(program["before_compiled_us"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
