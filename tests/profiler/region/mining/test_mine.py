"""Real traces mined: the regions that a performance engineer names in them, and no kernel lost or counted twice."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from profiler.region.graph import patterns
from profiler.region.graph.lowering import lower
from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.mining.dataflow import flow, graph_of
from profiler.region.mining.infer_edges import infer
from profiler.region.mining.mine import COPIES, MinedRegion, mine
from profiler.region.mining.partition import partition
from profiler.region.mining.texts.call_arguments import UnwritableError
from profiler.region.mining.units import collect_units
from profiler.trace.analyze.steps import steady_step
from profiler.trace.model import NONE
from profiler.trace.read.reader import read_trace
from tests.conftest import DATA
from tests.profiler.region.mined import mined
from tests.profiler.region.recording import record
from tests.profiler.region.rows import ROWS, Row

TRACES = DATA / "traces"
FILES = sorted(
    p.name for p in TRACES.glob("*.json*") if p.name != "expected.json" and not p.name.endswith(".et.json.gz")
)
H200 = ("bert_", "gpt2_", "handrolled_", "large_t5_", "llama_", "mixtral_", "pyg_", "t5_", "timm_")


def find(row: Row) -> MinedRegion:
    _, mining = mined(f"{row.trace}.json.gz")
    same = [
        r
        for r in mining.regions
        if r.title == row.title
        and r.operations[: len(row.operations.split())] == tuple(row.operations.split())
        and r.calls_per_step >= row.calls
        and r.time_us_per_step >= row.share * mining.kernel_time_us
        and (not row.text or any(part in (r.text or "") for part in row.text.split("|")))
    ]
    assert same, [(r.title, r.operations, r.calls_per_step) for r in mining.regions if r.title == row.title] or [
        r.title for r in mining.regions[:20]
    ]
    return same[0]


@pytest.mark.parametrize("row", ROWS, ids=[f"{r.trace}-{r.title}" for r in ROWS])
def test_region_is_found(row: Row) -> None:
    region = find(row)
    if row.text is None:
        assert region.text is None
        assert row.missing in region.missing
        return
    if row.kind:
        assert region.kind == row.kind
    if row.shapes:
        assert len(region.shapes) == row.shapes
    assert region.calls_per_step == row.calls or row.title == "autocast cast"


def test_every_h200_trace_has_a_row() -> None:
    covered = {r.trace for r in ROWS} | {"handrolled_blocks_bf16_cudagraph"}
    assert {f.removesuffix(".json.gz") for f in FILES if f.startswith(H200)} <= covered


@pytest.mark.parametrize("name", FILES)
def test_every_kernel_is_in_one_region_or_one_rest(name: str) -> None:
    trace, mining = mined(name)
    begun = {s.start_us for s in mining.mined}  # steps may have one name
    expected = Counter(k for s in trace.steps if s.start_us in begun for k in s.kernels.tolist())
    counted = Counter(k for r in mining.regions for k in r.kernels)
    counted += Counter(k for r in mining.rests if r.name != COPIES for k in r.kernels)
    assert counted == expected
    total = sum(r.time_us_per_step for r in mining.regions)
    total += sum(r.time_us for r in mining.rests if r.name != COPIES)
    np.testing.assert_allclose(total, mining.kernel_time_us, rtol=1e-9, atol=1e-6)
    assert len({r.id_hint for r in mining.regions}) == len(mining.regions)
    times = [r.time_us_per_step for r in mining.regions]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("name", [f for f in FILES if f.startswith(H200) and "large" not in f])
def test_texts_run_at_every_size(name: str) -> None:
    _, mining = mined(name)
    for region in mining.regions:
        if region.text is None:
            assert region.missing
            continue
        parsed = parse(region.text)
        assert len(parsed.bindings) == len(region.shapes)
        for binding, shape in zip(parsed.bindings, region.shapes, strict=True):
            assert dict(shape.sizes) == binding
            program(parsed, binding)
        assert sum(s.calls_per_step for s in region.shapes) == pytest.approx(region.calls_per_step)
        assert sum(s.time_us_per_step for s in region.shapes) == pytest.approx(region.time_us_per_step)


SAME_AS_PATTERNS = frozenset({"rms_norm", "attention", "rope", "swiglu", "gelu_tanh", "gemm_tail", "layer_norm"})


@pytest.mark.parametrize("name", [f for f in FILES if f.startswith(("handrolled", "llama", "mixtral", "t5", "gpt2"))])
def test_the_graph_of_a_text_is_what_the_trace_was_called(name: str) -> None:
    """Two recognisers that share nothing: letters of a trace, and the aten graph of the text made from it."""
    _, mining = mined(name)
    for region in mining.regions:
        if region.kind in SAME_AS_PATTERNS and region.text and ", " not in region.title:
            graph = lower(parse(region.text.replace(".requires_grad", "")))
            kind, title = patterns.region_kind(graph, patterns.match(graph))
            assert kind == region.kind, region.text
            assert title.startswith(region.title), region.text


def test_data_flow_is_that_of_the_execution_trace() -> None:
    """Inferred operands against the exact tensor ids of torch's execution trace of the same run."""
    name = "llama_eager_attention_prefill"
    trace = read_trace(TRACES / f"{name}.json.gz")
    exact: dict[int, Any] = {}
    with gzip.open(TRACES / f"{name}.et.json.gz") as file:
        for node in json.load(file)["nodes"]:
            attributes = {a["name"]: a.get("value") for a in node.get("attrs", ())}
            exact[attributes.get("rf_id", NONE)] = node
    step = steady_step(trace)
    taken = collect_units(trace, step)
    thread = [u for u in taken.units if not u.backward]
    right = wrong = 0
    cut = partition(trace, taken)
    graph = graph_of(taken.units, infer(thread))
    for part in cut:
        try:
            bound = flow(part, graph)
        except UnwritableError:
            continue
        for statement in bound.statements:
            inputs = exact[int(trace.ops.record_id[statement.unit.op])]["inputs"]["values"]
            for at, argument in enumerate(statement.call.names):
                values = statement.operands.get(argument, ())
                members = inputs[at] if values and isinstance(inputs[at][0], list) else [inputs[at]]
                real = [m for m in members if values and m[3]]
                for value, tensor in zip(values, real, strict=True):
                    if value.producer is not None:
                        made = exact[int(trace.ops.record_id[value.producer.unit.op])]["outputs"]["values"][value.index]
                        right, wrong = right + (made[0] == tensor[0]), wrong + (made[0] != tensor[0])
    assert right > 150
    assert wrong == 0


