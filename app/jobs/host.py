"""HostFacts: what this machine can measure on, found once by a short child process and kept."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress

from app.errors import Problem
from app.objects.device import DeviceRow, HostDevice
from app.objects.task import Context
from kernels.host import PROBE_TIMEOUT_S, Host, probe_host, to_json
from profiler.hardware import DEVICES, Device, find_device

log = logging.getLogger("tritonworthy.host")

WAIT_S = 30.0
NO_GPU = "This host has no GPU that torch can use: advice and correctness work, times come from the archive."


class HostFacts:
    """Call it for the facts as GET /api/v1/device gives them; Problem 503 while they are not known."""

    def __init__(self) -> None:
        self.probe: Future[Host] = Future()

    def start(self) -> None:
        """Begin to look; returns at once."""
        threading.Thread(target=self._find, name="host", daemon=True).start()

    def _find(self) -> None:
        try:
            self.probe.set_result(probe_host())
        except InvalidStateError:  # the server stops
            return
        except Exception as error:
            log.exception("the host could not be probed")
            with suppress(InvalidStateError):
                self.probe.set_exception(error)

    def stop(self) -> None:
        """Whoever waits for the facts goes on without them."""
        with suppress(InvalidStateError):
            self.probe.set_exception(RuntimeError("the server stops"))

    def when_known(self, then: Callable[[Host], object]) -> None:
        """Do that once the host is known, unless it cannot be looked at."""

        def tell(host: Future[Host]) -> None:
            if host.exception() is None:
                then(host.result())

        self.probe.add_done_callback(tell)

    def __call__(self) -> HostDevice:
        try:
            return describe(self.probe.result(WAIT_S))
        except FutureTimeoutError:
            raise Problem(503, "host-unknown", "", "Still looking for a GPU. Try again in a moment.") from None

    def known(self) -> Host | None:
        """The host, without waiting; None while it is looked at, or where that failed."""
        done = self.probe.done() and self.probe.exception() is None
        return self.probe.result() if done else None

    def for_children(self) -> Context:
        """What jobs are told of the host, so that none has to look again; nothing where it is not known."""
        done, _ = wait([self.probe], PROBE_TIMEOUT_S)
        if not done or self.probe.exception() is not None:
            return {}
        return {"host": to_json(self.probe.result())}


def describe(host: Host) -> HostDevice:
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


def device_json(device: Device) -> DeviceRow:
    """One row of the device table with what estimates use of it."""
    return {
        "name": device.name,
        "arch": device.arch,
        "memory_bytes": device.memory_bytes,
        "memory_rate": device.memory_rate,
        "l2_bytes": device.l2_bytes,
        "processors": device.processors,
        "f32_rate": device.f32_rate,
        "tf32_rate": device.tf32_rate,
        "f16_rate": device.f16_rate,
        "bf16_rate": device.bf16_rate,
        "f8_rate": device.f8_rate,
        "source": device.source,
        "measured_copy_rate": device.measured_copy_rate,
        "measured_matmul_rate": device.measured_matmul_rate,
        "measured_source": device.measured_source,
        "copy_rate": device.copy_rate,
        "ceilings_measured": device.ceilings_measured,
    }
