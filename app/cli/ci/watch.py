"""tritonworthy watch: measure recorded regions again after an upgrade, here or on a server's hosts: what flipped.

Exit status: 0 nothing flipped; 1 advice flipped; 2 something could not be measured; 3 nothing was done, for the command
or a region's text is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING

from app.archive import record_store, schema
from app.archive.schema import RecordError
from app.check.safe import visible
from app.check.watch import Plan, judgement_json, line, plan, plan_json
from app.cli.ci.check import WRONG, usage_error
from app.cli.options import budget_s, given_path
from app.cli.servers.remote import Remote, RemoteError
from app.cli.servers.watch_remote import Watched, watch_on_server
from app.cli.streams import json_text
from app.thresholds import ThresholdError, thresholds_in_force

if TYPE_CHECKING:
    from app.objects.record import Regression
    from app.objects.task import ValidateTask

KEPT, FLIPPED, UNMEASURED = 0, 1, 2
NO_GPU = "could not measure: this host has no GPU that torch can use; --dry-run says what would be measured"


def add_watch(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Hook `watch` into the command line."""
    about = "measure recorded regions again after an upgrade of torch, triton or the driver: which advice flipped"
    watch = commands.add_parser("watch", help=about, description=about[0].upper() + about[1:] + ".")
    watch.error = MethodType(usage_error, watch)  # type: ignore[method-assign]
    watch.add_argument("files", metavar="REGION", nargs="*", help="regions' texts; without any your archive's records")
    watch.add_argument("--dry-run", action="store_true", help="say what would be measured again, and why")
    watch.add_argument("--force", action="store_true", help="measure also what no upgrade concerns")
    watch.add_argument("--record", action="store_true", help="keep the new measurements in your archive")
    watch.add_argument("--folder", type=given_path, metavar="DIR", help="your archive, instead of the setting's")
    watch.add_argument("--budget", type=budget_s, metavar="SECONDS", help="time that measuring one region may take")
    watch.add_argument("--server", metavar="URL", help="measure on a server's hosts; it keeps what they measure")
    watch.add_argument("--token-file", type=given_path, metavar="FILE", help="the server's token")
    watch.add_argument("--on", metavar="KIND", action="append", help="on each of these kinds of the server's fleet")
    watch.add_argument("--json", action="store_true", help="print JSON")
    watch.set_defaults(run=_watch, complain=watch.error)


def _watch(arguments: argparse.Namespace) -> int:
    from profiler.region.model import RegionError

    if arguments.server:
        return _watch_on_server(arguments)
    if arguments.on or arguments.token_file:
        return _wrong("--on and --token-file go with --server")
    try:
        gpu, now = _host()
        plans = _plans(arguments, gpu, now)
    except (RegionError, RecordError, ThresholdError) as error:
        return _wrong(str(error))
    except OSError as error:
        return _wrong(f"{error.filename}: {error.strerror}")
    rows = [plan_json(p, now) for p in plans]
    if arguments.dry_run:
        _print(arguments, rows, "")
        return KEPT
    if gpu is None:
        _print(arguments, rows, NO_GPU)
        return UNMEASURED
    rows = [_measure(arguments, p, r) if p.action == "validate" else r for p, r in zip(plans, rows, strict=True)]
    return _print_rows(arguments, rows)


def _print_rows(arguments: argparse.Namespace, rows: Sequence[Regression]) -> int:
    _print(arguments, rows, "")
    outcomes = {r["outcome"] or r["action"] for r in rows}
    return FLIPPED if "flipped" in outcomes else UNMEASURED if {"unmeasured", "no-record"} & outcomes else KEPT


