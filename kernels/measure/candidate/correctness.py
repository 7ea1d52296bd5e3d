"""How far a candidate's outputs are from float64. Measured in the child; `judge` decides in the parent."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from kernels.agreement import pointed
from kernels.measure.candidate.reference import Reference
from kernels.measure.messages import OutputError
from profiler.region.language.vocabulary import DTYPE_NAMES, DTYPES

STEP = 1 << 24  # elements compared at once: 128 MiB of float64


def compare(
    outputs: Sequence[torch.Tensor], expected: Reference, random: frozenset[int] = frozenset()
) -> list[OutputError]:
    """Each output against its reference. outputs have the reference's shapes (checked before)."""
    errors = []
    for number, (out, ref) in enumerate(zip(outputs, expected.outputs, strict=True)):
        if number in random:
            errors.append(_random(out, ref))
        elif number in expected.selected:
            errors.append(_selected(out, ref, *expected.selected[number]))
        elif out.dtype.is_floating_point:
            errors.append(_floats(out, ref, DTYPE_NAMES[out.dtype]))
        else:
            errors.append(_exact(out, ref))
    return errors


def _floats(out: torch.Tensor, ref: torch.Tensor, dtype: str, kind: str = "float") -> OutputError:
    limit = torch.finfo(DTYPES[dtype]).max * (1 + torch.finfo(DTYPES[dtype]).eps / 4)
    sums = torch.zeros(3, dtype=torch.float64, device=out.device)  # |d|², |ref|², elements finite in both
    worst = torch.zeros((), dtype=torch.float64, device=out.device)
    misfits = torch.zeros((), dtype=torch.int64, device=out.device)
    flat_out, flat_ref = out.detach().reshape(-1), ref.reshape(-1)
    if (plain := _finite(flat_out, flat_ref, limit)) is not None:
        return OutputError(kind, dtype, out.numel(), *plain, 0)
    for start in range(0, flat_out.numel(), STEP):
        a = flat_out[start : start + STEP].to(torch.float64)
        b = flat_ref[start : start + STEP].to(torch.float64)
        b = torch.where(b.abs() > limit, torch.copysign(torch.full_like(b, math.inf), b), b)  # as the type stores it
        finite = a.isfinite() & b.isfinite()
        same = finite | (a.isnan() & b.isnan()) | (a == b)
        misfits += (~same).sum()
        difference = torch.where(finite, a - b, 0.0)
        b = torch.where(finite, b, 0.0)
        sums += torch.stack([difference.square().sum(), b.square().sum(), finite.sum().to(torch.float64)])
        worst = torch.maximum(worst, difference.abs().max())
    squared, ref_squared, count = sums.tolist()
    norm, rms = math.sqrt(ref_squared), math.sqrt(ref_squared / max(1.0, count))
    error = math.sqrt(squared) / norm if norm else (math.inf if squared else 0.0)
    outlier = worst.item() / rms if rms else (math.inf if squared else 0.0)
    return OutputError(kind, dtype, out.numel(), error, outlier, int(misfits.item()))


def _finite(out: torch.Tensor, ref: torch.Tensor, limit: float) -> tuple[float, float] | None:
    """(error, outlier) where all elements are finite and within the type's range, in a fifth of the passes; else None.

    A NaN or an infinity shows in a norm, whichever element it is.
    """
    if not out.numel():
        return 0.0, 0.0
    wide = torch.promote_types(ref.dtype, torch.float64)
    sums = torch.zeros(2, dtype=wide, device=out.device)  # |d|², |ref|²
    most = torch.zeros(2, dtype=wide, device=out.device)  # max |d|, max |ref|
    for start in range(0, out.numel(), STEP):
        a, b = out[start : start + STEP], ref[start : start + STEP].to(wide)
        difference = b - (a.to(wide) if a.element_size() == 1 else a)  # fp8 takes part in no promotion
        sums += torch.stack([torch.linalg.vector_norm(t).square() for t in (difference, b)])
        most = torch.maximum(most, torch.stack([torch.linalg.vector_norm(t, math.inf) for t in (difference, b)]))
    squared, ref_squared, worst, largest = torch.cat([sums, most]).tolist()
    if not all(map(math.isfinite, (squared, ref_squared, worst))) or not largest <= limit:
        return None
    norm = math.sqrt(ref_squared)
    rms = norm / math.sqrt(out.numel())
    if not norm:
        return (math.inf, math.inf) if squared else (0.0, 0.0)
    return math.sqrt(squared) / norm, worst / rms


def _exact(out: torch.Tensor, ref: torch.Tensor) -> OutputError:
    share = (out != ref.to(out.dtype)).double().mean().item() if out.numel() else 0.0
    return OutputError("exact", DTYPE_NAMES[out.dtype], out.numel(), share, 0.0, 0)


def _selected(out: torch.Tensor, ref: torch.Tensor, source: torch.Tensor, dim: int, dtype: torch.dtype) -> OutputError:
    """Indices by the values they select: two that select equal values are equally right."""
    name = DTYPE_NAMES[dtype]
    values, right = pointed(out, source, dim), pointed(ref, source, dim)
    if values is None or right is None:
        return OutputError("index", name, out.numel(), math.inf, math.inf, 0)
    if not dtype.is_floating_point:
        share = (values != right).double().mean().item() if values.numel() else 0.0
        return OutputError("index", name, out.numel(), share, 0.0, 0)
    return _floats(values, right, name, "index")


def _random(out: torch.Tensor, ref: torch.Tensor) -> OutputError:
    statistics = (*_statistics(out), *_statistics(ref))
    name = DTYPE_NAMES[out.dtype]
    misfits = int((~out.isfinite()).sum()) if ref.isfinite().all() else 0
    return OutputError("random", name, out.numel(), 0.0, 0.0, misfits, statistics)


def _statistics(values: torch.Tensor) -> tuple[float, float, float]:
    """Mean, standard deviation and share of zeros of the finite elements."""
    wide = values.detach().to(torch.float64)
    wide = wide[wide.isfinite()]
    if not wide.numel():
        return (0.0, 0.0, 0.0)
    return (wide.mean().item(), wide.std(correction=0).item(), (wide == 0).double().mean().item())
