"""The repository's own kernels in a check: each measured against its region, and whether it still pays.

For the command line alone: the files are the repository's and run with the rights of whoever checks it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.analysis.user_kernel import NamedKernel, UserKernelError, named_kernel, verdict_of
from app.check.config import Config, KernelCheck
from app.check.config_error import ConfigError
from app.check.finding import Finding, Unmeasured, digest
from app.check.subject import Subject
from app.objects.common import Progress, Range
from app.objects.kernel_verdict import KernelVerdict, Verdict
from app.objects.record import ValidationBody
from app.objects.task import ValidateTask
from app.thresholds import Thresholds
from profiler.hardware import find_device
from profiler.region.language.text import parse
from profiler.region.model import RegionError

if TYPE_CHECKING:
    from kernels.measure.processes.processes import ForkServer

Say = Callable[[Mapping[str, object]], None]

FAILS: Mapping[Verdict, tuple[str, str]] = {
    "delete": ("has stopped paying", "Delete it and call that, or tune it again"),
    "wrong": ("is wrong", "Mend it, or delete it"),
    "cheats": ("cheats", "Let it compute what it returns"),
    "crashed": ("crashed", "Mend it, or delete it"),
    "hung": ("hung", "Mend it, or delete it"),
}
"""Verdict -> (what is said of the kernel, what to do)."""


@dataclass(frozen=True, slots=True)
class NamedCheck:
    """A kernel of the configuration with its file and its region's text."""

    check: KernelCheck
    kernel: NamedKernel
    text: str


@dataclass(frozen=True, slots=True)
class JudgedKernel:
    """A kernel and what became of it. validation, verdict: None where it was not to be judged on this host's device, or
    where its region does not fit together, which `refused` tells.
    """

    named: NamedCheck
    validation: ValidationBody | None = None
    verdict: KernelVerdict | None = None
    refused: str = ""

    @property
    def subject(self) -> Subject:
        """What was checked, as a report lists it."""
        device = self.validation["device"] if self.validation else None
        region = Path(self.named.check.region).stem
        return Subject(self.named.check.name, "kernel", {"device": device, "regions": [{"name": region}]})


def named_checks(config: Config, folder: Path) -> list[NamedCheck]:
    """The kernels that are not off, their files found. Raises ConfigError before anything is measured."""
    return [
        _named(check, f"kernels.{number}", folder)
        for number, check in enumerate(config.kernels, 1)
        if check.level != "off"
    ]


def _named(check: KernelCheck, place: str, folder: Path) -> NamedCheck:
    try:
        kernel = named_kernel(check.kernel, folder)
    except UserKernelError as error:
        raise ConfigError(f"{place}.kernel", str(error)) from None
    try:
        text = (folder / check.region).read_text(encoding="utf-8")
        parse(text)
    except OSError as error:
        raise ConfigError(f"{place}.region", f"{check.region}: {error.strerror}") from None
    except (RegionError, ValueError) as error:
        raise ConfigError(f"{place}.region", f"{check.region}: {error}") from None
    return NamedCheck(check, kernel, text)


def measure_kernels(
    named: Sequence[NamedCheck], gpu: str | None, thresholds: Thresholds, budget_s: float, say: Say,
    cancelled: Callable[[], bool],
) -> list[JudgedKernel]:  # fmt: skip
    """Each measured by itself, among everything that its region can be run by.

    gpu: this host's. Where it is none of a kernel's devices, that kernel is left alone.
    """
    from app.analysis.validate import validate_region
    from kernels.measure.session import open_fork_server

    judged: list[JudgedKernel] = []
    with contextlib.ExitStack() as stack:
        fork_server: ForkServer | None = None
        for each in named:
            name, devices = each.check.name, each.check.devices
            if gpu is not None and devices and find_device(gpu) not in [find_device(d) for d in devices]:
                say({"phase": "measuring", "message": f"{name}: not on {gpu}, only on {', '.join(devices)}"})
                judged.append(JudgedKernel(each))
                continue

            def tell(progress: Progress, name: str = name) -> None:
                say({**progress, "phase": "measuring", "message": f"{name}: {progress.get('message') or ''}"})

            request: ValidateTask = {
                "region": each.text,
                "budget_s": budget_s,
                "thresholds": dataclasses.asdict(thresholds),
            }
            fork_server = fork_server or stack.enter_context(open_fork_server())
            try:
                validation = validate_region(
                    request, on_progress=tell, cancelled=cancelled, fork_server=fork_server, kernel=each.kernel.kernel
                )
            except RegionError as error:  # it parses, and its operations do not fit together: the others are measured
                judged.append(JudgedKernel(each, refused=f"{each.check.region}: {error}"))
                continue
            judged.append(JudgedKernel(each, validation, verdict_of(validation, thresholds)))
    return judged


def findings(judged: JudgedKernel) -> tuple[list[Finding], list[Unmeasured]]:
    """What a kernel's verdict is to the check."""
    check, verdict, validation = judged.named.check, judged.verdict, judged.validation
    region = Path(check.region).stem
    if judged.refused:
        return [], [Unmeasured(check.assertion, check.level, check.name, region, judged.refused)]
    if verdict is None or validation is None:
        return [], []
    if verdict["verdict"] == "unmeasured":
        return [], [Unmeasured(check.assertion, check.level, check.name, region, verdict["because"])]
    if verdict["verdict"] not in FAILS:
        return [], []
    said, action = FAILS[verdict["verdict"]]
    best = next((c for c in validation["candidates"] if c["name"] == verdict["against"]), None)
    ratio = verdict["ratio"]
    gain: Range | None = {"low": ratio["low"], "mid": ratio["median"], "high": ratio["high"]} if ratio else None
    place = digest(check.assertion, check.kernel)
    finding = Finding(
        assertion=check.assertion,
        check="kernel",
        level=check.level,
        subject=check.name,
        message=f"{check.name} ({check.kernel}) {said}: {verdict['because']}",
        region=region,
        source=judged.named.kernel.source,
        action=action,
        call=best["call"] if best else "",
        tool=best["tool"] if best and best["tool"] != "eager" else "",
        region_speedup=gain,
        evidence="measured" if validation["device"] else None,
        fingerprints={"place": place, "region": digest(check.assertion, check.kernel, judged.named.text)},
    )
    return [finding], []
