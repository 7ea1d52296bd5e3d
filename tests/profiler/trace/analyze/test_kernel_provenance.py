"""Which Triton kernels torch.compile wrote and which somebody else did, by what its runner records of a launch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profiler.trace import read_trace
from profiler.trace.analyze.kernel_provenance import compiled_kernels, hand_written_triton
from profiler.trace.read.assemble import assemble
from profiler.trace.read.parallel_reader import read_in_two
from tests.profiler.trace.files import TRACES, kernel, launch, loaded, op, real, written
from tests.profiler.trace.read.test_parallel_reader import LIMITS

WITH_FILES = [
    "handrolled_blocks_bf16_compiled.json.gz",
    "hta_triton_example.json.gz",
    "llama_prefill_bf16_compiled.json.gz",
    "tl_vllm_decode_full_capture.json.gz",
    "tl_xdit_sd35_graph.json.gz",
]


def run_by_compile(name: str, ts: float, file: str = "/tmp/torchinductor_me/ab/cab.py") -> dict[str, object]:
    """As get_profiler_kwargs of torch 2.6 and later writes it."""
    return op(
        name, ts, 9, kernel_backend="triton", kernel_file=file, kernel_hash="cab", kernel_name=name, num_warps=4,
        num_stages=1, kernel_kwargs="XBLOCK=1024", stream=0,
    )  # fmt: skip


@pytest.mark.parametrize("name", WITH_FILES)
def test_the_files_are_those_of_the_launches(name: str) -> None:
    want = {
        e["name"]: e["args"]["kernel_file"]
        for e in reversed(loaded(name)["traceEvents"])
        if e.get("cat") == "cpu_op" and e["args"].get("kernel_backend") == "triton"
    }
    assert want
    assert real(name).triton_files == want


def test_two_processes_find_the_same_files() -> None:
    name = "tl_xdit_sd35_graph.json.gz"
    found = read_in_two(TRACES / name, LIMITS, 500_000)
    assert found is not None
    assert assemble(*found).triton_files == real(name).triton_files


def test_a_users_kernel_in_a_compiled_model_is_not_torch_compiles(tmp_path: Path) -> None:
    # define_user_defined_triton_kernel: the operation has a number, the kernel is the user's function. "gemm" in a name
    # says library where nothing else is known.
    pairs = [
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("triton_red_fused_mean_1", "triton_"),  # TORCHINDUCTOR_UNIQUE_KERNEL_NAMES=0
        ("add_kernel_0", "add_kernel"),
        ("fused_gemm_kernel_1", "fused_gemm_kernel"),
    ]
    events = [op("Torch-Compiled Region: 0/0", 0, 100)]
    for i, (name, called) in enumerate(pairs):
        events += [
            run_by_compile(name, 10.0 * i),
            launch(10.0 * i + 2, i + 1),
            kernel(200.0 + i, 1, i + 1, name=called),
        ]
    trace = read_trace(written(tmp_path, json.dumps(events)))
    own, inside = compiled_kernels(trace)
    assert own.tolist() == [True, True, False, False]
    assert inside.all()
    assert hand_written_triton(trace).tolist() == [False, False, True, True]
    assert trace.triton_files == dict.fromkeys((name for name, _ in pairs), "/tmp/torchinductor_me/ab/cab.py")


def test_the_same_kernels_without_these_args_are_told_by_name_only(tmp_path: Path) -> None:
    events = []
    for i, name in enumerate(("triton_", "fused_gemm_kernel", "add_kernel")):
        events += [op("custom::op", 10.0 * i, 9), launch(10.0 * i + 2, i + 1), kernel(200.0 + i, 1, i + 1, name=name)]
    trace = read_trace(written(tmp_path, json.dumps(events)))
    assert not trace.triton_files
    assert hand_written_triton(trace).tolist() == [True, False, True]


def test_args_of_another_backend_or_another_type_are_no_triton(tmp_path: Path) -> None:
    args: list[dict[str, object]] = [{"kernel_backend": "cpp"}, {"kernel_backend": None}, {"kernel_backend": 3}]
    args += [{"kernel_backend": "triton"}, {"kernel_file": "/a.py"}, {"kernel_file": ["/b.py"], "stream": 0}]
    events = [op(f"op {i}", 10.0 * i, 5, **each) for i, each in enumerate(args)]
    trace = read_trace(written(tmp_path, json.dumps(events)))
    assert trace.dropped == 0
    assert trace.triton_files == {"op 3": "", "op 4": "/a.py"}


def test_a_damaged_event_keeps_its_file(tmp_path: Path) -> None:
    text = json.dumps([run_by_compile("triton_poi_fused_0", 0), op("b", 20, 5)]).replace('"stream": 0', '"stream": NaN')
    assert read_trace(written(tmp_path, text)).triton_files == {"triton_poi_fused_0": "/tmp/torchinductor_me/ab/cab.py"}
