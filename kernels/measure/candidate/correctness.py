"""How far a candidate's outputs are from float64. Measured in the child; `judge` decides in the parent."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from kernels.agreement import pointed
from kernels.measure.candidate.clusters import spreads
from kernels.measure.candidate.in_room import floats_in_room, selected_in_room, steps_in_room
from kernels.measure.candidate.reference import Reference
from kernels.measure.candidate.room import BYTES, Room, slope_of
from kernels.measure.messages import OutputError
from profiler.region.language.vocabulary import DTYPE_NAMES, DTYPES

LEVELS = (torch.int8, torch.uint8)
"""What numbers are quantised to; other integers count, or point."""
STEP = 1 << 24  # elements compared at once: 128 MiB of float64
SHORTEST_ROW = 16  # elements; errors of fewer do not average out
SHORT_ROW = 2.0**-6
"""Of a row's usual length: shorter ones count as that long, as what they are off by matters no more."""


def compare(
    outputs: Sequence[torch.Tensor], expected: Reference, random: frozenset[int] = frozenset(),
    rooms: Sequence[Room] | None = None,
) -> list[OutputError]:  # fmt: skip
    """Each output against its reference. outputs have the reference's shapes (checked before)."""
    errors = []
    for number, (out, ref) in enumerate(zip(outputs, expected.outputs, strict=True)):
        room = rooms[number] if rooms is not None else None
        if number in random:
            errors.append(_random(out, ref))
        elif number in expected.selected:
            errors.append(_selected(out, ref, *expected.selected[number], room))
        elif out.dtype.is_floating_point:
            errors.append(_floats(out, ref, DTYPE_NAMES[out.dtype], room=room))
        else:
            errors.append(_exact(out, ref, room))
    return errors


def _floats(
    out: torch.Tensor, ref: torch.Tensor, dtype: str, kind: str = "float", room: Room | None = None
) -> OutputError:
    out = out.detach()
    limit = torch.finfo(DTYPES[dtype]).max * (1 + torch.finfo(DTYPES[dtype]).eps / 4)
    sums = torch.zeros(4, dtype=torch.float64, device=out.device)  # |d|², |ref|², <d, ref>, elements finite in both
    worst = torch.zeros((), dtype=torch.float64, device=out.device)
    misfits = torch.zeros((), dtype=torch.int64, device=out.device)
    differ = torch.zeros((), dtype=torch.float64, device=out.device)
    rows: list[torch.Tensor] = []  # |d|² and |ref|² of each
    length = out.shape[-1] if out.dim() > 1 and SHORTEST_ROW <= out.shape[-1] <= STEP else 0
    step = STEP // length * length if length else STEP
    flat_out, flat_ref = out.reshape(-1), ref.reshape(-1)
    for start in range(0, flat_out.numel(), step):
        a, b = (t[start : start + step].to(torch.float64) for t in (flat_out, flat_ref))
        if out.dtype in BYTES:
            differ += (b.to(out.dtype).to(torch.float64) != a).sum()
        # All of it finite is the usual case, and takes fewer passes.
        if not bool((a.sum() + b.sum()).isfinite()) or not bool(b.abs().max() <= limit):
            b = torch.where(b.abs() > limit, torch.copysign(torch.full_like(b, math.inf), b), b)  # as the type stores
            finite = a.isfinite() & b.isfinite()
            misfits += (~(finite | (a.isnan() & b.isnan()) | (a == b))).sum()
            sums[3] += finite.sum() - a.numel()
            a, b = torch.where(finite, a, 0.0), torch.where(finite, b, 0.0)
        difference = a - b
        sums += torch.stack([difference.dot(difference), b.dot(b), difference.dot(b), sums.new_tensor(a.numel())])
        worst = torch.maximum(worst, difference.abs().max())
        if length:
            rows.append(torch.stack([t.view(-1, length).square().sum(-1) for t in (difference, b)]))
    squared, ref_squared, along, count = sums.tolist()
    norm, rms = math.sqrt(ref_squared), math.sqrt(ref_squared / max(1.0, count))
    error = math.sqrt(squared) / norm if norm else (math.inf if squared else 0.0)
    outlier = worst.item() / rms if rms else (math.inf if squared else 0.0)
    return OutputError(
        kind, dtype, out.numel(), error, outlier, int(misfits.item()),
        row=_worst_row(rows), slope=along / ref_squared if norm else 0.0,
        differ=differ.item() / max(1, out.numel()),
        in_room=floats_in_room(flat_out, flat_ref, length, limit, room) if room is not None else None,
    )  # fmt: skip


def _worst_row(rows: Sequence[torch.Tensor]) -> float:
    """The largest relative error of a row."""
    if not rows:
        return 0.0
    difference, right = torch.cat(list(rows), dim=1).sqrt()
    usual = right.square().mean().sqrt()
    return float((difference / torch.maximum(right, SHORT_ROW * usual).clamp_min(1e-300)).max())


def _exact(out: torch.Tensor, ref: torch.Tensor, room: Room | None) -> OutputError:
    share = (out != ref.to(out.dtype)).double().mean().item() if out.numel() else 0.0
    known = steps_in_room(out, ref, room) if room is not None else None
    slope = slope_of((out.double() - ref.double()), ref.double()) if known is not None and out.dtype in LEVELS else 0.0
    return OutputError("exact", DTYPE_NAMES[out.dtype], out.numel(), share, 0.0, 0, slope=slope, in_room=known)


def _selected(
    out: torch.Tensor, ref: torch.Tensor, source: torch.Tensor, dim: int, dtype: torch.dtype, room: Room | None
) -> OutputError:
    """Indices by the values they select: two that select equal values are equally right."""
    name = DTYPE_NAMES[dtype]
    values, right = pointed(out, source, dim), pointed(ref, source, dim)
    if values is None or right is None:
        return OutputError("index", name, out.numel(), math.inf, math.inf, 0)
    if not dtype.is_floating_point:
        share = (values != right).double().mean().item() if values.numel() else 0.0
        return OutputError("index", name, out.numel(), share, 0.0, 0)
    made = _floats(values, right, name, "index")
    if room is None or room.of_source is None:
        return made
    return OutputError(
        "index", name, made.elements, made.error, made.outlier, made.misfits, row=made.row, slope=made.slope,
        in_room=selected_in_room(out, ref, source, dim, room.of_source),
    )  # fmt: skip


def _random(out: torch.Tensor, ref: torch.Tensor) -> OutputError:
    statistics = (*_statistics(out), *_statistics(ref))
    name = DTYPE_NAMES[out.dtype]
    misfits = int((~out.isfinite()).sum()) if ref.isfinite().all() else 0
    return OutputError("random", name, out.numel(), 0.0, 0.0, misfits, statistics, spreads=spreads(out, ref))


def _statistics(values: torch.Tensor) -> tuple[float, float, float]:
    """Mean, standard deviation and share of zeros of the finite elements."""
    wide = values.detach().to(torch.float64)
    wide = wide[wide.isfinite()]
    if not wide.numel():
        return (0.0, 0.0, 0.0)
    return (wide.mean().item(), wide.std(correction=0).item(), (wide == 0).double().mean().item())
