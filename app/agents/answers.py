"""What the tools answer: each question of an agent to a brief. Imports torch when asked; one question at a time."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from app.agents.brief.kernel import NoKernelError, explain_kernel
from app.agents.brief.region import region_brief
from app.agents.brief.trace import trace_brief
from app.agents.brief.validation import validation_brief
from app.agents.errors import AgentError
from app.agents.folder import Folder
from app.agents.module import predicted, request_of
from app.agents.questions import (
    AdviseModule,
    AdviseRegion,
    AdviseTrace,
    ExplainKernel,
    Question,
    RegionText,
    Validate,
)
from app.agents.tell import Tell, part_of
from app.analysis.own_oracle import start_oracle
from app.check.safe import visible
from app.objects.brief import AnyBrief, Brief, BriefValidation, KernelExplained
from app.objects.trace import OracleProgress, TraceBody
from app.program.named import words_of
from app.thresholds import ThresholdError, thresholds_in_force

if TYPE_CHECKING:
    from app.objects.record import NamedValidation
    from app.objects.region import RegionBody
    from app.objects.task import ValidateTask
    from app.trace_report.report import Whole

LONGEST_TEXT = 100_000
READ, ADVISED, RECORDED = 0.2, 0.6, 0.4
"""Share of the work that is done once a trace is read, once its regions have advice by rules, once a program is
recorded."""
REGION_FILE = "REGION.txt"
"""Stands in commands for a text that was given itself."""


def answer(question: Question, folder: Folder, tell: Tell) -> AnyBrief:
    """The answer within its bound. Raises AgentError where there is none."""
    try:
        match question["tool"]:
            case "advise_trace":
                return _advise_trace(question, folder, tell)
            case "advise_module":
                return _advise_module(question, folder, tell)
            case "advise_region":
                return _advise_region(question, folder)
            case "validate":
                return _validate(question, folder, tell)
            case "explain_kernel":
                return _explain(question, folder, tell)
            case _:
                assert_never(question)
    except ThresholdError as error:
        raise AgentError(str(error)) from None


def _advise_trace(question: AdviseTrace, folder: Folder, tell: Tell) -> Brief:
    path = folder.file(question["path"])
    whole = _read(
        path, tell, companion=_optional(folder, question["companion"]), device=question["device"],
        execution=_optional(folder, question["execution_trace"]), share=ADVISED if question["inductor"] else 1.0,
    )  # fmt: skip
    return trace_brief(_finished(whole, question["inductor"], tell), folder.shown(path))


def _advise_module(question: AdviseModule, folder: Folder, tell: Tell) -> Brief:
    request = request_of(question, folder)
    later = part_of(tell, RECORDED, 1 - RECORDED)
    with predicted(question, request, part_of(tell, 0.0, RECORDED)) as path:
        whole = _read(path, later, share=ADVISED if question["inductor"] else 1.0)
        trace = _finished(whole, question["inductor"], later)
    return trace_brief(trace, "", program=words_of(request, question["device"]))


def _explain(question: ExplainKernel, folder: Folder, tell: Tell) -> KernelExplained:
    path = folder.file(question["path"])
    trace = _finished(_read(path, tell), False, tell)
    try:
        return explain_kernel(trace, question["name"], folder.shown(path))
    except NoKernelError as error:
        raise AgentError(str(error)) from None


def _optional(folder: Folder, given: str | None) -> Path | None:
    return folder.file(given) if given else None


def _read(
    path: Path, tell: Tell, *, companion: Path | None = None, execution: Path | None = None, device: str | None = None,
    share: float = 1.0,
) -> Whole:  # fmt: skip
    """A trace with its regions and their advice by rules. share: of the whole work that this is."""
    from app.analysis.device_choice import DeviceUnknownError
    from app.trace_report import report
    from app.trace_report.companions import Companion
    from profiler.trace.errors import TraceError

    tell(0.0, f"reading {path.name}")
    lent, observed = (Companion(file, file.name) if file else None for file in (companion, execution))
    whole: Whole | None = None
    try:
        done, regions = 0, 1
        for stage in report.stages(
            path, path.name, companion=lent, execution=observed, thresholds=thresholds_in_force(), what_if=device
        ):
            if isinstance(stage, report.Parts):
                regions = max(1, len(stage.trace["regions"]))
                tell(share * READ, f"{regions} regions")
            elif isinstance(stage, report.Advised):
                done += 1
                tell(share * (READ + (1 - READ) * done / regions), f"advice on {done} of {regions} regions")
            else:
                whole = stage
    except TraceError as error:
        raise AgentError(f"{visible(path.name)}: {error.message} {error.remedy}".strip()) from None
    except DeviceUnknownError as error:
        raise AgentError(f"{error.message} {error.remedy}".strip()) from None
    except OSError as error:
        raise AgentError(f"{visible(path.name)}: {error.strerror}") from None
    assert whole is not None  # the last stage
    return whole


def _finished(whole: Whole, inductor: bool, tell: Tell) -> TraceBody:
    """The trace with Inductor's answers where they are wanted, by what the archive has of its regions."""
    from app.trace_report.by_record import by_archive

    return by_archive(_with_inductor(whole, tell) if inductor else whole.trace)


