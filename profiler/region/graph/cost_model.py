"""What a region costs, as data. Torch-free, so that advice can be computed without it. Counted by `cost`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from profiler.hardware import Device


@dataclass(frozen=True, slots=True)
class Count:
    """Bytes of device memory traffic, floating-point operations, kernel launches."""

    bytes_read: int
    bytes_written: int
    flops: int
    launches: int

    @property
    def bytes_moved(self) -> int:
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True, slots=True)
class OperationCost:
    """One operation on its own, as eager runs it. Views cost nothing and launch nothing."""

    name: str
    label: str
    kind: str
    line: int
    bytes_read: int
    bytes_written: int
    flops: int
    launches: int

    @property
    def bytes_moved(self) -> int:
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True, slots=True)
class KernelCost:
    """One kernel of the fused region: a group that torch.compile's rules would fuse, or one extern call.

    stage: "partial", "final" or "apply" where a reduction is split over several kernels, each of which names it.
    """

    label: str
    kind: str  # "fused" or the kind of the extern operation: gemm, attention, sort, ...
    operations: tuple[str, ...]
    bytes_read: int
    bytes_written: int
    flops: int
    stage: str = ""

    @property
    def bytes_moved(self) -> int:
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True, slots=True)
class Saving:
    """A headline number and how it was counted, so that no reader has to guess."""

    name: str  # stable: "tail-fused", "tail-epilogue", "region-fused", "region-ideal"
    title: str
    bytes_before: int
    bytes_after: int
    launches_before: int
    launches_after: int
    counting: str

    @property
    def share_saved(self) -> float:
        """Share of the bytes saved, 0 to 1."""
        return 1 - self.bytes_after / self.bytes_before if self.bytes_before else 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel's distinct bytes by storage: (storage, bytes) read and written."""

    read: tuple[tuple[int, int], ...]
    written: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """A region's traffic and work: each operation alone, fused as torch.compile would, and ideally fused.

    ideal counts what is used of every input once and every output once, inputs that are changed as outputs, gathers
    by the elements accessed. intensity is FLOP per byte of `ideal`. gemm_flops are those that the matrix units do;
    matmul_dtype is the dtype of their inputs; limit_dtype, where given, the narrower one that the same products may be
    made in: the limit counts them at its rate. unfused_steps, fused_steps: the same kernels storage by storage, for
    `dram`.
    """

    operations: tuple[OperationCost, ...]
    kernels: tuple[KernelCost, ...]
    unfused: Count
    fused: Count
    ideal: Count
    savings: tuple[Saving, ...]
    matmul_dtype: str | None
    gemm_flops: int
    intensity: float
    unfused_steps: tuple[Step, ...] = ()
    fused_steps: tuple[Step, ...] = ()
    limit_dtype: str | None = None

    @property
    def fastest_dtype(self) -> str:
        """At whose rate the limit counts the products; f32 where there are none."""
        return self.limit_dtype or self.matmul_dtype or "f32"


L2_SHARE = 0.5
"""Of the L2, what is taken to hold data between two kernels: a Hopper processor reads through the nearer half of it."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that reach device memory."""

    bytes_read: int
    bytes_written: int

    @property
    def bytes_moved(self) -> int:
        return self.bytes_read + self.bytes_written


def dram(steps: Sequence[Step], device: Device) -> Traffic:
    """What kernels read from memory and write to it, with an L2 between them that is empty at the start: an estimate.

    The L2 holds whole tensors, the least recently used one leaves first, and one beyond L2_SHARE of it passes through.
    A read is served by it where the tensor is still there. What is written reaches memory once; again only where it
    had left before it was written anew.
    """
    room = L2_SHARE * device.l2_bytes
    resident: dict[int, int] = {}  # storage -> bytes, least recently used first
    changed: dict[int, int] = {}  # storages in `held` that memory does not have yet
    read_bytes = written_bytes = 0
    for step in steps:
        # a vector that every row needs is touched until the end: small tensors last
        for storage, size in sorted(step.read, key=lambda part: -part[1]):
            read_bytes += 0 if resident.get(storage, -1) >= size else size
            written_bytes += _hold(resident, changed, storage, size, room)
        for storage, size in sorted(step.written, key=lambda part: -part[1]):
            written_bytes += _hold(resident, changed, storage, size, room)
            if storage in resident:
                changed[storage] = max(size, changed.get(storage, 0))
            else:
                written_bytes += size
    return Traffic(read_bytes, written_bytes + sum(changed.values()))


