"""What every file that is taken home adds to its kernel: inputs, the test, the benchmark, the command line."""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
import triton
from triton import knobs

from kernels.agreement import fault_of, pointed
from kernels.measure.candidate.timing import DeviceClock, Flush, Rotation, cold_calls, warm
from kernels.spec import Case, Maker, exact, outputs_of

DISTRIBUTIONS = ("normal", "uniform", "large", "tiny")
FLUSHED_BYTES = 256e6
"""As large as the largest last-level cache: twice that is written between two calls."""
ROUNDS = 15
"""In each the implementations take turns, so that a GPU that slows down slows all of them."""
ROUND_MS = 20.0
INTERPRETER_ROUNDING = 2.0
"""Triton's interpreter cuts 16-bit results where a GPU rounds, and rounds between a product and a sum."""


@dataclass(frozen=True)
class Input:
    """One input. below: integers from 0 to it; ones: share of ones of a mask; offsets: sorted, from 0 to this."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    channels_last: bool = False
    below: int | None = None
    ones: float | None = None
    offsets: int | None = None
    scale: float = 1.0
    requires_grad: bool = False

    def make(self, device: str, generator: torch.Generator, distribution: str) -> torch.Tensor:
        """Random values of one distribution. Of overlapping strides every element is written."""
        value = self._values(generator, distribution).to(self.dtype)
        if self.strides is not None:
            made = torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=device)
            at = tuple(slice(0, 1) if step == 0 else slice(None) for step in self.strides)
            made[at] = value[at].to(device)
            return made
        form = torch.channels_last if self.channels_last else torch.contiguous_format
        return value.to(device).contiguous(memory_format=form)

    def _values(self, generator: torch.Generator, distribution: str) -> torch.Tensor:
        there: dict[str, Any] = {"generator": generator, "device": generator.device}
        if self.offsets is not None:
            inner = torch.randint(self.offsets + 1, (max(0, math.prod(self.shape) - 2),), **there).sort().values
            ends = torch.tensor([0, self.offsets], device=generator.device)
            return torch.cat((ends[:1], inner, ends[1:]))[: math.prod(self.shape)].reshape(self.shape)
        if self.ones is not None:
            return torch.rand(self.shape, **there) < self.ones
        if self.below is not None:
            return torch.randint(max(self.below, 1), self.shape, **there)
        if distribution == "uniform":
            return torch.rand(self.shape, **there) * self.scale * 0.98 + 0.01
        large = 32.0 if self.dtype in (torch.bfloat16, torch.float32, torch.float64) else 8.0  # where exp(x) overflows
        size = {"large": large if self.scale == 1.0 else 1.0, "tiny": 1e-3}.get(distribution, 1.0)
        return torch.randn(self.shape, **there) * self.scale * size


Function = Callable[..., Any]


@dataclass(frozen=True)
class Shape:
    """One set of sizes. exact: the region in float64. small: for Triton's interpreter, and not timed. random: outputs
    that depend on random numbers and are not compared. selected: outputs that are indices along a dimension of what
    `sources` gives, in order."""

    label: str
    inputs: tuple[Input, ...]
    region: Function
    exact: Function
    kernel: Function
    small: bool = False
    random: tuple[int, ...] = ()
    selected: dict[int, int] = field(default_factory=dict)
    sources: Function | None = None

    def make(self, device: str, distribution: str, seed: int = 0) -> list[torch.Tensor]:
        """One tensor for each input."""
        generator = torch.Generator(device).manual_seed(seed)
        return [i.make(device, generator, distribution) for i in self.inputs]


@dataclass(frozen=True)
class Odd:
    """Small and odd cases of the kernel alone, with its own reference. wrong_interpreted: dtypes that Triton's
    interpreter computes wrongly. forms: of the inputs' memory, as Maker has them."""

    run: Function
    reference: Function
    inputs: Callable[[Case, Maker], tuple[Any, ...]]
    cases: tuple[Case, ...]
    forms: tuple[str, ...] = ("plain",)
    wrong_interpreted: tuple[str, ...] = ()