def _with_inductor(whole: Whole, tell: Tell) -> TraceBody:
    from app.trace_report.ask_oracle import ask_oracle

    def on_progress(progress: OracleProgress) -> None:
        ended, asked = progress["answered"] + progress["failed"], max(1, progress["asked"])
        tell(ADVISED + (1 - ADVISED) * ended / asked, f"Inductor asked about {ended} of {progress['asked']} regions")

    with start_oracle() as oracle:
        return ask_oracle(whole.trace, whole.inputs, oracle, thresholds=thresholds_in_force(), on_progress=on_progress)


def _advise_region(question: AdviseRegion, folder: Folder) -> Brief:
    from contextlib import nullcontext

    from app.analysis import service
    from app.analysis.device_choice import DeviceUnknownError
    from app.trace_report.by_record import region_by_archive
    from profiler.region.model import RegionError

    text, file = _text(question, folder)
    try:
        with start_oracle() if question["inductor"] else nullcontext() as oracle:
            region = service.advise_region(
                text, share_of_step=question["share"], step_time_us=question["step_time_us"],
                device=question["device"], oracle=oracle, thresholds=thresholds_in_force(),
            )  # fmt: skip
    except RegionError as error:
        raise AgentError(str(error)) from None
    except DeviceUnknownError as error:
        raise AgentError(f"{error.message} {error.remedy}".strip()) from None
    return region_brief(region_by_archive(region), file)


def _text(question: RegionText, folder: Folder) -> tuple[str, str]:
    """A region's text, and its file as commands take it."""
    given, path = question["text"], question["path"]
    if (given is None) == (path is None):
        raise AgentError("give either text, a region in the region language, or path, a file with one")
    if given is not None:
        text, file = given, REGION_FILE
    else:
        place = folder.file(path or "")
        file = folder.shown(place)
        try:
            with place.open(encoding="utf-8") as opened:
                text = opened.read(LONGEST_TEXT + 1)
        except UnicodeDecodeError:
            raise AgentError(f"{visible(file)}: not a region's text; a trace is for advise_trace") from None
        except OSError as error:
            raise AgentError(f"{visible(file)}: {error.strerror}") from None
    if len(text) > LONGEST_TEXT:
        raise AgentError(f"{visible(file)}: longer than {LONGEST_TEXT:,} characters, which no region's text is")
    return text, file


def _validate(question: Validate, folder: Folder, tell: Tell) -> BriefValidation:
    from app.analysis.user_kernel import UserKernelError, named_kernel, verdict_of
    from app.analysis.validate import validate_region
    from profiler.region.model import RegionError

    kernel = None
    if question["kernel"]:
        folder.file(question["kernel"].rpartition(":")[0] or question["kernel"])
        try:
            kernel = named_kernel(question["kernel"], folder.root)
        except UserKernelError as error:
            raise AgentError(str(error)) from None
    region = _region_of(question, folder, tell)
    if not region["text"]:
        missing = region.get("missing") or "the trace does not tell what it computes"
        raise AgentError(f"{region['name']} cannot be measured: {missing}")
    request: ValidateTask = {
        "region": region["text"],
        "shapes": region.get("shapes"),
        "candidates": question["candidates"],
        "device": "cpu" if question["cpu"] else None,
        "budget_s": question["budget_s"],
        "share_of_step": region.get("share_of_step"),
        "advice_before": region["advice"],
        "thresholds": asdict(thresholds_in_force()),
    }
    begun = READ if question["trace"] else 0.0

    def on_progress(progress: object) -> None:
        assert isinstance(progress, dict)
        fraction = progress.get("fraction") or 0.0
        words = (progress.get("phase"), progress.get("candidate"), progress.get("message"))
        tell(begun + (1 - begun) * fraction, " ".join(str(word) for word in words if word))

    try:
        measured = validate_region(request, on_progress=on_progress, kernel=kernel.kernel if kernel else None)
    except RegionError as error:
        raise AgentError(str(error)) from None
    validation: NamedValidation = {"name": region["name"], **measured}
    return validation_brief(validation, verdict_of(measured, thresholds_in_force()))


def _region_of(question: Validate, folder: Folder, tell: Tell) -> RegionBody:
    """The region that is to be measured, with its advice."""
    from app.analysis import service
    from profiler.region.model import RegionError

    if question["trace"] is None:
        text, _file = _text(question, folder)
        try:
            return service.advise_region(text, thresholds=thresholds_in_force())
        except RegionError as error:
            raise AgentError(str(error)) from None
    if question["text"] is not None or question["path"] is not None:
        raise AgentError("give a region's text or path, or a trace with the region's number, not both")
    regions = _read(folder.file(question["trace"]), tell, share=READ).trace["regions"]
    number = question["region"]
    if number is None or not 1 <= number <= len(regions):
        names = "; ".join(f"{i}. {visible(r['name'], 60)}" for i, r in enumerate(regions[:20], 1))
        raise AgentError(f"region: a number from 1 to {len(regions)} is wanted: {names}")
    return regions[number - 1]
