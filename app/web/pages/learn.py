"""/learn: what the sources teach, on live regions of this app. Each part also answers alone, for htmx."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, RedirectResponse, Response

from app.accuracy.figures import load_committed
from app.requests import kernel_code, regions
from app.requests.state import state_of
from app.web.learning import ladder, phases, primitives, program, tiles, tuned
from app.web.learning.rule import tree
from app.web.pages.common import missing, widget_answer
from app.web.pages.examples import DEFAULT_REGION, examples
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access, declare
from app.web.server.json_response import JSONAnswer
from app.web.templating import is_fragment, render
from app.web.views import compiled_kernels
from app.web.views import region as views
from app.web.views.labels import WIDGET_BOUNDS, WIDGET_KINDS, WIDGET_SLIDERS
from app.web.views.vocabulary import LANGUAGE
from profiler.hardware import DEFAULT_DEVICE, find_device

router = APIRouter(include_in_schema=False)

Json = dict[str, Any]

ORACLE_S = 1.0
"""The page waits so long for the oracle; a later visit has its answer."""
ANSWERS = ("share_of_step", "uniqueness", "irregularity", "bound", "kind")


@page_and_json(router, "/learn", Access.COMPUTE)
def learn(request: Request) -> Response:
    """The whole page; its address says what lights the tree, and which program, size and configuration is shown."""
    example = examples()[DEFAULT_REGION]
    region = _live(request, example.text)
    if wants_json(request):
        return JSONAnswer(_data(request, region))
    context = {
        **views.analysis(region),
        **_rule(request, region),
        **_phases(request),
        **_program(request),
        **_tiles(request),
        **tuned.case_context(request.query_params.get("case"), _place(request)),
        **_ladder(),
        "primitives": primitives.PRIMITIVES,
        "claims": load_committed().get("claims") or [],
        "language": LANGUAGE,
        "example": example,
        "recorded": regions.nearest_record(state_of(request), example.text),
        "widget_sliders": WIDGET_SLIDERS,
        "widget_bounds": WIDGET_BOUNDS,
        "widget_kinds": WIDGET_KINDS,
    }
    return render("learn.html", context, request=request)


def _data(request: Request, region: Json) -> Json:
    """What the page shows, as data. region: the example, as this server advises on it."""
    phased, life = _phases(request), _program(request)
    rung = _ladder()
    return {
        "rule": _rule(request, region)["tree"],
        "ladder": rung["ladder"],
        "program": {**life, "steps": [dataclasses.asdict(s) for s in life["steps"]]},
        "tiles": _tiles(request)["tile_rows"],
        "compile": {k: phased[k] for k in ("statements", "aten", "before", "after", "breaks")},
        "autotune": tuned.load_cases(),
        "primitives": [{**dataclasses.asdict(p), "line": p.line} for p in primitives.PRIMITIVES],
        "claims": load_committed().get("claims") or [],
    }


_kept: WeakKeyDictionary[Any, dict[str, Json]] = WeakKeyDictionary()
"""By server: the page's own regions, whose answers do not change once the oracle has spoken."""


def _live(request: Request, text: str) -> Json:
    """One of the page's regions, by this server's rule, estimate and oracle."""
    state = state_of(request)
    kept = _kept.setdefault(state.service, {})
    if text not in kept:
        region = regions.preview_region(state, text, oracle_timeout_s=ORACLE_S)
        if regions.oracle_is_on(state) and not any(not p["unavailable"] for p in region.get("oracle") or ()):
            return region
        kept[text] = region
    return kept[text]


def _ladder() -> Json:
    return {"ladder": ladder.rungs(), "ladder_work": ladder.WORK, "ladder_measured": ladder.load_measurements()}


# ---------------------------------------------------------------------------------------------------------------- parts


def _rule(request: Request, example: Json | None = None) -> Json:
    """The tree, lit for the region that the address names, else for its answers, else for the example."""
    query = request.query_params
    told = {k: query[k] for k in ANSWERS if query.get(k)}
    found = widget_answer(request)
    context: Json = {"answers": found["answers"], "tree_region": None}
    if query.get("region"):
        region = state_of(request).store.region(query["region"])
        if region is None:
            raise missing("region")
        advice, said = region.get("advice"), f"the region {region['name']}"
        context["tree_region"] = region
        if not advice:
            raise missing("advice on this region")
    elif told or example is None:
        advice, said = found["widget"], "these answers"
    else:
        advice, said = example["advice"], f"the example, {examples()[DEFAULT_REGION].title}"
    return {**context, "tree": tree(advice), "tree_of": said}


