"""Options: every way to run a region, with its predicted time, before the rule admits or refuses it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app.advice.beyond_triton import named
from app.advice.in_helion import predicted_note
from app.advice.model import Alternative, Tool
from app.estimate import predict
from app.estimate.facts import Cover, Kernel, RegionFacts, ShapeFacts
from app.estimate.predict import Prediction
from app.estimate.range import Range
from app.estimate.rates import FITTED, Rates, spread
from profiler.hardware import Device
from profiler.oracle.compiler.targets import TARGETS
from profiler.region import op_kinds
from profiler.region.graph.cost_model import bound, floor_us

EFFORT_LINES: Mapping[str, int] = {
    # sources: library 1 line, torch.compile 1 decorator, Triton 50 to 200 lines, CUDA 500 to 5,000
    "library": 1, "compile": 1, "pointwise": 50, "rows": 70, "gemm": 150, "attention": 200, "cuda": 1000,
}  # fmt: skip

OBSERVED = (0.7, 1.4)
"""How far an observed time may pull the predictions of the other options."""
MOSTLY = 0.8
"""Share of matrix products in a region's time from which on every option is as fast as they are."""
ONE_TILE = 512
"""Columns of a matrix product whose rows a Triton program can hold whole, to reduce them in the epilogue."""
SMALL_HIDDEN = 256
"""Hidden sizes up to which two products can stay in one program (Inductor's b2b_gemm gives up earlier)."""
ROUTER_COLUMNS = 4096
"""Row lengths up to which a top-k fits one program's registers."""


@dataclass(frozen=True, slots=True)
class Option:
    """An Alternative with what the choice needs as well as its time."""

    alternative: Alternative
    bytes_written: int | None = None
    installed: bool = True
    runs: bool = True  # installed, or this program has a rewrite that runs it
    part: frozenset[str] | None = None  # what it replaces; None for all of it
    host_us: float = 0.0
    other_us: Range | None = None  # its time by the other clock: of back-to-back calls, or of the device alone
    recorded: bool = False  # a kernel of this project's own whose time with gradients is read off recorded rows

    @property
    def costly(self) -> bool:
        """More than a line of code or a decorator: it has to win by a margin."""
        return self.tool in ("triton", "cuda") or not self.installed

    @property
    def at_hand(self) -> bool:
        """There is such a kernel or call already: nothing has to be written or installed."""
        return self.installed and self.alternative.mode != "custom"

    @property
    def tool(self) -> Tool:
        return self.alternative.tool

    @property
    def mid(self) -> float | None:
        return None if self.alternative.time_us is None else self.alternative.time_us.mid


def options(
    facts: RegionFacts,
    covers: tuple[Cover, ...],
    device: Device,
    current: Range | None,
    kernels: Range | None,
    rates: Rates = FITTED,
    by_wall: bool = False,
) -> tuple[Option, ...]:
    """Every option in order of effort. current: µs of one call as it runs now; kernels: of it, on the GPU.

    by_wall: the host sets the pace, so that times are those of back-to-back calls.

    Where kernels were observed, every prediction is scaled by what it says of eager's: the trace ran at its own clocks
    and with its inputs in L2 or not. A factor far from 1 says something else, so it is held within OBSERVED.
    """
    eager = predict.eager(facts, device, rates)
    ways = [_ruled_out(o, facts, device) for o in _ways(facts, covers, device, rates)]
    kept = _keep(facts, current, eager)
    if by_wall:
        return (replace(kept, other_us=eager.time_us if eager is not None else None), *map(_by_wall_time, ways))
    factor = 1.0
    if kernels is not None and eager is not None and eager.time_us.mid > 0 and not facts.compiled:
        low, high = OBSERVED if predict.matrix_share(facts, device, rates) < MOSTLY else (0.0, math.inf)
        factor = min(high, max(low, kernels.mid / eager.time_us.mid))
    kept = replace(kept, other_us=predict.back_to_back(eager).time_us if eager is not None else None)
    return (kept, *(_with_wall_time(_scale(o, factor)) for o in ways))


def _ways(facts: RegionFacts, covers: tuple[Cover, ...], device: Device, rates: Rates) -> list[Option]:
    """Every option but leaving it as it is."""
    ways: list[Option] = []
    ways += [_library(facts, cover, device, rates) for cover in covers if cover.covers and not cover.already]
    ways += _compile(facts, device, rates)
    ways += _triton(facts, device, rates)
    if facts.needs:
        ways.append(_cuda(facts, device, rates))
    return ways


def _by_wall_time(option: Option) -> Option:
    """With its time by the wall clock, where the host sets the pace."""
    time = option.alternative.time_us
    if time is None:
        return option
    by_wall = predict.by_the_wall(time, option.host_us)
    return replace(option, alternative=replace(option.alternative, time_us=by_wall), other_us=time)


