"""docs/ci.md: every command is run, the CI files are valid for their systems, tables name what there is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version
from ruamel.yaml import YAML

from app.check.comment import github, gitlab
from app.check.config import CRITERIA, OPTIONS, Assertion, read_toml
from app.check.contracts.read import CHECKS
from app.check.formats import FORMATS
from tests.app.check.validators import VALIDATORS
from tests.app.web.conftest import Serving, serving
from tests.ci.steps import environment, load, run_script
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "app" / "examples"
RECORD = "import shutil, sys\nshutil.copy('recorded.json.gz', sys.argv[1])\n"
"""What stands for recording the step of a model: docs/ci.md calls it by this name."""


ACTION = load(ROOT / "action.yml")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.M | re.S)


def yaml(text: str) -> Any:
    return YAML(typ="safe").load(text)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("data")) as app_server:
        yield app_server


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A repository as the page supposes one."""
    for name in ("step.json.gz", "recorded.json.gz", "main.json.gz"):
        shutil.copy(EXAMPLES / "handrolled_blocks.json.gz", tmp_path / name)
    (tmp_path / "chain.txt").write_text("x: bf16[8192, 4096]\ny = gelu(x) * 2\nreturn y\n")
    (tmp_path / "record_step.py").write_text(RECORD)
    (tmp_path / "tritonworthy.toml").write_text(blocks("toml")[0])
    return tmp_path


