"""The table of operations against the Inductor that is installed, against the oracle, and against what reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
import torch

from app.estimate import facts
from kernels.codegen.expressions import ops, rules
from kernels.codegen.graph import prepare
from kernels.libraries.patterns import recognised
from profiler.oracle.inductor.answer import predict
from profiler.region import op_kinds
from profiler.region.graph import reduction_splits
from profiler.region.graph.fusion import groups
from profiler.region.graph.lowering import lower
from profiler.region.language import checks, vocabulary
from profiler.region.language.text import parse
from profiler.region.mining import unit_letters
from profiler.region.operations import BY_NAME, LIBRARY_KINDS, OPERATIONS, TORCH, Falls, find
from tests.profiler.oracle.asking import device
from tests.profiler.region import calls
from tests.profiler.region.inductor import ALWAYS, NEVER, SOMETIMES, left_to_aten

UNCALLED = {"F.gaussian_nll_loss": "asks whether any variance is negative", "torch.fft.ifft": "gives complex numbers"}
"""Functions of the language that no region can return alone."""

MATCHES: dict[Falls, set[str]] = {
    Falls.NEVER: {NEVER},
    Falls.ALWAYS: {ALWAYS},
    Falls.SORT_OPS: {SOMETIMES, ALWAYS},  # torch 2.13 made an option of it, that is off
    **{key: {NEVER, SOMETIMES} for key in (Falls.PARTS, Falls.SORTS, Falls.ATOMIC, Falls.REDUCED)},  # in a part of it
    **{key: {NEVER, SOMETIMES} for key in (Falls.OFF_GPU, Falls.UNSIZED)},  # or in no call that a region says
}
"""What Inductor's tables say of operations that fall back so; of the rest: sometimes."""


def overloads(name: str) -> Iterator[torch._ops.OpOverload]:
    """Overloads of an operation that a graph without side effects may call."""
    packet = getattr(torch.ops.aten, name, None)
    for overload in packet.overloads() if packet is not None else ():
        schema = getattr(packet, overload)._schema
        plain = not any(word in overload for word in ("out", "generator", "values", "int", "float", "complex", "str"))
        if plain and any("Tensor" in str(r.type) for r in schema.returns):
            yield getattr(packet, overload)


def disagreements(called: list[torch._ops.OpOverload]) -> list[str]:
    collected = []
    for overload in called:
        row = find(overload._schema.name.removeprefix("aten::"))
        if row is None or row.kind in LIBRARY_KINDS - {op_kinds.OTHER, op_kinds.FFT} or overload._schema.is_mutable:
            continue  # a product is a library's call whatever lowers it; Inductor sees no changes in place
        says = left_to_aten(overload)
        if says not in MATCHES.get(row.falls, {SOMETIMES}):
            collected.append(f"{overload}: {row.falls.name} in the table, {says} by Inductor")
    return collected


def test_every_function_of_the_language_is_called() -> None:
    names = {f"{module}.{name}" for module, known in vocabulary.functions().items() for name in known}
    assert names - calls.lowered().keys() == UNCALLED.keys()


def test_a_region_can_call_an_operation_by_every_module_of_its_row() -> None:
    for row in OPERATIONS:
        for module in row.language.split():
            name = row.name.removeprefix("special_") if module == "torch.special" else row.name
            assert vocabulary.function(module, name) is not None, f"no region can say {module}.{name}"


def test_every_operation_that_the_language_reaches_has_a_row() -> None:
    reached = {o.target for _, graph in calls.lowered().values() for o in graph.operations if "aten." in o.target}
    assert len(reached) > 300
    assert not {t for t in reached if find(op_kinds.base_name(t)) is None}


