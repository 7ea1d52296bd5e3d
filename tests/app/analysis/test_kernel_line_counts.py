"""What a kernel costs to keep is counted, not guessed: the figures follow the kernels' files."""

from __future__ import annotations

import re

import pytest

from app.analysis.analyze import AdviceContext, decide, prepare
from app.analysis.kernel_line_counts import own_lines
from app.web.charts import effort
from kernels.candidates import candidates
from kernels.hand_written import WRITTEN
from kernels.host import Host
from kernels.starter_kit.kit import make_kit
from kernels.starter_kit.lines import code_lines, counted
from profiler.hardware import find_device
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from profiler.region.model import Workload

RMS_NORM = (
    "x: bf16[4096, 4096]\nw: bf16[4096]\nf = x.float()\nv = f.pow(2).mean(-1, keepdim=True)\n"
    "return (f * torch.rsqrt(v + 1e-6)).to(bf16) * w\n"
)


def test_comments_docstrings_and_empty_lines_are_no_code() -> None:
    assert (
        code_lines('"""What it is.\n\nMore."""\n\n# why\ndef f(x):\n    """Twice x."""\n    return 2 * x  # here\n')
        == 2
    )


def test_every_kernel_with_a_file_is_counted_and_the_count_is_of_today() -> None:
    assert set(own_lines()) == {w.name for w in WRITTEN}
    for kernel in WRITTEN:
        assert own_lines()[kernel.name] == pytest.approx(counted(kernel.call), rel=0.1), (
            "python -m tools.records.own_lines"
        )


def test_the_kits_file_holds_that_kernel_and_more_for_its_test() -> None:
    """A kit has everything that was counted, but for imports, and the test and the benchmark as well."""
    text = make_kit(RMS_NORM, candidate="triton:rms_norm").files["triton_rms_norm.py"]
    assert own_lines()["triton:rms_norm"] < code_lines(text) < 2 * own_lines()["triton:rms_norm"]
    assert re.search(r"^def (main|bench)\(", text, re.M)


def test_the_advice_names_lines_that_are_there() -> None:
    device = find_device("H200")
    assert device is not None
    options = {
        o.candidate: o
        for o in decide(prepare(parse(RMS_NORM), Workload(), device, AdviceContext())).advice.alternatives
    }
    made = next(c for c in candidates(lower(parse(RMS_NORM)), Host()) if c.name == "triton:generated")
    assert options["triton:generated"].effort_lines == code_lines(made.source)
    assert options["triton:rms_norm"].effort_lines == own_lines()["triton:rms_norm"]
    assert options["compile"].effort_lines == 1
    said = {name: effort.describe_lines(name, o.effort_lines) for name, o in options.items()}
    assert said["triton:rms_norm"] == "ready-made kernel"
    assert said["triton:generated"] == "generated"
    assert said["eager"] == ""
