"""The page of a stored region: its tabs, advice that came later, what torch.compile makes of it, the what-if."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Form, Request
from fastapi.responses import PlainTextResponse, RedirectResponse, Response

from app.requests import regions
from app.requests.state import state_of
from app.web.pages.common import (
    find_region,
    missing,
    parse_number,
)
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.pages.region.address import implied_tab, shown_address, what_if_values
from app.web.pages.region.stored import page_context, render_page, with_advice_state
from app.web.server.access import Access, declare
from app.web.server.json_response import JSONAnswer
from app.web.templating import is_fragment, render
from app.web.views.region import whatif
from app.web.views.region.compiled_kernels import machine_page

router = APIRouter(include_in_schema=False)


@page_and_json(router, "/regions/{region_id}", Access.COMPUTE)
def region(request: Request, region_id: str, *, tab: str = "") -> Response:
    """One region: verdict, code, one chart, why; the open tab, which htmx asks for alone."""
    stored = find_region(request, region_id)
    if wants_json(request):
        return JSONAnswer(stored)
    return render_page(request, page_context(request, stored, tab or implied_tab(request)))


@router.get("/regions/{region_id}/advice")
@declare(Access.COMPUTE)
def advice(request: Request, region_id: str) -> Response:
    """The advice on a region whose page was opened before there was any; 204 while there is none yet."""
    region = find_region(request, region_id)
    if not is_fragment(request):
        return RedirectResponse(f"/regions/{region_id}", 303)
    region, without = with_advice_state(request, region)
    if without.get("awaited"):
        return Response(status_code=204)
    tab = shown_address(request).get("tab", "")
    return render("partials/region/preview.html", page_context(request, region, tab), request=request)


@router.get("/what-if")
@declare(Access.READ)
def what_if(request: Request, of: str = "", faster: str = "", step_us: str = "", page: str = "") -> Response:
    """What a step gains, for the sliders; the page's address follows them."""
    share, times = what_if_values(request)
    answer = whatif.answer(
        share if share is not None else whatif.UNKNOWN_SHARE, times if times is not None else 2.0, parse_number(step_us)
    )
    headers = {}
    if page.startswith(("/regions/", "/region?", "/r/")):
        tab = shown_address(request).get("tab", "")
        query = {**({"tab": tab} if tab and "tab=" not in page else {}), "of": of, "faster": faster}
        headers["HX-Replace-Url"] = f"{quote(page, safe='/?&=%')}{'&' if '?' in page else '?'}{urlencode(query)}"
    return render("partials/region/whatif_answer.html", {"whatif": answer}, request=request, headers=headers)


@router.post("/regions/{region_id}/oracle")
@declare(Access.WORK)
def predict(request: Request, region_id: str, tab: Annotated[str, Form()] = "") -> Response:
    """Ask what torch.compile would make of a stored region: what the page of a region from a trace does by itself."""
    find_region(request, region_id)
    region = regions.predict_region(state_of(request), region_id)
    if not is_fragment(request):
        return RedirectResponse(f"/regions/{region_id}?tab=compiler#oracle", 303)
    context = {**page_context(request, region, tab), "oracle_asked": True}
    return render("partials/kernels/oracle_answer.html", context, request=request)


@router.get("/regions/{region_id}/kernels/{mode}/{kernel}/{listing}.txt")
@declare(Access.COMPUTE)
def listing(request: Request, region_id: str, mode: str, kernel: str, listing: str) -> Response:
    """One listing of a compiled kernel, whole: ttir, ttgir, llir, ptx, sass."""
    texts = regions.kernel_machine(state_of(request), region_id, mode, kernel)["machine"]["texts"]
    if listing not in texts:
        raise missing("listing")
    return PlainTextResponse(texts[listing])


@page_and_json(router, "/regions/{region_id}/kernels/{mode}/{kernel}", Access.COMPUTE)
def machine(request: Request, region_id: str, mode: str, kernel: str) -> Response:
    """What Triton's compiler decides about one of Inductor's kernels: a page, or for htmx the part under the kernel."""
    answer = regions.kernel_machine(state_of(request), region_id, mode, kernel)
    if wants_json(request):
        return JSONAnswer(answer)
    context = {**machine_page(answer), "region_name": find_region(request, region_id)["name"]}
    template = "partials/kernels/machine.html" if is_fragment(request) else "machine.html"
    return render(template, context, request=request)
