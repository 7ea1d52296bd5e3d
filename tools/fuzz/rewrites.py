"""Known regions rewritten by algebra that keeps the value, and whether they are recognised still.

    python -m tools.fuzz.rewrites [--variants 500] [--seed 0] [--out FILE]

Each variant is a region of one of the families, rewritten several times in places and by rules that a seed draws. Its
value is held to the region's in float64 first. Then a match of the family's kind must cover it, and every match that
is found anywhere in it, by what its roles say, must give what the graph computes. Mutants change the value: none may
be matched as what it is not. Prints what failed, writes the counts where asked to; exits 1 where anything did.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernels import hand_written
from kernels.libraries.covers import everything
from profiler.region import op_kinds
from profiler.region.graph.lowering import Graph, lower
from profiler.region.graph.match_model import Match
from profiler.region.graph.patterns import match
from profiler.region.graph.scores import functions as score_functions
from profiler.region.language.text import parse
from tools.fuzz.float64 import REFERENCES, agrees, outputs, values_of
from tools.fuzz.rewrite_families import FAMILIES, Family
from tools.fuzz.rewrite_rules import RULES

DRAWS = 10
"""For each variant asked for, at most."""


class _Replace(ast.NodeTransformer):
    """One expression with another in its place. Only in what is computed."""

    def __init__(self, old: ast.expr, new: ast.expr) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


@dataclass(frozen=True, slots=True)
class Way:
    """One rewrite of a program: the rule, the expression that it takes, the text in its place."""

    rule: str
    node: ast.expr
    new: str


def rewritten(text: str, chance: random.Random, steps: int) -> str:
    """The region with so many rewrites, each at a place and by a rule that chance chooses."""
    head, tree = _read(text)
    for _ in range(steps):
        possible = list(_ways(tree))
        if not possible:
            break
        tree = _taken(tree, chance.choice(possible))
    return _text(head, tree)


def single(text: str) -> Iterator[tuple[str, str]]:
    """(rule, text) of every rewrite of the region by one step."""
    head, tree = _read(text)
    for number, way in enumerate(list(_ways(tree))):
        _, copied = _read(text)
        yield way.rule, _text(head, _taken(copied, list(_ways(copied))[number]))


def _read(text: str) -> tuple[str, ast.Module]:
    """The lines that declare inputs, and the program."""
    head = "".join(line + "\n" for line in text.splitlines() if _declares(line))
    return head, ast.parse(text[len(head) :].replace("return ", "result = "))


def _text(head: str, tree: ast.Module) -> str:
    return head + ast.unparse(tree).replace("result = ", "return ") + "\n"


def _ways(tree: ast.Module) -> Iterator[Way]:
    """Every rewrite of one expression. What a view or an attribute is of stays."""
    viewed = {id(n.value) for n in ast.walk(tree) if isinstance(n, (ast.Attribute, ast.Subscript))}
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and id(node) not in viewed:
            yield from (Way(rule.__name__, node, n) for rule in RULES for n in dict.fromkeys(rule(node)))


def _taken(tree: ast.Module, way: Way) -> ast.Module:
    new = ast.parse(way.new, mode="eval").body
    return ast.parse(ast.unparse(_Replace(way.node, new).visit(tree)))


def _declares(line: str) -> bool:
    return re.match(r"[a-z]\w*: ", line) is not None


# ------------------------------------------------------------------------------------------------------------- checking


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found in a region. covering: kinds of matches that are all of it; wrong: matches whose roles give
    another value than the graph has.
    """

    covering: frozenset[str]
    wrong: tuple[str, ...]


def seen(graph: Graph, seed: int = 0) -> Seen:
    """Matches of a graph, each held to the graph's own values in float64."""
    working = {o.name for o in graph.operations if o.kind not in (op_kinds.VIEW, op_kinds.CONSTANT)}
    values = values_of(graph, seed)
    made = {m.output: m.operations for m in score_functions.matches(graph)}
    covering: set[str] = set()
    wrong: list[str] = []
    for item in every_match(graph):
        if working <= item.operations | made.get(item.output, frozenset()):  # what makes its mask is its own
            covering.add(item.kind)
        if not agrees(item, values):
            wrong.append(f"{item.kind} {dict(item.roles)}")
    return Seen(frozenset(covering), tuple(wrong))