@router.get("/learn/rule")
@declare(Access.COMPUTE)
def rule(request: Request) -> Response:
    """The tree for the widget's answers or a region."""
    return _part(request, "tree.html", partial(_rule, request), "rule")


def _phases(request: Request) -> Json:
    region = _live(request, phases.TEXT)
    found = phases.phases(region)
    analysed = views.analysis(region)
    return {**found, "phase_traffic": analysed["traffic"], "phase_words": analysed["traffic_words"]}


def _program(request: Request) -> Json:
    asked = request.query_params.get("program", "")
    place = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 4 else program.PROGRAMS - 1
    return program.life(min(place, program.PROGRAMS - 1))


@router.get("/learn/program")
@declare(Access.COMPUTE)
def one_program(request: Request) -> Response:
    """One program's life."""
    return _part(request, "program.html", partial(_program, request), "program")


def _tiles(request: Request) -> Json:
    asked = request.query_params.get("n", "")
    n = int(asked) if asked in map(str, tiles.SIZES) else tiles.SIZES[2]
    device = find_device(DEFAULT_DEVICE)
    assert device is not None
    found = tiles.rows(n, device)
    return {"tile_n": n, "tile_sizes": tiles.SIZES, "tile_rows": found, "tile_chart": tiles.tiles(found),
            "tile_words": tiles.turning(found), "tile_device": device.name, "tile_depth": tiles.DEPTH,
            "tile_stages": tiles.STAGES}  # fmt: skip


@router.get("/learn/tiles")
@declare(Access.READ)
def tile(request: Request) -> Response:
    """The tile's traffic for one size."""
    return _part(request, "tiles.html", partial(_tiles, request), "tiles")


def _place(request: Request) -> int | None:
    asked = request.query_params.get("config", "")
    return int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 4 else None


@router.get("/learn/autotune")
@declare(Access.READ)
def autotune(request: Request) -> Response:
    """One configuration: its code and its time."""
    return _part(
        request, "tuned.html", lambda: tuned.case_context(request.query_params.get("case"), _place(request)), "autotune"
    )


DECIDED = "rms_norm_by_hand"
"""The example whose generated kernel is compiled on the page."""


def _kernel_decisions(request: Request) -> tuple[Json, Any, Json]:
    region: Json = {"name": examples()[DECIDED].title, "text": examples()[DECIDED].text, "shapes": [], "advice": None}
    found = kernel_code.own_of(state_of(request), region, "triton:generated")
    return region, found, kernel_code.machines_of(state_of(request), region, found)


@page_and_json(router, "/learn/decided", Access.COMPUTE)
def decisions_page(request: Request) -> Response:
    """The example's generated kernel, line by line, with its instructions. A child compiles it once."""
    region, found, answer = _kernel_decisions(request)
    if wants_json(request):
        return JSONAnswer(answer)
    context = {**compiled_kernels.machine_code_context(region, found, answer, "/learn/decided"), "charts": False}
    return render("partials/own_machine.html" if is_fragment(request) else "decided.html", context, request=request)


@router.get("/learn/decided/{kernel}/{listing}.txt")
@declare(Access.COMPUTE)
def decided_listing(request: Request, kernel: str, listing: str) -> Response:
    """One of its listings, whole."""
    made = kernel_code.kernel_named(_kernel_decisions(request)[2], kernel)
    if listing not in made["texts"]:
        raise missing("listing")
    return PlainTextResponse(made["texts"][listing])


def _part(request: Request, template: str, context: Any, anchor: str) -> Response:
    """A part of the page for htmx, whose address follows; for everybody else the page, at that part."""
    query = urlencode(list(request.query_params.multi_items()))
    page = f"/learn?{query}#{anchor}" if query else f"/learn#{anchor}"
    if not is_fragment(request):
        return RedirectResponse(page, 303)
    return render(f"partials/learn/{template}", context(), request=request, headers={"HX-Replace-Url": page})
