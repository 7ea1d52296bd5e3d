"""One step of two ops as each vendor and version writes it: the same links under every spelling."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from profiler.trace import read_trace
from profiler.trace.model import NONE
from tests.profiler.trace.files import written


@dataclass(frozen=True)
class Dialect:
    op: str = "cpu_op"
    runtime: str = "cuda_runtime"
    kernel: str = "kernel"
    copy: str = "gpu_memcpy"
    frame: str = "python_function"
    annotation: str = "user_annotation"
    launch: str = "cudaLaunchKernel"
    flow: str | None = "ac2g"
    dims: str = "Input Dims"
    external: str = "External id"
    stream: bool = True


DIALECTS = {
    "CUDA": Dialect(),
    "CUDA 12 extended": Dialect(launch="cudaLaunchKernelExC"),
    "CUDA driver": Dialect(runtime="cuda_driver", launch="cuLaunchKernel"),
    "CUDA driver extended": Dialect(runtime="cuda_driver", launch="cuLaunchKernelEx"),
    "a name that CUPTI does not know": Dialect(launch="INVALID"),
    "flows before 2023": Dialect(flow="async_cpu_to_gpu"),
    "no flows": Dialect(flow=None),
    "ROCm": Dialect(launch="hipLaunchKernel"),
    "ROCm module": Dialect(launch="hipModuleLaunchKernel"),
    "ROCm extended": Dialect(launch="hipExtModuleLaunchKernel"),
    "XPU": Dialect(runtime="xpu_runtime", launch="urEnqueueKernelLaunch"),
    "XPU driver": Dialect(runtime="xpu_driver", launch="zeCommandListAppendLaunchKernel"),
    "another device": Dialect(runtime="privateuse1_runtime", launch="aclrtLaunch"),
    "torch 1.9": Dialect(
        op="Operator", runtime="Runtime", kernel="Kernel", copy="Memcpy", flow="async",
        dims="Input dims", external="external id", stream=False,
    ),
    "capitals": Dialect(
        op="CPU_OP", runtime="CUDA_RUNTIME", kernel="KERNEL", copy="GPU_MEMCPY", frame="PYTHON_FUNCTION",
        annotation="USER_ANNOTATION", flow="AC2G",
    ),
    "title case": Dialect(
        op="Cpu_Op", runtime="Cuda_Runtime", kernel="Kernel", copy="Gpu_Memcpy", frame="Python_Function",
        annotation="User_Annotation",
    ),
}  # fmt: skip


def span(cat: str, name: str, ts: float, dur: float, tid: object = 1, **args: object) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def trace_of(d: Dialect) -> dict[str, Any]:
    def on_gpu(cat: str, name: str, ts: float, dur: float, correlation: int) -> dict[str, Any]:
        args: dict[str, Any] = {"correlation": correlation, "device": 0}
        return span(cat, name, ts, dur, "stream 7", **(args | {"stream": 7} if d.stream else args))

    events = [
        span(d.annotation, "ProfilerStep#3", 0, 200),
        span(d.frame, "nn.Module: Net_0", 1, 150),
        span(d.op, "aten::mm", 10, 40, **{d.dims: [[2, 3], [3, 4]], d.external: 5}),
        span(d.runtime, d.launch, 20, 5, **{"correlation": 71, d.external: 5}),
        span(d.op, "aten::copy_", 60, 40, **{d.dims: [[2, 4], [2, 4]], d.external: 6}),
        span(d.runtime, "copy", 70, 5, **{"correlation": 72, d.external: 6}),
        on_gpu(d.kernel, "gemm", 100, 30, 71),
        on_gpu(d.copy, "Memcpy DtoD", 140, 10, 72),
    ]
    if d.flow:
        events += [
            {"ph": "s", "cat": d.flow, "name": d.flow, "id": 71, "pid": 1, "tid": 1, "ts": 20},
            {"ph": "f", "cat": d.flow, "name": d.flow, "id": 71, "pid": 0, "tid": 7, "ts": 100, "bp": "e"},
        ]
    return {"schemaVersion": 1, "traceEvents": events}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_spelling_gives_the_same_links(tmp_path: Path, dialect: str) -> None:
    d = DIALECTS[dialect]
    trace = read_trace(written(tmp_path, json.dumps(trace_of(d))))
    assert trace.events == 8 + 2 * (d.flow is not None)
    assert trace.dropped == 0
    assert [trace.names[trace.ops.name[i]] for i in trace.kernels.op] == ["aten::mm"]
    assert [trace.names[trace.ops.name[i]] for i in trace.memory.op] == ["aten::copy_"]
    assert trace.kernels.launch_us.tolist() == [20.0]
    assert trace.kernels.stream.tolist() == [7]
    assert trace.linked_share == 1.0
    assert [trace.details[i].dims for i in trace.ops.detail] == [((2, 3), (3, 4)), ((2, 4), (2, 4))]
    assert trace.ops.external_id.tolist() == [5, 6]
    assert trace.profiler_steps == 1
    assert [trace.modules[i] for i in trace.ops.module] == ["Net_0", "Net_0"]
    assert "external-id-disagrees" not in {note.code for note in trace.notes}


@pytest.mark.parametrize("launch", ["cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch", "urEnqueueCommandBufferExp"])
def test_kernels_of_a_graph_launch_are_known_as_such(tmp_path: Path, launch: str) -> None:
    document = trace_of(Dialect(launch=launch))
    assert read_trace(written(tmp_path, json.dumps(document))).kernels.graph.tolist() == [True]


GPU_SIDE = (
    "gpu_user_annotation", "cuda_sync", "cuda_event", "xpu_sync", "overhead", "Trace", "cuda_profiler_range",
    "external_correlation", "collective_comm", "mtia_ccp_events",
)  # fmt: skip


@pytest.mark.parametrize("cat", GPU_SIDE)
def test_what_runs_on_the_gpus_side_is_never_taken_for_a_launch(tmp_path: Path, cat: str) -> None:
    document = trace_of(Dialect())
    document["traceEvents"].insert(0, span(cat, "x", 65, 1, correlation=71))
    trace = read_trace(written(tmp_path, json.dumps(document)))
    assert [trace.names[trace.ops.name[i]] for i in trace.kernels.op] == ["aten::mm"]


def test_correlation_zero_and_kernels_without_args_link_to_nothing(tmp_path: Path) -> None:
    document = trace_of(Dialect())
    bare = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 110, "dur": 1}
    document["traceEvents"] += [bare, {**bare, "args": {"correlation": 0}}, {**bare, "args": None}]
    trace = read_trace(written(tmp_path, json.dumps(document)))
    assert sorted(trace.kernels.op.tolist()) == [NONE, NONE, NONE, 0]
