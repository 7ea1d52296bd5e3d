"""Operations of a region's graph with their tensors, as data. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

from profiler.region.operations import LIBRARY_KINDS


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor as an operation sees it. bytes: distinct bytes addressed; a stride-0 dimension counts once.

    offset: of its first element in the storage, in elements. extent: bytes of the whole storage, 0 where unknown.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    storage: int  # equal for tensors that share memory
    bytes: int
    offset: int = 0
    extent: int = 0

    @property
    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True, slots=True)
class Operation:
    """One aten operation. kind is one of `kinds.KINDS`; line is 1-based in the region's text, 0 where unknown.

    falls_back: Inductor leaves the call to aten.
    """

    name: str
    target: str
    label: str
    kind: str
    inputs: tuple[str, ...]
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    flops: int
    line: int
    axes: tuple[int, ...] = ()  # non-negative dimensions that are reduced or scanned; () = none, or all
    mutated: tuple[Tensor, ...] = ()  # arguments that it writes into and does not return: running statistics
    accumulates: bool = False  # adds to what is there: index_put with accumulate=True
    falls_back: bool = False

    @property
    def extern(self) -> bool:
        """Under torch.compile a call of a library or of aten: nothing fuses with it."""
        return self.falls_back or self.kind in LIBRARY_KINDS
