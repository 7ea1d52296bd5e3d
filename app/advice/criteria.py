"""Criteria: the rule's conditions one by one, pure functions of the Case, shown whether they hold or not.

To add one, write its function here under `@partial(Declaration, ...)` and put it into CRITERIA; then its test, and
`python -m tools.docs.rule_page`. What is said of it anywhere is in the declaration.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from app.advice.case import Case, percent, short
from app.advice.declaration import Claim, Declaration, FactNumber, Judgement, Question
from app.advice.launches import is_host_bound, launch_bound_alone, launch_share, told_by_launches
from app.advice.model import Criterion
from app.advice.options import Option, no_triton
from app.estimate.compiled_bytes import predicted_bytes
from app.estimate.facts import Cover, RegionFacts
from app.thresholds import Thresholds
from app.units import digits, duration, factor, plain
from app.units import share as in_percent
from kernels.measure.records import LAUNCH_BOUND
from profiler.oracle.compiler.targets import TARGETS
from profiler.oracle.model import WITHOUT_GPU, Prediction, Recompiles
from profiler.region.graph.cost_model import Cost, bound

if TYPE_CHECKING:
    from profiler.trace.analyze.compile_blockers import CompileBlocker


@partial(
    Declaration,
    name="fast-enough",
    source="sources: fast enough? stop",
    claim=Claim("The step meets its target time", "skip", only_if_given=True),
    figure=duration,
    ends="where it holds, the answer is `skip`",
    ends_at=True,
    leave="the step meets its target",
    overruled=False,
    moves_with_step=True,
    fires_at=False,
    always=True,
    question=Question(
        "Is the step fast enough already?",
        "skip",
        True,
        "A target was given and is met. The cheapest kernel is the one that nobody has to maintain.",
        ends=True,
    ),
)
def fast_enough(case: Case) -> Judgement:
    """Holds where a target step time was given and the step meets it."""
    target, step = case.workload.target_step_time_us, case.workload.step_time_us
    if target is None:
        return Judgement(False, step, None, "no target step time was given")
    if step is None:
        because = f"the target is {target:.4g} µs, and the step's time is not known"
        return Judgement(None, None, target, because)
    met = step <= target
    because = f"the step takes {step:.4g} µs, {'within' if met else 'above'} its target of {target:.4g} µs"
    return Judgement(met, step, target, because)


@partial(
    Declaration,
    name="worth-it",
    source="sources: under 1 % of the step, don't",
    claim=Claim("Too small a part of the step to matter", "skip", on=False),
    thresholds=("worth_share",),
    figure=in_percent,
    ends="where it does not hold, the answer is `skip`",
    ends_at=False,
    moves_with_step=True,
    question=Question(
        "Could it matter at all?",
        "skip",
        False,
        "Under 1 % of the step, or nothing that could win 1 % of it back: Amdahl bounds what a part can give.",
        ends=True,
    ),
)
def worth_it(case: Case) -> Judgement:
    """Holds where the region's share of the step, and what any tool could save of the step, reach `worth_share`.

    What can be saved is the share times (1 - fastest predicted time / time now). When the share is not known, the
    region counts as worth it, `holds` is `null`, and a note says so. In a launch-bound step kernels take a few per cent
    of the time and launching them takes the rest: there the region's share is its share of the launches.
    """
    limit = case.settings.worth_share
    if case.share is None:
        because = "its share of the step is not known: it counts as worth it until somebody says"
        return Judgement(None, "unknown", limit, because)
    what = f"it takes {percent(case.share)} of the step ({case.share_source})"
    if case.share < limit:
        return Judgement(False, case.share, limit, f"{what}, under {percent(limit)}")
    gain = reachable_gain(case)
    if gain is not None and gain < limit:
        because = f"{what}, but the fastest way to run it saves {percent(max(gain, 0.0))} of the step"
        return Judgement(False, gain, limit, because)
    saved = "" if gain is None else f"; up to {percent(gain)} of the step can be saved"
    return Judgement(True, case.share, limit, what + saved)


def reachable_gain(case: Case) -> float | None:
    """Share of the step that the fastest option would save; None where either time is unknown."""
    if case.share is None or case.reachable is None or case.current is None or case.current.mid <= 0:
        return None
    return case.share * (1 - case.reachable / case.current.mid)


@partial(
    Declaration,
    name="kernel-problem",
    source="this project's rule: findings about the step come before findings about a kernel",
    claim=Claim("Launches, copies or waiting are the problem, no kernel", "skip", on=False),
    thresholds=("idle_share", "short_kernel_us", "launch_share"),
    figure=in_percent,
    ends="where it does not hold, the answer is `skip` with what helps instead, or for launches of a step `compile` in"
    " mode `reduce-overhead`; of a region by itself the estimate decides, by back-to-back calls",
    fires_at=False,
    always=True,
    question=Question(
        "Is it a kernel problem?",
        "skip",
        False,
        "Communication, copies and waiting for the host are none. Tiny kernels with the GPU idle between them are "
        "torch.compile's, in mode reduce-overhead: it replays them as one CUDA graph.",
        ends=True,
    ),
)
def kernel_problem(case: Case) -> Judgement:
    """Holds where faster kernels help: not for communication, copies between host and GPU, or waiting for the host.

    Nor where the GPU is idle for at least `idle_share` of the step between kernels that take at most `short_kernel_us`
    on average: that is launch-bound, and CUDA graphs help. A region without a trace is launch-bound by itself when
    three launches or more are at least `launch_share` of its predicted time; so is a forward and backward that takes
    the host clearly longer than the GPU. Its times are then those of back-to-back calls, in which the host sets the
    pace, and the estimate decides by them.
    """
    facts, settings = case.facts, case.settings
    reasons = {
        "communication": facts.communication and not facts.needs and "it is communication between GPUs",
        "host copy": facts.copies and facts.kind in ("copy", "host_copy") and facts.waits_for_host
        and "it copies to or from the host",
        "waiting for the host": facts.waits_for_host and "the GPU waits for the host here",
    }  # fmt: skip
    for value, because in reasons.items():
        if because:
            return Judgement(False, value, "compute or memory", because)
    idle, mean = facts.gpu_idle_share, facts.mean_kernel_us
    if idle is not None and mean is not None:
        short = idle >= settings.idle_share and mean <= settings.short_kernel_us
        because = (
            f"the GPU is idle for {percent(idle)} of the step, and its kernels take {mean:.3g} µs on average: "
            + (
                "launching them takes longer than running them"
                if short
                else "kernels of this length hide their own launches"
                + ("; what the host does between them comes first" if idle >= settings.idle_share else "")
            )
        )
        value = f"idle {percent(idle)}, {mean:.3g} µs a kernel"
        threshold = f"idle {percent(settings.idle_share)}, {settings.short_kernel_us:.3g} µs a kernel"
        return Judgement(not short, value, threshold, because)
    return _launches(case)


def _launches(case: Case) -> Judgement:
    """The region by itself: what share of eager's predicted time is launches."""
    limit = case.settings.launch_share
    eager = case.eager
    if eager is None or not told_by_launches(case.facts, case.workload):
        return Judgement(True, None, None, "nothing says that the GPU waits")
    if is_host_bound(eager):
        what = "its forward and backward" if case.facts.requires_grad else "a call"
        value = f"host {eager.host_us:.0f} µs, GPU {eager.time_us.mid:.0f} µs"
        because = (
            f"the host takes {eager.host_us:.0f} µs for {what}, the GPU {eager.time_us.mid:.0f}: "
            "back to back, the host sets the pace"
        )
        return Judgement(False, value, f"host {LAUNCH_BOUND:g} times the GPU", because)
    launches, share = launch_share(case.facts, eager)
    because = f"{launches:.0f} launches are {percent(share)} of its predicted time run one by one"
    holds = not launch_bound_alone(case.facts, case.workload, eager, case.settings)
    return Judgement(holds, share, limit, because)


