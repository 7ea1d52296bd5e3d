"""What users ask for, once for API and forms: regions, advice, validations. Raises Problem. Traces: submit_trace.

`state` is the server's: app.requests.state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from app.analysis import reissue
from app.analysis.advice_inputs import AdviceInputs, from_stored, to_stored
from app.analysis.analyze import CompilePrediction
from app.analysis.questions import Question
from app.archive import record_store
from app.archive.by_device import by_device
from app.errors import Problem, not_found, queue_full, without_text
from app.jobs.ray.model import gpu_type_json
from app.objects.advice import Advice, DeviceAdvice
from app.objects.device import Device, FleetGpu
from app.objects.job import Job
from app.objects.kernel import Kernel
from app.objects.oracle import OracleKernel, OraclePrediction
from app.objects.record import ArchiveRecord, MeasuredDevice, NearestRecord
from app.objects.region import Region, RegionAdvised, RegionBody
from app.objects.task import ValidateTask
from app.objects.trace import Trace
from app.requests import ceilings, request_fingerprint
from app.requests.memory_check import check_fits
from app.requests.state import ServerState
from app.requests.targets import Target, of_names, table_entry
from app.settings import Settings
from app.storage import job_table, measurements
from app.storage.store import Asked, finite
from app.trace_report.launches_left import launches_left_by_inductor
from profiler.hardware import DEFAULT_DEVICE, find_device
from profiler.oracle.compiler.targets import TARGETS
from profiler.oracle.process import UnansweredError

CANDIDATE_CHARS = 200
MAX_CANDIDATES = 32


def find_trace(state: ServerState, trace_id: str) -> Trace:
    """One trace, or 404."""
    trace = state.store.trace(trace_id)
    if trace is None:
        raise not_found("trace")
    return trace


def preview_region(state: ServerState, text: str, **workload: Any) -> RegionBody:
    """A region with its cost and advice, kept nowhere. workload: the keyword arguments of service.advise_region."""
    _check_region(state.settings, text, workload.get("shapes"))
    return finite(state.service.advise_region(text, **workload))


def submit_region(state: ServerState, text: str, **workload: Any) -> Region:
    """The same, stored: it has an id and a page."""
    _check_region(state.settings, text, workload.get("shapes"))
    decided = state.service.decide_text(text, **workload)
    region_id = state.store.add_region(decided.region, to_stored(decided.inputs))
    region = state.store.region(region_id)
    assert region is not None  # added just now
    return region


def oracle_is_on(state: ServerState) -> bool:
    """Whether this server asks Inductor at all."""
    return state.service.oracle is not None


def predict_region(state: ServerState, region_id: str) -> Region:
    """Ask what torch.compile makes of a stored region, keep the answer, issue its advice again: the region.

    An answer that stands is not asked for again. Blocks for the oracle: never call it on the event loop.
    """
    region = state.store.region_as_advised(region_id)
    if region is None:
        raise not_found("region")
    if not region["text"]:
        raise without_text()
    if not oracle_is_on(state):
        raise Problem(503, "oracle-unavailable", "", "The oracle is off on this server (TRITONWORTHY_ORACLE).")
    if not region.get("advice") and _is_reading(state, region):
        detail = "The region's trace is still being read: its advice comes first."
        raise Problem(409, "trace-not-ready", "", detail, headers={"Retry-After": "1"})
    if not region.get("advice"):  # read again: the last advice may have come before its trace's state was read
        region = state.store.region_as_advised(region_id)
        if region is None:
            raise not_found("region")
    answered = region.get("oracle") or ()
    if not answered or any(p["unavailable"] for p in answered):
        advise_with_oracle(state, region, state.service.predict_compile)
    known = state.store.region(region_id)
    if known is None:  # deleted meanwhile
        raise not_found("region")
    return known


def _is_reading(state: ServerState, region: Region) -> bool:
    source = region.get("source")
    trace = state.store.trace_head(source["trace"]) if source else None
    return trace is not None and trace["status"] == "reading"


def advise_with_oracle(state: ServerState, region: Region, predict: Callable[[Question], CompilePrediction]) -> None:
    """Ask, advise again, store. region: as `Store.region_as_advised` has it. predict: asks the oracle; what it raises
    leaves the region as it is."""
    stored = _stored_inputs(state, region)
    question = Question(_text_of(region), inputs=stored or _inputs_of_old_row(state, region))
    again = state.service.decide(question, predict(question)).region
    kept: RegionAdvised = {"oracle": again["oracle"], "recompiles": again["recompiles"]}
    advice = region["advice"]
    if advice is None:  # advising failed when the trace was read, and does not now
        kept |= {"cost": again["cost"], "irregularity": again["irregularity"], "notes": []}
        kept |= {"prediction": again["prediction"], "rests_on": again["rests_on"]}
        advice = finite(again["advice"])
    elif again["prediction"] == "oracle":
        # A row of before may lack what its advice was issued on, and another host has other packages.
        without, now = finite(state.service.decide(question).region["advice"]), finite(again["advice"])
        assert without is not None and now is not None  # `decide` gives advice
        same = reissue.same_inputs(advice, without)
        kept["prediction"] = "oracle" if same else "rules"
        if same:
            kept |= {"rests_on": again["rests_on"]}
        advice = reissue.keep_unless_same_inputs(advice, without, now)
    elif again["oracle"]:  # the advice stands; why it is without Inductor's kernels is known now
        kept |= {"rests_on": again["rests_on"]}
    if region.get("launches_left"):
        kept["launches_left"] = launches_left_by_inductor({**region, "oracle": again["oracle"]})
    state.store.put_oracle(region["id"], {**kept, "advice": advice})


def without_source(region: Region) -> Region:
    """The same without the source of its kernels: a list of fifty regions is not to carry a megabyte of Triton."""
    oracle: list[OraclePrediction] = [
        {**p, "kernels": [_kernel_without_source(kernel) for kernel in p["kernels"]]}
        for p in region.get("oracle") or ()
    ]
    return {**region, "oracle": oracle}


def _kernel_without_source(kernel: OracleKernel) -> OracleKernel:
    return {
        "name": kernel["name"],
        "kind": kernel["kind"],
        "calls": kernel["calls"],
        "bytes_moved": kernel["bytes_moved"],
        "operations": kernel["operations"],
        "stage": kernel["stage"],
        "lines": kernel["lines"],
    }


def region_on(state: ServerState, region_id: str, device: str) -> Region:
    """A stored region with the cost and advice of another device; kept nowhere. 422 for one that the table lacks."""
    region, question = _asked_again(state, region_id)
    there = finite(state.service.on_device(question, device, title=region["name"]))
    moved: Region = {**region, "cost": there["cost"], "advice": there["advice"], "oracle": [], "validations": []}
    return {**moved, "rests_on": there["rests_on"]}


def region_on_devices(state: ServerState, region_id: str) -> list[DeviceAdvice]:
    """A stored region's advice on every device of the table; its own device's is the one that stands."""
    region, question = _asked_again(state, region_id)
    rows: list[DeviceAdvice] = finite(state.service.on_devices(question, region["advice"]))
    return rows


def _asked_again(state: ServerState, region_id: str) -> tuple[Region, Question]:
    """A stored region, and the question that it was advised on. 404, or 422 without a text."""
    region = state.store.region(region_id)
    if region is None:
        raise not_found("region")
    text = _text_of(region)
    inputs = _stored_inputs(state, region) or _inputs_of_old_row(state, region)
    return region, Question(text, inputs=inputs)


def _text_of(region: Region) -> str:
    if not region["text"]:
        raise without_text()
    return region["text"]


def _stored_inputs(state: ServerState, region: Region) -> AdviceInputs | None:
    """What a region's advice was issued on; None where a version before these were kept stored it."""
    return from_stored(state.store.advice_inputs(region["id"]))


