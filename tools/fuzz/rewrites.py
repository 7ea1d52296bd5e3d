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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from profiler.region import op_kinds
from profiler.region.graph.lowering import Graph, lower
from profiler.region.graph.patterns import match
from profiler.region.graph.scores import functions as score_functions
from profiler.region.language.text import parse
from tools.fuzz.float64 import agrees, outputs, values_of

QKV = "q: f32[2, 4, 6, 8]\nk: f32[2, 4, 6, 8]\nv: f32[2, 4, 6, 8]\n"
GROUPED = "q: f32[2, 4, 6, 8]\nk: f32[2, 2, 6, 8]\nv: f32[2, 2, 6, 8]\n"
ROWS = "x: f32[3, 4, 8]\nw: f32[8]\nb: f32[8]\n"
SCORES = "s = q @ k.transpose(-1, -2) * 0.35\n"
LOSS = "x: f32[6, 8]\nt: i64[6].below(8)\n"


@dataclass(frozen=True, slots=True)
class Family:
    """A region and the kind of match that covers it. mutants: replacements in its text that change its value."""

    kind: str
    text: str
    mutants: tuple[tuple[str, str], ...] = ()


FAMILIES: Mapping[str, Family] = {
    "rms_norm": Family("rms_norm", ROWS + "y = x * rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3)\nreturn y * w\n", (
        ("rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3)", "(rsqrt(x.pow(2).mean(-1, keepdim=True)) + 1e-3)"),
        ("mean(-1", "mean(1"), ("mean(-1", "sum(-1"), ("pow(2)", "pow(4)"), ("x * rsqrt", "b * rsqrt"),
        ("rsqrt(", "sqrt("), ("+ 1e-3", "- 1e-3"), ("return y * w", "return y * w.sum()"),
    )),
    "layer_norm": Family("layer_norm", ROWS + (
        "m = x.mean(-1, keepdim=True)\nd = x - m\n"
        "y = d * rsqrt((d * d).mean(-1, keepdim=True) + 1e-3)\nreturn y * w + b\n"
    ), (
        ("d * rsqrt", "x * rsqrt"), ("(d * d)", "(x * x)"), ("y * w + b", "(y + b) * w"),
        ("(d * d).mean", "(d * d).sum"),
        ("m = x.mean(-1", "m = x.mean(1"), ("d = x - m", "d = x + m"), ("y * w + b", "y * w - b"),
        ("(d * d).mean(-1", "(d * d).mean(1"),
    )),
    "softmax": Family("softmax", "x: f32[3, 4, 8]\nreturn softmax(x, -1)\n", (
        ("softmax(x, -1)", "exp(x) / exp(x).sum(1, keepdim=True)"),
        ("softmax(x, -1)", "exp(x) / (1 + exp(x).sum(-1, keepdim=True))"),
        ("softmax(x, -1)", "exp(x) / exp(x).mean(-1, keepdim=True)"),
        ("softmax(x, -1)", "exp(x - x.amax(-1, keepdim=True)) / exp(x).sum(-1, keepdim=True)"),
    )),
    "loss_mean": Family("cross_entropy", LOSS + "return F.nll_loss(log_softmax(x, -1), t)\n", (
        ("log_softmax(x, -1)", "log_softmax(x, 0)"), ("log_softmax(x, -1)", "softmax(x, -1)"),
        ("log_softmax(x, -1)", "x"), ("F.nll_loss(log_softmax(x, -1), t)", "log_softmax(x, -1).mean()"),
        ("return F", "return -F"),
    )),
    "loss_rows": Family("cross_entropy", LOSS + (
        "return -log_softmax(x, -1).gather(-1, t.unsqueeze(-1)).squeeze(-1)\n"
    ), (
        ("-log", "log"), ("log_softmax(x, -1)", "log_softmax(x, 0)"), ("-log_softmax(x, -1)", "-x"),
    )),
    "swiglu": Family("swiglu", "a: f32[4, 8]\nb: f32[4, 8]\nreturn silu(a) * b\n", (
        ("silu(a) * b", "a * sigmoid(b) * b"), ("silu(a) * b", "sigmoid(a) * b"), ("silu(a) * b", "silu(a) + b"),
        ("silu(a)", "(a / (1 - exp(-a)))"), ("silu(a)", "(a / (1 + exp(a)))"), ("silu(a)", "(a * sigmoid(2.0 * a))"),
    )),
    "geglu": Family("geglu", "a: f32[4, 8]\nb: f32[4, 8]\nreturn gelu(a) * b\n", (
        ("gelu(a)", "(a * (1 + erf(a * 0.70710678)))"), ("gelu(a)", "(0.5 * a * (1 + erf(a)))"),
        ("gelu(a)", "(0.5 * b * (1 + erf(a * 0.70710678)))"), ("gelu(a)", "(0.5 * a * (1 - erf(a * 0.70710678)))"),
    )),
    "gelu_tanh": Family("gelu_tanh", (
        "x: f32[4, 8]\nreturn 0.5 * x * (1.0 + tanh(0.7978845608 * (x + 0.044715 * x.pow(3))))\n"
    ), (
        ("0.044715", "0.44715"), ("0.5 * x", "x"), ("pow(3)", "pow(2)"), ("1.0 +", "1.0 -"), ("(x + 0.0", "(x - 0.0"),
    )),
    "rope": Family("rope", (
        "x: f32[2, 3, 4, 8]\nc: f32[4, 8]\ns: f32[4, 8]\nreturn x * c + cat((-x[..., 4:], x[..., :4]), -1) * s\n"
    ), (
        ("(-x[..., 4:], x[..., :4])", "(x[..., 4:], -x[..., :4])"), ("(-x[..., 4:], x", "(x[..., 4:], x"),
        ("(-x[..., 4:], x[..., :4])", "(-x[..., :4], x[..., 4:])"), ("* c +", "* c -"), ("x * c", "c"),
        ("(-x[..., 4:], x[..., :4])", "(-x[..., 3:], x[..., :3])"), ("x * c", "x * s"),
    )),
    "attention": Family("attention", QKV + SCORES + "return softmax(s, -1) @ v\n", (
        ("softmax(s, -1)", "softmax(s, -2)"), ("softmax(s, -1)", "sigmoid(s)"), ("return", "s = s / 0\nreturn"),
        ("* 0.35", "* -0.35"), ("softmax(s, -1) @ v", "softmax(s, -1).transpose(-1, -2) @ v"),
        ("k.transpose(-1, -2)", "v.transpose(-1, -2)"), ("* 0.35", "* 0.35 * q.sum()"),
    )),
    "causal": Family("attention", QKV + SCORES + (
        "m = torch.ones(6, 6, dtype=torch.bool).tril()\n"
        "return softmax(s.masked_fill(~m, float('-inf')), -1) @ v\n"
    ), (
        ("~m", "m"), (".tril()", ".triu()"), (".tril()", ".tril(1)"), ("float('-inf')", "0.0"),
        ("float('-inf')", "-1.0"), ("softmax(s.masked_fill(~m, float('-inf')), -1)", "softmax(s, -1)"),
    )),
    "masked": Family("attention", QKV + "m: bool[6, 6]\n" + SCORES + (
        "return softmax(torch.where(m, s, float('-inf')), -1) @ v\n"
    ), (
        ("m, s, float('-inf')", "m, float('-inf'), s"), ("where(m", "where(~m"), ("float('-inf')", "0.0"),
        ("where(m", "where(m.transpose(0, 1)"),
    )),
    "biased": Family("attention", QKV + "e: f32[4, 6, 6]\n" + SCORES + "s = s + e\nreturn softmax(s, -1) @ v\n", (
        ("s + e", "s - e"), ("s + e", "s * e"), ("s + e", "(s + e) * 2.0"), ("s + e", "s + e.transpose(-1, -2)"),
    )),
    "grouped": Family("attention", GROUPED + (
        "k = k.repeat_interleave(2, dim=1)\nv = v.repeat_interleave(2, dim=1)\n"
    ) + SCORES + "return softmax(s, -1) @ v\n", (
        ("k.repeat_interleave(2, dim=1)", "k.repeat(1, 2, 1, 1)"),
        ("v.repeat_interleave(2, dim=1)", "v.repeat(1, 2, 1, 1)"),
        ("k.repeat_interleave(2, dim=1)", "k.flip(1).repeat_interleave(2, dim=1)"),
    )),
}  # fmt: skip

