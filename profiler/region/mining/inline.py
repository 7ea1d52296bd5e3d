"""Statements of a trace's region folded into the lines that a person writes: one use, one place. Torch-free.

z = x.to(f32)            z = x.to(f32)
z2 = z.pow(2)            mean = z.pow(2).mean(-1, keepdim=True)
mean = z2.mean(...)  ->  inv = rsqrt(mean + 1e-06)
z2 = mean + 1e-06        y = w * (z * inv).to(bf16)
...
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from profiler.region.language import trees

LONGEST = 72  # characters of a folded line
UNNAMED = re.compile(r"(z|rotated|total|out)\d*")
"""Names that say nothing; mean, inv, scores, p say what the line is, and stay."""


@dataclass(slots=True)
class _Line:
    """One assignment. targets and reads are versions: a name with the number of its assignment."""

    targets: list[str]
    value: ast.expr
    reads: list[str]


class _Versions(ast.NodeTransformer):
    """Names in an expression exchanged for others; names that are not in the table stay."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names
        self.names_read: list[str] = []

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in self.names:
            return node
        self.names_read.append(self.names[node.id])
        return ast.Name(self.names[node.id], ast.Load())


class _Place(ast.NodeTransformer):
    """One name exchanged for an expression."""

    def __init__(self, name: str, value: ast.expr) -> None:
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.value if node.id == self.name else node


def fold(text: str) -> str:
    """The same region in fewer lines; unchanged where a statement does more than give names their values."""
    tree = trees.module(text)
    head = [n for n in tree.body if isinstance(n, ast.AnnAssign)]
    statements = tree.body[len(head) : -1]
    returned = tree.body[-1]
    if not isinstance(returned, ast.Return) or returned.value is None or not all(map(_is_plain, statements)):
        return text
    inputs = [n.target.id for n in head if isinstance(n.target, ast.Name)]
    lines, result = _versions(inputs, statements, returned.value)
    _merge(lines, result)
    return "\n".join([*(ast.unparse(n) for n in head), *_name_values(inputs, lines, result)]) + "\n"


def _is_plain(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Assign):
        return False
    target = node.targets[0]
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    changing = any(isinstance(n, ast.Attribute) and n.attr.endswith("_") for n in ast.walk(node.value))
    return all(isinstance(n, ast.Name) for n in targets) and not changing


def _versions(inputs: list[str], statements: list[ast.stmt], returned: ast.expr) -> tuple[list[_Line], _Line]:
    now = {name: f"{name}__0" for name in inputs}
    lines = []
    for count, node in enumerate(statements, 1):
        assert isinstance(node, ast.Assign)
        value, reads = _rename(node.value, now)
        target = node.targets[0]
        names = [n.id for n in (target.elts if isinstance(target, ast.Tuple) else [target]) if isinstance(n, ast.Name)]
        now |= {name: f"{name}__{count}" for name in names}
        lines.append(_Line([now[n] for n in names], value, reads))
    value, reads = _rename(returned, now)
    return lines, _Line([], value, reads)


def _rename(value: ast.expr, names: dict[str, str]) -> tuple[ast.expr, list[str]]:
    change = _Versions(names)
    renamed = change.visit(value)
    return renamed, change.names_read


def _merge(lines: list[_Line], result: _Line) -> None:
    """Puts each unnamed value that is read once into the line that reads it, while that stays short."""
    at = 0
    while at < len(lines):
        line = lines[at]
        name = line.targets[0]
        readers = [other for other in (*lines, result) for read in other.reads if read == name]
        base = name.split("__")[0]
        foldable = len(line.targets) == 1 and (UNNAMED.fullmatch(base) or base in _inputs_read(line))
        if not foldable or len(readers) != 1 or readers[0] is result:
            at += 1
            continue
        reader = readers[0]
        merged = _Place(name, line.value).visit(trees.expression(ast.unparse(reader.value)))
        if len(re.sub(r"__\d+", "", ast.unparse(merged))) + len(reader.targets[0]) > LONGEST:
            at += 1
            continue
        reader.value = merged
        reader.reads = [r for r in reader.reads if r != name] + line.reads
        del lines[at]


def _inputs_read(line: _Line) -> set[str]:
    """Inputs that the line reads: `k = k.transpose(-2, -1)` names nothing new."""
    return {r.split("__")[0] for r in line.reads if r.endswith("__0")}


def _name_values(inputs: list[str], lines: list[_Line], result: _Line) -> list[str]:
    """The lines with names again: the unnamed ones are z, z2, ... as few as are alive at a time."""
    last: dict[str, int] = {}
    for at, line in enumerate([*lines, result]):
        last.update(dict.fromkeys(line.reads, at))
    name_of = {f"{name}__0": name for name in inputs}
    body = []
    for at, line in enumerate(lines):
        value, _ = _rename(line.value, name_of)
        used_names = {name_of[v] for v in name_of if last.get(v, -1) > at} | set(inputs)
        for version in line.targets:
            base = version.split("__")[0]
            is_input = base in inputs and not any(name_of[v] == base and last.get(v, -1) > at for v in name_of)
            name = base if is_input else _free("z" if UNNAMED.fullmatch(base) else base, used_names)
            name_of[version] = name
            used_names.add(name)
        body.append(f"{', '.join(name_of[v] for v in line.targets)} = {ast.unparse(value)}")
    value, _ = _rename(result.value, name_of)
    text = ast.unparse(value)
    return [*body, f"return {text[1:-1] if isinstance(value, ast.Tuple) and text.startswith('(') else text}"]


def _free(base: str, used_names: set[str]) -> str:
    stem = base.rstrip("0123456789") or base
    number = 1
    while (stem if number == 1 else f"{stem}{number}") in used_names:
        number += 1
    return stem if number == 1 else f"{stem}{number}"
