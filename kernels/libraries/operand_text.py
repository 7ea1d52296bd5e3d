"""Operands as the user wrote them: a name of the region's text, or the expression, never an operation's own name."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from torch.fx import Node

from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match, Role
from profiler.region.graph.nodes import is_call, name_of, value
from profiler.region.language import trees
from profiler.region.language.recorder import place_of

Place = tuple[int, int, int, int]

ELSEWHERE = "..."
"""What stands for an operand that one expression cannot say: a value of a loop's round, a name that is taken since."""
VIEWS_DEEP = 6
"""Views and casts of the lowering's own that are said one behind the other."""
WORDS = frozenset({
    "activation", "approximate", "call", "function", "keep", "mask_kind", "positions", "reduction", "results", "score",
    "to",
})  # fmt: skip
"""Roles that are words and may be spelled as an operation is: reduction="mean"."""


@dataclass(frozen=True, slots=True)
class Given:
    """A name gets a value. line: of the statement, 0 for an input; repeated: in a loop."""

    line: int
    repeated: bool = False


class Spelling:
    """The text of one graph, and what its operations are called in it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        region = graph.program.region
        self.lines = region.source.splitlines()
        self.given: dict[str, list[Given]] = {i.name: [Given(0)] for i in region.inputs}
        self.named: dict[Place, ast.expr] = {}
        self.loops: list[tuple[int, int]] = []
        for statement in region.nodes:
            self._read(statement, repeated=False)
        self.nodes: dict[str, Node] = {n.name: n for n in graph.module.graph.nodes}
        holders = [n for n in self.nodes.values() if n.op == "placeholder"]
        self.inputs = {n.name: name for n, (name, _) in zip(holders, graph.inputs, strict=True)}
        self.nodes |= {self.inputs[n.name]: n for n in holders}
        self.results: dict[Place, str] = {at: n.name for n in self.nodes.values() if (at := _place(n)) is not None}

    def roles(self, match: Match) -> dict[str, Role]:
        """The match's roles with operations as the user would write them where the match's lines stand."""
        lines = {self.graph.operation(n).line for n in match.operations}
        texts = dict(match.roles)
        for key, name in match.roles.items():
            if key not in WORDS and isinstance(name, str) and name in self.nodes:
                texts[key] = self._spelled(self.nodes[name], lines, VIEWS_DEEP)
        if texts.get("b_turned") is True:
            texts["b"] = turned(str(texts["b"]))
        if texts.get("k_transposed") is False and isinstance(k := texts.get("k"), str):
            texts["k"] = f"{atom(k)}.transpose(-2, -1)"
        return texts

    def _read(self, statement: ast.stmt, repeated: bool) -> None:
        if isinstance(statement, ast.For):
            self.loops.append((statement.lineno, statement.end_lineno or statement.lineno))
            self._give(statement.target, statement.lineno, True)
            for inner in statement.body:
                self._read(inner, repeated=True)
        elif isinstance(statement, (ast.Assign, ast.AugAssign)):
            plain = isinstance(statement, ast.Assign)
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            self._give(target, statement.lineno, repeated)
            self.named[place_of(statement.value if plain else statement)] = target

    def _give(self, target: ast.expr, line: int, repeated: bool) -> None:
        for part in ast.walk(target):
            if isinstance(part, ast.Name):
                self.given.setdefault(part.id, []).append(Given(line, repeated))

    def _spelled(self, node: Node, lines: set[int], deep: int) -> str:
        if node.op == "placeholder":
            name = self.inputs[node.name]
            return name if self._holds(name, 0, lines, own=True) else ELSEWHERE
        at = _place(node)
        if at is not None and not any(first <= at[0] <= last for first, last in self.loops):
            text = self._written(node, at, lines)
            if text:
                return text
        return self._by_view(node, lines, deep - 1) if deep else ELSEWHERE

    def _written(self, node: Node, at: Place, lines: set[int]) -> str:
        """The name that the statement gives, or the expression; "" where neither says it."""
        several = bool((node.meta.get("custom") or {}).get("several"))
        if not is_call(node, "getitem") if several else self.results[at] != node.name:
            return ""
        target = self.named.get(at)
        index = node.args[1] if several else None
        if isinstance(index, int) and isinstance(target, ast.Tuple):
            target = target.elts[index]
            several = False
        if not several and isinstance(target, ast.Name) and self._holds(target.id, at[0], lines, own=True):
            return target.id
        text = self._cut(at)
        try:
            parsed = trees.expression(text)
        except SyntaxError:  # a statement such as z += b
            return ""
        names = [n.id for n in ast.walk(parsed) if isinstance(n, ast.Name) and n.id in self.given]
        if not all(self._holds(n, at[0], lines) for n in names):
            return ""
        return f"{atom(text)}[{index}]" if several else text

    def _holds(self, name: str, line: int, lines: set[int], own: bool = False) -> bool:
        """What the name stands for at the line, it stands for where the match's lines end; own: given by that line."""
        end = max(lines, default=0) or len(self.lines) + 1
        given = self.given.get(name, ())  # nobody's: a gradient that comes in
        if any(g.repeated for g in given):
            return False
        taken = [g.line for g in given if line <= g.line < end and g.line not in lines]
        return all(g == line for g in taken) if own else not taken

    def _by_view(self, node: Node, lines: set[int], deep: int) -> str:
        """A view, a cast or a negation of what can be said."""
        source = node.args[0] if node.args else None
        if node.op != "call_function" or not isinstance(source, Node):
            return ELSEWHERE
        said = self._spelled(source, lines, deep)
        if said == ELSEWHERE:
            return ELSEWHERE
        if is_call(node, "alias", "detach", "clone", "lift_fresh_copy"):
            return said
        if is_call(node, "_to_copy"):
            return f"{atom(said)}.to({value(node).dtype})"
        if is_call(node, "bitwise_not", "logical_not"):
            return f"~{atom(said)}"
        if is_call(node, "t"):
            return turned(said)
        if is_call(node, "view", "_unsafe_view", "reshape"):
            return f"{atom(said)}.reshape({', '.join(str(n) for n in value(node).shape)})"
        if is_call(node, "transpose", "unsqueeze", "squeeze", "permute", "expand"):
            return f"{atom(said)}.{name_of(node)}({', '.join(map(str, node.args[1:]))})"
        return ELSEWHERE

    def _cut(self, at: Place) -> str:
        first, start, last, end = at
        rows = [row.encode() for row in self.lines[first - 1 : last]]
        if len(rows) != last - first + 1:
            return ""
        rows[-1] = rows[-1][:end]
        rows[0] = rows[0][start:]
        return " ".join(row.decode().strip() for row in rows)