@partial(
    Declaration,
    name="library-covers",
    source="sources: no library covers it is the first condition for Triton; coverage catalogue of the project",
    claim=Claim("One library call does all of it", "library"),
    thresholds=("textbook", "quantised_batch"),
    numbers=(
        FactNumber(
            "gemm_rows",
            "rows",
            "with {side} rows",
            "{:.0f}",
            low=1.0,
            high=2.0**24,
            whole=True,
            only_with="quantised",
            new_options=True,
        ),
    ),
    question=Question(
        "Does a library cover it?",
        "library",
        True,
        "Attention, plain GEMM, norms, quantised GEMM, optimizers: somebody tuned it for this GPU, and keeps doing so.",
    ),
)
def library_covers(case: Case) -> Judgement:
    """Holds where one library call does all of the region, under conditions that hold as far as they are known.

    What runs on the library already is kept, unless the estimate finds something faster. A call that covers a part is
    an alternative, with the rest left as it is. A matrix product with weights to unpack is for Marlin, Machete or
    torchao up to `quantised_batch` rows; with more it is bound by arithmetic, and unpacking once before cuBLAS is
    faster. In the widget, uniqueness under `textbook` means that a library has it.
    """
    chosen = best_cover(case.covers)
    if chosen is not None and not chosen.whole:
        name = short(chosen.candidate)
        because = f"{name} covers only a part of it"
        because = f"a part of it runs on {name} already, and nothing covers the rest" if chosen.already else because
        return Judgement(False, name, "a call that covers all of it", because)
    if chosen is not None:
        name = short(chosen.candidate)
        unknown = [text for text, holds in chosen.conditions if holds is None]
        because = f"it runs on {name} already" if chosen.already else f"{name} covers it"
        because += f", if {'; '.join(unknown)}" if unknown and not chosen.already else ""
        because += "" if chosen.installed or chosen.already else f" ({chosen.missing})"
        return Judgement(True, name, "a call whose conditions hold", because)
    failing = [
        f"{short(c.candidate)} does not: {next((t for t, h in c.conditions if h is False), 'it is another operation')}"
        for c in case.covers
    ]
    if case.facts.uniqueness is not None:
        low = case.settings.textbook
        because = f"uniqueness {case.facts.uniqueness:.2f} of {low:.2f}: no call is known for it"
        return Judgement(False, case.facts.uniqueness, low, because)
    because = "; ".join(failing[:3]) if failing else "no library covers it"
    return Judgement(False, None, "a call whose conditions hold", because)


