"""A torch.profiler trace written as nsys would have exported the same run: a fixture for what reads such exports.

No real export is at hand, so the tables are those of NVIDIA's "SQLite Export Schema Reference" (Nsight Systems 2021.5
to 2025), and the ranges are named as PyTorch's emit_nvtx names them (torch/csrc/profiler/util.cpp, getNvtxStr). Nothing
here is taken from the reader. What nsys cannot know is left out: types, strides and values of arguments, modules.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

MODERN = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER, "
        "greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
        "demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, "
        "cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, "
        "gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, "
        "staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL, graphNodeId INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER, "
        "streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, "
        "copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER, graphNodeId INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER, "
        "streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, value INTEGER NOT NULL, "
        "bytes INTEGER NOT NULL, graphNodeId INTEGER, memKind INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, "
        "correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER"
    ),
    "NVTX_EVENTS": (
        "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER, "
        "color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER"
    ),
    "TARGET_INFO_GPU": (
        "vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, isDiscrete INTEGER, "
        "totalMemory INTEGER, smCount INTEGER, uuid TEXT, chipName TEXT, cuDevice INTEGER, computeMajor INTEGER, "
        "computeMinor INTEGER, threadsPerWarp INTEGER"
    ),
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER NOT NULL, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL, uuid TEXT",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
}

OLDER = {
    **MODERN,
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start INT NOT NULL, end INT NOT NULL, deviceId INT NOT NULL, contextId INT NOT NULL, streamId INT NOT NULL, "
        "correlationId INT, globalPid INT, demangledName INT NOT NULL, shortName INT NOT NULL, "
        "registersPerThread INT NOT NULL, gridX INT NOT NULL, gridY INT NOT NULL, gridZ INT NOT NULL"
    ),
    "NVTX_EVENTS": "start INT NOT NULL, end INT, eventType INT NOT NULL, rangeId INT, text TEXT, globalTid INT",
    "TARGET_INFO_GPU": "id INT NOT NULL, name TEXT NOT NULL",
}
"""As of the releases of 2021: no textId, no graphNodeId, no compute capability."""

_COPIES = {"HtoD": 1, "DtoH": 2, "DtoD": 8}
_PLACES = {"Pageable": 1, "Pinned": 2, "Device": 3}
_VERSIONS = {"cudaLaunchKernel": "_v7000", "cudaMemcpyAsync": "_v3020", "cudaLaunchKernelExC": "_v11060",
             "cudaStreamSynchronize": "_v3020", "cudaDeviceSynchronize": "_v3020",
             "cudaGraphLaunch": "_v10000"}  # fmt: skip

HOST, GPU = ("cpu_op", "user_annotation"), ("kernel", "gpu_memcpy", "gpu_memset")


class Export:
    """An export under construction, of one process."""

    def __init__(self, path: Path, schema: dict[str, str] = MODERN, pid: int = 584) -> None:
        path.unlink(missing_ok=True)
        self.db = sqlite3.connect(path)
        self.db.execute("PRAGMA journal_mode=OFF")
        self.schema = schema
        self.pid = pid
        self._ids: dict[str, int] = {}
        for table, columns in schema.items():
            self.db.execute(f"CREATE TABLE {table} ({columns})")

    def string(self, text: str) -> int:
        """Its number in StringIds."""
        if text not in self._ids:
            self._ids[text] = len(self._ids) + 1
            self.db.execute("INSERT INTO StringIds VALUES (?, ?)", (self._ids[text], text))
        return self._ids[text]

    def insert(self, table: str, **values: Any) -> None:
        """A row; what the schema lacks is left out, what it asks for and is not given is 0."""
        columns = [column.split()[0] for column in self.schema[table].split(", ")]
        needed = [column.split()[0] for column in self.schema[table].split(", ") if "NOT NULL" in column]
        row = {**dict.fromkeys(needed, 0), **{k: v for k, v in values.items() if k in columns}}
        names, marks = ", ".join(f'"{name}"' for name in row), ", ".join("?" * len(row))
        self.db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(row.values()))

    def global_id(self, tid: int = 0) -> int:
        """Serialized process and thread."""
        return 0x01 << 56 | (self.pid & 0xFFFFFF) << 24 | tid & 0xFFFFFF

    def kernel(self, start: int, end: int, correlation: int, name: str, stream: int = 7, **more: Any) -> None:
        short = name.split("<")[0].split("(")[0].split("::")[-1]
        self.insert("CUPTI_ACTIVITY_KIND_KERNEL", start=start, end=end, correlationId=correlation, streamId=stream,
                    globalPid=self.global_id(), demangledName=self.string(name), shortName=self.string(short),
                    **more)  # fmt: skip

    def call(self, start: int, end: int, correlation: int, name: str, tid: int) -> None:
        name += _VERSIONS.get(name, "")
        self.insert("CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=end, correlationId=correlation,
                    globalTid=self.global_id(tid), nameId=self.string(name))  # fmt: skip

    def push_pop(self, start: int, end: int | None, text: str, tid: int, **more: Any) -> None:
        values: dict[str, Any] = {"start": start, "end": end, "eventType": 59, "globalTid": self.global_id(tid), **more}
        if "textId" in self.schema["NVTX_EVENTS"]:  # since 2023.1 registered and repeated texts are references
            values |= {"textId": self.string(text), "domainId": values.get("domainId", 0)}
        else:
            values["text"] = text
        self.insert("NVTX_EVENTS", **values)

    def gpu(self, name: str, **more: Any) -> None:
        self.insert("TARGET_INFO_GPU", name=name, **more)
        self.insert("TARGET_INFO_CUDA_DEVICE", pid=self.pid)

    def close(self) -> None:
        for table in [t for t in self.schema if not self.db.execute(f"SELECT count(*) FROM {t}").fetchone()[0]]:
            self.db.execute(f"DROP TABLE {table}")  # tables are created when something is written into them
        self.db.commit()
        self.db.close()


def export(document: dict[str, Any], path: Path, schema: dict[str, str] = MODERN) -> Path:
    """The run of a torch.profiler trace as an export."""
    events = [e for e in document["traceEvents"] if e.get("ph") == "X"]
    first_ns = min(_ns(e["ts"]) for e in events if e.get("cat") in (*HOST, *GPU) or "correlation" in e.get("args", {}))
    pid = next((e["pid"] for e in events if e.get("cat") in HOST), 584)
    made = Export(path, schema, pid)
    for device in document.get("deviceProperties", [])[:1]:
        made.gpu(device["name"], totalMemory=device["totalGlobalMem"], smCount=device["numSms"],
                 computeMajor=device["computeMajor"], computeMinor=device["computeMinor"],
                 threadsPerWarp=device["warpSize"])  # fmt: skip
    for event in events:
        start = _ns(event["ts"]) - first_ns
        end = start + _ns(event.get("dur", 0))
        args, category, name = event.get("args", {}), event.get("cat"), event["name"]
        if category in HOST:
            made.push_pop(start, end, emitted(name, args), event["tid"])
        elif category == "kernel":
            grid, block = args.get("grid", [1, 1, 1]), args.get("block", [1, 1, 1])
            made.kernel(start, end, args["correlation"], name, args["stream"], deviceId=args["device"],
                        registersPerThread=args.get("registers per thread", 0), graphNodeId=args.get("graph node id"),
                        **{f"{what}{axis}": n for what, sizes in (("grid", grid), ("block", block))
                           for axis, n in zip("XYZ", sizes, strict=True)})  # fmt: skip
        elif category == "gpu_memcpy":
            kind, places = name.split()[1], name[name.index("(") + 1 : -1].split(" -> ")
            made.insert("CUPTI_ACTIVITY_KIND_MEMCPY", start=start, end=end, correlationId=args["correlation"],
                        streamId=args["stream"], deviceId=args["device"], globalPid=made.global_id(),
                        bytes=args.get("bytes", 0), copyKind=_COPIES[kind], srcKind=_PLACES[places[0]],
                        dstKind=_PLACES[places[1]])  # fmt: skip
        elif category == "gpu_memset":
            made.insert("CUPTI_ACTIVITY_KIND_MEMSET", start=start, end=end, correlationId=args["correlation"],
                        streamId=args["stream"], deviceId=args["device"], globalPid=made.global_id(), memKind=3,
                        bytes=args.get("bytes", 0))  # fmt: skip
        elif category in ("cuda_runtime", "cuda_driver") and "correlation" in args:
            made.call(start, end, args["correlation"], name, event["tid"])
    made.close()
    return path


def emitted(name: str, args: dict[str, Any]) -> str:
    """A range's name as emit_nvtx(record_shapes=True) writes it. A list of tensors is written as its tensors."""
    text = name
    if args.get("Sequence number", -1) >= 0:
        text += f", seq = {args['Sequence number']}"
    if "External id" in args:
        text += f", op_id = {args['External id']}"
    dims = [
        sizes
        for entry in args.get("Input Dims", [])
        for sizes in (entry if entry and isinstance(entry[0], list) else [entry])
    ]
    return f"{text}, sizes = {json.dumps(dims)}" if dims else text


def _ns(microseconds: float) -> int:
    return round(float(microseconds) * 1000)
