"""FLOPs: products against torch's counter on real tensors, the rest by hand, the numbers against docs/cost.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from kernels.measure.candidate import inputs
from profiler.region.graph.cost import cost
from profiler.region.graph.flops import flops
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from profiler.region.operations import OPERATIONS

DOCS = Path(__file__).resolve().parents[4] / "docs" / "cost.md"

PRODUCTS = {
    "mm": "x: f32[8, 16]\nw: f32[16, 24]\nreturn x @ w\n",
    "linear with bias": "x: f32[2, 8, 16]\nw: f32[24, 16]\nb: f32[24]\nreturn F.linear(x, w, b)\n",
    "bmm": "x: f32[3, 8, 16]\nw: f32[3, 16, 24]\nreturn torch.bmm(x, w)\n",
    "baddbmm": "c: f32[3, 8, 24]\nx: f32[3, 8, 16]\nw: f32[3, 16, 24]\nreturn torch.baddbmm(c, x, w)\n",
    "einsum": 'q: f32[2, 4, 8]\nk: f32[2, 5, 4, 8]\nreturn torch.einsum("bhd,bthd->bht", q, k)\n',
    "conv1d": "x: f32[2, 6, 20]\nw: f32[8, 6, 3]\nreturn F.conv1d(x, w, stride=2, padding=1)\n",
    "conv2d": "x: f32[2, 6, 10, 12]\nw: f32[8, 6, 3, 3]\nb: f32[8]\nreturn F.conv2d(x, w, b)\n",
    "grouped conv2d": "x: f32[2, 6, 10, 12]\nw: f32[12, 2, 3, 3]\nreturn F.conv2d(x, w, groups=3)\n",
    "attention by hand": "q: f32[2, 3, 8, 4]\nk: f32[2, 3, 8, 4]\nreturn torch.softmax(q @ k.mT, -1) @ q\n",
}
SDPA = "q: f32[2, 3, 8, 4]\nk: f32[2, 3, 10, 4]\nv: f32[2, 3, 10, 4]\nreturn F.scaled_dot_product_attention(q, k, v)\n"


def on_real_tensors(text: str, grad: bool = False) -> int:
    """torch's counter around the eager program on small tensors, backward of the sum included where asked for."""
    region = parse(text)
    graph = lower(region)
    given = [t.requires_grad_(grad) for t in inputs.input_set(region, {}, "cpu", seed=0)]
    with FlopCounterMode(display=False) as counter:
        outputs = graph.program.module(*given)
        if grad:
            torch.autograd.backward(outputs, [torch.ones_like(o) for o in outputs])
    return int(counter.get_total_flops())


def training(text: str) -> str:
    return re.sub(r"(?m)^(\w+: f32\[.*\])$", r"\1.requires_grad", text)


@pytest.mark.parametrize("name", PRODUCTS)
def test_forward_equals_torchs_counter_on_real_tensors(name: str) -> None:
    assert cost(lower(parse(PRODUCTS[name]))).gemm_flops == on_real_tensors(PRODUCTS[name])


@pytest.mark.parametrize("name", [n for n in PRODUCTS if n != "grouped conv2d"])
def test_forward_and_backward_equal_torchs_counter_on_real_tensors(name: str) -> None:
    region_cost = cost(lower(parse(training(PRODUCTS[name]))))
    assert region_cost.gemm_flops == on_real_tensors(PRODUCTS[name], grad=True)


def test_attention_equals_the_kernels_that_torchs_counter_knows() -> None:
    q, k = torch.ones(2, 3, 8, 4, device="meta"), torch.ones(2, 3, 10, 4, device="meta")
    with FlopCounterMode(display=False) as counter:
        torch.ops.aten._scaled_dot_product_flash_attention(q.half(), k.half(), k.half())
    assert cost(lower(parse(SDPA))).gemm_flops == counter.get_total_flops() == 2 * 2 * (2 * 3 * 8 * 10 * 4)
    assert cost(lower(parse(training(SDPA)))).gemm_flops == 7 * 2 * (2 * 3 * 8 * 10 * 4)  # 2 products and 5


