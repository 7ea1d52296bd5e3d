"""Asking for an autotune landscape of a validation's candidate, once for API and forms. Raises Problem."""

from __future__ import annotations

from typing import cast

from app.analysis.landscape import BUDGET_S
from app.errors import Problem, not_found, queue_full
from app.objects.common import Binding
from app.objects.evidence import Figures
from app.objects.job import Job
from app.objects.record import ArchiveRecord, Validation
from app.objects.task import LandscapeTask, ValidateTask
from app.requests import targets
from app.requests.state import ServerState
from app.storage import job_table, landscapes
from kernels.measure.model import is_users_kernel

RIGHT = ("ok", "correct")
"""What became of a candidate whose kernel is worth a look."""


def submit_landscape(
    state: ServerState, validation_id: str, *, candidate: str, shape: int = 0, budget_s: float | None = None
) -> Job:
    """Queue the landscape of a Triton candidate at one of the validation's shapes: the job. 409 without a GPU."""
    validation = state.store.validation(validation_id)
    if validation is None:
        raise not_found("validation")
    known = triton_candidates(validation)
    if candidate not in known:
        listed = ", ".join(known) or "none was measured"
        detail = f"{candidate[:80]!r} is no Triton candidate of this validation that was right. There are: {listed}."
        raise Problem(422, "candidate-unknown", "", detail, known=known)
    shapes = shapes_of(state, validation)
    if not 0 <= shape < len(shapes):
        raise Problem(422, "invalid-request", "", f"`shape` is a number from 0 to {len(shapes) - 1}.")
    if not targets.measures(state):
        raise Problem(
            409, "needs-gpu", "", "An autotune landscape is measured, and that needs a GPU. This server has none."
        )
    target = targets.of_names(state, None, validation.get("device"))[0]
    request: LandscapeTask = {
        "region": validation["region"],
        "candidate": candidate,
        "binding": shapes[shape],
        "budget_s": BUDGET_S if budget_s is None else budget_s,
    }
    if target.on:
        request["on"] = target.on
    try:
        landscape_id = landscapes.add(
            state.store.database, validation_id=validation_id, candidate=candidate, binding=shapes[shape],
            request=request, cap=state.settings.queue_cap,
        )  # fmt: skip
    except job_table.QueueFullError:
        raise queue_full() from None
    state.queue.wake("landscape")
    job = state.store.job(landscape_id)
    assert job is not None  # added just now, and never removed
    return job


def triton_candidates(validation: Figures) -> list[str]:
    """The Triton candidates of a validation that were right, by name."""
    candidates = validation.get("candidates") or ()
    right = [c["name"] for c in candidates if c["tool"] == "triton" and c["status"] in RIGHT]
    return [name for name in right if not is_users_kernel(name)]


def shapes_of(state: ServerState, validation: Validation | ArchiveRecord) -> list[Binding]:
    """The bindings that were measured, each {symbol: size}; one empty one where nothing varies."""
    request = cast("ValidateTask | None", state.store.job_request(validation["id"]))
    shapes = (request.get("shapes") if request else None) or []
    return [dict(shape["binding"]) for shape in shapes] or [{}]