def best_cover(covers: tuple[Cover, ...]) -> Cover | None:
    """The call to name: one for the whole region, what it runs on already, installed ones, surest first."""
    holding = [c for c in covers if c.covers]
    return min(holding, key=lambda c: (not c.whole, not c.already, not c.installed, _unknown(c)), default=None)


def runs_on_library(covers: tuple[Cover, ...]) -> Cover | None:
    """The call that the whole region is, as it stands."""
    return next((c for c in covers if c.covers and c.whole and c.already), None)


def _unknown(cover: Cover) -> int:
    return sum(holds is None for _, holds in cover.conditions)


@partial(
    Declaration,
    name="compile-fuses",
    source="torch.compile's fusion rules: pointwise and row reductions fuse, library calls and fallbacks do not",
    claim=Claim("It fuses into little more than the minimum traffic", "compile"),
    thresholds=("fused_near_ideal", "custom"),
    figure=factor,
    question=Question(
        "Does torch.compile fuse it?",
        "compile",
        True,
        "It costs one line and writes Triton itself. Graph breaks, changing shapes and the first call count against.",
    ),
)
def compile_fuses(case: Case) -> Judgement:
    """Holds where torch.compile's kernels move at most `fused_near_ideal` times the minimum traffic of the region.

    What nothing fuses across is named: matrix products, sorts, top-k, FFTs and Inductor's other fallbacks. With more
    than `recompiles` distinct shapes a note says that sizes have to be dynamic or padded. GPUs that Triton does not
    compile for (before sm_80) have no kernels of torch.compile either.

    It does not hold where the trace shows a graph break or an opaque call between the region's own operations. What
    lies next to them in the region's module has to be fixed first and does not change what is fused. Waits of the host
    and sizes that change are named and change nothing.

    In the widget, uniqueness from `custom` on means that nothing fused exists, except that elementwise chains fuse.
    """
    fuses, blockers = _over_sizes(_fuses(case), case.facts.recompiles), case.facts.obstacles
    if not blockers or case.facts.compiled:
        return fuses
    inside = [o for o in blockers if o.inside and o.stops]
    elsewhere = [o for o in blockers if o.stops and not o.inside]
    harmless = [o for o in blockers if not o.stops]
    because = fuses.because
    if inside:
        because += f"; but between its operations {_name_blockers(inside)}"
    if elsewhere:
        because += f"; to fix first, in the same module: {_name_blockers(elsewhere)}"
    if harmless:
        because += f"; also there: {', '.join(f'`{o.op}` ({o.does})' for o in harmless[:3])}"
    return replace(fuses, holds=False if inside else fuses.holds, because=because)


