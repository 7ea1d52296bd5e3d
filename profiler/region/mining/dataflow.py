"""A part of a trace as data flow: its statements, inputs and outputs, by the edges between the step's operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from profiler.region.mining.execution_edges import Edges, Slot, Source, slot_of
from profiler.region.mining.output_shapes import Call, call
from profiler.region.mining.partition import Part
from profiler.region.mining.render import IDENTITIES
from profiler.region.mining.texts.call_arguments import UnwritableError
from profiler.region.mining.unit_letters import ROTATION, letter
from profiler.region.mining.units import Sig, Unit
from profiler.trace.model import NONE

TYPED = frozenset({"to", "type_as"})
"""These read only the dtype of their second tensor."""
SIZED = frozenset({"expand_as", "view_as", "reshape_as"})
"""These read only the sizes of their second operand."""
VIEWS_IN = frozenset("LMX")
"""Letters of what a transpose of an outer tensor is written with: `x @ w.t()`."""
MANY = frozenset({"routing", "pointwise"})
"""Kinds of regions by hand that may give several tensors; so does a rotation of queries and keys in one."""
FIRST_ONLY = frozenset(
    {"layer_norm", "native_layer_norm", "batch_norm", "native_dropout", "rms_norm", "embedding_bag", "nll_loss_forward"}
)
"""Operations of whose outputs only the first is a region's."""
INDEXED = frozenset("IW")
"""Letters of what reads an index: `index.view(-1, 1).expand_as(x)` is written from the index on."""
SPREADING = frozenset({"view", "unsqueeze", "expand", "expand_as"})
LONGEST = 64
"""Views in a row that are followed."""


@dataclass(slots=True, eq=False)
class Value:
    """A tensor: an input of the region (producer None) or output `index` of a statement."""

    sig: Sig
    producer: Statement | None = None
    index: int = 0
    readers: int = 0
    role: str = ""
    below: int | None = None
    offsets: int | None = None


@dataclass(slots=True, eq=False)
class Statement:
    """One operation with the value behind every tensor argument. own: one of the region's units, else a view.

    guessed: which of several equal tensors it reads, where nothing tells.
    """

    unit: Unit
    letter: str
    call: Call
    operands: dict[str, list[Value]]
    own: bool
    outputs: list[Value] = field(default_factory=list)
    guessed: str = ""


@dataclass(slots=True)
class Flow:
    """The statements of a part in order and its inputs in order of first use."""

    statements: list[Statement]
    inputs: list[Value]
    outputs: list[Value]


def call_of(unit: Unit) -> Call:
    """What the unit does. Raises UnwritableError where shapes are missing or its outputs are not known."""
    if not unit.args and unit.aten:
        raise UnwritableError("shapes were not recorded: profile with record_shapes=True")
    if not unit.aten:
        raise UnwritableError(f"{unit.name} is a custom operation: the trace does not say what it computes")
    operation = call(unit.written or unit.name, unit.args, "" if unit.written else unit.overload)
    if operation is None:
        raise UnwritableError(f"no form of {unit.name} takes the recorded arguments")
    if not operation.outputs_known:
        raise UnwritableError(f"what {unit.name} gives is not known from the recorded arguments")
    return operation


@dataclass(frozen=True, slots=True)
class Graph:
    """A step's units by op, where their operands come from, and who reads what they make."""

    units: Mapping[int, Unit]
    edges: Edges
    readers: Mapping[int, Sequence[tuple[int, int]]]  # op -> (output, reading op)

    def readers_of(self, unit: Unit) -> list[int]:
        """Ops of the units that read what the unit makes, in order."""
        return sorted({op for _, op in self.readers.get(unit.op, ())})

    def sources_of(self, unit: Unit) -> list[int]:
        """Ops of the units that made the unit's operands."""
        slots = (
            (unit.op, place, member)
            for place, argument in enumerate(unit.args)
            for member in range(max(1, len(argument.sigs)))
        )
        return [self.edges.sources[slot][0] for slot in slots if slot in self.edges.sources]


