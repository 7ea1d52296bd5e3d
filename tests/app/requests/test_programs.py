"""Programs that are uploaded: refused at once whatever they are called, and no trace is taken for one."""

from __future__ import annotations

import gzip
import json
import pickle
import socket
import tarfile
from collections import OrderedDict
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from app.errors import Problem
from app.requests.programs import HEAD_BYTES, refuse_by_head, refuse_program
from tests.app.web.conftest import Serving, serving
from tests.conftest import DATA, ROOT
from tests.profiler.trace.read.test_members import zipped

TRACES = sorted((DATA / "traces").glob("*.json*"))
MODULE = b'"""A model."""\n\nimport torch\n\n\ndef make_model():\n    return torch.nn.Linear(8, 8), torch.randn(2, 8)\n'
DEFINITION = json.dumps(
    {"name": "rms", "axes": {"M": {"type": "const", "value": 8}}, "inputs": {}, "reference": "def run(): pass"}
).encode()
CONFIG = b'{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64}'
PROGRAMS = {
    "module": MODULE,
    "module with a mark": b"\xef\xbb\xbf" + MODULE,
    "script": b"#!/usr/bin/env python3\nprint(1)\n",
    "from": b"# model\nfrom .layers import Block\n",
    "class": b"class Model(torch.nn.Module):\n    pass\n",
    "definition": DEFINITION,
    "config": CONFIG,
    "config, indented": json.dumps(json.loads(CONFIG), indent=2).encode(),
    "pickle": pickle.dumps(OrderedDict(weight=[0.0]), protocol=2),
    "newest pickle": pickle.dumps({"weight": 1}, protocol=5),
    "notebook": json.dumps({"cells": [{"cell_type": "code", "source": ["import torch"]}], "nbformat": 4}).encode(),
    "UTF-16": MODULE.decode().encode("utf-16"),
    "one statement": b"import torch\nprint(1)\n",
    "one long statement": b"def make_model():\n" + b"    x = (1, 2)\n" * 9_000,
    "one statement before a long one": b"import torch\nx = [\n" + b"    1,\n" * 20_000 + b"]\n",
}
ZIPS = {
    "what torch.save writes": zipped({"model/data.pkl": pickle.dumps({}, protocol=2), "model/version": b"3"}),
    "zip of a module": zipped({"model.py": MODULE, "README.md": b"about"}),
}
OTHERS = {
    "empty list": b"[]",
    "no trace": b"not a trace, do not import it\n",
    "header first": b'{"baseTimeNanoseconds": 1, "schemaVersion": 1, "traceEvents": []}',
    "events last": b'{"model_type": "llama", "axes": 1, "inputs": 2, "reference": 3, "traceEvents": []}',
    "cut": CONFIG[:-5],
    "deep": b'{"model_type":' + b"[" * 200_000,
    "kernel's name": b'[{"ph": "X", "name": "\nimport torch\ndef f("}]',
    "table": b"ph,ts,dur\n1,2,3\n",
    "log": b"Traceback:\n  from x\nimport error happened\nclass Foo: x\n",
    "long log": b"class Foo: x y\n" + b"step took long\n" * 9_000,
    "trace beside its program": zipped({"train.py": MODULE, "trace.json": b'{"traceEvents": []}'}),
    "elf": b"\x7fELF\nimport os\n\0",
    "region": (ROOT / "app" / "examples" / "rms_norm_by_hand.txt").read_bytes(),
}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("programs")) as server:
        yield server


def written(folder: Path, content: bytes) -> Path:
    path = folder / "upload"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_refused_by_its_content(tmp_path: Path, name: str, packed: bool) -> None:
    content = gzip.compress(PROGRAMS[name]) if packed else PROGRAMS[name]
    with pytest.raises(Problem) as refused:
        refuse_program(written(tmp_path, content))
    assert (refused.value.status, refused.value.code) == (422, "trace-is-a-program")
    assert "tritonworthy advise " in refused.value.extra["remedy"]


@pytest.mark.parametrize("name", ZIPS)
def test_a_zip_of_programs_is_refused_by_its_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(Problem) as refused:
        refuse_program(written(tmp_path, ZIPS[name]))
    assert refused.value.code == "trace-is-a-program"


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_program_is_left_to_the_reader(tmp_path: Path, name: str) -> None:
    refuse_program(written(tmp_path, OTHERS[name]))
    refuse_by_head(OTHERS[name])


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_no_recorded_trace_is_taken_for_a_program(tmp_path: Path, path: Path) -> None:
    """As it lies there, unpacked, in a tar, and cut off."""
    refuse_program(path)
    content = path.read_bytes()
    plain = gzip.decompress(content) if path.suffix == ".gz" else content
    refuse_program(written(tmp_path, plain))
    refuse_by_head(plain[:HEAD_BYTES])
    refuse_program(written(tmp_path, plain[:100_000]))
    made = BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.add(path, path.name)
    refuse_program(written(tmp_path, made.getvalue()))


def test_api_and_page_refuse_it_at_once_and_keep_nothing(real: Serving) -> None:
    for content in (MODULE, DEFINITION, CONFIG, PROGRAMS["pickle"]):
        raw = real.client.post("/api/v1/traces?name=step.json", content=content)
        form = real.client.post("/api/v1/traces", files={"file": ("step.json", content)})
        page = real.client.post("/traces", files={"file": ("step.json", content)})
        for response in (raw, form):
            assert (response.status_code, response.json()["code"]) == (422, "trace-is-a-program"), response.text
        assert page.status_code == 422
        assert "not a trace" in page.text and "tritonworthy advise " in page.text
    assert real.files() == [] and real.client.get("/api/v1/traces").json()["items"] == []


@pytest.mark.parametrize(
    ("address", "field"),
    [("checks", "baseline"), ("traces", "companion"), ("traces", "beside"), ("traces", "execution_trace")],
)
def test_what_is_sent_beside_a_trace_is_no_program_either(real: Serving, address: str, field: str) -> None:
    files = {"file": ("step.json.gz", TRACES[0].read_bytes()), field: ("model.py", MODULE)}
    response = real.client.post(f"/api/v1/{address}", files=files)
    assert (response.status_code, response.json()["code"]) == (422, "trace-is-a-program"), response.text
    assert real.files() == []


def test_a_large_program_is_refused_by_its_first_bytes(real: Serving) -> None:
    """Before the rest has come."""
    host, port = real.url.removeprefix("http://").split(":")
    head = f"POST /api/v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Length: {10**7}\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(head.encode() + MODULE + b"#" * HEAD_BYTES)
        answer = connection.recv(1000)
    assert answer.startswith(b"HTTP/1.1 422") and real.files() == []
