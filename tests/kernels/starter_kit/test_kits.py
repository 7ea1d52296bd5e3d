"""Kits as a user has them: written to an empty folder and run there, with none of our modules in reach."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from kernels.hand_written import WRITTEN
from kernels.starter_kit.kit import make_kit
from kernels.starter_kit.model import Kit
from profiler.region.model import RegionError
from tests.conftest import ROOT

RMS_NORM = """x: bf16[2048, 4096]
w: bf16[4096]
h = x.float()
h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
return h.to(bf16) * w
"""
GELU = "x: bf16[8192, 4096]\nb: bf16[4096]\nm: bf16[8192, 4096]\ny = gelu(x + b) * m\nreturn y\n"
SOFTMAX = "x: bf16[16384, 4096]\nreturn torch.softmax(x, -1)\n"
GEMM = """x: bf16[8192, 4096]
w: bf16[4096, 16384]
b: bf16[16384]
mask: bf16[8192, 16384]
y = gelu(x @ w + b) * mask
return y
"""
REGIONS = {
    "triton:softmax": SOFTMAX,
    "triton:rms_norm": RMS_NORM,
    "triton:generated": GELU,
    "triton:matmul_epilogue": GEMM,
}
BROKEN = {
    "triton:softmax": ("x = exp_of(x - tl.max(x, axis=1, keep_dims=True))", "x = exp_of(x - 1.0)"),
    "triton:generated": ("    mul = gelu * m", "    mul = gelu * m * 1.01"),
    "triton:matmul_epilogue": ("y *= factor.to(tl.float32)", "y *= 1.01 * factor.to(tl.float32)"),
}
"""A line of the kernel, and one that is wrong: off by one per cent, or only where the inputs are large."""


@pytest.fixture(scope="module")
def kits() -> dict[str, Kit]:
    """One of each, by candidate."""
    return {name: make_kit(text, candidate=name) for name, text in REGIONS.items()}


def run(folder: Path, name: str, text: str, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The file alone: no PYTHONPATH, no user site, nothing of the caller's folder or environment."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "OMP_NUM_THREADS": "1", **more}
    command = [sys.executable, "-I", name, *options]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=800, check=False
    )


def alone(text: str) -> str:
    """The file with an import hook in front that lets in torch, triton and what those two need, and nothing of ours."""
    tree = ast.parse(text)
    first = next(n for n in tree.body if isinstance(n, ast.Import))
    guard = [
        "import sys as _sys",
        "class _Ours:",
        "    def find_spec(self, name, path=None, target=None):",
        "        if name.partition('.')[0] in ('kernels', 'profiler', 'app', 'msgspec', 'isal', 'pydantic'):",
        "            raise ImportError('not in an empty folder: ' + name)",
        "_sys.meta_path.insert(0, _Ours())",
    ]
    lines = text.split("\n")
    return "\n".join([*lines[: first.lineno - 1], *guard, *lines[first.lineno - 1 :]])


@pytest.mark.parametrize("candidate", REGIONS)
def test_kit_does_not_run_alone(kits: dict[str, Kit], candidate: str, tmp_path: Path) -> None:
    assert kits[candidate].kernel is not None, kits[candidate].why
    name, text = kits[candidate].kernel
    done = run(tmp_path / "empty", name, alone(text), "--test", TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "right  small sizes, normal inputs, against float64" in done.stdout
    assert "test passed" in done.stdout
    assert "WRONG" not in done.stdout
    if candidate != "triton:generated":
        assert done.stdout.count("right  ") >= 6, "the odd cases were not tried"


@pytest.mark.parametrize("candidate", BROKEN)
def test_broken_kernel_passes(kits: dict[str, Kit], candidate: str, tmp_path: Path) -> None:
    assert kits[candidate].kernel is not None
    name, text = kits[candidate].kernel
    line, wrong = BROKEN[candidate]
    assert line in text
    done = run(tmp_path / "empty", name, text.replace(line, wrong), "--test", TRITON_INTERPRET="1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WRONG  " in done.stdout
    assert "FAILED" in done.stdout


def test_kit_without_gpu_or_interpreter_pretends(kits: dict[str, Kit], tmp_path: Path) -> None:
    assert kits["triton:generated"].kernel is not None
    done = run(tmp_path / "empty", *kits["triton:generated"].kernel, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert "no GPU here" in done.stdout
    assert "TRITON_INTERPRET=1" in done.stdout


def test_replay_does_not_say_what_happens(tmp_path: Path) -> None:
    files = make_kit("x: f32[40, 30].requires_grad\ny = torch.tanh(x) * 2\nreturn y\n").files
    failing = files["replay.py"].replace("torch.tanh(x) * 2", "torch.tanh(x) @ x")
    done = run(tmp_path / "empty", "replay.py", failing, "--device", "cpu")
    assert done.returncode == 1
    assert "eager RAISED" in done.stdout
    assert "torch 2" in done.stdout
    assert "requires_grad=True" in done.stdout
    assert "mat1 and mat2" in done.stderr


@pytest.mark.parametrize("candidate", REGIONS)
def test_bundle_imports_ours_or_has_unknown_names(kits: dict[str, Kit], candidate: str, tmp_path: Path) -> None:
    for name, text in kits[candidate].files.items():
        if not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(text)):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            outside = {m.partition(".")[0] for m in modules} - set(sys.stdlib_module_names)
            assert outside <= ({"torch", "helion"} if name == "helion_region.py" else {"torch", "triton"}), name
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F,E9", str(tmp_path)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_zip_differs_from_run_to_run(kits: dict[str, Kit]) -> None:
    again = make_kit(GELU, candidate="triton:generated")
    archive = kits["triton:generated"].archive()
    assert archive == again.archive()
    with zipfile.ZipFile(BytesIO(archive)) as held:
        assert {Path(n).name for n in held.namelist()} == {
            "triton_generated.py", "helion_region.py", "replay.py", "README.md", "validation.json"
        }  # fmt: skip
        assert held.testzip() is None


def measured(name: str, median: float, **more: Any) -> dict[str, Any]:
    span = {"median": median, "low": median - 1, "high": median + 1}
    ratio = {"median": median / 200, "low": 0.1, "high": 2.0}
    return {"name": name, "tool": name.partition(":")[0], "status": "ok", "message": "", "time_us": span,
            "ratio_to_eager": ratio, "shapes": [], **more}  # fmt: skip


VALIDATION = {
    "region": GELU, "outcome": "confirmed", "device": "Made-up GPU", "date": "2026-01-02",
    "software": {"torch": "9.9.9", "triton": "8.8.8"}, "best": "compile",
    "candidates": [measured("eager", 200.0), measured("compile", 111.1), measured("triton:generated", 122.2),
                   measured("library:torch.gelu", 188.8)],
}  # fmt: skip


def test_header_says_other_figures_than_the_validation() -> None:
    kit = make_kit(GELU, validation=VALIDATION)
    assert kit.kernel is not None
    said = ast.get_docstring(ast.parse(kit.kernel[1])) or ""
    for part in ("Made-up GPU", "2026-01-02", "torch 9.9.9", "111.1", "188.8", "MIT"):
        assert part in said
        assert part in kit.files["README.md"] or part == "MIT"
    assert [line for line in said.splitlines() if "<- this kernel" in line and "122.2" in line]
    bare = make_kit(GELU, validation={**VALIDATION, "device": None, "candidates": []})
    assert bare.kernel is not None
    assert "µs" not in (ast.get_docstring(ast.parse(bare.kernel[1])) or "")


def test_kernel_that_was_wrong_is_given_away() -> None:
    names = ["triton:generated", *(kernel.name for kernel in WRITTEN)]
    wrong = {"status": "mismatch", "message": "error 3.1", "time_us": None}
    tried = [measured(name, 1.0) | wrong for name in names]
    kit = make_kit(GELU, validation={**VALIDATION, "candidates": [measured("eager", 200.0), *tried]})
    assert kit.kernel is None
    assert "mismatch error 3.1" in kit.why
    assert kit.why in kit.files["README.md"]
    assert "replay.py" in kit.files


def test_sizes_that_vary_share_a_kernel_they_should_not() -> None:
    text = "N: sizes[64, 96]\nx: f32[N, 128]\ny = gelu(x) * N\nreturn y\n"
    kit = make_kit(text, candidate="triton:generated")
    assert kit.kernel is not None
    body = kit.kernel[1]
    assert "N = x.shape[0]" in body
    assert '"N = 64"' in body
    assert '"N = 96"' in body
    assert body.count("@triton.jit\ndef ") >= 3  # one for each size, and a small one
    assert "(96, 128), (128, 1)" in body


def test_what_cannot_be_made_is_an_error_of_the_right_kind() -> None:
    with pytest.raises(RegionError):
        make_kit("no region")
    with pytest.raises(KeyError):
        make_kit(GELU, candidate="triton:nonsense")
    kit = make_kit(GELU, candidate="triton:softmax")
    assert (kit.candidate, kit.kernel) == ("", None)
    assert "softmax" in kit.why


def test_hand_written_kernels_have_a_kit_each() -> None:
    texts = {
        "triton:layer_norm": "x: f32[64, 512]\nw: f32[512]\nb: f32[512]\nreturn F.layer_norm(x, (512,), w, b, 1e-5)\n",
        "triton:gated_activation": "a: bf16[256, 512]\nb: bf16[256, 512]\nreturn F.silu(a) * b\n",
        "triton:flash_attention": (ROOT / "tests" / "regions" / "manual_causal_attention.txt").read_text(),
    }
    for name, text in texts.items():
        kit = make_kit(text, candidate=name)
        assert kit.candidate == name, kit.why
