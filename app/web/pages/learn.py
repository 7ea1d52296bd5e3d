"""/learn: what the sources teach, on live regions of this app. Each part also answers alone, for htmx."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypedDict
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, RedirectResponse, Response

from app.accuracy.figures import load_committed
from app.objects.kernel import OwnMachines
from app.objects.region import RegionBody
from app.requests import kernel_code, regions
from app.requests.executor import Executor
from app.requests.state import state_of
from app.web.charts.figure import Chart
from app.web.charts.traffic import Panel
from app.web.labels import LANGUAGE, WIDGET_BOUNDS, WIDGET_KINDS, WIDGET_SLIDERS
from app.web.learning import ladder, phases, primitives, program, tiles, tuned
from app.web.learning.rule import Tree, light_tree
from app.web.pages.common import WidgetAnswers, find_region, missing, widget_answer
from app.web.pages.examples import DEFAULT_REGION, examples
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access, declare
from app.web.server.json_response import JSONAnswer
from app.web.templating import is_fragment, render
from app.web.views.region.compiled_kernels import own_machine_page
from app.web.views.region.region_page import analysis
from profiler.hardware import DEFAULT_DEVICE, find_device

if TYPE_CHECKING:
    from kernels.kernel_listing_model import Own

router = APIRouter(include_in_schema=False)

ORACLE_S = 1.0
"""The page waits so long for the oracle; a later visit has its answer."""
ANSWERS = ("share_of_step", "uniqueness", "irregularity", "bound", "kind")


@page_and_json(router, "/learn", Access.COMPUTE)
def learn(request: Request) -> Response:
    """The whole page; its address says what lights the tree, and which program, size and configuration is shown."""
    example = examples()[DEFAULT_REGION]
    region = _advise(request, example.text)
    if wants_json(request):
        return JSONAnswer(_data(request, region))
    context = {
        **analysis(region),
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


def _data(request: Request, region: RegionBody) -> Mapping[str, object]:
    """What the page shows, as data. region: the example, as this server advises on it."""
    phased, life = _phases(request), _program(request)
    return {
        "rule": _rule(request, region)["tree"],
        "ladder": ladder.rungs(),
        "program": {**life, "steps": [dataclasses.asdict(s) for s in life["steps"]]},
        "tiles": _tiles(request)["tile_rows"],
        "compile": {
            "statements": phased["statements"],
            "aten": phased["aten"],
            "before": phased["before"],
            "after": phased["after"],
            "breaks": phased["breaks"],
        },
        "autotune": tuned.load_cases(),
        "primitives": [{**dataclasses.asdict(p), "line": p.line} for p in primitives.PRIMITIVES],
        "claims": load_committed().get("claims") or [],
    }


_advised: WeakKeyDictionary[Executor, dict[str, RegionBody]] = WeakKeyDictionary()
"""By server: the page's own regions, whose answers do not change once the oracle has spoken."""


def _advise(request: Request, text: str) -> RegionBody:
    """One of the page's regions, by this server's rule, estimate and oracle."""
    state = state_of(request)
    advised = _advised.setdefault(state.service, {})
    if text not in advised:
        region = regions.preview_region(state, text, oracle_timeout_s=ORACLE_S)
        if regions.oracle_is_on(state) and not any(not p["unavailable"] for p in region.get("oracle") or ()):
            return region
        advised[text] = region
    return advised[text]


class LadderPart(TypedDict):
    """Context of partials/learn/ladder.html."""

    ladder: tuple[ladder.RungRow, ...]
    ladder_work: tuple[str, ...]
    ladder_measured: ladder.Measurements


def _ladder() -> LadderPart:
    return {"ladder": ladder.rungs(), "ladder_work": ladder.WORK, "ladder_measured": ladder.load_measurements()}


# ---------------------------------------------------------------------------------------------------------------- parts


class RulePart(TypedDict):
    """Context of partials/learn/tree.html. tree_of: what the tree is lit for, in words."""

    answers: WidgetAnswers
    tree_region: RegionBody | None
    tree: Tree
    tree_of: str


def _rule(request: Request, example: RegionBody | None = None) -> RulePart:
    """The tree, lit for the region that the address names, else for its answers, else for the example."""
    query = request.query_params
    answered = any(query.get(name) for name in ANSWERS)
    widget = widget_answer(request)
    region: RegionBody | None = None
    if query.get("region"):
        region = find_region(request, query["region"])
        advice, of = region.get("advice"), f"the region {region['name']}"
        if not advice:
            raise missing("advice on this region")
    elif answered or example is None:
        advice, of = widget["widget"], "these answers"
    else:
        advice, of = example["advice"], f"the example, {examples()[DEFAULT_REGION].title}"
        if not advice:
            raise missing("advice on this region")
    return {"answers": widget["answers"], "tree_region": region, "tree": light_tree(advice), "tree_of": of}