def test_cuda_graph_time_is_named() -> None:
    _, mining = mined("handrolled_blocks_bf16_cudagraph.json.gz")
    assert mining.regions == ()
    (graph,) = [r for r in mining.rests if r.name.startswith("CUDA graph")]
    assert graph.time_us == pytest.approx(mining.kernel_time_us)
    assert "record_shapes" in graph.remedy


def test_what_torch_compile_fused_is_named_as_such() -> None:
    _, mining = mined("handrolled_blocks_bf16_compiled.json.gz")
    compiled = [r for r in mining.regions if r.kind == "compiled"]
    assert sum(r.time_us_per_step for r in compiled) > 0.1 * mining.kernel_time_us
    assert all(r.title.startswith("torch.compile kernel triton_") and not r.by_hand for r in compiled)
    # What torch.compile left as it was written: two products with its softmax between them.
    (attention,) = [r for r in mining.regions if r.by_hand]
    assert attention.title == "attention by hand"
    assert attention.time_us_per_step > 0.4 * mining.kernel_time_us


def test_communication_is_no_region() -> None:
    _, mining = mined("tl_mi300_resnet_actckpt.json.gz")
    assert not any("nccl" in n.lower() or "rccl" in n.lower() for r in mining.regions for n in r.kernel_names)
    (wire,) = [r for r in mining.rests if r.name == "communication"]
    assert wire.time_us > 0.5 * mining.kernel_time_us


def test_checkpointed_forward_counts_as_forward() -> None:
    """What activation checkpointing runs again stands inside a backward node, and is no part of that node's region."""
    _, mining = mined("tl_mi300_resnet_actckpt.json.gz")
    again = [r for r in mining.regions if "batch_norm" in r.operations and not r.backward]
    assert sum(r.calls_per_step for r in again) > 8


