"""Estimate: predicted time of each candidate on a device, from bytes, FLOPs and launches. Pure functions; times in µs.

One kernel takes start + bytes / (copy rate x share), or FLOPs / (matmul rate x share) where that is longer; shares are
`rates.Rates`. A candidate is the sum over its kernels, and apart from it what a call costs the host: where the host
sets the pace, a call takes the longer of the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from app.atlas.interpolation import EIGHTY
from app.atlas.price import CALL_US
from app.atlas.shipped import basis_of
from app.estimate.call_time import (
    FLEX,
    ONE_PASS,
    OWN_BACKWARD,
    SDPA,
    STRIDED,
    WITH_CAP,
    backward_of,
    backward_recorded,
    by_hand_factor,
    idle_us,
    least_bytes,
    library_us,
    own_us,
    part_us,
)
from app.estimate.eager_time import (
    MOSTLY_KNOWN,
    call_us,
    eager_deviation,
    eager_us,
    operation_times,
    sureness,
)
from app.estimate.facts import NOTHING_TAKEN, Cover, FusionGap, Kernel, RegionFacts, ShapeFacts, Taken
from app.estimate.fused_time import (
    UNROLLED,
    arithmetic_us,
    bytes_us,
    calls_by_atlas,
    executed_us,
    fused_share,
    kernels_us,
)
from app.estimate.range import Range
from app.estimate.rates import BEYOND, FITTED, Fused, Rates, share_of, spread
from profiler.hardware import Device
from profiler.region import op_kinds
from profiler.region.graph.cost_model import Cost, memory_bytes

__all__ = [
    "BACKENDS",
    "SDPA",
    "STRIDED",
    "UNROLLED",
    "Prediction",
    "as_called",
    "back_to_back",
    "compiled_us",
    "eager",
    "eager_us",
    "generated_us",
    "goes_by_kernels",
    "library",
    "library_us",
    "matrix_share",
    "own",
    "own_recorded",
    "own_us",
    "torch_compile",
    "triton",
    "written_us",
]  # fmt: skip


TOGETHER = FusionGap()


@dataclass(frozen=True, slots=True)
class Prediction:
    """One candidate's time for one call, averaged over the workload's calls, and the bytes it writes on the way.

    time_us: on the device. launch_us: of it, launches. host_us: what the host takes for a call.
    """

    candidate: str
    time_us: Range
    launch_us: float
    bytes_written: int
    host_us: float = 0.0


def back_to_back(prediction: Prediction) -> Prediction:
    """The time of back-to-back calls, where the host may set the pace."""
    return replace(prediction, time_us=by_the_wall(prediction.time_us, prediction.host_us))


HOST_DEVIATION = 0.33
"""Standard deviation of the logarithm of what a call is predicted to cost the host. Of the corpus's fit third, where
wall time decides, 85 % of 48 times of eager, 85 % of 46 of torch.compile and 77 % of 31 of generated kernels are inside
their 80 % intervals; with device times' own intervals, scaled, 42, 30 and 31 % were.
"""


def by_the_wall(time: Range, host_us: float) -> Range:
    """Of a call of which the device takes `time` and the host host_us: the longer of the two, at either end too."""
    if host_us <= 0:
        return time
    wide = math.exp(EIGHTY * HOST_DEVIATION)
    return Range(
        max(time.low, host_us / wide), max(time.mid, host_us), max(time.high, host_us * wide),
        time.tail if time.mid >= host_us else 1.0,
    )  # fmt: skip


def eager(facts: RegionFacts, device: Device, rates: Rates = FITTED) -> Prediction | None:
    """Every operation on its own, as PyTorch launches it. None without sizes."""
    return _predict(
        "eager", facts, device, rates,
        deviation=None if facts.heaviest is None else eager_deviation(facts.heaviest, device, rates),
        time=lambda s: eager_us(s, device, rates),
        written=lambda c: c.unfused.bytes_written,
        launches=lambda s: s.cost.unfused.launches * rates.times.eager_kernel,
        host=lambda s: rates.host.call + _eager_host_us(s, rates, trained=facts.requires_grad),
    )  # fmt: skip


def torch_compile(
    facts: RegionFacts, device: Device, mode: str = "default", rates: Rates = FITTED
) -> Prediction | None:
    """torch.compile in mode default, max-autotune or reduce-overhead."""
    graphs = mode == "reduce-overhead"
    factor = _by_its_kernels(facts, device, rates)
    part = 0.0 if graphs else rates.host.part
    return _predict(
        "compile" if mode == "default" else f"compile-{mode}", facts, device, rates,
        deviation=None if factor is None else _compiled_deviation(facts),
        time=lambda s: (factor or 1.0) * compiled_us(s, device, mode, rates, facts.sdpa),
        written=lambda c: c.fused.bytes_written,
        launches=lambda s: s.cost.fused.launches * rates.times.fused_kernel,
        host=lambda s: _compiled_host_us(facts, s, graphs, rates) + part * s.joined,
        tail=1.0 if factor is None or facts.compiled_total is None else facts.compiled_total.tail,
    )  # fmt: skip


def goes_by_kernels(facts: RegionFacts, rates: Rates = FITTED) -> bool:
    """Whether torch.compile's time is that of Inductor's own kernels, and not what our fusion rules say."""
    return facts.compiled_total is not None and rates.atlas and facts.compiled_total.known >= MOSTLY_KNOWN


COMPILED_WIDER = 1.2
"""Kernels' errors together over what their own deviations come to: of 51 programs of the corpus's fit third 80 % were
inside then, 73 % without."""


def _compiled_deviation(facts: RegionFacts) -> float | None:
    return None if facts.compiled_total is None else COMPILED_WIDER * facts.compiled_total.deviation


def _by_its_kernels(facts: RegionFacts, device: Device, rates: Rates) -> float | None:
    """Time of the kernels that Inductor makes, by the atlas, over what our fusion rules say of the heaviest binding.

    None where the oracle was not asked or the atlas does not know its kernels.
    """
    total, shape = facts.compiled_total, facts.heaviest
    if total is None or shape is None or not goes_by_kernels(facts, rates):
        return None
    time_us = total.time_us - CALL_US + call_us(rates)
    return float((time_us / compiled_us(shape, device, "default", rates, facts.sdpa)) ** sureness(total.deviation))


def library(
    facts: RegionFacts,
    device: Device,
    call: str,
    part: frozenset[str] | None = None,
    rates: Rates = FITTED,
    density: float | None = None,
    by_context: bool = False,
) -> Prediction | None:
    """One library call. call: the candidate's name behind `library:`; part: what it replaces, None for all of it.
    density: share of attention's scores that it computes, where it is less than of any call; half of a causal order,
    as the rates were fitted, and not the half and a bit that its blocks are. by_context: a context around the call
    chooses one backend of SDPA.
    """
    scores = min(facts.attention_density, 1.0 if density is None else density)
    if _absent(facts, part):
        return None
    own = _call_host_us(facts, call, rates) + BACKEND_HOST_US * by_context
    return _predict(
        f"library:{call}", facts, device, rates,
        time=lambda s: library_us(s, device, call, rates, part, scores, facts.attends_in),
        written=lambda c: _bytes_written_with(c, part),
        launches=lambda s: rates.times.fused_kernel,
        host=lambda s: own + _rest_host_us(s, rates, part),
    )  # fmt: skip


BACKEND_HOST_US = 34.0
"""What the choice of one backend of SDPA adds to its call, a context around it: the median of 7 calls of three programs
of the corpus's fit third where the host sets the pace, 17 to 116 µs by the wall clock over torch's own choice (H200).
"""
BACKENDS = frozenset(f"{SDPA}.{name}" for name in ("flash", "cudnn", "efficient"))
FLEX_HOST_US = 140.0
"""What a call of FlexAttention costs the host: a compiled function whose guards look at every tensor of its block mask.
By the wall clock it took 1.3 and 1.0 times as long as torch.compile's call of the whole, which the host's numbers put
at 123 and 145 µs (two programs of the corpus's fit third where the host sets the pace, H200)."""
FLEX_BACKWARD = 2
"""Kernels of its backward: what rows of results and their gradients come to, and the gradients."""


def _call_host_us(facts: RegionFacts, call: str, rates: Rates) -> float:
    """What a library call costs the host: an operation of torch's, a compiled function, another package's launcher."""
    host = rates.host
    if call.startswith(FLEX):
        return FLEX_HOST_US + _trained_us(facts, host.trained - host.compiled + FLEX_BACKWARD * host.trained_kernel)
    if call.startswith("torch."):
        return host.call + host.launch + _trained_us(facts, host.engine)
    return host.library + _trained_us(facts, host.autograd)


def as_called(cover: Cover, name: str) -> str:
    """What the estimate tells from each other under one call's name: SDPA with an arbitrary mask, by whichever
    backend, and FlexAttention with a hyperbolic tangent of each score.
    """
    if name.startswith(SDPA):
        masked = "attn_mask=" in cover.call and "attn_mask=None" not in cover.call
        return f"{SDPA} with a mask" if masked else name
    return f"{FLEX}{WITH_CAP}" if name == FLEX and "torch.tanh(" in cover.call else name


def _absent(facts: RegionFacts, part: frozenset[str] | None) -> bool:
    """None of a call's operations is there: autograd wrote others in their place, and what it replaces is not known."""
    return part is not None and not any(o.name in part for s in facts.shapes for o in s.cost.operations)


def _rest_host_us(shape: ShapeFacts, rates: Rates, part: frozenset[str] | None) -> float:
    """What the operations that stay eager next to a call for a part cost the host; 0 where it is for all.

    Of the backward as many stay as of the forward's launches, and the call has a backward of its own: as in
    `call_time`. Autograd's engine is there for the call already.
    """
    if part is None:
        return 0.0
    behind = backward_of(shape)
    if not behind or behind & part:
        return _eager_host_us(shape, rates, part, bool(behind)) - rates.host.engine * bool(behind)
    everything = frozenset(o.name for o in shape.cost.operations)
    forward = [o for o in shape.cost.operations if o.name not in behind and o.launches]
    kept = sum(1 for o in forward if o.name not in part) / max(1, len(forward))
    stays = _eager_host_us(shape, rates, part | behind, trained=True) - rates.host.engine
    return stays + kept * (_eager_host_us(shape, rates, everything - behind, trained=True) - rates.host.engine)


def _bytes_written_with(cost: Cost, part: frozenset[str] | None) -> int:
    """Bytes that a call for some of the operations writes, and those that stay eager next to it; None for all."""
    if part is None:
        return cost.ideal.bytes_written
    launched = [o for o in cost.operations if o.launches]
    inside = [o.bytes_written for o in launched if o.name in part]
    return sum(o.bytes_written for o in launched if o.name not in part) + sum(inside[-1:])


def is_measured(candidate: str, trained: bool = False) -> bool:
    """Whether a shipped rate was fitted on this project's own kernel, over any axis; trained: on its backward too.

    One that no rate was fitted on is tried by a validation like the others, and not advised: its time would be a guess.
    """
    if trained and not is_measured(ONE_PASS.get(candidate, candidate + OWN_BACKWARD)):
        return False
    return any(name == candidate or name.startswith(f"{candidate} ") for name in (*FITTED.rows, *FITTED.flops))


def own(facts: RegionFacts, device: Device, kernel: Kernel, rates: Rates = FITTED) -> Prediction | None:
    """This project's own kernel for all of the region, or for a part of it."""
    part = kernel.part
    if _absent(facts, part):
        return None
    trained = _trained_us(facts, rates.host.autograd)
    return _predict(
        kernel.candidate, facts, device, rates,
        time=lambda s: own_us(s, device, kernel.candidate, rates, facts.attention_density, part, facts.attends_in),
        written=lambda c: _bytes_written_with(c, part),
        launches=lambda s: rates.times.fused_kernel,
        host=lambda s: rates.host.written + trained + _rest_host_us(s, rates, part),
        trained=facts.requires_grad,
    )  # fmt: skip


def own_recorded(facts: RegionFacts, kernel: Kernel, rates: Rates = FITTED) -> bool:
    """Whether its time forward and backward is read off rows of such a length, at every binding."""
    return bool(facts.shapes) and all(backward_recorded(s, kernel.candidate, rates, kernel.part) for s in facts.shapes)


def triton(facts: RegionFacts, device: Device, whole: bool, rates: Rates = FITTED) -> Prediction | None:
    """Triton that is written for the region. whole: one kernel for all, by hand; else generated, a kernel a group."""
    # Where the compiler calls attention its kernels are not those that are generated.
    factor = None if facts.sdpa else _by_its_kernels(facts, device, rates)
    return _predict(
        "triton:custom" if whole else "triton:generated", facts, device, rates,
        time=lambda s: (
            written_us(s, device, rates, facts.attention_density)
            if whole
            else (factor or 1.0) * generated_us(s, device, rates, facts.apart, facts.taken)
        ),
        written=lambda c: c.ideal.bytes_written if whole else c.fused.bytes_written,
        launches=lambda s: (1 if whole else s.cost.fused.launches) * rates.times.fused_kernel,
        host=lambda s: _written_host_us(facts, rates) if whole else _generated_host_us(facts, s, rates),
    )  # fmt: skip


def _predict(
    candidate: str,
    facts: RegionFacts,
    device: Device,
    rates: Rates,
    *,
    time: Callable[[ShapeFacts], float],
    written: Callable[[Cost], int],
    launches: Callable[[ShapeFacts], float],
    host: Callable[[ShapeFacts], float],
    deviation: float | None = None,
    tail: float = 1.0,
    trained: bool = False,
) -> Prediction | None:
    """Average over the bindings, weighted by their calls. deviation: of its logarithm, where the atlas says one. tail:
    see `Range`. trained: a kernel of this project's own with its backward."""
    if not facts.shapes:
        return None
    calls = sum(s.calls for s in facts.shapes) or 1.0
    mid, launch, host_us = (sum(s.calls * of(s) for s in facts.shapes) / calls for of in (time, launches, host))
    most = max(written(s.cost) for s in facts.shapes)
    span = (
        spread(mid, candidate, rates, device.name, trained)
        if deviation is None
        else interval(mid, deviation, device, rates.scaled)
    )
    least = sum(s.calls * (1e6 * memory_bytes(s.cost, device) / device.copy_rate) for s in facts.shapes) / calls
    span = Range(max(least, span.low), max(least, span.mid), max(least, span.high), tail)
    return Prediction(candidate, span, launch, most, host_us)


def interval(mid: float, deviation: float, device: Device, scaled: bool = False) -> Range:
    """The 80 % interval of a time that an atlas gave; wider on a device that is priced by another's."""
    basis = basis_of(device, scaled)
    wide = EIGHTY * deviation * (1.0 if basis is not None and basis.own else BEYOND)
    return Range(mid * math.exp(-wide), mid, mid * math.exp(wide))


def _eager_host_us(
    shape: ShapeFacts, rates: Rates, without: frozenset[str] = frozenset(), trained: bool = False
) -> float:
    """trained: autograd's engine runs them, or makes a node of each."""
    host = rates.host
    left = [o for o in shape.cost.operations if o.name not in without]
    views, launches = sum(1 for o in left if o.kind == op_kinds.VIEW), sum(o.launches for o in left)
    engine = host.engine + launches * host.engine_launch + views * host.engine_view if trained else 0.0
    return engine + launches * host.launch + views * host.view


def _compiled_host_us(facts: RegionFacts, shape: ShapeFacts, graphs: bool, rates: Rates) -> float:
    """What a call of a compiled function costs the host: guards, and each launch; of a CUDA graph one for all.

    Launches are Inductor's own where it was asked: our fusion rules count a backward in one kernel with its forward.
    """
    host = rates.host
    if graphs:
        return host.graphs + _trained_us(facts, host.autograd)
    launches = shape.cost.fused.launches
    if facts.prediction is not None and not facts.prediction.unavailable:
        launches = facts.prediction.launches
    if facts.requires_grad:
        return host.trained + host.trained_kernel * launches
    return host.compiled + host.kernel * launches


def _generated_host_us(facts: RegionFacts, shape: ShapeFacts, rates: Rates) -> float:
    """What a call of generated kernels costs the host: each launch, those of libraries among them."""
    launches = len(shape.generated(facts.taken)) + facts.apart.launches
    return launches * (rates.host.trained_generated if facts.requires_grad else rates.host.generated)


def _written_host_us(facts: RegionFacts, rates: Rates) -> float:
    return rates.host.written + _trained_us(facts, rates.host.autograd)


def _trained_us(facts: RegionFacts, host_us: float) -> float:
    """What the host takes besides where there is a backward."""
    return host_us if facts.requires_grad else 0.0


def matrix_share(facts: RegionFacts, device: Device, rates: Rates = FITTED) -> float:
    """Share of eager's time that is matrix products, attention and convolutions, at the heaviest binding."""
    shape = facts.heaviest
    if shape is None:
        return 0.0
    by_name = operation_times(shape, device, rates)
    times = [(o.kind, by_name[o.name]) for o in shape.cost.operations if o.launches]
    total = sum(t for _, t in times)
    return sum(t for kind, t in times if kind in op_kinds.MATRIX_KINDS) / total if total else 0.0


def compiled_us(
    shape: ShapeFacts, device: Device, mode: str = "default", rates: Rates = FITTED, sdpa: frozenset[str] = frozenset()
) -> float:
    """µs of device time for one call under torch.compile. sdpa: operations that it makes one attention call of."""
    fused = rates.default if mode == "default" else rates.autotuned
    start = rates.times.graph_kernel if mode == "reduce-overhead" else rates.times.fused_kernel
    cost = shape.cost
    if mode == "max-autotune" and _gemv(shape):
        return call_us(rates) + start + bytes_us(cost.ideal.bytes_moved, fused.reduction, device)
    kernels = [k for k in cost.kernels if not sdpa.issuperset(k.operations)]
    total = call_us(rates) + kernels_us(shape, kernels, device, fused, rates, start)
    if len(kernels) < len(cost.kernels):
        return total + by_hand_factor(shape, device, rates, sdpa) * part_us(shape, device, SDPA, rates, sdpa)
    return min(total, _epilogues_us(shape, device, fused, rates)) if mode == "max-autotune" else total


def _epilogues_us(shape: ShapeFacts, device: Device, fused: Fused, rates: Rates) -> float:
    """max-autotune with every tail that can be an epilogue inside its matrix product's own Triton kernel."""
    kept = {s.bytes_after for s in shape.cost.savings if s.name == "tail-epilogue"}
    alone = {s.bytes_after for s in shape.cost.savings if s.name == "tail-fused"}
    total, gemm, start = call_us(rates), None, rates.times.fused_kernel
    called_us = calls_by_atlas(shape, device, rates)
    for kernel in shape.cost.kernels:
        intermediate = gemm.bytes_written if gemm is not None else 0
        tail = kernel.kind == "fused" and kernel.bytes_moved in alone and kernel.bytes_moved - intermediate in kept
        if gemm is not None and tail:
            facts = shape.operation(gemm.operations[0])
            moved = gemm.bytes_moved + kernel.bytes_moved - 2 * intermediate
            peak = device.matmul_rate(facts.dtype if facts else "bf16") * rates.matrix.triton_gemm
            total -= kernels_us(shape, (gemm,), device, fused, rates, start, called_us)
            total += start + math.hypot(bytes_us(moved, rates.matrix.gemm_bytes, device), 1e6 * gemm.flops / peak)
            gemm = None
            continue
        gemm = kernel if kernel.kind == op_kinds.GEMM else gemm
        total += kernels_us(shape, (kernel,), device, fused, rates, start, called_us)
    return total


def _gemv(shape: ShapeFacts) -> bool:
    """Its matrix products are with vectors: max-autotune turns them into one generated kernel with what feeds them."""
    gemms = [o for o in shape.operations if o.kind == op_kinds.GEMM]
    return bool(gemms) and all(min(g.m, g.n) == 1 for g in gemms)


def generated_us(
    shape: ShapeFacts,
    device: Device,
    rates: Rates = FITTED,
    apart: FusionGap = TOGETHER,
    taken: Taken = NOTHING_TAKEN,
) -> float:
    """µs of the generated kernels, one for each fused group; matrix products stay with the library.

    apart: what the generator writes and reads between kernels where torch.compile does not. taken: what it fuses
    where torch.compile makes a call.
    """
    start, kernels = rates.times.fused_kernel, shape.generated(taken)
    together = call_us(rates) + kernels_us(shape, kernels, device, rates.generated, rates, start)
    between = (apart.written + apart.read) * sum(k.bytes_written for k in kernels if k.kind == "fused")
    return together + apart.launches * start + bytes_us(between, rates.generated.pointwise, device)


def written_us(shape: ShapeFacts, device: Device, rates: Rates = FITTED, density: float = 1.0) -> float:
    """µs of one hand-written kernel for all. density: share of attention's scores that it looks at."""
    cost, start = shape.cost, rates.times.fused_kernel
    space = max((k for k in shape.kernels if k.columns > 1), key=lambda k: k.rows * k.columns, default=None)
    moved = bytes_us(least_bytes(shape, device), fused_share(shape.operations, space, rates.hand), device)
    if shape.halves is not None:
        moved, start = moved * max(1.0, sum(shape.halves) / max(1, cost.ideal.bytes_moved)), 2 * start
    moved = max(moved, executed_us(shape, device), arithmetic_us(shape.operations, device, rates.hand))
    computed = 0.0
    if cost.gemm_flops:
        share = share_of(rates.flops, "triton", rates.matrix.triton_gemm)
        if cost.matmul_dtype in ("f32", "f64"):
            share *= rates.matrix.gemm_f32
        computed = 1e6 * density * cost.gemm_flops / (device.matmul_rate(cost.matmul_dtype or "bf16") * share)
        computed += idle_us(shape.between, device, rates)
    return call_us(rates) + start + math.hypot(moved, computed)