@pytest.mark.parametrize("heads", [3, 1])
@pytest.mark.parametrize("by", ["flash", "efficient", "cudnn"])
def test_fused_attention_counts_each_head_of_the_queries(by: str, heads: int) -> None:
    """With fewer heads of keys and values torch 2.11's own counter raises, and a newer one counts the queries'."""
    q, k, v = (torch.empty(2, h, s, d, device="meta") for h, s, d in ((3, 8, 4), (heads, 10, 4), (heads, 10, 6)))
    result = torch.empty(2, 3, 8, 6, device="meta")
    once = 2 * 2 * 3 * 8 * 10
    aten = torch.ops.aten
    forward = getattr(aten, f"_scaled_dot_product_{by}_attention").default
    backward = getattr(aten, f"_scaled_dot_product_{by}_attention_backward").default
    assert called(forward, (q, k, v), result) == once * (4 + 6)
    assert called(backward, (result, q, k, v), (q, k, v)) == once * (3 * 4 + 2 * 6)
    if heads == 3:
        registry = flop_registry
        assert registry[forward._overloadpacket](q, k, v, out_val=result) == once * (4 + 6)
        assert registry[backward._overloadpacket](result, q, k, v, out_val=(q, k, v)) == once * (3 * 4 + 2 * 6)


def called(target: object, operands: Sequence[torch.Tensor], result: object) -> int:
    """The FLOPs of one call in a graph."""
    graph = torch.fx.Graph()
    placed = []
    for number, operand in enumerate(operands):
        placed.append(graph.placeholder(f"x{number}"))
        placed[-1].meta["val"] = operand
    node = graph.call_function(target, tuple(placed))
    node.meta["val"] = result
    return flops(node)


def test_causal_attention_counts_half() -> None:
    causal = SDPA.replace("10", "8").replace("(q, k, v)", "(q, k, v, is_causal=True)")
    assert cost(lower(parse(causal))).gemm_flops == 2 * (2 * 3 * 8 * 8 * 4)


M, ROWS = 64 * 32, 64

