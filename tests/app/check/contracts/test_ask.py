"""What Inductor answers to a contract, without a GPU: figures against counts by hand, places in files as written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.analysis.own_oracle import start_oracle
from app.check.config import ConfigError
from app.check.contracts.ask import Said, ask, named_contracts
from app.check.contracts.model import Answer, Contract, Unanswered
from app.check.run import read
from app.check.subject import Subject
from app.thresholds import DEFAULTS as THRESHOLDS
from profiler.oracle.process import Oracle
from tests.conftest import ROOT

NORM = """\
# Of the model.
x: bf16[8192, 4096]

scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
# A reduction over rows, then what needs all of it.
y = (x * scale).to(torch.bfloat16)
z = y.sum(0)
return y, z
"""
PRODUCT = "x: bf16[512, 256]\nw: bf16[256, 1024]\ny = relu(x @ w)\nreturn y\n"


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with start_oracle() as oracle:
        yield oracle


def one(oracle: Oracle, contract: Contract, folder: Path | None = None, subjects: tuple[Subject, ...] = ()) -> Said:
    (named,) = named_contracts([contract], folder)
    (said,) = ask(named, oracle, "H200", folder, subjects)
    return said


def answered(said: Said) -> Answer:
    assert isinstance(said, Answer), said
    return said


def test_the_kernel_too_many_is_told_at_its_line_of_the_file(oracle: Oracle, tmp_path: Path) -> None:
    (tmp_path / "norm.txt").write_text(NORM)
    said = answered(one(oracle, Contract("norm", region="norm.txt", max_kernels=1), tmp_path))
    assert said.kernels > 1
    assert said.place == "norm.txt:4"
    assert said.excess_place == "norm.txt:7"
    assert "@triton.jit" in said.code


def test_bytes_of_library_calls_are_counted_with_those_of_the_kernels(oracle: Oracle) -> None:
    said = answered(one(oracle, Contract("p", region=PRODUCT, no_extern=True)))
    x, w, y = (2 * rows * columns for rows, columns in ((512, 256), (256, 1024), (512, 1024)))
    assert said.externs == ("mm",)
    assert said.bytes_moved == (x + w + y) + (y + y)  # the product, then relu in place
    assert said.minimum_bytes == x + w + y
    assert said.kernels == 2


def test_training_adds_the_backward_to_a_text_without_gradients_and_false_takes_it_out(oracle: Oracle) -> None:
    text = "x: bf16[4096, 4096]\ny = gelu(x)\nreturn y\n"
    plain, trained = (
        answered(one(oracle, Contract("g", region=text, max_kernels=9, training=training))) for training in (None, True)
    )
    with_gradient = text.replace("4096]\n", "4096].requires_grad\n", 1)
    written, taken_out = (
        answered(one(oracle, Contract("g", region=with_gradient, max_kernels=9, training=training)))
        for training in (None, False)
    )
    assert (plain.training, trained.training) == (False, True)
    assert trained.kernels > plain.kernels
    assert (written.kernels, written.code) == (trained.kernels, trained.code)
    assert replace(taken_out, place="") == replace(plain, place="")


def test_sizes_that_vary_are_compiled_for_as_often_as_torch_compile_would(oracle: Oracle) -> None:
    text = "N: sizes[37, 911, 1024]\nx: bf16[N, 4096]\ny = gelu(x)\nreturn y\n"
    assert answered(one(oracle, Contract("n", region=text, recompiles=0))).recompiles == 1  # static, then symbolic
    fixed = text.replace("N: sizes[37, 911, 1024]\n", "").replace("[N,", "[37,")
    assert answered(one(oracle, Contract("n", region=fixed, recompiles=0))).recompiles == 0
    assert answered(one(oracle, Contract("n", region=text, max_kernels=1))).recompiles is None


def test_a_device_that_inductor_is_not_asked_for_is_told(oracle: Oracle) -> None:
    said = one(oracle, Contract("n", region=PRODUCT, max_kernels=2, device="MI300X"))
    assert isinstance(said, Unanswered)
    assert "NVIDIA GPUs only" in said.reason


def test_a_pattern_is_on_every_region_of_the_trace_that_it_names(oracle: Oracle) -> None:
    path = ROOT / "app" / "examples" / "handrolled_blocks.json.gz"
    from app.check.config import DEFAULTS

    trace = read({"name": "step", "path": str(path)}, DEFAULTS, THRESHOLDS)
    names = [r.get("name") for r in trace.regions if str(r.get("name")).startswith("RMSNorm")]
    (named,) = named_contracts([Contract("norms", pattern="RMSNorm*", max_kernels=1)], None)
    said = [answered(s) for s in ask(named, oracle, None, None, [trace])]
    assert len(said) == len(names) >= 1
    assert {s.of for s in said} == set(names)
    assert all(s.place.startswith("traces.py:") for s in said)
    (named,) = named_contracts([Contract("none", pattern="Nothing*", max_kernels=1)], None)
    assert ask(named, oracle, None, None, [trace]) == [
        Unanswered("Nothing*", "no region of the trace is called Nothing*")
    ]
    assert isinstance(ask(named, oracle, None, None, [])[0], Unanswered)


MODULE = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = INNER

    def forward(self, x):
        y = torch.nn.functional.gelu(self.inner(x)) * 2
        BREAK
        return y.softmax(-1)


def make():
    return Net(), torch.randn(1024, 1024)
"""


LINEAR = "nn.Linear(1024, 1024)"


@pytest.mark.parametrize(
    ("inner", "line", "breaks"),
    [(LINEAR, "pass", 0), (LINEAR, "print(float(y.sum()))", 1), ("nn.Identity()", "print(float(y.sum()))", None)],
)
def test_a_module_is_its_regions_together_with_what_breaks_its_graph(
    inner: str, line: str, breaks: int | None, oracle: Oracle, tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text(MODULE.replace("INNER", inner).replace("BREAK", line))
    said = answered(one(oracle, Contract("net", module="net.py:make", max_kernels=1, no_graph_break=True), tmp_path))
    assert said.place == "net.py:16 make"
    assert said.graph_breaks == breaks
    assert said.externs == (("mm",) if inner == LINEAR else ())
    if inner == LINEAR:
        assert said.excess_place.startswith("net.py:")


def test_a_module_that_cannot_be_run_is_unanswered(oracle: Oracle, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("def make():\n    raise ValueError('no weights')\n")
    said = one(oracle, Contract("net", module="net.py:make", max_kernels=1), tmp_path)
    assert isinstance(said, Unanswered)
    assert "no weights" in said.reason


@pytest.mark.parametrize(
    ("contract", "key", "said"),
    [
        (Contract("a", region="none.txt", max_kernels=1), "contracts.1.region", "none.txt"),
        (Contract("a", region="x: f32[4]\ny = = x\nreturn y\n", max_kernels=1), "contracts.1.region", "y = = x"),
        (Contract("a", module="none.py:make", max_kernels=1), "contracts.1.module", "no such file"),
        (Contract("a", module="none.py", max_kernels=1), "contracts.1.module", "FILE.py:FUNCTION"),
    ],
)
def test_a_file_that_is_not_there_is_told_before_anything_is_asked(
    contract: Contract, key: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as error:
        named_contracts([contract], tmp_path)
    assert error.value.key == key
    assert said in error.value.problem


def test_what_is_off_is_not_looked_at(tmp_path: Path) -> None:
    assert named_contracts([Contract("a", "off", region="none.txt", max_kernels=1)], tmp_path) == []
