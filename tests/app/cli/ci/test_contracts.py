"""The example repository of contracts: kept, broken by an edit, broken by an upgrade of torch; what each says."""

from __future__ import annotations

import json
import os
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import pytest
from packaging.version import Version

from app import cli
from app.check.formats import FORMATS
from app.objects.check import Report
from tests.app.check.validators import VALIDATORS, sarif
from tests.conftest import DATA, ROOT

Json = dict[str, Any]

EXAMPLE = DATA / "contracts"
HERE = Version(metadata.version("torch")).public
UPGRADED = f"channel norm was one kernel under torch 2.11.0 and is now two under {HERE}; at most one kernel allowed"
"""What the example says under this environment's torch. Its lock was accepted under 2.11.0, and recorded."""


@pytest.fixture(scope="module", autouse=True)
def answers_are_kept(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Inductor is asked the same once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITONWORTHY_DATA_DIR", str(tmp_path_factory.mktemp("data")))
        yield


def repository(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / name
    shutil.copytree(EXAMPLE / name, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return repository("kept", tmp_path, monkeypatch)


@pytest.fixture
def upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return repository("upgrade", tmp_path, monkeypatch)


def checked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Report]:
    status = cli.main(["check", "--format", "json", *arguments])
    return status, cast("Report", json.loads(capsys.readouterr().out))


def test_kept(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, report = checked(capsys)
    assert (status, report["errors"], report["unmeasured"]) == (0, [], [])
    assert [(row["name"], row["outcome"], row["kernels"]) for row in report["contracts"]] == [
        ("RMSNorm", "kept", 1), ("block", "kept", 3), ("token bias", "kept", 1)
    ]  # fmt: skip
    assert all(row["was"] is not None for row in report["contracts"])


def test_broken_by_an_edit(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    region = kept / "rms_norm.txt"
    region.write_text(region.read_text().replace("return y", "return y, y.sum(0)"))
    status, report = checked(capsys)
    assert status == 1
    first = report["errors"][0]
    assert first["assertion"] == "contract:RMSNorm"
    kernels = report["contracts"][0]["kernels"]
    assert kernels is not None and kernels > 1
    words = {2: "two", 3: "three", 4: "four"}[kernels]
    assert first["message"] == (
        f"RMSNorm was one kernel and is now {words} since the text was edited (under torch {HERE}); at most one kernel"
        " allowed"
    )
    assert first["source"].startswith("rms_norm.txt:")
    assert first["new"] is True
    assert "+" in report["contracts"][0]["diff"]


@pytest.mark.skipif(Version(HERE) < Version("2.13"), reason="torch 2.13 is the first that breaks it")
def test_broken_by_an_upgrade_of_torch(upgrade: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, report = checked(capsys)
    assert status == 1
    assert [f["message"] for f in report["errors"]] == [UPGRADED]
    assert report["errors"][0]["source"] == "channel_norm.txt:2"
    (row,) = report["contracts"]
    assert (row["outcome"], row["kernels"], row["was"] and row["was"]["kernels"]) == ("broken", 2, 1)
    assert row["diff"].startswith(f"--- torch 2.11.0\n+++ torch {HERE}\n")
    assert "-def triton_per_fused_add_div_mean_pow_sqrt_0" in row["diff"]
    assert cli.main(["check"]) == 1
    captured = capsys.readouterr()
    assert f"error: contract:channel norm: {UPGRADED} (channel_norm.txt:2)" in captured.out.splitlines()
    assert f"   +++ torch {HERE}" in captured.out.splitlines()


def test_the_record_of_three_versions_says_the_same() -> None:
    record = json.loads((ROOT / "tests" / "records" / "contracts.json").read_text())
    told = {Version(a["torch"]).public: (a["exit_code"], a["kernels"], a["messages"]) for a in record["answers"]}
    assert told["2.11.0"] == (0, 1, [])
    for version in ("2.13.0", "2.14.1"):
        assert told[version] == (1, 2, [UPGRADED.replace(f"under {HERE};", f"under {version};")])


def other_environments() -> list[str]:
    return [p for p in os.environ.get("TRITONWORTHY_ENVIRONMENTS", "").split(os.pathsep) if p]


@pytest.mark.skipif(not other_environments(), reason="TRITONWORTHY_ENVIRONMENTS names no other environment")
def test_the_record_is_what_the_environments_here_answer() -> None:
    from tools.records.contracts import answer_of

    record = json.loads((ROOT / "tests" / "records" / "contracts.json").read_text())["answers"]
    for environment in other_environments():
        answer = answer_of(environment)
        assert answer in record or answer["torch"] not in {a["torch"] for a in record}


def test_accepting_makes_the_next_check_say_that_it_was_so_before(
    upgrade: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (upgrade / "tritonworthy.lock.json").read_text()
    (upgrade / "tritonworthy.toml").write_text(
        (upgrade / "tritonworthy.toml").read_text().replace("max_kernels = 1", "max_kernels = 2")
    )
    status, report = checked(capsys, "--accept")
    assert (status, report["contracts"][0]["outcome"]) == (0, "kept")
    assert (upgrade / "tritonworthy.lock.json").read_text() != before
    _, report = checked(capsys)
    (row,) = report["contracts"]
    assert (row["was"] and row["was"]["kernels"], row["diff"]) == (row["kernels"], "")


def test_contracts_that_are_kept_say_so_with_their_figures(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, report = checked(capsys)
    moved = {row["name"]: row["bytes_over_minimum"] for row in report["contracts"]}
    torch = report["contracts"][0]["torch"]
    assert cli.main(["check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"kept: contract:RMSNorm: 1 kernel, {moved['RMSNorm']:.2f} times the least bytes, torch {torch}",
        f"kept: contract:block: 3 kernels, {moved['block']:.2f} times the least bytes, torch {torch}",
        f"kept: contract:token bias: 1 kernel, {moved['token bias']:.2f} times the least bytes, torch {torch}",
        "passed: Every assertion holds.",
    ]


def test_accepting_says_what_changed_and_two_configurations_share_the_lock(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (kept / "tritonworthy.lock.json").unlink()
    (kept / "other.txt").write_text("x: f32[64]\ny = relu(x)\nreturn y\n")
    other = '[check]\ndevice = "H200"\n[[contracts]]\nname = "other"\nregion = "other.txt"\nmax_kernels = 1\n'
    (kept / "other.toml").write_text(other)
    assert cli.main(["check", "--accept"]) == 0
    assert capsys.readouterr().out.startswith("accepted: 3 new (RMSNorm, block, token bias)\n")
    assert cli.main(["check", "--accept", "--config", "other.toml"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "accepted: 1 new (other)",
        "left in the lock, and not in this configuration: RMSNorm of rms_norm.txt, block of block.py:make, token bias"
        " of text",
    ]
    region = kept / "rms_norm.txt"
    region.write_text(region.read_text().replace("return y", "return y, y.sum(0)"))
    config = kept / "tritonworthy.toml"
    config.write_text(config.read_text().replace('module = "block.py:make"', 'module = "block.py:make"\nlevel = "off"'))
    assert cli.main(["check", "--accept"]) == 1
    assert capsys.readouterr().out.splitlines()[:2] == [
        "accepted: 1 changed (RMSNorm), 2 as before (block, token bias)",
        "left in the lock, and not in this configuration: other of other.txt",
    ]


def test_every_report_shows_a_broken_contract_and_is_valid(upgrade: Path) -> None:
    assert cli.main(["check", "--format", *FORMATS, "--out", "reports"]) == 1
    for name, known in FORMATS.items():
        text = (upgrade / "reports" / f"check.{known.suffix}").read_bytes().decode("utf-8")
        VALIDATORS[name](text)
        assert "at most one kernel allowed" in text
        if name != "csv":
            assert "triton_per_fused_add_div_mean_pow_sqrt_0" in text.replace("\\u005f", "_")
    run = sarif((upgrade / "reports" / "check.sarif").read_text())["runs"][0]
    (result,) = run["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("channel_norm.txt", 2)
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "contract"


def test_another_torch_than_the_contract_is_for_is_unmeasured(
    upgrade: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = upgrade / "tritonworthy.toml"
    config.write_text(config.read_text() + 'torch = "==2.11.*"\n')
    status, report = checked(capsys)
    assert status == 2
    assert report["unmeasured"][0]["reason"] == (
        f"the contract is for torch ==2.11.*, and torch {HERE} was to be asked"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--environment", "nowhere"], "nowhere: no Python interpreter"),
        (["--environment", "torch==1.0"], "no environment of TRITONWORTHY_ENVIRONMENTS has torch==1.0"),
        (["--config", "none.toml"], "none.toml"),
    ],
)
def test_what_cannot_be_asked_is_status_3(
    upgrade: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", *arguments]) == 3
    assert said in capsys.readouterr().err


def test_a_damaged_lock_is_status_3_with_its_name(upgrade: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (upgrade / "tritonworthy.lock.json").write_text("{")
    assert cli.main(["check"]) == 3
    assert "tritonworthy.lock.json: damaged" in capsys.readouterr().err


def test_accept_goes_with_contracts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "region.txt").write_text("x: f32[8]\ny = relu(x)\nreturn y\n")
    assert cli.main(["check", "region.txt", "--accept"]) == 3
    assert "--accept goes with contracts" in capsys.readouterr().err
