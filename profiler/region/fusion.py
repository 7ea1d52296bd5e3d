"""Which operations share a kernel by torch.compile's fusion rules: the prediction where no oracle was asked.

Pointwise operations and reductions over the same rows fuse; a matrix product, attention, convolution, sort or FFT is
a call to a library, and nothing fuses across it. A split reduction (`splits`) ends its kernel: its results come from a
second one, and what takes them back to all elements reads those again in a third. What Inductor really emits is the
oracle's to say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from profiler.region import kinds
from profiler.region.graph import Graph, Operation, Tensor
from profiler.region.splits import APPLY, FINAL, PARTIAL, mixes, stages

EXTERN = frozenset({kinds.GEMM, kinds.ATTENTION, kinds.CONVOLUTION, kinds.SORT, kinds.FFT, kinds.OTHER,
                    kinds.COMMUNICATION})  # fmt: skip
FALLBACKS = frozenset({"segment_reduce", "masked_select", "nonzero", "multinomial", "histc", "bincount", "_unique2",
                       "embedding_bag", "_embedding_bag", "masked_scatter", "im2col", "col2im"})  # fmt: skip
"""Inductor calls aten for these; nothing fuses with them."""

INLINED_READS = 4
"""Tensors from which a value is computed again rather than kept (torch._inductor.config.realize_reads_threshold)."""

ROWWISE = frozenset({kinds.REDUCTION, kinds.NORMALISATION, kinds.SOFTMAX, kinds.SCAN})


@dataclass(frozen=True, slots=True)
class Domain:
    """What one kernel iterates over: `rows` results, each of `columns` elements. Pointwise: columns 1.

    axis tells reductions over different axes of one tensor apart; they cannot share a loop.
    """

    rows: int
    columns: int
    axis: str = ""

    @property
    def elements(self) -> int:
        return self.rows * self.columns


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
    while name not in inputs and graph.operation(name).kind == kinds.VIEW:
        if not graph.operation(name).inputs:
            break
        name = graph.operation(name).inputs[0]
    return name


def domain_of(operation: Operation) -> Domain:
    """The iteration space of one operation."""
    written = max((t.elements for t in operation.writes), default=1)
    if operation.kind not in ROWWISE or not operation.reads:
        return Domain(written, 1)
    source = max(operation.reads, key=lambda t: t.elements)
    if kinds.base_name(operation.target) == "nll_loss_forward":
        return Domain(
            operation.reads[-1].elements, 1
        )  # one pick per target; the sum over them is a second, tiny kernel (splits)
    if operation.kind == kinds.NORMALISATION:
        return _normalised(operation, source)
    axes = operation.axes or tuple(range(len(source.shape)))
    columns = math.prod(source.shape[a] for a in axes) if source.shape else 1
    trailing = axes == tuple(range(len(source.shape) - len(axes), len(source.shape)))
    axis = "last" if trailing else "strided " + ",".join(map(str, axes))
    return Domain(source.elements // max(1, columns), max(1, columns), axis)


def _normalised(operation: Operation, source: Tensor) -> Domain:
    rows = [t.elements for t in operation.writes if 0 < t.elements < source.elements]
    columns = source.elements // rows[0] if rows else (source.shape[-1] if source.shape else 1)
    return Domain(max(1, source.elements // max(1, columns)), max(1, columns), "last")


def _compatible(group: Domain, item: Domain) -> Domain | None:
    """The domain of a kernel that does both, or None."""
    if item.columns == 1 and group.columns == 1:
        return group if item.rows == group.rows else None
    if item.columns == 1:
        return group if item.rows in (group.elements, group.rows) else None
    if group.columns == 1:
        return item if group.rows in (item.elements, item.rows) else None
    same = (item.rows, item.columns, item.axis) == (group.rows, group.columns, group.axis)
    return group if same else None


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
        self.ancestors: dict[str, frozenset[str]] = {}

    def run(self) -> tuple[Group, ...]:
        for operation in self.graph.operations:
            above = frozenset().union(*(self.ancestors.get(i, frozenset()) | {i} for i in operation.inputs))
            self.ancestors[operation.name] = above
            if operation.kind != kinds.VIEW and not _free(operation):
                self.place(operation)
        self.merge_siblings()
        return self.ordered()

    def place(self, operation: Operation) -> None:
        extern = operation.kind in EXTERN or kinds.base_name(operation.target) in FALLBACKS
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
            members = {*self.members[candidate], operation.name}
            waits = self.waits(candidate, [operation.name])
            if (merged is None and not inlined) or waits or self.cyclic(members):
                return index
            self.members[candidate].append(operation.name)
            self.domains[candidate] = merged or domain
            self.home[operation.name] = candidate
            return candidate
        self.merge(index, candidate)
        return index

    def shared(self, candidate: int, domain: Domain) -> Domain | None:
        """The iteration space of the kernel with something of `domain` in it, or None."""
        own = self.domains[candidate]
        if self.summed[candidate]:
            return own if (domain.rows, domain.columns) == (own.rows, 1) else None
        if domain.rows == 1 and own.columns > 1 and own.axis == "last" and domain.columns == own.elements:
            return own  # rows first, then over the rows: the row's kernel writes the partial results
        return _compatible(own, domain)

    def waits(self, index: int, names: list[str]) -> bool:
        """One of `names` needs the whole result of a reduction of which the kernel makes partial results only."""
        return any(self.partial[index] & self.ancestors[n] for n in names)

    def inlinable(self, candidate: int, domain: Domain) -> bool:
        """A small pointwise producer (a cast weight, a scale) is computed again inside the larger kernel."""
        own = self.domains[candidate]
        if self.partial[candidate] or self.summed[candidate]:
            return False
        return own.columns == 1 and own.rows < domain.elements and domain.elements % max(1, own.rows) == 0

    def merge(self, into: int, other: int) -> Domain | None:
        if self.extern[into] or self.extern[other] or not self.members[other]:
            return None
        if self.summed[into] or self.summed[other] or {*self.members[into]} & {*self.members[other]}:
            return None
        if self.waits(into, self.members[other]) or self.waits(other, self.members[into]):
            return None
        merged = _compatible(self.domains[into], self.domains[other])
        if merged is None and self.inlinable(other, self.domains[into]):
            merged = self.domains[into]
        if merged is None:
            merged = self.mixed(into, other) or self.mixed(other, into)
        if merged is None or self.cyclic({*self.members[into], *self.members[other]}):
            return None
        for name in self.members[other]:
            if self.home[name] == other:
                self.home[name] = into
        self.members[into].extend(n for n in self.members[other] if n not in self.members[into])
        for marks in (self.partial, self.applied):
            marks[into] |= marks[other]
            marks[other] = set()
        for kernels in self.sequence.values():
            kernels[:] = [into if k == other else k for k in kernels]
        self.members[other] = []
        self.domains[into] = merged
        return merged

    def cyclic(self, members: set[str]) -> bool:
        """Something outside would have to run both after and before the group."""
        for name in members:
            for source in self.graph.operation(name).inputs:
                if source in members or source not in self.ancestors:
                    continue
                blocked = self.ancestors[source] & members
                if blocked and not self.glue(source, members):
                    return True
        return False

    def glue(self, name: str, members: set[str]) -> bool:
        """A view of a member's result: no kernel stands between."""
        operation = self.graph.operation(name)
        if operation.kind != kinds.VIEW and not _free(operation):
            return False
        return all(s in members or s not in self.ancestors or self.glue(s, members) for s in operation.inputs)

    def merge_siblings(self) -> None:
        """Kernels over the same elements that read the same tensor become one (Inductor's horizontal fusion)."""
        for later in range(len(self.members)):
            for earlier in range(later):
                if self.members[later] and self.members[earlier] and self.siblings(earlier, later):
                    self.merge(later, earlier)

    def mixed(self, rows: int, columns: int) -> Domain | None:
        """A row reduction that writes, as it goes, partial results of a column reduction of the same tensor."""
        own, other = self.domains[rows], self.domains[columns]
        if own.axis != "last" or self.partial[rows] or (other.rows, other.columns) != (own.columns, own.rows):
            return None
        reduced = [self.graph.operation(n) for n in self.partial[columns]]
        above = [frozenset().union(*(self.ancestors[n] for n in self.members[i])) for i in (rows, columns)]
        if above[0] & {*self.members[columns]} or above[1] & {*self.members[rows]}:
            return None
        return own if self.split and mixes(reduced, own.rows, own.columns) else None

    def siblings(self, a: int, b: int) -> bool:
        if self.extern[a] or self.extern[b] or self.domains[a].elements != self.domains[b].elements:
            return False
        return bool(self.external_reads(a) & self.external_reads(b))

    def external_reads(self, index: int) -> set[str]:
        own = set(self.members[index])
        names = (source_names(self.graph, self.graph.operation(n)) for n in own - self.summed[index])
        return {s for sources in names for s in sources if s not in own}

    def ordered(self) -> tuple[Group, ...]:
        position = {o.name: i for i, o in enumerate(self.graph.operations)}
        live = [i for i, m in enumerate(self.members) if m]
        done: list[int] = []
        while len(done) < len(live):
            waiting = [i for i in live if i not in done]
            ready = [i for i in waiting if not self.needs(i) & set(waiting) - {i}] or waiting[:1]
            done.append(min(ready, key=lambda i: min(position[n] for n in self.members[i])))
        return tuple(self.group(i, position) for i in done)

    def needs(self, index: int) -> set[int]:
        names = frozenset().union(*(self.ancestors[n] for n in self.members[index]))
        found = {self.home[n] for n in names if n in self.home}
        for kernels in (self.sequence.get(n, []) for n in self.members[index]):
            found |= set(kernels[: kernels.index(index)]) if index in kernels else set()
        return found

    def recomputed(self, index: int) -> set[str]:
        """What the kernel computes again instead of reading it: arithmetic in front of a split reduction."""
        if self.extern[index]:
            return set()
        found: set[str] = set()
        waiting = [n for n in self.external_reads(index) if n in self.home]
        for name in waiting:
            chain = self.chain(name)
            if chain is not None and name not in self.graph.outputs:
                found |= chain
        return found

    def chain(self, name: str) -> set[str] | None:
        """The pointwise operations that make up a value in a kernel of partial results; None where it is kept."""
        place = self.home[name]
        if not self.partial[place]:
            return None
        chain, read, waiting = set[str](), set[str](), [name]
        while waiting:
            current = waiting.pop()
            if self.graph.operation(current).kind not in (kinds.POINTWISE, kinds.COPY):
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
    return kinds.base_name(operation.target) in ("empty", "new_empty", "empty_like", "empty_strided", "constant")
