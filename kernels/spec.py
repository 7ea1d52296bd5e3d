"""What the file of one operation declares: its launcher, its reference, inputs to try it on, cost, what to compile.

A file below `kernels/ops` that ends in `OPERATIONS`, a tuple of these, is an operation (`kernels.operations` finds it).
Tests, the check on a GPU and the benchmark walk all of them and know none by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernels.tuning import Variant

DTYPES: Mapping[str, torch.dtype] = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
}  # fmt: skip
"""The region language's names of what kernels compute in."""


@dataclass(frozen=True, slots=True)
class Case:
    """One set of arguments. sizes: by the names that the operation's own `inputs` reads, other settings among them.

    peer: the row of the published comparison that it repeats ("softmax_fwd"); "" for one of our own. region: name of
    the measured region that it is, where it is one.
    """

    dtype: str
    sizes: tuple[tuple[str, Any], ...]
    peer: str = ""
    region: str = ""

    def __getitem__(self, name: str) -> Any:
        return dict(self.sizes)[name]

    def get(self, name: str, default: Any = None) -> Any:
        return dict(self.sizes).get(name, default)

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    @property
    def itemsize(self) -> int:
        return self.torch_dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype} " + " ".join(f"{k}={v}" for k, v in self.sizes)


def case(dtype: str, peer: str = "", region: str = "", **sizes: Any) -> Case:
    """A Case from keywords: case("bf16", rows=16384, columns=4096)."""
    return Case(dtype, tuple(sizes.items()), peer, region)


