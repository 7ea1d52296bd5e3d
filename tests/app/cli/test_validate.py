"""tritonworthy validate --kernel from a shell: the verdict, its exit status, the JSON, and what is no kernel."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from app import cli
from app.analysis import validate
from app.archive import record_store, schema
from app.cli.validate import KERNEL_STATUS
from app.objects.kernel_verdict import ValidationWithKernel
from tests.app.cli.test_cli import isolated
from tests.app.objects.exact import differences
from tests.conftest import ROOT

NORM = "x: f32[64, 40]\nw: f32[40]\nreturn x * rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "tests" / "kernels" / "measure" / "users_kernels.py", tmp_path / "mine.py")
    (tmp_path / "norm.txt").write_text(NORM)
    return tmp_path


def validated(function: str, *more: str) -> int:
    return cli.main(["validate", "norm.txt", "--candidates", "eager", "--kernel", f"mine.py:{function}", *more])


@pytest.mark.parametrize(
    ("function", "status", "said"),
    [
        ("rms_norm", 2, "rms_norm: not measured: it is right (checked in Triton"),
        ("scale_off", 4, "scale_off: wrong: output 0 (f32), normal inputs: relative error 0.01"),
        ("caches_its_result", 5, "caches_its_result: it cheats: it returned what it had computed for other inputs"),
        ("crashes", 6, "crashes: it crashed: the process was ended by SIGABRT"),
        ("hangs", 7, "hangs: it hung: no answer in 4 s"),
    ],
)
def test_each_verdict_is_told_first_and_has_a_status(
    here: Path, function: str, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert validated(function, *(["--kernel-limit", "4"] if function == "hangs" else [])) == status
    printed = capsys.readouterr().out
    assert printed.startswith(said)
    assert f"  kernel:{function} " in printed


def test_json_is_the_validation_with_the_verdict(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert validated("scale_off", "--json") == 4
    body = json.loads(capsys.readouterr().out)
    assert differences(ValidationWithKernel, body) == []
    assert body["kernel_verdict"]["verdict"] == "wrong"
    assert [c["name"] for c in body["candidates"]] == ["eager", "kernel:scale_off"]
    assert "kernel:" not in json.dumps([body["advice_before"], body["advice_after"]["alternatives"]])


def test_what_was_measured_with_a_kernel_can_be_recorded(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A record of an H200, with one of its kernels as the user's own: kept, printed, recorded and read again."""
    path = sorted(record_store.FOLDER.glob("rmsnorm-by-hand-nvidia-h200-*.json"))[0]
    body = json.loads(path.read_text())
    mine = next(c for c in body["candidates"] if c["tool"] == "triton" and c["status"] == "ok")
    mine["name"], body["best"] = "kernel:rms_norm", "compile"
    body = {k: v for k, v in body.items() if k not in ("name", "schema")}
    monkeypatch.setattr(validate, "validate_region", lambda *_, **__: body)
    assert validated("rms_norm", "--json", "--record", "records") in (KERNEL_STATUS["keep"], KERNEL_STATUS["delete"])
    printed = json.loads(capsys.readouterr().out)
    assert printed["kernel_verdict"]["candidate"] == "kernel:rms_norm"
    (recorded,) = (here / "records").iterdir()
    assert json.loads(recorded.read_text()) == schema.read(printed)


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        ("mine.py:rms_nrm", "mine.py has no rms_nrm; did you mean rms_norm?"),
        ("mine.py:x y", "FILE.py:FUNCTION is wanted"),
        ("mine.py", "takes the region's inputs as tensors, in the order of the region's text"),
        ("none.py:f", "none.py: No such file or directory"),
        ("norm.txt:f", "norm.txt has no f"),
        ("broken.py:f", "broken.py:2: not Python"),
        (".:f", ".: Is a directory"),
    ],
)
def test_what_is_no_kernel_is_a_wrong_input_and_nothing_runs(
    here: Path, kernel: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate, "validate_region", lambda *_, **__: pytest.fail("measured"))
    (here / "broken.py").write_text("x = 1\ndef f(:\n")
    assert cli.main(["validate", "norm.txt", "--kernel", kernel]) == 1
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


def test_the_help_says_what_is_expected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["validate", "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "takes the region's inputs as tensors, in the order of the region's text" in printed
    for verdict, status in (("keep it", 0), ("delete it", 3), ("wrong", 4), ("it cheats", 5), ("it hung", 7)):
        assert f"{status} {verdict}" in printed


def test_it_needs_no_web(here: Path) -> None:
    done = isolated(
        "validate", str(here / "norm.txt"), "--candidates", "eager", "--kernel", str(here / "mine.py:scale_off")
    )
    assert done.returncode == 4, done.stderr
