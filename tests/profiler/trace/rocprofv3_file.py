"""A torch.profiler trace of a ROCm host written as rocprofv3 would have recorded the same run.

By ROCprofiler-SDK's published schema (source/docs/rocprofv3-schema.json) and what its own tests ask of a file
(tests/rocprofv3/tracing/validate.py): no recording of a PyTorch program is at hand. Nothing here is taken from the
reader.
"""

from __future__ import annotations

from typing import Any

from tests.profiler.trace.nsys_export import HOST, emitted

_KINDS = ("NONE", "HSA_CORE_API", "HIP_RUNTIME_API", "MARKER_CORE_API", "MEMORY_COPY", "KERNEL_DISPATCH")
_FIRST_HANDLE = 4_000_000


def recorded(document: dict[str, Any]) -> dict[str, Any]:
    """The run as one process of a rocprofv3 file. Sets on the GPU are kernels of the runtime there, and left out."""
    events = [e for e in document["traceEvents"] if e.get("ph") == "X"]
    operations: dict[str, list[str]] = {kind: [] for kind in _KINDS}
    operations["MEMORY_COPY"] = ["NONE", "MEMORY_COPY_HOST_TO_DEVICE"]
    operations["KERNEL_DISPATCH"] = ["NONE", "COMPLETE"]
    symbols: dict[str, int] = {}
    markers: list[dict[str, Any]] = []
    records: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("kernel_dispatch", "hip_api", "hsa_api", "marker_api", "memory_copy")
    }
    marker_key = 1 << 40

    def record(event: dict[str, Any], kind: str, operation: str, correlation: int, **more: Any) -> dict[str, Any]:
        if operation not in operations[kind]:
            operations[kind].append(operation)
        start = round(event["ts"] * 1000)
        end = start + round(event.get("dur", 0) * 1000)
        return {"size": 64, "kind": _KINDS.index(kind), "operation": operations[kind].index(operation),
                "correlation_id": {"internal": correlation, "external": 0},
                "start_timestamp": start, "end_timestamp": end, **more}  # fmt: skip

    for event in events:
        args, category, name = event.get("args", {}), event.get("cat"), event["name"]
        if category in HOST:
            marker_key += 1
            markers.append({"key": marker_key, "value": emitted(name, args)})
            records["marker_api"].append(
                record(event, "MARKER_CORE_API", "roctxRangePushA", marker_key, thread_id=event["tid"])
            )
        elif category == "kernel":
            number = symbols.setdefault(name, len(symbols) + 1)
            sizes = {key: dict(zip("xyz", args.get(was, [1, 1, 1]), strict=True))
                     for key, was in (("workgroup_size", "block"), ("grid_size", "grid"))}  # fmt: skip
            told = {"size": 96, "agent_id": {"handle": _FIRST_HANDLE + args["device"]},
                    "queue_id": {"handle": 1 + int(args["stream"])}, "kernel_id": number, "dispatch_id": 1,
                    "private_segment_size": 0, "group_segment_size": 0, **sizes}  # fmt: skip
            records["kernel_dispatch"].append(
                record(event, "KERNEL_DISPATCH", "COMPLETE", args["correlation"], thread_id=1, dispatch_info=told)
            )
        elif category == "gpu_memcpy":
            gpu, host = {"handle": _FIRST_HANDLE + args["device"]}, {"handle": 1}
            source, target = (gpu if side == "D" else host for side in name.split()[1].split("to"))
            records["memory_copy"].append(
                record(event, "MEMORY_COPY", "MEMORY_COPY_HOST_TO_DEVICE", args["correlation"], thread_id=1,
                       src_agent_id=source, dst_agent_id=target, bytes=0)
            )  # fmt: skip
        elif category in ("cuda_runtime", "cuda_driver") and "correlation" in args:
            records["hip_api"].append(
                record(event, "HIP_RUNTIME_API", name, args["correlation"], thread_id=event["tid"])
            )
    pid = next((e["pid"] for e in events if e.get("cat") in HOST), 1)
    return {
        "rocprofiler-sdk-tool": [
            {
                "metadata": {"pid": pid, "init_time": 1, "fini_time": 2},
                "agents": [{"size": 296, "id": {"handle": 1}, "type": 1, "name": "AMD EPYC"}, *_gpus(document)],
                "counters": [],
                "strings": {
                    "callback_records": [],
                    "buffer_records": [{"kind": kind, "operations": names} for kind, names in operations.items()],
                    "marker_api": markers,
                    "counters": {"dimension_ids": []},
                },
                "code_objects": [],
                "kernel_symbols": [
                    {"size": 80, "kernel_id": number, "code_object_id": 1, "kernel_name": f"_Z{number}k.kd",
                     "formatted_kernel_name": name, "demangled_kernel_name": name, "truncated_kernel_name": name[:9]}
                    for name, number in symbols.items()
                ],
                "callback_records": {"counter_collection": []},
                "buffer_records": records,
            }
        ]
    }  # fmt: skip


def _gpus(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"size": 296, "id": {"handle": _FIRST_HANDLE + device["id"]}, "type": 2, "name": "gfx942",
         "product_name": device["name"], "cu_count": device["numSms"], "wave_front_size": device["warpSize"],
         "gfx_target_version": 10_000 * device["computeMajor"] + 100 * device["computeMinor"],
         "mem_banks": [{"heap_type": 1, "size_in_bytes": device["totalGlobalMem"]}]}
        for device in document.get("deviceProperties", [])
    ]  # fmt: skip
