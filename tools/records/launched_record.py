"""What `benchmarks/validation/launched.py` and `tools.fuzz.new_operations --family rows` wrote, as records of a device:
`python -m tools.records.launched_record FOLDER ...` writes tests/records/launched-*.json, advised-*.json, rows-*.json
and new-operations-*.json.

FOLDER: with validations.json, block/block.json, programs.json of one run, validations.json of `--more advised` as
advised.json, rows-new.json and rows-old.json of two states of the generator, or new-operations*.json of one, in
shares. Of a region that several folders have, or the record before, the validation with more timed candidates is kept.
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
FASTER, SLOWER = 0.9, 1.05
"""Of a program's own time before, from which on it is said to have changed."""
MOVED = 1.1
"""From which on another time of the same program by torch.compile is said to be another."""


def short_name(device: str) -> str:
    """As records' files have it: "NVIDIA H200" is h200."""
    return device.removeprefix("NVIDIA ").split()[0].lower()


def timed(region: Json) -> dict[str, float]:
    """µs of each candidate that was timed, the fastest first."""
    times = {n: c["time_us"]["median"] for n, c in region.get("candidates", {}).items() if c.get("time_us")}
    return dict(sorted(times.items(), key=lambda pair: pair[1]))


def tells_more(region: Json, before: Json | None) -> bool:
    """Whether a validation is kept in the place of another: more was timed, it ran where the other did not, or it
    refused a result that the other had accepted."""
    if before is None:
        return True
    if any(region.get("candidates", {}).get(name, {}).get("status") == "mismatch" for name in timed(before)):
        return True
    return (len(timed(region)), "failed" not in region) > (len(timed(before)), "failed" not in before)


def region_of(region: Json) -> Json:
    """What is kept of a validation."""
    kept: Json = {key: region[key] for key in ("part", "text", "outcome", "best", "reason", "failed") if key in region}
    candidates = {
        name: {"time_us": c["time_us"]} if c.get("time_us") else {"status": c["status"], "message": c["message"][:200]}
        for name, c in region.get("candidates", {}).items()
    }
    kept["without"] = [end for end in region.get("without", ()) if not any(n.endswith(end) for n in candidates)]
    kept["candidates"] = candidates
    return kept


def launched(folders: Sequence[Path], before: Mapping[str, Any] | None = None) -> Json:
    """Of all folders with validations: the record, with what it had before. {} where there are none."""
    bodies = {folder: body for folder in folders if (body := read(folder / "validations.json"))}
    record: Json = dict(before or {}) if bodies else {}
    for folder, body in bodies.items():
        if record and record["device"] != body["device"]:
            raise SystemExit(f"{folder} is of another device than those before it: {body['device']}")
        record["device"] = body["device"]
        run = {key: body[key] for key in ("date", "software")}
        regions = record.setdefault("regions", {})
        for name, region in body["regions"].items():
            if tells_more(region, regions.get(name)):
                regions[name] = region_of(region) | run
        block = read(folder / "block" / "block.json")
        if block:
            first = block["regions"][0]
            kept = ("name", "text", "time_us_per_step", "share_of_step")
            advice = {key: first["advice"][key] for key in ("tool", "mode", "headline", "call")}
            record["block"] = {**{key: first[key] for key in kept}, "advice": advice, **run}
        programs = read(folder / "programs.json")
        if programs:
            record["programs"] = [trimmed(p) for p in programs["programs"]]
            record["programs_run"] = run
    return record


