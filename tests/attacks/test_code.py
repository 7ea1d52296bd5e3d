"""Rows "code execution from a pasted region" and "SSRF by trace URL": text stays text, and nothing is fetched."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.app.web.conftest import Serving, serving
from tests.conftest import ROOT

SOURCES = sorted(p for folder in ("app", "profiler", "kernels") for p in (ROOT / folder).rglob("*.py"))

RUN = {"eval", "exec", "__import__", "compile"}
LOAD = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "runpy", "code"}
LOADERS = {
    ("torch", "load"), ("torch", "jit"), ("torch", "package"), ("torch", "hub"), ("numpy", "load"), ("np", "load"),
    ("yaml", "load"), ("yaml", "unsafe_load"), ("os", "system"), ("os", "popen"),
}  # fmt: skip
FETCH = {
    "httpx", "requests", "aiohttp", "urllib3", "urllib.request", "http.client", "ftplib", "telnetlib", "smtplib",
    "webbrowser", "xmlrpc",
}  # fmt: skip
CONNECTS = {("socket", "create_connection"), ("asyncio", "open_connection")}


def names(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """(line, kind, name) of what a module imports, and of what it calls by a plain or a dotted name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, "import", alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, "import", node.module
            yield from ((node.lineno, "import", f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.lineno, "call", node.func.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.lineno, "dotted", f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.keyword) and node.arg == "shell":
            yield node.value.lineno, "call", "shell="


@cache
def everything() -> dict[str, list[tuple[int, str, str]]]:
    """What each of our modules uses, by its path."""
    return {
        str(p.relative_to(ROOT)): list(names(ast.parse(p.read_text(encoding="utf-8")))) for p in SOURCES
    }  # fmt: skip


def offences(wanted_calls: set[str], wanted_modules: set[str], dotted: set[tuple[str, str]]) -> list[str]:
    collected = []
    spelled = {".".join(pair) for pair in dotted}
    for place, uses in everything().items():
        for line, kind, name in uses:
            bad = (
                (kind == "call" and name in wanted_calls)
                or (kind == "import" and any(name == m or name.startswith(f"{m}.") for m in wanted_modules))
                or (kind in ("dotted", "import") and name in spelled)
            )
            if bad:
                collected.append(f"{place}:{line}: {name}")
    return collected


PROGRAMS = "profiler/program/sources.py"
"""Runs a program that the command line or an agent's own question names, in a child process with limits."""


def test_code_execution_nothing_evaluates_unpickles_or_shells_out() -> None:
    assert len(SOURCES) > 200
    assert [o for o in offences(RUN | {"shell="}, LOAD, LOADERS) if not o.startswith(f"{PROGRAMS}:")] == []


def test_code_execution_a_program_is_run_by_its_child_alone_and_no_server_asks_for_one() -> None:
    assert users_of("profiler.program.sources") == {"profiler/program/child.py"}
    asking = users_of("app.program", "profiler.program.process", "profiler.program.child")
    assert {place.rsplit("/", 1)[0] for place in asking} == {
        "app/agents", "app/check/contracts", "app/cli", "app/program", "profiler/program",
    }  # fmt: skip
    assert {p for p in users_of("app.agents") if not p.startswith("app/agents/")} == {
        "app/cli/__init__.py",
        "app/cli/advise.py",
        "app/cli/streams.py",
    }


def test_code_execution_the_search_finds_what_it_is_for() -> None:
    text = "import pickle\nfrom torch import load\neval('1')\nos.run('x', shell=True)\nfrom urllib import request\n"
    seen = {name for _, _, name in names(ast.parse(text))}
    assert {"pickle", "torch.load", "eval", "shell=", "urllib.request"} <= seen


def users_of(*modules: str) -> set[str]:
    """Which of our files import one of these modules, or from it."""
    return {
        place
        for place, uses in everything().items()
        if any(kind == "import" and name.startswith(modules) for _, kind, name in uses)
    }


def test_code_execution_only_the_command_line_loads_a_file() -> None:
    """What names a user's file is the command line's; what loads it is a candidate's process."""
    assert users_of("app.analysis.user_kernel") == {
        "app/agents/answers.py", "app/check/kernels.py", "app/cli/validate.py",
    }  # fmt: skip
    assert users_of("app.check.kernels") == {"app/check/judge.py", "app/check/run.py"}
    assert users_of("kernels.measure.candidate.user_kernel") == {"kernels/measure/candidate/worker.py"}
    reads = {place for place in everything() if "runs_kernels=True" in (ROOT / place).read_text()}
    assert reads == {"app/cli/ci/check.py"}, "a server's configurations name no kernels"


KERNEL = '[[kernels]]\nname = "mine"\nkernel = "owned.py:run"\nregion = "norm.txt"\n'


def test_code_execution_no_request_has_a_kernel(web: Serving) -> None:
    for place, body in (
        ("validations", {"region": GOOD}),
        ("advice", {"region": GOOD, "oracle": "off"}),
        ("checks", {"regions": [GOOD]}),
    ):
        for field in ("kernel", "kernels", "kernel_limit_s"):
            answer = web.client.post(f"/api/v1/{place}", json={**body, field: "owned.py:run"})
            assert answer.status_code == 422, (place, field, answer.text)
    schema = web.client.get("/openapi.json").json()["components"]["schemas"]
    taken = [name for name in ("ValidationRequest", "CheckRequest", "AdviceRequest") if name in schema]
    assert taken
    assert not any("kernel" in field for name in taken for field in schema[name]["properties"])


MODULE = "[[contracts]]\nname = 'mine'\nmodule = 'owned.py:run'\nmax_kernels = 1\n"


def test_code_execution_a_contract_about_a_module_is_refused(web: Serving) -> None:
    files = [("file", ("chain.txt", GOOD.encode())), ("config", ("tritonworthy.toml", MODULE.encode()))]
    answer = web.client.post("/api/v1/checks", files=files)
    assert (answer.status_code, answer.json()["code"]) == (422, "config-invalid")
    body = {"regions": [GOOD], "contracts": [{"name": "mine", "module": "owned.py:run", "max_kernels": 1}]}
    assert web.client.post("/api/v1/checks", json=body).status_code == 422


def test_code_execution_a_configuration_that_names_kernels_is_refused(web: Serving) -> None:
    files = [("file", ("chain.txt", GOOD.encode())), ("config", ("tritonworthy.toml", KERNEL.encode()))]
    answer = web.client.post("/api/v1/checks", files=files)
    assert (answer.status_code, answer.json()["code"]) == (422, "config-invalid")
    assert "a server runs nobody's code" in answer.json()["detail"]
    assert answer.json()["line"] == 1
    body = {"regions": [GOOD], "check": {"kernels": []}}
    assert web.client.post("/api/v1/checks", json=body).status_code == 422


CLIENTS = ("app/cli/servers/remote.py:", "app/capture/serving.py:", "app/check/comment/http.py:")
"""`watch --server URL`, `capture --vllm URL` and `comment`: clients of another server, at the address of their command
line or of the build that runs them."""


def test_ssrf_nothing_in_the_app_fetches() -> None:
    assert [o for o in offences(set(), FETCH, CONNECTS) if not o.startswith(CLIENTS)] == []
    assert {p for p in users_of("app.check.comment") if not p.startswith("app/check/comment/")} == {
        "app/cli/ci/comment.py"
    }
    assert {p for p in users_of("app.capture") if not p.startswith("app/capture/")} == {"app/cli/servers/capture.py"}
    users = {place for place, uses in everything().items() for _, kind, name in uses
             if kind == "import" and name.startswith("app.cli.servers.remote")}  # fmt: skip
    assert users == {"app/cli/ci/watch.py", "app/cli/servers/capture.py", "app/cli/servers/watch_remote.py"}
    users = {place for place, uses in everything().items() for _, kind, name in uses
             if kind == "import" and name.startswith(("app.cli.ci.watch", "app.cli.servers.watch_remote"))}  # fmt: skip
    assert users == {"app/cli/__init__.py", "app/cli/ci/watch.py"}, "no part of the server"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("code"), "trace") as server:
        server.client.post("/api/v1/advice", json={"region": GOOD, "oracle": "off"})
        yield server


