"""Which of many regions the archive has a measurement of, for the list of a trace's."""

from __future__ import annotations

from collections.abc import Iterable

from app.archive import nearness, record_store
from app.requests.state import ServerState
from app.storage import measurements


def recorded_devices(state: ServerState, texts: Iterable[str]) -> dict[str, str]:
    """Text -> the device of its nearest record, for those with one at the same sizes. state: the app's."""
    host = state.host.known()
    device, torch = (host.gpu, host.versions.get("torch")) if host else (None, None)
    wanted = list(dict.fromkeys(texts))
    files = record_store.records(state.settings.records_dir, record_store.FOLDER)
    records = (*measurements.records(state.store.database, wanted), *files)
    devices = {}
    for text in wanted:
        nearest = nearness.choose(text, records, device, torch)
        if nearest is not None and nearest[1].match != "other-sizes":
            devices[text] = str(nearest[0]["device"])
    return devices