def _inputs_of_old_row(state: ServerState, region: Region) -> AdviceInputs:
    """The same, as far as what is shown of the region and its trace tells."""
    source = region.get("source")
    trace = state.store.trace(source["trace"]) if source and source["trace"] else None
    return reissue.inputs_from_shown(region, trace)


def kernel_machine(state: ServerState, region_id: str, mode: str, key: str) -> Kernel:
    """What Triton's compiler makes of one of Inductor's kernels, for the GPU that the region's advice is for.

    key: as `reissue.kernel_keys` names it. 404 for a kernel that was not predicted, 422 for a GPU that Triton has no
    target for, 503 where the compiler cannot be asked.
    """
    region = state.store.region(region_id)
    if region is None:
        raise not_found("region")
    pair = reissue.find_kernel(region, mode, key)
    if pair is None:
        raise not_found("kernel")
    prediction, kernel = pair
    device = find_device(prediction["device"])
    if device is None or device.arch not in TARGETS:
        arch = "" if device is None else f" ({device.arch})"
        detail = f"Triton compiles for none of {prediction['device']}'s kind{arch}. It does for {', '.join(TARGETS)}."
        raise Problem(422, "no-triton-target", "", detail)
    try:
        made = state.service.machine(kernel["source"], kernel["name"], device.arch)
    except UnansweredError as fault:
        raise Problem(
            503, "oracle-unavailable", "", f"What the compiler decides could not be asked: {fault}."
        ) from None
    shown = {
        "region_id": region_id, "key": key, "mode": mode, "device": device.name, "arch": device.arch,
        "kernel": kernel, "machine": {k: v for k, v in made.items() if k != "findings"},
        "findings": made["findings"],
    }  # fmt: skip
    return cast("Kernel", finite(shown))