@dataclass
class Tuner:
    """Remembers for this process which variant was fastest."""

    name: str
    chosen: dict[Hashable, Any] = field(default_factory=dict)

    def pick(
        self, key: Hashable, space: Any, launch: Callable[..., None], *arguments: Any, uncopied: Sequence[Any] = ()
    ) -> Any:
        """The fastest variant for this key, timed by cold calls on copies of all but `uncopied`; the first one in the
        interpreter."""
        if key in self.chosen:
            return self.chosen[key]
        variants = list(space() if callable(space) else space)
        if len(variants) > 1 and not knobs.runtime.interpret:
            variants = self._by_time(variants, launch, arguments, {id(a) for a in uncopied})
        self.chosen[key] = variants[0]
        return variants[0]

    def _by_time(
        self, variants: list[Any], launch: Callable[..., None], arguments: Sequence[Any], read: set[int]
    ) -> list[Any]:
        own = [a if id(a) in read else _copy(a) for a in arguments]
        times: list[tuple[float, int]] = []
        refused: list[str] = []
        for number, variant in enumerate(variants):
            try:
                times.append((cold_us(lambda v=variant: launch(v, *own), 5.0, 15)[0], number))  # type: ignore[misc]
            except (triton.runtime.errors.OutOfResources, triton.runtime.errors.PTXASError) as fault:
                refused.append(str(fault))
            except RuntimeError as fault:
                if not any(words in str(fault) for words in ("cooperative launch", "PassManager")):
                    raise
                refused.append(str(fault))
        if not times:
            raise RuntimeError("no variant runs on this GPU: " + "; ".join(refused)[:500])
        return [variants[number] for _, number in sorted(times)]


def _copy(argument: Any) -> Any:
    """A tensor of the same strides and contents elsewhere; anything else as it is."""
    if not isinstance(argument, torch.Tensor):
        return argument
    made = torch.empty_strided(argument.shape, argument.stride(), dtype=argument.dtype, device=argument.device)
    return made.copy_(argument)


