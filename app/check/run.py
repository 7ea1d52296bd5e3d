"""A check from a plain request to its report: reads traces, advises on texts, measures where asked, then judges.

For the job's child and for the command line: imports neither web nor database.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias, cast

from app.analysis.device_choice import DeviceUnknownError
from app.analysis.region_failed import DEFECT, in_words
from app.archive import record_store
from app.check.config import Assertion, Config, from_mapping
from app.check.contracts.ask import named_contracts
from app.check.contracts.lock import Lock
from app.check.contracts.run import ON_A_SERVER, ContractOptions, contract_lock, judge_contracts
from app.check.history import Past
from app.check.judge import judge
from app.check.kernels import measure_kernels, named_checks
from app.check.regions import may_fire
from app.check.subject import Subject, evidence_of, slim, slim_region
from app.objects.advice import Advice
from app.objects.check import Report
from app.objects.evidence import Evidence
from app.objects.record import ValidationBody
from app.objects.region import RegionBody, SlimRegion
from app.objects.task import CheckSource, CheckTask, ValidateTask
from app.thresholds import Thresholds
from app.trace_report.by_record import by_measurement
from profiler.child.limits import Limits
from profiler.hardware import find_device
from profiler.region.model import RegionError
from profiler.trace.errors import TraceError
from profiler.trace.read.members import is_no_text

log = logging.getLogger("tritonworthy.check")

Say = Callable[[Mapping[str, object]], None]
"""Told how far the check is: phase, message, fraction, candidate, where they are known."""

Measured: TypeAlias = ValidationBody | str
"""What a measurement gave, or why nothing was measured."""

Validate = Callable[[SlimRegion], Measured]

MAX_VALIDATIONS = 16
"""Regions that one check measures, those of the largest share first."""
TOO_MANY = f"a check measures at most {MAX_VALIDATIONS} regions: name the region, or raise min_share"
NO_TEXT = "the trace does not say enough to write this region down, so it cannot be measured"

TRACE_SUFFIXES = (".json", ".gz")


def is_trace(path: Path) -> bool:
    """By name, or by its first bytes: a region's text begins with a letter or a comment. OSError."""
    return path.suffix.lower() in TRACE_SUFFIXES or is_no_text(path)


def check(
    request: CheckTask, *, on_progress: Say = lambda _: None, cancelled: Callable[[], bool] = lambda: False
) -> Report:  # fmt: skip
    """`check_config` of a request that has its configuration in it, see `config.from_mapping`."""
    return check_config(from_mapping(request["config"]), request, on_progress=on_progress, cancelled=cancelled)


def check_config(
    config: Config,
    request: CheckTask,
    *,
    folder: Path | None = None,
    contract_options: ContractOptions = ON_A_SERVER,
    on_progress: Say = lambda _: None,
    cancelled: Callable[[], bool] = lambda: False,
    past: Past | None = None,
) -> Report:
    """The report, as `judge` makes it. folder: of the configuration's file, where kernels are named in it. past: the
    runs that the assertion `history` goes by.

    Raises ConfigError for kernels and contracts whose files are not there, RegionError for a text that cannot be read,
    DeviceUnknownError; OSError and LockUnwritableError for the lock of contracts. A trace that cannot be read makes its
    subject unmeasured.
    """
    thresholds = Thresholds.from_mapping(request.get("thresholds") or {})
    kernels = named_checks(config, folder) if folder is not None else []
    contracts = named_contracts(config.contracts, contract_options.folder)
    lock = contract_lock(contract_options) if contracts else Lock()
    before = request.get("baseline")
    sources = [*request["sources"], *([before] if before else [])]
    limits = Limits(**request["region_limits"]) if request.get("region_limits") else None
    folders = tuple(Path(folder) for folder in request.get("archives") or ())
    subjects = []
    for number, source in enumerate(sources):
        phase = "reading" if "path" in source else "advising"
        on_progress({"phase": phase, "message": source["name"], "fraction": number / (2 * len(sources))})
        subjects.append(read(source, config, thresholds, request.get("max_uncompressed_bytes"), limits, folders))
    baseline = subjects.pop() if before else None
    subjects = told_apart(subjects)
    subjects = [_add_records(subject, config, folders, thresholds) for subject in subjects]
    if config.validate:
        subjects = measure_regions(subjects, config, _validator(config, thresholds, on_progress, cancelled))
    judged = []
    if kernels:
        judged = measure_kernels(kernels, _gpu(), thresholds, config.budget_s, on_progress, cancelled)
    kept = []
    if contracts:
        kept = judge_contracts(contracts, contract_options, config.device, subjects, lock, on_progress, cancelled)
    on_progress({"phase": "judging", "fraction": 1.0})
    return judge(config, subjects, baseline, judged, kept, past)


