"""Kernels that Inductor wrote, compiled without a GPU: as Inductor would compile them, and only they.

The texts next to this file are Inductor's own output of torch 2.11 and 2.13 for an H200 (gemm80: for an A100), made
without a GPU: gelu(z + b) * mask; softmax of rows of 1,024; rms_norm of rows of 16,384; x.t() + z; a sum of two slices
one element apart; gelu(x @ w) * mask with a template, for which the largest tile was chosen; cumsum of 4,194,304.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch._inductor.runtime import triton_helpers

from profiler.oracle.compiler.generated_kernel import (
    KernelTextError,
    compile_inductor_kernel,
    load_kernel,
)
from profiler.oracle.compiler.machine import ASYNC_COPY, GLOBAL_LOAD, GLOBAL_STORE, LOCAL_LOAD, LOCAL_STORE
from profiler.oracle.compiler.machine_code import CompileError
from tests.effort import calls_of
from tests.profiler.oracle.compiler.readings import load_bits, sentences, store_bits

HERE = Path(__file__).parent / "inductor_kernels"
VERSION = ".".join(torch.__version__.split(".")[:2])
FOLDER = HERE / VERSION if (HERE / VERSION).exists() else HERE / "2.13"
NAMES = sorted(p.stem for p in FOLDER.glob("*.txt"))
KERNELS = {name: (FOLDER / f"{name}.txt").read_text() for name in NAMES}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


def name_in(text: str) -> str:
    return re.findall(r"^def (triton_\w+)\(", text, re.MULTILINE)[0]


def compiled(kernel: str, arch: str | None = None, config: int = 0) -> Any:
    return compile_inductor_kernel(KERNELS[kernel], name_in(KERNELS[kernel]), arch, config)


def lines_with(kernel: str, text: str) -> list[int]:
    return [n for n, line in enumerate(KERNELS[kernel].splitlines(), 1) if text in line]


def really_imported(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as torch imports it, decorators and all; only the search for a driver is left out."""
    monkeypatch.setattr(triton_helpers, "set_driver_to_gpu", lambda: None)
    path = folder / "kernel.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("kernel", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kernel", NAMES)
