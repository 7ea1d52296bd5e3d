"""The sizes of a definition's axes in one of the workloads that lie beside it: `workload.jsonl`, a workload a line.

A line has the axes itself, as SOL-ExecBench writes it, or within `workload`, as FlashInfer-Bench does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

FILE = "workload.jsonl"
MOST_BYTES = 64 * 1024 * 1024


class WorkloadError(ValueError):
    """There is no such workload, in words for who asked."""


class _Axes(msgspec.Struct):
    axes: dict[str, int] | None = None


class _Line(_Axes):
    workload: _Axes | None = None


def sizes_of(definition: Path, number: int) -> Mapping[str, int]:
    """Of workload `number`, from 1 on. Raises WorkloadError, OSError."""
    path = definition.with_name(FILE)
    if path.stat().st_size > MOST_BYTES:
        raise WorkloadError(f"{path}: larger than {MOST_BYTES // 1024**2} MiB")
    lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    if not 1 <= number <= len(lines):
        raise WorkloadError(f"{path}: has {len(lines)} workloads, and no number {number}")
    try:
        line = msgspec.json.decode(lines[number - 1], type=_Line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WorkloadError(f"{path}: workload {number} cannot be read: {error}") from None
    axes = line.axes if line.axes is not None else line.workload.axes if line.workload is not None else None
    if axes is None:
        raise WorkloadError(f"{path}: workload {number} has no axes")
    if any(size < 1 for size in axes.values()):
        raise WorkloadError(f"{path}: workload {number} has a size below 1")
    return axes
