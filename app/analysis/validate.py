"""One validation from a plain request to the API's object, for the job's child and for the command line.

Imports neither web nor database: it runs on hosts that have only torch, triton and numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from app import __version__
from app.objects import common as objects
from app.objects.record import ValidationBody
from app.objects.region import RegionShape
from app.objects.task import ValidateTask
from kernels.measure.messages import UserKernel
from kernels.measure.model import CandidateResult, Validation, to_json
from kernels.measure.request import Progress, SharedGpu, ValidationRequest
from profiler.region.model import Binding

if TYPE_CHECKING:
    from kernels.measure.processes.processes import ForkServer


KERNEL_SHARE = 0.4
"""Of the budget, that the user's kernel may take to compile and be checked: building ends before the budget does."""


def bindings(shapes: list[RegionShape] | None) -> tuple[Binding, ...]:
    """A region's `shapes` as Bindings: [{"binding": {"N": 37}, "calls": 3.0, "time_us_per_step": None}, ...]."""
    return tuple(
        Binding(tuple(sorted(shape["binding"].items())), shape["calls"], shape.get("time_us_per_step"))
        for shape in shapes or ()
    )


def _without_times(candidate: CandidateResult) -> CandidateResult:
    """What a CPU or Triton's interpreter took is no evidence of what a GPU would take: null."""
    shapes = tuple(
        replace(s, time_us=None, wall_us=None, ratio_to_eager=None, ratio_to_best_other=None, share_of_limit=None)
        for s in candidate.shapes
    )
    return replace(
        candidate, time_us=None, wall_us=None, ratio_to_eager=None, ratio_to_best_other=None, share_of_limit=None,
        compile_s=None, shapes=shapes,
    )  # fmt: skip


def validate_region(
    request: ValidateTask,
    *,
    on_progress: Callable[[objects.Progress], None] = lambda _: None,
    cancelled: Callable[[], bool] = lambda: False,
    fork_server: ForkServer | None = None,
    shared: SharedGpu | None = None,
    kernel: UserKernel | None = None,
    kernel_limit_s: float | None = None,
) -> ValidationBody:
    """Measure the candidates of request["region"]; the API's validation, with the advice before and after.

    request: region (text); where known advice_before, shapes (as the region object has them), candidates, device
    ("cpu" for none), budget_s, share_of_step, cache_dir, thresholds (of the rule, by name). RegionError for a text that
    cannot be read. fork_server: one that is open already (`kernels.measure.session.open_fork_server`). shared: of a GPU
    that several validations use side by side. kernel: of the user's own file, for the command line alone: no request
    that a server takes or stores has one. kernel_limit_s: until it counts as hung; by default 120, and 0.4 of the
    budget at most.
    """
    from app.advice.evidence import decision_thresholds, reissue_json
    from app.thresholds import Thresholds
    from kernels.measure.session import validate

    thresholds = Thresholds.from_mapping(request.get("thresholds") or {})
    wanted = ValidationRequest(
        region_text=request["region"],
        bindings=bindings(request.get("shapes")),
        candidates=tuple(candidates) if (candidates := request.get("candidates")) else None,
        device=request.get("device"),
        share_of_step=request.get("share_of_step"),
        advice_before=request.get("advice_before") or None,
        decision=decision_thresholds(thresholds),
        shared=shared,
        kernel=kernel,
    )
    if budget_s := request.get("budget_s"):
        wanted = replace(wanted, budget_s=float(budget_s))
    if kernel is not None:  # a hang is told as one, and not as a budget that was used up
        limit_s = kernel_limit_s or min(wanted.limits.kernel_s, KERNEL_SHARE * wanted.budget_s)
        wanted = replace(wanted, limits=replace(wanted.limits, kernel_s=limit_s))
    if cache_dir := request.get("cache_dir"):
        wanted = replace(wanted, cache_dir=str(cache_dir))

    def tell(progress: Progress) -> None:
        on_progress(to_json(progress))

    measured: Validation = validate(wanted, tell, cancelled, fork_server=fork_server)
    told = replace(measured, software={**measured.software, "tritonworthy": __version__})
    if told.device is None:
        told = replace(told, candidates=tuple(map(_without_times, told.candidates)))
    validation: ValidationBody = to_json(told)
    before = request.get("advice_before")
    if before is None:
        return validation
    after = reissue_json(before, validation, request.get("share_of_step"), thresholds)
    return {**validation, "advice_after": after}
