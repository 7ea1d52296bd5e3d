"""Starter kits for the web: the one of a validation, made by a child of the pool, kept while it is looked at."""

from __future__ import annotations

import hashlib
import json

from app.errors import Problem
from app.lru_cache import Recent
from app.objects.record import ArchiveRecord, Validation
from app.requests.state import ServerState
from kernels.starter_kit.model import Kit

KEPT = 16
"""Kits of the last pages: the page and the download after it make it once."""

OF_THE_JOB = ("state", "progress", "error")
"""What of a stored validation says how its job went, and nothing of the region."""

_kits: Recent[Kit] = Recent(KEPT)


def kit_of(state: ServerState, validation: Validation | ArchiveRecord, candidate: str | None) -> Kit:
    """The kit of a validation. Raises Problem: 422 for a candidate that is no Triton kernel, 503 when busy."""
    measured = {k: v for k, v in validation.items() if k not in OF_THE_JOB}
    question = json.dumps([measured, candidate], sort_keys=True).encode()
    key = hashlib.sha256(question).hexdigest()
    try:
        return _kits.of(
            key, lambda: state.service.make_kit(validation["region"], candidate=candidate, validation=measured)
        )
    except KeyError:
        detail = f"There is no Triton candidate {str(candidate)[:80]!r}."
        raise Problem(422, "candidate-unknown", "", detail) from None
