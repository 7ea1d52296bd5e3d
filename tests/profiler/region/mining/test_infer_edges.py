"""Which operand is which value: inferred, against the execution trace of the same run; and exact from it."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.mining.execution_edges import exact, joined_share
from profiler.region.mining.mine import mine
from profiler.region.mining.units import collect_units
from profiler.trace.analyze.steps import steady_step
from profiler.trace.execution_trace import Execution, read_execution
from profiler.trace.model import NONE
from profiler.trace.read.reader import read_trace
from tests.conftest import DATA
from tests.profiler.region.recording import record
from tools.checks.check_edges import score

LLAMA = DATA / "traces" / "llama_eager_attention_prefill.json.gz"
BESIDE = DATA / "traces" / "llama_eager_attention_prefill.et.json.gz"
SIZE, HEADS, LENGTH = 32, 4, 24


def test_forward_edges_of_the_llama_trace_are_inferred() -> None:
    true, found, right = score(read_trace(LLAMA), read_execution(BESIDE))
    assert true > 400
    assert right / found >= 0.95
    assert right / true >= 0.95


def test_edges_with_the_execution_trace_are_exact() -> None:
    """Each against a plain reading of the file: the latest operation whose output has this tensor id."""
    trace, execution = read_trace(LLAMA), read_execution(BESIDE)
    taken = collect_units(trace, steady_step(trace))
    edges = exact(trace, taken.units, execution)
    assert joined_share(trace, taken.units, execution) == 1.0
    with gzip.open(BESIDE) as file:
        nodes = {next(a["value"] for a in n["attrs"] if a["name"] == "rf_id"): n for n in json.load(file)["nodes"]}
    made: dict[int, int] = {}
    checked = 0
    for unit in sorted(taken.units, key=lambda u: u.start_us):
        node = nodes[int(trace.ops.record_id[unit.op])]
        given = list(_tensors(node["inputs"]))
        for place, member, value in given:
            source = edges.sources.get((unit.op, place, member))
            if value[0] in made and source is not None:
                assert source[0] == made[value[0]]
                checked += 1
            elif source is None:
                assert value[0] not in made
        for _, _, value in _tensors(node["outputs"]):
            if node["name"].endswith("_") or value[0] not in [v[0] for _, _, v in given]:
                made[value[0]] = unit.op
    assert checked > 300


def _tensors(side: dict[str, Any]) -> Iterator[tuple[int, int, list[Any]]]:
    for place, (value, kind) in enumerate(zip(side["values"], side["types"], strict=True)):
        if kind.startswith("Tensor("):
            yield place, 0, value
        elif kind.startswith("GenericList[Tensor"):
            yield from ((place, member, v) for member, v in enumerate(value))


class PreNorm(nn.Module):
    """GPT-2's block: LayerNorm first, one linear for q, k and v, GELU by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.LayerNorm(SIZE), nn.LayerNorm(SIZE)
        self.qkv, self.out = nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, SIZE)
        self.up, self.down = nn.Linear(SIZE, 4 * SIZE), nn.Linear(4 * SIZE, SIZE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.view(2, LENGTH, HEADS, -1).transpose(1, 2) for t in self.qkv(self.one(x)).split(SIZE, dim=2))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, LENGTH, SIZE)
        x = F.dropout(self.out(attended), 0.1) + x
        h = self.up(self.two(x))
        h = 0.5 * h * (1 + torch.tanh(0.797 * (h + 0.044715 * torch.pow(h, 3.0))))
        return F.dropout(self.down(h), 0.1) + x


class Rotary(nn.Module):
    """Llama's block with as many key heads as query heads: everything has one size."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(SIZE, SIZE, bias=False) for _ in range(4))
        self.gate, self.up, self.down = nn.Linear(SIZE, 64), nn.Linear(SIZE, 64), nn.Linear(64, SIZE)
        self.one, self.two = nn.Parameter(torch.ones(SIZE)), nn.Parameter(torch.ones(SIZE))
        self.register_buffer("cos", torch.rand(1, 1, LENGTH, SIZE // HEADS))
        self.register_buffer("sin", torch.rand(1, 1, LENGTH, SIZE // HEADS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = norm(x, self.one)
        q, k, v = (layer(h).view(2, LENGTH, HEADS, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        q, k = (t * self.cos + turned(t) * self.sin for t in (q, k))
        scores = torch.softmax(torch.matmul(q, k.transpose(2, 3)) * 0.35, dim=-1)
        x = x + self.out(torch.matmul(scores, v).transpose(1, 2).reshape(2, LENGTH, SIZE))
        h = norm(x, self.two)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def turned(x: torch.Tensor) -> torch.Tensor:
    one, two = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-two, one), dim=-1)


class Bottleneck(nn.Module):
    """ResNet's: convolutions, batch norm, in-place ReLU and residual."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.first, self.second = nn.BatchNorm2d(8), nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.relu(self.first(self.one(x)), inplace=True)
        return F.relu(self.second(self.two(h)).add_(x), inplace=True)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "pre-norm": (PreNorm, (2, LENGTH, SIZE)),
    "rotary": (Rotary, (2, LENGTH, SIZE)),
    "bottleneck": (Bottleneck, (2, 8, 16, 16)),
}


@pytest.mark.parametrize("name", MODELS)
def test_forward_edges_of_other_models_are_inferred(name: str, tmp_path: Path) -> None:
    block, sizes = MODELS[name]
    model, x = nn.Sequential(*(block() for _ in range(4))), torch.randn(sizes)
    with torch.no_grad():
        record(tmp_path / "t.json", model, x, execution=tmp_path / "et.json")
    true, found, right = score(read_trace(tmp_path / "t.json"), read_execution(tmp_path / "et.json"))
    assert true > 25
    assert right / found >= 0.95
    assert right / true >= 0.95


