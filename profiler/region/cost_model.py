"""What a region costs, as data. Torch-free, so that advice can be computed without it. Counted by `cost`."""

from __future__ import annotations

from dataclasses import dataclass


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
    """A headline number with the counting behind it: nobody should have to guess what was counted."""

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
class Cost:
    """A region's traffic and work: each operation alone, fused as torch.compile would, and ideally fused.

    ideal counts every input that is used once and every output once. intensity is FLOP per byte of `ideal`.
    gemm_flops are those that the matrix units do; matmul_dtype is the dtype of their inputs.
    bytes_accessed_ideal is `ideal`'s bytes with gathers counted by the elements accessed.
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
