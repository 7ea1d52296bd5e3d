"""One autotune landscape from a plain request to the API's object, for the job's child and for the command line.

Imports neither web nor database: it runs on hosts that have only torch, triton and numpy.
"""

from __future__ import annotations

from collections.abc import Callable

from app import __version__
from app.objects import common as objects
from app.objects.landscape import LandscapeBody
from app.objects.task import LandscapeTask
from kernels.measure.model import to_json
from kernels.measure.request import Progress

BUDGET_S = 60.0
"""Seconds for the points where nobody says otherwise."""


def survey(
    request: LandscapeTask,
    *,
    on_progress: Callable[[objects.Progress], None] = lambda _: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> LandscapeBody:
    """Measure the points of one candidate's kernel; the API's landscape.

    request: region (text), candidate; where known binding ({symbol: size}), device ("cpu" for none), budget_s, points,
    target (a GPU that is not here, such as sm_90: points are compiled for it and not measured).
    RegionError for a text that cannot be read.
    """
    from kernels.measure.landscape.grid import MOST_POINTS
    from kernels.measure.landscape.survey import LandscapeRequest, landscape

    wanted = LandscapeRequest(
        region_text=request["region"],
        candidate=request["candidate"],
        sizes=tuple(sorted((request.get("binding") or {}).items())),
        device=request.get("device"),
        budget_s=float(request.get("budget_s") or BUDGET_S),
        points=int(request.get("points") or MOST_POINTS),
        target=request.get("target"),
    )

    def tell(progress: Progress) -> None:
        on_progress(to_json(progress))

    body: LandscapeBody = to_json(landscape(wanted, tell, cancelled))
    body["software"] |= {"tritonworthy": __version__}
    return body
