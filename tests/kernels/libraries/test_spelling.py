"""Calls are shown with what the user wrote: inputs, names of the text, expressions; never with an operation's name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch.fx import Node
from torch.fx.node import map_arg

from kernels.libraries.catalogue import COMPILED, ENTRIES
from kernels.libraries.covers import coverage, everything
from kernels.libraries.operand_text import ELSEWHERE, WORDS, Spelling, negated, turned
from profiler.region.graph.lowering import lower
from profiler.region.graph.match_model import Match
from profiler.region.graph.patterns import match
from profiler.region.language.program import program
from profiler.region.language.text import parse
from tests.kernels.libraries import texts as t
from tests.kernels.libraries.cases import CASES, FURTHER
from tests.kernels.libraries.hosts import B200, H200
from tests.kernels.libraries.rewrites import inputs
from tests.kernels.libraries.test_rows import lowered

TEXTS = tuple(dict.fromkeys(text for c in (*CASES, *FURTHER) for text in (c.covered, c.changed)))
LARGEST_BYTES = 1 << 26
UNSTEADY = re.compile(r"dropout|multinomial|\.offsets\(")
"""Two runs differ: numbers are drawn, or rows of a grouped product are left as they were."""
CHAIN = """x: bf16[64, 128]
w: bf16[128, 256]
b: bf16[256]
m: bf16[64, 256]
z = x @ w
z = z + b
z = gelu(z, approximate="tanh")
y = z * m
return y
"""


def words(call: str) -> set[str]:
    """Names in a call that are no attribute, no keyword's name and in no string."""
    plain = re.sub(r"'[^']*'|\"[^\"]*\"", "", call)
    return set(re.findall(r"(?<![\w.])[A-Za-z_]\w*(?!\w*\s*=[^=])", plain))


def shown(text: str) -> dict[str, str]:
    graph = lowered(text)
    return {c.candidate: c.call for h in (B200, H200) for c in coverage(graph, match(graph), h)}


@pytest.mark.parametrize("number", range(4))
def test_no_call_names_an_operation_of_the_graph(number: int) -> None:
    """Of all texts that the rows are tried with."""
    own = {e.candidate: words(e.call) for e in (*ENTRIES, *COMPILED)}
    wrong = []
    for text in TEXTS[number::4]:
        graph = lowered(text)
        operations = {n.name for n in graph.module.graph.nodes} - {name for name, _ in graph.inputs}
        written = words(text)
        wrong += [call for c, call in shown(text).items() if words(call) & operations - written - own[c]]
    assert wrong == []


@pytest.mark.parametrize("number", range(4))
def test_what_is_shown_for_an_operand_has_its_value(number: int) -> None:
    """The expression, put at the end of the text, gives what the operation gives."""
    compared = 0
    for text in TEXTS[number::4]:
        graph = lowered(text)
        if UNSTEADY.search(text) or sum(x.bytes for _, x in graph.inputs) > LARGEST_BYTES:
            continue
        given = inputs(parse(text), "cpu")
        values = dict(zip((n for n in graph.module.graph.nodes if n.op == "placeholder"), given, strict=True))
        spelling = Spelling(graph)
        nodes = {n.name: n for n in graph.module.graph.nodes if n.op == "call_function"}
        for found in everything(graph, match(graph)):
            for expression, node, flip in _operands(found, spelling.roles(found), nodes):
                (said,) = program(parse(_ending(text, expression, node))).module(*given)
                wanted = _value(node, values)
                wanted = wanted.transpose(-2, -1) if flip else wanted
                assert (said.shape, said.dtype) == (wanted.shape, wanted.dtype), (expression, node.name)
                torch.testing.assert_close(said, wanted, equal_nan=True, msg=f"{expression} for {node.name}")
                compared += 1
    assert compared >= 20


def _operands(found: Match, said: Mapping[str, Any], nodes: Mapping[str, Node]) -> list[tuple[str, Node, bool]]:
    """(expression, node, turned) of the match's roles that are operations and can be said."""
    told = {k: v for k, v in found.roles.items() if k not in WORDS and isinstance(v, str) and v in nodes}
    told = {k: v for k, v in told.items() if said[k] != ELSEWHERE and isinstance(nodes[v].meta["val"], torch.Tensor)}
    flips = {"b": found.roles.get("b_turned") is True, "k": found.roles.get("k_transposed") is False}
    return [(said[k], nodes[v], flips.get(k, False)) for k, v in told.items()]