def told_apart(subjects: Sequence[Subject]) -> list[Subject]:
    """Subjects of one name numbered from the second on: findings, and the cases of reports, go by it."""
    named: list[Subject] = []
    names = {subject.name for subject in subjects}
    taken: set[str] = set()
    for subject in subjects:
        name, number = subject.name, 1
        while name in taken or (number > 1 and name in names):
            number += 1
            name = f"{subject.name} ({number})"
        taken.add(name)
        named.append(replace(subject, name=name))
    return named


def read(
    source: CheckSource,
    config: Config,
    thresholds: Thresholds,
    max_bytes: int | None = None,
    limits: Limits | None = None,
    folders: Sequence[Path] = (),
) -> Subject:
    """A source as a subject, a trace by the records of these folders. Raises RegionError, DeviceUnknownError."""
    name = source["name"]
    if "trace" in source:
        return Subject(name, "trace", slim(source["trace"]))
    if "region" in source:
        return _alone(name, source["region"])
    if "text" in source:
        return _region(name, source["text"], config, thresholds)
    from app.trace_report.by_record import from_folders
    from app.trace_report.report import REGION_LIMITS, report

    try:
        trace = report(
            source["path"], name, max_bytes, thresholds=thresholds, what_if=config.device,
            limits=limits or REGION_LIMITS,
        )  # fmt: skip
        return Subject(name, "trace", slim(from_folders(trace, folders, thresholds)))
    except TraceError as error:
        return Subject(name, "trace", error=f"{error.message} {error.remedy}".strip())
    except (DeviceUnknownError, MemoryError):
        raise
    except Exception as fault:
        return _unread(name, "trace", fault)


def _unread(name: str, kind: Literal["trace", "region"], fault: Exception) -> Subject:
    """A defect costs the check one subject, which is then not measured: it says nothing for or against it."""
    log.exception("%s could not be checked", name)
    return Subject(name, kind, error=f"{in_words(fault)}; {DEFECT.format(what='the file')}")


def _region(name: str, text: str, config: Config, thresholds: Thresholds) -> Subject:
    from app.analysis import service

    try:
        region = service.advise_region(
            text,
            name=Path(name).stem,
            share_of_step=config.share_of_step,
            step_time_us=config.step_time_us,
            target_step_time_us=config.target_step_time_us,
            device=config.device,
            thresholds=thresholds,
        )
    except (RegionError, DeviceUnknownError, MemoryError):
        raise
    except Exception as fault:
        return _unread(name, "region", fault)
    return _alone(name, region)


def _alone(name: str, region: RegionBody | SlimRegion) -> Subject:
    advice = region.get("advice")
    device = advice["device"] if advice else None
    return Subject(name, "region", {"device": device, "regions": [slim_region(region)]})


# ------------------------------------------------------------------------------------------------------------ evidence


