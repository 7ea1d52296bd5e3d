"""What this host is: its GPU, clocks, ceilings measured here, versions, packages, and the table behind estimates."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response

from app.requests import ceilings, regions
from app.requests.state import ServerState, state_of
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access, declare
from app.web.server.json_response import JSONAnswer
from app.web.templating import is_fragment, render
from kernels.libraries.packages import DISTRIBUTIONS
from kernels.measure import conditions
from profiler.hardware import DEFAULT_DEVICE, DEVICES, find_device

router = APIRouter(include_in_schema=False)

Json = dict[str, Any]

WITHOUT_GPU = (
    ("Advice, costs, predictions", True, "as everywhere, for the GPU that the trace or the form names"),
    ("What torch.compile would make of a region", True, "Inductor answers without a GPU, for the GPU that is named"),
    ("What the compiler makes of a kernel, down to SASS", True, "Triton brings its own assembler and disassembler"),
    ("Whether a candidate computes the right thing", True, "PyTorch on the CPU, Triton in its interpreter"),
    ("Times of candidates, the autotune landscape, ceilings", False,
     "they need the GPU; a validation says unmeasured, and the archive's nearest record is shown with its device"),
)  # fmt: skip
"""What works on a host without a GPU, and how."""


def _page(request: Request) -> Json:
    host = regions.device(state_of(request))
    found = ceilings.status(state_of(request))
    measured = found["measured"]
    entry = find_device(measured["device"]) if measured else None
    used = (
        {"copy": entry.copy_rate, "bf16 matrix": entry.matmul_rate("bf16"), "f32 vector": entry.f32_rate}
        if entry
        else {}
    )
    sheet = (
        {
            "copy": entry.memory_rate,
            "read": entry.memory_rate,
            "bf16 matrix": entry.bf16_rate,
            "f32 vector": entry.f32_rate,
        }
        if entry
        else {}
    )
    return {
        "host": host,
        "devices": DEVICES,
        "default_device": DEFAULT_DEVICE,
        "ceilings": found,
        "used": used,
        "sheet": sheet,
        "without_gpu": WITHOUT_GPU,
        "missing_packages": sorted(set(DISTRIBUTIONS) - set(host["packages"] or ())),
        "charts": False,
        **_suspicion(state_of(request)),
        "asked_every_s": state_of(request).queue.gpu.again_s,
    }


def _suspicion(state: ServerState) -> Json:
    """What is wrong with the GPU, and since when; None where nothing is known to be."""
    found = state.queue.gpu.suspicion
    return {"suspicion": None if found is None else dataclasses.asdict(found)}


@page_and_json(router, "/device", Access.READ)
def device(request: Request) -> Response:
    """What this host can measure on, and the table behind the estimates; as data the API's device with its ceilings."""
    state = state_of(request)
    if wants_json(request):
        return JSONAnswer({**regions.device(state), "ceilings_here": ceilings.status(state), **_suspicion(state)})
    return render("device.html", _page(request), request=request)


@page_and_json(router, "/device/state", Access.COMPUTE)
def state_now(request: Request) -> Response:
    """Clocks, temperature and power of the GPU at this moment; asks the driver, so it is no part of the page itself.

    The reading is {} without a GPU.
    """
    reading = conditions.read()
    if wants_json(request):
        return JSONAnswer(reading)
    template = "partials/device_state.html" if is_fragment(request) else "device_state.html"
    return render(template, {"reading": reading, "charts": False}, request=request)


@router.post("/device/ceilings")
@declare(Access.WORK)
def measure(request: Request, on: Annotated[str, Form(max_length=200)] = "") -> Response:
    """Begin to measure the ceilings of the GPU that is here, or of a kind of the fleet."""
    ceilings.begin(state_of(request), on or None)
    if on:
        return RedirectResponse("/device#fleet", 303)
    if not is_fragment(request):
        return RedirectResponse("/device#ceilings", 303)
    return render("partials/ceilings.html", _page(request), request=request, status=202)


@router.get("/device/ceilings")
@declare(Access.READ)
def ceilings_section(request: Request) -> Response:
    """The part of the page that has them."""
    if not is_fragment(request):
        return RedirectResponse("/device#ceilings", 303)
    return render("partials/ceilings.html", _page(request), request=request)
