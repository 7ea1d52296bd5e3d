"""The API's cost: our rules' figures, replaced by Inductor's where it says otherwise."""

from __future__ import annotations

from typing import Any

from app.analysis.cost_json import cost_json
from profiler.hardware import find_device
from profiler.oracle.model import Extern, OracleKernel, Prediction, Replaced
from profiler.region.graph.cost import bytes_through, cost
from profiler.region.graph.lowering import lower
from profiler.region.graph.patterns import match
from profiler.region.language.text import parse

X = "x: bf16[1024, 1024]\nw: bf16[1024, 1024]\n"
N = 1024 * 1024 * 2


def shown(text: str, prediction: Prediction | None) -> dict[str, Any]:
    device = find_device("NVIDIA H200")
    assert device is not None
    return cost_json(cost(lower(parse(text))), device, prediction)


def foreseen(*kernels: int, externs: tuple[str, ...] = (), replaced: tuple[str, ...] = ()) -> Prediction:
    return Prediction(
        "NVIDIA H200",
        "default",
        {},
        False,
        tuple(OracleKernel(f"k{i}", "pointwise", 1, b, ("aten.gelu",), "") for i, b in enumerate(kernels)),
        tuple(Extern(e, 1) for e in externs),
        tuple(Replaced(r, "") for r in replaced),
    )


def test_where_both_agree_the_rules_figures_stay_with_reads_and_writes_apart() -> None:
    text = X + "return gelu(x @ w)\n"
    assert shown(text, foreseen(2 * N, externs=("mm",))) == shown(text, None)


def test_more_kernels_than_our_rules_say_are_shown_as_inductor_counts_them() -> None:
    answer = shown(X + "return gelu(x @ w)\n", foreseen(2 * N, 2 * N, externs=("mm",)))
    assert answer["fused"]["launches"] == 3
    assert answer["fused"]["bytes_moved"] == 4 * N + 3 * N  # two kernels, and the product's own three tensors
    assert answer["fused"]["bytes_read"] is None
    assert [k["label"] for k in answer["kernels"]] == ["gelu", "gelu", "matmul"]
    (saving,) = (s for s in answer["savings"] if s["name"] == "region-fused")
    assert (saving["bytes_after"], saving["launches_after"]) == (7 * N, 3)
    assert "Inductor's own kernels" in saving["counting"]


def test_attention_that_is_replaced_is_one_call_beside_what_stays() -> None:
    """Attention by hand, then a product with a tail: only the attention's own products are gone."""
    qkv = "".join(f"{n}: bf16[2, 4, 256, 64]\n" for n in "qkv")
    text = (
        f"{qkv}w: bf16[256, 256]\no = softmax(q @ k.transpose(-2, -1) / 8.0, -1) @ v\n"
        "o = o.transpose(1, 2).reshape(2, 256, 256)\nreturn gelu(o @ w)\n"
    )
    graph = lower(parse(text))
    (attention,) = (m.operations for m in match(graph) if m.kind == "attention")
    one = 2 * 4 * 256 * 64 * 2  # bytes of q, of k, of v, of the attention's result
    assert bytes_through(graph, attention) == 4 * one
    device = find_device("NVIDIA H200")
    assert device is not None
    answer = foreseen(2 * one, 2 * one, externs=("aten._scaled_dot_product_flash_attention", "mm"),
                      replaced=("scaled_dot_product_attention",))  # fmt: skip
    region_cost = cost_json(cost(graph), device, answer, attention, 4 * one)
    product = 2 * one + 256 * 256 * 2
    assert [k["kind"] for k in region_cost["kernels"]] == ["fused", "fused", "attention", "gemm"]
    assert region_cost["fused"]["bytes_moved"] == 4 * one + 4 * one + product
    assert region_cost["dram"]["fused"] is None and not any(
        s["name"].startswith("tail-") for s in region_cost["savings"]
    )
