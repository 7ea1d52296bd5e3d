"""tritonworthy archive record | list | show | merge: the Archive from a shell.

Exit status: 0 done; 2 something could not be taken, read or found: the message says what and what to do, and what could
be done is done. No record is overwritten or taken away unless --replace asks for it; the shipped ones never are.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.archive import listing, merging, nearness, record_store, schema
from app.archive.schema import RecordError
from app.cli.options import given_path
from app.cli.streams import json_text
from app.objects.record import ArchiveRecord, NearestRecord
from app.objects.task import ValidateTask
from kernels.measure.model import OUTCOMES

if TYPE_CHECKING:
    from app.objects.record import RecordBody

OK, FAILED = 0, 2


def add_archive(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Hook `archive` into the command line."""
    archive = commands.add_parser(
        "archive",
        help="records of measurements: keep them, list them, show one, bring folders together",
        description="Records of measurements. Yours lie in TRITONWORTHY_ARCHIVE_DIR (else the data folder's archive);"
        " those that ship with the app lie in their own folder and are never changed.",
    )
    parts = archive.add_subparsers(required=True, metavar="record | list | show | merge")

    record = _part(parts, "record", _record, "keep measurements in your archive")
    record.add_argument(
        "files",
        metavar="FILE_OR_REGION",
        nargs="+",
        help="what `validate --json` printed or `--record` wrote; - for stdin; a region's text is measured here",
    )
    record.add_argument("--name", help="the region's name, where the file has none or another is wanted")
    _writing(record)

    listed = _part(parts, "list", _list, "a table of the records, newest first")
    listed.add_argument("--device", metavar="NAME", help="only this device, such as H200")
    listed.add_argument("--region", metavar="TEXT", help="only regions with this in their name or text")
    listed.add_argument("--outcome", choices=OUTCOMES)

    show = _part(parts, "show", _show, "one record whole: conditions, candidates, times of every shape, ratios")
    show.add_argument("name", metavar="NAME", nargs="?", help="its id, a part of it that no other has, or its name")
    show.add_argument(
        "--near", metavar="REGION", help="the record nearest to this region's text (a file, or -) instead"
    )
    show.add_argument("--device", metavar="NAME", help="with --near: the device that evidence is wanted for")
    show.add_argument("--torch", metavar="VERSION", help="with --near: the version of torch there")

    merge = _part(parts, "merge", _merge, "put the records of other folders or files into your archive")
    merge.add_argument("files", metavar="OTHER", nargs="+", help="a folder of records, or one record's file")
    _writing(merge)


def _part(
    parts: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    about: str,
) -> argparse.ArgumentParser:
    parser = parts.add_parser(name, help=about, description=about[0].upper() + about[1:] + ".")
    parser.add_argument("--folder", type=given_path, metavar="DIR", help="your archive, instead of the setting's")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_guard(run))
    return parser


def _writing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--replace",
        action="store_true",
        help="take away your records of the same region, sizes, device and candidates. Without it all are kept,"
        " whatever their versions of torch",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be done and do nothing")


