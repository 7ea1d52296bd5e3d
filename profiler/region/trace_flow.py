"""Which operand of a part is which value: data flow, which a trace does not record, inferred within one region.

The rule is "the most recent output that looks like the operand (dtype, sizes, strides) and that nothing has read yet".
Where it is known to fail, what people write decides: `x * rsqrt(mean(x * x))` reads x again; an operand of equal sizes
with one value at hand binds that one to the chain, and the other is an input of the region.
"""

from __future__ import annotations

from collections.abc import Sequence

from profiler.region.trace_cut import Part
from profiler.region.trace_ops import Sig, Unit
from profiler.region.trace_patterns import letter
from profiler.region.trace_render import IDENTITIES, UnwritableError
from profiler.region.trace_shapes import Call, alike, call
from profiler.region.trace_values import Flow, Statement, Value, index_range, inputs_of, swaps_last

BEFORE = 12
"""How many operations before a part are searched for the views that lead into it."""

REREADING = frozenset("xdVsX")
REDUCING = frozenset("mvb")
ORDERED = frozenset("sd")
MANY = frozenset({"routing", "pointwise"})
"""Kinds of hand-written regions that may give several tensors."""
MAKERS = {("layer_norm", "s"): "m", ("layer_norm", "P"): "v"}
"""(kind, letter) -> what made the operand that it reads: x minus the mean, the variance plus eps."""
FILLING = frozenset({"index_copy", "scatter"})
"""Operations whose first operand is a buffer made for them: their source is the chain's value."""


def flow(part: Part, thread: Sequence[Unit], position: dict[int, int]) -> Flow:
    """Binds the part's operands. Raises UnwritableError where shapes are missing or an operation's outputs are unknown.

    thread: all forward units of the thread in order; position: of each unit's op in it.
    """
    return _Binder(part).bind(thread, position)


