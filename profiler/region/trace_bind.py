"""A part's operands bound by edges that are known: statements, inputs and outputs of its region."""

from __future__ import annotations

from collections.abc import Mapping

from profiler.region.trace_cut import Part
from profiler.region.trace_join import Edges, Slot
from profiler.region.trace_ops import Sig, Unit
from profiler.region.trace_patterns import letter
from profiler.region.trace_render import IDENTITIES, UnwritableError
from profiler.region.trace_shapes import Call, call
from profiler.region.trace_values import Flow, Statement, Value, index_range, inputs_of, swaps_last

VIEWS_IN = frozenset("LMX")
"""Letters of what a transpose of an outer tensor is written with: `x @ w.t()`."""
FIRST_ONLY = frozenset({"layer_norm", "native_layer_norm", "batch_norm", "native_dropout", "rms_norm"})
"""Operations of whose outputs only the first is a region's."""
SIZED = frozenset({"expand_as", "view_as", "reshape_as"})
"""These read only the sizes of their second operand."""
LONGEST = 64
"""Views in a row that are followed."""


def called(unit: Unit) -> Call:
    """What the unit does. Raises UnwritableError where shapes are missing or its outputs are not known."""
    if not unit.args and unit.aten:
        raise UnwritableError("shapes were not recorded: profile with record_shapes=True")
    if not unit.aten:
        raise UnwritableError(f"{unit.name} is a custom operation: the trace does not say what it computes")
    found = call(unit.written or unit.name, unit.args, "" if unit.written else unit.overload)
    if found is None:
        raise UnwritableError(f"no form of {unit.name} takes the recorded arguments")
    if not found.known:
        raise UnwritableError(f"what {unit.name} gives is not known from the recorded arguments")
    return found


def is_bound(part: Part, edges: Edges) -> bool:
    """Every tensor operand of the part has an edge or is known to come from outside."""
    return all(
        _slot(unit, place, member) in edges.sources or _slot(unit, place, member) in edges.outside
        for unit in part.units
        for place, argument in enumerate(unit.args)
        if argument.kind in ("tensor", "tensors")
        for member in range(len(argument.sigs))
    )


def bind(part: Part, units: Mapping[int, Unit], edges: Edges) -> Flow:
    """The part's flow. units: those of the step by op. Raises UnwritableError as `called` does."""
    return _Bound(part, units, edges).flow()


def _slot(unit: Unit, place: int, member: int) -> Slot:
    """The operand's place as the operation was recorded: `x[i]` is written as index_select(x, dim, i)."""
    if unit.written in ("index_select", "index_copy", "index_add"):
        dim = unit.args[1].value
        recorded = {2: (1, dim if isinstance(dim, int) else 0), 3: (2, 0)}
        return (unit.op, *recorded.get(place, (place, member)))
    return (unit.op, place, member)


class _Bound:
    def __init__(self, part: Part, units: Mapping[int, Unit], edges: Edges) -> None:
        self.part = part
        self.units = units
        self.edges = edges
        self.own = {u.op for u in part.units}
        self.statements: list[Statement] = []
        self.made: dict[int, Statement] = {}
        self.inputs: dict[object, Value] = {}

    def flow(self) -> Flow:
        for unit in self.part.units:
            found = called(unit)
            statement = Statement(unit, letter(unit), found, {}, own=True)
            for place, name in enumerate(found.names):
                argument = found.arguments[name]
                if argument.kind in ("tensor", "tensors"):
                    statement.operands[name] = [
                        self._operand(statement, _slot(unit, place, member), name, sig)
                        for member, sig in enumerate(argument.sigs)
                        if sig.dims != (0,)  # a cache that is still empty is concatenated too
                    ]
            self._emit(statement)
        return self._finish()

    def _operand(self, reader: Statement, slot: Slot, name: str, sig: Sig) -> Value:
        source = self.edges.sources.get(slot)
        if source is None:
            return self._input(self.edges.outside.get(slot, slot), reader, name, sig)
        if source[0] in self.made:
            return self.made[source[0]].outputs[source[1]]
        view = self.units.get(source[0])
        if view is not None and self._leads_in(view, reader.letter):
            return self._view(view, source[1])
        return self._input(source, reader, name, sig)

    def _leads_in(self, unit: Unit, letter_: str) -> bool:
        """A view of one of the part's values; or a transpose of an outer tensor that a product reads."""
        if not _is_view(unit) or not _known(unit):
            return False
        at: Unit | None = unit
        for _ in range(LONGEST):
            source = self.edges.sources.get((at.op, 0, 0)) if at is not None else None
            if source is None:
                break
            if source[0] in self.own:
                return source[0] in self.made
            at = self.units.get(source[0])
            if at is None or not _is_view(at) or not _known(at):
                break
        return letter_ in VIEWS_IN and swaps_last(unit)

    def _view(self, unit: Unit, index: int) -> Value:
        found = called(unit)
        statement = Statement(unit, letter(unit), found, {}, own=False)
        for place, name in enumerate(found.names):
            argument = found.arguments[name]
            if argument.kind == "tensor":
                reading = Statement(unit, letter(unit), found, {}, own=False)
                role = "other" if swaps_last(unit) else name
                statement.operands[name] = [self._operand(reading, (unit.op, place, 0), role, argument.sigs[0])]
        source = statement.operands[found.names[0]][0]
        if unit.base in IDENTITIES and found.outputs[0] == source.sig:
            return source
        self._emit(statement)
        return statement.outputs[index]

    def _input(self, key: object, reader: Statement, name: str, sig: Sig) -> Value:
        if key in self.inputs and self.inputs[key].sig.dims == sig.dims:
            return self.inputs[key]
        if not sig.dtype:
            raise UnwritableError(f"the trace does not record the dtypes of the list that {reader.unit.base} reads")
        value = Value(sig, role=name, below=index_range(reader, name) if name in reader.call.arguments else None)
        if name == "offs":
            value.offsets = reader.call.arguments["self"].sigs[0].dims[0]
        self.inputs[key] = value
        return value

    def _emit(self, statement: Statement) -> None:
        for at, values in enumerate(statement.operands.values()):
            for value in values:
                value.readers += 0 if statement.unit.base in SIZED and at else 1
        statement.outputs = [Value(s, statement, i) for i, s in enumerate(statement.call.outputs)]
        if statement.unit.base in FIRST_ONLY:
            statement.outputs = statement.outputs[:1]
        self.statements.append(statement)
        self.made[statement.unit.op] = statement

    def _finish(self) -> Flow:
        """Outputs are what the part's units made and a forward unit outside reads, or nobody."""
        escaping = {
            source for (op, _, _), source in self.edges.sources.items()
            if op not in self.made and op in self.units and not self.units[op].backward
        }  # fmt: skip
        own = [v for s in self.statements if s.own for v in s.outputs]
        outputs = [
            v for v in own
            if v.made is not None and ((v.made.unit.op, v.index) in escaping or not v.readers)
        ] or own[-1:]  # fmt: skip
        used: dict[int, Value] = {}
        for statement in self.statements:
            if statement.own:
                inputs_of(statement, used)
        return Flow(self.statements, list(used.values()), outputs)


def _is_view(unit: Unit) -> bool:
    tensors = [i for i, a in enumerate(unit.args) if a.kind == "tensor"]
    return not unit.kernels and unit.aten and tensors[:1] == [0]


def _known(unit: Unit) -> bool:
    found = call(unit.written or unit.name, unit.args, "" if unit.written else unit.overload)
    return found is not None and found.known and bool(found.outputs)
