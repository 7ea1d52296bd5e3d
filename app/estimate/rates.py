"""Rates: how much of a device's copy and matmul rate each kind of kernel reaches, and what launching one costs.

The shipped ones are data, rates.json, which `tritonworthy accuracy fit` writes: fitted on the half of the Archive that
may be tuned on and on the tables of kernels, with version, date, devices, sources and what the fit leaves over. They
are shares of measured ceilings (on an H200 4.3 TB/s copied and 790 TFLOP/s in bf16), so that another device's own
ceilings can stand in for them. What is written here is where the fit begins, and what no measurement moves.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeAlias

from app.atlas.interpolation import EIGHTY
from app.estimate.range import Range
from app.objects.accuracy import FittedRates

SHIPPED = Path(__file__).resolve().parent / "rates.json"

Curve = tuple[tuple[float, float], ...]
"""(bytes that are moved for a row, share of the copy rate) by rising bytes."""


@dataclass(frozen=True, slots=True)
class Times:
    """Fixed costs on the device in µs."""

    event: float = 3.0  # what device events add to any measurement
    eager_kernel: float = 2.6  # start and drain of one eager kernel behind another
    fused_kernel: float = 2.6  # the same for a generated one
    graph_kernel: float = 1.6  # one kernel inside a CUDA graph
    walked: float = 1.2  # one step of a softmax over another axis than the last, where one thread walks along it thrice
    stepped: float = 2.3e-4  # one element of a row that one processor has to itself
    unrolled: float = 0.07  # one operation of a loop written out in one kernel, each waiting for the one before


@dataclass(frozen=True, slots=True)
class Host:
    """What a call costs the host in µs: its pace where the GPU has less to do.

    Those in `BY_THE_CORPUS` are what `python -m tools.corpus.fit_host` makes of the corpus's fit third.
    """

    call: float = 10.4  # an eager call, before its first operation
    launch: float = 9.56  # one eager operation, torch's own library calls among them
    view: float = 5.93
    engine: float = 47.7  # forward and backward of torch's own operations: autograd's engine, once a call
    engine_launch: float = 3.4  # and with each operation, of either pass
    engine_view: float = 4.68
    compiled: float = 52.7  # a compiled function: guards
    kernel: float = 23.1  # one kernel or library call of it
    trained: float = 253.0  # a compiled function with its backward: guards and the engine, twice
    trained_kernel: float = 44.6  # one kernel or library call of it, of either pass
    generated: float = 30.6  # one launch of what this project generates, library calls among them
    trained_generated: float = 93.4  # the same where it brings its backward: autograd's function is in it
    part: float = 1.8  # a result that it writes into its place in a joined one: a view, made anew at each call
    graphs: float = 85.0  # a replay: guards, inputs copied to where the graph reads them
    written: float = 90.0  # a launcher in Python of this project: checks, tuned configuration, launch
    library: float = 100.0  # another package's launcher
    autograd: float = 350.0  # forward and backward of a function that brings its own


BY_THE_CORPUS = frozenset({
    "call", "launch", "view", "engine", "engine_launch", "engine_view", "compiled", "kernel", "trained",
    "trained_kernel", "generated", "trained_generated",
})  # fmt: skip
"""Of the host's numbers those that the Archive, whose programs keep the GPU busy, says too little of."""


@dataclass(frozen=True, slots=True)
class Eager:
    """Shares of the copy rate that PyTorch's own kernels reach, by class of operation."""

    pointwise: float = 0.98
    widening: float = 0.70  # conversions between types of different sizes
    broadcast: float = 0.7
    broadcast_16: float = 0.45  # 16-bit types lose the vectorised path
    special_16: float = 0.59  # erf and the like in 16-bit types: arithmetic sets the pace
    small_item: float = 0.27  # one-byte types
    copy: float = 0.90
    joined: float = 0.35  # cat and stack whose pieces are short runs of memory
    strided_copy: float = 0.53
    reduction: float = 0.65
    strided_reduction: float = 0.60
    scan: float = 0.44  # of f32: it goes by elements
    norm: float = 0.55
    short_norm: float = 0.25  # rows of a few hundred elements
    norm_backward: float = 0.23
    softmax: float = 0.45
    short_softmax: float = 0.95  # of f32: rows of up to 1,024 elements, a warp each
    strided_softmax: float = 0.15  # of f32, read three times
    sort: float = 0.043
    topk: float = 0.025  # rows of up to 1,024 elements: one block a row, whatever its length
    gather: float = 0.80
    scatter: float = 0.95
    accumulate: float = 0.15  # index_add and scatter_add: atomics
    accumulate_16: float = 0.06  # of 16-bit types: compare and swap
    random: float = 0.80
    fft: float = 0.47
    convolution: float = 0.19
    logsumexp: float = 0.108  # six passes in eager
    constant: float = 0.80
    other: float = 0.40


