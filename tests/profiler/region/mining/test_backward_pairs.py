"""Backward kernels stand with the forward operation that autograd numbered alike, read here straight from the JSON."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from profiler.region.mining.mine import MinedRegion, Mining, mine
from profiler.trace.model import Trace
from profiler.trace.read.reader import read_trace
from tests.conftest import DATA
from tests.profiler.region.mined import mined
from tests.profiler.region.recording import record

TRACES = DATA / "traces"
TRAINING = (
    "gpt2_train_autocast_eager",
    "gpt2_train_autocast_eager_stack",
    "bert_train_varlen_fp16_eager",
    "llama_train_bf16_eager",
    "t5_train_autocast_eager",
    "timm_convnext_train_channels_last",
    "timm_resnet50_train_fp32",
    "pyg_gcn_gat_train_fp32",
)
"""Recorded by one script each: nothing but their own forward and backward is in the window."""
OTHERS = ("tl_mi300_resnet_actckpt", "hta_nccl", "hta_trace_diff_control", "kineto_resnet50_workers0")
GRADIENTS = ("AccumulateGrad",)  # gradients put into parameters: no forward operation made these nodes


def document(name: str) -> dict[str, Any]:
    with gzip.open(TRACES / f"{name}.json.gz") as file:
        loaded: dict[str, Any] = json.load(file)
    return loaded


def is_node(op: dict[str, Any]) -> bool:
    return "evaluate_function" in op["name"] or "Backward" in op["name"]


def paired_in_json(events: list[dict[str, Any]]) -> dict[int, set[int]]:
    """Correlation of a backward kernel -> those of the kernels of the forward operation of the same sequence number.

    Only where one thread alone has a forward operation of that number.
    """
    ops = [e for e in events if e.get("cat") in ("cpu_op", "Operator") and "dur" in e]
    kernels = {e["args"]["correlation"] for e in events if e.get("cat") in ("kernel", "Kernel") and e.get("args")}
    runtime = [e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver", "Runtime")]
    launches = [e for e in runtime if (e.get("args") or {}).get("correlation") in kernels]
    stacks: dict[int, list[int]] = {}  # launch -> the ops that enclose it, from the outermost
    inside: dict[int, set[int]] = defaultdict(set)  # op -> correlations of its kernels
    above: dict[int, list[int]] = {}  # op -> the ops that enclose it
    by_thread: dict[Any, list[tuple[float, float, int, int]]] = defaultdict(list)
    for i, e in enumerate(ops):
        by_thread[e["pid"], e["tid"]].append((float(e["ts"]), -float(e["dur"]), 0, i))
    for i, e in enumerate(launches):
        by_thread[e["pid"], e["tid"]].append((float(e["ts"]), 0.0, 1, i))
    for marks in by_thread.values():
        open_: list[tuple[float, int]] = []
        for at, length, is_launch, i in sorted(marks):
            while open_ and open_[-1][0] <= at and open_[-1][0] < at - length + 1e-9:
                open_.pop()
            chain = [op for _, op in open_]
            if is_launch:
                stacks[i] = chain
                for op in chain:
                    inside[op].add(launches[i]["args"]["correlation"])
            else:
                above[i] = chain
                open_.append((at - length, i))
    last: dict[int, dict[Any, int]] = defaultdict(dict)
    for i in sorted(range(len(ops)), key=lambda i: (float(ops[i]["ts"]), -float(ops[i]["dur"]))):
        number = (ops[i].get("args") or {}).get("Sequence number", -1)
        if number >= 0 and not is_node(ops[i]):
            last[number][ops[i]["tid"]] = i
    found: dict[int, set[int]] = {}
    for i, chain in stacks.items():
        nodes = [op for op in chain if is_node(ops[op])]
        computed_again = any((ops[op]["args"] or {}).get("Sequence number", -1) >= 0 for op in chain if op not in nodes)
        if not nodes or computed_again or any(g in ops[nodes[-1]]["name"] for g in GRADIENTS):
            continue
        makers = last.get(ops[nodes[-1]]["args"].get("Sequence number", -1), {})
        if len(makers) != 1:
            continue
        (maker,) = makers.values()
        holding = [op for op in (maker, *reversed(above[maker])) if inside[op] and ops[op]["name"].startswith("aten::")]
        if holding:
            found[launches[i]["args"]["correlation"]] = inside[holding[0]]
    return found


def regions_of(trace: Trace, found: Mining) -> dict[int, MinedRegion]:
    """Correlation -> region."""
    return {int(trace.kernels.correlation[k]): r for r in found.regions for k in r.kernels}


@pytest.mark.parametrize("name", [*TRAINING, *OTHERS])
def test_every_backward_kernel_stands_with_the_forward_of_its_number(name: str) -> None:
    trace, mining = mined(f"{name}.json.gz")
    region = regions_of(trace, mining)
    ids = {r.id_hint for r in mining.regions}
    checked = 0
    for kernel, forward in paired_in_json(document(name)["traceEvents"]).items():
        own = region.get(kernel)
        partners = {region[f].id_hint for f in forward if f in region}
        if own is None or not partners:
            continue  # of another step than those mined
        assert own.id_hint in partners or own.forward_of in partners, (own.title, own.forward_of, partners)
        checked += 1
    assert checked > 30
    assert {r.forward_of for r in mining.regions} <= ids | {""}
    assert all(not r.forward_of or "backward" in r.title for r in mining.regions)
    assert all(bool(r.backward_time_us_per_step) == r.backward for r in mining.regions)


@pytest.mark.parametrize("name", TRAINING)
def test_the_time_of_both_passes_is_told_apart(name: str) -> None:
    """What autograd's nodes launched, by the JSON, is the backward time; nearly all of it stands with its forward."""
    trace, mining = mined(f"{name}.json.gz")
    backward = set()
    ops = trace.ops
    for region in mining.regions:
        for kernel in region.kernels:
            at = int(trace.kernels.op[kernel])
            while at >= 0:
                if "evaluate_function" in trace.names[int(ops.name[at])]:
                    backward.add(kernel)
                at = int(ops.parent[at])
    time = float(trace.kernels.duration_us[sorted(backward)].sum()) / len(mining.steps)
    assert mining.backward_time_us == pytest.approx(time)
    assert 0.3 * mining.kernel_time_us < time < 0.8 * mining.kernel_time_us
    assert mining.paired_backward_share is not None
    assert mining.paired_backward_share > 0.99
    assert all(r.forward_time_us_per_step >= 0 for r in mining.regions)
    assert all(bool(r.backward_time_us_per_step) == r.backward for r in mining.regions)