def _over_sizes(fuses: Judgement, recompiles: Recompiles | None) -> Judgement:
    """With how often the sizes in use make torch.compile compile; it gives up after its limit."""
    if recompiles is None or recompiles.graphs < 2:
        return fuses
    because = f"{fuses.because}; {recompiles.graphs} graphs for {len(set(recompiles.bindings))} sizes"
    if recompiles.because:
        because += ", for each size its own: it stays no symbol"
    if recompiles.gives_up:
        because += f", more than the {recompiles.limit} after which it runs eagerly: compile with dynamic=True"
    return replace(fuses, holds=False if recompiles.gives_up else fuses.holds, because=because)


def _name_blockers(blockers: list[CompileBlocker]) -> str:
    """`aten::item` (2 a step) breaks the graph: keep it a tensor, …"""
    first, others = blockers[0], blockers[1:]
    said = f"`{first.op}` ({first.calls_per_step:.3g} a step) {first.does}: {first.remedy}"
    names = ", ".join(f"`{o.op}`" for o in others[:3])
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    return f"{said}; then {names}{more}" if others else said


def _fuses(case: Case) -> Judgement:
    facts, limit = case.facts, case.settings.fused_near_ideal
    shape = facts.heaviest
    if facts.compiled:
        because = "these are torch.compile's kernels already"
        return Judgement(True, "compiled", None, because)
    missing = no_triton(case.device)
    if missing:
        because = f"{missing}, and torch.compile writes its kernels in it"
        return Judgement(False, case.device.arch, ", ".join(TARGETS), because)
    if shape is None:
        return _fuses_by_rules(facts, case.settings)
    if facts.prediction is not None:
        return _fuses_as_predicted(facts, shape.cost, facts.prediction, limit)
    ideal = shape.cost.ideal.bytes_moved
    ratio = shape.cost.fused.bytes_moved / ideal if ideal else 1.0
    holds = ratio <= limit and shape.cost.fused.launches <= max(1, shape.cost.unfused.launches)
    if facts.fuses is not None:
        holds = facts.fuses
    before, after = shape.cost.unfused.launches, shape.cost.fused.launches
    because = f"{before} launches to {after}, {ratio:.2f}x minimum traffic"
    if facts.externs:
        because += f"; nothing fuses across {', '.join(facts.externs[:4])}"
    return Judgement(holds, round(ratio, 3), limit, because)


