"""What becomes of records that are to be put into a folder: planned as data, then done. Nothing is lost unasked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from app.archive import nearness, record_store, schema
from app.archive.record_store import RecordFile
from app.objects.record import ArchiveRecord, ArchiveStep, RecordBody

Action = Literal["added", "identical", "beside", "replaced"]


@dataclass(frozen=True, slots=True)
class Step:
    """One record and what becomes of it.

    added: nothing like it is there. identical: it is there already, as `others` says, and is not written again.
    beside: records of the same region, sizes, device and candidates are there (`others`) and all are kept. replaced:
    the same, and `others` are taken away; asked for only.
    """

    action: Action
    source: str
    record: RecordBody
    others: tuple[ArchiveRecord, ...] = ()
    gone: tuple[Path, ...] = ()
    yours: bool = False  # of `others` some are not shipped


def plan(
    incoming: Sequence[tuple[str, RecordBody]], present: Sequence[RecordFile], replace: bool = False
) -> tuple[Step, ...]:
    """What to do with each record, in order. incoming: where it is from, and what `schema.read` gave.

    replace takes away records that were there before with the same subject, never shipped ones, nor one of `incoming`.
    """
    held = [(s, s.record) for s in present if s.record is not None]
    known = {schema.fingerprint(_bare(record)): record for _, record in held}
    subjects: dict[schema.Subject, list[tuple[ArchiveRecord, Path | None]]] = {}
    for item, answered in held:
        subjects.setdefault(schema.subject(answered), []).append((answered, None if item.shipped else item.path))
    steps = []
    for source, record in incoming:
        print_ = schema.fingerprint(record)
        if print_ in known:
            steps.append(Step("identical", source, record, (known[print_],)))
            continue
        named = record_store.as_answered(record, record_store.file_name(record))
        same = subjects.setdefault(schema.subject(record), [])
        gone = tuple(path for _, path in same if path is not None) if replace else ()
        if gone:
            steps.append(Step("replaced", source, record, tuple(r for r, p in same if p is not None), gone))
            same[:] = [(r, p) for r, p in same if p is None]
        else:
            steps.append(
                Step(
                    "beside" if same else "added",
                    source,
                    record,
                    tuple(r for r, _ in same),
                    (),
                    any(p for _, p in same),
                )
            )
        same.append((named, None))
        known[print_] = named
    return tuple(steps)


def carry_out(steps: Sequence[Step], folder: Path) -> None:
    """Write what is new, then take away what it replaces. OSError where that fails: what was there is there still."""
    for step in steps:
        if step.action == "identical":
            continue
        written = record_store.write(step.record, folder)
        for path in step.gone:
            if path != written:
                path.unlink(missing_ok=True)


def step_json(step: Step) -> ArchiveStep:
    """A step for --json."""
    return {
        "action": step.action,
        "source": step.source,
        "id": step.others[0]["id"] if step.action == "identical" else Path(record_store.file_name(step.record)).stem,
        "name": step.record["name"],
        "torch": nearness.software(step.record, "torch") or None,
        "others": [
            {"id": o["id"], "torch": nearness.software(o, "torch") or None, "date": o["date"]} for o in step.others
        ],
        "lacking": list(schema.lacking(step.record)),
    }


def _bare(record: ArchiveRecord) -> RecordBody:
    """A record without what the API adds."""
    return cast("RecordBody", {k: v for k, v in record.items() if k not in schema.OF_THE_API})