def test_module_is_given_where_stacks_were_recorded() -> None:
    region = find(Row("gpt2_train_autocast_eager_stack", "GELU (tanh) by hand", "mul", 6, 0.1))
    assert "GPT2MLP" in region.module


def test_times_are_shares_of_the_step() -> None:
    _, mining = mined("llama_decode_bf16_eager.json.gz")
    assert mining.busy_us < 0.1 * mining.step_time_us  # launch-bound
    norm = mining.regions[0]
    assert norm.workload.share_of_step == pytest.approx(norm.time_us_per_step / mining.step_time_us)
    assert norm.workload.launches_per_step == norm.launches == 8 * norm.calls_per_step


def test_a_step_can_be_chosen() -> None:
    trace, _ = mined("bert_train_varlen_fp16_eager.json.gz")
    mining = mine(trace, trace.steps[2])
    assert mining.steps == (trace.steps[2].name,)
    assert all(len(r.shapes) == 1 for r in mining.regions if r.kind == "attention")


def test_an_empty_trace_has_no_regions(tmp_path: Path) -> None:
    """A trace without anything in it is an empty Mining, not an error."""
    empty = tmp_path / "empty.json"
    empty.write_text('{"traceEvents": []}')
    mining = mine(read_trace(empty))
    assert (mining.regions, mining.rests, mining.step_time_us) == ((), (), 0.0)


JUNK = (
    [],
    [[]],
    "x",
    None,
    -1,
    2**70,
    [1, 2],
    [[1, 2], [3]],
    "[1, 2",
    "",
    "Scalar",
    "TensorList",
    "float",
    "inf",
    True,
    {"a": 1},
)
NAMES = (
    "mul",
    "cat",
    "linear",
    "index",
    "matmul",
    "softmax",
    "layer_norm",
    "to",
    "transpose",
    "embedding",
    "sum",
    "from_file",
)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_arguments_lose_text_but_no_time(seed: int, tmp_path: Path) -> None:
    """Sizes, types, strides and names that do not fit each other: no error, and every kernel still counted."""
    with gzip.open(TRACES / "mixtral_prefill_bf16_eager.json.gz") as file:
        document = json.load(file)
    draw = random.Random(seed)
    for event in document["traceEvents"]:
        args = event.get("args")
        if event.get("cat") != "cpu_op" or not args or draw.random() > 0.05:
            continue
        key = draw.choice(("Input Dims", "Input type", "Input Strides", "Concrete Inputs"))
        if isinstance(args.get(key), list) and args[key] and draw.random() < 0.8:
            args[key][draw.randrange(len(args[key]))] = draw.choice(JUNK)
        elif draw.random() < 0.5:
            args[key] = draw.choice(JUNK)
        else:
            event["name"] = f"aten::{draw.choice(NAMES)}"
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(document))
    mining = mine(read_trace(path))
    total = sum(r.time_us_per_step for r in mining.regions)
    total += sum(r.time_us for r in mining.rests if r.name != COPIES)
    assert total == pytest.approx(mining.kernel_time_us)
    assert any(r.missing for r in mining.regions)


def test_products_without_a_text_are_a_binding_for_each_of_their_shapes(tmp_path: Path) -> None:
    """A trace loses the equation of an einsum: eighteen of nine shapes are one region of nine bindings."""
    weight = torch.randn(16, 24)
    inputs = [torch.randn(8 * rows, 16) for rows in range(1, 10) for _ in range(rows % 3 + 1)]

    def products() -> None:
        for x in inputs:
            torch.einsum("ij,jk->ik", x, weight)

    (region,) = mine(read_trace(record(tmp_path / "t.json", products))).regions
    assert region.text is None
    assert (region.calls_per_step, len(region.shapes)) == (18, 9)
    assert sum(s.calls_per_step for s in region.shapes) == 18
    assert sum(s.time_us_per_step for s in region.shapes) == pytest.approx(region.time_us_per_step)
    assert len({s.operands for s in region.shapes}) == 9