GOOD = "x: f32[64, 64]\ny = relu(x + 1.0)\nreturn y\n"
HEAD = "x: f32[4]\n"
PASTES = {
    "import": HEAD + "y = __import__('os').system('touch owned')\nreturn y",
    "statement": "import os\n" + HEAD + "return x",
    "dunder": HEAD + "y = x.__class__.__mro__[1].__subclasses__()\nreturn y",
    "getattr": HEAD + "y = getattr(x, 'numpy')()\nreturn y",
    "eval": HEAD + "y = eval('1+1')\nreturn y",
    "f-string": HEAD + "y = x + f'{open(\"/etc/passwd\").read()}'\nreturn y",
    "lambda": HEAD + "y = (lambda: x)()\nreturn y",
    "comprehension": HEAD + "y = [z for z in ().__class__.__bases__]\nreturn y",
    "walrus": HEAD + "y = (torch := x)\nreturn torch",
    "load": HEAD + "y = torch.load('/etc/passwd')\nreturn y",
    "ops": HEAD + "y = torch.ops.load_library('/tmp/x.so')\nreturn y",
    "hub": HEAD + "y = torch.hub.load('a/b', 'c')\nreturn y",
    "classes": HEAD + "y = torch.classes.load_library('/tmp/x.so')\nreturn y",
    "full-width": HEAD + "y = ｅｖａｌ('1')\nreturn y",
    "ligature": HEAD + "y = x.__ﬁeld__\nreturn y",
    "decorator": "@print\ndef f():\n  pass\n" + HEAD + "return x",
    "default": HEAD + "def f(a=open('owned', 'w')):\n  return a\nreturn x",
    "encoding": "# -*- coding: utf-7 -*-\n" + HEAD + "+AGEAYgBj-\nreturn x",
    "save": HEAD + "y = torch.save(x, 'owned')\nreturn y",
    "to file": HEAD + "y = x.tofile('owned')\nreturn y",
}
BOMBS = {
    "parentheses": HEAD + "y = " + "(" * 300 + "x" + ")" * 300 + "\nreturn y",
    "minus": HEAD + "y = " + "-" * 60_000 + "x\nreturn y",
    "chain": HEAD + "y = x" + "+x" * 30_000 + "\nreturn y",
    "attributes": HEAD + "y = x" + ".a" * 30_000 + "\nreturn y",
    "subscripts": HEAD + "y = x" + "[0]" * 15_000 + "\nreturn y",
    "digits": HEAD + "y = x + " + "9" * 60_000 + "\nreturn y",
    "power": HEAD + "y = x + 9**9**9**9\nreturn y",
    "shift": HEAD + "y = x + (1 << 10**9)\nreturn y",
    "repeat": HEAD + "y = x + len('a' * 10**10)\nreturn y",
    "loop": HEAD + "for i in range(10**12):\n  x = x + 1\nreturn x",
    "loops": HEAD + "".join("  " * d + "for i in range(128):\n" for d in range(8)) + "  " * 8 + "x = x + 1\nreturn x",
    "tuples": HEAD + "y = x" + "".join(f"\ny = (y, y){n}"[:-1] for n in range(60)) + "\nreturn y",
    "nul": HEAD + "y = x\x00\nreturn y",
    "lines": HEAD + "x = x + 1\n" * 6000 + "return x",
    "statements": HEAD + "x = x + 1;" * 6000 + "\nreturn x",
    "strings": HEAD + "y = x + " + "'a'" * 20_000 + "\nreturn y",
    "indents": HEAD + "".join(" " * d + "if x:\n" for d in range(200)) + " " * 200 + "x = x\nreturn x",
    "names": "".join(f"x{n}: f32[4]\n" for n in range(4000)) + "return x0",
    "sizes": "x: f32[" + "2, " * 5000 + "2]\nreturn x",
    "symbols": "".join(f"N{n}: sizes[1, 2]\n" for n in range(2000)) + "x: f32[N0]\nreturn x",
    "one name": HEAD + "y = " + "a" * 60_000 + "\nreturn y",
}