def test_numbers_that_a_recomputing_thread_counts_again_change_no_region(tmp_path: Path) -> None:
    """Activation checkpointing runs the forward again on autograd's thread, which numbers on its own from zero.

    Recorded late, its numbers lie below those of the forward; recorded in the first steps, the two overlap.
    """
    name = "tl_mi300_resnet_actckpt"
    want = [(r.id_hint, r.kernels, r.forward_of) for r in mine(read_trace(TRACES / f"{name}.json.gz")).regions]
    edited = document(name)
    numbered = [
        e for e in edited["traceEvents"]
        if e.get("cat") == "cpu_op" and (e.get("args") or {}).get("Sequence number", -1) >= 0
    ]  # fmt: skip
    threads = {is_node(e): e["tid"] for e in numbered if is_node(e)}
    first = min(e["args"]["Sequence number"] for e in numbered if is_node(e))
    again = [e for e in numbered if e["tid"] == threads[True] and not is_node(e)]
    lowest = min(e["args"]["Sequence number"] for e in again)
    assert lowest < first
    for event in again:
        event["args"]["Sequence number"] += first - lowest
    path = tmp_path / "overlapping.json"
    path.write_text(json.dumps(edited))
    got = [(r.id_hint, r.kernels, r.forward_of) for r in mine(read_trace(path)).regions]
    assert got == want


def trained(path: Path, function: Callable[..., torch.Tensor], *shapes: tuple[int, ...]) -> tuple[MinedRegion, ...]:
    args = [torch.randn(*s).requires_grad_() for s in shapes]
    upstream = torch.randn_like(function(*args))

    def train() -> None:
        function(*args).backward(upstream)  # type: ignore[no-untyped-call]

    return mine(read_trace(record(path, train))).regions


