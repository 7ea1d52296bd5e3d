"""An agent's loop: the SDK's client calls each tool over stdio, on real traces; what is wrong is a tool's error."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import psutil
import pytest

from app.agents.brief.tokens import MAX_TOKENS, token_bound
from tests.conftest import ROOT
from tests.profiler.trace.files import TRACES

pytest.importorskip("mcp", reason="needs the MCP SDK: pip install tritonworthy[mcp]")

from mcp import Client
from mcp.client.stdio import StdioServerParameters

EXAMPLES = ROOT / "app" / "examples"
TOOLS = {"advise_trace", "advise_module", "advise_region", "validate", "explain_kernel"}
SHADOW = "raise SystemExit('a module of the folder was imported')\n"
KERNEL = """
import torch


def doubled(x):
    return torch.nn.functional.gelu(x) * 2


def wrong(x):
    return x * 2
"""
MODELS = """
import time

import torch


def make_model():
    layers = [torch.nn.Linear(1024, 1024), torch.nn.GELU(), torch.nn.LayerNorm(1024)]
    return torch.nn.Sequential(*layers, *layers, *layers), torch.randn(64, 128, 1024)


def endless():
    while True:
        time.sleep(0.01)


def loud():
    print("\\x1b[31m" + "loud " * 10000)
    raise RuntimeError("on purpose " * 5000)
"""
DEFINITION = {
    "axes": {"M": {"type": "var"}},
    "inputs": {"a": {"shape": ["M", "M"], "dtype": "float32"}},
    "reference": "def run(a):\n    return (a @ a).softmax(-1)\n",
}
REGION = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"
WRITTEN = EXAMPLES / "swiglu.txt"
LLAMA = "llama_prefill_bf16_eager_stack.json.gz"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where an agent works: traces, a region, a kernel of its own, a link out, and modules named as ours."""
    place = tmp_path_factory.mktemp("agent")
    for name in (LLAMA, "handrolled_blocks_bf16_eager.json.gz", "tl_h100_bert_small.json.gz"):
        shutil.copy(TRACES / name, place / name)
    (place / "region.txt").write_text(REGION)
    shutil.copy(WRITTEN, place / WRITTEN.name)
    (place / "own").mkdir()
    (place / "own" / "my_kernels.py").write_text(KERNEL)
    (place / "own" / "models.py").write_text(MODELS)
    (place / "own" / "lacks.py").write_text("import no_such_package_at_all\n")
    (place / "own" / "square.json").write_text(json.dumps(DEFINITION))
    (place / "own" / "config.json").write_text('{"model_type": "llama"}')
    (place / "out.py").symlink_to(ROOT / "tests" / "profiler" / "program" / "programs.py")
    (place / "notes.md").write_text("# no trace\n")
    (place / "out.json").symlink_to(EXAMPLES / "llama_prefill.json.gz")
    for name in ("app", "torch", "json", "queue"):
        (place / f"{name}.py").write_text(SHADOW)
    return place


@asynccontextmanager
async def client(folder: Path) -> AsyncIterator[Any]:
    """The SDK's client and a server of its own, which ends with it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRITONWORTHY_DATA_DIR": str(folder)}
    command = StdioServerParameters(
        command=sys.executable, args=["-P", "-m", "app.cli", "mcp"], env=environment, cwd=folder
    )
    async with Client(command) as connected:
        yield connected


def told(result: Any) -> dict[str, Any]:
    """A result's object, which its text is as well, within the bound."""
    assert not result.is_error, result.content[0].text
    (content,) = result.content
    assert json.loads(content.text) == result.structured_content
    assert token_bound(content.text) <= MAX_TOKENS
    return dict(result.structured_content)


