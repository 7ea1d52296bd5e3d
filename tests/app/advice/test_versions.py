"""A call that only a newer torch has: the advice says which version, and that this host has another."""

from __future__ import annotations

import pytest

from app.advice.model import Advice
from app.analysis.analyze import AdviceContext, decide, prepare
from kernels.host import Host
from profiler.hardware import find_device
from profiler.region.language.text import parse
from profiler.region.model import Binding, Workload

LOSS = """x: bf16[{rows}, 4096].requires_grad
w: bf16[128256, 4096].requires_grad
t: i64[{rows}].below(128256)
return F.cross_entropy((x @ w.t()).float(), t)
"""
CALL = "library:torch.nn.functional.linear_cross_entropy"
NEEDS = "needs torch 2.13 or newer, and this host has 2.11.0+cu130"


def advised(version: str, *features: str, objective: str = "time", gpu: str | None = "NVIDIA H200") -> Advice:
    host = Host(gpu, (9, 0), {"torch": version}, frozenset({"torch", "triton"}), frozenset(features))
    device = find_device("NVIDIA H200")
    assert device is not None
    region = parse(LOSS.format(rows=4096))
    workload = Workload((Binding(),), share_of_step=0.5)
    return decide(prepare(region, workload, device, AdviceContext(host=host, objective=objective))).advice


def test_an_older_torch_is_told_which_version_has_the_call() -> None:
    old, new = advised("2.11.0+cu130"), advised("2.13.0", "F.linear_cross_entropy")
    notes = {name: next(a.note for a in made.alternatives if a.candidate == CALL)
             for name, made in (("old", old), ("new", new))}  # fmt: skip
    assert notes["old"].startswith(NEEDS)
    assert "newer" not in notes["new"]
    because = next(c.because for c in old.criteria if c.name == "library-covers")
    assert NEEDS in because


@pytest.mark.parametrize("gpu", ["NVIDIA H200", None])
def test_a_newer_torch_is_worth_installing_and_what_is_there_is_advised(gpu: str | None) -> None:
    """For memory the call is worth a newer torch. A host without this GPU is no other case: nobody knows what the host
    has that the trace is from."""
    old = advised("2.11.0+cu130", objective="memory", gpu=gpu)
    assert not old.call.startswith("F.linear_cross_entropy")
    (worth,) = [w for w in old.worth_installing if w.candidate == CALL]
    assert worth.install == 'pip install -U "torch>=2.13"'
    assert not advised("2.13.0", "F.linear_cross_entropy", objective="memory").worth_installing
