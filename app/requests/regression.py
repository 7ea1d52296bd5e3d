"""What a validation says of the measurement before it, on the same kind of GPU: whether an upgrade flipped advice."""

from __future__ import annotations

from typing import TypeAlias, cast

from app.advice.evidence import reissue_json
from app.archive import record_store
from app.archive.nearness import near, same_device
from app.archive.schema import timed_candidates
from app.check.watch import judgement_json, plan, plan_json, weights
from app.errors import Problem, not_found
from app.objects.evidence import Figures
from app.objects.record import ArchiveRecord, Regression, Validation
from app.objects.task import ValidateTask
from app.requests import regions
from app.requests.state import ServerState
from app.storage import measurements
from app.trace_report.by_record import measurement_in

Measured: TypeAlias = Validation | ArchiveRecord
"""A validation of this server, or a record of the archive."""


def compare_with_previous(state: ServerState, validation_id: str) -> Regression:
    """The row of `tritonworthy watch` for a validation, of this server or of the archive: flipped, kept, unmeasured;
    None where there is nothing before it. 404; 409 while it is not done."""
    stored = state.store.validation(validation_id)
    validation: Measured | None = stored or regions.archive_record(state, validation_id)
    if validation is None:
        raise not_found("validation")
    if validation["state"] != "done":
        detail = f"The validation is {validation['state']}: only one that is done can be held to the one before it."
        raise Problem(409, "validation-not-done", "", detail)
    files = record_store.records(state.settings.records_dir, record_store.FOLDER)
    own = (
        measurements.earlier(state.store.database, validation)
        if validation.get("created_at") and validation["device"]
        else ()
    )
    record = before(validation, [*own, *files])
    now, name = validation["software"], validation["name"] or "region"
    again = plan(name, validation["region"], record, now, validation["device"])
    row = plan_json(again, now)
    advice_before = validation.get("advice_before")
    if record is None or not advice_before:
        return {**row, "action": "no-record", "because": _nothing(validation)}
    task = cast("ValidateTask | None", state.store.job_request(validation_id))
    share = task.get("share_of_step") if task else None
    advice = reissue_json(advice_before, measurement_in(record), share, state.settings.rule)
    return judgement_json(row, record, advice, validation)


def before(validation: Measured, records: list[ArchiveRecord]) -> ArchiveRecord | None:
    """The newest record of the same region, sizes and calls of each, on the same device, from before a validation, with
    times of the same tools; None for none.

    Of the archive's files only the day is known: those of the same day count as before what this server measured,
    unless they are that very measurement.
    """
    device = validation["device"]
    earlier = [r for r in records if device and r["id"] != validation["id"] and same_device(device, str(r["device"]))]
    earlier = [r for r in earlier if _is_earlier(r, validation) and _is_same(validation, r)]
    return max(earlier, key=lambda r: (r["date"], r.get("created_at") or ""), default=None)


def _is_earlier(record: ArchiveRecord, validation: Measured) -> bool:
    made, than = record.get("created_at"), validation.get("created_at")
    if made and than:
        return bool(made < than)
    if not than or record["date"] != validation["date"]:
        return bool(record["date"] < validation["date"])
    return bool(record["candidates"] != validation["candidates"])


def _is_same(validation: Measured, record: ArchiveRecord) -> bool:
    nearness = near(validation["region"], record)
    alike = nearness is not None and nearness.match == "same" and nearness.distance == 0
    return alike and _tools(record) == _tools(validation) and weights(record) == weights(validation)


def _tools(record: Figures) -> set[str]:
    """What was timed: a measurement of a part of the candidates says nothing about the others."""
    return {c["tool"] for c in timed_candidates(record)}


def _nothing(validation: Measured) -> str:
    if not validation["device"]:
        return "nothing was measured: there was no GPU"
    return f"no measurement of this region on {validation['device']} from before it"