def advise_widget(state: ServerState, **answers: Any) -> Advice:
    """Advice from share_of_step, uniqueness, irregularity (each 0 to 1), bound and kind where known."""
    return state.service.advise_widget(**answers)


def submit_validation(
    state: ServerState,
    *,
    region: str | None = None,
    region_id: str | None = None,
    shapes: list[dict[str, float]] | None = None,
    candidates: list[str] | None = None,
    device: list[str] | None = None,
    reuse: bool = False,
    oracle_timeout_s: float | None = None,
) -> tuple[Job, bool]:
    """Queue the measurement of a region, by its text or its id: the job, and whether it is new. 429 when too many wait.

    device: kinds of the fleet, one validation each; the job is then the first one's, and names all.
    reuse: what was asked before, of the same device and versions, and waits, runs or was measured, is answered again.
    oracle_timeout_s: longest wait for the oracle, whose answer the advice on a text has; 0 for what it has said before.
    """
    if (region is None) == (region_id is None):
        raise Problem(422, "invalid-request", "", "Give either `region`, a text, or `region_id`.")
    known: Region | None = None
    if region_id is not None:
        known = state.store.region(region_id)
        if known is None:
            raise not_found("region")
        region = known["text"]
    if not region:
        raise without_text()
    preferred = known["advice"]["device"] if known and known["advice"] else DEFAULT_DEVICE
    targets = of_names(state, device, preferred)
    if candidates is not None and (
        not candidates or len(candidates) > MAX_CANDIDATES or any(len(c) > CANDIDATE_CHARS for c in candidates)
    ):
        raise Problem(422, "invalid-request", "", f"`candidates` is a list of 1 to {MAX_CANDIDATES} names.")
    _check_candidates(state, candidates or ())
    requests = [
        _validation_request(state, target, region, region_id, known, shapes, candidates, oracle_timeout_s)
        for target in targets
    ]
    versions = [_versions(state, target) for target in targets]
    digest = [
        request_fingerprint.of_validation(request.task, region_id, v, state.settings.rule) if v else None
        for request, v in zip(requests, versions, strict=True)
    ]
    jobs = _queue(state, requests, region_id, digest, reuse)
    queued = [job_id for job_id, _ in jobs]
    job = state.store.job(queued[0])
    assert job is not None  # queued just now, or kept as a measurement
    if state.fleet is not None:
        job["validations"] = [
            {"id": i, "device": t.on or t.device, "state": state.store.job_state(i)}
            for i, t in zip(queued, targets, strict=True)
        ]
    return job, any(new for _, new in jobs)


def _validation_request(
    state: ServerState, target: Target, region: str, region_id: str | None, stored: Region | None,
    shapes: list[dict[str, float]] | None, candidates: list[str] | None, oracle_timeout_s: float | None,
) -> NamedTask:  # fmt: skip
    """The request of one validation, with the advice that it is to confirm or overturn: for the device it runs on.

    It also finds every mistake before a job is queued.
    """
    elsewhere = target.on is not None and find_device(target.on) is not None
    known: RegionBody | Region
    if stored is None or shapes is not None:
        step: dict[str, Any] = {} if stored is None else {"name": stored["name"]}
        if stored is not None and stored["share_of_step"] is not None:
            step["share_of_step"] = stored["share_of_step"]
        if elsewhere:
            step["device"] = target.on
        known = preview_region(state, region, shapes=shapes, oracle_timeout_s=oracle_timeout_s, **step)
    elif elsewhere and region_id is not None and (stored["advice"] is None or stored["advice"]["device"] != target.on):
        known = {**stored, "advice": region_on(state, region_id, str(target.on))["advice"]}
    else:
        known = stored
    text = known["text"] or region
    check_fits(text, table_entry(state, target))
    task = {
        "region": text,
        "shapes": known["shapes"],
        "candidates": candidates,
        **target.asked,
        "budget_s": state.settings.budget_s,
        "share_of_step": known["share_of_step"],
        "advice_before": known["advice"],
    }
    return NamedTask(known["name"], cast("ValidateTask", task))


