"""Liger's calls on the CPU, in Triton's interpreter: rows turned as the text turns them, nothing kept written over."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kernels.libraries.adapters.rewrite import adapt
from kernels.libraries.covers import coverage, everything
from profiler.region.graph.lowering import lower
from profiler.region.graph.patterns import match
from profiler.region.language.text import parse
from tests.conftest import ROOT
from tests.kernels.libraries import texts
from tests.kernels.libraries.hosts import H200

WHEELS = "TRITONWORTHY_TEST_WHEELS"
"""A folder of wheels to try libraries from that are not installed: where they are, others' tests see another host."""
ROPE = "library:liger_kernel.rope"
MADE_OTHERWISE = texts.TWIN_ROPE.replace("torch.cat((a.cos(), a.cos()), -1)", "torch.cat((a.cos(), a), -1)")
FROM_ANGLES = "x: bf16[2, 4, 64, 32]\na: f32[64, 16]\ne = torch.cat((a, a), -1)\nc = e.cos().to(bf16)[None, None]\n" \
              "s = e.sin().to(bf16)[None, None]\n" \
              "return x * c + torch.cat((-x[..., 16:], x[..., :16]), -1) * s\n"  # fmt: skip

TURNED = """
import torch
from kernels.libraries.calls import liger
torch.manual_seed(0)
for dtype, bound in ((torch.float32, 1e-6), (torch.float16, 4e-3)):
    for heads, beside in ((4, False), (4, True), (1, False)):
        x = torch.randn(2, heads, 6, 32).to(dtype)
        x = x.transpose(1, 2).contiguous().transpose(1, 2) if beside else x
        a, other, kept = torch.randn(6, 16), torch.randn(6, 16), x.clone()
        cos, sin = (torch.cat((f(a), f(a)), -1).to(dtype) for f in (torch.cos, torch.sin))
        wide = x.double()
        half = torch.cat((-wide[..., 16:], wide[..., :16]), -1)
        wanted = wide * cos.double() + half * sin.double()
        assert (liger.rope(x, cos, sin).double() - wanted).abs().max() < bound, (dtype, heads, beside)
        assert torch.equal(x, kept), "the operand was turned in place"
        given, before = torch.randn_like(wanted).to(dtype), x.clone().requires_grad_()
        incoming = given.clone()
        back, = torch.autograd.grad(liger.rope(before, cos, sin), (before,), given)
        assert torch.equal(given, incoming), "the gradient that comes in was turned in place"
        wide.requires_grad_()
        half = torch.cat((-wide[..., 16:], wide[..., :16]), -1)
        exact, = torch.autograd.grad(wide * cos.double() + half * sin.double(), (wide,), given.double())
        assert (back.double() - exact).abs().max() < bound, "another gradient"
        cos[:, 16:] = other  # what Liger does not read
        assert (liger.rope(x, cos, sin).double() - wanted).abs().max() < bound
"""
SPARED = """
import torch
from kernels.libraries.calls import liger
for kept in (True, False):
    x, t = torch.randn(4, 50, requires_grad=True), torch.randint(0, 50, (4,))
    before = x.detach().clone().requires_grad_()
    wanted, = torch.autograd.grad(torch.nn.functional.cross_entropy(before, t) * 2, (before,))
    got, = torch.autograd.grad(liger.cross_entropy(x, t, "mean", -100, kept) * 2, (x,))
    assert (got - wanted).abs().max() < 1e-6
    assert torch.equal(x, before) is kept, kept
"""


@pytest.fixture(scope="module")
def liger(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder to import liger_kernel from; "" where it is installed. Skips where it is nowhere."""
    if importlib.util.find_spec("liger_kernel"):
        return ""
    wheels = os.environ.get(WHEELS)
    wheel = next(Path(wheels).glob("liger_kernel-*.whl"), None) if wheels else None
    if wheel is None:
        pytest.skip(f"liger_kernel is not installed, and {WHEELS} names no folder with its wheel")
    folder = tmp_path_factory.mktemp("liger")
    zipfile.ZipFile(wheel).extractall(folder)
    return str(folder)


@pytest.mark.parametrize("program", [TURNED, SPARED], ids=["rope", "cross_entropy"])
def test_the_call_gives_the_region_s_values_and_spares_what_is_kept(program: str, liger: str) -> None:
    path = os.pathsep.join(p for p in (str(ROOT), liger, os.environ.get("PYTHONPATH", "")) if p)
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=800, check=False, cwd=Path(ROOT))
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize(
    ("text", "covered"),
    [(texts.TWIN_ROPE, True), (FROM_ANGLES, True), (texts.ROPE, False), (MADE_OTHERWISE, False)],
    ids=["cat", "angles", "given", "other-halves"],
)
def test_rope_is_covered_where_both_halves_are_the_same_by_the_text(text: str, covered: bool) -> None:
    graph = lower(parse(text))
    (found,) = (c for c in coverage(graph, match(graph), H200) if c.candidate == ROPE)
    assert found.covers is covered


GIVEN = "a: f32[64, 128]\nb: f32[64, 128]\nreturn silu(a) * b\n"
PRODUCTS = "x: f32[64, 32]\nw: f32[32, 128]\nv: f32[32, 128]\nreturn silu(x @ w) * (x @ v)\n"
READ_AGAIN = "x: f32[64, 32]\nw: f32[32, 128]\nv: f32[32, 128]\ng = x @ w\nreturn silu(g) * (x @ v), g\n"
BATCHED = "x: f32[2, 64, 32]\nw: f32[128, 32]\nv: f32[128, 32]\nreturn silu(F.linear(x, w)) * F.linear(x, v)\n"
SAVED = "x: f32[64, 128]\nv: f32[64, 128]\nreturn silu(torch.tanh(x)) * torch.exp(v)\n"


@pytest.mark.parametrize(
    ("text", "kept"),
    [(GIVEN, (True, True)), (PRODUCTS, (False, False)), (READ_AGAIN, (True, False)), (BATCHED, (False, False)),
     (SAVED, (True, True))],
    ids=["given", "products", "read-again", "batched", "saved-for-backward"],
)  # fmt: skip
def test_only_what_nobody_reads_again_may_be_written_over(text: str, kept: tuple[bool, bool]) -> None:
    graph = lower(parse(text))
    module = adapt(graph, [m for m in everything(graph, match(graph)) if m.kind == "swiglu"], "liger_swiglu")
    (call,) = (n for n in module.graph.nodes if getattr(n.target, "__name__", "") == "swiglu")
    assert tuple(call.args[2]) == kept


def test_logits_of_another_dtype_are_cast_as_the_text_casts_them_where_the_loss_would_be_rounded() -> None:
    graph = lower(parse(texts.LINEAR_LOSS.format(more="")))
    found = [m for m in everything(graph, match(graph)) if m.kind == "cross_entropy"]
    taken = {"liger_cross_entropy": "float32", "flag_gems_cross_entropy": "float32", "quack_cross_entropy": "bfloat16"}
    for adapter, dtype in taken.items():
        module = adapt(graph, found, adapter)
        (call,) = (n for n in module.graph.nodes if getattr(n.target, "__name__", "") == "cross_entropy")
        assert str(call.args[0].meta["val"].dtype) == f"torch.{dtype}"