def graph_of(units: Sequence[Unit], edges: Edges) -> Graph:
    """The graph of a step's units."""
    readers: dict[int, list[tuple[int, int]]] = {}
    for (op, _, _), source in edges.sources.items():
        readers.setdefault(source[0], []).append((source[1], op))
    return Graph({u.op: u for u in units}, edges, readers)


def op_written_with(view: Unit, graph: Graph, has: Callable[[int], bool]) -> int:
    """The op of the unit that a view is written with: what reads it, through other views; else what made what it views.

    NONE where the edges lead to no unit that `has` accepts.
    """
    for towards in (graph.readers_of, graph.sources_of):
        pending, visited = [view.op], {view.op}
        while pending:
            op = pending.pop(0)
            if has(op):
                return op
            unit = graph.units.get(op)
            further = [] if unit is None or unit.kernels else [o for o in towards(unit) if o not in visited]
            visited.update(further)
            pending += further
    return NONE


def is_bound(part: Part, graph: Graph) -> bool:
    """Every tensor operand of the part has an edge or is known to come from outside."""
    edges = graph.edges
    slots = (
        slot_of(unit, place, member)
        for unit in part.units
        for place, argument in enumerate(unit.args)
        if argument.kind in ("tensor", "tensors")
        for member in range(len(argument.sigs))
    )
    return all(slot in edges.sources or slot in edges.outside for slot in slots)


def flow(part: Part, graph: Graph) -> Flow:
    """The part's flow. Raises UnwritableError where shapes are missing or what an operation gives is not known."""
    return _Bound(part, graph).flow()


def identity(flow: Flow) -> tuple[object, ...]:
    """Equal for flows that are written alike: the same operations on the same arguments, bound alike."""
    number = {id(v): i for i, v in enumerate([*flow.inputs, *(o for s in flow.statements for o in s.outputs)])}
    return (
        tuple((v.sig, v.below, v.offsets) for v in flow.inputs),
        tuple(
            (s.unit.name, s.unit.args, s.unit.written, s.own, s.guessed,
             tuple(tuple(number[id(v)] for v in vs) for vs in s.operands.values()))
            for s in flow.statements
        ),
        tuple(number[id(v)] for v in flow.outputs),
    )  # fmt: skip