def _fuses_as_predicted(facts: RegionFacts, cost: Cost, prediction: Prediction, limit: float) -> Judgement:
    """By the kernels that Inductor wrote: their bytes by its own count, those of its library calls by ours."""
    how = "without a GPU" if prediction.how == WITHOUT_GPU else prediction.how
    source = f"Inductor's own kernels (torch {prediction.torch}), {how}"
    ideal = cost.ideal.bytes_moved
    replaced = [r.name for r in prediction.replaced]
    moved = predicted_bytes(cost, prediction, facts.sdpa, facts.sdpa_bytes)
    ratio = moved / ideal if ideal else 1.0
    count, calls = sum(k.calls for k in prediction.kernels), sum(e.calls for e in prediction.externs)
    because = f"{cost.unfused.launches} launches to {prediction.launches}: {count} generated"
    if calls:
        names = ", ".join(dict.fromkeys(e.name.removeprefix("aten.") for e in prediction.externs))
        because += f", {calls} left to libraries ({names})"
    because += f"; {ratio:.2f}x minimum traffic"
    if replaced:
        because += f"; {replaced[0]} replaces what was written"
    holds = ratio <= limit and prediction.launches <= max(1, cost.unfused.launches)
    return Judgement(holds, round(ratio, 3), limit, because, source)


def _fuses_by_rules(facts: RegionFacts, settings: Thresholds) -> Judgement:
    if facts.fuses is not None:
        because = "an elementwise chain fuses whole" if facts.fuses else "nothing fused exists for it"
        return Judgement(facts.fuses, facts.uniqueness, settings.custom, because)
    if facts.externs:
        because = f"sizes are not known; nothing fuses across {', '.join(facts.externs[:4])}"
        return Judgement(None, "unknown", settings.fused_near_ideal, because)
    because = "sizes are not known: its operations are of kinds that fuse"
    return Judgement(None, "unknown", settings.fused_near_ideal, because)


def _refuse_compute_bound(option: Option, judged: Criterion) -> str:
    refused = option.tool == "triton" and judged.holds is False
    return "compute-bound, and what it does has fused kernels" if refused else ""


@partial(
    Declaration,
    name="bandwidth-bound-or-custom",
    source="sources: bandwidth-bound, so that fusing saves bytes, or custom enough that nothing fused exists",
    claim=Claim("Bound by memory, or nothing fused exists for it", "triton"),
    refuses=_refuse_compute_bound,
    question=Question(
        "Bound by memory, or so custom that nothing fused exists?",
        "triton",
        True,
        "Fusing saves bytes, and autotuning over shapes is free. Compute-bound, Triton reaches 80 to 95 % "
        "of hand-tuned code.",
    ),
)
def bandwidth_or_custom(case: Case) -> Judgement:
    """Holds where the region, ideally fused, is bound by memory on the device, or custom: nothing fused exists for it.

    Custom is what no library covers and torch.compile does not make one pass of. Where it does not hold, Triton is not
    admitted: on compute-bound work it reaches about 80 to 95 % of hand-tuned CUDA, and the library has that already.
    """
    facts = case.facts
    side = facts.bound
    shape = facts.heaviest
    detail = "your input" if side else "not known"
    if shape is not None:
        side = bound(shape.cost, case.device)
        detail = f"{digits(shape.cost.intensity)} FLOP per byte, fused"
    fused = compile_fuses(case).holds
    covered = library_covers(case).holds
    custom = not covered and fused is False
    holds: bool | None = side == "memory" or custom
    if side is None and not custom:
        holds = None
    because = f"{side}-bound ({detail})" if side else "whether it is memory-bound is not known"
    if side == "compute":
        because += "; Triton reaches about 80 to 95 % of hand-tuned CUDA on compute-bound work"
    if custom:
        none = "no library covers it and torch.compile does not make one pass of it"
        because = f"{because}; {none}" if side == "memory" else f"{none}; {because}"
    value = "custom" if custom and side != "memory" else side
    return Judgement(holds, value, "memory, or custom", because)