@router.get("/learn/rule")
@declare(Access.COMPUTE)
def rule(request: Request) -> Response:
    """The tree for the widget's answers or a region."""
    return _part(request, "tree.html", partial(_rule, request), "rule")


class PhasesPart(phases.Phases):
    """Context of partials/learn/phases.html."""

    phase_traffic: list[Panel]
    phase_words: str


def _phases(request: Request) -> PhasesPart:
    region = _advise(request, phases.TEXT)
    analysed = analysis(region)
    return {
        **phases.describe_phases(region),
        "phase_traffic": analysed["traffic"],
        "phase_words": analysed["traffic_words"],
    }


def _program(request: Request) -> program.Life:
    number = request.query_params.get("program", "")
    place = int(number) if number.isascii() and number.isdigit() and len(number) < 4 else program.PROGRAMS - 1
    return program.describe_life(min(place, program.PROGRAMS - 1))


@router.get("/learn/program")
@declare(Access.COMPUTE)
def one_program(request: Request) -> Response:
    """One program's life."""
    return _part(request, "program.html", partial(_program, request), "program")


class TilesPart(TypedDict):
    """Context of partials/learn/tiles.html."""

    tile_n: int
    tile_sizes: tuple[int, ...]
    tile_rows: list[tiles.Row]
    tile_chart: Chart
    tile_words: str
    tile_device: str
    tile_depth: int
    tile_stages: int


def _tiles(request: Request) -> TilesPart:
    size = request.query_params.get("n", "")
    n = int(size) if size in map(str, tiles.SIZES) else tiles.SIZES[2]
    device = find_device(DEFAULT_DEVICE)
    assert device is not None
    rows = tiles.tile_rows(n, device)
    return {"tile_n": n, "tile_sizes": tiles.SIZES, "tile_rows": rows, "tile_chart": tiles.tile_chart(rows),
            "tile_words": tiles.describe_balance(rows), "tile_device": device.name, "tile_depth": tiles.DEPTH,
            "tile_stages": tiles.STAGES}  # fmt: skip


@router.get("/learn/tiles")
@declare(Access.READ)
def tile(request: Request) -> Response:
    """The tile's traffic for one size."""
    return _part(request, "tiles.html", partial(_tiles, request), "tiles")


def _place(request: Request) -> int | None:
    number = request.query_params.get("config", "")
    return int(number) if number.isascii() and number.isdigit() and len(number) < 4 else None


@router.get("/learn/autotune")
@declare(Access.READ)
def autotune(request: Request) -> Response:
    """One configuration: its code and its time."""
    return _part(
        request, "tuned.html", lambda: tuned.case_context(request.query_params.get("case"), _place(request)), "autotune"
    )


DECIDED = "rms_norm_by_hand"
"""The example whose generated kernel is compiled on the page."""


def _compile_example(request: Request) -> tuple[RegionBody, Own, OwnMachines]:
    """The example as a region, its generated kernel, and what the compiler makes of it."""
    region: RegionBody = {
        "name": examples()[DECIDED].title, "kind": "", "by_hand": True, "text": examples()[DECIDED].text,
        "source": None, "calls_per_step": 1.0, "time_us_per_step": None, "share_of_step": None, "shapes": [],
        "irregularity": None, "cost": None, "oracle": [], "recompiles": None, "prediction": "rules", "advice": None,
    }  # fmt: skip
    own = kernel_code.own_of(state_of(request), region, "triton:generated")
    return region, own, kernel_code.machines_of(state_of(request), region, own)


@page_and_json(router, "/learn/decided", Access.COMPUTE)
def decisions_page(request: Request) -> Response:
    """The example's generated kernel, line by line, with its instructions. A child compiles it once."""
    region, own, answer = _compile_example(request)
    if wants_json(request):
        return JSONAnswer(answer)
    context = {**own_machine_page(region, own, answer, "/learn/decided")}
    template = "partials/kernels/own_machine.html" if is_fragment(request) else "compiler_decisions.html"
    return render(template, context, request=request)


@router.get("/learn/decided/{kernel}/{listing}.txt")
@declare(Access.COMPUTE)
def decided_listing(request: Request, kernel: str, listing: str) -> Response:
    """One of its listings, whole."""
    machine = kernel_code.kernel_named(_compile_example(request)[2], kernel)
    if listing not in machine["texts"]:
        raise missing("listing")
    return PlainTextResponse(machine["texts"][listing])


def _part(request: Request, template: str, context: Callable[[], Mapping[str, object]], anchor: str) -> Response:
    """A part of the page for htmx, whose address follows; for everybody else the page, at that part."""
    query = urlencode(list(request.query_params.multi_items()))
    page = f"/learn?{query}#{anchor}" if query else f"/learn#{anchor}"
    if not is_fragment(request):
        return RedirectResponse(page, 303)
    return render(f"partials/learn/{template}", context(), request=request, headers={"HX-Replace-Url": page})
