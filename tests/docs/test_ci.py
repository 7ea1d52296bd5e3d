"""docs/ci.md: every command is run, the CI files are valid for their systems, tables name what there is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import torch
from packaging.version import Version
from ruamel.yaml import YAML

from app.check.config import CRITERIA, OPTIONS, Assertion, read_toml
from app.check.contracts.read import CHECKS
from app.check.formats import FORMATS
from tests.app.check.validators import VALIDATORS
from tests.app.web.conftest import Serving, serving
from tests.conftest import ROOT

Json = dict[str, Any]

PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "app" / "examples"
RECORD = "import shutil, sys\nshutil.copy('recorded.json.gz', sys.argv[1])\n"
"""What stands for recording the step of a model: docs/ci.md calls it by this name."""


REPORT = "<!-- tritonworthy-check:nightly -->\n\n### An assertion does not hold & more = `a+b`\n"


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
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TRITONWORTHY_", "http", "HTTP"))}
    command = ["bash", "-e", "-o", "pipefail", "-c", script]
    environment = clean | {"PATH": path, "NO_PROXY": "*"} | variables
    return subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, timeout=800)


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


@pytest.mark.parametrize(("number", "schema"), [(0, "vendor.github-workflows"), (1, "vendor.gitlab-ci")])
def test_a_ci_file_is_valid_for_its_system(number: int, schema: str, tmp_path: Path) -> None:
    file = tmp_path / "ci.yml"
    tool = [str(Path(sys.executable).with_name("check-jsonschema")), "--builtin-schema", schema, str(file)]
    file.write_text(blocks("yaml")[number])
    done = subprocess.run(tool, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    file.write_text(blocks("yaml")[number].replace("    steps:", "    stepps:").replace("  script:", "  scripts:"))
    assert subprocess.run(tool, capture_output=True, text=True, timeout=800).returncode == 1


# --------------------------------------------------------------------------------------------------------------- GitHub


class Comments(BaseHTTPRequestHandler):
    """GitHub's calls for comments on one pull request, as its REST API has them."""

    bodies: dict[int, str]
    authorized: list[str | None]

    def do_GET(self) -> None:
        host = self.headers["Host"]
        listed = [
            {"id": i, "url": f"http://{host}/repos/o/r/issues/comments/{i}", "body": body}
            for i, body in self.bodies.items()
        ]
        self._answer(200, listed if self.path == "/repos/o/r/issues/7/comments?per_page=100" else None)

    def do_POST(self) -> None:
        number = len(self.bodies) + 1
        if self.path == "/repos/o/r/issues/7/comments":
            self.bodies[number] = self._body()
        self._answer(201, {"id": number})

    def do_PATCH(self) -> None:
        number = int(self.path.removeprefix("/repos/o/r/issues/comments/"))
        assert number in self.bodies
        self.bodies[number] = self._body()
        self._answer(200, {"id": number})

    def _body(self) -> str:
        sent: Json = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert list(sent) == ["body"]
        return str(sent["body"])

    def _answer(self, status: int, body: Any) -> None:
        self.authorized.append(self.headers["Authorization"])
        data = json.dumps(body).encode()
        self.send_response(status if body is not None else 404)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def github() -> Iterator[tuple[str, type[Comments]]]:
    handler = type("Handler", (Comments,), {"bodies": {1: "Nice work"}, "authorized": []})
    listener = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.server_port}", handler
    listener.shutdown()
    listener.server_close()
    thread.join(10)