@dataclass(frozen=True, slots=True)
class Cost:
    """Fewest bytes that must be read and written, and floating-point operations of the matrix units (0: none)."""

    bytes: int
    flops: int = 0


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes inputs on one device from one seed: the same numbers on every device.

    form: "plain"; "strided", every floating tensor is a view into a wider one whose last axis is longer by 16
    elements; "misaligned", every floating tensor begins one element after a multiple of 16 bytes; "special", rows of
    every normal tensor hold NaN, infinities, one value only.
    """

    device: str = "cpu"
    seed: int = 0
    form: str = "plain"
    generator: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        # Drawn on the CPU where small, so that a failure on a GPU can be replayed in the interpreter.
        object.__setattr__(self, "generator", torch.Generator().manual_seed(self.seed))

    def normal(self, shape: Sequence[int], dtype: torch.dtype, scale: float = 1.0, mean: float = 0.0) -> torch.Tensor:
        """Normally distributed numbers of this shape."""
        value = self._normal(tuple(shape)) * scale + mean
        return self._placed(_special(value) if self.form == "special" else value, dtype)

    def integers(self, high: int, shape: Sequence[int], dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """Integers from 0 to high - 1."""
        return torch.randint(high, tuple(shape), generator=self.generator).to(self.device, dtype)

    def mask(self, share: float, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Ones with this probability, else zeros."""
        return self._placed((self._uniform(tuple(shape)) < share).float(), dtype)

    def offsets(self, groups: int, rows: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """groups + 1 sorted offsets from 0 to rows; some groups may be empty."""
        cuts = torch.randint(rows + 1, (max(groups - 1, 0),), generator=self.generator).sort().values
        return torch.cat((torch.zeros(1), cuts, torch.full((1,), rows))).to(self.device, dtype)

    _ON_DEVICE = 1 << 22

    def _normal(self, shape: tuple[int, ...]) -> torch.Tensor:
        if self.device == "cpu" or torch.Size(shape).numel() <= self._ON_DEVICE:
            return torch.randn(shape, generator=self.generator).to(self.device)
        return torch.randn(shape, generator=self._there(), device=self.device)

    def _uniform(self, shape: tuple[int, ...]) -> torch.Tensor:
        if self.device == "cpu" or torch.Size(shape).numel() <= self._ON_DEVICE:
            return torch.rand(shape, generator=self.generator).to(self.device)
        return torch.rand(shape, generator=self._there(), device=self.device)

    def _there(self) -> torch.Generator:
        seed = int(torch.randint(1 << 62, (1,), generator=self.generator))
        return torch.Generator(self.device).manual_seed(seed)

    def _placed(self, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        value = value.to(dtype)
        if self.form in ("plain", "special") or value.dim() == 0:
            return value
        if self.form == "strided":
            wide = torch.zeros((*value.shape[:-1], value.shape[-1] + 16), dtype=dtype, device=value.device)
            view = wide[..., 8 : 8 + value.shape[-1]]
        else:
            view = torch.zeros(value.numel() + 1, dtype=dtype, device=value.device)[1:].view(value.shape)
        return view.copy_(value)


def _special(value: torch.Tensor) -> torch.Tensor:
    """Rows 0 to 4, as far as there are rows: a NaN, infinity, minus infinity alone, half of it so, one value only."""
    if value.dim() < 2 or not value.numel():
        return value
    rows, half = value.flatten(0, -2), value.shape[-1] // 2
    plans = ((slice(half, half + 1), math.nan), (slice(0, 1), math.inf), (slice(None), -math.inf),
             (slice(0, half), -math.inf), (slice(None), 0.5))  # fmt: skip
    for i, (where, number) in enumerate(plans[: len(rows)]):
        rows[i, where] = number
    return rows.view(value.shape)


@dataclass(frozen=True, slots=True)
class Build:
    """One variant to compile for GPUs that are not here.

    signature: argument -> "*bf16", "i32", "fp32", "tensordesc<bf16[128,64]>", in order, constants left out.
    divisible: integer arguments that are multiples of 16. without: target -> why it cannot take it.
    """

    variant: Variant
    signature: Mapping[str, str]
    divisible: tuple[str, ...] = ()
    without: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, forward or backward.

    run, reference: the same arguments (tensors, then plain numbers) -> a tensor or a tuple of them. The reference is
    plain PyTorch and runs in any floating dtype: in float64 it is what `run` is held to.
    inputs: a Case and a Maker -> those arguments. cost: the least a Case needs.
    checks: small and odd cases, for the interpreter and the GPU. cases: those that are timed. beyond: a case with more
    than 2^31 elements in one tensor, whose first and last entries along the first axis do not depend on the others.
    also_beyond: such cases of other ways that it goes.
    deciding: of its arguments and a slice of the outputs' first axis, the arguments that give those entries alone;
    None where every tensor as long as the first argument is cut.
    builds: what is compiled for the targets. forms: which of Maker's it is tried on. wrong_interpreted: dtypes that
    Triton's interpreter computes wrongly here (bf16 in tl.dot).
    indices: positions of integer outputs that ties may change; `agree(outputs, arguments)` then holds them to what
    they stand for, and raises AssertionError.
    conditioned: of the arguments, the relative error that they may cost any implementation in f32; of every output,
    or one for each.
    terms: of the arguments, each output's sum of the absolute values that are added for it: where they cancel, what is
    left is rounding, and it is held to a rounding of these in f32.
    fixed: sizes that a random case may not change, because others depend on them.
    loses: case, as text -> to what it loses on the recorded GPU, why, and what was tried.
    """

    name: str
    run: Callable[..., Any]
    reference: Callable[..., Any]
    inputs: Callable[[Case, Maker], tuple[Any, ...]]
    cost: Callable[[Case], Cost]
    checks: tuple[Case, ...]
    cases: tuple[Case, ...]
    beyond: Case | None = None
    also_beyond: tuple[Case, ...] = ()
    deciding: Callable[[Sequence[Any], slice], tuple[Any, ...]] | None = None
    builds: tuple[Build, ...] = ()
    forms: tuple[str, ...] = ("plain", "strided", "misaligned")
    wrong_interpreted: tuple[str, ...] = ()
    indices: tuple[int, ...] = ()
    agree: Callable[[Sequence[torch.Tensor], Sequence[Any]], None] | None = None
    conditioned: Callable[[Sequence[Any]], float | tuple[float, ...]] | None = None
    terms: Callable[..., tuple[torch.Tensor | None, ...]] | None = None
    fixed: tuple[str, ...] = ()
    loses: Mapping[str, str] = field(default_factory=dict)


def wide(x: torch.Tensor) -> torch.Tensor:
    """x in what kernels accumulate in: f32, and f64 where it is f64, so that references stay exact in float64."""
    return x if x.dtype == torch.float64 else x.float()


def exact(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """The same arguments with every floating tensor in float64."""
    return tuple(a.double() if isinstance(a, torch.Tensor) and a.dtype.is_floating_point else a for a in arguments)


def outputs_of(result: Any) -> tuple[torch.Tensor, ...]:
    """What a launcher or reference gave, as a tuple."""
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)