def test_an_agent_asks_changes_and_proves(folder: Path) -> None:
    async def loop() -> None:
        async with client(folder) as agent:
            assert "advise_trace" in agent.instructions
            tools = {tool.name: tool for tool in (await agent.list_tools()).tools}
            assert set(tools) == TOOLS
            answers: dict[str, dict[str, Any]] = {}

            shares: list[float] = []

            async def on_progress(done: float, total: float | None, message: str | None) -> None:
                assert total == 1.0 and message
                shares.append(done)

            async def ask(tool: str, **arguments: Any) -> dict[str, Any]:
                answer = told(await agent.call_tool(tool, arguments, progress_callback=on_progress))
                jsonschema.validate(answer, tools[tool].output_schema)
                answers[tool] = answer
                return answer

            # What is slow, and what to do first?
            brief = await ask("advise_trace", path=LLAMA, inductor=False)
            assert brief["do"][0]["saves_us"]["mid"] > 0 and brief["bottleneck"]
            assert len(shares) > len(set(brief)) and shares == sorted(set(shares)) and shares[-1] == 1.0
            shares.clear()
            # What would it be without a trace?
            module = await ask(
                "advise_module", program="own/models.py:make_model", device="H100", training=True, dtype="bf16",
                inductor=False,
            )  # fmt: skip
            assert (module["of"], module["device"]) == ("module", "NVIDIA H100") and module["step"]["time_us"] > 0
            assert module["warnings"][0].startswith("From the module, predicted for NVIDIA H100")
            assert module["more"] == (
                "tritonworthy advise own/models.py:make_model --training --device H100 --dtype bf16 --json"
            )
            assert len(shares) > 3 and shares == sorted(set(shares)) and shares[-1] == 1.0
            shares.clear()
            # What is this kernel, and which code launches it?
            kernel = await ask("explain_kernel", path=LLAMA, name="pow_tensor")
            number = kernel["regions"][0]["number"]
            # Is a kernel for it worth writing? In its own words, then by the region of the trace.
            region = await ask("advise_region", text=WRITTEN.read_text(), device="H200", share=0.2)
            assert region["do"][0]["edit"]["before"].split() == WRITTEN.read_text().split()
            assert (await ask("advise_region", path=WRITTEN.name, device="H200", share=0.2))["do"] == region["do"]
            # Is mine right? Without a GPU nothing is timed, and that is said.
            own = await ask(
                "validate", path="region.txt", kernel="own/my_kernels.py:doubled", candidates=["eager"], cpu=True
            )
            assert own["kernel"]["verdict"] == "unmeasured" and own["device"] is None
            assert "only correctness was checked" in own["warnings"][0]
            bad = await ask(
                "validate", path="region.txt", kernel="own/my_kernels.py:wrong", candidates=["eager"], cpu=True
            )
            assert bad["kernel"]["verdict"] == "wrong"
            small = "handrolled_blocks_bf16_eager.json.gz"
            traced = await ask("validate", trace=small, region=4, candidates=["eager"], cpu=True)
            assert traced["name"] and number >= 1
            assert set(answers) == TOOLS

    anyio.run(loop)


def test_what_is_wrong_is_a_tools_error_in_words_and_the_next_question_is_answered(folder: Path) -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("advise_trace", {"path": "../../etc/passwd"}, "outside of the folder"),
        ("advise_trace", {"path": "/etc/passwd"}, "outside of the folder"),
        ("advise_trace", {"path": "out.json"}, "outside of the folder"),
        ("advise_trace", {"path": LLAMA, "companion": "/etc/passwd"}, "outside of the folder"),
        ("advise_trace", {"path": "nothing.json"}, "no such file"),
        ("advise_trace", {"path": "notes.md"}, "The file is not JSON"),
        ("advise_trace", {"path": LLAMA, "device": "GTX 1"}, "known devices"),
        ("advise_trace", {}, "path"),
        ("advise_module", {"program": "../x.py:f"}, "outside of the folder"),
        ("advise_module", {"program": f"{ROOT}/tests/profiler/program/programs.py:blocks"}, "outside of the folder"),
        ("advise_module", {"program": "out.py:blocks"}, "outside of the folder"),
        ("advise_module", {"program": "hf:/etc"}, "outside of the folder"),
        ("advise_module", {"program": "hf:../config.json"}, "outside of the folder"),
        ("advise_module", {"program": "def:../definition.json"}, "outside of the folder"),
        ("advise_module", {"program": "own/none.py:f"}, "no such file"),
        ("advise_module", {"program": "own/models.py"}, "say which function"),
        ("advise_module", {"program": "own/models.py:a.b"}, "no function's name"),
        ("advise_module", {"program": "own/config.json"}, "a config is hf:FILE"),
        ("advise_module", {"program": LLAMA}, "a trace is for advise_trace"),
        ("advise_module", {"program": "own/models.py:make_modle"}, "It has make_model, endless, loud"),
        ("advise_module", {"program": "own/models.py:make_model", "device": "GTX 1"}, "known devices"),
        ("advise_module", {"program": "own/models.py:make_model", "dtype": "f64"}, "'f32'"),
        ("advise_module", {"program": "own/models.py:make_model", "batch": 2}, "batch and sequence go with hf:"),
        ("advise_module", {"program": "hf:own", "sizes": {"M": 2}}, "sizes go with def:"),
        ("advise_module", {"program": "own/models.py:make_model", "budget_s": 1e9}, "less than or equal to 300"),
        ("advise_module", {"program": "own/models.py:endless", "budget_s": 8}, "not recorded after 8 s"),
        ("advise_module", {"program": "own/models.py:loud"}, "models.py:19: RuntimeError: on purpose"),
        ("advise_module", {"program": "own/lacks.py:f"}, "lacks.py:1: No module named 'no_such_package_at_all'"),
        ("advise_module", {"program": "own/square.json"}, "def:FILE runs a definition"),
        ("advise_module", {"program": "def:own/square.json"}, "no size for M"),
        ("advise_module", {"program": "def:own/square.json", "sizes": {"M": 0}}, "greater than or equal to 1"),
        ("advise_region", {"path": "out.json"}, "outside of the folder"),
        ("advise_region", {"path": LLAMA}, "a trace is for advise_trace"),
        ("advise_region", {"text": "x: f32[4]\ny = gleu(x)\nreturn y\n"}, "id you mean gelu"),
        ("advise_region", {}, "give either text"),
        ("advise_region", {"text": REGION, "path": "region.txt"}, "give either text"),
        ("advise_region", {"text": REGION, "share": 2}, "less than or equal to 1"),
        ("advise_region", {"text": "x" * 200_000}, "longer than"),
        ("validate", {"path": "region.txt", "kernel": "../x.py:f"}, "outside of the folder"),
        ("validate", {"path": "region.txt", "kernel": "own/my_kernels.py:doubeld"}, "did you mean doubled"),
        ("validate", {"trace": LLAMA}, "region: a number from 1 to"),
        ("validate", {"trace": LLAMA, "region": 1, "text": REGION}, "not both"),
        ("explain_kernel", {"path": LLAMA, "name": "winograd"}, "no kernel of the step"),
        ("explain_kernel", {"path": "out.json", "name": "gemm"}, "outside of the folder"),
    ]

    async def loop() -> None:
        async with client(folder) as agent:
            for tool, arguments, words in cases:
                result = await agent.call_tool(tool, arguments)
                text = result.content[0].text
                assert result.is_error and words in text, (tool, arguments, text)
                assert "Traceback" not in text and "internal error" not in text
                assert token_bound(text) <= MAX_TOKENS
            assert told(await agent.call_tool("advise_region", {"text": REGION}))["of"] == "region"

    anyio.run(loop)


