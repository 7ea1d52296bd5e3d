"""Inputs to begin with where there is no corpus yet: good ones, small enough that a change of one byte matters."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.fuzz.targets import EXECUTION
from tests.profiler.region.hostile.corpus import CORPUS
from tests.profiler.trace.files import TRACES, annotation, kernel, launch, loaded, op

MOST_EVENTS = 22
NAMES = (
    "handrolled_blocks_bf16_eager_stack.json.gz", "gpt2_train_autocast_eager.json.gz", "hta_nccl.json.gz",
    "handrolled_blocks_bf16_cudagraph.json.gz", "handrolled_blocks_bf16_compiled.json.gz", "hta_mi250_minitoy.json.gz",
    "kineto_docs_before_fix.json", "tl_vllm_decode_full_capture.json.gz", "mixtral_prefill_bf16_eager.json.gz",
    "t5_train_autocast_eager.json.gz", "tl_mi210_gpu_only.json.gz", "llama_eager_attention_prefill.json.gz",
)  # fmt: skip


def seeds(target: str) -> list[bytes]:
    """Inputs for a target."""
    if target == "advice":
        texts = (p.read_bytes() for p in sorted((ROOT / "tests" / "regions").glob("*.txt")))
        return [text for text in texts if len(text) < 1000]
    if target == "region":
        return [p.read_bytes() for p in sorted((ROOT / "tests" / "regions").glob("*.txt"))] + [
            text.encode("utf-8", "surrogatepass") for text, _ in CORPUS.values() if len(text) < 300
        ]
    if target == "query":
        return [
            b"share_of_step=0.15&uniqueness=0.5&irregularity=0.3&bound=memory&kind=gemm",
            b"share_of_step=1&uniqueness=0,9&irregularity=0&bound=compute&kind=attention",
            b"share=10&faster=2.5&known=0.3",
        ]
    if target == "execution":
        return [json.dumps(_execution(count)).encode() for count in (1, 4, 9)]
    traces = list(_traces())
    if target == "report":
        cut = json.dumps(_cut(loaded("llama_eager_attention_prefill.json.gz"))).encode()
        traces.append(cut + EXECUTION + json.dumps(_execution(9)).encode())
    return [*traces, *(gzip.compress(t, mtime=0) for t in traces[:2]), _tar(traces[0]), *_spelled(traces[0])]


@cache
def _traces() -> tuple[bytes, ...]:
    return tuple(json.dumps(document).encode() for document in _documents())


def _documents() -> Iterator[Any]:
    """A step written by hand, and real traces cut down to some kernels with all that belongs to them."""
    events = [annotation("ProfilerStep#1", 0, 100)]
    for i in range(4):
        at = 1.0 + 20 * i
        called = op("aten::mm" if i % 2 else "aten::add", at, 10)
        called["args"] = {
            "Input Dims": [[64, 64], [64, 64], []], "Input type": ["float", "float", "Scalar"], "External id": i
        }  # fmt: skip
        events += [called, launch(at + 2, i), kernel(at + 5, 9, i, name=f"k{i % 2}")]
    yield {"schemaVersion": 1, "record_shapes": 1, "traceEvents": events}
    yield events
    yield {"traceEvents": []}
    for name in NAMES:
        yield _cut(loaded(name))


def _cut(document: dict[str, Any]) -> dict[str, Any]:
    """A handful of kernels, with their launches and what encloses these, and the file's own head."""
    events = [e for e in document["traceEvents"] if isinstance(e, dict)]
    kernels = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy")][20:26]
    wanted = {(e.get("args") or {}).get("correlation") for e in kernels} - {None}
    launches = [
        e for e in events
        if "runtime" in str(e.get("cat")) and (e.get("args") or {}).get("correlation") in wanted
    ]  # fmt: skip
    around = [e for e in events if e.get("ph") == "X" and any(_encloses(e, at) for at in launches)]
    around.sort(key=lambda e: (e.get("cat") == "python_function", float(e["ts"])))
    more = [next((e for e in events if e.get("cat") == cat), None) for cat in ("user_annotation", "ac2g", "overhead")]
    head = {k: v for k, v in document.items() if k != "traceEvents" and len(json.dumps(v)) < 800}
    kept = [*around[:MOST_EVENTS], *launches[:6], *kernels, *(e for e in more if e)]
    return {**head, "traceEvents": kept}


def _encloses(event: dict[str, Any], launch: dict[str, Any]) -> bool:
    if event is launch or event.get("tid") != launch.get("tid"):
        return False
    return bool(float(event["ts"]) <= float(launch["ts"]) <= float(event["ts"]) + float(event.get("dur", 0)))


def _execution(count: int) -> dict[str, Any]:
    path = TRACES / "llama_eager_attention_prefill.et.json.gz"
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return {**document, "nodes": document["nodes"][: 4 + count]}


def _tar(text: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        info = tarfile.TarInfo("trace.json")
        info.size = len(text)
        archive.addfile(info, io.BytesIO(text))
    return file.getvalue().rstrip(b"\0") + b"\0" * 1024


def _spelled(text: bytes) -> Iterator[bytes]:
    """The same document damaged in the ways that writers of traces are known for."""
    yield text[: len(text) * 2 // 3]
    yield text.replace(b'"dur": 10', b'"dur": NaN').replace(b'"stream": 7', b'"stream": "7"')
    yield text.replace(b"}, {", b"},\n{").replace(b'"name": "k1"', b'"name": "\xff"')


def write(target: str, folder: Path) -> int:
    """Write them as files into a folder; how many."""
    found = seeds(target)
    for i, data in enumerate(found):
        (folder / f"seed-{i:03}").write_bytes(data)
    return len(found)