@dataclass(frozen=True, slots=True)
class Fused:
    """Shares of the copy rate that generated kernels reach, by what is in the kernel."""

    pointwise: float = 0.97
    reduction: float = 0.95
    looped: float = 0.85  # rows that a loop goes over and the caches hold, read for a result and again to apply it
    looped_narrow: float = 0.80  # the same where an element of the row has 16 bits to read: loads of 8 bytes a thread
    softmax: float = 0.42
    long_softmax: float = 0.75  # rows beyond L2, their second pass counted as bytes
    short_softmax: float = 0.90  # rows of up to 1,024 elements stay in registers
    strided: float = 0.50  # a reduction over another axis than the last whose input is used again
    short_strided: float = 0.50  # the same where the axis is short enough to be held
    unpack: float = 0.26  # shifts and masks of packed weights
    f8: float = 0.50  # conversion to fp8
    scan: float = 0.90  # of f32
    convolution: float = 0.25  # depthwise
    random: float = 2.3  # numbers drawn per ns and processor: Philox's arithmetic sets the pace, not bytes
    special: float = 4.5  # erf and the like per ns and processor: arithmetic sets the pace of 16-bit numbers
    atomics: float = 3.4  # additions to memory per ns and processor
    atomics_tiled: float = 0.7  # the same by tiles of three axes: 11.8 ms untuned where those of two take 3.4 (H200)
    redraws: bool = True  # what is random in a row is drawn for each loop over it
    sums_apart: bool = True  # columns that are stored and summed in parts are read again


@dataclass(frozen=True, slots=True)
class Matrix:
    """Shares of the matmul rate and of the copy rate for matrix products, attention and convolutions."""

    gemm: float = 0.9
    gemm_f32: float = 0.765
    gemm_unaligned: float = 0.19  # of the above: rows that are no multiple of 16 bytes (one vocabulary of 50,257)
    gemm_bytes: float = 0.85
    gemv_bytes: float = 0.13  # a batch of products with vectors
    wave_rows: int = 128
    wave_columns: int = 256
    attention: float = 0.62
    convolution: float = 0.50
    triton_gemm: float = 0.74  # of the matmul rate: Triton's products compared with cuBLAS's
    between: float = 18.0  # activations to 16 bits between two products, per ns and processor: 14 instructions at 128 a
    # clock of 1.98 GHz for GELU; not fitted


HAND = Fused(
    softmax=0.92, long_softmax=0.80, strided=0.90, short_strided=0.90, looped=0.93, looped_narrow=0.93, special=8.0,
    unpack=0.60, convolution=0.50, random=6.0, atomics_tiled=3.4, redraws=False, sums_apart=False,
)  # fmt: skip
"""A kernel that is still to be written: what the best kernels of the tables reach. Not fitted: nobody measured it."""

CALLS: Mapping[str, float] = {
    "torch.optim": 0.97,
    "torch": 0.80,
    "torch backward": 0.25,
    "liger_kernel": 0.85,
    "liger_kernel backward": 0.60,
    "flag_gems": 0.80,
    "flag_gems backward": 0.50,
    "quack": 0.90,
    "quack backward": 0.70,
    "flashinfer": 0.85,
    "flash_attn": 0.85,
    "vllm": 0.70,
    "triton": 0.85,
}
"""Share of the copy rate where no table knows the call, by the longest prefix of its name; a row of any size."""

FLOPS: Mapping[str, float] = {
    # with an additive mask at [4, 16, 2048, 128]: cuDNN 289 TFLOP/s, FlexAttention 383 (H200, torch 2.11)
    "torch.nn.functional.scaled_dot_product_attention": 0.62,
    "torch.nn.functional.scaled_dot_product_attention with a mask": 0.365,
    "torch.nn.attention.flex_attention": 0.49,
    "flash_attn": 0.62,
    "flashinfer": 0.55,
    "flag_gems.scaled_dot_product_attention": 0.35,
    "torch.nn.functional.grouped_mm": 0.55,
    "torch.nn.functional.scaled_mm": 0.70,
    "torch._scaled_mm": 0.70,
    "torch.ops.aten._addmm_activation": 0.81,
    "quack.gemm": 0.90,
    "torch": 0.88,
    "triton": 0.74,
}
"""Share of the matmul rate where no table knows the call, by the longest prefix of its name."""