DRAWS = 10
"""For each variant asked for, at most."""

Rule = Callable[[ast.expr], Iterator[str]]


def _name(node: ast.expr) -> str:
    """`f` of f(...), of x.f(...) and of F.f(...)."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _operands(node: ast.Call) -> list[str]:
    """Texts of a call's positional arguments, what a method is of among them."""
    method = isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") not in ("F", "torch")
    before = [node.func.value] if method and isinstance(node.func, ast.Attribute) else []
    return [ast.unparse(a) for a in (*before, *node.args)]


def _arithmetic(node: ast.expr) -> Iterator[str]:
    """Order, grouping, signs, divisions."""
    if isinstance(node, ast.BinOp):
        a, b = ast.unparse(node.left), ast.unparse(node.right)
        if isinstance(node.op, ast.Mult):
            yield f"({b}) * ({a})"
            if isinstance(node.right, ast.Constant):
                yield f"({a}) / (1.0 / {b})"
            elif _is_tensor(node.right):
                yield f"({a}) / torch.reciprocal({b})"
            if isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Mult):
                yield f"({ast.unparse(node.left.left)}) * (({ast.unparse(node.left.right)}) * ({b}))"
            if a == b:
                yield f"({a}).square()"
        elif isinstance(node.op, ast.Add):
            yield f"({b}) + ({a})"
            yield f"({a}) - (-({b}))"
        elif isinstance(node.op, ast.Sub):
            yield f"({a}) + (-({b}))"
            yield f"-(({b}) - ({a}))"
        elif isinstance(node.op, ast.Div) and _is_tensor(node.right):
            yield f"({a}) * torch.reciprocal({b})"
        elif isinstance(node.op, ast.MatMult):
            yield f"torch.matmul({a}, {b})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and _is_tensor(node.operand):
        yield f"({ast.unparse(node.operand)}) * -1.0"


