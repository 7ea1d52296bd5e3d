"""Whether two region texts are one program: by what is computed, not by names, line breaks or spelling.

Everything that is assigned is written out where it is used, and the expression is hashed: `z = x @ w; y = z + b` and
`y = b + torch.matmul(x, w)` are one program. Lowering would tell as well, but only one region is lowered at a time, and
this is asked of every record for every page.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache

from app.objects.evidence import Match
from profiler.region.language.text import parse, to_text
from profiler.region.model import Input, Region, RegionError

LEVELS: tuple[Match, ...] = ("same", "other-layout", "other-sizes")
"""From alike to less alike: layouts do not count at the second, sizes neither at the third."""

OPERATORS: Mapping[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.MatMult: "matmul", ast.Pow: "pow",
    ast.USub: "neg", ast.Invert: "bitwise_not",
}  # fmt: skip
COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum"})
SPELLINGS: Mapping[str, str] = {
    "mm": "matmul", "bmm": "matmul", "true_divide": "div", "truediv": "div", "T": "t", "mT": "t", "square": "pow2",
}  # fmt: skip
CASTS: Mapping[str, str] = {"float": "f32", "half": "f16", "bfloat16": "bf16", "double": "f64"}
TRANSPOSED = ({"-2", "-1"}, {"0", "1"})
ANY = 99
SIZE_ARGUMENTS: Mapping[str, tuple[int, int]] = {
    "reshape": (1, ANY), "view": (1, ANY), "expand": (1, ANY), "broadcast_to": (1, ANY), "unflatten": (2, ANY),
    "zeros": (0, ANY), "ones": (0, ANY), "empty": (0, ANY), "full": (0, 1), "arange": (0, 1),
    "new_zeros": (1, ANY), "new_ones": (1, ANY), "new_empty": (1, ANY), "new_full": (1, 2), "split": (1, 2),
    "layer_norm": (1, 2), "rms_norm": (1, 2), "native_layer_norm": (1, 2), "_fused_rms_norm": (1, 2),
}  # fmt: skip
"""Where a number is a size: from this argument (the tensor of a method is 0) to before that one."""
MAX_UNROLLED = 2048
"""Statements read in all turns of all loops; a region with more goes by its text."""
MAX_VISITS = 20_000
"""Nodes read for all inputs together; a region with more goes by its text. That takes 0.1 s, in the web process too; of
200 regions of tests and archive the largest has 2,048, without it 10 KB of text took minutes."""


@lru_cache(maxsize=4096)
def fingerprint(text: str, level: Match) -> str:
    """Equal for texts that are one program at this level; the text's own hash where it cannot be read."""
    try:
        region = parse(text)
        visits = _Visits()
        # Once for each input, told apart from the others: which of several alike goes where is part of the program.
        marked = sorted(_hash(*_Reader(region, level, i.name, visits).outputs()) for i in region.inputs)
        return _hash(*marked)
    except RegionError:
        return _hash(text)
    except _UnreadError:  # lists that grow, long loops: by the canonical text
        return _hash(to_text(region))


@lru_cache(maxsize=4096)
def roles(text: str) -> tuple[tuple[str, Input], ...]:
    """Every input with a hash of what it is in the program, sizes aside, by which inputs of two texts alike pair up.

    Inputs with one hash may change places (`a * b`). By position where the program is known by its text only.
    RegionError for a text that cannot be read.
    """
    region, visits = parse(text), _Visits()
    try:
        return tuple((_hash(*_Reader(region, "other-sizes", i.name, visits).outputs()), i) for i in region.inputs)
    except _UnreadError:
        return tuple((f"{place:04}", i) for place, i in enumerate(region.inputs))


class _UnreadError(Exception):
    """A statement that is not written out: a list that grows, a loop that is long. Or too many of them."""