def _with_wall_time(option: Option) -> Option:
    time = option.alternative.time_us
    return option if time is None else replace(option, other_us=predict.by_the_wall(time, option.host_us))


ACCUMULATION = "accumulation"
"""The kind of gradients that are added up or scaled."""


def no_triton(device: Device) -> str:
    """Why neither Triton nor torch.compile, which writes Triton, has kernels for the device; "" where they have."""
    if not device.arch.startswith("sm_") or device.arch in TARGETS:
        return ""
    return f"Triton does not compile for {device.arch}"


def nothing_to_compute(facts: RegionFacts) -> str:
    """Why no kernel is worth having: every tensor that is read has no element, or none is read. "" elsewhere."""
    if facts.shapes and not any(s.cost.unfused.launches for s in facts.shapes):
        return "its operations are views, which launch no kernel"
    empty = bool(facts.shapes) and all(
        not s.cost.unfused.bytes_read and any(not o.elements for o in s.operations) for s in facts.shapes
    )
    return "its tensors are empty" if empty else ""


def not_compilable(facts: RegionFacts) -> str:
    """Why neither torch.compile nor a kernel takes the place of what runs, whatever is predicted; "" elsewhere.

    What torch.compile wrote stays its own: only its modes are left to choose from.
    """
    if facts.already_tuned:
        return "it is an opaque kernel already: torch.compile cannot enter it"
    if facts.kind == ACCUMULATION:
        return "autograd's engine adds and scales gradients outside of what is compiled"
    if facts.random and facts.kinds <= {op_kinds.RANDOM}:
        return "random numbers are drawn by one kernel, and there is nothing to fuse them with"
    return ""


def _ruled_out(option: Option, facts: RegionFacts, device: Device) -> Option:
    """Not admitted where the device or the sizes rule it out, whatever is predicted."""
    reasons = [nothing_to_compute(facts) if option.tool != "skip" else ""]
    written = option.tool in ("triton", "compile")
    reasons += [no_triton(device), not_compilable(facts)] if written else []
    if not any(reasons):
        return option
    return refuse(option, "; ".join(r for r in reasons if r))


def refuse(option: Option, reason: str) -> Option:
    """Not admitted, for this reason. Spelled out: a verdict is asked for thousands of times, and `replace` is slow."""
    old = option.alternative
    note = f"{old.note}; {reason}" if old.note else reason
    made = Alternative(old.tool, old.candidate, old.time_us, old.effort_lines, note, False, old.call, old.mode, reason)
    return Option(
        made, option.bytes_written, option.installed, option.runs, option.part, option.host_us, option.other_us,
        option.recorded,
    )  # fmt: skip


def _scale(option: Option, factor: float) -> Option:
    time = option.alternative.time_us
    if time is None or factor == 1.0:
        return option
    return replace(option, alternative=replace(option.alternative, time_us=time.times(factor)))


def _keep(facts: RegionFacts, current: Range | None, eager: Prediction | None) -> Option:
    note = "as it runs now"
    if facts.compiled:
        note = "torch.compile's kernels, as they run now"
    written = eager.bytes_written if eager else None
    return Option(Alternative("skip", "eager", current, 0, note, True, "", "default"), written)


def _library(facts: RegionFacts, cover: Cover, device: Device, rates: Rates) -> Option:
    name = cover.candidate.removeprefix("library:")
    whole = cover.whole or (facts.requires_grad and only_backward_left(facts, cover.operations))
    part = None if whole else cover.operations
    predicted = predict.library(
        facts, device, predict.as_called(cover, name), part, rates, cover.density, name in predict.BACKENDS
    )
    rest = "" if whole else "the rest stays as it is"
    note = "; ".join(n.rstrip(".") for n in (cover.missing, rest, cover.note) if n)
    alternative = Alternative(
        "library", cover.candidate, predicted.time_us if predicted else None, EFFORT_LINES["library"], note,
        True, cover.call, name,
    )  # fmt: skip
    runs = cover.installed or (bool(cover.adapter) and cover.package != "torch")  # another torch is no package to add
    written, host = (predicted.bytes_written, predicted.host_us) if predicted else (None, 0.0)
    return Option(alternative, written, cover.installed, runs, part, host)


BACKWARD = (
    "_backward",
    "_backward_data",
    "_to_copy",
    "ones_like",
    "expand",
    "div",
    "mul",
    "sum",
    "squeeze",
    "unsqueeze",
)


