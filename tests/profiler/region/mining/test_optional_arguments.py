"""Arguments that may be absent, stand in another order than the schema's, or are written into: texts hold them all."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from profiler.region.language import vocabulary
from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.mining.mine import MinedRegion, mine
from profiler.region.mining.output_shapes import ALLOWED
from profiler.region.mining.render import METHODS_OF_DIM, OPERATORS, REDUCTIONS, SPECIAL, VIEWS
from profiler.trace.read.reader import read_trace
from tests.profiler.region.recording import record
from tests.profiler.trace.files import annotation, kernel, launch, op, written

IMAGE, ROWS, CHANNELS = torch.randn(8, 16, 10, 10), torch.randn(32, 64), torch.rand(16)
SIGNAL, CLASSES, SHARES = torch.randn(8, 16, 20), torch.rand(64), torch.rand(32, 64)
TABLE, IDS, OFFSETS = torch.randn(100, 64), torch.randint(0, 100, (50,)), torch.arange(0, 50, 5)
TARGET, WEIGHTS = torch.randint(0, 64, (32,)), torch.rand(50)

Case = tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]
CASES: dict[str, Case] = {
    "group_norm": (lambda x, w, b: F.group_norm(x, 4, w, b), (IMAGE, CHANNELS, CHANNELS + 1)),
    "group_norm without weights": (lambda x: F.group_norm(x, 4), (IMAGE,)),
    "group_norm with a weight alone": (lambda x, w: F.group_norm(x, 4, w), (IMAGE, CHANNELS)),
    "instance_norm": (F.instance_norm, (SIGNAL,)),
    "instance_norm with weights": (lambda x, w, b: F.instance_norm(x, weight=w, bias=b), (SIGNAL, CHANNELS, CHANNELS)),
    "embedding_bag": (lambda w, i, o: F.embedding_bag(i, w, o), (TABLE, IDS, OFFSETS)),
    "embedding_bag of sums": (
        lambda w, i, o, s: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=s), (TABLE, IDS, OFFSETS, WEIGHTS),
    ),
    "embedding_bag with padding": (
        lambda w, i, o: F.embedding_bag(i, w, o, mode="max", padding_idx=3), (TABLE, IDS, OFFSETS),
    ),
    "cross_entropy": (lambda x, t, w: F.cross_entropy(x, t, w), (ROWS, TARGET, CLASSES)),
    "nll_loss": (lambda x, t, w: F.nll_loss(x, t, w, reduction="sum"), (ROWS, TARGET, CLASSES)),
    "binary cross entropy": (
        lambda x, t, w: F.binary_cross_entropy_with_logits(x, t, weight=w), (ROWS, SHARES, SHARES * 2),
    ),
    "binary cross entropy with positive weights": (
        lambda x, t, w: F.binary_cross_entropy_with_logits(x, t, pos_weight=w, reduction="sum"),
        (ROWS, SHARES, CLASSES),
    ),
    "an unreduced loss": (lambda x, t: F.mse_loss(x, t, reduction="none"), (ROWS, SHARES)),
    "divergence": (lambda x, t: F.kl_div(x, t, reduction="sum"), (ROWS, SHARES)),
    "tensordot": (lambda x, w: torch.tensordot(x, w, dims=1), (ROWS, torch.randn(64, 48))),
}  # fmt: skip


def mined(path: Path, function: Callable[..., object], *args: torch.Tensor) -> list[MinedRegion]:
    return list(mine(read_trace(record(path, function, *args))).regions)


@pytest.mark.parametrize("name", CASES)
def test_an_absent_argument_is_none_and_a_given_one_is_in_the_text(name: str, tmp_path: Path) -> None:
    function, args = CASES[name]
    region = next(r for r in mined(tmp_path / "t.json", function, *args) if r.title != "broadcast_tensors")
    assert region.text is not None, region.missing
    built = program(parse(region.text))
    assert [tuple(i.shape) for i in built.inputs] == [tuple(a.shape) for a in args]
    result = built.module(*args)
    torch.testing.assert_close(result[0] if isinstance(result, tuple) else result, function(*args))


def test_no_function_is_written_in_the_order_of_a_schema_that_differs() -> None:
    """Every function that is written by its schema takes what the schema requires in that order."""
    own = {*SPECIAL, *OPERATORS, *VIEWS, *REDUCTIONS, *METHODS_OF_DIM}
    differ = []
    for name in sorted(ALLOWED - own):
        function, packet = vocabulary.function("", name), getattr(torch.ops.aten, name, None)
        if function is None or packet is None:
            continue
        try:
            names = [p.name for p in inspect.signature(function).parameters.values()]
        except ValueError:
            continue  # made from the schema
        if names[:1] in (["args"], ["tensors"]):
            continue
        for label in packet.overloads():
            if any(a.is_out for a in getattr(packet, label)._schema.arguments):
                continue
            required = [a.name for a in getattr(packet, label)._schema.arguments if not a.has_default_value()]
            required = ["input" if a == "self" else a for a in required]
            if required and required[0] in ("input", "weight") and required != names[: len(required)]:
                differ.append((name, label, required, names))
    # `train` is `training`, and a dtype is always written by its name
    known = {("alpha_dropout", "default"), ("norm", "ScalarOpt_dim_dtype"), ("norm", "ScalarOpt_dtype")}
    assert {(name, label) for name, label, *_ in differ} <= known, differ


OUTS = {
    "mm": (lambda x, w: torch.mm(x, w, out=torch.empty(0)), (ROWS, torch.randn(64, 48)), "y = x @ w"),
    "exp": (lambda x: torch.exp(x, out=torch.empty(0)), (ROWS,), "y = exp(x)"),
    "addmm": (
        lambda b, x, w: torch.addmm(b, x, w, out=torch.empty(0)), (torch.randn(48), ROWS, torch.randn(64, 48)),
        "y = addmm(b, x, w)",
    ),
    "max": (lambda x: torch.max(x, dim=1, out=(torch.empty(0), torch.empty(0, dtype=torch.int64))), (ROWS,), "max("),
}  # fmt: skip


@pytest.mark.parametrize("name", OUTS)
def test_the_tensor_that_a_result_is_written_into_is_no_operand(name: str, tmp_path: Path) -> None:
    function, args, expected = OUTS[name]
    region = next(r for r in mined(tmp_path / "t.json", function, *args) if r.operations == (name,))
    assert region.text is not None, region.missing
    assert expected in region.text
    assert [tuple(i.shape) for i in parse(region.text).inputs] == [tuple(a.shape) for a in args]


SIZES = [(64, 32 * (1 + i % 3), 96 * (1 + i // 3)) for i in range(9)]


def test_products_of_a_compiled_backward_are_told_apart_by_their_sizes(tmp_path: Path) -> None:
    """34 products of nine shapes, each written into a buffer: nine bindings, with their own calls and times."""
    events = [annotation(f"ProfilerStep#{i}", 4e4 * i, 4e4) for i in range(2)]
    for step in range(2):
        events.append(op("CompiledFunctionBackward", 4e4 * step + 1, 39_000))
        for i in range(34):
            m, k, n = SIZES[i % 9]
            ts, number = 4e4 * step + 100 + 1_000 * i, 34 * step + i + 1
            sizes, strides = [[m, k], [k, n], [m, n]], [[k, 1], [n, 1], [n, 1]]
            fields = {"Input Dims": sizes, "Input Strides": strides, "Input type": ["c10::BFloat16"] * 3}
            events += [op("aten::mm", ts, 50, **fields), launch(ts + 10, number), kernel(ts + 60, 5 + i % 9, number)]
    mining = mine(read_trace(written(tmp_path, json.dumps({"traceEvents": events}))))
    bound = [(s.operands, s.calls_per_step, s.time_us_per_step) for r in mining.regions for s in r.shapes if r.text]
    assert len({operands for operands, _, _ in bound}) == len(bound) == 9
    assert sum(calls for _, calls, _ in bound) == 34
    assert {round(time / calls) for _, calls, time in bound} == set(range(5, 14))


def _trained_bias(path: Path, bias: torch.Tensor, layers: int = 1) -> MinedRegion:
    q, k, v = (torch.randn(2, 4, 16, 32, requires_grad=True) for _ in range(3))

    def train() -> None:
        scores = q @ k.transpose(-2, -1) / 32**0.5 + bias
        (torch.softmax(scores, -1) @ v).sum().backward()

    return next(r for r in mined(path, train) if r.title == "attention by hand")


def test_a_mask_that_is_added_to_scores_gets_no_gradient(tmp_path: Path) -> None:
    region = _trained_bias(tmp_path / "t.json", torch.randn(1, 4, 16, 16))
    assert "bias: f32[1, 4, 16, 16]\n" in (region.text or "")
    assert "q: f32[2, 4, 16, 32].requires_grad" in (region.text or "")


def test_a_bias_whose_gradient_the_step_sums_has_one(tmp_path: Path) -> None:
    region = _trained_bias(tmp_path / "t.json", torch.randn(1, 4, 16, 16, requires_grad=True))
    assert "bias: f32[1, 4, 16, 16].requires_grad\n" in (region.text or "")


def test_a_losss_target_and_weights_get_no_gradient(tmp_path: Path) -> None:
    x = torch.randn(32, 64, requires_grad=True)

    def train() -> None:
        F.binary_cross_entropy_with_logits(x, SHARES, weight=SHARES, pos_weight=CLASSES).backward()

    region = next(r for r in mined(tmp_path / "t.json", train) if r.title.startswith("binary_cross_entropy"))
    inputs = parse(region.text or "").inputs
    assert [i.requires_grad for i in inputs] == [True, False, False, False]


def test_which_of_equal_tensors_is_read_is_said_to_be_assumed(tmp_path: Path) -> None:
    """Values and indices of a sort of whole numbers look alike, and so do both operands of a difference."""
    numbers = torch.randint(0, 100, (32, 64))

    def rank() -> torch.Tensor:
        top, places = torch.topk(numbers, 8, dim=1)
        return (places * 2).gather(1, top % 8)

    notes = [a for r in mined(tmp_path / "t.json", rank) for a in r.assumed]
    assert any("equal tensors" in note for note in notes), notes
    regions = mined(tmp_path / "u.json", lambda x: torch.exp(x) - torch.sin(x), ROWS)
    assert [a for r in regions for a in r.assumed] == ["which of its equal operands is which in sub"]


BF16, F32 = "c10::BFloat16", "float"
HEADS, SUMS = [4, 16, 1024, 64], [4, 16, 1024, 1]
ATTENTION_BACKWARDS: dict[str, list[tuple[list[int], str, str]]] = {
    "cudnn": [(HEADS, BF16, "")] * 5 + [(SUMS, F32, "")] + [([], "long int", "")] * 2 + [([], "", "")] * 3
    + [([], "Scalar", "1024"), ([], "Scalar", "1024"), ([], "Scalar", "0."), ([], "Scalar", "True"), ([], "", "")],
    "flash": [(HEADS, BF16, "")] * 5 + [(SUMS[:3], F32, ""), ([], "", ""), ([], "", "")]
    + [([], "Scalar", "1024"), ([], "Scalar", "1024"), ([], "Scalar", "0."), ([], "Scalar", "True")]
    + [([], "unsigned long", ""), ([], "unsigned long", ""), ([], "Scalar", "0.125")],
    "efficient": [(HEADS, BF16, "")] * 4 + [([], "", ""), (HEADS, BF16, ""), (SUMS[:3], F32, "")]
    + [([], "long int", "")] * 2 + [([], "Scalar", "0."), ([], "ScalarList", "[True, True, True, False]")]
    + [([], "Scalar", "False"), ([], "", "")],
}  # fmt: skip
"""What a trace of compiled code records of the backward, by backend: sizes, type, value."""


@pytest.mark.parametrize("backend", ATTENTION_BACKWARDS)
def test_the_backward_of_a_librarys_attention_is_a_text(backend: str, tmp_path: Path) -> None:
    """In compiled code it stands alone; what its forward had none of is undefined, and seeds are tensors."""
    name = f"aten::_scaled_dot_product_{backend}_attention_backward"
    sizes, types, values = (list(column) for column in zip(*ATTENTION_BACKWARDS[backend], strict=True))
    fields = {"Input Dims": sizes, "Input type": types, "Concrete Inputs": values}
    events: list[dict[str, object]] = []
    for step in range(2):
        at = 1e4 * step
        events += [annotation(f"ProfilerStep#{step}", at, 1e4), op("CompiledFunctionBackward", at + 1, 5_000)]
        events += [op(name, at + 10, 50, **fields), launch(at + 20, step + 1), kernel(at + 60, 90, step + 1)]
    (region,) = mine(read_trace(written(tmp_path, json.dumps({"traceEvents": events})))).regions
    assert region.text is not None, region.missing
    inputs = {i.name: (i.dtype, i.shape) for i in parse(region.text).inputs}
    assert {n: inputs[n] for n in ("grad", "q", "k", "v", "out")} == dict.fromkeys(
        ("grad", "q", "k", "v", "out"), ("bf16", tuple(HEADS))
    )
    assert inputs["seed"] == inputs["offset"] == ("i64", ())


def test_a_gradient_that_nobody_asked_for_keeps_its_place(tmp_path: Path) -> None:
    """A convolution's backward without that of the image: weights' and bias' gradients are the second and third."""
    grad, x, w = torch.randn(2, 8, 10, 10), torch.randn(2, 4, 10, 10), torch.randn(8, 4, 3, 3)
    rest = ([8], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [False, True, True])

    def backward(grad: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> None:
        torch.ops.aten.convolution_backward(grad, x, w, *rest)

    (region,) = mined(tmp_path / "t.json", backward, grad, x, w)
    assert region.text is not None, region.missing
    _, weight, bias = torch.ops.aten.convolution_backward(grad, x, w, *rest)
    results = program(parse(region.text)).module(grad, x, w)
    torch.testing.assert_close(list(results), [weight, bias])


def test_a_norms_sizes_are_its_weights_where_a_trace_has_no_numbers(tmp_path: Path) -> None:
    """Traces before torch 2.0 have tensors' sizes and no numbers."""
    path = record(tmp_path / "t.json", lambda x, w, b: F.layer_norm(x, (64,), w, b), ROWS, CLASSES, CLASSES)
    document = json.loads(path.read_text())
    for event in document["traceEvents"]:
        event.get("args", {}).pop("Concrete Inputs", None)
    (region,) = mine(read_trace(written(tmp_path, json.dumps(document)))).regions
    assert region.text is not None, region.missing
    (result,) = program(parse(region.text)).module(ROWS, CLASSES, CLASSES)
    torch.testing.assert_close(result, F.layer_norm(ROWS, (64,), CLASSES, CLASSES))


@pytest.mark.parametrize("join", [torch.cat, torch.stack])
def test_what_is_joined_has_the_type_that_the_result_is_read_as(
    join: Callable[..., torch.Tensor], tmp_path: Path
) -> None:
    """A trace has no types of a list's tensors; here they come from outside, so that only a reader tells."""
    halves = [torch.randn(32, 64, dtype=torch.bfloat16) for _ in range(2)]
    (region,) = mined(tmp_path / "t.json", lambda: join(halves, 0).exp())
    assert region.text is not None, region.missing
    assert [(i.dtype, i.shape) for i in parse(region.text).inputs] == [("bf16", (32, 64))] * 2
    assert any("type bf16" in a for a in region.assumed)
    (result,) = program(parse(region.text)).module(*halves)
    torch.testing.assert_close(result, join(halves, 0).exp())