class _Binder:
    def __init__(self, part: Part) -> None:
        self.part = part
        self.own = {u.op for u in part.units}
        self.values: list[Value] = []  # known so far, in order of production
        self.inputs: list[Value] = []
        self.statements: list[Statement] = []
        self.roles: dict[str, Value] = {}  # of an attention by hand: what stands for q, k, k transposed and v so far
        self.waiting: list[Statement] = []  # transposes of something outside, used if a product reads them

    def bind(self, thread: Sequence[Unit], position: dict[int, int]) -> Flow:
        first, last = position[self.part.units[0].op], position[self.part.units[-1].op]
        for unit in thread[max(0, first - BEFORE) : last + 1]:
            if unit.op in self.own:
                self._own(unit)
            elif not unit.kernels and unit.args:
                self._view(unit, leading=position[unit.op] < first)
        return self._finish()

    def _call(self, unit: Unit) -> Call:
        if not unit.args and unit.aten:
            raise UnwritableError("shapes were not recorded: profile with record_shapes=True")
        if not unit.aten:
            raise UnwritableError(f"{unit.name} is a custom operation: the trace does not say what it computes")
        found = call(unit.written or unit.name, unit.args)
        if found is None:
            raise UnwritableError(f"no form of {unit.name} takes the recorded arguments")
        if not found.known:
            raise UnwritableError(f"what {unit.name} gives is not known from the recorded arguments")
        return found

    def _own(self, unit: Unit) -> None:
        made = self._call(unit)
        symbol = letter(unit)
        statement = Statement(unit, symbol, made, {}, own=True)
        names = [n for n, a in made.arguments.items() if a.kind in ("tensor", "tensors")]
        if self.part.kind == "attention" and self.part.by_hand and self._attention(statement, names):
            self._emit(statement)
            if symbol in "tX":
                self._play(statement)
            return
        if self._square(symbol, unit, made, names):
            value = self._one(made.arguments[names[0]].sigs[0], statement, names[0])
            statement.operands = {n: [value] for n in names}
        elif len(names) == 2 and all(made.arguments[n].kind == "tensor" for n in names):
            self._two(statement, names)
        else:
            taken: list[Value] = []
            for name in sorted(names, key=lambda n: n == "self" and unit.base in FILLING):
                sigs = made.arguments[name].sigs
                chosen = []
                for sig in sigs:
                    if sig.dims != (0,):  # a cache that is still empty is concatenated too
                        chosen.append(self._one(sig, statement, name, taken))
                        taken.append(chosen[-1])
                statement.operands[name] = chosen
            statement.operands = {n: statement.operands[n] for n in names}
        self._emit(statement)

    def _attention(self, statement: Statement, names: list[str]) -> bool:
        """q, k and v look alike: casts come in this order, factors on q first, then on k transposed."""
        products = sum(s.letter == "M" for s in self.statements)
        sigs = [statement.call.arguments[n].sigs[0] for n in names]
        if statement.letter == "M" and len(names) == 2 and products < 2:
            roles = ("q", "kT") if products == 0 else ("", "v")
            for name, role, sig in zip(names, roles, sigs, strict=True):
                known = self.roles.get(role)
                if known is not None and alike(sig, known.sig):
                    statement.operands[name] = [known]
                elif products == 0:
                    found = self._transposed(sig, statement) if role == "kT" else None
                    statement.operands[name] = [found or self._input(sig, statement, name)]
                else:
                    found = None if role else self._fresh(sig) or self._latest(sig)
                    statement.operands[name] = [found or self._input(sig, statement, name)]
            return True
        if products or statement.letter not in "tX" or len(names) != 1:
            return False
        for role in ("q", "kT") if statement.letter == "X" else ():
            known = self.roles.get(role)
            if known is not None and alike(sigs[0], known.sig) and (known.made is None or known.made.letter != "X"):
                statement.operands = {names[0]: [known]}
                return True
        waiting = self._transposed(sigs[0], statement) if "q" in self.roles else None
        statement.operands = {names[0]: [waiting or self._input(sigs[0], statement, names[0])]}
        return True

    def _play(self, statement: Statement) -> None:
        """The role of what a cast or a factor before the first product made."""
        source = next(iter(statement.operands.values()))[0]
        role = next((r for r, v in self.roles.items() if v is source), None)
        if role is None and source.made is not None and not source.made.own:
            role = "kT"
        self.roles[role or next((r for r in "qkv" if r not in self.roles), "v")] = statement.outputs[0]

    def _square(self, symbol: str, unit: Unit, made: Call, names: list[str]) -> bool:
        """`x * x` before a mean."""
        if symbol != "x" or self.part.kind not in ("rms_norm", "layer_norm") or len(names) != 2:
            return False
        after = self.part.units.index(unit) + 1
        followed = after < len(self.part.units) and self.part.letters[after] == "m"
        return followed and made.arguments[names[0]].sigs == made.arguments[names[1]].sigs

    def _two(self, statement: Statement, names: list[str]) -> None:
        """Two tensor operands: the chain's value, and another of the chain, an earlier one, or an input."""
        one, two = (statement.call.arguments[n].sigs[0] for n in names)
        if self.part.kind == "gelu_tanh" and statement.letter == "a":  # x + 0.044715 * x ** 3
            root = self._root(one) or self._input(one, statement, names[0])
            other = self._fresh(two, avoid=[root]) or self._input(two, statement, names[1])
            statement.operands = {names[0]: [root], names[1]: [other]}
            return
        if not (alike(one, two) or alike(two, one)):
            values: dict[str, Value] = {}
            small_first = sorted(names, key=lambda n: statement.call.arguments[n].sigs[0].elements)
            for name in small_first:
                sig = statement.call.arguments[name].sigs[0]
                found = self._fresh(sig, maker=MAKERS.get((self.part.kind, statement.letter), ""))
                if found is None and values and statement.letter in REREADING:
                    found = self._reread(sig, next(iter(values.values())))
                values[name] = found or self._one(sig, statement, name)
            statement.operands = {n: [values[n]] for n in names}
            return
        fresh = [v for v in self.values if v.made is not None and not v.readers and alike(one, v.sig)][-2:]
        if len(fresh) == 2:
            statement.operands = {n: [v] for n, v in zip(names, fresh, strict=True)}
        elif not fresh:
            first = self._one(one, statement, names[0])
            statement.operands = {names[0]: [first], names[1]: [self._input(two, statement, names[1])]}
        elif self.part.title == "QuickGELU by hand":
            root = self._root(two) or self._input(two, statement, names[0])
            statement.operands = {names[0]: [root], names[1]: fresh}
        else:
            read = [v for v in self.values if v.made is not None and v.readers and alike(one, v.sig)]
            if statement.letter in ORDERED and read:
                statement.operands = {names[0]: [read[-1]], names[1]: fresh}
            else:
                statement.operands = {names[0]: fresh, names[1]: [self._input(two, statement, names[1])]}

    def _one(self, sig: Sig, statement: Statement, name: str, taken: Sequence[Value] = ()) -> Value:
        """One operand: unread value, waiting transpose, the region's root where it is read again, else an input."""
        if self.part.kind == "gelu_tanh" and statement.letter in "pt":
            root = self._root(sig)
            if root is not None:
                return root
        pair = {"sin": "cos", "cos": "sin"}.get(statement.unit.base)
        for earlier in self.statements if pair else ():
            if earlier.unit.base == pair and alike(sig, earlier.operands["self"][0].sig):
                return earlier.operands["self"][0]
        maker = MAKERS.get((self.part.kind, statement.letter), "")
        found = self._fresh(sig, taken, maker) or self._transposed(sig, statement)
        if found is not None:
            return found
        again = [v for v in self.values if alike(sig, v.sig) and v not in taken]
        if again and self._reads_again(sig, statement):
            return again[-1]
        return self._input(sig, statement, name)

    def _reads_again(self, sig: Sig, statement: Statement) -> bool:
        """Whether an operation that finds nothing unread takes a value again, rather than another input."""
        if len(sig.dims) < 2:
            return sig.dtype.startswith("i") and statement.letter in "IW"  # one index for several gathers
        return statement.letter in REDUCING | set("tWp") or self.part.kind in ("rms_norm", "layer_norm")

    def _fresh(self, sig: Sig, avoid: Sequence[Value] = (), maker: str = "") -> Value | None:
        """The latest value that looks like sig and that nothing read; one that `maker` made, where there is one."""
        found = [
            v for v in reversed(self.values)
            if v.made is not None and not v.readers and v not in avoid and alike(sig, v.sig)
        ]  # fmt: skip
        return next((v for v in found if v.made is not None and v.made.letter == maker), found[0] if found else None)

    def _latest(self, sig: Sig) -> Value | None:
        return next((v for v in reversed(self.values) if v.made is not None and alike(sig, v.sig)), None)

    def _root(self, sig: Sig) -> Value | None:
        return next((v for v in self.inputs if alike(sig, v.sig)), None)

    def _reread(self, sig: Sig, small: Value) -> Value | None:
        """What `small` was reduced from: x of `x * rsqrt(mean(x ** 2))`, e of `e / e.sum()`, x of `x - x.amax()`."""
        at: Value | None = small
        while at is not None and at.made is not None and at.made.letter not in REDUCING:
            operands = [v for vs in at.made.operands.values() for v in vs]
            at = operands[0] if operands else None
        if at is None or at.made is None:
            return None
        source = next(iter(at.made.operands.values()))[0]
        for _ in range(3):
            if alike(sig, source.sig) and (source.made is None or source.made.letter not in "px"):
                return source
            if source.made is None:
                break
            source = next(iter(source.made.operands.values()))[0]
        return source if alike(sig, source.sig) else None

    def _transposed(self, sig: Sig, statement: Statement) -> Value | None:
        if statement.letter not in "LMX":
            return None
        for waiting in reversed(self.waiting):
            if alike(sig, waiting.outputs[0].sig) and not waiting.outputs[0].readers:
                self.waiting.remove(waiting)
                source = next(iter(waiting.call.arguments.items()))
                weight = statement.call.names[-1] if "other" not in statement.call.names else "other"
                waiting.operands = {source[0]: [self._input(source[1].sigs[0], waiting, weight)]}
                self._emit(waiting)
                return waiting.outputs[0]
        return None

    def _input(self, sig: Sig, statement: Statement, name: str) -> Value:
        value = Value(sig)
        value.role = name
        value.below = index_range(statement, name)
        if name == "offs":
            value.offsets = statement.call.arguments["self"].sigs[0].dims[0]
        if not sig.dtype:
            raise UnwritableError(f"the trace does not record the dtypes of the list that {statement.unit.base} reads")
        self.inputs.append(value)
        self.values.append(value)
        return value

    def _view(self, unit: Unit, leading: bool) -> None:
        """A view between: of a value at hand; or a transpose of something outside, kept in case it is read."""
        tensors = [(i, a) for i, a in enumerate(unit.args) if a.kind == "tensor"]
        if not tensors or tensors[0][0] != 0:
            return
        made = call(unit.written or unit.name, unit.args)
        if made is None or not made.known or not made.outputs:
            return
        sig = tensors[0][1].sigs[0]
        statement = Statement(unit, letter(unit), made, {}, own=False)
        source = self._root(sig) if self.part.kind == "rope" else self._fresh(sig)
        key = self.part.by_hand and self.part.kind == "attention" and swaps_last(unit)
        if key and not any(s.letter == "M" for s in self.statements):
            source = self.roles.get("k")
            leading = source is None or not alike(sig, source.sig)
        source = source or next((v for v in reversed(self.values) if alike(sig, v.sig)), None)
        if source is None or leading:
            if swaps_last(unit):
                statement.outputs = [Value(s, statement, i) for i, s in enumerate(made.outputs)]
                self.waiting.append(statement)
            return
        if len(tensors) > 1:
            other = next((v for v in reversed(self.values) if alike(tensors[1][1].sigs[0], v.sig)), None)
            if other is None:
                return
            statement.operands[made.names[tensors[1][0]]] = [other]
        statement.operands = {made.names[0]: [source], **statement.operands}
        if unit.base in IDENTITIES and made.outputs[0] == sig:
            return
        self._emit(statement)
        if key and source is self.roles.get("k"):
            self.roles["kT"] = statement.outputs[0]

    def _emit(self, statement: Statement) -> None:
        sized = statement.unit.base in ("expand_as", "view_as", "reshape_as")  # these read only the sizes of the second
        for at, values in enumerate(statement.operands.values()):
            for value in values:
                value.readers += 0 if sized and at else 1
        if not statement.outputs:
            sigs = statement.call.outputs
            statement.outputs = [Value(s, statement, i) for i, s in enumerate(sigs)]
        if statement.unit.base in ("layer_norm", "native_layer_norm", "batch_norm", "native_dropout", "rms_norm"):
            statement.outputs = statement.outputs[:1]
        self.statements.append(statement)
        self.values += statement.outputs

    def _finish(self) -> Flow:
        """Without the views that nothing reads; outputs are what the region's units made and nothing read."""
        own = [v for s in self.statements if s.own for v in s.outputs]
        kept = set()
        outputs = [v for v in own if not self._is_read(v)] or own[-1:]
        if self.part.by_hand and self.part.kind not in MANY:
            outputs = outputs[-1:]
        pending = list(outputs)
        while pending:
            value = pending.pop()
            if value.made is None or id(value.made) in kept:
                continue
            kept.add(id(value.made))
            pending += [v for vs in value.made.operands.values() for v in vs]
        statements = [s for s in self.statements if id(s) in kept]
        used: dict[int, Value] = {}
        for statement in statements:
            if statement.own:
                inputs_of(statement, used)
        return Flow(statements, list(used.values()), outputs)

    def _is_read(self, value: Value) -> bool:
        """Read by one of the region's units, directly or through views."""
        for statement in self.statements:
            if any(value is v for vs in statement.operands.values() for v in vs) and (
                statement.own or any(self._is_read(o) for o in statement.outputs)
            ):
                return True
        return False
