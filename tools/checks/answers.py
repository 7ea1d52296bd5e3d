"""The API's answers for many traces and regions, held to those of another commit.

    python -m tools.checks.answers record BEFORE.json.gz [--traces FOLDER ...] [--texts FILE ...]
    python -m tools.checks.answers compare BEFORE.json.gz AFTER.json.gz

`record` in a checkout of each commit: a server of that checkout is sent every trace, and every region's text twice,
without and with the oracle. Ids and times are left out. `compare` says which fields are gone, new or different, by
their place without numbers of lists, each with how often and one example; 1 where anything is.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tools.server import ROOT, serving

Json = dict[str, Any]

DATA = ROOT / "tests" / "data"
TRACES = (DATA / "traces", DATA / "attacks" / "traces", ROOT / "app" / "examples")
ANSWER_S = 900.0
VARYING = re.compile(r"^[0-9a-z]{26}$|^\d{4}-\d\d-\d\dT[\d:.]+Z?(\+00:00)?$")
"""An id or a time: another one in each run."""
PLACES = 6
"""Significant digits that two figures must share: sums are taken in the order of threads."""


# ------------------------------------------------------------------------------------------------------------ record


def trace_files(folders: Iterable[Path]) -> dict[str, Path]:
    """Traces by name; one that an earlier folder has under the same name is not taken twice."""
    by_name: dict[str, Path] = {}
    for folder in folders:
        for path in sorted((*folder.glob("*.json.gz"), *folder.glob("*.json"))):
            if ".et." not in path.name and path.name not in ("expected.json", "regions.json", "texts.json"):
                by_name.setdefault(path.name, path)
    return by_name


def region_texts(files: Iterable[Path]) -> dict[str, str]:
    """Texts by name: examples, the regions of the tests, the attacks, and every region of each further file."""
    folders = (ROOT / "app" / "examples", *(ROOT / "tests" / "regions" / part for part in ("", "samples", "training")))
    by_name = {f"{path.parent.name} {path.name}": path.read_text() for f in folders for path in sorted(f.glob("*.txt"))}
    for file in (DATA / "attacks" / "texts.json", *files):
        by_name |= dict(_texts(json.loads(file.read_text()), file.stem))
    return by_name


def _texts(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Every string below a JSON value that could be a region's text, under its path."""
    if isinstance(value, str) and "return" in value:
        yield name, value
    elif isinstance(value, Mapping):
        for key, below in value.items():
            yield from _texts(below, f"{name}.{key}")
    elif isinstance(value, list):
        for place, below in enumerate(value):
            yield from _texts(below, f"{name}.{place}")


def record_answers(traces: Mapping[str, Path], texts: Mapping[str, str]) -> Json:
    """What a server of this checkout answers."""
    record: Json = {"traces": {}, "regions": {}}
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder) / "data", {}) as served,
        httpx.Client(base_url=served.url, timeout=ANSWER_S) as client,
    ):
        record["openapi"] = client.get("/openapi.json").json()
        for name, path in traces.items():
            record["traces"][name] = _trace(client, name, path)
            print(f"{name}: {record['traces'][name].get('status')}", file=sys.stderr, flush=True)
        for name, text in texts.items():
            for oracle in ("off", "auto"):
                answer = client.post("/api/v1/advice", json={"region": text, "oracle": oracle})
                record["regions"][f"{name}, {oracle}"] = {"status": answer.status_code, "answer": answer.json()}
    return record


def _trace(client: httpx.Client, name: str, path: Path) -> Json:
    sent = client.post("/api/v1/traces", params={"name": name}, content=path.read_bytes())
    if not sent.is_success:
        return {"status": sent.status_code, "answer": sent.json()}
    trace: Json = {"status": "reading"}
    while trace["status"] == "reading":
        trace = client.get(f"/api/v1/traces/{sent.json()['id']}", params={"wait": 60}).json()
    return trace


# ----------------------------------------------------------------------------------------------------------- compare


@dataclass(slots=True)
class Difference:
    """place: without the numbers of lists. example: where, before and after."""

    what: str
    place: str
    example: str
    count: int = 0


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of everything that is no list and no object; of an empty one itself."""
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from leaves(below, f"{path}/{key}")
    elif isinstance(value, list) and value:
        for place, below in enumerate(value):
            yield from leaves(below, f"{path}/{place}")
    else:
        yield path, value


def without_ids_and_times(value: Any) -> Any:
    """The value as two runs of one commit give it."""
    if isinstance(value, str) and VARYING.match(value):
        return "varies"
    return float(f"{value:.{PLACES}g}") if isinstance(value, float) else value


def differences(before: Json, after: Json) -> list[Difference]:
    """Fields that are gone, new or different, the most frequent first."""
    old, new = (dict(leaves(side)) for side in (before, after))
    by_place: dict[tuple[str, str], Difference] = {}

    def add(what: str, path: str, example: str) -> None:
        place = "/".join("N" if part.isdigit() else part for part in path.split("/"))
        place = re.sub(r"^/(traces|regions)/[^/]*", r"/\1/*", place)
        by_place.setdefault((what, place), Difference(what, place, f"{path}: {example}")).count += 1

    for path, value in old.items():
        if path not in new:
            add("gone", path, f"{value!r:.80}")
        elif without_ids_and_times(value) != without_ids_and_times(new[path]):
            add("different", path, f"{value!r:.80} -> {new[path]!r:.80}")
    for path, value in new.items():
        if path not in old:
            add("new", path, f"{value!r:.80}")
    return sorted(by_place.values(), key=lambda d: -d.count)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = parser.add_subparsers(dest="way", required=True)
    record = ways.add_parser("record")
    record.add_argument("out", type=Path)
    record.add_argument("--traces", type=Path, nargs="*", default=[], help="folders in addition to those of the tests")
    record.add_argument("--texts", type=Path, nargs="*", default=[], help="JSON files with texts of regions")
    compare = ways.add_parser("compare")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    args = parser.parse_args()
    if args.way == "record":
        snapshot = record_answers(trace_files((*TRACES, *args.traces)), region_texts(args.texts))
        with gzip.open(args.out, "wt") as file:
            json.dump(snapshot, file)
        print(f"{len(snapshot['traces'])} traces, {len(snapshot['regions'])} advices")
        return 0
    told = differences(*(json.loads(gzip.decompress(path.read_bytes())) for path in (args.before, args.after)))
    for one in told:
        print(f"{one.count:6} {one.what:9} {one.place}\n       {one.example}")
    print(f"{sum(one.count for one in told)} differences in {len(told)} fields")
    return int(bool(told))


if __name__ == "__main__":
    raise SystemExit(main())
