"""docs/agents.md and the skill: their tables are the code's, and their commands run."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from app import cli
from app.agents.brief.tokens import MAX_TOKENS, token_bound
from app.agents.skill import skill_text
from app.objects.brief import Brief, BriefAction, BriefLeftOut
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
SKILL = skill_text()
TRACE = ROOT / "app" / "examples" / "handrolled_blocks.json.gz"
STATUS = {"validate": 2}
"""Where there is no GPU: nothing could be measured."""


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S)


COMMANDS = [line for text in (PAGE, SKILL) for block in blocks(text, "bash") for line in block.splitlines()]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where an agent works as the skill supposes: a step before and after, a region, a kernel of its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("step.json.gz", "after.json.gz"):
        shutil.copy(TRACE, tmp_path / name)
    (region,) = blocks(SKILL, "region")
    (model,) = blocks(SKILL, "model")
    (tmp_path / "model.py").write_text(model)
    (tmp_path / "region.txt").write_text(region)
    kernel = "from torch.nn.functional import rms_norm as norm\n\n\ndef rms_norm(x, weight):\n"
    (tmp_path / "my_kernels.py").write_text(f"{kernel}    return norm(x, x.shape[-1:], weight, 1e-6)\n")
    return tmp_path


def test_the_skill_and_the_page_have_commands() -> None:
    assert len(COMMANDS) == 11
    assert {command.split()[1] for command in COMMANDS} == {"advise", "skill", "validate", "check"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs(command: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, name, *arguments = command.split()
    assert program == "tritonworthy"
    faster = {"advise": ["--oracle", "off"], "validate": ["--device", "cpu", "--candidates", "eager"]}
    status = cli.main([name, *arguments, *(faster.get(name, ()))])
    printed = capsys.readouterr()
    assert status == STATUS.get(name, 0), printed.err
    if "--brief" in arguments:
        assert token_bound(printed.out) <= MAX_TOKENS + 1
        assert json.loads(printed.out)["do"] and printed.out.count("\n") == 1
    if "model.py:make_model" in arguments:
        assert json.loads(printed.out)["of"] == "module"
    if "--kernel" in arguments:
        assert json.loads(printed.out)["kernel_verdict"]["because"].startswith("it is right")
    if "--install" in arguments:
        assert (here / arguments[-1] / "tritonworthy" / "SKILL.md").read_text(encoding="utf-8") == SKILL


def test_the_recording_of_the_skill_is_the_one_that_pages_show() -> None:
    from app.web.labels import RECORD_A_TRACE

    (code,) = blocks(SKILL, "python")
    shown = RECORD_A_TRACE.partition("\n\nimport json")[0]
    assert code.strip() == shown.replace('"trace.json.gz"', '"step.json.gz"')


def test_the_skill_has_a_head_that_agents_read_and_is_short() -> None:
    head = re.match(r"---\nname: (\S+)\ndescription: ([^\n]+)\n---\n", SKILL)
    assert head and head[1] == "tritonworthy" and len(head[2]) <= 1024
    assert token_bound(SKILL) <= 2000


def test_fields_of_the_page_are_the_briefs() -> None:
    table = PAGE.split("## The brief")[1].split("## The MCP server")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.M))
    assert list(rows) == list(Brief.__annotations__)
    assert re.findall(r"`(\w+)`", rows["do"]) == list(BriefAction.__annotations__)
    assert set(BriefLeftOut.__annotations__) == {"do", "do_not", "warnings", "edits"}
    assert f"{MAX_TOKENS:,} tokens" in PAGE


def test_tools_of_the_page_are_the_servers(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="needs the MCP SDK: pip install tritonworthy[mcp]")
    import anyio

    from app.agents.folder import Folder
    from app.agents.mcp_server import build_server

    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| .+ \|$", PAGE.split("## The MCP server")[1], re.M)
    tools = anyio.run(build_server(Folder.of(tmp_path)).list_tools)
    assert {name: set(re.findall(r"`(\w+)`", takes)) for name, takes in rows} == {
        tool.name: set(tool.input_schema["properties"]) for tool in tools
    }
    assert all(tool.output_schema and tool.description for tool in tools)


def test_without_the_sdk_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("app.agents.command.find_spec", lambda name: None)
    assert cli.main(["mcp"]) == 2
    assert "pip install 'tritonworthy[mcp]'" in capsys.readouterr().err


@pytest.mark.parametrize("more", [["--json"], ["--device", "all"]])
def test_a_brief_is_of_one_device_and_one_form(more: list[str], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["advise", "region.txt", "--brief", *more]) == 1
    assert capsys.readouterr().err == "--brief goes without --json, and with one device\n"


def test_a_folder_that_is_not_there_is_a_wrong_input(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mcp", reason="needs the MCP SDK: pip install tritonworthy[mcp]")
    assert cli.main(["mcp", "--folder", "nothing"]) == 1
    assert capsys.readouterr().err == "nothing: no such folder\n"