class _Visits:
    """Nodes that may still be read of one text."""

    def __init__(self) -> None:
        self.left = MAX_VISITS

    def take(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _UnreadError


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


class _Reader:
    """Hashes of a region's values, by name; one input is told apart from others of its kind."""

    def __init__(self, region: Region, level: Match, marked: str, visits: _Visits) -> None:
        self.region = region
        self.visits = visits
        self.level = level
        self.marked = marked
        self.left = MAX_UNROLLED
        self.names = {i.name: self.input(i) for i in region.inputs}
        self.names |= {s.name: "size" if level == "other-sizes" else f"sizes{s.sizes}" for s in region.symbols}

    def input(self, item: Input) -> str:
        shape = self.broadcast(item) if self.level == "other-sizes" else item.shape
        layout = (item.strides, item.channels_last) if self.level == "same" else ()
        return _hash(
            "input", item.dtype, str(shape), str(layout), str(item.requires_grad), str(item.name == self.marked)
        )

    def broadcast(self, item: Input) -> tuple[bool, ...]:
        """For each dimension whether it is 1 where another input's is not: a row of biases is no matrix of them."""
        sizes = {s.name: max(s.sizes) for s in self.region.symbols}
        others = [i.shape[::-1] for i in self.region.inputs if i.name != item.name]
        stretched = [
            sizes.get(str(size), size) == 1
            and any(len(o) > place and sizes.get(str(o[place]), o[place]) != 1 for o in others)
            for place, size in enumerate(item.shape[::-1])
        ]
        return tuple(stretched[::-1])

    def outputs(self) -> tuple[str, ...]:
        for statement in self.region.nodes:
            self.statement(statement)
        return tuple(self.value(e) for e in self.region.returned)

    def statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.For):
            return self.loop(node)
        self.left -= 1
        if self.left < 0:
            raise _UnreadError
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            name = OPERATORS.get(type(node.op), type(node.op).__name__)
            self.names[node.target.id] = self.call(name, [self.value(node.target), self.value(node.value)])
            return None
        if not isinstance(node, ast.Assign) or isinstance(node.value, ast.List):
            raise _UnreadError
        target, value = node.targets[0], self.value(node.value)
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Tuple):
            for place, part in enumerate(target.elts):
                if isinstance(part, ast.Name):
                    self.names[part.id] = _hash("part", str(place), value)
        else:
            raise _UnreadError
        return None

    def loop(self, node: ast.For) -> None:
        """`for i in range(3):` is its body three times, with i as a number."""
        given = node.iter.args if isinstance(node.iter, ast.Call) else []
        bounds = [a.value for a in given if isinstance(a, ast.Constant) and type(a.value) is int]
        if (
            not isinstance(node.target, ast.Name)
            or len(bounds) != len(given)
            or not 1 <= len(bounds) <= 3
            or 0 in bounds[2:]
        ):
            raise _UnreadError
        for number in range(*bounds):
            self.left -= 1
            if self.left < 0:
                raise _UnreadError
            self.names[node.target.id] = str(number)
            for statement in node.body:
                self.statement(statement)

    def value(self, node: ast.expr) -> str:
        self.visits.take()
        if isinstance(node, ast.Name):
            return self.names.get(node.id, node.id)
        if isinstance(node, ast.Constant):
            return f"{node.value:.6g}" if isinstance(node.value, float) else str(node.value)
        if isinstance(node, ast.BinOp):
            return self.call(OPERATORS.get(type(node.op), type(node.op).__name__), [node.left, node.right])
        if isinstance(node, ast.UnaryOp):
            if isinstance(node.operand, ast.Constant):
                return "-" + self.value(node.operand)
            return self.call(OPERATORS.get(type(node.op), type(node.op).__name__), [node.operand])
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id in ("torch", "F"):
                return node.attr
            return self.call(node.attr, [node.value])
        if isinstance(node, ast.Call):
            return self.function(node)
        if isinstance(node, ast.Tuple | ast.List):
            return _hash("list", *(self.value(e) for e in node.elts))
        parts = [self.value(c) for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)]
        return _hash(type(node).__name__, *parts)

    def function(self, node: ast.Call) -> str:
        """`torch.f(x, a)`, `F.f(x, a)`, `f(x, a)` and `x.f(a)` are one call; options by name count by value alone."""
        arguments = [*node.args, *(k.value for k in node.keywords)]
        if isinstance(node.func, ast.Attribute):
            holder = node.func.value
            module = isinstance(holder, ast.Name) and holder.id in ("torch", "F", "aten")
            return self.call(node.func.attr, arguments if module else [holder, *arguments])
        return self.call(node.func.id if isinstance(node.func, ast.Name) else "call", arguments)

    def call(self, name: str, arguments: Sequence[ast.expr | str]) -> str:
        first, end = SIZE_ARGUMENTS.get(name, (0, 0)) if self.level == "other-sizes" else (0, 0)
        given = [
            a if isinstance(a, str) else self.size(a) if first <= place < end else self.value(a)
            for place, a in enumerate(arguments)
        ]
        if name in CASTS:
            name, given = "to", [*given, CASTS[name]]
        if name == "transpose" and {*given[1:]} in TRANSPOSED:
            name, given = "t", given[:1]
        if name in COMMUTATIVE:
            given.sort()
        return _hash(SPELLINGS.get(name, name), *given)

    def size(self, node: ast.expr) -> str:
        """A size: any number from 2 on is as good as another. 1, 0 and -1 say something about the program."""
        self.visits.take()
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value > 1:
            return "size"
        if isinstance(node, ast.Tuple | ast.List):
            return _hash("list", *(self.size(e) for e in node.elts))
        return self.value(node)