def test_what_is_compiled_is_what_inductors_autotuner_would_compile(
    kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, name = KERNELS[kernel], name_in(KERNELS[kernel])
    autotuner = getattr(really_imported(text, tmp_path, monkeypatch), name)
    with load_kernel(text, name) as found:
        assert found.arch == ("sm_80" if kernel == "gemm80" else "sm_90")
        assert [(c.constants, c.num_warps, c.num_stages) for c in found.configurations] == [
            (c.kwargs, c.num_warps, c.num_stages) for c in autotuner.configs
        ]
        for mine, theirs in zip(found.configurations, autotuner.configs, strict=True):
            meta = autotuner._create_compile_meta(theirs)
            assert {**found.constants, **mine.constants} == meta["constants"]
            assert dict(found.signature) == meta["signature"]
            assert found.attributes == meta["configs"][0]
            if hasattr(autotuner, "_create_compile_options"):
                options = autotuner._create_compile_options(theirs, meta)
                missing = {k: v for k, v in options.items() if v and k not in ("num_warps", "num_stages")}
                assert missing == {k: v for k, v in found.options.items() if v}


def test_a_pointwise_kernel_moves_whole_vectors_and_needs_no_barrier() -> None:
    made = compiled("pointwise")
    loads, (store,) = lines_with("pointwise", "tl.load("), lines_with("pointwise", "tl.store(")
    assert (made.target, made.num_warps, dict(made.constants)) == ("sm_90", 4, {"XBLOCK": 1024})
    assert made.configs == 2
    # eight elements a thread of 16 bits each
    assert [(line.number, t.bits, t.count) for line, t in made.tallies(GLOBAL_LOAD)] == [(n, 128, 1) for n in loads]
    assert [(line.number, t.bits, t.count) for line, t in made.tallies(GLOBAL_STORE)] == [(store, 128, 1)]
    assert made.spill_bytes == made.barriers == made.shared_bytes == 0
    assert made.source == KERNELS["pointwise"]
    for line in made.lines:
        assert not line.number or line.text == made.source.splitlines()[line.number - 1].strip()
    second = compiled("pointwise", config=1)
    assert (second.config, second.num_warps, dict(second.constants)) == (1, 8, {"XBLOCK": 512})


def test_slices_one_element_apart_are_loaded_element_by_element() -> None:
    made = compiled("unaligned")
    assert load_bits(made) == (16,)
    assert "loads 16 bits at a time: lines {}, {}".format(*lines_with("unaligned", "tl.load(")) in sentences(made)


def test_reductions_exchange_through_shared_memory() -> None:
    persistent, looped = compiled("persistent"), compiled("reduction")
    for kernel, made in (("persistent", persistent), ("reduction", looped)):
        assert made.barriers >= 2
        assert made.shared_bytes > 0
        assert load_bits(made) == store_bits(made) == (128,)
        assert {line.number for line, _ in made.tallies(GLOBAL_STORE)} == set(lines_with(kernel, "tl.store("))
    sums = {n for text in ("tl.sum(", "max2(") for n in lines_with("persistent", text)}
    assert {line.number for line in persistent.lines if line.count("barrier")} <= sums


def test_every_configuration_is_offered_in_inductors_order() -> None:
    count = compiled("reduction").configs
    assert count > 1
    every = [compiled("reduction", config=n) for n in range(count)]
    assert [m.config for m in every] == list(range(len(every)))
    assert {m.configs for m in every} == {len(every)}
    assert len({(m.num_warps, m.constants) for m in every}) == len(every)


@pytest.mark.parametrize(("kernel", "instruction"), [("gemm", "wgmma"), ("gemm80", "mma.sync")])
def test_a_template_says_its_matrix_instruction_its_pipeline_and_its_spills(kernel: str, instruction: str) -> None:
    made = compiled(kernel)
    (dot,), (a, b) = lines_with(kernel, "tl.dot("), (lines_with(kernel, f"{n} = tl.load(")[0] for n in "ab")
    assert {(m.instruction, m.line) for m in made.matrix} == {(instruction, dot)}
    assert {line.number for line, _ in made.tallies(ASYNC_COPY)} == {a, b}
    assert {buffer.line for buffer in made.buffers} == {a, b}
    held = sum(buffer.copies * buffer.shape[0] * buffer.shape[1] * 2 for buffer in made.buffers)
    assert made.shared_bytes >= held
    assert bool(made.spill_bytes) == bool(made.count(LOCAL_LOAD, LOCAL_STORE))
    assert any(said.startswith("multiplies with the matrix instruction " + instruction) for said in sentences(made))


def test_another_gpu_than_the_one_it_was_written_for() -> None:
    assert load_bits(compiled("persistent", "sm_100")) == (128,)
    amd = compiled("persistent", "gfx942")
    assert amd.registers
    assert "amdgcn" in amd.texts
    with pytest.raises(CompileError, match="sm_70"):
        compiled("persistent", "sm_70")


GOOD = KERNELS["pointwise"]
DECORATED = GOOD[GOOD.index("@triton_heuristics") :]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0",
        "(" * 5000,
        "x" * 2_000_000,
        "print(1)",
        GOOD + "\nimport os\n",
        GOOD + "\nopen('{ran}', 'w')\n",
        GOOD + "\nclass C:\n    open('{ran}', 'w')\n",
        GOOD.replace("min_elem_per_thread=0", "min_elem_per_thread=open('{ran}', 'w')"),
        GOOD.replace("min_elem_per_thread=0", "min_elem_per_thread=[open('{ran}', 'w') for _ in (1,)]"),
        GOOD.replace("min_elem_per_thread=0", "min_elem_per_thread=10**10**10"),
        GOOD.replace("min_elem_per_thread=0", "min_elem_per_thread=torch.serialization.os.system('touch {ran}')"),
        GOOD.replace("XBLOCK : tl.constexpr", "XBLOCK : open('{ran}', 'w')"),
        GOOD.replace("XBLOCK : tl.constexpr", "XBLOCK : tl.constexpr = open('{ran}', 'w')"),
        GOOD.replace("@triton.jit", "@triton.jit\n@(lambda f: open('{ran}', 'w') and f)"),
        GOOD.replace("triton_heuristics.pointwise", "triton_heuristics.unheard_of"),
        GOOD.replace("triton_heuristics", "heuristics"),
        GOOD.replace("size_hints=", "hints="),
        GOOD.replace("'signature'", "'nothing'"),
    ],
    ids=range(19),
)
def test_a_text_that_inductor_would_not_write_is_refused_and_not_run(text: str, tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    def load() -> None:
        with pytest.raises(KernelTextError), load_kernel(text.replace("{ran}", str(ran)), name_in(GOOD)):
            pass

    calls_of(load, most=100_000)
    assert not ran.exists()


def test_the_name_and_the_configuration_must_be_there() -> None:
    with pytest.raises(KernelTextError, match="no kernel triton_else"):
        compile_inductor_kernel(GOOD, "triton_else")
    with pytest.raises(IndexError):
        compile_inductor_kernel(GOOD, name_in(GOOD), config=2)
