"""The probe of the host: in a child, true to it, and harmless where it fails."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest
import torch

from kernels import host


def test_the_probe_says_what_this_process_finds_itself() -> None:
    found = host._look()
    assert found.versions["torch"] == torch.__version__
    assert found.versions["triton"] == importlib.metadata.version("triton")
    assert found.packages >= {"torch", "triton"}
    assert ("F.rms_norm" in found.features) == hasattr(torch.nn.functional, "rms_norm")
    assert (found.gpu is not None) == torch.cuda.is_available()
    assert host._look() is found


def test_probing_brings_no_torch_into_the_caller() -> None:
    code = (
        "import sys; from kernels.host import probe_host; found = probe_host(); "
        "assert found.versions['torch']; assert 'torch' not in sys.modules; assert 'triton' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=800)


def test_a_probe_that_fails_gives_a_host_without_gpu_and_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_PROBE", "raise SystemExit('no driver here')")
    found = host._look.__wrapped__()
    assert found.gpu is None
    assert "no driver here" in found.note


def test_capability_and_arch_round_trip() -> None:
    found = host.from_json({"gpu": "NVIDIA H200", "capability": [9, 0], "versions": {}, "packages": [], "features": []})
    assert (found.capability, found.arch) == ((9, 0), "sm_90")