def advised(folders: Sequence[Path], before: Mapping[str, Any] | None = None) -> Json:
    """Of all folders with advised.json, validations of programs of the corpus by name, with what the record had before.
    {} where there are none.

    Of a program that several folders have, the one with more timed candidates is kept; one that ran before one that
    did not. date and software of the record: of programs that have none of their own.
    """
    bodies = [body for folder in folders if (body := read(folder / "advised.json"))]
    record: Json = dict(before or {}) if bodies else {}
    for body in bodies:
        if record and record["device"] != body["device"]:
            raise SystemExit(f"advised.json of another device than those before it: {body['device']}")
        record = {key: body[key] for key in ("device", "date", "software")} | record
        programs = record.setdefault("programs", {})
        for name, region in body["regions"].items():
            if tells_more(region, programs.get(name)):
                kept = region_of(region)
                programs[name] = {key: kept[key] for key in ("candidates", "failed") if key in kept}
                programs[name] |= {key: body[key] for key in ("date", "software") if body[key] != record[key]}
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
    for name, made, file in (("launched", launched, "validations.json"), ("advised", advised, "advised.json")):
        bodies = {folder: body for folder in folders if (body := read(folder / file))}
        for device in dict.fromkeys(short_name(body["device"]) for body in bodies.values()):
            own = [folder for folder, body in bodies.items() if short_name(body["device"]) == device]
            yield f"{name}-{device}", made(own, read(RECORDS / f"{name}-{device}.json"))
    for folder in folders:
        if compared := rows(folder):
            yield f"rows-{short_name(compared['device'])}", {"date": date, **compared}
    drawn = [body for folder in folders for file in sorted(folder.glob("new-operations*.json")) if (body := read(file))]
    for device in dict.fromkeys(body["gpu"] for body in drawn):
        yield f"new-operations-{short_name(device)}", new_operations([b for b in drawn if b["gpu"] == device], date)


def with_run(record: Json, run: Json) -> Json:
    """A record's earlier runs, but for programs that are run again, and this one."""
    again = {p["text"] for one in run["runs"] for p in one["programs"]}
    kept = [
        one | {"programs": programs}
        for one in record.get("runs", ())
        if (programs := [p for p in one["programs"] if p["text"] not in again])
    ]
    return run | {"runs": [*kept, *run["runs"]]}


def new_operations(shares: Sequence[Json], date: str) -> Json:
    """One run's programs, which several GPUs of one host may have shared. ValueError where the software differs."""
    software, *others = [{key: body[key] for key in ("torch", "triton")} for body in shares]
    if any(other != software for other in others):
        raise ValueError(f"shares of one run were written under different software: {software}, {others}")
    programs = [trimmed(p) for body in shares for p in body["programs"]]
    return {"device": shares[0]["gpu"], "runs": [{"date": date, "software": software, "programs": programs}]}


def main(arguments: Sequence[str]) -> int:
    """The command."""
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("folders", nargs="+", type=Path)
    reader.add_argument("--date", required=True, help="of the measurement, such as 2026-11-26")
    asked = reader.parse_args(arguments)
    for name, record in written(asked.folders, asked.date):
        path = RECORDS / f"{name}.json"
        record = with_run(read(path), record) if "runs" in record else record
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(f"tests/records/{name}.json")
    return 0


# what the records say


def lines(record: Mapping[str, Any]) -> Iterator[str]:
    """Sentences and a table for docs/measured.md."""
    yield "## What is advised, launched\n"
    regions = record["regions"]
    runs = sorted({f"{r['date']}, torch {r['software']['torch']}" for r in regions.values() if timed(r)})
    yield (
        "`python benchmarks/validation/launched.py`: µs of device time of the candidates that ran, the fastest first "
        f"({record['device']}; {'; '.join(runs)}). Timeout: not built, tuned and checked in the time that the "
        "validation had, of 60 to 285 s, while others compiled on the same host. Mismatch: the check's word, which may "
        "be wrong where eager itself is far off.\n"
    )
    for name, region in regions.items():
        times = timed(region)
        if not times:
            continue
        passes = "forward and backward" if ".requires_grad" in region["text"] else "forward alone"
        told = ", ".join(f"`{n}` {us:,.0f}" for n, us in times.items())
        yield f"- {spoken(name)}, {passes}: {told}" + "".join(f"; {text}" for text in not_timed(region))
    yield from never_timed(regions)
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


def spoken(name: str) -> str:
    """A region's name as words."""
    return name.replace("-", " ")