@partial(
    Declaration,
    name="several-shapes",
    source="sources: autotuning over several shapes wanted, no time to tune CUDA for each",
    claim=Claim("Several shapes to tune for", "triton"),
    thresholds=("irregular",),
    numbers=(FactNumber("irregularity", "irregularity", "with shapes of irregularity {side}", "{:.4g}"),),
    joins="bandwidth-bound-or-custom",
)
def several_shapes(case: Case) -> Judgement:
    """Holds where the irregularity of the workload reaches `irregular`: tuning for several shapes is worth having.

    Irregularity is 0 to 1, from the number of distinct shapes, the spread of their sizes, the alignment of rows (16
    bytes, multiples of 8 and of 64) and whether the work depends on values; each part is shown. Where sizes are known
    it is said, and the estimate decides. Without sizes there is no estimate, and Triton takes all three conditions of
    the sources: no library, nothing fused, several shapes.
    """
    value, limit = case.facts.irregularity, case.settings.irregular
    if value is None:
        return Judgement(None, None, limit, "shapes are not known")
    shapes = len(case.facts.shapes)
    counted = f", {shapes} distinct shapes" if shapes > 1 else ""
    holds = value >= limit
    word = "worth tuning for several shapes" if holds else "one tuning serves it"
    because = f"irregularity {value:.2f}{counted}: {word}"
    return Judgement(holds, round(value, 3), limit, because)


@partial(
    Declaration,
    name="portable",
    source="sources: portability, NVIDIA and AMD from one source, is what Triton gives and CUDA does not",
    claim=Claim("One source serves NVIDIA and AMD", "triton"),
    fires_at=False,
)
def portable(case: Case) -> Judgement:
    """Holds where one Triton source serves the device and the other vendor's. Counts for Triton where CUDA is meant."""
    both = "one source for NVIDIA and AMD"
    missing = no_triton(case.device)
    if missing:
        because = f"{missing}: what runs on it is a library's or CUDA"
        return Judgement(False, case.device.arch, both, because)
    vendor, other = ("AMD", "NVIDIA") if case.device.arch.startswith("gfx") else ("NVIDIA", "AMD")
    because = f"Triton and torch.compile run one source on {vendor} ({case.device.arch}) and {other}; CUDA is NVIDIA's"
    if case.facts.needs:
        because = f"it needs {', '.join(case.facts.needs)}, which is written for one vendor"
        return Judgement(False, case.device.arch, both, because)
    return Judgement(True, case.device.arch, both, because)


def _refuse_cuda(option: Option, judged: Criterion) -> str:
    return "nothing in it needs CUDA" if option.tool == "cuda" and not judged.holds else ""


@partial(
    Declaration,
    name="needs-cuda",
    source="sources: warp specialisation, cooperation over the whole grid and NVLink stay with CUDA or its libraries",
    claim=Claim("It needs what Triton does not give", "cuda"),
    refuses=_refuse_cuda,
    question=Question(
        "Does it need what Triton does not give?",
        "cuda",
        True,
        "Cooperation of the whole grid, the last per cent of warp specialisation, NVLink. About ten times the code.",
    ),
)
def needs_cuda(case: Case) -> Judgement:
    """Holds where the region needs what Triton does not give or makes hard.

    That is cooperation over the whole grid, NVLink inside the kernel, the last per cent of warp specialisation. Only
    then is CUDA admitted, after a library that has it, and Gluon, CuTe DSL, cuTile and TileLang are named with what
    each buys on the device's architecture.
    """
    needs = case.facts.needs
    because = f"it needs {', '.join(needs)}" if needs else "nothing in it needs more than Triton gives"
    return Judgement(bool(needs), ", ".join(needs) or None, None, because)


CRITERIA: tuple[Declaration, ...] = (
    fast_enough,
    worth_it,
    kernel_problem,
    library_covers,
    compile_fuses,
    bandwidth_or_custom,
    several_shapes,
    portable,
    needs_cuda,
)
"""Every criterion, in the order in which the rule asks. docs/rule.md has one section each."""

BY_NAME = {criterion.name: criterion for criterion in CRITERIA}
NAMES = tuple(BY_NAME)


def figure(value: object, name: str) -> str:
    """A criterion's value or threshold with its unit, such as µs, per cent, or times the minimum traffic."""
    criterion = BY_NAME.get(name)
    if criterion is None or criterion.figure is None or isinstance(value, bool) or not isinstance(value, int | float):
        return plain(value)
    return criterion.figure(float(value))