def launched(
    launch: Callable[..., None], inputs: Sequence[torch.Tensor], outputs: Sequence[tuple[Any, Any, torch.dtype]],
    device: Any,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Allocate outputs (shape, strides, dtype) and launch. The interpreter cuts f32: torch rounds instead."""
    narrow = (torch.float16, torch.bfloat16)
    held = [torch.float32 if knobs.runtime.interpret and d in narrow else d for _, _, d in outputs]
    made = [torch.empty_strided(s, t, dtype=d, device=device) for (s, t, _), d in zip(outputs, held, strict=True)]
    launch(*inputs, *made)
    return tuple(t.to(d) for t, (_, _, d) in zip(made, outputs, strict=True))


def attention(
    q: Any, k: Any, v: Any, mask: Any, dropout: float, causal: bool, scale: float | None, gqa: bool
) -> torch.Tensor:
    """torch's own attention."""
    return F.scaled_dot_product_attention(q, k, v, mask, dropout, causal, scale=scale, enable_gqa=gqa)


def rms_norm_call(x: torch.Tensor, shape: list[int], weight: Any, eps: float) -> torch.Tensor:
    """torch's own RMSNorm."""
    return F.rms_norm(x, shape, weight, eps)


NOTHING: Mapping[int, tuple[torch.Tensor, int]] = {}


def disagreements(
    got: Any,
    plain: Any,
    wanted: Any,
    random: Sequence[int] = (),
    into: Mapping[int, tuple[torch.Tensor, int]] = NOTHING,
) -> str:
    """What is wrong with `got`; "" where nothing is. wanted: in float64; plain: the reference in the kernel's dtype.

    into: of outputs that are indices, what they point into and along which dimension.
    """
    mine, others, best = outputs_of(got), outputs_of(plain), outputs_of(wanted)
    if len(mine) != len(others):
        return f"{len(mine)} outputs, not {len(others)}"
    for i, (a, b, c) in enumerate(zip(mine, others, best, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {i} is {a.dtype}{[*a.shape]}, not {b.dtype}{[*b.shape]}"
        if i in random:
            continue
        if i in into:
            values = [pointed(x, *into[i]) for x in (a, b, c)]
            selected = [x.float() for x in values if x is not None]
            if values[0] is None:
                fault = "an index is out of range, or there twice"
            else:
                fault = fault_of(selected[0], selected[1], selected[2].double())
        elif not a.dtype.is_floating_point:  # equal values have several indices, and rounding makes values equal
            wrong = int(((a != b) & (a != c.to(a.device, a.dtype))).sum())
            fault = f"{wrong} of {a.numel()} integers differ" if wrong else ""
        else:
            fault = fault_of(a, b, c.to(a.device))
            if fault and knobs.runtime.interpret:
                fault = fault_of(a, c + (b - c) * INTERPRETER_ROUNDING, c)
        if fault:
            return f"output {i}: {fault}"
    return ""


def test(shapes: Sequence[Shape], odd: Sequence[Odd], device: str) -> bool:
    """Compare the kernel with float64, print each comparison; whether all agree."""
    faults = 0
    chosen = [s for s in shapes if s.small or device != "cpu"]
    for shape in chosen:
        faults += _test_shape(shape, device)
    for item in odd:
        faults += _test_odd(item, device)
    if device == "cpu":
        left = [s.label for s in shapes if not s.small]
        print(f"not run here, too large for the interpreter: {', '.join(left)}" if left else "")
    done = len(chosen) + sum(len(i.cases) for i in odd)
    print(f"test {'FAILED: ' + str(faults) + ' comparisons' if faults else 'passed'}, {done} cases")
    return not faults and done > 0


def _test_shape(shape: Shape, device: str) -> int:
    faults = 0
    for seed, distribution in enumerate(DISTRIBUTIONS):
        inputs = shape.make(device, distribution, seed)
        before = [_copy(x) for x in inputs]
        given = [_copy(x) for x in inputs]
        plain = shape.region(*given)
        against = "float64"
        wide = [_copy(x).double() if x.is_floating_point() else _copy(x) for x in inputs]
        try:
            wanted = shape.exact(*wide)
        except torch.OutOfMemoryError:
            wanted, against, wide = outputs_of(plain), "eager, as float64 does not fit into memory", given
        except (RuntimeError, TypeError, NotImplementedError) as why:
            wanted, against = outputs_of(plain), f"eager, as there is no float64 of it ({str(why).splitlines()[0]})"
            wide = given
        into = _pointed_into(shape, inputs)
        fault = disagreements(shape.kernel(*inputs), plain, wanted, shape.random, into)
        fault = fault or _written_wrongly(before, inputs, given, wide)
        print(
            f"{'WRONG' if fault else 'right'}  {shape.label}, {distribution} inputs, against {against} {fault}".rstrip()
        )
        faults += bool(fault)
    return faults


def _written_wrongly(
    before: Sequence[torch.Tensor],
    got: Sequence[torch.Tensor],
    plain: Sequence[torch.Tensor],
    wanted: Sequence[torch.Tensor],
) -> str:
    """What is wrong with what the kernel left in its inputs, next to what the region left there; "" where nothing is.

    wanted: the same in float64. What is 0 or as it was by chance is as the region has it.
    """
    written = [i for i, changed in enumerate(_changed(before, plain)) if changed]
    if any(changed and i not in written for i, changed in enumerate(_changed(before, got))):
        return "it changed its inputs"
    if written and not any(_changed(before, got)):
        return "it left its inputs unchanged"
    mine, others, best = (tuple(tensors[i] for i in written) for tensors in (got, plain, wanted))
    fault = disagreements(mine, others, best)
    return f"what it wrote into its inputs: {fault}" if fault else ""


def _changed(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> list[bool]:
    return [not torch.equal(_bits(a), _bits(b)) for a, b in zip(before, after, strict=True)]


def _pointed_into(shape: Shape, inputs: Sequence[torch.Tensor]) -> dict[int, tuple[torch.Tensor, int]]:
    """In float64 where that can be had; without, indices are compared as they are."""
    if shape.sources is None:
        return {}
    try:
        sources = outputs_of(shape.sources(*(_copy(x).double() if x.is_floating_point() else x for x in inputs)))
    except (RuntimeError, TypeError, NotImplementedError):
        return {}
    return {i: (source, dim) for (i, dim), source in zip(shape.selected.items(), sources, strict=True)}


def _bits(x: torch.Tensor) -> torch.Tensor:
    """As integers, so that NaN equals itself."""
    return x.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()])


def _test_odd(item: Odd, device: str) -> int:
    faults = 0
    for number, case in enumerate(item.cases):
        if device == "cpu" and case.dtype in item.wrong_interpreted:
            print(f"left    {case}: the interpreter computes this dtype wrongly")
            continue
        form = item.forms[number % len(item.forms)]
        arguments = item.inputs(case, Maker(device, number, form))
        plain, wanted = item.reference(*arguments), item.reference(*exact(arguments))
        fault = disagreements(item.run(*arguments), plain, wanted)
        print(f"{'WRONG' if fault else 'right'}  {case}, {form} inputs, against float64 {fault}".rstrip())
        faults += bool(fault)
    return faults


def cold_us(call: Callable[[], Any], warm_ms: float, calls: int) -> tuple[float, list[float]]:
    """Median and all device times of cold calls: L2 is flushed before each."""
    clock, rotation = DeviceClock(), Rotation([()])

    def once() -> tuple[torch.Tensor, ...]:
        call()
        return ()

    estimate = warm(once, rotation, warm_ms, clock)
    times = cold_calls(once, rotation, calls, estimate, clock, Flush(FLUSHED_BYTES, "cuda"))
    return statistics.median(times), times


def bench(shapes: Sequence[Shape]) -> None:
    """Time eager, torch.compile and the kernel by turns at every size, and print medians with their 95 % intervals."""
    for shape in shapes:
        if shape.small:
            continue
        print(f"\n{shape.label}: device time of one cold call, {ROUNDS} rounds by turns")
        inputs = shape.make("cuda", "normal")
        calls: dict[str, Function] = {"eager": shape.region}
        torch._dynamo.reset()
        compiled = torch.compile(shape.region, dynamic=False, fullgraph=True)
        try:
            compiled(*inputs)
            calls["torch.compile"] = compiled
        except Exception as fault:  # whatever it raises, the others are timed
            print(f"torch.compile cannot: {str(fault).splitlines()[0][:150]}")
        calls["this kernel"] = shape.kernel
        _print_times(_rounds(calls, inputs))


def _rounds(calls: dict[str, Function], inputs: Sequence[torch.Tensor]) -> dict[str, list[float]]:
    """The median of each round, in µs."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    clock, flush, rotation = DeviceClock(), Flush(FLUSHED_BYTES, "cuda"), Rotation([inputs])
    with torch.no_grad():
        wrapped = {name: (lambda *x, f=call: outputs_of(f(*x))) for name, call in calls.items()}
        estimates = {name: warm(call, rotation, 100.0, clock) for name, call in wrapped.items()}
        for _ in range(ROUNDS):
            for name, call in wrapped.items():
                count = max(3, min(50, int(ROUND_MS * 1e3 / estimates[name].device_us)))
                taken = cold_calls(call, rotation, count, estimates[name], clock, flush)
                times[name].append(statistics.median(taken))
    return times


def _print_times(times: dict[str, list[float]]) -> None:
    eager = times["eager"]
    print(f"{'':16}{'median µs':>12}{'95 % interval':>24}{'of eager':>10}{'95 % interval':>20}")
    for name, mine in times.items():
        middle, low, high = interval(mine, [1.0] * len(mine))
        ratio, least, most = interval(mine, eager)
        span, spread = f"{low:.1f} to {high:.1f}", f"{least:.3f} to {most:.3f}"
        print(f"{name:16}{middle:12.1f}{span:>24}{ratio:10.3f}{spread:>20}")


def interval(values: Sequence[float], base: Sequence[float]) -> tuple[float, float, float]:
    """median(values) / median(base) and its percentile bootstrap interval; rounds are drawn in pairs."""
    draw, count = random.Random(0), len(values)
    medians = []
    for _ in range(1000):
        picks = [draw.randrange(count) for _ in range(count)]
        medians.append(statistics.median(values[i] for i in picks) / statistics.median(base[i] for i in picks))
    medians.sort()
    return statistics.median(values) / statistics.median(base), medians[25], medians[974]


def main(shapes: Sequence[Shape], odd: Sequence[Odd] = ()) -> int:
    """The command line: --test, --bench, by default both. 0 where the test passed."""
    parser = argparse.ArgumentParser(description=(sys.modules["__main__"].__doc__ or "").splitlines()[0])
    parser.add_argument("--test", action="store_true", help="compare with float64")
    parser.add_argument("--bench", action="store_true", help="time it against eager and torch.compile")
    asked = parser.parse_args()
    both = asked.test == asked.bench
    interpreted, gpu = bool(knobs.runtime.interpret), torch.cuda.is_available()
    where = torch.cuda.get_device_name() if gpu else "no GPU"
    print(f"torch {torch.__version__}, Triton {triton.__version__}, {where}")
    if interpreted:
        print("TRITON_INTERPRET=1: the kernel runs in Triton's interpreter, on the CPU, at small sizes")
    elif not gpu:
        print("There is no GPU here. Set TRITON_INTERPRET=1 to run the test in Triton's interpreter.")
        return 2
    status = 0
    if asked.test or both:
        with torch.no_grad():
            status = 0 if test(shapes, odd, "cpu" if interpreted else "cuda") else 1
    if (asked.bench or both) and (interpreted or status):
        print("nothing was timed: " + ("the interpreter's times say nothing" if interpreted else "the test failed"))
    elif asked.bench or both:
        bench(shapes)
    return status