def _is_tensor(node: ast.expr) -> bool:
    """Certainly no number."""
    return any(isinstance(n, ast.Name) and n.id not in ("torch", "F", "float") for n in ast.walk(node)) and not any(
        isinstance(n, ast.Attribute) and n.attr == "shape" for n in ast.walk(node)
    )


def _roots(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Call) and _name(node) == "rsqrt":
        (x,) = _operands(node)
        yield f"1.0 / torch.sqrt({x})"
        yield f"({x}).pow(-0.5)"
        yield f"torch.sqrt({x}).reciprocal()"
    if isinstance(node, ast.Call) and _name(node) == "pow" and len(_operands(node)) == 2:
        x, e = _operands(node)
        yield f"({x}) ** {e}"
        if e == "2":
            yield f"({x}) * ({x})"
            yield f"({x}).square()"
        if e == "3":
            yield f"({x}) * ({x}) * ({x})"


def _reductions(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Call) and _name(node) == "mean" and node.keywords and len(_operands(node)) == 2:
        x, axis = _operands(node)
        if axis == "-1":
            yield f"({x}).sum(-1, keepdim=True) / 8"
            yield f"({x}).mean(-1).unsqueeze(-1)"
            yield f"({x}).sum(-1, keepdim=True) * 0.125"
            yield f"({x}).mean(2, keepdim=True)"


def _variances(node: ast.expr) -> Iterator[str]:
    if ast.unparse(node) == "(d * d).mean(-1, keepdim=True)":
        yield "x.var(-1, correction=0, keepdim=True)"
        yield "x.var(-1, unbiased=False, keepdim=True)"
        yield "((x * x).mean(-1, keepdim=True) - m * m)"
        yield "((x.pow(2)).mean(-1, keepdim=True) - m.square()).clamp(min=0)"