SPREAD: Mapping[str, tuple[float, float]] = {
    "eager": (0.80, 1.30),
    "compile": (0.78, 1.35),
    "compile-reduce-overhead": (0.65, 1.60),
    "library": (0.70, 1.45),
    "triton": (0.75, 1.45),
    "triton:custom": (0.75, 1.60),
    "cuda": (0.75, 1.60),
}
"""Measured over predicted time where the fit has too few to tell, by the longest prefix of the candidate's name."""

BEYOND = 1.5
"""On a device that no rate was fitted on, both ends of a range are this many times as far away, in logarithms.

A guess: nobody has measured another device here.
"""


@dataclass(frozen=True, slots=True)
class Rates:
    """Everything the estimate multiplies with. devices: those that it was fitted on.

    atlas: whether what a device's atlas knows is read off it; the rates are for the rest. The fit goes without.
    scaled: whether another device's atlas is read, scaled, although there is one of this device.
    """

    times: Times = Times()
    host: Host = Host()
    eager: Eager = Eager()
    default: Fused = Fused()
    autotuned: Fused = Fused(special=5.2, softmax=0.47, looped=0.97, looped_narrow=0.93, unpack=0.47, atomics_tiled=2.0)
    generated: Fused = Fused(
        softmax=0.90,
        long_softmax=0.80,
        strided=0.80,
        looped=0.95,
        looped_narrow=0.95,
        special=8.0,
        unpack=0.35,
        redraws=False,
        sums_apart=False,
    )
    hand: Fused = HAND
    matrix: Matrix = Matrix()
    rows: Mapping[str, Curve] = field(default_factory=dict)
    calls: Mapping[str, float] = field(default_factory=lambda: CALLS)
    flops: Mapping[str, float] = field(default_factory=lambda: FLOPS)
    spread: Mapping[str, tuple[float, float]] = field(default_factory=lambda: SPREAD)
    devices: tuple[str, ...] = ("NVIDIA H200",)
    atlas: bool = False
    scaled: bool = False


Group: TypeAlias = Times | Host | Eager | Fused | Matrix

GROUPS: Mapping[str, type[Group]] = {f.name: type(f.default) for f in fields(Rates) if isinstance(f.default, Group)}
"""Fields of Rates that are numbers by name."""
MOVABLE = tuple(name for name in GROUPS if name != "hand")
"""Those that the fit may move."""
TABLES = tuple(f.name for f in fields(Rates) if str(f.type).startswith("Mapping"))
"""Fields of Rates that are tables by the name of a call or of a candidate."""


def rates_from_json(body: Mapping[str, Any]) -> Rates:
    """Inverse of `rates_to_json`, of JSON that nobody has checked. TypeError for a name that is none."""
    rows = {name: tuple((float(x), float(y)) for x, y in curve) for name, curve in body["rows"].items()}
    spans = {name: (float(low), float(high)) for name, (low, high) in body["spread"].items()}
    return Rates(
        times=Times(**body["times"]),
        host=Host(**body["host"]),
        eager=Eager(**body["eager"]),
        default=Fused(**body["default"]),
        autotuned=Fused(**body["autotuned"]),
        generated=Fused(**body["generated"]),
        hand=Fused(**body["hand"]),
        matrix=Matrix(**body["matrix"]),
        rows=rows,
        calls=dict(body["calls"]),
        flops=dict(body["flops"]),
        spread=spans,
        devices=tuple(body["devices"]),
    )


def rates_to_json(rates: Rates) -> dict[str, object]:
    """The rates as an object of plain lists and numbers."""
    groups = {name: asdict(getattr(rates, name)) for name in GROUPS}
    tables = {name: dict(sorted(getattr(rates, name).items())) for name in TABLES}
    return {**groups, **tables, "devices": list(rates.devices)}


def load_shipped() -> FittedRates:
    """rates.json: the rates with what they were fitted on and how well."""
    shipped: FittedRates = json.loads(SHIPPED.read_text(encoding="utf-8"))
    return shipped


