"""What this host is: its GPU, clocks, ceilings measured here, versions, packages, and the table behind estimates."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, TypedDict

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response

from app.jobs.stats import GPU_KINDS
from app.objects.device import CeilingsStatus, Device
from app.requests import ceilings, regions
from app.requests.state import ServerState, state_of
from app.storage import job_table
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access, declare
from app.web.server.json_response import JSONAnswer
from app.web.templating import is_fragment, render
from kernels.measure import conditions
from kernels.packages import DISTRIBUTIONS
from profiler.hardware import DEFAULT_DEVICE, DEVICES, find_device
from profiler.hardware import Device as TableDevice

router = APIRouter(include_in_schema=False)

WITHOUT_GPU = (
    ("Advice, costs, predictions", True, "as everywhere, for the GPU that the trace or the form names"),
    ("What torch.compile would make of a region", True, "Inductor answers without a GPU, for the GPU that is named"),
    ("What the compiler makes of a kernel, down to SASS", True, "Triton brings its own assembler and disassembler"),
    ("Whether a candidate computes the right thing", True, "PyTorch on the CPU, Triton in its interpreter"),
    ("Times of candidates, the autotune landscape, ceilings", False,
     "they need the GPU; a validation says unmeasured, and the archive's nearest record is shown with its device"),
)  # fmt: skip
"""What works on a host without a GPU, and how."""


class DevicePage(TypedDict):
    """Context of device.html. used, sheet: by ceiling, the rate that estimates use and the datasheet's.

    suspicion: what is wrong with the GPU, and from when on; None where nothing is known to be.
    """

    host: Device
    devices: Sequence[TableDevice]
    default_device: str
    ceilings: CeilingsStatus
    used: dict[str, float]
    sheet: dict[str, float]
    without_gpu: tuple[tuple[str, bool, str], ...]
    missing_packages: list[str]
    suspicion: Mapping[str, object] | None
    asked_every_s: float
    work: Work


class Work(TypedDict):
    """Measurements that run and that wait, of all servers of this database."""

    running: int
    waiting: int


def _page(request: Request) -> DevicePage:
    state = state_of(request)
    host, status = regions.device(state), ceilings.status(state)
    measured = status["measured"]
    entry = find_device(measured.get("device")) if measured else None
    used: dict[str, float] = {}
    sheet: dict[str, float] = {}
    if entry:
        used = {"copy": entry.copy_rate, "bf16 matrix": entry.matmul_rate("bf16"), "f32 vector": entry.f32_rate}
        sheet = {
            "copy": entry.memory_rate,
            "read": entry.memory_rate,
            "bf16 matrix": entry.bf16_rate,
            "f32 vector": entry.f32_rate,
        }
    return {
        "host": host,
        "devices": DEVICES,
        "default_device": DEFAULT_DEVICE,
        "ceilings": status,
        "used": used,
        "sheet": sheet,
        "without_gpu": WITHOUT_GPU,
        "missing_packages": sorted(set(DISTRIBUTIONS) - set(host["packages"] or ())),
        "suspicion": _suspicion(state),
        "asked_every_s": state.queue.gpu.again_s,
        "work": _work(state),
    }


def _work(state: ServerState) -> Work:
    with state.store.database.read() as connection:
        counts = job_table.counts(connection)
    running, waiting = (sum(counts.get((kind, s), 0) for kind in GPU_KINDS) for s in ("running", "queued"))
    return {"running": running, "waiting": waiting}


def _suspicion(state: ServerState) -> Mapping[str, object] | None:
    suspicion = state.queue.gpu.suspicion
    return None if suspicion is None else dataclasses.asdict(suspicion)


@page_and_json(router, "/device", Access.READ)
def device(request: Request) -> Response:
    """What this host can measure on, and the table behind the estimates; as data the API's device with its ceilings."""
    state = state_of(request)
    if wants_json(request):
        status, suspicion = ceilings.status(state), _suspicion(state)
        return JSONAnswer({**regions.device(state), "ceilings_here": status, "suspicion": suspicion})
    return render("device/device.html", _page(request), request=request)


@page_and_json(router, "/device/state", Access.COMPUTE)
def state_now(request: Request) -> Response:
    """Clocks, temperature and power of the GPU at this moment; asks the driver, so it is no part of the page itself.

    The reading is {} without a GPU.
    """
    reading = conditions.read()
    if wants_json(request):
        return JSONAnswer(reading)
    template = "partials/device/state.html" if is_fragment(request) else "device/device_state.html"
    return render(template, {"reading": reading}, request=request)


@router.post("/device/ceilings")
@declare(Access.WORK)
def measure(request: Request, on: Annotated[str, Form(max_length=200)] = "") -> Response:
    """Begin to measure the ceilings of the GPU that is here, or of a kind of the fleet."""
    ceilings.begin(state_of(request), on or None)
    if on:
        return RedirectResponse("/device#fleet", 303)
    if not is_fragment(request):
        return RedirectResponse("/device#ceilings", 303)
    return render("partials/device/ceilings.html", _page(request), request=request, status=202)


@router.get("/device/ceilings")
@declare(Access.READ)
def ceilings_section(request: Request) -> Response:
    """The part of the page that has them."""
    if not is_fragment(request):
        return RedirectResponse("/device#ceilings", 303)
    return render("partials/device/ceilings.html", _page(request), request=request)