def _hold(resident: dict[int, int], changed: dict[int, int], storage: int, size: int, room: float) -> int:
    """Make `storage` the most recently used; bytes that are written back for it to fit."""
    resident[storage] = max(size, resident.pop(storage, 0))
    back = 0
    while resident and sum(resident.values()) > room:
        oldest = next(iter(resident))
        del resident[oldest]
        back += changed.pop(oldest, 0)
    return back


def floor_us(counted: Cost, device: Device) -> float:
    """The least time of one call with its inputs in memory: max(bytes / copy rate, FLOPs / rate), in µs.

    Measured ceilings where the device has them, the datasheet's otherwise. Bytes are the fewest; of those written, as
    many as the L2 has room for on top of all of them may still be there when the call ends and are not counted. A
    launch is not free, but the floor does not count it.
    """
    return 1e6 * max(memory_bytes(counted, device) / device.copy_rate, *_compute_s(counted, device))


def without_hidden(counted: Cost, share: float) -> Cost:
    """The cost without that share of the products' FLOPs, which masks of positions let a kernel leave out."""
    if not share:
        return counted
    hidden = int(share * counted.gemm_flops)
    ideal = replace(counted.ideal, flops=counted.ideal.flops - hidden)
    return replace(counted, gemm_flops=counted.gemm_flops - hidden, ideal=ideal)


def memory_bytes(counted: Cost, device: Device) -> float:
    """The fewest bytes of one call that come from memory or go there: without those written that L2 may still hold."""
    spare = max(0.0, device.l2_bytes - counted.ideal.bytes_moved)
    return counted.ideal.bytes_read + max(0.0, counted.ideal.bytes_written - spare)


def bound(counted: Cost, device: Device) -> str:
    """ "memory" or "compute": which side of the roofline's ridge the ideally fused region is on."""
    memory = counted.ideal.bytes_moved / device.copy_rate
    return "compute" if max(_compute_s(counted, device)) > memory else "memory"


def _compute_s(counted: Cost, device: Device) -> tuple[float, float]:
    """Seconds for what the matrix units do, and for the rest of the FLOPs on the vector units."""
    matrix = counted.gemm_flops / device.matmul_rate(counted.fastest_dtype)
    vector = (counted.ideal.flops - counted.gemm_flops) / device.f32_rate
    return matrix, vector


INTENSITY_COUNTING = (
    "all FLOPs of the region over its fewest bytes: what is used of every input once, every output once, nothing in "
    "between; so it is the intensity of one ideally fused kernel, not of the operations as they run now"
)
DRAM_COUNTING = (
    f"estimate: kernel after kernel from an empty L2, of which {L2_SHARE:.0%} keeps the tensors used last; a tensor "
    "that is still there is not read from memory again, and everything written reaches memory once"
)


def floor_counting(counted: Cost, device: Device) -> str:
    """What the floor is made of, for this region on this device: the larger of these, and what it leaves out."""
    matrix, vector = _compute_s(counted, device)
    rates = "measured" if device.ceilings_measured else "the datasheet's"
    parts = [
        f"{counted.ideal.bytes_moved / 1e6:,.1f} MB (what is used of every input once, every output once) at "
        f"{device.copy_rate / 1e12:.2f} TB/s"
    ]
    if counted.ideal.bytes_moved < device.l2_bytes:
        parts[0] += ", of which what is written may stay in the L2"
    if matrix:
        rate = device.matmul_rate(counted.fastest_dtype) / 1e12
        parts.append(f"{counted.gemm_flops / 1e9:,.1f} GFLOP of matrix products at {rate:,.0f} TFLOP/s")
    if vector:
        rest = (counted.ideal.flops - counted.gemm_flops) / 1e9
        parts.append(f"{rest:,.3g} GFLOP of other arithmetic at {device.f32_rate / 1e12:,.0f} TFLOP/s")
    which = "the larger of " if len(parts) > 1 else ""
    return f"{which}{'; '.join(parts)} ({rates} rates); no launch is counted"