def _ending(text: str, expression: str, node: Node) -> str:
    """The text with the expression as its result: at the end, or where its names mean something else there, before."""
    names = re.findall(r"[A-Za-z_]\w*", expression)
    lines = text.splitlines()
    end = next(i for i, line in enumerate(lines) if line.startswith("return"))
    if any(len(re.findall(rf"^{name}(?::| =)", text, flags=re.M)) > 1 for name in names):
        own = node.meta["custom"]["at"][0]
        end = own if expression.isidentifier() else own - 1
    return "\n".join([*lines[:end], f"return {expression}", ""])


def _value(node: Node, values: dict[Node, Any]) -> Any:
    if node not in values:
        for source in node.all_input_nodes:
            _value(source, values)
        args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
        values[node] = node.target(*args, **kwargs)  # type: ignore[operator]
    return values[node]


def test_a_transposed_weight_is_shown_as_it_was_given() -> None:
    call = shown(t.LINEAR_LOSS.format(more=""))["library:torch.nn.functional.linear_cross_entropy"]
    assert call.startswith("F.linear_cross_entropy(x, w, t, reduction='mean', ")
    as_given = shown(t.LINEAR_LOSS.format(more="").replace("[1000, 256]", "[256, 1000]").replace("w.t()", "w"))
    assert as_given["library:liger_kernel.fused_linear_cross_entropy"].startswith(
        "liger_fused_linear_cross_entropy(x, w.t(), t, "
    )


def test_logits_are_shown_in_the_dtype_of_the_text() -> None:
    calls = shown(t.LINEAR_LOSS.format(more=""))
    assert calls["library:liger_kernel.cross_entropy"] == "liger_cross_entropy((x @ w.t()).float(), t)"
    assert "flag_gems.cross_entropy_loss((x @ w.t()).float(), t" in calls["library:flag_gems.cross_entropy_loss"]


def test_a_name_that_means_something_else_by_then_is_not_used() -> None:
    """z is the product, the sum and the result in turn: the GELU's operand is z, as the lines before it left it."""
    graph = lower(parse(CHAIN))
    spelled = [Spelling(graph).roles(m)["x"] for m in everything(graph, match(graph)) if m.kind == "activation"]
    assert spelled == ["z"]
    text = "x: f32[64, 128]\ny = x * 2\ny = y + 1\nz = torch.exp(x * 3)\nreturn torch.softmax(z, -1) * y\n"
    assert shown(text)["library:torch.softmax"] == "torch.softmax(z, dim=-1)"
    taken = "x: f32[64, 128]\na = x * 2\nb = a\na = x + 1\nreturn torch.softmax(b, -1) * a\n"
    assert shown(taken)["library:torch.softmax"] in ("torch.softmax(b, dim=-1)", "torch.softmax(x * 2, dim=-1)",
                                                     "torch.softmax(..., dim=-1)")  # fmt: skip


def test_a_value_of_a_loop_is_left_out() -> None:
    text = "x: f32[64, 128]\nfor i in range(2):\n    x = torch.softmax(x * i, -1)\nreturn x\n"
    assert shown(text)["library:torch.softmax"] == "torch.softmax(..., dim=-1)"


@pytest.mark.parametrize(
    ("text", "other"),
    [("w.t()", "w"), ("w.T", "w"), ("w.transpose(0, 1)", "w"), ("w.transpose(-1, -2)", "w"), ("w", "w.t()"),
     ("a @ b", "(a @ b).t()"), ("w.transpose(1, 2)", "w.transpose(1, 2).t()")],
)  # fmt: skip
def test_a_transposition_is_taken_back(text: str, other: str) -> None:
    assert turned(text) == other


def test_a_negation_is_taken_back() -> None:
    assert [negated(m) for m in ("m", "~m", "a == b", "~(a == b)")] == ["~m", "m", "~(a == b)", "a == b"]


def test_sizes_of_a_group_norm_are_numbers() -> None:
    call = shown(t.GROUP.format(n=512))
    assert call["library:torch.nn.functional.group_norm"] == "F.group_norm(x, 16, weight=w, bias=b, eps=1e-05)"
    assert call["library:liger_kernel.group_norm"] == "liger_group_norm(x, w, b, 64, 16, 1e-05)"
    assert call["library:flag_gems.group_norm"] == "flag_gems.group_norm(x, w, b, 8, 64, 512, 16, 1e-05)"


def test_gradients_that_come_in_are_called_as_the_graph_calls_its_inputs() -> None:
    graph = lower(parse("x: f32[64, 128].requires_grad\nw: f32[32, 128]\nreturn x @ w.t()\n"))
    spelling = Spelling(graph)
    said = [spelling.roles(m) for m in everything(graph, match(graph)) if m.kind == "gemm"]
    assert [(r["a"], r["b"]) for r in said] == [("x", "w.t()"), ("upstream_0", "w")]
