"""What WebState declares, create_app has to set: mypy takes the one for the other by a cast, and sees no gap."""

from __future__ import annotations

from pathlib import Path
from typing import get_type_hints

from app.main import create_app
from app.settings import Settings
from app.web.server.state import WebState


def test_a_declared_part_of_the_state_that_is_not_set(tmp_path: Path) -> None:
    state = create_app(Settings(data_dir=tmp_path)).state
    declared = get_type_hints(WebState)
    assert {"store", "queue", "health"} <= set(declared)
    assert [name for name in declared if not hasattr(state, name)] == []
    state.store.close()
