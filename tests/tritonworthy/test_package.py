"""`import tritonworthy` costs next to nothing, and what it offers is there; no web is needed for any of it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tritonworthy
from app.cli import SERVER_PACKAGES, install_hint
from tests.conftest import ROOT

BLOCKED = "import sys\nfor name in {names!r}: sys.modules[name] = None\n"
"""Imports of these fail as where they are not installed."""


def run(code: str, *arguments: str, blocked: bool = True) -> subprocess.CompletedProcess[str]:
    code = (BLOCKED.format(names=sorted(SERVER_PACKAGES - {"jinja2"})) if blocked else "") + code  # torch has jinja2
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )


def test_importing_it_imports_nothing_else() -> None:
    done = run("import tritonworthy\nprint(*{n.partition('.')[0] for n in sys.modules})", blocked=True)
    assert done.returncode == 0, done.stderr
    assert "tritonworthy" in done.stdout.split()
    assert not {"app", "kernels", "profiler", "torch", "numpy"} & set(done.stdout.split())


def test_every_name_is_there_and_no_other() -> None:
    assert set(tritonworthy.__all__) == set(tritonworthy._MODULES)
    assert all(getattr(tritonworthy, name).__doc__ for name in tritonworthy.__all__)
    with pytest.raises(AttributeError, match="no attribute 'advice'"):
        tritonworthy.advice  # noqa: B018


@pytest.mark.parametrize("command", ["serve", "report", "fleet"])
def test_a_command_of_the_web_says_which_extra_has_it(command: str, tmp_path: Path) -> None:
    trace = str(ROOT / "app" / "examples" / "handrolled_blocks.json.gz")
    more = {"report": [trace, "--out", str(tmp_path / "r.html")], "fleet": ["status"]}.get(command, [])
    done = run("from app.cli import main\nsys.exit(main(sys.argv[1:]))", command, *more)
    assert done.returncode == 2, done.stderr
    assert "pip install 'tritonworthy[server]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_only_the_webs_packages_are_of_the_extra() -> None:
    assert install_hint(ModuleNotFoundError("no", name="sqlalchemy.orm"))
    assert not install_hint(ModuleNotFoundError("no", name="torch")) and not install_hint(ImportError("no"))


def test_the_metadata_asks_for_the_web_in_its_extra_alone() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def names(rows: list[str]) -> set[str]:
        return {row.split(">")[0].split("[")[0].split(";")[0].strip().replace("-", "_") for row in rows}

    assert names(project["optional-dependencies"]["server"]) == SERVER_PACKAGES
    assert not names(project["dependencies"]) & SERVER_PACKAGES
    assert {"torch", "numpy", "msgspec", "typing_extensions"} <= names(project["dependencies"])
    assert "tritonworthy[server,mcp,postgres,ray]" in project["optional-dependencies"]["dev"]


def test_commands_run_where_the_web_is_not_installed(tmp_path: Path) -> None:
    """Beyond the import contract, which follows every import: a few of them are run."""
    (tmp_path / "r.txt").write_text("x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n")
    code = (
        "from app.cli import main\n"
        "statuses = [main(a.split()) for a in sys.argv[1:]]\n"
        "print(*statuses, file=sys.stderr)"
    )
    trace, region = ROOT / "app" / "examples" / "handrolled_blocks.json.gz", tmp_path / "r.txt"
    kit = f"kit {region} --out {tmp_path / 'kit'}"
    done = run(
        code, f"advise {region} --json", f"advise {trace} --oracle off", f"check {trace}", kit,
        f"validate {region} --candidates eager --device cpu", "archive list",
    )  # fmt: skip
    statuses = done.stderr.splitlines()[-1].split()
    assert statuses[:3] == ["0", "0", "0"], done.stderr
    assert "cannot import" not in done.stderr
