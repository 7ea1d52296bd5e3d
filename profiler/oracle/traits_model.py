"""What a price of a generated Triton kernel needs, as data: sizes, memory accesses, reductions. Torch-free."""

from __future__ import annotations

import math
from dataclasses import dataclass

from profiler.region.model import ITEMSIZE

ITEM_BYTES = {**ITEMSIZE, "u64": 8, "u32": 4, "u16": 2}
"""Bytes of one element in memory: of the language's types, and of Triton's that it lacks."""

LOAD, STORE = "load", "store"


@dataclass(frozen=True, slots=True)
class Access:
    """One place in the text that reads or writes memory.

    kind: "load", "store", or the atomic operation, "atomic_add". pointer: the argument that it goes to. dtype: of an
    element in memory, as the region language spells it. axes: iteration axes that the address depends on, by way of
    values that were read as well: "x", "y", "z", "r0", "r1"; of a template "m", "n" and the like. strides: for each
    axis, the elements by which a step of one along it moves the address, within the axis' lowest digit; None where
    that is not known. indirect: the address depends on a value that was read. conditional: masked by more than the
    ends of the iteration, as the parts of a concatenation are. loop: number of the loop over the reduction that it
    stands in, from 1; 0: in none. lanes: elements that are asked for in one launch, the product of the sizes of
    `axes`; a row that every block reads again counts once. elements: different ones among them; of a gather at most.
    run: elements that lie one after another before the address jumps. offset: of the lowest address. span: elements
    from the first to the last. eviction: "evict_first", "evict_last" or "".
    """

    kind: str
    pointer: str
    dtype: str | None
    axes: tuple[str, ...]
    strides: tuple[int | None, ...]
    indirect: bool
    conditional: bool
    loop: int
    lanes: int | None
    elements: int | None
    run: int | None
    offset: int | None
    span: int | None
    eviction: str = ""

    @property
    def item_bytes(self) -> int | None:
        """Bytes of one element; None where its type is not known."""
        return ITEM_BYTES.get(self.dtype or "")

    @property
    def stride(self) -> int | None:
        """Elements between neighbours along the axis that moves the address least: 1 contiguous, 0 always the same.

        None where a stride is not known and none of the others is 1.
        """
        if not self.axes:
            return 0
        known = [abs(s) for s in self.strides if s]
        if 1 in known:
            return 1
        if None in self.strides:
            return None
        return min(known, default=0)

    @property
    def contiguous(self) -> bool:
        """Whether neighbours along one of the axes lie next to each other."""
        return self.stride == 1


@dataclass(frozen=True, slots=True)
class FunctionCount:
    """A function that the kernel computes: "exp", "rsqrt", "divide", "rand", "dot".

    calls: places in the text. executions: results in one launch, the product of the sizes of the axes that the
    arguments depend on; a place after a loop over the reduction counts once a row. None where a size is not known.
    """

    name: str
    calls: int
    executions: int | None


@dataclass(frozen=True, slots=True)
class Template:
    """What a kernel from one of Inductor's templates (matrix product, convolution, attention) is set to.

    m, n, k: sizes of the matrix product, of a convolution as one over its output positions, output channels and
    filter elements of a group; of a sum of two products k is that of both. batch: how many products (groups of a
    convolution). None where the text does not say. block_m, block_n, block_k: the tile. num_stages: of its pipeline.
    constants: every constant that the text sets, by name: KERNEL_H, stride_am, SM_SCALE.
    """

    m: int | None
    n: int | None
    k: int | None
    batch: int | None
    block_m: int | None
    block_n: int | None
    block_k: int | None
    num_stages: int | None
    num_warps: int | None
    allow_tf32: bool | None
    constants: tuple[tuple[str, int | float | bool | str], ...] = ()