def only_backward_left(facts: RegionFacts, part: frozenset[str]) -> bool:
    """What a call leaves of a region with gradients is its own backward, which the library brings along.

    What has a line of the text is forward: a conversion or a product in front of a softmax stays eager next to it.
    """
    shape = facts.heaviest
    if shape is None:
        return False
    launched = shape.launched.operations if shape.launched is not None else ()
    written = {o.name for o in launched if o.line and o.kind not in (op_kinds.VIEW, op_kinds.CONSTANT)}
    left = [o for o in shape.operations if o.name not in part]
    return all(o.target.endswith(BACKWARD) and o.name not in written for o in left)


def _compile(facts: RegionFacts, device: Device, rates: Rates) -> list[Option]:
    modes = []
    for mode, note in (
        ("default", ""),
        ("reduce-overhead", "with CUDA graphs: sizes have to stay the same"),
        ("max-autotune", "tunes kernels and matrix products at the first call, without CUDA graphs"),
    ):
        if facts.compiled and mode == "default":
            continue
        predicted = predict.torch_compile(facts, device, mode, rates)
        if facts.sdpa:
            note = "; ".join(n for n in (note, "turns the attention into scaled_dot_product_attention") if n)
        broken = next((o for o in facts.obstacles if o.inside and o.stops), None)
        if broken is not None and not facts.compiled:
            note = "; ".join(n for n in (note, f"only once `{broken.op}` is dealt with: {broken.remedy}") if n)
        candidate = "compile" if mode == "default" else f"compile-{mode}"
        alternative = Alternative(
            "compile", candidate, predicted.time_us if predicted else None, EFFORT_LINES["compile"], note, True,
            compile_call(facts, mode), mode,
        )  # fmt: skip
        written, host = (predicted.bytes_written, predicted.host_us) if predicted else (None, 0.0)
        modes.append(Option(alternative, written, host_us=host))
    return modes


def compile_call(facts: RegionFacts, mode: str) -> str:
    """The line to paste; dynamic where the sizes vary more often than torch.compile recompiles."""
    name = facts.name if facts.name.isidentifier() else "region"
    options = []
    if mode == "max-autotune":
        options.append('mode="max-autotune-no-cudagraphs"')
    elif mode != "default":
        options.append(f'mode="{mode}"')
    if len(facts.shapes) > 1:
        options.append("dynamic=True")
    return f"{name} = torch.compile({', '.join([name, *options])})"


LAUNCH_FIRST = "what is generated from the region can be launched: try that before a kernel is written"


def _to_be_written(what: str, untried: Sequence[str]) -> str:
    """The note of a kernel to be written. untried: this project's own for the region, whose time no rate
    predicts yet."""
    if not untried:
        return f"{what}, to be written"
    return f"{what}: this project has {', '.join(untried)}, whose time is not predicted yet; a validation runs it"


def _triton(facts: RegionFacts, device: Device, rates: Rates) -> list[Option]:
    if not facts.shapes:
        alternative = Alternative("triton", "triton:custom", None, _lines(facts), "", True, "", "custom")
        return [Option(alternative)]
    known = [kernel for kernel in facts.kernels if predict.is_measured(kernel.candidate, facts.requires_grad)]
    untried = [kernel.candidate for kernel in facts.kernels if kernel not in known]
    kernels = [_own(facts, kernel, device, rates) for kernel in known]
    fused = any(k.kind == "fused" for s in facts.shapes for k in s.cost.kernels)
    if (fused or facts.taken.operations) and not facts.not_generated:
        predicted = predict.triton(facts, device, False, rates)
        note = "generated from the region; matrix products stay with the library" if _has_products(facts) else (
            "generated from the region")  # fmt: skip
        in_helion = predicted_note(facts.helion_lines, facts.generated_lines, facts.helion_installed)
        note = "; ".join(n for n in (note, in_helion) if n)
        lines = facts.generated_lines or _lines(facts)
        kernels.append(_write_option(predicted, "triton:generated", "generated", lines, note))
    if known:
        return kernels
    several = any(len(s.cost.kernels) > 1 for s in facts.shapes)
    unrolled = any(
        k.kind == "fused" and len(k.operations) > predict.UNROLLED for s in facts.shapes for k in s.cost.kernels
    )
    if facts.requires_grad:
        if not kernels:
            predicted = predict.triton(facts, device, True, rates)
            note = _to_be_written("forward and backward", untried)
            kernels.append(_write_option(predicted, "triton:custom", "custom", 2 * _lines(facts), note))
    elif (several or unrolled or not kernels) and not facts.taken.whole and one_kernel(facts, device):
        predicted = predict.triton(facts, device, True, rates)
        note = _to_be_written("one kernel for all of it", untried)
        option = _write_option(predicted, "triton:custom", "custom", _lines(facts), note)
        # Nobody has measured by how much such predictions are off, and there is a kernel to run.
        kernels.append(refuse(option, LAUNCH_FIRST) if kernels else option)
    elif fused and facts.not_generated:
        predicted = predict.triton(facts, device, False, rates)
        note = "a kernel for each group that fuses, to be written"
        kernels.append(_write_option(predicted, "triton:custom", "custom", _lines(facts), note))
    if fused and facts.not_generated:
        refused = f"not generated: {facts.not_generated.rstrip('.')}"
        kernels = [
            replace(o, alternative=replace(o.alternative, note=f"{o.alternative.note}; {refused}")) for o in kernels
        ]
    return kernels