class NamedTask(NamedTuple):
    """A validation to queue, with the name of its region."""

    name: str
    task: ValidateTask


def _versions(state: ServerState, target: Target) -> dict[str, str | None]:
    """What would measure: the GPU and versions of the kind's hosts, or of this one; {} where they are not known yet, or
    not the same on all hosts: then nothing is known to be the same."""
    if target.on:
        assert state.fleet is not None  # whose kinds are the only ones with a name
        kind = next((k for k in state.fleet.kinds() if k.device == target.on), None)
        versions = {} if kind is None else kind.versions
        same: dict[str, str | None] = {name: each[0] for name, each in versions.items() if len(each) == 1}
        return same if kind is not None and "torch" in same and len(same) == len(kind.versions) else {}
    host = state.host.known()
    return {} if host is None else {"gpu": host.gpu, **host.versions}


def _queue(
    state: ServerState, requests: list[NamedTask], region_id: str | None, digest: list[str | None], reuse: bool
) -> list[tuple[str, bool]]:
    """Queue validations, all or none; their ids, and which are new."""
    items = [
        Asked(request.name, request.task["region"], region_id, request.task, d)
        for request, d in zip(requests, digest, strict=True)
    ]
    try:
        queued: list[tuple[str, bool]] = state.store.add_validations(items, cap=state.settings.queue_cap, reuse=reuse)
    except job_table.QueueFullError:
        raise queue_full() from None
    state.queue.wake("validate")
    return queued


def device(state: ServerState) -> Device:
    """What this host can measure on: gpu (None without one), capability, versions, packages; and the fleet's kinds."""
    host = state.host()
    if state.fleet is None:
        return {**host, "fleet": None}
    fleet: list[FleetGpu] = [
        {**gpu_type_json(k), "ceilings_here": ceilings.status(state, k.device)} for k in state.fleet.kinds()
    ]
    return {**host, "fleet": fleet}


def archive_records(state: ServerState) -> list[ArchiveRecord]:
    """Every record of the user's archive and of the shipped one, newest first."""
    return list(record_store.records(*_folders(state)))


def nearest_record(
    state: ServerState, text: str, excluded: str | None = None, device: str | None = None
) -> NearestRecord | None:
    """The nearest record of a region, of the archive or of this server's validations, for this device, or this host's
    where none is named, and this host's torch as far as it is known.

    excluded: the validation that is asked for, which is no evidence for itself.
    """
    host = state.host.known()
    device = device or (host.gpu if host else None)
    torch = host.versions.get("torch") if host else None
    more = measurements.records(state.store.database, [text], excluded)
    return record_store.nearest(text, *_folders(state), device=device, torch=torch, more=more)


def measured_kinds(state: ServerState, text: str, devices: Sequence[str] = ()) -> list[MeasuredDevice]:
    """A region's newest measurement on each kind of GPU, or on these: see `by_device`."""
    known = (*measurements.records(state.store.database, [text]), *record_store.records(*_folders(state)))
    return by_device(text, known, devices)


def archive_record(state: ServerState, record_id: str) -> ArchiveRecord | None:
    """The archive's record of that id."""
    return record_store.by_id(record_id, *_folders(state))


def _folders(state: ServerState) -> tuple[Path, Path]:
    return state.settings.records_dir, record_store.FOLDER


def _check_region(settings: Settings, text: str, shapes: list[dict[str, float]] | None) -> None:
    if len(text) > settings.max_region_chars:
        raise Problem(413, "region-too-large", "", f"A region may have at most {settings.max_region_chars} characters.")
    if shapes is not None and len(shapes) > settings.max_shapes:
        raise Problem(422, "too-many-shapes", "", f"At most {settings.max_shapes} shape bindings, please.")


def _check_candidates(state: ServerState, names: Sequence[str]) -> None:
    """422 for a name that no candidate has; whether a known one fits the region is the measurement's to say."""
    known = state.service.candidates() if names else ()
    unknown = [name for name in names if name not in known]
    if unknown:
        detail = f"There is no candidate {unknown[0][:80]!r}. Known: {', '.join(known)}."
        raise Problem(422, "candidate-unknown", "", detail, known=list(known))
