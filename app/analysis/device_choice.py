"""Which device of the table estimates are for, where the request, the trace and the host may each name one."""

from __future__ import annotations

from collections.abc import Iterable

from profiler.hardware import DEFAULT_DEVICE, DEVICES, Device, find_device

CHOSEN = ": estimates are for "
"""Every note on a choice of device has it."""


def without_choice(notes: Iterable[str]) -> tuple[str, ...]:
    """The notes but for one on how a device was chosen: where the device is known by itself."""
    return tuple(note for note in notes if CHOSEN not in note)


class DeviceUnknownError(ValueError):
    """A device that the table does not have."""

    code = "device-unknown"

    def __init__(self, name: str) -> None:
        known = ", ".join(d.name for d in DEVICES)
        self.message = f"no figures for a device called {name[:80]!r}"
        self.remedy = f"known devices: {known}"
        super().__init__(self.message)


def choose_device(wanted: str | None, seen: str | None) -> tuple[Device, str]:
    """(device of the estimates, note): the one asked for, else the one seen, else the host's, else the default."""
    if wanted:
        named = find_device(wanted)
        if named is None:
            raise DeviceUnknownError(wanted)
        return named, ""
    if seen:
        recorded = find_device(seen)
        if recorded is not None:
            return recorded, ""
        default = find_device(DEFAULT_DEVICE)
        assert default is not None
        return default, f"no figures for {seen}{CHOSEN}{default.name}"
    from kernels.host import probe_host

    here = find_device(probe_host().gpu)
    if here is not None:
        return here, ""
    default = find_device(DEFAULT_DEVICE)
    assert default is not None
    return default, f"no device was named and this host has no GPU{CHOSEN}{default.name}"
