"""The GPU's state around a measurement, read only: clocks, temperature, power, throttling, who else is on it.

NVML by its Python binding where that is installed, else nvidia-smi; {} where neither is there. No setting is changed.
"""

from __future__ import annotations

import functools
import importlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, cast

THROTTLE_BITS: Mapping[int, str] = {
    0x1: "idle", 0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost",
    0x20: "thermal (software)", 0x40: "thermal (hardware)", 0x80: "power brake", 0x100: "display clocks",
}  # fmt: skip
"""nvmlClocksEventReasons, NVML API reference."""
SLOWING = frozenset({"power cap", "hardware slowdown", "thermal (software)", "thermal (hardware)", "power brake"})
DISTRUSTED = SLOWING - {"power cap"}
"""Reasons that no healthy card has under load. A power cap is the steady state of large matrix products."""
STEADY_SHARE = 0.75
"""Below this share of the highest clock a measurement under load is not to be trusted (NVBench's threshold)."""

MOST_BAD_SHARE = 0.4  # of the rounds; more of them and the machine is not fit
SHARED_SCATTER = 0.1
"""Next to another process, rounds of even the steadiest candidate that scatter by more say nothing."""

QUERY: Mapping[str, str] = {
    "clocks.sm": "sm_clock_mhz", "clocks.mem": "memory_clock_mhz", "clocks.max.sm": "sm_clock_max_mhz",
    "temperature.gpu": "temperature_c", "power.draw": "power_w", "power.limit": "power_limit_w",
    "memory.used": "memory_used_mib", "clocks_throttle_reasons.active": "throttle",
}  # fmt: skip


class Reading(TypedDict, total=False):
    """What the GPU said of itself; a figure that it does not tell is left out. throttle: reasons, by THROTTLE_BITS.

    other_processes: None where it cannot be told.
    """

    sm_clock_mhz: float
    memory_clock_mhz: float
    sm_clock_max_mhz: float
    temperature_c: float
    power_w: float
    power_limit_w: float
    memory_used_mib: float
    throttle: list[str]
    other_processes: int | None


class RoundReading(Reading, total=False):
    """A reading between rounds. rounds: so many were done."""

    rounds: int


class Conditions(TypedDict, total=False):
    """Under which conditions was measured, as a validation keeps it: the GPU's own figures come to it at the end.

    phases_s, prepare_s: seconds by phase, and by candidate and what they were spent on. decided_by: "device time" or
    "wall time". unlocked: why other validations were not kept off the GPU.
    """

    phases_s: dict[str, float]
    prepare_s: dict[str, dict[str, float]]
    before: Reading
    after: Reading
    during: list[RoundReading]
    rounds: int
    order_seed: int
    decided_by: str
    launch_bound: bool | None
    warnings: list[str]
    unlocked: str


def read(index: int = 0, ours: Sequence[int] = ()) -> Reading:
    """One reading, {} where nothing can be asked. ours: process ids that are not to be counted as others."""
    reading = _by_nvml(index, ours)
    return reading if reading is not None else _by_smi(index, ours)


@functools.cache
def _nvml() -> Any | None:
    """NVML, ready for as long as this process lives: to begin it anew takes longer than a round of a measurement."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except (ImportError, OSError, AttributeError):
        return None
    except Exception as fault:  # NVMLError has no stable base outside the module
        if type(fault).__module__ != "pynvml":
            raise
        return None
    return nvml


def card_of(index: int = 0) -> str:
    """The card's UUID as torch names it, by which `gpu_lock` tells cards apart; "" where NVML is not there."""
    nvml = _nvml()
    if nvml is None:
        return ""
    try:
        uuid = nvml.nvmlDeviceGetUUID(_handle(nvml, index))
    except nvml.NVMLError:
        return ""
    return (uuid.decode() if isinstance(uuid, bytes) else str(uuid)).removeprefix("GPU-")


def _handle(nvml: Any, index: int) -> Any:
    card = _physical(index)
    return nvml.nvmlDeviceGetHandleByIndex(card) if isinstance(card, int) else nvml.nvmlDeviceGetHandleByUUID(card)


