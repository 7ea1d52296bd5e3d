"""A region with a library's call in it gives what the region gives: torch's calls here, the packages' on a GPU."""

from __future__ import annotations

import importlib.util
import operator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kernels.host import probe_host
from kernels.libraries.adapters.editor import Editor
from kernels.libraries.adapters.packages import add_norm
from kernels.libraries.adapters.rewrite import ADAPTERS, adapt
from kernels.libraries.catalogue import ENTRIES
from kernels.libraries.covers import coverage, everything
from profiler.region.graph.lowering import lower, written_alone
from profiler.region.graph.patterns import match
from profiler.region.language.text import parse
from tests.kernels.libraries import texts
from tests.kernels.libraries.rewrites import ON_CPU, ON_GPU, SDPA, Rewrite, compare


def there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def skip_where_torch_lacks(rewrite: Rewrite) -> None:
    """By the probe that the host's coverage rests on."""
    entry = next(e for e in ENTRIES if e.candidate == rewrite.candidate)
    if entry.feature and entry.feature not in probe_host().features:
        pytest.skip(f"torch {torch.__version__} has no {entry.feature}: since {entry.since}")


@pytest.mark.parametrize("rewrite", ON_CPU, ids=lambda r: r.candidate.removeprefix("library:"))
def test_the_call_gives_what_the_region_gives(rewrite: Rewrite) -> None:
    skip_where_torch_lacks(rewrite)
    compare(rewrite, "cpu")


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:warmup, rep, and use_cuda_graph:DeprecationWarning")  # FlagGems' own tuning
@pytest.mark.parametrize("rewrite", ON_GPU, ids=lambda r: r.candidate.removeprefix("library:"))
def test_the_call_gives_what_the_region_gives_on_a_gpu(rewrite: Rewrite) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU")
    if not there(rewrite.package):
        pytest.skip(f"{rewrite.package} is not installed")
    skip_where_torch_lacks(rewrite)
    compare(rewrite, "cuda")


@pytest.mark.parametrize("rewrite", ON_GPU, ids=lambda r: r.candidate.removeprefix("library:"))
def test_a_rewrite_is_built_without_its_package_and_keeps_shapes(rewrite: Rewrite) -> None:
    """Packages are imported by the call alone: the graph is made where none of them is installed."""
    region = parse(rewrite.text)
    graph = lower(region)
    entry = next(e for e in ENTRIES if e.candidate == rewrite.candidate)
    fitting = [m for m in everything(graph, match(graph)) if m.kind in entry.kinds]
    module = adapt(graph, fitting, entry.adapter)
    called = [n for n in module.graph.nodes if n.op == "call_function"]
    assert [n for n in called if not str(n.target).startswith("aten")]
    results = next(n for n in module.graph.nodes if n.op == "output").args[0]
    assert [tuple(r.meta["val"].shape) for r in results] == [t.shape for t in graph.output_tensors]


def test_every_adapter_that_an_entry_names_is_tried_on_a_gpu() -> None:
    tried = {r.candidate for r in ON_GPU}
    elsewhere = {"rms_norm", "layer_norm", "softmax", "gelu_tanh", "attention", "flex_attention", "addmm_activation"}
    elsewhere |= {"flashinfer_mm_fp4", "flashinfer_mm_mxfp8", "torchao_mx_fp8"}  # sm_100: test_contracts
    assert {e.candidate for e in ENTRIES if e.adapter and e.adapter not in elsewhere} <= tried
    assert {e.adapter for e in ENTRIES if e.adapter} <= set(ADAPTERS)


def test_an_entry_without_an_adapter_says_why() -> None:
    assert [e.candidate for e in ENTRIES if bool(e.adapter) == bool(e.unmeasured)] == []


@pytest.mark.parametrize("text", [
    texts.BY_DISTANCE.format(d="bf16", kv=2, g=""), texts.BY_DISTANCE.format(d="bf16", kv=4, g=".requires_grad"),
    texts.BY_DISTANCE.format(d="f32", kv=1, g=""), texts.GROUPED.format(d="f32", g=""),
], ids=["bf16, two heads read", "bf16, trained", "f32, one head read", "f32, no mask"])  # fmt: skip
@pytest.mark.parametrize("candidate", [SDPA, f"{SDPA}.efficient"])
def test_sdpa_is_given_operands_that_its_fast_kernels_take(candidate: str, text: str) -> None:
    """aten/native/transformers/cuda/sdp_utils.cpp, torch 2.11 and 2.13: a mask whose last dimension is not dense leaves
    the unfused reference alone, and so do fewer heads of k and v in f32: only flash and cuDNN take those."""
    graph = written_alone(lower(parse(text)))
    entry = next(e for e in ENTRIES if e.candidate == candidate)
    fitting = [m for m in everything(graph, match(graph)) if m.kind in entry.kinds]
    module = adapt(graph, fitting, entry.adapter)
    (call,) = (n for n in module.graph.nodes if "sdpa" in str(n.target) or n.target is F.scaled_dot_product_attention)
    mask = call.kwargs["attn_mask"] if "attn_mask" in call.kwargs else call.args[3]
    assert mask is None or mask.meta["val"].stride(-1) == 1
    q, k, v = (n.meta["val"] for n in call.args[:3])
    grouped = call.kwargs.get("enable_gqa", False) or call.args[-1] is True
    assert grouped == (q.shape[1] != k.shape[1])
    assert k.shape[:2] == v.shape[:2]
    assert not grouped or (candidate != f"{SDPA}.efficient" and q.dtype == torch.bfloat16)


def test_the_call_as_it_reads_is_the_call_that_is_measured() -> None:
    def said(candidate: str, text: str) -> str:
        graph = lower(parse(text))
        covers = coverage(graph, match(graph), probe_host())
        return next(c.call for c in covers if c.candidate == candidate).splitlines()[-1]

    distance = texts.BY_DISTANCE.format(d="f32", kv=1, g="")
    assert "k.repeat_interleave(4, -3), v.repeat_interleave(4, -3)" in said(SDPA, distance)
    assert ".permute(2, 0, 1)[None].contiguous()" in said(SDPA, distance)
    assert "enable_gqa" not in said(SDPA, distance)
    half = texts.BY_DISTANCE.format(d="bf16", kv=2, g="")
    assert "enable_gqa=True" in said(SDPA, half)
    assert "k.repeat_interleave(2, -3)" in said(f"{SDPA}.efficient", half)


def test_a_second_result_takes_the_place_of_the_sum_that_it_is() -> None:
    """Residual add and RMSNorm: both outputs come from the one call, and nothing adds a second time."""
    graph = lower(parse(texts.ADD_RMS.format(g="")))
    (found,) = (m for m in everything(graph, match(graph)) if m.kind == "add_rms_norm")
    editor = Editor(graph)
    editor.replace(found, add_norm(_added_and_normalised))
    module = editor.done()
    x, r, w = torch.randn(64, 128).bfloat16(), torch.randn(64, 128).bfloat16(), torch.rand(128).bfloat16()
    for mine, wanted in zip(module(x, r, w), graph.module(x, r, w), strict=True):
        torch.testing.assert_close(mine, wanted, atol=2e-2, rtol=2e-2)
    called = [n.target for n in module.graph.nodes if n.op == "call_function"]
    assert called == [_added_and_normalised, operator.getitem, operator.getitem]


def _added_and_normalised(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> Any:
    total = x + residual
    return F.rms_norm(total, total.shape[-1:], weight, eps), total
