"""A region at one binding with a candidate built for it: how it is called, and what its outputs must be like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast, overload

import torch

from kernels.measure.candidate import timing
from kernels.measure.candidate.sampled_rows import Rows, take
from kernels.measure.candidate.samples import Reservoir, Sampling
from profiler.region.language.program import Program
from profiler.region.model import Region


class WrongOutputError(Exception):
    """The candidate's outputs are not even of the right number, type, shape or device."""


class Upstream(Sequence[torch.Tensor | None]):
    """The gradients that come in from behind the region, one per output, None for those without. Made when they are
    first asked for, the same every time; `give_back` leaves their memory to others until then.

    For checks they are random, a number's too. From `as_in_a_step` on a number's is one: what is timed is a step, in
    which the loss is what `backward()` is called on.
    """

    def __init__(self, count: int, make: Callable[[], tuple[torch.Tensor | None, ...]] | None = None) -> None:
        """make: None where the region has no gradients."""
        self._count = count
        self._make = make
        self._made: tuple[torch.Tensor | None, ...] | None = None
        self._in_a_step = False

    @overload
    def __getitem__(self, index: int) -> torch.Tensor | None: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[torch.Tensor | None, ...]: ...
    def __getitem__(self, index: int | slice) -> torch.Tensor | tuple[torch.Tensor | None, ...] | None:
        return self._values()[index]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[torch.Tensor | None]:
        return iter(self._values())

    def give_back(self) -> None:
        """Forget them until they are asked for again."""
        self._made = None

    def as_in_a_step(self) -> None:
        """From now on, for the calls that are timed and the checks of what they gave."""
        self._made, self._in_a_step = None, True

    def _values(self) -> tuple[torch.Tensor | None, ...]:
        if self._made is None:
            made = self._make() if self._make is not None else (None,) * self._count
            if self._in_a_step:
                made = tuple(torch.ones_like(g) if g is not None and not g.dim() else g for g in made)
            self._made = made
        return self._made


@dataclass(slots=True)
class Task:
    """The region at one binding, and this candidate built for it."""

    region: Region
    sizes: Mapping[str, int]
    built: Program
    call: timing.Call
    scales: Mapping[str, float]
    random: frozenset[int]
    random_inputs: frozenset[int] = frozenset()  # numbers of the inputs into which random numbers are written
    upstream: Upstream = field(default_factory=lambda: Upstream(0))
    build_s: float = 0.0
    mutated: list[str] = field(default_factory=list)
    rotation: Sampling | None = None
    secrets: list[int] = field(default_factory=list)  # per input set of the rotation, what its contents are made from
    samples: Reservoir = field(default_factory=Reservoir)
    first: tuple[torch.Tensor, ...] | None = None  # outputs of the first call, for as long as cases are checked
    base: tuple[torch.Tensor, ...] | None = None  # outputs for other inputs than the case's
    earlier: list[tuple[torch.Tensor, ...]] = field(default_factory=list)  # outputs of the calls of former cases
    former: dict[int, list[int]] = field(default_factory=dict)  # per input set, the secrets of its former contents
    lean: bool = False  # its inputs are made anew for each turn: they are too large to keep while others have theirs
    sets: int = 1
    flush: timing.Flush | None = None
    rows: Rows | Literal[False] | None = None  # its own rows, False where it has none; None until that was asked
    few_rows: Rows | Literal[False] | None = None  # the same where a few are worth looking at by themselves
    graphed: bool = False  # its outputs lie in memory that the next call overwrites
    estimate: timing.Estimate = field(default_factory=lambda: timing.Estimate(0.0, 0.0))

    @property
    def written(self) -> tuple[int, ...]:
        """Numbers of the inputs that the candidate changes."""
        return tuple(n for n, item in enumerate(self.region.inputs) if item.name in self.mutated)


def of_rows(task: Task, rows: Rows, numbers: Sequence[int], device: str) -> Task:
    """The task of these rows alone, for a reference: what is called stays the whole."""
    built = rows.program(len(numbers), device)

    def make() -> tuple[torch.Tensor | None, ...]:
        pairs = zip(task.upstream, rows.outputs, strict=False)  # gradients stand behind the outputs
        return tuple(None if g is None else take(g, dim, numbers) for g, dim in pairs)

    return replace(task, built=built, upstream=Upstream(len(built.outputs), make))


def kept(results: Sequence[object], task: Task) -> tuple[object, ...]:
    """The results of a call for longer than until the next one: copies where that would overwrite them."""
    if not task.graphed:
        return tuple(results)
    return tuple(r.clone() if isinstance(r, torch.Tensor) else r for r in results)


def as_call(
    implementation: Callable[..., Iterable[torch.Tensor]], region: Region, upstream: Sequence[torch.Tensor | None]
) -> timing.Call:
    """implementation(*inputs) -> outputs; with gradients wanted, outputs then gradients (None where unused)."""
    if not region.requires_grad:
        return lambda *values: tuple(implementation(*values))
    wanted = [n for n, item in enumerate(region.inputs) if item.requires_grad]

    def forward_and_backward(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs = tuple(implementation(*values))
        pairs = [(o, g) for o, g in zip(outputs, upstream, strict=True) if g is not None and o.requires_grad]
        gradients = torch.autograd.grad(
            [o for o, _ in pairs], [values[n] for n in wanted], [g for _, g in pairs], allow_unused=True
        )
        return (*outputs, *gradients)

    return forward_and_backward


def owned(results: Sequence[object], task: Task) -> tuple[torch.Tensor, ...]:
    """Outputs apart from the graph that made them; a gradient that is None is one of zeros.

    Whether each is a tensor is for `check_kind` to say.
    """
    count = len(task.built.outputs)
    wanted = [fake for fake, item in zip(task.built.inputs, task.region.inputs, strict=True) if item.requires_grad]
    if len(results) != count + len(wanted):
        raise WrongOutputError(f"{len(results)} results where {count + len(wanted)} are due")
    owned = list(results[:count])
    for fake, value in zip(wanted, results[count:], strict=True):
        device = owned[0].device if isinstance(owned[0], torch.Tensor) else torch.device("cpu")
        owned.append(torch.zeros(tuple(fake.shape), dtype=fake.dtype, device=device) if value is None else value)
    return cast(tuple[torch.Tensor, ...], tuple(v.detach() if isinstance(v, torch.Tensor) else v for v in owned))


def check_kind(outputs: Sequence[object], task: Task, device: str) -> None:
    """Exactly torch.Tensor, with memory of its own on the device, right dtype and shape: nothing lazy, nothing else."""
    wanted = [fake for fake, item in zip(task.built.inputs, task.region.inputs, strict=True) if item.requires_grad]
    for number, (value, fake) in enumerate(zip(outputs, [*task.built.outputs, *wanted], strict=True)):
        if type(value) is not torch.Tensor:
            raise WrongOutputError(f"output {number} is a {type(value).__name__}, not a torch.Tensor")
        if tuple(value.shape) != tuple(fake.shape) or value.dtype != fake.dtype:
            raise WrongOutputError(
                f"output {number} is {value.dtype} {tuple(value.shape)}, not {fake.dtype} {tuple(fake.shape)}"
            )
        if value.device.type != torch.device(device).type:
            raise WrongOutputError(f"output {number} is on {value.device}, not on {device}")
        value.untyped_storage().nbytes()