def workers_of(server: psutil.Process) -> list[psutil.Process]:
    """The server's own children alone: what a worker starts bears the worker's command line until it is replaced."""
    return [p for p in server.children() if "app.agents.worker" in p.cmdline()]


def test_a_worker_that_is_killed_costs_one_answer_and_none_is_left_behind(folder: Path) -> None:
    async def loop() -> list[psutil.Process]:
        before = {p.pid for p in psutil.Process().children(recursive=True)}
        async with client(folder) as agent:
            assert told(await agent.call_tool("advise_region", {"text": REGION}))
            (server,) = [p for p in psutil.Process().children() if p.pid not in before]
            (worker,) = workers_of(server)

            async def kill_when_it_works(done: float, total: float | None, message: str | None) -> None:
                if worker.is_running():
                    worker.kill()

            question = {"path": LLAMA, "inductor": False}
            lost = await agent.call_tool("advise_trace", question, progress_callback=kill_when_it_works)
            assert lost.is_error and "ended by SIGKILL" in lost.content[0].text
            assert told(await agent.call_tool("advise_trace", question))["do"]
            (again,) = workers_of(server)
            return [server, worker, again]

    gone, alive = psutil.wait_procs(anyio.run(loop), 20)
    assert (len(gone), alive) == (3, [])


def test_a_question_that_is_cancelled_is_ended(folder: Path) -> None:
    async def loop() -> None:
        before = {p.pid for p in psutil.Process().children(recursive=True)}
        async with client(folder) as agent:
            begun = anyio.Event()

            async def on_progress(done: float, total: float | None, message: str | None) -> None:
                begun.set()

            async def ask() -> None:
                question = {"path": "region.txt", "cpu": True}
                await agent.call_tool("validate", question, progress_callback=on_progress)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await begun.wait()
                (server,) = [p for p in psutil.Process().children() if p.pid not in before]
                (worker,) = workers_of(server)
                tasks.cancel_scope.cancel()
            with anyio.fail_after(20):
                while worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE:
                    await anyio.sleep(0.1)
            assert told(await agent.call_tool("advise_region", {"text": REGION}))

    anyio.run(loop)


def test_a_config_is_asked_about_or_what_is_not_installed_is_said(folder: Path) -> None:
    async def loop() -> Any:
        async with client(folder) as agent:
            question = {"program": "hf:own", "batch": 2, "sequence": 128, "inductor": False, "device": "H100"}
            sized = {"program": "def:own/square.json", "sizes": {"M": 2048}, "inductor": False, "device": "H100"}
            assert told(await agent.call_tool("advise_module", sized))["more"].endswith("--size M=2048 --json")
            return await agent.call_tool("advise_module", question)

    result = anyio.run(loop)
    if find_spec("transformers") is None:
        assert result.is_error
        assert result.content[0].text.endswith("transformers is not installed. pip install transformers")
    else:
        assert told(result)["more"] == (
            "tritonworthy advise hf:own/config.json --device H100 --batch 2 --sequence 128 --json"
        )


def test_a_program_that_is_cancelled_leaves_no_process(folder: Path) -> None:
    async def loop() -> list[psutil.Process]:
        before = {p.pid for p in psutil.Process().children(recursive=True)}
        async with client(folder) as agent:
            waits = anyio.Event()

            async def on_progress(done: float, total: float | None, message: str | None) -> None:
                if done > 0:
                    waits.set()

            async def ask() -> None:
                question = {"program": "own/models.py:endless"}
                await agent.call_tool("advise_module", question, progress_callback=on_progress)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await waits.wait()
                (server,) = [p for p in psutil.Process().children() if p.pid not in before]
                recording = [p for p in server.children(recursive=True) if "profiler.program.keeper" in p.cmdline()]
                tasks.cancel_scope.cancel()
            return recording

    recording = anyio.run(loop)
    assert len(recording) == 2  # the program, and what ends with it all that it started
    assert psutil.wait_procs(recording, 20)[1] == []
