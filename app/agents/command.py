"""tritonworthy mcp | skill: what coding agents use; an MCP server on stdio, and the skill that says when to use it.

Exit status: 0 done; 1 the input is wrong; 2 the MCP SDK is not installed, or it could not be written.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

OK, BAD_INPUT, NOT_INSTALLED = 0, 1, 2


def add_agents(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Hook `mcp` and `skill` into the command line."""
    mcp = commands.add_parser("mcp", help="an MCP server on stdio, for coding agents: docs/agents.md")
    mcp.add_argument(
        "--folder",
        type=_folder,
        default=Path(),
        metavar="DIR",
        help="files are read below it alone; by default the folder that the server is started in",
    )
    mcp.set_defaults(run=_mcp)
    skill = commands.add_parser("skill", help="print the skill that tells a coding agent how to use this")
    skill.add_argument(
        "--install",
        type=_folder,
        metavar="DIR",
        help="write it below this folder of skills instead, as tritonworthy/SKILL.md",
    )
    skill.set_defaults(run=_skill)


def _folder(text: str) -> Path:
    """A folder; the empty path, as of a variable that is not set, would be the current one."""
    if not text.strip():
        raise argparse.ArgumentTypeError("a folder is wanted; it is empty")
    return Path(text)


def _mcp(arguments: argparse.Namespace) -> int:
    from app.agents.errors import AgentError
    from app.agents.folder import Folder

    if find_spec("mcp") is None:
        print("tritonworthy mcp needs the MCP SDK: pip install 'tritonworthy[mcp]'", file=sys.stderr)
        return NOT_INSTALLED
    try:
        folder = Folder.of(arguments.folder)
    except AgentError as error:
        print(error, file=sys.stderr)
        return BAD_INPUT
    from app.agents.mcp_server import serve_stdio

    serve_stdio(folder)
    return OK


def _skill(arguments: argparse.Namespace) -> int:
    from app.agents.skill import install, skill_text

    if arguments.install is None:
        print(skill_text(), end="")
        sys.stdout.flush()
    else:
        print(install(arguments.install))
    return OK
