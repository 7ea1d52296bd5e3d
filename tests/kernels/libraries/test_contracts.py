"""Every call that an adapter makes of another package fits the signature that the package publishes.

The signatures are those of tools/records/contracts.json, read from published sources: no package has to be here.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import kernels.libraries.calls as calls
from kernels.libraries.adapters.rewrite import adapt
from kernels.libraries.catalogue import ENTRIES
from kernels.libraries.covers import everything
from profiler.region.graph.lowering import lower
from profiler.region.graph.patterns import match
from profiler.region.language.text import parse
from tests.kernels.libraries import texts
from tools.records.record_contracts import Contract, contracts, function_in, parameters_of

FOLDER = Path(calls.__path__[0])
RECORDED = contracts()


@dataclass(frozen=True, slots=True)
class Made:
    """One call in an adapter's text: how many places it fills, and which names."""

    where: str
    dotted: str
    places: int
    names: tuple[str, ...]


def made_calls(text: str, where: str) -> Iterator[Made]:
    """Calls of what functions import inside of themselves, by the dotted name that is imported; none with a star."""
    for function in (n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)):
        known: dict[str, str] = {"torch": "torch"}
        for node in ast.walk(function):
            if isinstance(node, ast.Import):
                known |= {(a.asname or a.name.split(".")[0]): (a.asname and a.name) or a.name.split(".")[0]
                          for a in node.names}  # fmt: skip
            elif isinstance(node, ast.ImportFrom):
                known |= {(a.asname or a.name): f"{node.module}.{a.name}" for a in node.names}
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and not any(isinstance(a, ast.Starred) for a in node.args):
                dotted = _dotted(node.func, known)
                names = tuple(k.arg for k in node.keywords if k.arg is not None)
                yield Made(f"{where}:{function.name}", dotted, len(node.args), names)


def _dotted(node: ast.expr, known: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([known[node.id], *reversed(parts)]) if isinstance(node, ast.Name) and node.id in known else ""


def signature(contract: Contract) -> inspect.Signature:
    kinds = inspect.Parameter
    return inspect.Signature([
        kinds(p.name, getattr(kinds, p.kind), default=kinds.empty if p.required or "VAR" in p.kind else None)
        for p in contract.parameters
    ])  # fmt: skip


MADE = [m for p in sorted(FOLDER.glob("*.py")) for m in made_calls(p.read_text(), p.stem) if m.dotted in RECORDED]


@pytest.mark.parametrize("made", MADE, ids=lambda m: m.where)
def test_an_adapters_call_fits_the_published_signature(made: Made) -> None:
    signature(RECORDED[made.dotted]).bind(*range(made.places), **dict.fromkeys(made.names))


def test_every_adapter_of_the_serving_packages_has_its_contract() -> None:
    functions = {n.name for n in ast.parse((FOLDER / "serving.py").read_text()).body if isinstance(n, ast.FunctionDef)}
    held = {m.where.partition(":")[2] for m in MADE if m.where.startswith("serving:")}
    assert {f for f in functions if not f.startswith("_")} == held
    assert {m.where.partition(":")[0] for m in MADE} >= {"quack", "flash", "serving"}


def test_a_call_that_does_not_fit_is_found() -> None:
    contract = RECORDED["vllm._custom_ops.rms_norm"]
    with pytest.raises(TypeError):
        signature(contract).bind(1, 2, 3)
    with pytest.raises(TypeError):
        signature(contract).bind(1, 2, 3, eps=4)


def test_contracts_say_where_they_are_from() -> None:
    for dotted, contract in RECORDED.items():
        assert contract.version[0].isdigit() and contract.file.endswith(".py") and contract.parameters, dotted


def test_a_signature_is_read_with_its_kinds_and_the_last_of_overloads() -> None:
    text = (
        "def f(a): ...\nif True:\n    def f(a, /, b, *more, c, d=1, **rest): ...\nclass K:\n    def go(ctx, x=2): ...\n"
    )
    read = [(p.name, p.kind, p.required) for p in parameters_of(function_in(text, "f"), False)]
    assert read == [
        ("a", "POSITIONAL_ONLY", True), ("b", "POSITIONAL_OR_KEYWORD", True), ("more", "VAR_POSITIONAL", False),
        ("c", "KEYWORD_ONLY", True), ("d", "KEYWORD_ONLY", False), ("rest", "VAR_KEYWORD", False),
    ]  # fmt: skip
    assert [p.name for p in parameters_of(function_in(text, "K.go"), True)] == ["x"]


@pytest.mark.parametrize(
    ("candidate", "text"),
    [("flashinfer.mm_fp4", texts.NVFP4), ("flashinfer.mm_mxfp8", texts.MXFP8), ("torchao.mx_fp8_bf16", texts.MXFP8)],
)
def test_a_block_scaled_product_is_rewritten_with_its_scales(candidate: str, text: str) -> None:
    graph = lower(parse(text))
    entry = next(e for e in ENTRIES if e.candidate == f"library:{candidate}")
    fitting = [m for m in everything(graph, match(graph)) if m.kind in entry.kinds]
    module = adapt(graph, fitting, entry.adapter)
    (result,) = next(n for n in module.graph.nodes if n.op == "output").args[0]
    assert (tuple(result.meta["val"].shape), result.meta["val"].dtype) == ((256, 512), torch.bfloat16)
    assert len(result.all_input_nodes) == 4