def test_operations_that_the_language_reaches_fall_back_as_inductor_has_it() -> None:
    nodes = (n for _, graph in calls.lowered().values() for n, _ in graph.named_calls)
    reached = {n.target for n in nodes if isinstance(n.target, torch._ops.OpOverload) and n.target.namespace == "aten"}
    wrong = disagreements(sorted(reached, key=str))
    assert len(wrong) <= (0 if torch.__version__.startswith(TORCH) else len(reached) // 50), "; ".join(wrong)


def test_operations_that_only_traces_have_fall_back_as_inductor_has_it() -> None:
    known = [o for row in OPERATIONS if row.falls != Falls.NEVER for o in overloads(row.name)]
    wrong = disagreements(known)
    assert len(wrong) <= (0 if torch.__version__.startswith(TORCH) else len(known) // 50), "; ".join(wrong)


ROWS = "x: f32[64, 1024]\n"
PLACES = "i: i64[64].below(64)\n"
PICTURE = "c: f32[4, 16, 63, 63]\n"
PLANES = "x: i64[64, 1024]\n"
ASKED: dict[str, list[str]] = {
    # region -> calls that the oracle leaves to aten
    ROWS + "return torch.angle(x) * 2\n": [],
    ROWS + "return torch.digamma(x) * 2\n": ["aten.digamma"],
    ROWS + "return torch.polygamma(1, x * 2)\n": ["aten.polygamma"],
    ROWS + "return torch.logcumsumexp(x, -1) * 2\n": [],
    ROWS + "return torch.cumsum(x, -1) * 2\n": [],
    "x: f32[4, 1048576]\nreturn torch.cumsum(x, -1)\n": [],
    ROWS + "v, i = torch.cummax(x, -1)\nreturn v * 2, i\n": [],
    "x: f32[4, 1048576]\nv, i = torch.cummax(x, -1)\nreturn v, i\n": ["aten.cummax"],
    "x: f32[1024, 8192]\nv, i = torch.cummin(x, 0)\nreturn v, i\n": ["aten.cummin"],
    "x: f32[64, 512]\nv, i = torch.sort(softmax(x, -1), -1)\nreturn v * 2, i\n": [],
    "x: f32[64, 513]\nv, i = torch.sort(x, -1)\nreturn v * 2, i\n": ["aten.sort"],
    "x: f32[513, 64]\nv, i = torch.sort(x, 0)\nreturn v, i\n": ["aten.sort"],
    "x: f32[64, 64]\nv, i = torch.topk(x, 8)\nreturn v * 2, i\n": ["aten.topk"],
    ROWS + "v, i = torch.median(x, -1)\nreturn v, i\n": ["aten.median"],
    ROWS + "e: f32[1024]\nreturn torch.bucketize(x * 2, e)\n": [],
    ROWS + "m: bool[64, 1024]\nreturn torch.masked_scatter(x, m, x)\n": [],
    PICTURE + "return F.avg_pool2d(c, 5, 1)\n": [],
    PICTURE + "return F.avg_pool2d(c, 6, 1)\n": ["aten.avg_pool2d"],
    PICTURE + "return F.avg_pool2d(c, 9)\n": [],
    PICTURE + "return F.adaptive_avg_pool2d(c, 7)\n": [],
    PICTURE + "return F.adaptive_avg_pool2d(c, 8)\n": ["aten._adaptive_avg_pool2d"],
    PICTURE + "return F.adaptive_max_pool2d(c, 20)\n": [],
    PICTURE + "return F.adaptive_max_pool2d(c, 8)\n": ["aten.adaptive_max_pool2d"],
    PICTURE + "return F.unfold(c, 3)\n": [],
    ROWS + PLACES + "return torch.index_add(x, 0, i, x)\n": [],
    ROWS.replace("f32", "bf16") + PLACES + "return torch.index_add(x, 0, i, x)\n": ["aten.index_add"],
    ROWS + PLACES + "return torch.index_reduce(x, 0, i, x, 'amax')\n": ["aten.index_reduce"],
    ROWS + PLACES + "return torch.index_reduce(x, 0, i, x, 'mean')\n": [],
    PLANES + PLACES + "return torch.index_put(x, (i,), x, accumulate=True)\n": ["aten.index_put_"],
    PLANES + PLACES + "return torch.index_put(x, (i,), x)\n": [],
    "x: f32[64, 64]\nj: i64[64, 64].below(64)\nreturn torch.scatter_reduce(x, 0, j, x, 'sum')\n": [],
    "x: f32[64, 64]\nj: i64[64, 64].below(64)\nreturn torch.scatter_reduce(x, 0, j, x, 'amax')\n": [
        "aten.scatter_reduce_"
    ],
    PLANES + "return torch.pow(x, x) + 1\n": ["aten.pow"],
    PLANES + "return torch.pow(x, 3) + 1\n": [],
    "x: f32[64, 64]\ny: f32[1024]\nreturn torch.isin(x, y)\n": ["aten.sort"],
    "x: f32[64, 64]\ny: f32[16]\nreturn torch.isin(x, y)\n": [],
    ROWS + "z = torch.complex(x, x)\nreturn torch.view_as_real(z * z)\n": ["aten.complex", "aten.mul"],
}
VIEWS_AND_ZEROS = ("zero_", "aten.view_as_real")
"""Calls that launch nothing of the region's: views, and the workspace of a split scan."""


@pytest.mark.parametrize("text", ASKED)
def test_a_call_that_fuses_by_the_rules_is_left_to_aten_or_the_other_way_round(text: str) -> None:
    answer = predict(parse(text), None, device())
    assert not answer.unavailable
    assert [e.name for e in answer.externs if e.name not in VIEWS_AND_ZEROS] == ASKED[text]
    graph = lower(parse(text))
    left = [g for g in groups(graph) if not g.fused]
    assert len(left) == len(ASKED[text])
    assert [o.name for o in graph.operations if o.extern and o.kind != op_kinds.VIEW] == [
        n for g in left for n in g.operations
    ]


# -- tables that know more of some operations


ALIASES = {"gelu_tanh": "gelu", "gelu_tanh_backward": "gelu_backward", "clamp_both": "clamp", "pow_tensor": "pow",
           "trunc_divide": "div", "isneginf": "isinf", "isposinf": "isinf"}  # fmt: skip
"""Forms of an operation that a table tells apart."""


def kinds_of(names: Iterable[str]) -> dict[str, str | None]:
    found = {}
    for name in names:
        row = find(ALIASES.get(name, name))
        found[name] = row and row.kind
    return found


def test_what_the_generator_knows_has_the_kind_of_the_table() -> None:
    reduces = {op_kinds.REDUCTION, op_kinds.NORMALISATION, op_kinds.SOFTMAX}
    for names, allowed in (
        (ops.POINTWISE, {op_kinds.POINTWISE}),
        (ops.REDUCTIONS, reduces),
        (ops.FILLS, {op_kinds.CONSTANT, op_kinds.COPY}),
        (ops.VIEWS, {op_kinds.VIEW, op_kinds.COPY}),
        (ops.CASTS, {op_kinds.COPY, op_kinds.POINTWISE, op_kinds.CONSTANT}),
    ):
        assert {n: k for n, k in kinds_of(names).items() if k not in allowed} == {}
    assert not [n for n in (*ops.POINTWISE, *ops.REDUCTIONS) if BY_NAME[ALIASES.get(n, n)].falls == Falls.ALWAYS]
    assert {n for n, k in kinds_of({*rules.RULES, *prepare.INSIDE} - {"getitem"}).items() if k is None} == set()


def test_rules_of_splits_reductions_and_dtypes_name_operations_of_the_table() -> None:
    assert set(kinds_of(reduction_splits.SPLIT).values()) == {op_kinds.REDUCTION}
    assert set(kinds_of(reduction_splits.NORMS).values()) == {op_kinds.NORMALISATION}
    assert set(kinds_of(reduction_splits.SOFTMAXES).values()) == {op_kinds.SOFTMAX}
    assert None not in kinds_of(checks._RULES.keys()).values()
    assert set(kinds_of(facts.CURVED).values()) == {op_kinds.POINTWISE}
    assert set(kinds_of(facts.ACCUMULATING).values()) == {op_kinds.SCATTER}
    assert None not in kinds_of(recognised.KIND_OF_CALL).values()


KINDS_OF_LETTERS = {
    "L": {op_kinds.GEMM},
    "M": {op_kinds.GEMM},
    "G": {op_kinds.GEMM},
    "C": {op_kinds.CONVOLUTION},
    "A": {op_kinds.ATTENTION},
    "S": {op_kinds.SOFTMAX},
    "l": {op_kinds.SOFTMAX},
    "N": {op_kinds.NORMALISATION},
    "B": {op_kinds.NORMALISATION},
    "b": {op_kinds.REDUCTION},
    "W": {op_kinds.SCATTER},
    "Z": {op_kinds.GATHER},
    "I": {op_kinds.GATHER},
    "K": {op_kinds.SORT},
    "g": {op_kinds.POINTWISE},
    "i": {op_kinds.POINTWISE},
    "u": {op_kinds.POINTWISE},
    "x": {op_kinds.POINTWISE},
    "y": {op_kinds.COPY, op_kinds.VIEW},
}


@pytest.mark.parametrize("letter", KINDS_OF_LETTERS)
def test_a_letter_of_a_trace_stands_for_operations_of_one_kind(letter: str) -> None:
    told = kinds_of(unit_letters.LETTERS[letter].split())
    assert {n: k for n, k in told.items() if k not in {None, *KINDS_OF_LETTERS[letter]}} == {}


def test_an_operation_stands_in_the_table_once() -> None:
    assert len(BY_NAME) == len(OPERATIONS)
    assert {o.kind for o in OPERATIONS} <= set(op_kinds.KINDS)
    assert [(op_kinds.KINDS.index(o.kind), o.name) for o in OPERATIONS] == sorted(
        (op_kinds.KINDS.index(o.kind), o.name) for o in OPERATIONS
    )