def shell(script: str, here: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The script as CI systems run it: bash that stops at the first error."""
    command = ["bash", "-e", "-o", "pipefail", "-c", script]
    return subprocess.run(command, cwd=here, env=environment(**variables), capture_output=True, text=True, timeout=800)


@pytest.mark.parametrize("number", range(len(blocks("bash"))))
def test_the_commands_of_the_page_run(number: int, here: Path, server: Serving) -> None:
    done = shell(blocks("bash")[number], here, TRITONWORTHY_URL=server.url)
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout


def test_the_configuration_of_the_page_is_read(here: Path) -> None:
    assert len(read_toml((here / "tritonworthy.toml").read_text()).active) == 5


def test_the_contracts_of_the_page_are_read_and_each_key_has_its_row() -> None:
    (text,) = [block for block in blocks("toml") if "[[contracts]]" in block]
    contracts = read_toml(text, runs_kernels=True).contracts
    assert [c.about for c in contracts] == ["rms_norm.txt", "block.py:make", "RMSNorm*"]
    section = PAGE.partition("## Fusion contracts")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]+`) \|", section, re.M)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(CHECKS) - {"name"}


def test_the_messages_of_contracts_on_the_page_are_those_of_the_example(tmp_path: Path) -> None:
    """The upgrade's is recorded, the edit's is made here."""
    told = [line for line in PAGE.splitlines() if line.startswith("error: contract:")]
    record = json.loads((ROOT / "tests" / "records" / "contracts.json").read_text())
    (message,) = next(a["messages"] for a in record["answers"] if a["torch"].startswith("2.13.0"))
    assert told[0] == f"error: contract:channel norm: {message} (channel_norm.txt:2)"
    folder = tmp_path / "kept"
    shutil.copytree(ROOT / "tests" / "data" / "contracts" / "kept", folder)
    region = folder / "rms_norm.txt"
    region.write_text(region.read_text().replace("return y", "return y, y.sum(0)"))
    done = shell("tritonworthy check || test $? -eq 1", folder)
    under = f"(under torch {Version(torch.__version__).public})"
    assert told[1].replace("(under torch 2.13.0)", under) in done.stdout.splitlines(), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("number", "schema"), [(n, ("vendor.github-workflows", "vendor.gitlab-ci")[n % 2]) for n in range(4)]
)
def test_a_ci_file_is_valid_for_its_system(number: int, schema: str, tmp_path: Path) -> None:
    file = tmp_path / "ci.yml"
    tool = [str(Path(sys.executable).with_name("check-jsonschema")), "--builtin-schema", schema, str(file)]
    file.write_text(blocks("yaml")[number])
    done = subprocess.run(tool, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    file.write_text(
        blocks("yaml")[number].replace("    steps:", "    stepps:").replace("variables:", "variables: 3\nx:")
    )
    assert subprocess.run(tool, capture_output=True, text=True, timeout=800).returncode == 1


# ---------------------------------------------------------------------------------------- the files that they stand on


def test_the_github_workflow_records_and_asks_the_action_for_what_it_has(here: Path) -> None:
    """tests/ci/test_action.py runs the action's steps."""
    checkout, record, check = yaml(blocks("yaml")[0])["jobs"]["check"]["steps"]
    assert checkout["uses"].startswith("actions/checkout@v")
    assert shell(record["run"], here).returncode == 0
    assert check["uses"].startswith("OWNER/tritonworthy@v")
    assert set(check["with"]) <= set(ACTION["inputs"])
    assert all((here / check["with"][name]).is_file() for name in ("files", "baseline"))


def test_the_gitlab_file_includes_the_template_and_runs_it(here: Path) -> None:
    pipeline = yaml(blocks("yaml")[1])
    ((how, path),) = pipeline["include"][0].items()
    assert how == "local"
    template = load(ROOT / path)
    assert set(pipeline["variables"]) <= set(template["variables"])
    defaults = {name: about["value"] for name, about in template["variables"].items()}
    job = template["tritonworthy"] | pipeline["tritonworthy"]
    assert shell("\n".join(job["before_script"]), here).returncode == 0
    done = run_script(job, defaults | pipeline["variables"] | {"CHECK_INSTALL": "", "CHECK_COMMENT": "false"}, here)
    assert done.returncode == 0, "the same trace twice has nothing new"
    assert (here / "reports" / "check.xml").is_file()


def test_every_input_output_and_variable_is_documented_with_its_default() -> None:
    def shown(default: object) -> str:
        return f"`{default}`" if default else "none"

    inputs = {f"`{name}`": shown(about["default"]) for name, about in ACTION["inputs"].items()}
    assert rows("input") == inputs
    assert named(rows("output")) == list(ACTION["outputs"])
    variables = load(ROOT / "ci" / "gitlab" / "tritonworthy.yml")["variables"]
    assert rows("variable") == {f"`{name}`": shown(about["value"]) for name, about in variables.items()}


def test_every_option_and_status_of_comment_is_documented() -> None:
    section = PAGE.split("\n## The comment\n", 1)[1].split("\n## ", 1)[0]
    helped = shell("tritonworthy comment --help", ROOT).stdout
    assert set(re.findall(r"--[a-z-]+", helped)) - {"--help", "--format"} == set(
        re.findall(r"^- `(--[a-z-]+)", section, re.M)
    )
    assert list(rows("status of `comment`")) == ["0", "1", "2"]
    assert f"{github.MAX_CHARS:,} characters on GitHub" in " ".join(section.split())
    assert f"{gitlab.MAX_CHARS:,} on GitLab" in " ".join(section.split())


# ----------------------------------------------------------------------------------------------------------- the script


def test_the_example_script_gets_0_1_and_2_and_valid_reports(tmp_path: Path) -> None:
    variables = {"TRITONWORTHY": f"{Path(sys.executable).parent}/tritonworthy", "TRITONWORTHY_ORACLE": "off"}
    done = shell(f"{ROOT}/tools/ci_example.sh {tmp_path}", tmp_path, **variables)
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.rstrip().endswith("18 reports are valid")
    codes = re.findall(r"^(\w+): exit code (\d)", done.stdout, re.M)
    assert codes == [("passed", "0"), ("failed", "1"), ("unmeasured", "2")]
    assert len(list(tmp_path.iterdir())) == 3 * len(FORMATS)
    for outcome, _ in codes:
        for name, known in FORMATS.items():
            VALIDATORS[name]((tmp_path / f"{outcome}.{known.suffix}").read_bytes().decode())
        assert json.loads((tmp_path / f"{outcome}.json").read_text())["outcome"] == outcome


# ----------------------------------------------------------------------------------------------------------- the tables


def rows(head: str) -> dict[str, str]:
    """First cell -> second cell of the table whose header begins with that word."""
    table = PAGE.split(f"| {head} |", 1)[1].split("\n\n", 1)[0]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return {row[0]: row[1] for row in cells}


def named(cells: Any) -> list[str]:
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_every_assertion_option_and_report_is_documented() -> None:
    assert sorted(named(rows("assertion"))) == sorted(set(OPTIONS) - set(CRITERIA))
    of_regions = set(named(rows("option")))
    assert of_regions == OPTIONS["compile"] | {"holds"}
    others = set().union(*OPTIONS.values()) - of_regions
    assert all(f"`{name}`" in PAGE for name in others)
    assert named(rows("report")) == list(FORMATS)
    assert list(rows("exit status")) == ["0", "1", "2", "3"]


def test_the_rules_page_says_for_which_value_a_criterion_fires() -> None:
    """The table refers to it for all of them."""
    assert any("(rule.md)" in about for about in rows("assertion").values())
    text = (ROOT / "docs" / "rule.md").read_text(encoding="utf-8")
    for name, (fires, only_where_advised) in CRITERIA.items():
        section = text.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]
        said = f"finds regions for which it {'holds' if fires else 'does not hold'}"
        assert f"{said}, and something is advised." in section if only_where_advised else f"{said}." in section


def test_defaults_on_the_page_are_the_codes() -> None:
    default = Assertion("x", "x", "warn")
    assert f"`max_increase` ({default.max_increase:g})" in PAGE
    assert rows("option")["`region`"].startswith(f"`{default.region}`")
    assert rows("option")["`evidence`"].startswith(f"`{default.evidence}`")
