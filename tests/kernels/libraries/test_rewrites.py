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
from kernels.libraries.covers import everything
from profiler.region.graph.lowering import lower
from profiler.region.graph.patterns import match
from profiler.region.language.text import parse
from tests.kernels.libraries import texts
from tests.kernels.libraries.rewrites import ON_CPU, ON_GPU, Rewrite, compare


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