def _softmaxes(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Call) and _name(node) in ("softmax", "log_softmax") and _operands(node)[1:] == ["-1"]:
        x = _operands(node)[0]
        shifted = f"({x}) - ({x}).amax(-1, keepdim=True)"
        if _name(node) == "softmax":
            yield f"torch.exp({shifted}) / torch.exp({shifted}).sum(-1, keepdim=True)"
            yield f"torch.exp(log_softmax({x}, -1))"
            yield f"torch.exp({x}) / torch.exp({x}).sum(-1).unsqueeze(-1)"
        else:
            yield f"({x}) - torch.logsumexp({x}, -1, keepdim=True)"
            yield f"({shifted}) - torch.log(torch.exp({shifted}).sum(-1, keepdim=True))"
            yield f"torch.log(softmax({x}, -1))"


def _losses(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Call) and _name(node) == "nll_loss":
        shares = _operands(node)[0]
        yield f"-({shares}).gather(-1, t.unsqueeze(-1)).mean()"
        yield f"-({shares}).gather(1, t[:, None]).squeeze(1).mean()"
        yield f"-({shares})[torch.arange(6), t].mean()"
        yield f"-({shares})[torch.arange(6), t].sum() / 6"
    if ast.unparse(node) == "F.nll_loss(log_softmax(x, -1), t)":
        yield "F.cross_entropy(x, t)"
        yield "(torch.logsumexp(x, -1) - x.gather(-1, t.unsqueeze(-1)).squeeze(-1)).mean()"


def _activations(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Call) and _name(node) == "silu":
        (x,) = _operands(node)
        yield f"({x}) * torch.sigmoid({x})"
        yield f"({x}) / (1.0 + torch.exp(-({x})))"
    if isinstance(node, ast.Call) and _name(node) == "gelu":
        (x,) = _operands(node)
        yield f"0.5 * ({x}) * (1.0 + torch.erf(({x}) * 0.7071067811865476))"
        yield f"({x}) * (torch.erf(({x}) / 1.4142135623730951) + 1.0) * 0.5"


def _halves(node: ast.expr) -> Iterator[str]:
    for text, index in (("x[..., 4:]", 1), ("x[..., :4]", 0)):
        if ast.unparse(node) == text:
            yield f"x.chunk(2, -1)[{index}]"
            yield f"x.narrow(-1, {4 * index}, 4)"
            yield f"torch.split(x, 4, dim=-1)[{index}]"
            yield f"cat((x[..., :4], x[..., 4:]), -1)[..., {4 * index}:{4 * index + 4}]"
    if ast.unparse(node) == "cat((-x[..., 4:], x[..., :4]), -1) * s":
        yield "cat((x[..., 4:], -x[..., :4]), -1) * -s"


def _views(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Name) and node.id == "w":
        yield "w.view(1, 1, 8)"
        yield "w[None, None, :]"
        yield "w.expand(3, 4, 8)"
    if isinstance(node, ast.Name) and node.id in ("x", "q", "v", "a") and isinstance(node.ctx, ast.Load):
        yield f"{node.id}.float()"
    if isinstance(node, ast.Call) and _name(node) == "transpose" and _operands(node)[1:] == ["-1", "-2"]:
        x = _operands(node)[0]
        yield f"({x}).transpose(2, 3)"
        yield f"({x}).permute(0, 1, 3, 2)"
        yield f"({x}).mT"
        yield f"({x}).flatten(0, 1).transpose(1, 2).reshape(2, 4, 8, 6)" if x == "k" else f"({x}).mT"
    if ast.unparse(node) == "q @ k.transpose(-1, -2) * 0.35":
        yield "(q * 0.35) @ k.transpose(-1, -2)"
        yield "q @ (k * 0.35).transpose(-1, -2)"
        yield "torch.einsum('bhqd,bhkd->bhqk', q, k) * 0.35"
        yield "q @ k.transpose(-1, -2) / 2.857142857142857"
        yield "(q * 0.5) @ (k * 0.7).transpose(-1, -2)"