def _watch_on_server(arguments: argparse.Namespace) -> int:
    if arguments.record or arguments.folder or arguments.dry_run or arguments.budget:
        return _wrong("--record, --folder, --dry-run and --budget are for this host, not for --server")
    try:
        token = arguments.token_file.read_text().strip() if arguments.token_file else None
        texts = [(Path(n).stem, Path(n).read_text(encoding="utf-8", errors="replace")) for n in arguments.files]
        server, regions = Remote(arguments.server, token), [Watched(name, text) for name, text in texts]
        rows = watch_on_server(server, regions, arguments.on, fresh=arguments.force, say=_say)
    except RemoteError as error:
        return _wrong(str(error))
    except (KeyError, TypeError) as error:
        return _wrong(f"{arguments.server} does not answer as Tritonworthy does: {error!r}")
    except OSError as error:
        return _wrong(f"{error.filename}: {error.strerror}")
    return _print_rows(arguments, rows)


def _wrong(message: str) -> int:
    print(f"nothing was done: {message}", file=sys.stderr)
    return WRONG


def _host() -> tuple[str | None, Mapping[str, str]]:
    """This host's GPU, and the versions that measurements depend on."""
    from kernels.host import probe_host
    from kernels.measure.planner import software

    return probe_host().gpu, software()


def _plans(arguments: argparse.Namespace, gpu: str | None, now: Mapping[str, str]) -> list[Plan]:
    folder: Path = arguments.folder or record_store.user_folder()
    folders: tuple[Path, ...] = (folder,)
    if arguments.files:
        folders = (folder, record_store.FOLDER)
        texts = [(Path(name).stem, _text(name)) for name in arguments.files]
    else:
        texts = list({r["region"]: (r["name"], r["region"]) for r in record_store.records(folder)}.values())
        if not texts:
            raise RecordError(
                f"{folder} has no record", "Name regions, or keep measurements: tritonworthy archive record"
            )
    plans = []
    for name, text in texts:
        record = record_store.nearest(text, *folders, device=gpu, torch=now.get("torch"))
        plans.append(plan(name, text, record, now, gpu, arguments.force))
    return plans


def _text(name: str) -> str:
    """A region's text, as the archive writes it. RegionError, OSError."""
    from app.analysis.service import prepare_region

    return prepare_region(Path(name).read_text(encoding="utf-8", errors="replace")).text


def _measure(arguments: argparse.Namespace, planned: Plan, row: Regression) -> Regression:
    """Today's rule with the old measurement, against today's rule with a new one."""
    from app.advice.evidence import reissue_json
    from app.analysis import service
    from app.analysis.validate import validate_region
    from app.trace_report.by_record import measurement_in

    assert planned.record is not None
    thresholds = thresholds_in_force()
    region = service.advise_region(
        planned.text, name=planned.name, device=planned.record["device"], thresholds=thresholds
    )
    assert region["advice"] is not None  # a text has advice, or raises
    before = reissue_json(region["advice"], measurement_in(planned.record), None, thresholds)
    request: ValidateTask = {
        "region": region["text"] or planned.text, "shapes": region.get("shapes"), "advice_before": region["advice"],
        "budget_s": arguments.budget, "thresholds": asdict(thresholds),
    }  # fmt: skip
    validation = validate_region(request, on_progress=lambda progress: _say(planned.name, progress))
    if arguments.record and validation["outcome"] != "unmeasured":
        written = record_store.write(
            schema.read({**validation, "name": planned.name}), arguments.folder or record_store.user_folder()
        )
        print(f"recorded: {written}", file=sys.stderr)
    return judgement_json(row, planned.record, before, validation)


def _say(name: str, progress: Mapping[str, object]) -> None:
    parts = (name, progress.get("phase"), progress.get("candidate"), progress.get("message"))
    print(" ".join(str(part) for part in parts if part), file=sys.stderr)


def _print(arguments: argparse.Namespace, rows: Sequence[Regression], remark: str) -> None:
    if arguments.json:
        print(json_text({"items": rows}))
    else:
        print("\n".join(visible(line(r), 2000) for r in rows))
    sys.stdout.flush()
    if remark:
        print(remark, file=sys.stderr)
