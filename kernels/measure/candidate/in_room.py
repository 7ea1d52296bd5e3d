"""An output's error by the room that roundings give each of its elements."""

from __future__ import annotations

import math

import torch

from kernels.agreement import pointed
from kernels.measure.candidate.room import BORDER, Room
from kernels.measure.messages import InRoom

FEW = 4


def floats_in_room(out: torch.Tensor, ref: torch.Tensor, length: int, limit: float, room: Room) -> InRoom:
    """Flat outputs and references; length: of a row, 0 for none; limit: the largest number the type holds."""
    right = ref.to(torch.float64)
    finite = out.to(torch.float64).isfinite() & right.isfinite() & (right.abs() <= limit)
    off = torch.where(finite, out.to(torch.float64) - right, 0.0)
    if room.low is not None and room.high is not None:
        differ = float((ref.to(out.dtype).to(torch.float32) != out.to(torch.float32))[finite].sum())
        outside = _outside(out, finite, room.low, room.high)
        return InRoom(_over(differ, room), slope=room.slope, outside=outside)
    assert room.size is not None
    # What is exact has no room and needs none.
    ratio = torch.where(off == 0, 0.0, off.abs() / room.size.reshape(-1).to(torch.float64)).square()
    if not ratio.numel():
        return InRoom()
    rows = ratio.view(-1, length).mean(-1).max() if length else ratio.new_zeros(())
    mean, row, most = torch.stack([ratio.mean(), rows, ratio.max()]).sqrt().nan_to_num(math.inf).tolist()
    return InRoom(mean, row / room.together, most, room.slope)


def _outside(out: torch.Tensor, finite: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> float:
    """The ends are rounded as the type rounds: what lies between them may have been rounded to either."""
    wide = out.to(torch.float32)
    least, most = (t.reshape(-1).to(out.dtype).to(torch.float32) for t in (low, high))
    beyond = (wide < least) | (wide > most)
    return float((beyond & finite & least.isfinite() & most.isfinite()).double().mean()) if out.numel() else 0.0


def steps_in_room(out: torch.Tensor, ref: torch.Tensor, room: Room) -> InRoom | None:
    """Integers and booleans: those that steps leave possible."""
    if room.low is None or room.high is None or not out.numel():
        return None
    values, low, high = (t.to(torch.int64) for t in (out, room.low, room.high))
    outside = float(((values < low) | (values > high)).double().mean())
    return InRoom(_over(float((values != ref.to(torch.int64)).sum()), room), slope=room.slope, outside=outside)


def _over(differ: float, room: Room) -> float:
    """How many times as many elements end on another step as roundings by chance put there; a few are nothing."""
    return differ / (room.flips + FEW)


def selected_in_room(
    out: torch.Tensor, ref: torch.Tensor, source: torch.Tensor, dim: int, of_source: torch.Tensor
) -> InRoom | None:
    """Indices: values that they select may differ by what the two are off by."""
    values, right = pointed(out, source, dim), pointed(ref, source, dim)
    if values is None or right is None:
        return None
    size = of_source.to(source.device).expand(source.shape)
    off, of_right = pointed(out, size, dim), pointed(ref, size, dim)
    assert off is not None
    assert of_right is not None
    beyond = (values - right).abs() > BORDER * (off + of_right)
    return InRoom(outside=float(beyond.double().mean()) if beyond.numel() else 0.0)
