"""One validation in a store, for tests that need a job."""

from __future__ import annotations

from typing import Any

from app.storage.store import Asked, Store


def add_validation(store: Store, *, cap: int, reuse: bool = False, **asked: Any) -> tuple[str, bool]:
    """Its id and whether it is new, as `Store.add_validations` says it of many."""
    return store.add_validations([Asked(**asked)], cap=cap, reuse=reuse)[0]
