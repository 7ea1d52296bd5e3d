"""One validation from a plain request to the API's object, for the job's child and for the command line.

Imports neither web nor database: it runs on hosts that have only torch, triton and numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app import __version__
from kernels.measure.model import Validation, to_json
from kernels.measure.request import Progress, ValidationRequest
from profiler.region.model import Binding

if TYPE_CHECKING:
    from kernels.measure.processes.processes import ForkServer

Json = dict[str, Any]


def bindings(shapes: list[Json] | None) -> tuple[Binding, ...]:
    """A region's `shapes` as Bindings: [{"binding": {"N": 37}, "calls": 3.0, "time_us_per_step": None}, ...]."""
    return tuple(
        Binding(tuple(sorted(shape["binding"].items())), shape["calls"], shape.get("time_us_per_step"))
        for shape in shapes or ()
    )


TIMES = ("time_us", "wall_us", "ratio_to_eager", "ratio_to_best_other", "share_of_limit", "compile_s")


def _without_times(candidate: Json) -> Json:
    """What a CPU or Triton's interpreter took is no evidence of what a GPU would take: null."""
    bare: Json = {key: None if key in TIMES else value for key, value in candidate.items()}
    if "shapes" in bare:
        bare["shapes"] = [_without_times(shape) for shape in bare["shapes"]]
    return bare


def validate_region(
    request: Json,
    *,
    on_progress: Callable[[Json], None] = lambda _: None,
    cancelled: Callable[[], bool] = lambda: False,
    zygote: ForkServer | None = None,
) -> Json:
    """Measure the candidates of request["region"]; the API's validation, with the advice before and after.

    request: region (text); where known advice_before, shapes (as the region object has them), candidates, device
    ("cpu" for none), budget_s, share_of_step, cache_dir, thresholds (of the rule, by name). RegionError for a text that
    cannot be read. zygote: one that is open already (`kernels.measure.session.open_zygote`).
    """
    from app.advice.evidence import decision_thresholds, reissue_json
    from app.thresholds import Thresholds
    from kernels.measure.session import validate

    thresholds = Thresholds.from_mapping(request.get("thresholds") or {})
    wanted = ValidationRequest(
        region_text=request["region"],
        bindings=bindings(request.get("shapes")),
        candidates=tuple(request["candidates"]) if request.get("candidates") else None,
        device=request.get("device"),
        share_of_step=request.get("share_of_step"),
        advice_before=request.get("advice_before"),
        decision=decision_thresholds(thresholds),
    )
    if request.get("budget_s"):
        wanted = replace(wanted, budget_s=float(request["budget_s"]))
    if request.get("cache_dir"):
        wanted = replace(wanted, cache_dir=str(request["cache_dir"]))

    def tell(progress: Progress) -> None:
        on_progress(to_json(progress))

    measured: Validation = validate(wanted, tell, cancelled, zygote=zygote)
    body: Json = to_json(measured)
    body["software"] |= {"tritonworthy": __version__}
    if body["device"] is None:
        body["candidates"] = [_without_times(c) for c in body["candidates"]]
    before = request.get("advice_before")
    if before is None:
        return body
    return body | {"advice_after": reissue_json(before, body, request.get("share_of_step"), thresholds)}