class Gate(torch.autograd.Function):
    """A gate with a backward written by hand."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, gate)
        return x * torch.sigmoid(gate)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, gate = ctx.saved_tensors
        p = torch.sigmoid(gate)
        return grad * p, grad * x * p * (1 - p)


class Layer(torch.autograd.Function):
    """A product and a gate with one backward for both."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        return torch.cumsum(torch.mm(x, w), -1)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, w = ctx.saved_tensors
        return grad @ w.t(), x.t() @ grad


def test_a_function_with_its_own_backward_is_one_region_where_its_forward_is(tmp_path: Path) -> None:
    first, *rest = trained(tmp_path / "t.json", Gate.apply, (64, 32), (64, 32))
    assert first.operations == ("sigmoid", "mul")
    assert first.backward
    assert first.forward_time_us_per_step == pytest.approx(2 * 10.0)
    assert first.backward_time_us_per_step == pytest.approx(6 * 10.0)  # sigmoid, rsub and four products
    assert all(r.kind == "accumulation" or r.operations == ("detach",) for r in rest), [r.title for r in rest]


def test_a_function_of_several_regions_is_named_by_its_backward(tmp_path: Path) -> None:
    regions = trained(tmp_path / "t.json", Layer.apply, (64, 32), (32, 32))
    ids = {r.id_hint: r for r in regions}
    backward = [r for r in regions if r.title.endswith(", backward")]
    assert sum(r.calls_per_step for r in backward) == 2  # a product for each operand
    assert {ids[r.forward_of].operations for r in backward} == {("mm",)}
    assert all(not r.forward_time_us_per_step for r in backward)


def test_the_gradient_of_a_view_names_the_region_that_reads_the_view(tmp_path: Path) -> None:
    def attend(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        q, k, v = F.linear(x, w).split(64, dim=-1)  # type: ignore[no-untyped-call]
        heads = [t.view(2, 16, 4, 16).transpose(1, 2) for t in (q, k, v)]
        return F.scaled_dot_product_attention(heads[0], heads[1], heads[2])

    regions = trained(tmp_path / "t.json", attend, (2, 16, 64), (192, 64))
    ids = {r.id_hint: r for r in regions}
    joined = next(r for r in regions if r.operations == ("cat",))
    assert joined.title == "concatenation, backward"
    assert ids[joined.forward_of].title == "SDPA attention"


def test_a_checkpoint_that_differentiates_what_it_ran_again_pairs_within_itself(tmp_path: Path) -> None:
    """As on a GPU: the nodes run on a thread of their own, whose operations are numbered like the forward's."""
    x, w = (torch.randn(64, 32).requires_grad_() for _ in range(2))

    def train() -> None:
        hidden = torch.tanh(x * w)
        hidden = checkpoint(lambda h: torch.sigmoid(h) * h, hidden, use_reentrant=True)
        torch.relu(hidden).sum().backward()  # type: ignore[no-untyped-call]

    path = record(tmp_path / "t.json", train)
    edited = json.loads(path.read_text())
    events = [e for e in edited["traceEvents"] if e.get("cat") in ("cpu_op", "cuda_runtime")]
    spans = [(e["ts"], e["ts"] + e["dur"]) for e in events if "evaluate_function" in e["name"]]
    outer = [
        (e["ts"], e["ts"] + e["dur"]) for e in events if e["name"].endswith("function: CheckpointFunctionBackward")
    ]
    numbered = [e for e in events if e["args"].get("Sequence number", -1) >= 0]
    for event in events:
        if any(a <= event["ts"] < b for a, b in spans):
            event["tid"] += 1
    for begin, end in outer:  # one a step
        inside = [e for e in numbered if begin <= e["ts"] < end and "CheckpointFunction" not in e["name"]]
        before = [e for e in numbered if e["ts"] < begin and e["name"] == "aten::mul"]
        less = min(e["args"]["Sequence number"] for e in inside) - before[-1]["args"]["Sequence number"]
        for event in inside:
            event["args"]["Sequence number"] -= less
    path.write_text(json.dumps(edited))
    regions = mine(read_trace(path)).regions
    passes = {r.operations: (r.forward_time_us_per_step, r.backward_time_us_per_step) for r in regions}
    assert passes["sigmoid", "mul"] == (20.0, 40.0)  # sigmoid_backward, two products and their sum
    (first,) = [times for operations, times in passes.items() if operations[:2] == ("mul", "tanh")]
    assert first[1] == 40.0  # the gradients of relu and tanh, and of both factors