FITTED = replace(rates_from_json(load_shipped()["rates"]) if SHIPPED.is_file() else Rates(), atlas=True)
WITHOUT_ATLAS = replace(FITTED, atlas=False)
"""What the rates say by themselves: where an atlas has no points, and to tell what it buys."""
SCALED_ATLAS = replace(FITTED, scaled=True)
"""As on a device that nobody measured: to tell what measuring one buys."""
TRACED = replace(
    FITTED,
    times=replace(FITTED.times, event=0.0, eager_kernel=1.2, fused_kernel=1.2, graph_kernel=1.2),
)
"""For times as a trace has them: durations of kernels, without the gaps between them.

The shortest kernels of the traces recorded on the H200 take 1.1 to 1.8 µs.
"""

SIXTEEN_BIT = frozenset({"bf16", "f16"})


def longest_prefix(table: Mapping[str, object], name: str) -> str | None:
    """The longest key that begins the name. Keys that end in " backward" are for names that do, and no others."""
    backward = name.endswith(BACKWARD)
    stem = name.removesuffix(BACKWARD)
    keys = (k for k in table if k.endswith(BACKWARD) == backward and stem.startswith(k.removesuffix(BACKWARD)))
    return max(keys, key=len, default=None)


BACKWARD = " backward"


def share_of(table: Mapping[str, float], name: str, default: float) -> float:
    """The entry of the longest prefix."""
    key = longest_prefix(table, name)
    return default if key is None else table[key]


def reach(rates: Rates, call: str, row_bytes: float) -> float:
    """Share of the copy rate of a call that moves so many bytes for a row: by its own curve, else by its package."""
    curve = rates.rows.get(call)
    return interpolate(curve, row_bytes) if curve else share_of(rates.calls, call, 0.80)


def interpolate(curve: Curve, row_bytes: float) -> float:
    """Share on rows of so many bytes; outside of what was measured that of the nearest end.

    Where it rises, shorter rows are held up by what a program costs whatever it moves, which programs overlap with each
    other's bytes: a row's time is the longer of the two. Where it falls, linear over the logarithm of the bytes.
    """
    places = [x for x, _ in curve]
    after = bisect_left(places, row_bytes)
    if after in (0, len(curve)):
        return curve[min(after, len(curve) - 1)][1]
    (x0, y0), (x1, y1) = curve[after - 1], curve[after]
    if y0 < y1:
        return min(y1, y0 * row_bytes / x0)
    return y0 + (y1 - y0) * math.log(row_bytes / x0) / math.log(x1 / x0)


LEAST_DEVIATION = {"library:torch": 0.55, "triton:generated": 0.20}
"""Standard deviation of the logarithm of what the rates predict, at least: 80 % of the corpus's fit third come within
1.28 of them, each program once (5 with a call of torch's, 17 with a generated kernel). What the fit leaves over on its
own programs held 10 and 35 % of them. Of other calls the corpus has too few."""


TRAINED = (0.86, 1.50)
"""Measured over predicted, at least, of this project's own kernels with gradients: the tenth and ninetieth per cent of
29 rows of backward kernels, each held against the others of its kernel, and of the 4 programs of the corpus's fit third
where one ran (0.96, 0.99, 1.35, 1.53)."""


def spread(
    mid: float, candidate: str, rates: Rates = FITTED, device: str | None = None, trained: bool = False
) -> Range:
    """mid with what the fit leaves over for this candidate's family; wider on a device that it was not fitted on.

    trained: a kernel of this project's own, with its backward.
    """
    key = longest_prefix(rates.spread, candidate)
    low, high = rates.spread[key] if key is not None else rates.spread["compile"]
    kind = longest_prefix(LEAST_DEVIATION, candidate)
    least = EIGHTY * LEAST_DEVIATION[kind] if kind is not None else 0.0
    low, high = min(low, math.exp(-least)), max(high, math.exp(least))
    if trained:
        low, high = min(low, TRAINED[0]), max(high, TRAINED[1])
    if device is not None and device not in rates.devices:
        low, high = low**BEYOND, high**BEYOND
    return Range(mid * min(low, 1.0), mid, mid * max(high, 1.0))


def names(group: Sequence[str] = MOVABLE) -> list[tuple[str, str]]:
    """(group, name) of every number that the fit may move."""
    return [
        (g, f.name)
        for g in group
        for f in fields(GROUPS[g])
        if f.type in ("float", float) and not (g == "host" and f.name in BY_THE_CORPUS)
    ]