@dataclass(frozen=True, slots=True)
class KernelTraits:
    """One kernel, by its text.

    kind: Inductor's heuristic, "pointwise", "reduction", "persistent_reduction", "split_scan", "template", "foreach";
    None where there is none. sizes: (axis, elements along it), axes without a static size left out; of a
    foreach kernel none. size_hints: as Inductor hands them to its heuristic, rounded up to powers of 2.
    reduction_hint: "INNER", "OUTER", "DEFAULT" ... loops: over the reduction, one after another: 2 where a looped
    reduction reads its rows twice; 0 in a kernel that holds its rows (persistent) or has none. tiles: axes of the
    grid, 2 where rows and columns are cut into tiles. reductions: (kind, places in the text), "sum", "max", "welford",
    "argmax", "scan", "sort" ... functions: what is dearer than an addition. arithmetic: additions, multiplications,
    comparisons and selections of values, executed in one launch. index_divisions: integer divisions and remainders
    that compute indices, places in the text. num_load, num_store, num_reduction: Inductor's own counts.
    min_split_scan_block: least elements of a block of a split scan. mutated: arguments that are written over.
    num_warps, num_stages: where the text fixes them.
    """

    kind: str | None = None
    sizes: tuple[tuple[str, int], ...] = ()
    size_hints: tuple[tuple[str, int], ...] = ()
    reduction_hint: str | None = None
    tiles: int | None = None
    loops: int | None = None
    accesses: tuple[Access, ...] = ()
    reductions: tuple[tuple[str, int], ...] = ()
    functions: tuple[FunctionCount, ...] = ()
    arithmetic: int | None = None
    index_divisions: int | None = None
    num_load: int | None = None
    num_store: int | None = None
    num_reduction: int | None = None
    min_split_scan_block: int | None = None
    mutated: tuple[str, ...] = ()
    num_warps: int | None = None
    num_stages: int | None = None
    template: Template | None = None

    @property
    def loads(self) -> tuple[Access, ...]:
        """Reads of memory."""
        return tuple(a for a in self.accesses if a.kind == LOAD)

    @property
    def stores(self) -> tuple[Access, ...]:
        """Writes, without atomic ones."""
        return tuple(a for a in self.accesses if a.kind == STORE)

    @property
    def atomics(self) -> tuple[Access, ...]:
        """Reads and writes in one, as a scatter does."""
        return tuple(a for a in self.accesses if a.kind not in (LOAD, STORE))

    @property
    def persistent(self) -> bool:
        """Whether each block holds its rows whole."""
        return self.kind == "persistent_reduction"

    @property
    def rows(self) -> int | None:
        """Independent results: the product of the sizes of the axes that are not reduced; None where one is unknown."""
        if not self.sizes:
            return None
        sizes = dict(self.sizes)
        named = {a for a, _ in (*self.sizes, *self.size_hints) if not a.startswith("r")}
        return math.prod(sizes[a] for a in named) if named <= sizes.keys() else None

    @property
    def bytes_touched(self) -> int | None:
        """Different bytes that are read, and that are written, however often the text reads them; None where the text
        does not say. What a kernel wrote and reads back counts both times, an atomic addition as a read and a write.

        Inductor's own count agrees where nothing is indirect, but leaves out reads of what was added to atomically, and
        counts overlapping windows one by one.
        """
        total = 0
        groups: dict[tuple[str, str], list[Access]] = {}
        for access in self.accesses:
            groups.setdefault((access.kind, access.pointer), []).append(access)
        for (kind, _), accesses in groups.items():
            elements = _different(accesses)
            item_bytes = accesses[0].item_bytes
            if elements is None or item_bytes is None:
                return None
            total += elements * item_bytes * (1 if kind in (LOAD, STORE) else 2)
        return total


def _different(accesses: list[Access]) -> int | None:
    """Elements that several accesses to one array touch together: the same places once."""
    by_place: dict[tuple[object, ...], Access] = {}
    for access in accesses:
        by_place.setdefault((access.offset, access.axes, access.strides, access.span, access.elements), access)
    counts = [a.elements for a in by_place.values()]
    if any(c is None for c in counts):
        return None
    total = sum(c for c in counts if c is not None)
    ends = [(a.offset, a.offset + a.span) for a in by_place.values() if a.offset is not None and a.span is not None]
    if len(ends) < len(by_place):
        return total
    return min(total, max(last for _, last in ends) - min(first for first, _ in ends))
