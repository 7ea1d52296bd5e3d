"""Which operations share a kernel by torch.compile's fusion rules: the prediction where no oracle was asked.

Pointwise operations and reductions over the same rows fuse; a matrix product, attention, convolution or FFT is a call
to a library, and what falls back to aten (`operations`) is a call of it: nothing fuses across them. A split reduction
(`splits`) ends its kernel: its results come from a second one, and what takes them back to all elements reads those
again in a third. What Inductor really emits is the oracle's to say.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from profiler.region import op_kinds
from profiler.region.graph.iteration_space import Domain, compatible, domain_of
from profiler.region.graph.lowering import Graph
from profiler.region.graph.operation import Operation
from profiler.region.graph.reduction_splits import APPLY, FINAL, PARTIAL, mixes, stages

INLINED_READS = 4
"""Tensors from which a value is computed again rather than kept (torch._inductor.config.realize_reads_threshold)."""


@dataclass(frozen=True, slots=True)
class Group:
    """One kernel: operations in order. kind is "fused" or, for an extern call, the operation's own kind.

    A split reduction is in two kernels or more. stage: "partial", "final" or "apply" where the kernel is one of them,
    else "". owned: operations whose results are this kernel's to write. summed: reductions that it finishes from
    partial results, so that it reads none of their inputs; applied: those whose results it takes back to all elements.
    """

    kind: str
    operations: tuple[str, ...]
    label: str
    domain: Domain
    stage: str = ""
    owned: frozenset[str] = frozenset()
    summed: frozenset[str] = frozenset()
    applied: frozenset[str] = frozenset()

    @property
    def fused(self) -> bool:
        return self.kind == "fused"


def groups(graph: Graph, split: bool = True) -> tuple[Group, ...]:
    """Kernels in an order in which they can run. Views belong to no group: they launch nothing.

    split: as Inductor does it, with a reduction over few, long rows in several kernels. Without, every operation is in
    one group: what a kernel of our own would do.
    """
    return _Fusion(graph, split).run()


def source_names(graph: Graph, operation: Operation) -> tuple[str, ...]:
    """The operations or inputs whose memory an operation reads, looking through views."""
    return tuple(dict.fromkeys(through_views(graph, name) for name in operation.inputs))


def through_views(graph: Graph, name: str) -> str:
    """The operation or input behind a chain of views."""
    inputs = {n for n, _ in graph.inputs}
    while name not in inputs and graph.operation(name).kind == op_kinds.VIEW:
        if not graph.operation(name).inputs:
            break
        name = graph.operation(name).inputs[0]
    return name


class _Fusion:
    """Greedy, in program order: an operation joins the kernel of what it reads, unless that would close a cycle."""

    def __init__(self, graph: Graph, split: bool) -> None:
        self.graph = graph
        self.split = split
        self.members: list[list[str]] = []
        self.domains: list[Domain] = []
        self.extern: list[bool] = []
        self.partial: list[set[str]] = []
        self.summed: list[set[str]] = []
        self.applied: list[set[str]] = []
        self.sequence: dict[str, list[int]] = {}  # a split reduction's kernels in order
        self.home: dict[str, int] = {}
        self.bits = {o.name: 1 << i for i, o in enumerate(graph.operations)}
        # Sets of operations as bits of an int: a loop of 1,500 steps has a million pairs of one above the other.
        self.ancestors: dict[str, int] = {}
        self.masks: list[int] = []  # members of each kernel

    def run(self) -> tuple[Group, ...]:
        for operation in self.graph.operations:
            above = 0
            for name in operation.inputs:
                above |= self.ancestors.get(name, 0) | self.bits.get(name, 0)
            self.ancestors[operation.name] = above
            if operation.kind != op_kinds.VIEW and not _free(operation):
                self.place(operation)
        self.merge_siblings()
        return self.ordered()

    def place(self, operation: Operation) -> None:
        extern = operation.extern
        domain = domain_of(operation)
        kernels = () if extern or not self.split else stages(operation, domain.rows, domain.columns)
        index = -1
        if not extern:
            homes = [self.home[n] for n in source_names(self.graph, operation) if n in self.home]
            for candidate in sorted(set(homes), reverse=True):
                index = self.join(candidate, operation, domain, index)
        if index < 0:
            index = self.open(operation.name, domain, extern)
        for number, stage in enumerate(kernels):
            if number:
                results = max(t.elements for t in operation.writes) if stage == APPLY else domain.rows
                index = self.open(operation.name, domain if stage == PARTIAL else Domain(results, 1))
            {PARTIAL: self.partial, FINAL: self.summed, APPLY: self.applied}[stage][index].add(operation.name)
            self.sequence.setdefault(operation.name, []).append(index)

    def open(self, name: str, domain: Domain, extern: bool = False) -> int:
        """A new kernel, which is where the operation's result comes from."""
        self.members.append([name])
        self.masks.append(self.bits[name])
        self.domains.append(domain)
        self.extern.append(extern)
        for marks in (self.partial, self.summed, self.applied):
            marks.append(set())
        self.home[name] = len(self.members) - 1
        return self.home[name]

    def join(self, candidate: int, operation: Operation, domain: Domain, index: int) -> int:
        """Put the operation into `candidate`, or merge `candidate` with the group it is already in."""
        if self.extern[candidate] or candidate == index:
            return index
        if index < 0:
            merged = self.shared(candidate, domain)
            inlined = merged is None and self.inlinable(candidate, domain)
            members = self.masks[candidate] | self.bits[operation.name]
            waits = self.waits(candidate, [operation.name])
            # Nothing that is in the kernel already depends on the operation, which comes after all of it.
            if (merged is None and not inlined) or waits or self.cyclic([operation.name], members):
                return index
            self.members[candidate].append(operation.name)
            self.masks[candidate] = members
            self.domains[candidate] = merged or domain
            self.home[operation.name] = candidate
            return candidate
        self.merge(index, candidate)
        return index

    def shared(self, candidate: int, domain: Domain) -> Domain | None:
        """The iteration space of the kernel with something of `domain` in it, or None."""
        space = self.domains[candidate]
        if self.summed[candidate]:
            return space if (domain.rows, domain.columns) == (space.rows, 1) else None
        if domain.rows == 1 and space.columns > 1 and space.axis == "last" and domain.columns == space.elements:
            return space  # rows first, then over the rows: the row's kernel writes the partial results
        return compatible(space, domain)

    def waits(self, index: int, names: list[str]) -> bool:
        """One of `names` needs the whole result of a reduction of which the kernel makes partial results only."""
        partial = self.mask(self.partial[index])
        return bool(partial) and any(partial & self.ancestors[n] for n in names)

    def mask(self, names: Iterable[str]) -> int:
        """Operations as bits."""
        bits = 0
        for name in names:
            bits |= self.bits[name]
        return bits

    def inlinable(self, candidate: int, domain: Domain) -> bool:
        """A small pointwise producer (a cast weight, a scale) is computed again inside the larger kernel."""
        space = self.domains[candidate]
        if self.partial[candidate] or self.summed[candidate]:
            return False
        return space.columns == 1 and space.rows < domain.elements and domain.elements % max(1, space.rows) == 0

    def merge(self, into: int, other: int) -> Domain | None:
        if self.extern[into] or self.extern[other] or not self.members[other]:
            return None
        if self.summed[into] or self.summed[other] or self.masks[into] & self.masks[other]:
            return None
        if self.waits(into, self.members[other]) or self.waits(other, self.members[into]):
            return None
        merged = compatible(self.domains[into], self.domains[other])
        if merged is None and self.inlinable(other, self.domains[into]):
            merged = self.domains[into]
        if merged is None:
            merged = self.mixed(into, other) or self.mixed(other, into)
        both = self.masks[into] | self.masks[other]
        if merged is None or self.cyclic([*self.members[into], *self.members[other]], both):
            return None
        for name in self.members[other]:
            if self.home[name] == other:
                self.home[name] = into
        self.members[into].extend(self.members[other])
        self.masks[into], self.masks[other] = both, 0
        for marks in (self.partial, self.applied):
            marks[into] |= marks[other]
            marks[other] = set()
        for kernels in self.sequence.values():
            kernels[:] = [into if k == other else k for k in kernels]
        self.members[other] = []
        self.domains[into] = merged
        return merged

    def cyclic(self, names: Iterable[str], members: int) -> bool:
        """Something outside would have to run before one of `names` and after another of the group's members."""
        for name in names:
            for source in self.graph.operation(name).inputs:
                if source not in self.ancestors or self.bits[source] & members:
                    continue
                if self.ancestors[source] & members and not self.glue(source, members):
                    return True
        return False

    def glue(self, name: str, members: int) -> bool:
        """A view of a member's result: no kernel lies between."""
        waiting = [name]
        while waiting:
            operation = self.graph.operation(waiting.pop())
            if operation.kind != op_kinds.VIEW and not _free(operation):
                return False
            waiting += [s for s in operation.inputs if s in self.ancestors and not self.bits[s] & members]
        return True

    def merge_siblings(self) -> None:
        """Kernels over the same elements that read the same tensor become one (Inductor's horizontal fusion)."""
        place: dict[str, int] = {}  # what is read -> its bit

        def read(index: int) -> int:
            bits = 0
            for name in self.external_reads(index):
                bits |= 1 << place.setdefault(name, len(place))
            return bits

        free = [i for i, extern in enumerate(self.extern) if not extern]
        reads = {i: read(i) for i in free}
        for at, later in enumerate(free):
            for earlier in free[:at]:
                if not reads[later] & reads[earlier] or self.domains[later].elements != self.domains[earlier].elements:
                    continue
                if self.members[later] and self.merge(later, earlier) is not None:
                    reads[later], reads[earlier] = read(later), 0

    def mixed(self, rows: int, columns: int) -> Domain | None:
        """A row reduction that writes, as it goes, partial results of a column reduction of the same tensor."""
        over_rows, over_columns = self.domains[rows], self.domains[columns]
        transposed = (over_columns.rows, over_columns.columns) == (over_rows.columns, over_rows.rows)
        if over_rows.axis != "last" or self.partial[rows] or not transposed:
            return None
        reduced = [self.graph.operation(n) for n in self.partial[columns]]
        pairs = ((rows, columns), (columns, rows))
        if any(self.ancestors[n] & self.masks[over_columns] for one, over_columns in pairs for n in self.members[one]):
            return None
        return over_rows if self.split and mixes(reduced, over_rows.rows, over_rows.columns) else None

    def external_reads(self, index: int) -> set[str]:
        members = set(self.members[index])
        names = (source_names(self.graph, self.graph.operation(n)) for n in members - self.summed[index])
        return {s for sources in names for s in sources if s not in members}

    def ordered(self) -> tuple[Group, ...]:
        position = {o.name: i for i, o in enumerate(self.graph.operations)}
        first = {i: min(position[n] for n in m) for i, m in enumerate(self.members) if m}
        needs = self.needs()
        unplaced = sum(1 << i for i in first)  # kernels that are not yet placed, as bits
        watching: dict[int, list[int]] = {}  # kernel -> those that wait for it, among others
        ready: list[tuple[int, int]] = []
        pending, placed, candidates = dict.fromkeys(first), list[int](), list(first)
        while pending:
            for index in candidates:
                open_ = needs[index] & unplaced
                if open_:
                    watching.setdefault(open_.bit_length() - 1, []).append(index)
                else:
                    heapq.heappush(ready, (first[index], index))
            index = heapq.heappop(ready)[1] if ready else next(iter(pending))
            del pending[index]
            unplaced &= ~(1 << index)
            placed.append(index)
            candidates = [i for i in watching.pop(index, []) if i in pending]
        return tuple(self.group(i, position) for i in placed)

    def needs(self) -> dict[int, int]:
        """Kernel -> the kernels that run before it, as bits."""
        above: dict[str, int] = {}  # operation -> kernels that its ancestors' results come from
        for operation in self.graph.operations:
            bits = 0
            for name in operation.inputs:
                bits |= above.get(name, 0) | (1 << self.home[name] if name in self.home else 0)
            above[operation.name] = bits
        needed: dict[int, int] = {}
        for index, members in enumerate(self.members):
            bits = 0
            for name in members:
                kernels = self.sequence.get(name, [])
                bits |= above[name]
                for other in kernels[: kernels.index(index)] if index in kernels else ():
                    bits |= 1 << other
            needed[index] = bits & ~(1 << index)
        return needed

    def recomputed(self, index: int) -> set[str]:
        """What the kernel computes again instead of reading it: arithmetic in front of a split reduction."""
        if self.extern[index]:
            return set()
        names: set[str] = set()
        waiting = [n for n in self.external_reads(index) if n in self.home]
        for name in waiting:
            chain = self.chain(name)
            if chain is not None and name not in self.graph.outputs:
                names |= chain
        return names

    def chain(self, name: str) -> set[str] | None:
        """The pointwise operations that make up a value in a kernel of partial results; None where it is kept."""
        place = self.home[name]
        if not self.partial[place]:
            return None
        chain, read, waiting = set[str](), set[str](), [name]
        while waiting:
            current = waiting.pop()
            if self.graph.operation(current).kind not in (op_kinds.POINTWISE, op_kinds.COPY):
                return None
            chain.add(current)
            for source in source_names(self.graph, self.graph.operation(current)):
                if self.home.get(source) == place:
                    waiting.append(source)
                else:
                    read.add(source)
        return chain if len(read) <= INLINED_READS else None

    def group(self, index: int, position: dict[str, int]) -> Group:
        members = {*self.members[index], *self.recomputed(index)}
        names = tuple(sorted(members, key=position.__getitem__))
        operations = [self.graph.operation(n) for n in names]
        kind = operations[0].kind if self.extern[index] else "fused"
        marks = ((PARTIAL, self.partial), (FINAL, self.summed), (APPLY, self.applied))
        stage = next((stage for stage, marked in marks if marked[index]), "")
        label = " + ".join(dict.fromkeys(o.label for o in operations)) + (f" ({stage})" if stage else "")
        owned = frozenset(n for n in self.members[index] if self.home[n] == index)
        return Group(
            kind, names, label, self.domains[index], stage, owned,
            frozenset(self.summed[index]), frozenset(self.applied[index]),
        )  # fmt: skip


def _free(operation: Operation) -> bool:
    """Costs nothing at run time: uninitialised memory, constants lifted out of the graph."""
    return op_kinds.base_name(operation.target) in ("empty", "new_empty", "empty_like", "empty_strided", "constant")