def _add_records(subject: Subject, config: Config, folders: Sequence[Path], thresholds: Thresholds) -> Subject:
    """Advice issued again with what the Archive has of the same region on the same device, where that matters."""
    if not folders or subject.error:
        return subject
    matters = [a for a in config.active if a.evidence == "recorded" or a.check == "beats"]
    regions = [
        _with_record(r, folders, thresholds) if any(_wants(a, r) for a in matters) else r for r in subject.regions
    ]
    return replace(subject, body={**subject.body, "regions": regions})


def _wants(assertion: Assertion, region: SlimRegion) -> bool:
    return bool(region.get("text")) and may_fire(replace(assertion, evidence="measured"), region)


def _with_record(region: SlimRegion, folders: Sequence[Path], thresholds: Thresholds) -> SlimRegion:
    advice, text = region.get("advice"), region.get("text")
    if not advice or not text or evidence_of(region) != "predicted":
        return region
    record = record_store.nearest(text, *folders, device=advice["device"] or None)
    issued, _ = by_measurement(region, advice, record, thresholds)
    return {**region, "advice": issued}


def measure_regions(subjects: Sequence[Subject], config: Config, validate: Validate) -> list[Subject]:
    """The subjects with what `validate` measures of the regions that an assertion wants measured.

    validate: never raises for a lack of a GPU.
    """
    wanted = [
        (-(region.get("share_of_step") or 1.0), number, place, region)
        for number, subject in enumerate(subjects)
        for place, region in enumerate(subject.regions)
        if evidence_of(region) != "measured" and any(may_fire(a, region) for a in config.active)
    ]
    results = [(list(s.regions), dict(s.unmeasured)) for s in subjects]
    done = 0
    for _, number, place, region in sorted(wanted, key=lambda w: w[:3]):
        regions, unmeasured = results[number]
        if not region.get("text"):
            unmeasured[place] = NO_TEXT
        elif done == MAX_VALIDATIONS:
            unmeasured[place] = TOO_MANY
        else:
            done += 1
            measured = validate(region)
            if isinstance(measured, str):
                unmeasured[place] = measured
            elif measured["outcome"] == "unmeasured":
                unmeasured[place] = measured["reason"]
            else:
                regions[place] = {**region, "advice": _reissue(region, measured)}
    return [
        replace(s, body={**s.body, "regions": regions} if regions else s.body, unmeasured=unmeasured)
        for s, (regions, unmeasured) in zip(subjects, results, strict=True)
    ]


def _reissue(region: SlimRegion, validation: ValidationBody) -> Advice:
    """The advice after a measurement, carrying it."""
    advice = validation.get("advice_after") or region["advice"]
    assert advice is not None  # only regions with advice are measured
    held = {k: v for k, v in validation.items() if k not in ("advice_before", "advice_after")}
    evidence = cast("Evidence", {**held, **(advice.get("validation") or {})})
    return {**advice, "validation": evidence}


def _validator(config: Config, thresholds: Thresholds, say: Say, cancelled: Callable[[], bool]) -> Validate:
    from app.analysis.validate import validate_region

    def validate(region: SlimRegion) -> Measured:
        text, advice = region["text"], region["advice"]
        assert text is not None  # without one nothing is measured
        request: ValidateTask = {
            "region": text,
            "shapes": region.get("shapes"),
            "budget_s": config.budget_s,
            "share_of_step": region.get("share_of_step"),
            "advice_before": advice,
            "thresholds": dataclasses.asdict(thresholds),
        }
        asked = find_device(config.device or (advice["device"] if advice else None))
        here = _gpu()
        if here is None:
            return "this host has no GPU that torch can use"
        if asked is not None and find_device(here) != asked:
            return f"the advice is for {asked.name}, and this host has {here}"

        def tell(progress: Mapping[str, object]) -> None:
            say({**progress, "phase": "measuring", "message": f"{region['name']}: {progress.get('message') or ''}"})

        return validate_region(request, on_progress=tell, cancelled=cancelled)

    return validate


def _gpu() -> str | None:
    from kernels.host import probe_host

    return probe_host().gpu
