"""HostFacts: what this machine can measure on, found once by a short child process and kept."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Any

from app.errors import Problem
from kernels.host import PROBE_TIMEOUT_S, Host, probe_host, to_json
from profiler.hardware import DEVICES, Device, find_device

log = logging.getLogger("tritonworthy.host")

Json = dict[str, Any]

WAIT_S = 30.0
NO_GPU = "This host has no GPU that torch can use: advice and correctness work, times come from the archive."


class HostFacts:
    """Call it for the facts as GET /api/v1/device gives them; Problem 503 while they are not known."""

    def __init__(self) -> None:
        self.found: Future[Host] = Future()

    def start(self) -> None:
        """Begin to look; returns at once."""
        threading.Thread(target=self._find, name="host", daemon=True).start()

    def _find(self) -> None:
        try:
            self.found.set_result(probe_host())
        except InvalidStateError:  # the server stops
            return
        except Exception as error:
            log.exception("the host could not be probed")
            with suppress(InvalidStateError):
                self.found.set_exception(error)

    def stop(self) -> None:
        """Whoever waits for the facts goes on without them."""
        with suppress(InvalidStateError):
            self.found.set_exception(RuntimeError("the server stops"))

    def when_known(self, then: Callable[[Host], object]) -> None:
        """Do that once the host is known, unless it cannot be looked at."""

        def tell(found: Future[Host]) -> None:
            if found.exception() is None:
                then(found.result())

        self.found.add_done_callback(tell)

    def __call__(self) -> Json:
        try:
            return describe(self.found.result(WAIT_S))
        except FutureTimeoutError:
            raise Problem(503, "host-unknown", "", "Still looking for a GPU. Try again in a moment.") from None

    def known(self) -> Host | None:
        """The host, without waiting; None while it is looked at, or where that failed."""
        done = self.found.done() and self.found.exception() is None
        return self.found.result() if done else None

    def for_children(self) -> Json:
        """What jobs are told of the host, so that none has to look again; nothing where it is not known."""
        done, _ = wait([self.found], PROBE_TIMEOUT_S)
        if not done or self.found.exception() is not None:
            return {}
        return {"host": to_json(self.found.result())}


def describe(host: Host) -> Json:
    """The API's device object: the host, its entry in the table, and the whole table."""
    entry = find_device(host.gpu)
    return {
        "gpu": host.gpu,
        "capability": None if host.capability is None else f"{host.capability[0]}.{host.capability[1]}",
        "versions": dict(host.versions),
        "packages": sorted(host.packages),
        "note": host.note or ("" if host.gpu else NO_GPU),
        "known": None if entry is None else device_json(entry),
        "devices": [device_json(device) for device in DEVICES],
    }


def device_json(device: Device) -> Json:
    """One row of the device table with what estimates use of it."""
    body = {k: v for k, v in dataclasses.asdict(device).items() if k != "matches"}
    return body | {"copy_rate": device.copy_rate, "ceilings_measured": device.ceilings_measured}