def test_the_github_workflow_checks_and_renews_its_comment(here: Path, github: tuple[str, type[Comments]]) -> None:
    url, comments = github
    record, check, comment = [s for s in yaml(blocks("yaml")[0])["jobs"]["check"]["steps"] if "run" in s]
    assert set(comment["env"]) == {"GITHUB_TOKEN", "PULL_REQUEST"}
    variables = {"GITHUB_API_URL": url, "GITHUB_REPOSITORY": "o/r", "GITHUB_TOKEN": "secret", "PULL_REQUEST": "7"}
    assert shell(record["run"], here).returncode == 0
    assert shell(check["run"], here).returncode == 0, "the same trace twice has nothing new"
    for name, known in FORMATS.items():
        if name in ("markdown", "sarif", "junit"):
            VALIDATORS[name]((here / "reports" / f"check.{known.suffix}").read_bytes().decode())
    for _ in range(2):
        done = shell(comment["run"], here, **variables)
        assert done.returncode == 0, done.stderr
    assert set(comments.authorized) == {"Bearer secret"}
    # One comment of ours, and the other left alone.
    assert list(comments.bodies) == [1, 2]
    assert comments.bodies[1] == "Nice work"
    assert comments.bodies[2] == (here / "reports" / "check.md").read_text()
    # What is new fails, and the same comment says so.
    shutil.copy(EXAMPLES / "llama_prefill.json.gz", here / "main.json.gz")
    assert shell(check["run"], here).returncode == 1
    assert shell(comment["run"], here, **variables).returncode == 0
    assert list(comments.bodies) == [1, 2]
    assert "❌" in comments.bodies[2]
    # Could not measure: a warning, and no failure.
    (here / "tritonworthy.toml").write_text("[assertions]\nregression = 'error'\n")
    unmeasured = shell(check["run"], here)
    assert unmeasured.returncode == 0
    assert "::warning::" in unmeasured.stdout


@pytest.mark.parametrize(
    ("config", "status"),
    [(None, 0), ("[assertions]\ncompile = 'error'\n", 1), ("[assertions]\nregression = 'error'\n", 2)],
)
def test_the_gitlab_job_ends_with_the_checks_exit_code(
    config: str | None, status: int, here: Path, server: Serving
) -> None:
    job = yaml(blocks("yaml")[1])["tritonworthy"]
    assert job["allow_failure"] == {"exit_codes": [2]}
    if config is not None:
        (here / "tritonworthy.toml").write_text(config)
    done = shell("\n".join(job["script"]), here, TRITONWORTHY_URL=server.url, TRITONWORTHY_TOKEN="none")
    assert done.returncode == status, done.stderr
    assert job["artifacts"]["reports"]["junit"] == "reports/check.xml"
    for name, suffix in (("markdown", "md"), ("sarif", "sarif"), ("junit", "xml"), ("html", "html")):
        VALIDATORS[name]((here / "reports" / f"check.{suffix}").read_bytes().decode())


class Notes(BaseHTTPRequestHandler):
    """GitLab's calls for comments on one merge request, as its REST API has them: fields in a form."""

    bodies: dict[int, str]

    def do_GET(self) -> None:
        listed = [{"id": i, "body": body} for i, body in self.bodies.items()]
        self._answer(200, listed if self.path == "/projects/5/merge_requests/7/notes?per_page=100" else None)

    def do_POST(self) -> None:
        number = len(self.bodies) + 1
        if self.path == "/projects/5/merge_requests/7/notes":
            self.bodies[number] = self._body()
        self._answer(201, {"id": number})

    def do_PUT(self) -> None:
        number = int(self.path.removeprefix("/projects/5/merge_requests/7/notes/"))
        assert number in self.bodies
        self.bodies[number] = self._body()
        self._answer(200, {"id": number})

    def _body(self) -> str:
        sent = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode(), strict_parsing=True)
        assert list(sent) == ["body"]
        return sent["body"][0]

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(401 if self.headers["PRIVATE-TOKEN"] != "secret" else status if body is not None else 404)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def test_the_gitlab_job_comments_once_and_renews_it(here: Path) -> None:
    handler = type("Handler", (Notes,), {"bodies": {1: "Nice work"}})
    listener = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    job = yaml(blocks("yaml")[1])["comment"]
    assert job["needs"] == ["tritonworthy"]
    variables = {"CI_API_V4_URL": f"http://127.0.0.1:{listener.server_port}", "CI_PROJECT_ID": "5",
                 "CI_MERGE_REQUEST_IID": "7", "GITLAB_TOKEN": "secret"}  # fmt: skip
    (here / "reports").mkdir()
    for shown in (REPORT, REPORT.replace("not hold", "not hold any more")):
        (here / "reports" / "check.md").write_text(shown)
        done = shell("\n".join(job["script"]), here, **variables)
        assert done.returncode == 0, done.stderr
        assert handler.bodies == {1: "Nice work", 2: shown}  # type: ignore[attr-defined]
    listener.shutdown()
    listener.server_close()


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