def not_timed(region: Json) -> Iterator[str]:
    """Of a region the candidates without a time, by what became of them, and those that were not asked for."""
    by_status: dict[str, list[str]] = {}
    for name, candidate in region["candidates"].items():
        if "time_us" not in candidate:
            by_status.setdefault(candidate["status"], []).append(f"`{name.removeprefix('library:')}`")
    yield from (f"{status.replace('_', ' ')}: {', '.join(names)}" for status, names in by_status.items())
    if region["without"]:
        yield f"left out for time, if the region has them: {', '.join(f'`{end}`' for end in region['without'])}"


def never_timed(regions: Mapping[str, Json]) -> Iterator[str]:
    """The regions of which nothing was timed, why, and how many of each part were."""
    missing = {name: region for name, region in regions.items() if not timed(region)}
    if not missing:
        yield ""
        return
    told = []
    for name, region in missing.items():
        ran = {c["status"] for c in region["candidates"].values()} - {"not_installed", "unsupported"}
        told.append(f"{spoken(name)} ({region.get('failed') or ', '.join(sorted(ran))})")
    parts = {
        region["part"]: [r for r in regions.values() if r["part"] == region["part"]] for region in missing.values()
    }
    counted = [f"{sum(bool(timed(r)) for r in all_of)} of {len(all_of)} of {part}" for part, all_of in parts.items()]
    yield f"\nNothing was timed of {', '.join(told)}. Regions that were: {', '.join(counted)}.\n"


def row_lines(record: Mapping[str, Any]) -> Iterator[str]:
    """The generator's reductions, now and before, against torch.compile."""
    yield "## Generated reductions over rows of every shape\n"
    programs = record["programs"]
    moved = [p["compiled_us"] / p["before_compiled_us"] for p in programs]
    yield (
        f"`python -m tools.fuzz.new_operations --family rows` ({record['date']}, {record['device']}, torch "
        f"{record['torch']}): µs of device time, caches cold. Before: the generator's state before its reductions were "
        "mended, in a run of its own. In each run torch.compile was timed in turns with the generator; the ratios are "
        f"to that run's. Between the two runs torch.compile's own time moved by more than {MOVED - 1:.0%} in "
        f"{sum(max(m, 1 / m) > MOVED for m in moved)} of {len(programs)} programs, by up to "
        f"{max(max(m, 1 / m) for m in moved):.1f} times, why is not known: a program's own two times tell how it "
        "changed, and of those only large changes.\n"
    )
    ratios = [p["generated_us"] / p["compiled_us"] for p in programs]
    own = own_change(programs)
    yield (
        f"Of {len(programs)} programs {sum(p['status'] == 'right' for p in programs)} are right. The generator's own "
        f"time, now to before: median {statistics.median(own):.2f}, {sum(c < FASTER for c in own)} more than "
        f"{1 - FASTER:.0%} faster, {sum(c > SLOWER for c in own)} more than {SLOWER - 1:.0%} slower. Now to "
        f"torch.compile: median {statistics.median(ratios):.2f}, worst {max(ratios):.2f}.\n"
    )
    yield "| program | before | now | now to before | torch.compile before | torch.compile | ratio before | ratio |"
    yield "|-|-|-|-|-|-|-|-|"
    for program, change in zip(programs, own, strict=True):
        inputs, _, call = program["text"].strip().rpartition("\n")
        title = f"{inputs.splitlines()[0].removeprefix('x: ')}: {call.removeprefix('return ')}"[:90]
        ours, theirs = program["generated_us"], program["compiled_us"]
        yield (
            f"| `{title}` | {program['before_generated_us']:,.1f} | {ours:,.1f} | {change:.2f} | "
            f"{program['before_compiled_us']:,.1f} | {theirs:,.1f} | {_before(program):.2f} | {ours / theirs:.2f} |"
        )
    yield ""


def own_change(programs: Sequence[Json]) -> list[float]:
    """Of each program the generator's time now, over its time before."""
    return [p["generated_us"] / p["before_generated_us"] for p in programs]


def _before(program: Json) -> float:
    """The ratio of the former state."""
    return float(program["before_generated_us"]) / float(program["before_compiled_us"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