def _place(node: Node) -> Place | None:
    place = (node.meta.get("custom") or {}).get("at") if node.op == "call_function" else None
    return tuple(place) if place else None


def atom(text: str) -> str:
    """The expression, in brackets where something that binds closer is to follow it."""
    if text == ELSEWHERE:
        return text
    kind = trees.expression(text)
    return text if isinstance(kind, (ast.Name, ast.Call, ast.Attribute, ast.Subscript)) else f"({text})"


def turned(text: str) -> str:
    """The transposed matrix; what is transposed already, as it was before."""
    if text == ELSEWHERE:
        return text
    kind = trees.expression(text)
    if isinstance(kind, ast.Attribute) and kind.attr in ("T", "mT"):
        return ast.unparse(kind.value)
    if isinstance(kind, ast.Call) and isinstance(kind.func, ast.Attribute) and _turns(kind.func.attr, kind.args):
        return ast.unparse(kind.func.value)
    return f"{atom(text)}.t()"


def _turns(name: str, arguments: list[ast.expr]) -> bool:
    try:
        given = tuple(ast.literal_eval(a) for a in arguments)
    except ValueError:
        return False
    return (name == "t" and not given) or (name in ("transpose", "swapaxes") and sorted(given) in ([0, 1], [-2, -1]))


def negated(text: str) -> str:
    """The mask the other way round; what is negated already, as it was before."""
    if text == ELSEWHERE:
        return text
    kind = trees.expression(text)
    if isinstance(kind, ast.UnaryOp) and isinstance(kind.op, ast.Invert):
        return ast.unparse(kind.operand)
    return f"~{atom(text)}"


class Shown(str):
    """A role in a call's text: `{b:turned}` is the transposed matrix."""

    def __format__(self, how: str) -> str:
        return turned(str(self)) if how == "turned" else str(self)


class Roles(dict[str, object]):
    """Roles for a call's text: what no role names is left as it is."""

    def __missing__(self, key: str) -> Shown:
        return Shown(key)


def shown(call: str, roles: Mapping[str, Role]) -> str:
    """The call's text with the roles in their places."""
    return call.format_map(Roles({k: Shown(v) if isinstance(v, str) else v for k, v in roles.items()}))