class _Bound:
    def __init__(self, part: Part, graph: Graph) -> None:
        self.part = part
        self.graph = graph
        self.units = graph.units
        self.edges = graph.edges
        self.own_ops = {u.op for u in part.units}
        self.statements: list[Statement] = []
        self.statement_of: dict[int, Statement] = {}
        self.inputs: dict[object, Value] = {}

    def flow(self) -> Flow:
        for unit in self.part.units:
            operation = call_of(unit)
            statement = Statement(unit, letter(unit), operation, {}, own=True)
            for place, name in enumerate(operation.names):
                argument = operation.arguments[name]
                if argument.kind in ("tensor", "tensors") and (unit.base not in TYPED or name != "other"):
                    statement.operands[name] = [
                        self._operand(statement, slot_of(unit, place, member), name, sig)
                        for member, sig in enumerate(argument.sigs)
                        if sig.dims != (0,)  # a cache that is still empty is concatenated too
                    ]
            if not self.edges.exact:
                _own_first(statement)
            self._emit(statement)
        return self._finish()

    def _operand(self, reader: Statement, slot: Slot, name: str, sig: Sig) -> Value:
        source = self.edges.sources.get(slot)
        if source is None:
            return self._input(self.edges.outside.get(slot, slot), reader, name, sig)
        if source[0] in self.statement_of:
            return self.statement_of[source[0]].outputs[source[1]]
        view = self.units.get(source[0])
        if view is not None and self._leads_in(view, reader.letter):
            return self._view(view, source[1], reader, name)
        return self._input(source, reader, name, sig)

    def _leads_in(self, unit: Unit, letter_: str) -> bool:
        """A view of a value or input of the part; or a transpose of an outer tensor that a product reads."""
        if not _is_view(unit) or not _outputs_known(unit):
            return False
        at = unit
        for _ in range(LONGEST):
            source = self.edges.sources.get((at.op, 0, 0))
            key = source or self.edges.outside.get((at.op, 0, 0))
            if key in self.inputs and self.inputs[key].sig.dims == at.args[0].sigs[0].dims:
                return True
            if source is None:
                break
            if source[0] in self.own_ops:
                return source[0] in self.statement_of
            before = self.units.get(source[0])
            if before is None or not _is_view(before) or not _outputs_known(before):
                break
            at = before
        index = letter_ in INDEXED and unit.base in SPREADING and _dtype(unit).startswith("i")
        return index or (letter_ in VIEWS_IN and swaps_last(unit))

    def _made_inside(self, op: int) -> bool:
        """By one of the part's units, or a view of what one of them made."""
        for _ in range(LONGEST):
            if op in self.own_ops:
                return True
            unit, source = self.units.get(op), self.edges.sources.get((op, 0, 0))
            if unit is None or source is None or not _is_view(unit):
                return False
            op = source[0]
        return False

    def _view(self, unit: Unit, index: int, reader: Statement, read_as: str) -> Value:
        operation = call_of(unit)
        statement = Statement(unit, letter(unit), operation, {}, own=False)
        for place, name in enumerate(operation.names):
            argument = operation.arguments[name]
            if argument.kind == "tensor":
                role = "other" if swaps_last(unit) else read_as if unit.base in SPREADING and not place else name
                statement.operands[name] = [self._operand(reader, (unit.op, place, 0), role, argument.sigs[0])]
        source = statement.operands[operation.names[0]][0]
        if unit.base in IDENTITIES and operation.outputs[0] == source.sig:
            return source
        self._emit(statement)
        return statement.outputs[index]

    def _input(self, key: object, reader: Statement, name: str, sig: Sig) -> Value:
        below = index_range(reader, name) if name in reader.call.arguments else None
        if key in self.inputs and self.inputs[key].sig.dims == sig.dims:
            self.inputs[key].below = self.inputs[key].below or below
            return self.inputs[key]
        if not sig.dtype:
            raise UnwritableError(f"the trace does not record the dtypes of the list that {reader.unit.base} reads")
        value = Value(sig, role=name, below=below)
        if name == "offs" and "self" in reader.call.arguments:
            value.offsets = reader.call.arguments["self"].sigs[0].dims[0]
        if name == "offsets" and reader.unit.base == "embedding_bag":
            value.offsets = reader.call.arguments["indices"].sigs[0].elements
        self.inputs[key] = value
        return value

    def _emit(self, statement: Statement) -> None:
        guess = self.edges.guesses.get(statement.unit.op)
        if guess is not None and any(self._made_inside(op) for op in guess.makers):
            statement.guessed = guess.text
        for at, values in enumerate(statement.operands.values()):
            for value in values:
                value.readers += 0 if statement.unit.base in SIZED and at else 1
        statement.outputs = [Value(s, statement, i) for i, s in enumerate(statement.call.outputs)]
        if statement.unit.base in FIRST_ONLY:
            statement.outputs = statement.outputs[:1]
        self.statements.append(statement)
        self.statement_of[statement.unit.op] = statement

    def _finish(self) -> Flow:
        """Outputs are what the part's units made and a forward unit outside reads, or no unit."""
        escaping = self._escaping() if self.edges.exact else set()
        own_values = [v for s in self.statements if s.own for v in s.outputs]
        outputs = [
            v for v in own_values
            if v.producer is not None and ((v.producer.unit.op, v.index) in escaping or not v.readers)
        ] or own_values[-1:]  # fmt: skip
        several = self.part.kind in MANY or ROTATION in self.part.letters
        if not self.edges.exact and self.part.by_hand and not several:
            outputs = outputs[-1:]
        kept_ids: set[int] = set()
        pending = list(outputs)
        while pending:
            producer = pending.pop().producer
            if producer is not None and id(producer) not in kept_ids:
                kept_ids.add(id(producer))
                pending += [v for vs in producer.operands.values() for v in vs]
        statements = [s for s in self.statements if id(s) in kept_ids]
        used: dict[int, Value] = {}
        for statement in statements:
            if statement.own:
                inputs_of(statement, used)
        return Flow(statements, list(used.values()), outputs)

    def _escaping(self) -> set[Source]:
        """Values that forward units outside the part read: with a kernel, or through views with one."""
        own_outputs = ((s.unit.op, i) for s in self.statements if s.own for i in range(len(s.outputs)))
        return {source for source in own_outputs if self._is_read(*source)}

    def _is_read(self, op: int, index: int) -> bool:
        pending = [r for i, r in self.graph.readers.get(op, ()) if i == index]
        visited = set(pending)
        while pending:
            reader = pending.pop()
            unit = self.units.get(reader)
            if unit is None or unit.backward or reader in self.own_ops:
                continue
            if unit.kernels:
                return True
            further = {r for _, r in self.graph.readers.get(reader, ())} - visited
            visited |= further
            pending += further
        return False