def every_match(graph: Graph) -> tuple[Match, ...]:
    """Of the profiler's forms, for the libraries' calls, and for this project's own kernels."""
    known = match(graph)
    every = (*known, *everything(graph, known), *hand_written.matches(graph, known))
    return tuple({(m.kind, m.output, m.operations, repr(m.roles)): m for m in every}.values())


def same_value(text: str, other: str, seed: int = 0) -> bool:
    """Both texts compute the same in float64, up to its rounding."""
    pairs = zip(outputs(lower(parse(text)), seed), outputs(lower(parse(other)), seed), strict=True)
    return all(a.shape == b.shape and torch.allclose(a, b, rtol=1e-5, atol=1e-7, equal_nan=True) for a, b in pairs)


def failure(name: str, text: str) -> str:
    """What is wrong with a variant; "" where nothing is."""
    family = FAMILIES[name]
    if not same_value(family.text, text):
        return "the rewrite changed the value"
    result = seen(lower(parse(text)))
    if result.wrong:
        return f"matched wrongly: {result.wrong}"
    missing = {family.kind, *family.also} - result.covering
    return f"not matched as {', '.join(sorted(missing))}" if missing else ""


def variants(count: int, seed: int, families: Mapping[str, Family] = FAMILIES) -> Iterator[tuple[str, str]]:
    """So many distinct (family, text), families in turn; one that has few rewrites gives fewer. ValueError where all
    together have too few.
    """
    chance = random.Random(seed)
    names = list(families)
    drawn: set[tuple[str, str]] = set()
    for i in range(DRAWS * (count + len(names))):
        if len(drawn) == count:
            return
        name = names[i % len(names)]
        item = name, rewritten(families[name].text, chance, chance.randint(1, 6))
        if item not in drawn:
            drawn.add(item)
            yield item
    if len(drawn) < count:
        raise ValueError(f"{count} distinct variants were asked for, {len(drawn)} were found")


def mutants() -> Iterator[tuple[str, str]]:
    """(family, text) of all that change the value."""
    for name, family in FAMILIES.items():
        for old, new in family.mutants:
            assert old in family.text, (name, old)
            yield name, family.text.replace(old, new)


def mutant_failure(name: str, text: str) -> str:
    """What is wrong with a mutant; "" where nothing is: nothing was matched that gives another value than it has."""
    if same_value(FAMILIES[name].text, text):
        return "the mutant has the value that it should not have"
    result, kind = seen(lower(parse(text))), FAMILIES[name].kind
    if result.wrong:
        return f"matched wrongly: {result.wrong}"
    return f"matched as {kind}" if kind in result.covering and kind not in REFERENCES else ""


def main() -> int:
    """Draw, check, print; 1 where anything failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="where to write the counts as JSON")
    options = parser.parse_args()
    failed: Counter[str] = Counter()
    drawn, changed = list(variants(options.variants, options.seed)), list(mutants())
    for checked, texts in ((failure, sorted(drawn)), (mutant_failure, changed)):
        for name, text in texts:
            reason = checked(name, text)
            if reason:
                failed[checked.__name__] += 1
                print(f"--- {name}: {reason}\n{text}", flush=True)
    families = Counter(name for name, _ in drawn)
    record: dict[str, Any] = {
        "date": f"{datetime.date.today()}",
        "torch": torch.__version__,
        "seed": options.seed,
        "variants": len(set(drawn)),
        "variants_failed": failed[failure.__name__],
        "mutants": len(changed),
        "mutants_failed": failed[mutant_failure.__name__],
        "variants_by_family": dict(families),
    }
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"{record['variants']} variants, {record['variants_failed']} failed; "
          f"{record['mutants']} mutants, {record['mutants_failed']} failed")  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