def _own(facts: RegionFacts, kernel: Kernel, device: Device, rates: Rates) -> Option:
    mode = kernel.candidate.removeprefix("triton:")
    predicted = predict.own(facts, device, kernel, rates)
    lines = kernel.lines or _lines(facts)
    note = "a kernel of this project" if kernel.part is None else "a kernel of this project; the rest stays as it is"
    option = _write_option(predicted, kernel.candidate, mode, lines, note, kernel.call)
    return replace(option, recorded=predict.own_recorded(facts, kernel, rates))


def _write_option(
    predicted: Prediction | None, candidate: str, mode: str, lines: int, note: str, call: str = ""
) -> Option:
    time = predicted.time_us if predicted else None
    written, host = (predicted.bytes_written, predicted.host_us) if predicted else (None, 0.0)
    return Option(Alternative("triton", candidate, time, lines, note, True, call, mode), written, host_us=host)


def _cuda(facts: RegionFacts, device: Device, rates: Rates) -> Option:
    """CUDA reaches what Triton does not: the needs that the facts name. Predicted at the floor of the device."""
    times = [(s.calls, floor_us(s.cost, device) / 0.95 + rates.times.event) for s in facts.shapes]
    calls = sum(c for c, _ in times)
    time = spread(sum(c * t for c, t in times) / calls, "cuda", rates) if calls else None
    beyond = named(device.arch, facts.needs)
    note = "; ".join(n for n in (f"needs {', '.join(facts.needs)}, which Triton does not give", beyond) if n)
    return Option(Alternative("cuda", "cuda:custom", time, EFFORT_LINES["cuda"], note, True, "", "custom"))


def _has_products(facts: RegionFacts) -> bool:
    return bool(facts.kinds & {op_kinds.GEMM, op_kinds.ATTENTION, op_kinds.CONVOLUTION})


def _lines(facts: RegionFacts) -> int:
    if op_kinds.ATTENTION in facts.kinds or facts.kind == "attention":
        return EFFORT_LINES["attention"]
    if facts.kinds & {op_kinds.GEMM, op_kinds.CONVOLUTION} or "gemm" in facts.kind:
        return EFFORT_LINES["gemm"]
    rowwise = {
        op_kinds.REDUCTION,
        op_kinds.SOFTMAX,
        op_kinds.NORMALISATION,
        op_kinds.SCAN,
        op_kinds.SORT,
        op_kinds.SCATTER,
    }
    return EFFORT_LINES["rows"] if facts.kinds & rowwise else EFFORT_LINES["pointwise"]


def one_kernel(facts: RegionFacts, device: Device) -> bool:
    """One Triton kernel can do all of it: no full sort, FFT, dense convolution or backward; rows that fit a program."""
    if (
        facts.requires_grad
        or op_kinds.FFT in facts.kinds
        or op_kinds.OTHER in facts.kinds
        or "multinomial" in facts.externs
    ):
        return False
    if facts.externs and {"sort", "argsort", "kthvalue", "median", "mode", "unique", "_unique2"} & set(facts.externs):
        return False
    for shape in facts.shapes:
        if op_kinds.CONVOLUTION in facts.kinds and bound(shape.cost, device) == "compute":
            return False
        if any(o.target == "topk" and o.columns > ROUTER_COLUMNS for o in shape.operations):
            return False
        if not _products_fit(facts, shape):
            return False
    return True


def _products_fit(facts: RegionFacts, shape: ShapeFacts) -> bool:
    """Row reductions behind a product fit its tile or run online; a second product fits behind a narrow first."""
    gemms = [o for o in shape.operations if o.kind == op_kinds.GEMM]
    if not gemms or facts.kind == "attention":
        return True
    if len(gemms) > 1:
        return len(gemms) == 2 and all(g.n <= SMALL_HIDDEN and g.batch == 1 for g in gemms)
    reduces = facts.kinds & {op_kinds.REDUCTION, op_kinds.SOFTMAX, op_kinds.NORMALISATION}
    online = shape.cost.ideal.bytes_written * 16 < gemms[0].m * gemms[0].n * gemms[0].batch
    return not reduces or gemms[0].n <= ONE_TILE or online