def _guard(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Errors as text and exit status 2."""

    def run_guarded(arguments: argparse.Namespace) -> int:
        try:
            return run(arguments)
        except RecordError as error:
            _complain(error)
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            print(f"{place}{error.strerror or error}\nChoose another folder with --folder", file=sys.stderr)
        return FAILED

    return run_guarded


def _complain(error: RecordError, place: str = "") -> None:
    print(listing.plain(f"{place}{error.message}"), file=sys.stderr)
    if error.remedy:
        print(f"  {error.remedy}", file=sys.stderr)


def _folder(arguments: argparse.Namespace) -> Path:
    folder: Path = arguments.folder or record_store.user_folder()
    return folder


# ------------------------------------------------------------------------------------------------------ list and show


def _records(arguments: argparse.Namespace) -> tuple[ArchiveRecord, ...]:
    """Yours and the shipped ones; files that are no records are named on stderr and stay where they are."""
    folder = _folder(arguments)
    if arguments.folder is not None and not folder.is_dir():
        raise RecordError(f"{folder}: no such folder", "Give the folder that records lie in, or leave --folder out")
    for item in record_store.list_record_files(folder, record_store.FOLDER):
        if item.problem is not None:
            _complain(item.problem, f"left out: {item.path}: ")
    return record_store.records(folder, record_store.FOLDER)


def _list(arguments: argparse.Namespace) -> int:
    filters = (arguments.device, arguments.region, arguments.outcome)
    records = [r for r in _records(arguments) if listing.wanted(r, *filters)]
    if arguments.json:
        _print_json({"items": [listing.row(r) for r in records]})
    elif records:
        print(listing.table(records))
    else:
        print("No record is like that.")
    return OK


def _show(arguments: argparse.Namespace) -> int:
    if (arguments.name is None) == (arguments.near is None):
        raise RecordError("which record?", "Give a NAME of `tritonworthy archive list`, or --near REGION")
    if arguments.near is None and (arguments.device or arguments.torch):
        raise RecordError("--device and --torch go with --near")
    records = _records(arguments)
    record = _find_by_name(records, arguments.name) if arguments.name is not None else _find_nearest(arguments)
    if arguments.json:
        _print_json(record)
    else:
        print(listing.record_text(record))
    return OK


def _find_by_name(records: Sequence[ArchiveRecord], name: str) -> ArchiveRecord:
    """The one record of that id, part of an id, or name."""
    stem = name.removesuffix(".json")
    exact = [r for r in records if r["id"] == stem]
    matches = exact or [r for r in records if r["name"].lower() == name.lower()]
    matches = matches or [r for r in records if stem and stem.lower() in r["id"]]
    if not matches:
        raise RecordError(f"no record {name!r}", "`tritonworthy archive list` names them")
    if len(matches) > 1:
        lines = "\n".join(f"  {r['id']}  {r['device']}, torch {nearness.software(r, 'torch')}" for r in matches)
        raise RecordError(f"{len(matches)} records are called {name!r}", f"Take more of the id:\n{lines}")
    return matches[0]


def _find_nearest(arguments: argparse.Namespace) -> NearestRecord:
    text = _bytes(arguments.near).decode("utf-8", "replace")
    folders = (_folder(arguments), record_store.FOLDER)
    nearest = record_store.nearest(text, *folders, device=arguments.device, torch=arguments.torch)
    if nearest is None:
        far = f"within {nearness.FARTHEST:g} × its bytes"
        raise RecordError(
            f"no record of this program {far}", "Measure it on a GPU host: `tritonworthy validate REGION`"
        )
    return nearest


def hint(text: str) -> str:
    """What a host that measured nothing says of the nearest record; "" where there is none."""
    import importlib.metadata

    nearest = record_store.nearest(
        text, record_store.user_folder(), record_store.FOLDER, torch=importlib.metadata.version("torch")
    )
    return f"{nearest['elsewhere']['because']} See: tritonworthy archive show {nearest['id']}" if nearest else ""


# --------------------------------------------------------------------------------------------------- record and merge


def _record(arguments: argparse.Namespace) -> int:
    return _put(arguments, ((name, partial(_validations, name)) for name in arguments.files), arguments.name)


def _merge(arguments: argparse.Namespace) -> int:
    files: list[str] = []
    for name in arguments.files:
        folder = Path(name)
        if folder.is_dir():
            files += map(str, sorted(folder.glob("*.json")))
        else:
            files.append(name)
    return _put(arguments, ((name, partial(_record_file, name)) for name in files))


def _put(
    arguments: argparse.Namespace, sources: Iterator[tuple[str, Callable[[], list[object]]]], name: str | None = None
) -> int:
    """Read every source, then write what can be taken; 2 where something cannot."""
    taken: list[tuple[str, RecordBody]] = []
    refused: list[tuple[str, RecordError]] = []
    for source, load in sources:
        try:
            for body in load():
                named = {**body, "name": name} if name and isinstance(body, dict) else body
                taken.append((source, schema.require(schema.read(named))))
        except RecordError as error:
            refused.append((source, error))
    folder = _folder(arguments)
    steps = merging.plan(taken, record_store.list_record_files(folder, record_store.FOLDER), arguments.replace)
    if not arguments.dry_run:
        merging.carry_out(steps, folder)
    for source, problem in refused:
        _complain(problem, f"refused: {source}: ")
    if arguments.json:
        refusals = [{"source": s, "problem": p.message, "remedy": p.remedy} for s, p in refused]
        items = [merging.step_json(s) for s in steps]
        _print_json({"folder": str(folder), "dry_run": arguments.dry_run, "items": items, "refused": refusals})
    else:
        for step in steps:
            print(_step_text(step))
        done = sum(s.action != "identical" for s in steps)
        would = "would be " if arguments.dry_run else ""
        print(f"{done} of {len(steps) + len(refused)} {would}written to {folder}")
    return FAILED if refused else OK


def _step_text(step: merging.Step) -> str:
    body = merging.step_json(step)
    version = body["torch"]
    others = ", ".join(f"{o['id']} (torch {o['torch'] or 'not told'}, {o['date']})" for o in body["others"])
    remedy = "; --replace takes yours away" if step.yours else ""
    text = {
        "added": f"added      {body['id']}",
        "identical": f"identical  {body['id']}: on record already",
        "beside": f"conflict   {body['id']} (torch {version}): kept next to {others}{remedy}",
        "replaced": f"replaced   {body['id']} (torch {version}) stands for {others}",
    }[step.action]
    lacks = f"\n           it does not tell: {', '.join(body['lacking'])}" if body["lacking"] else ""
    return listing.plain(f"{text} <- {step.source}") + lacks


def _validations(name: str) -> list[object]:
    """What `record` is given: JSON, or a region's text, which is measured here."""
    data = _bytes(name)
    if data.lstrip()[:1] in (b"{", b"["):
        return _load(data)
    try:
        return [_measure(data.decode("utf-8"))]
    except UnicodeDecodeError:
        remedy = "Give what `tritonworthy validate --json` printed or `--record` wrote"
        raise RecordError("neither a validation nor a region's text", remedy) from None


def _record_file(name: str) -> list[object]:
    return _load(_bytes(name))


def _load(data: bytes) -> list[object]:
    body = schema.loads(data)
    return body if isinstance(body, list) else [body]


def _measure(text: str) -> Mapping[str, object]:
    """The region validated on this host. RecordError where its text cannot be read."""
    from app.analysis import service
    from app.analysis.validate import validate_region
    from app.thresholds import ThresholdError, thresholds_in_force
    from profiler.region.model import RegionError

    try:
        thresholds = thresholds_in_force()
        region = service.advise_region(text, thresholds=thresholds)
        request: ValidateTask = {
            "region": region["text"] or text, "shapes": region.get("shapes"), "advice_before": region["advice"],
            "thresholds": asdict(thresholds),
        }  # fmt: skip
        return {"name": region["name"], **validate_region(request)}
    except ThresholdError as error:
        raise RecordError(str(error), "Correct the variable") from None
    except RegionError as error:
        raise RecordError(f"neither a validation nor a region:\n{error}", "Correct the region's text") from None


def _bytes(name: str) -> bytes:
    """A file's contents, or stdin's, up to what a record may have and one more."""
    try:
        if name == "-":
            return sys.stdin.buffer.read(schema.MAX_BYTES + 1)
        with Path(name).open("rb") as file:
            return file.read(schema.MAX_BYTES + 1)
    except OSError as error:
        raise RecordError(error.strerror or str(error), "Give a file that can be read, or - for stdin") from None


def _print_json(body: object) -> None:
    print(json_text(body))
