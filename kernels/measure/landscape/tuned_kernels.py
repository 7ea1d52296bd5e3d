"""The tuned kernels of one call of a candidate: what each may be launched with, and how it is launched with that.

Kernels with a file of their own ask a Tuner, generated ones are Triton's Autotuner; both are the same from here on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import triton

from kernels import tuning
from kernels.codegen import generated
from kernels.measure.candidate.timing import Call
from kernels.tuning import Pick, Variant

BLOCKS = (4, 16, 64, 256, 512, 1024, 2048, 4096, 8192)
TALL = (1, 2, 4, 8, 16, 32, 64, 128)
PAIRS = ((1, 4), (1, 16), (1, 64), (1, 256), (4, 4), (4, 64), (16, 16), (32, 32), (2, 512), (4, 256), (64, 16))
LOOP = "loop"
DEFAULT_STAGES = 3  # triton.Config's


@dataclass(frozen=True, slots=True)
class TunedKernel:
    """One kernel that was tuned, for the arguments of one call.

    run: launches a variant on copies of those arguments. force: calls of the candidate get a variant meanwhile.
    more: variants beyond its own space.
    """

    name: str
    variants: tuple[Variant, ...]
    chosen: Variant
    arguments: tuple[Any, ...]
    run: Callable[[Variant], None]
    force: Callable[[Variant], AbstractContextManager[None]]
    more: tuple[Variant, ...] = ()

    @property
    def bytes(self) -> int:
        """Of the tensors that it is launched on."""
        return sum(a.numel() * a.element_size() for a in self.arguments if isinstance(a, torch.Tensor))


def tuned_kernels(call: Call, inputs: Sequence[torch.Tensor]) -> list[TunedKernel]:
    """Those of one call, each name once, with its largest arguments; the largest first."""
    with tuning.watched() as picks, _generated() as called:
        call(*inputs)
    kernels = [_of_pick(p) for p in picks] + [_of_source(k, given) for k, given in called if k.source.form != "empty"]
    by_name: dict[str, TunedKernel] = {}
    for kernel in sorted(kernels, key=lambda k: -k.bytes):
        by_name.setdefault(kernel.name, kernel)
    return list(by_name.values())


def _of_pick(pick: Pick) -> TunedKernel:
    own: list[tuple[Any, ...]] = []

    def run(variant: Variant) -> None:
        if not own:  # not before it is asked for: only one kernel's are
            own.append(tuple(tuning.copied(a) for a in pick.arguments))
        pick.launch(variant, *own[0])

    return TunedKernel(
        pick.tuner, pick.variants, pick.chosen, pick.arguments, run, lambda variant: tuning.forced(pick, variant)
    )


@contextmanager
def _generated() -> Iterator[list[tuple[generated.Kernel, tuple[torch.Tensor, ...]]]]:
    """The generated kernels that are called meanwhile, with their tensors."""
    seen: list[tuple[generated.Kernel, tuple[torch.Tensor, ...]]] = []
    original = generated.Kernel.__call__

    def called(kernel: generated.Kernel, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        seen.append((kernel, tensors))
        return original(kernel, *tensors)

    with contextlib.ExitStack() as stack:
        stack.callback(setattr, generated.Kernel, "__call__", original)
        setattr(generated.Kernel, "__call__", called)  # noqa: B010 - as a method, for the time of one call
        yield seen


def _of_source(kernel: generated.Kernel, tensors: tuple[torch.Tensor, ...]) -> TunedKernel:
    source = kernel.source
    tuner = getattr(kernel.module, source.kernel)
    looped = source.form == LOOP

    def variant(constants: tuple[tuple[str, int], ...], warps: int) -> Variant:
        return Variant(tuner.fn, constants, warps, DEFAULT_STAGES if looped else None)

    @contextmanager
    def force(wanted: Variant) -> Iterator[None]:
        before = tuner.configs
        stages = DEFAULT_STAGES if wanted.stages is None else wanted.stages
        tuner.configs = [triton.Config(dict(wanted.constants), num_warps=wanted.warps, num_stages=stages)]
        try:
            yield
        finally:
            tuner.configs = before

    def run(wanted: Variant) -> None:
        with force(wanted):
            kernel(*tensors)

    own = tuple(variant(c, w) for c, w in source.constants)
    best = getattr(tuner, "best_config", None)
    chosen = next((v for v in own if best is not None and (dict(v.constants), v.warps) == _settings(best)), own[0])
    more = tuple(variant(c, chosen.warps) for c in _tiles(source.constants))
    return TunedKernel(source.kernel, own, chosen, tensors, run, force, more)


def _settings(config: triton.Config) -> tuple[dict[str, object], int]:
    return dict(config.kwargs), config.num_warps


def _tiles(own: Sequence[tuple[tuple[tuple[str, int], ...], int]]) -> Iterator[tuple[tuple[str, int], ...]]:
    """Smaller tiles than its own. No larger ones: its text has no mask for what the largest of its own divides."""
    if not own or not own[0][0]:
        return
    names = [name for name, _ in own[0][0]]
    most = {name: max(dict(c)[name] for c, _ in own) for name in names}
    sizes: Sequence[Sequence[int]] = (
        PAIRS if len(names) == 2 else [(n,) for n in (TALL if names == ["ROWS"] else BLOCKS)]
    )
    for tile in sizes:
        if len(tile) == len(names) and all(n <= most[name] for name, n in zip(names, tile, strict=True)):
            yield tuple(zip(names, tile, strict=True))