def test_mining_with_an_execution_trace_writes_what_was_read() -> None:
    """The causal mask's two sides come from two ranges, which without identities look like one."""
    trace = read_trace(LLAMA)
    mining = mine(trace, execution=read_execution(BESIDE))
    assert mining.joined_share == 1.0
    assert {r.title for r in mining.regions} == {r.title for r in mine(trace).regions}
    (attention,) = [r for r in mining.regions if r.title == "attention by hand"]
    assert attention.text is not None and "k.transpose(-2, -1)" in attention.text
    (mask,) = [r for r in mining.regions if r.operations[-2:] == ("le", "where")]
    assert mask.text is not None and ": i64[1, 1, 1024, 1]" in mask.text


def test_an_execution_trace_of_another_run_joins_nothing() -> None:
    trace = read_trace(DATA / "traces" / "handrolled_blocks_bf16_eager_stack.json.gz")
    execution = read_execution(BESIDE)
    assert int(trace.ops.record_id.max()) != NONE  # the numbers are there, and mean other operations
    mining = mine(trace, execution=execution)
    assert mining.joined_share == 0.0
    assert [r.text for r in mining.regions] == [r.text for r in mine(trace).regions]


def edited(beside: Path, keep: Callable[[int, dict[str, Any]], bool]) -> Path:
    """The execution trace with only those operations left that keep(record id, node) is true of."""
    document = json.loads(beside.read_text())
    document["nodes"] = [n for n in document["nodes"] if keep(_record(n), n)]
    path = beside.with_suffix(".part.json")
    path.write_text(json.dumps(document))
    return path


def _record(node: dict[str, Any]) -> int:
    return int(next((a["value"] for a in node["attrs"] if a["name"] == "rf_id"), NONE))


def tanh_gelu(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.gelu(torch.relu(x @ w), approximate="tanh") @ w


@pytest.mark.parametrize("covered", [0, 1])
def test_the_step_that_an_execution_trace_covers_is_the_one_mined(covered: int, tmp_path: Path) -> None:
    """The observer ran in one of the two steps: whichever is the steady one, that one is exact."""
    args = torch.randn(8, 64), torch.randn(64, 64)
    trace = read_trace(record(tmp_path / "t.json", tanh_gelu, *args, execution=tmp_path / "et.json"))
    step = trace.steps[covered]
    inside = (trace.ops.start_us >= step.start_us) & (trace.ops.start_us < step.end_us)
    ids = set(trace.ops.record_id[inside].tolist())
    part = read_execution(edited(tmp_path / "et.json", lambda record_id, _: record_id in ids))
    mining = mine(trace, execution=part)
    assert mining.steps == (step.name,)
    assert mining.joined_share == 1.0
    assert any("tanh" in (r.text or "") for r in mining.regions)
    other = mine(trace, trace.steps[1 - covered], execution=part)
    assert other.joined_share == 0.0
    assert [r.text for r in other.regions] == [r.text for r in mine(trace, trace.steps[1 - covered]).regions]


def test_the_part_of_a_step_that_an_execution_trace_lacks_is_inferred() -> None:
    """Cut in the middle: regions before the cut as with the whole file, those behind as without one."""
    trace, whole = read_trace(LLAMA), read_execution(BESIDE)
    step = steady_step(trace)
    records = trace.ops.record_id[step.ops]
    half = int(records[len(records) // 2])
    part = Execution(whole.schema, {n: node for n, node in whole._nodes.items() if n < half}, whole._nested)
    with_all, with_half, without = (mine(trace, execution=e) for e in (whole, part, None))
    assert with_half.joined_share is not None
    assert 0.3 < with_half.joined_share < 0.7
    kernels = [sorted(k for r in m.regions for k in r.kernels) for m in (with_all, with_half, without)]
    assert kernels[0] == kernels[1] == kernels[2]
    texts = {r.text for m in (with_all, without) for r in m.regions}
    odd = [r.text for r in with_half.regions if r.text not in texts]
    assert not odd


@pytest.mark.parametrize("seed", range(6))
def test_an_execution_trace_with_holes_loses_no_kernel(seed: int, tmp_path: Path) -> None:
    """Any operation may be missing, and any operand be one that nothing in the file made."""
    draw = random.Random(seed)
    args = torch.randn(8, 64), torch.randn(64, 64)
    trace = read_trace(record(tmp_path / "t.json", tanh_gelu, *args, execution=tmp_path / "et.json"))

    def keep(_: int, node: dict[str, Any]) -> bool:
        if draw.random() < 0.2:
            node["inputs"]["values"] = draw.choice(([], [[0, 0, 0, 0, 0, "cpu"]], node["inputs"]["values"][:1]))
        return draw.random() < 0.6

    mining = mine(trace, execution=read_execution(edited(tmp_path / "et.json", keep)))
    assert mining.joined_share is not None
    assert sum(r.time_us_per_step for r in mining.regions) == pytest.approx(mining.kernel_time_us)
    for region in mining.regions:
        if region.text is not None:
            program(parse(region.text))


def test_strings_come_from_the_execution_trace(tmp_path: Path) -> None:
    """`approximate="tanh"` is a string, which a trace does not record."""
    path, beside = tmp_path / "t.json", tmp_path / "et.json"
    trace = read_trace(record(path, lambda x: F.gelu(x, approximate="tanh"), torch.randn(8, 64), execution=beside))
    (with_it,) = mine(trace, execution=read_execution(beside)).regions
    (without,) = mine(trace).regions
    assert with_it.text is not None and "tanh" in with_it.text
    assert without.text is not None and "tanh" not in without.text