def _masks(node: ast.expr) -> Iterator[str]:
    text = ast.unparse(node)
    if text == "s.masked_fill(~m, float('-inf'))":
        yield "torch.where(m, s, float('-inf'))"
        yield "torch.where(~m, float('-inf'), s)"
        yield "s.masked_fill(m.logical_not(), float('-inf'))"
        yield "s + torch.zeros(6, 6).masked_fill(~m, float('-inf'))"
        yield "s + torch.where(m, 0.0, float('-inf'))"
        yield "s.masked_fill(~m, -1e30)"
        yield "s.masked_fill(m.float() == 0, float('-inf'))"
        yield "s + (1.0 - m.float()) * -1e30"
    if text == "torch.where(m, s, float('-inf'))":
        yield "s.masked_fill(~m, float('-inf'))"
        yield "s.masked_fill(torch.logical_not(m), float('-inf'))"
        yield "s - 1e30 * (1 - m.float())"
        yield "s + torch.where(m, 0.0, float('-inf'))"
        yield "torch.where(m[None, None], s, float('-inf'))"
    if text == "torch.ones(6, 6, dtype=torch.bool).tril()":
        yield "~torch.ones(6, 6, dtype=torch.bool).triu(1)"
        yield "torch.arange(6)[:, None] >= torch.arange(6)[None, :]"
        yield "torch.arange(6)[None, :] <= torch.arange(6).unsqueeze(-1)"
        yield "~(torch.arange(6) > torch.arange(6).view(6, 1))"
        yield "torch.tril(torch.ones(6, 6, dtype=torch.bool))"
        yield "torch.tril(torch.ones(6, 6)).bool()"
        yield "torch.tril(torch.ones(6, 6)) == 1"
        yield "torch.triu(torch.ones(6, 6), diagonal=1) == 0"


def _groups(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Call) and _name(node) == "repeat_interleave":
        x = _operands(node)[0]
        yield f"{x}[:, :, None].expand(2, 2, 2, 6, 8).reshape(2, 4, 6, 8)"
        yield f"{x}.unsqueeze(2).expand(-1, -1, 2, -1, -1).reshape(2, 4, 6, 8)"
        yield f"{x}.unsqueeze(2).repeat(1, 1, 2, 1, 1).flatten(1, 2)"


RULES: tuple[Rule, ...] = (
    _arithmetic, _roots, _reductions, _variances, _softmaxes, _losses, _activations, _halves, _views, _masks, _groups,
)  # fmt: skip


class _Replace(ast.NodeTransformer):
    """One expression with another in its place. Only in what is computed."""

    def __init__(self, old: ast.expr, new: ast.expr) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def rewritten(text: str, chance: random.Random, steps: int) -> str:
    """The region with so many rewrites, each at a place and by a rule that chance chooses."""
    head = "".join(line + "\n" for line in text.splitlines() if _declares(line))
    tree = ast.parse(text[len(head) :].replace("return ", "result = "))
    for _ in range(steps):
        viewed = {id(n.value) for n in ast.walk(tree) if isinstance(n, (ast.Attribute, ast.Subscript))}
        ways = [
            (node, new)
            for node in ast.walk(tree)
            if isinstance(node, ast.expr) and id(node) not in viewed
            for new in dict.fromkeys(n for rule in RULES for n in rule(node))
        ]
        if not ways:
            break
        node, new = chance.choice(ways)
        tree = ast.parse(ast.unparse(_Replace(node, ast.parse(new, mode="eval").body).visit(tree)))
    return head + ast.unparse(tree).replace("result = ", "return ") + "\n"


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
    for item in match(graph):
        if working <= item.operations | made.get(item.output, frozenset()):  # what makes its mask is its own
            covering.add(item.kind)
        if not agrees(item, values):
            wrong.append(f"{item.kind} {dict(item.roles)}")
    return Seen(frozenset(covering), tuple(wrong))


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
    return "" if family.kind in result.covering else "not matched"


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
    wrong = seen(lower(parse(text))).wrong
    return f"matched wrongly: {wrong}" if wrong else ""


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
