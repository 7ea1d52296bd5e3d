"""Starter kits for the web: the one of a validation, made in the thread that has torch, kept while it is looked at."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from typing import Any

from app.web.problems import Problem
from kernels.takehome.model import Kit

Json = dict[str, Any]

KEPT = 16
"""Kits of the last pages: the page and the download after it make it once."""

OF_THE_JOB = ("state", "progress", "error")
"""What of a stored validation says how its job went, and nothing of the region."""

_kits: OrderedDict[str, Kit] = OrderedDict()
_lock = threading.Lock()


def kit_of(state: Any, validation: Json, candidate: str | None) -> Kit:
    """The kit of a validation. Raises Problem: 422 for a candidate that is no Triton kernel, 503 when busy."""
    validation = {k: v for k, v in validation.items() if k not in OF_THE_JOB}
    asked = json.dumps([validation, candidate], sort_keys=True).encode()
    key = hashlib.sha256(asked).hexdigest()
    with _lock:
        if key in _kits:
            _kits.move_to_end(key)
            return _kits[key]
    try:
        made: Kit = state.service.make_kit(validation["region"], candidate=candidate, validation=validation)
    except KeyError:
        detail = f"There is no Triton candidate {str(candidate)[:80]!r}."
        raise Problem(422, "candidate-unknown", "", detail) from None
    with _lock:
        _kits[key] = made
        while len(_kits) > KEPT:
            _kits.popitem(last=False)
    return made