@pytest.mark.parametrize("name", PASTES)
def test_code_execution_a_pasted_region_never_runs(
    web: Serving, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    response = web.client.post("/api/v1/advice", json={"region": PASTES[name], "oracle": "off"})
    assert response.status_code == 422, response.text[:300]
    assert response.json()["code"].startswith("region-")
    assert "root:" not in response.text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", BOMBS)
def test_code_execution_a_parser_bomb_is_422_in_time(web: Serving, name: str) -> None:
    started = time.monotonic()
    response = web.client.post("/api/v1/advice", json={"region": BOMBS[name], "oracle": "off"})
    assert response.status_code == 422, response.text[:300]
    assert response.json()["code"].startswith("region-")
    assert time.monotonic() - started < 20  # an advice is given up at 30
    assert web.client.get("/healthz").status_code == 200


def test_code_execution_a_text_over_the_cap_is_413_before_it_is_parsed(web: Serving) -> None:
    response = web.client.post("/api/v1/advice", json={"region": "(" * 65_537})
    assert (response.status_code, response.json()["code"]) == (413, "region-too-large")


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("pickle", b"\x80\x04\x95\x10\x00\x00\x00"),
        ("torch zip", b"PK\x03\x04" + bytes(100)),
        ("old torch", b"\x80\x02\x8a"),
    ],
)
def test_code_execution_a_pickle_or_a_checkpoint_is_no_trace(tmp_path: Path, kind: str, data: bytes) -> None:
    from profiler.trace import TraceError, read_trace

    path = tmp_path / "trace.json"
    path.write_bytes(data)
    with pytest.raises(TraceError) as told:
        read_trace(path)
    assert told.value.remedy


def test_ssrf_an_address_in_place_of_a_trace_is_only_text(web: Serving) -> None:
    """No field takes a URL: it is an unknown id, an unknown field or a display name."""
    url = "http://127.0.0.1:1/trace.json"
    assert web.client.post("/api/v1/traces", params={"companion": url}, content=b"{}").status_code == 404
    assert web.client.post("/api/v1/checks", json={"traces": [url]}).status_code in (404, 422)
    assert web.client.post("/api/v1/checks", json={"url": url}).status_code == 422
    assert web.client.post("/api/v1/traces", json={"url": url}).status_code in (201, 422)
    named = web.client.post("/api/v1/traces", params={"name": url}, content=b"{}")
    assert named.json()["name"] == "trace.json"
