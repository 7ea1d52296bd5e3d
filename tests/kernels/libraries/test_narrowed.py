"""What a text widens before a call that adds up in f32 anyway is given to the call as it is."""

from __future__ import annotations

import pytest
import torch

from kernels.candidates import Candidate, build, candidates
from kernels.host import Host
from kernels.libraries.adapters.rewrite import adapt
from kernels.libraries.covers import everything
from profiler.region.graph.lowering import lower, written_alone
from profiler.region.graph.patterns import match
from profiler.region.language.text import parse

HOST = Host("NVIDIA H100", (9, 0), {}, frozenset({"torch", "triton", "liger_kernel", "quack"}), frozenset())
LOSSES = {
    "the call": "return F.cross_entropy(x.float(), t)",
    "log_softmax and nll_loss": "return F.nll_loss(F.log_softmax(x.float(), -1), t)",
    "logsumexp and gather": "z = x.float()\nm = torch.logsumexp(z, -1)\np = z.gather(1, t.unsqueeze(1)).squeeze(1)\n"
    "return (m - p).mean()",
}
NORMS = {
    "rms_norm": "return F.rms_norm(x.float(), (16384,), w.float(), 1e-6).to(torch.bfloat16)",
    "rms_norm by hand": "z = x.float()\ny = z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + 1e-6)\n"
    "return (y * w.float()).to(torch.bfloat16)",
    "layer_norm": "return F.layer_norm(x.float(), (16384,), w.float(), b.float(), 1e-5).to(torch.bfloat16)",
    "layer_norm by hand": "z = x.float()\nm = z.mean(-1, keepdim=True)\nd = z - m\nv = (d * d).mean(-1, keepdim=True)\n"
    "return (d * torch.rsqrt(v + 1e-5) * w.float() + b.float()).to(torch.bfloat16)",
}


def offered(text: str) -> dict[str, Candidate]:
    return {c.name: c for c in candidates(lower(parse(text)), HOST) if c.available}


@pytest.mark.parametrize("grad", ["", ".requires_grad"], ids=["forward", "training"])
@pytest.mark.parametrize("spelling", LOSSES)
def test_each_spelling_of_a_loss_offers_calls_that_read_the_narrow_logits(spelling: str, grad: str) -> None:
    text = f"x: bf16[8192, 128256]{grad}\nt: i64[8192].below(128256)\n{LOSSES[spelling]}"
    by_name = offered(text)
    assert by_name["library:quack.cross_entropy"].call == "quack.cross_entropy(x, t, reduction='mean')"
    assert by_name["library:liger_kernel.cross_entropy_narrow"].call == "liger_cross_entropy(x, t).float()"
    assert "triton:cross_entropy" in by_name
    # Where the loss must not be rounded, Liger is given what the text widens.
    assert by_name["library:liger_kernel.cross_entropy"].call in (
        "liger_cross_entropy(x.float(), t)", "liger_cross_entropy(z, t)",
    )  # fmt: skip


@pytest.mark.parametrize("adapter", ["quack_cross_entropy", "liger_narrow_cross_entropy", "flash_attn_cross_entropy"])
@pytest.mark.parametrize("spelling", LOSSES)
def test_the_rewrite_gives_the_call_the_narrow_logits_and_the_region_its_f32_loss(spelling: str, adapter: str) -> None:
    graph = written_alone(lower(parse(f"x: bf16[64, 256]\nt: i64[64].below(256)\n{LOSSES[spelling]}")))
    matched = [m for m in everything(graph, match(graph)) if m.kind == "cross_entropy"]
    module = adapt(graph, matched, adapter)
    (call,) = [n for n in module.graph.nodes if n.op == "call_function"]
    logits = call.args[0]
    assert isinstance(logits, torch.fx.Node)
    assert (logits.op, logits.meta["val"].dtype) == ("placeholder", torch.bfloat16)
    assert call.meta["val"].dtype == torch.float32


def test_logits_that_nobody_widens_are_not_offered_twice() -> None:
    by_name = offered("x: bf16[64, 256].requires_grad\nt: i64[64].below(256)\nreturn F.cross_entropy(x, t)")
    assert "library:liger_kernel.cross_entropy" in by_name
    assert "library:liger_kernel.cross_entropy_narrow" not in by_name


@pytest.mark.parametrize("grad", ["", ".requires_grad"], ids=["forward", "training"])
@pytest.mark.parametrize("spelling", NORMS)
def test_each_spelling_of_a_norm_offers_kernels_that_read_the_narrow_rows(spelling: str, grad: str) -> None:
    bias = f"b: bf16[16384]{grad}\n" if "layer" in spelling else ""
    text = f"x: bf16[8192, 16384]{grad}\nw: bf16[16384]{grad}\n{bias}{NORMS[spelling]}"
    by_name = offered(text)
    kind = spelling.split()[0]
    assert f"triton:{kind}" in by_name
    call = by_name[f"library:liger_kernel.{kind}"].call
    assert call.startswith(f"liger_{kind}(x, w, "), call


@pytest.mark.parametrize("spelling", ["rms_norm", "layer_norm"])
def test_a_norm_between_casts_becomes_one_call_with_the_same_result(spelling: str) -> None:
    bias = "b: bf16[256]\n" if spelling == "layer_norm" else ""
    text = f"x: bf16[64, 256]\nw: bf16[256]\n{bias}{NORMS[spelling].replace('16384', '256')}"
    region = parse(text)
    values = [torch.randn(*s).to(torch.bfloat16) for s in ((64, 256), (256,), (256,))[: len(region.inputs)]]
    made = build(f"library:torch.nn.functional.{spelling}", region, None, "cpu")
    (out,) = made(*values)
    (exact,) = build("eager", region, None, "cpu")(*values)
    assert out.dtype == exact.dtype == torch.bfloat16
    assert (out.float() - exact.float()).abs().max() <= 2**-6 * exact.float().abs().max()


def test_a_norm_whose_wide_result_is_read_keeps_it() -> None:
    """The sum behind it is of f32 numbers: a call that rounds them to bf16 would be another computation."""
    text = "x: bf16[64, 256]\nw: bf16[256]\ny = F.rms_norm(x.float(), (256,), w.float(), 1e-6)\n"
    text += "return y.to(torch.bfloat16), y.sum()"
    graph = written_alone(lower(parse(text)))
    (norm,) = [m for m in everything(graph, match(graph)) if m.kind == "rms_norm"]
    assert norm.output == "rms_norm"
    assert not norm.by_hand
