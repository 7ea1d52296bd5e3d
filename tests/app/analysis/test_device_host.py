"""Products of block formats are judged by the device that the advice is for, whatever GPU the host has."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.analysis.analyze import AdviceContext, Evaluated, decide, prepare
from app.cli import main
from kernels.host import Host
from profiler.hardware import find_device
from profiler.region.language.text import parse
from profiler.region.model import Binding, Workload
from tests.kernels.libraries.hosts import B200, H200, PACKAGES
from tests.profiler.region.test_block_formats import MXFP4, MXFP8, NVFP4

NO_GPU = Host(None, None, {"torch": "2.13.0"}, PACKAGES, B200.features)


def judged(text: str, name: str, host: Host) -> Evaluated:
    device = find_device(name)
    assert device is not None
    return decide(prepare(parse(text), Workload((Binding(),), share_of_step=0.5), device, AdviceContext(host=host)))


@pytest.mark.parametrize("host", [NO_GPU, B200], ids=["no GPU", "B200"])
@pytest.mark.parametrize("device", ["H200", "A100"])
@pytest.mark.parametrize("text", [NVFP4, MXFP8], ids=["nvfp4", "mxfp8"])
def test_no_call_is_said_to_run_where_the_device_has_no_units(text: str, device: str, host: Host) -> None:
    found = judged(text, device, host)
    assert not [c.candidate for c in found.facts.covers if c.covers]
    assert any("no call is known that does" in note for note in found.advice.notes)
    assert not [a for a in found.advice.alternatives if a.tool == "library"]
    assert "Already" not in found.advice.headline


@pytest.mark.parametrize("host", [NO_GPU, H200], ids=["no GPU", "H200"])
def test_the_call_runs_on_a_device_that_has_them(host: Host) -> None:
    found = judged(NVFP4, "B200", host)
    assert {"library:torch.nn.functional.scaled_mm.mx", "library:flashinfer.mm_fp4"} <= {
        c.candidate for c in found.facts.covers if c.covers
    }
    assert not [note for note in found.advice.notes if "does not run" in note]


def test_what_would_run_is_named_where_the_call_as_written_does_not() -> None:
    (note,) = [n for n in judged(MXFP4, "B200", NO_GPU).advice.notes if "does not run" in n]
    assert "flashinfer.mm_fp4 would" in note


def test_the_shell_says_that_no_call_runs_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "product.txt"
    path.write_text(NVFP4)
    assert main(["advise", str(path), "--device", "H200"]) == 0
    said = capsys.readouterr().out
    assert "does not run this product on NVIDIA H200" in said and "no call is known that does" in said
    assert "Already" not in said
