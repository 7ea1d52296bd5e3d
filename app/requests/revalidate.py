"""Asking for a validation once more: the same region, sizes, candidates and device. Raises Problem."""

from __future__ import annotations

from typing import cast

from app.errors import not_found
from app.objects.job import Job
from app.objects.task import ValidateTask
from app.requests import regions
from app.requests.state import ServerState


def validate_again(state: ServerState, validation_id: str) -> Job:
    """Queue what a validation of this host was asked to do: the new job. 404 for an unknown one, or a record."""
    validation = state.store.validation(validation_id)
    request = cast("ValidateTask | None", state.store.job_request(validation_id))
    if validation is None or request is None:
        raise not_found("validation")
    region_id = validation.get("region_id")
    stored = state.store.region(region_id) if region_id else None
    own = stored is not None and (stored["text"] or "").split() == request["region"].split()
    sizes: list[dict[str, float]] = [
        {**s["binding"], "calls": s["calls"]} for s in request.get("shapes") or () if s.get("binding")
    ]
    job, _ = regions.submit_validation(
        state,
        region=None if own else request["region"],
        region_id=region_id if own else None,
        shapes=sizes or None if not own else None,
        candidates=request.get("candidates"),
        device=[named] if (named := request.get("on") or request.get("device")) else None,
    )
    return job