def _by_nvml(index: int, ours: Sequence[int]) -> Reading | None:
    nvml = _nvml()
    if nvml is None:
        return None
    try:
        handle = _handle(nvml, index)
        calls: dict[str, Callable[[], object]] = {
            "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "sm_clock_max_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
            "memory_used_mib": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used // 2**20,
            "throttle": lambda: throttle_reasons(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
            "other_processes": lambda: others({p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}, ours),
        }
        reading: dict[str, object] = {}
        for key, call in calls.items():
            try:
                reading[key] = call()
            except (nvml.NVMLError, AttributeError):  # not every driver, binding or card answers everything
                continue
        return cast(Reading, reading)
    except nvml.NVMLError:
        return None


def _by_smi(index: int, ours: Sequence[int]) -> Reading:
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    lines = _run(
        [program, f"--id={_physical(index)}", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"]
    )
    if not lines:
        return {}
    reading = smi_row(lines[0])
    apps = _run([program, f"--id={_physical(index)}", "--query-compute-apps=pid", "--format=csv,noheader"])
    if apps is not None:
        reading["other_processes"] = others({int(a) for a in apps if a.strip().isdigit()}, ours)
    return reading


def smi_row(line: str) -> Reading:
    """One row of `nvidia-smi --query-gpu` over QUERY; fields that say [N/A] are left out."""
    reading: dict[str, object] = {}
    for key, text in zip(QUERY.values(), (part.strip() for part in line.split(",")), strict=False):
        try:
            reading[key] = throttle_reasons(int(text, 16)) if key == "throttle" else float(text)
        except ValueError:
            continue
    return cast(Reading, reading)


def _run(command: Sequence[str]) -> list[str] | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.splitlines() if done.returncode == 0 else None


def others(seen: set[int], ours: Sequence[int]) -> int:
    """How many of the processes on the GPU are not ours.

    In a container the driver may tell the host's ids, none of which is ours: then as many as we have are taken off.
    """
    return len(seen - set(ours)) if seen & set(ours) else max(0, len(seen) - len(ours))


def throttle_reasons(bits: int) -> list[str]:
    """Names of the set bits, without "idle", which only says that nothing ran."""
    return [name for bit, name in THROTTLE_BITS.items() if bits & bit and name != "idle"]


def _physical(index: int) -> int | str:
    """The GPU that CUDA calls `index` here: its index among all, or its UUID where the environment names it so."""
    visible = [v.strip() for v in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if v.strip()]
    if index >= len(visible):
        return index
    device = visible[index]
    return int(device) if device.isascii() and device.isdigit() else device


def warnings(before: Reading, after: Reading) -> list[str]:
    """What a reader should know before trusting the times. `after` is read while the GPU is still under clocks."""
    texts = []
    slowed = sorted(SLOWING & set(after.get("throttle", ())))
    if slowed:
        texts.append(f"the GPU was slowed during the measurement: {', '.join(slowed)}")
    clock, most = after.get("sm_clock_mhz"), after.get("sm_clock_max_mhz")
    if clock and most and clock < STEADY_SHARE * most:
        texts.append(f"the clock stood at {clock:.0f} of {most:.0f} MHz")
    others = max(before.get("other_processes") or 0, after.get("other_processes") or 0)
    if others:
        texts.append(f"{others} other process{'es' if others > 1 else ''} on the GPU: times may be too long")
    return texts


@dataclass(frozen=True, slots=True)
class Fitness:
    """bad: numbers of the rounds to leave out. reason: why nothing can be measured here, "" where it can."""

    bad: frozenset[int] = frozenset()
    reason: str = ""
    warnings: tuple[str, ...] = ()


def slowed(reading: Reading) -> str:
    """Why times at this reading are not to be trusted, "" where they are."""
    throttle = set(reading.get("throttle", ()))
    if reasons := sorted(DISTRUSTED & throttle):
        return f"the GPU was slowed ({', '.join(reasons)})"
    clock, most = reading.get("sm_clock_mhz"), reading.get("sm_clock_max_mhz")
    if clock and most and clock < STEADY_SHARE * most and "power cap" not in throttle:
        return f"the GPU's clock stood at {clock:.0f} of {most:.0f} MHz"
    return ""


def fitness(readings: Sequence[tuple[int, Reading]], rounds: int, steadiest: float | None) -> Fitness:
    """Which rounds to leave out, and whether the rest is enough.

    readings: (rounds done by then, reading), in order; one stands for the rounds since the one before. steadiest: the
    least scatter of any candidate's rounds (interquartile range over median).
    """
    bad: set[int] = set()
    whys: list[str] = []
    done, others = 0, 0
    for until, reading in readings:
        others = max(others, reading.get("other_processes") or 0)
        if until > done and (why := slowed(reading)):
            bad |= set(range(done, until))
            whys.append(why)
        done = max(done, until)
    if rounds and len(bad) > MOST_BAD_SHARE * rounds:
        return Fitness(frozenset(bad), f"{whys[0]} in {len(bad)} of {rounds} rounds")
    if others and steadiest is not None and steadiest > SHARED_SCATTER:
        many = "another process was" if others == 1 else f"{others} other processes were"
        share = f"even the steadiest candidate's times scatter by {100 * steadiest:.0f} %"
        return Fitness(frozenset(bad), f"{many} on the GPU and {share}")
    left_out = f"{len(bad)} of {rounds} rounds were left out: {whys[0]}" if bad else ""
    return Fitness(frozenset(bad), "", (left_out,) if left_out else ())


def gpu_present() -> bool:
    """Whether the host seems to have a GPU, by its device files; not where CUDA_VISIBLE_DEVICES hides all."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "unset").strip() in ("", "-1"):
        return False
    return any(os.path.exists(p) for p in ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd"))