def _own_first(statement: Statement) -> None:
    """`x + y` of equal sizes with x from outside as `y + x`: which is which was inferred, so one order is as good."""
    one, two = (statement.operands.get(n, []) for n in ("self", "other"))
    if statement.unit.base not in ("add", "mul") or len(one) != 1 or len(two) != 1:
        return
    alpha = statement.call.arguments.get("alpha")
    unscaled = alpha is None or alpha.value in (1, 1.0, None)
    if unscaled and one[0].producer is None and two[0].producer is not None and one[0].sig == two[0].sig:
        statement.operands = {**statement.operands, "self": two, "other": one}


def _is_view(unit: Unit) -> bool:
    tensors = [i for i, a in enumerate(unit.args) if a.kind == "tensor"]
    return not unit.kernels and unit.aten and tensors[:1] == [0]


def _dtype(unit: Unit) -> str:
    """The dtype of a view."""
    return unit.args[0].sigs[0].dtype


def _outputs_known(unit: Unit) -> bool:
    operation = call(unit.written or unit.name, unit.args, "" if unit.written else unit.overload)
    return operation is not None and operation.outputs_known and bool(operation.outputs)


def inputs_of(statement: Statement, used: dict[int, Value]) -> None:
    """Adds the inputs that a statement reads, in the order of its arguments, through views."""
    for name in statement.call.names:
        for value in statement.operands.get(name, ()):
            if value.producer is None:
                used.setdefault(id(value), value)
            elif not value.producer.own:
                inputs_of(value.producer, used)


def swaps_last(unit: Unit) -> bool:
    """The unit transposes the last two dimensions."""
    if unit.base in ("t", "numpy_T", "adjoint", "mT"):
        return True
    rank = len(unit.args[0].sigs[0].dims)
    if unit.base != "transpose" or len(unit.args) < 3 or rank < 2:
        return False
    dims = [a.value for a in unit.args[1:3]]
    return all(isinstance(d, int) for d in dims) and {d % rank for d in dims if isinstance(d, int)} == {
        rank - 2,
        rank - 1,
    }


def index_range(statement: Statement, name: str) -> int | None:
    """The range of an index input: rows of the table it selects from, bins that it is counted in."""
    args, base = statement.call.arguments, statement.unit.base
    if base in ("embedding", "embedding_bag") and name == "indices":
        return args["weight"].sigs[0].dims[0]
    if base == "bincount" and name == "self":  # as many as came out in the trace
        return statement.call.outputs[0].dims[0] if statement.call.outputs else None
    if name == "index" and "self" in args and args["self"].sigs:
        dim = args["dim"].value if "dim" in args else 0
        dims = args["self"].sigs[0].dims
        return dims[dim] if isinstance(dim, int) and -len(dims) <= dim < len(dims) else None
    if name == "target" and args["self"].sigs and len(args["self"].sigs[0].dims) > 1:
        return args["self"].sigs[0].dims[1]
    return None