BY_HAND = {
    "an addition": ("x: f32[64, 32]\nreturn x + 1.0\n", M),
    "exp is one": ("x: f32[64, 32]\nreturn torch.exp(x)\n", M),
    "a cast is none": ("x: f32[64, 32]\nreturn x.to(bf16)\n", 0),
    "a copy is none": ("x: f32[64, 32]\nreturn x.t().contiguous()\n", 0),
    "a selection is the comparison": ("x: f32[64, 32]\nreturn torch.where(x > 0, x, 0.0)\n", M),
    "integers are none": ("x: i64[64, 32]\nreturn x * 2 + 1\n", 0),
    "bits are none": ("x: u8[64, 32]\nreturn (x >> 4) & 15\n", 0),
    # x · 0.707, erf, + 1, · x, · 0.5
    "gelu": ("x: f32[64, 32]\nreturn F.gelu(x)\n", 5 * M),
    # x · x, · x, · 0.0447, + x, · 0.798, tanh, + 1, · x, · 0.5
    "gelu with tanh": ('x: f32[64, 32]\nreturn F.gelu(x, approximate="tanh")\n', 9 * M),
    # -x, exp, + 1, 1 /, · x
    "silu": ("x: f32[64, 32]\nreturn F.silu(x)\n", 5 * M),
    "clamp at both ends": ("x: f32[64, 32]\nreturn x.clamp(-1, 1)\n", 2 * M),
    "clamp at one end": ("x: f32[64, 32]\nreturn x.clamp(min=0)\n", M),
    "addcmul": ("a: f32[64, 32]\nb: f32[64, 32]\nc: f32[64, 32]\nreturn torch.addcmul(a, b, c)\n", 3 * M),
    "sum": ("x: f32[64, 32]\nreturn x.sum(-1)\n", M),
    # mean, x - m, squared, added
    "variance": ("x: f32[64, 32]\nreturn x.var(-1)\n", 4 * M),
    # largest, x - m, exp, added, divided
    "softmax": ("x: f32[64, 32]\nreturn torch.softmax(x, -1)\n", 5 * M),
    "logsumexp": ("x: f32[64, 32]\nreturn torch.logsumexp(x, -1)\n", 4 * M),
    # mean, x - m, squared, added, · rstd; · w; + b
    "layer_norm": ("x: f32[64, 32]\nw: f32[32]\nb: f32[32]\nreturn F.layer_norm(x, (32,), w, b)\n", 7 * M),
    "layer_norm without weights": ("x: f32[64, 32]\nreturn F.layer_norm(x, (32,))\n", 5 * M),
    # squared, added, · rstd; · w
    "rms_norm": ("x: f32[64, 32]\nw: f32[32]\nreturn F.rms_norm(x, (32,), w)\n", 4 * M),
    "cumsum": ("x: f32[64, 32]\nreturn x.cumsum(-1)\n", M),
    "sorting is none": ("x: f32[64, 32]\nv, i = torch.sort(x, -1)\nreturn v\n", 0),
    "picking is none": ("x: f32[64, 32]\ni: i64[8].below(64)\nreturn x[i]\n", 0),
    # one addition for each of 8 rows of 32
    "index_add": ("x: f32[64, 32]\ni: i64[8].below(64)\ns: f32[8, 32]\nreturn x.index_add(0, i, s)\n", 8 * 32),
    "index_copy is none": ("x: f32[64, 32]\ni: i64[8].below(64)\ns: f32[8, 32]\nreturn x.index_copy(0, i, s)\n", 0),
    # 4 values into each of 16 x 8 results
    "average pooling": ("x: f32[1, 1, 32, 16]\nreturn F.avg_pool2d(x, 2)\n", 16 * 8 * 4),
    # compare with p, · mask, · 1/(1-p)
    "dropout": ("x: f32[64, 32]\nreturn F.dropout(x, 0.1, True)\n", 3 * M),
    # 64 transforms of 32 real points: 2.5 · 32 · 5
    "real fft": ("x: f32[64, 32]\nreturn torch.fft.irfft(torch.fft.rfft(x), n=32)\n", 2 * (5 * 64 * 32 * 5 // 2)),
    "mv": ("x: f32[64, 32]\ny: f32[32]\nreturn x @ y\n", 2 * M),
    "dot": ("x: f32[32]\ny: f32[32]\nreturn torch.dot(x, y)\n", 2 * 32),
    # softmax's largest, x - m, exp, sum, minus; then one addition a target
    "cross entropy": ("x: f32[64, 32]\nt: i64[64].below(32)\nreturn F.cross_entropy(x, t)\n", 5 * M + ROWS),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_flops_equal_the_hand_count(name: str) -> None:
    text, wanted = BY_HAND[name]
    assert cost(lower(parse(text))).unfused.flops == wanted


def test_grouped_backward_counts_its_own_channels_only() -> None:
    """torch's counter has every group against all channels in backward (torch 2.13)."""
    text = training(PRODUCTS["grouped conv2d"])
    one = 2 * (2 * 12 * 8 * 10) * (2 * 9)
    assert cost(lower(parse(text))).gemm_flops == 3 * one


def test_docs_give_the_numbers_that_are_counted() -> None:
    found = {
        name: int(number)
        for name, number in re.findall(r"`(\w+)` (\d+)(?=[,.;\n]| \|)", DOCS.read_text(encoding="utf-8"))
    }
    tables = {o.name: o.flops for o in OPERATIONS if o.flops is not None and o.weighted is None}
    assert {k: v for k, v in found.items() if k in tables} == {k: tables[k] for k in found if k in tables}
    assert len(found.keys() & tables.keys()) > 60
    missing = {k for k, v in tables.items() if v not in (0, 1)} - set(found)
    assert not missing, "run: python -m tools.docs.operation_lists"
