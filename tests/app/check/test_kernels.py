"""[[kernels]]: which kernels of a repository have stopped paying, from their files and real checks of them."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from app import cli
from app.analysis.user_kernel import named_kernel, verdict_of
from app.check import kernels
from app.check.config import Config, ConfigError, KernelCheck, from_mapping, read_toml
from app.check.formats import FORMATS
from app.check.formats.plain import to_text
from app.check.judge import judge
from app.check.kernels import FAILS, JudgedKernel, NamedCheck, findings, named_checks
from app.thresholds import DEFAULTS
from kernels.measure.model import Validation
from tests.app import samples
from tests.app.check.hostile import NAMES
from tests.app.check.subjects import region, trace
from tests.app.check.validators import VALIDATORS
from tests.conftest import ROOT

Json = dict[str, Any]
FILE = ROOT / "tests" / "kernels" / "measure" / "users_kernels.py"
FIELDS = {f.name for f in dataclasses.fields(Validation)}
NORM = "x: f32[64, 40]\nw: f32[40]\nreturn x * rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w\n"
TABLE = '[[kernels]]\nname = "{0}"\nkernel = "mine.py:{0}"\nregion = "norm.txt"\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(FILE, tmp_path / "mine.py")
    (tmp_path / "norm.txt").write_text(NORM)
    return tmp_path


def config(here: Path, *functions: str, more: str = "") -> None:
    (here / "tritonworthy.toml").write_text("\n".join(["[assertions]", *map(TABLE.format, functions), more]))


def test_a_check_of_five_kernels_says_what_is_true_of_each(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config(here, "rms_norm", "scale_off", "caches_its_result", "crashes", "hangs", more="[check]\nbudget_s = 75")
    assert cli.main(["check", "--format", *FORMATS, "--out", "reports"]) == 1
    said = capsys.readouterr().out
    for name, known in FORMATS.items():
        VALIDATORS[name]((here / "reports" / f"check.{known.suffix}").read_bytes().decode("utf-8"))
    report = json.loads((here / "reports" / "check.json").read_text())
    errors = {f["subject"]: f for f in report["errors"]}
    assert {name: f["message"].split(") ", 1)[1].split(":")[0] for name, f in errors.items()} == {
        "scale_off": "is wrong", "caches_its_result": "cheats", "crashes": "crashed", "hangs": "hung",
    }  # fmt: skip
    assert "relative error 0.01" in errors["scale_off"]["message"]
    assert "no answer in 30 s" in errors["hangs"]["message"]
    (right,) = report["unmeasured"]
    assert (right["subject"], right["reason"][:11]) == ("rms_norm", "it is right")
    line = next(n for n, text in enumerate(FILE.read_text().splitlines(), 1) if text.startswith("def scale_off"))
    assert errors["scale_off"]["source"] == f"mine.py:{line} scale_off"
    assert report["exit_code"] == 1
    assert [s["kind"] for s in report["subjects"]] == ["kernel"] * 5
    assert said.splitlines()[-1] == "failed: 4 findings are errors, 1 could not be measured."
    suites = ElementTree.fromstring((here / "reports" / "check.xml").read_text())
    assert {s.get("name"): (s.get("tests"), s.get("failures")) for s in suites} == {
        name: ("1", "0" if name == "rms_norm" else "1") for name in (*errors, "rms_norm")
    }
    sarif = json.loads((here / "reports" / "check.sarif").read_text())["runs"][0]
    places = {r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in sarif["results"]}
    assert places == {"mine.py"}


def test_a_right_kernel_that_nobody_can_time_is_unmeasured_and_no_failure(here: Path) -> None:
    config(here, "rms_norm")
    assert cli.main(["check"]) == 2
    config(here, "rms_norm", more="")
    text = (here / "tritonworthy.toml").read_text()
    (here / "tritonworthy.toml").write_text(text + 'level = "warn"\n')
    assert cli.main(["check"]) == 0


@pytest.mark.parametrize(
    ("table", "line", "said"),
    [
        ('name = "a"\nkernel = "mine.py:rms_norm"', 2, "a kernel needs region"),
        ('name = "a"\nkernel = "mine.py:rms_nrm"\nregion = "norm.txt"', 4, "did you mean rms_norm?"),
        ('name = "a"\nkernel = "none.py:f"\nregion = "norm.txt"', 4, "none.py: No such file"),
        ('name = "a"\nkernel = "mine.py"\nregion = "norm.txt"', 4, "FILE.py:FUNCTION is wanted"),
        ('name = "a"\nkernel = "mine.py:rms_norm"\nregion = "no.txt"', 5, "no.txt: No such file"),
        ('name = "a"\nkernel = "mine.py:rms_norm"\nregion = "mine.py"', 5, "mine.py"),
        ('name = "a"\nkernel = "mine.py:rms_norm"\nregion = "norm.txt"\nlevel = "eror"', 6, "off, warn or error"),
        ('name = "a"\nkernel = "mine.py:rms_norm"\nregion = "norm.txt"\ndevices = ["Voodoo 2"]', 6, "no device called"),
        ('name = "a"\nkernel = "mine.py:rms_norm"\nregion = "norm.txt"\ndevices = "H100"', 6, "a list such as"),
        ('name = "a"\nkernal = "mine.py:rms_norm"\nregion = "norm.txt"', 4, "did you mean kernel?"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_table_is_told_with_its_line_and_nothing_is_run(
    here: Path, table: str, line: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.check.run.measure_kernels", lambda *_: pytest.fail("measured"))
    (here / "tritonworthy.toml").write_text(f"[assertions]\n[[kernels]]\n{table}\n")
    assert cli.main(["check"]) == 3
    captured = capsys.readouterr().err
    assert captured.startswith(f"nothing was checked: tritonworthy.toml:{line}: kernels.1"), captured
    assert said in captured


def test_the_second_table_has_lines_of_its_own() -> None:
    first = TABLE.format("rms_norm")
    with pytest.raises(ConfigError) as caught:
        read_toml(f"{first}\n{first}", runs_kernels=True)
    assert (caught.value.key, caught.value.line) == ("kernels.2.name", 7)
    assert "already" in caught.value.message


def test_a_server_takes_no_kernels() -> None:
    text = TABLE.format("rms_norm")
    assert read_toml(text, runs_kernels=True).kernels == (KernelCheck("rms_norm", "mine.py:rms_norm", "norm.txt"),)
    for read in (lambda: read_toml(text), lambda: from_mapping({"kernels": []})):
        with pytest.raises(ConfigError, match="a server runs nobody's code"):
            read()


def test_a_kernel_is_judged_on_its_devices_alone(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere it is off: neither right nor wrong, and not run."""
    check = KernelCheck("norm", "mine.py:crashes", "norm.txt", devices=("H100",))
    only = Config((), (check,))
    told: list[Json] = []
    named = named_checks(only, here)
    monkeypatch.setattr("app.analysis.validate.validate_region", lambda *_, **__: pytest.fail("measured"))
    judged = kernels.measure_kernels(named, "NVIDIA A100-SXM4-80GB", DEFAULTS, 60.0, told.append, lambda: False)
    report = judge(only, [], None, judged)
    assert (report["outcome"], [a["outcome"] for a in report["assertions"]]) == ("passed", ["off"])
    assert "only on H100" in str(told)


def judged_kernel(here: Path, mine_us: float, name: str = "norm", **more: Any) -> JudgedKernel:
    """As if it had been timed on an H200, where torch.compile takes 12 µs."""
    candidates = [samples.candidate("eager", "eager", 40.0, 40.0), samples.candidate("compile", "compile", 12.0, 40.0)]
    candidates[1]["call"] = "torch.compile(region)"
    mine = samples.candidate("kernel:rms_norm", "triton", mine_us, 40.0)
    mine["ratio_to_best_other"] = {"median": mine_us / 12, "low": mine_us / 12.1, "high": mine_us / 11.9}
    validation = samples.validation(candidates=[*candidates, {**mine, **more}], outcome="confirmed", region=NORM)
    validation = {k: v for k, v in validation.items() if k in FIELDS} | {"advice_before": None, "advice_after": None}
    check = KernelCheck(name, "mine.py:rms_norm", "norm.txt")
    named = NamedCheck(check, named_kernel("mine.py:rms_norm", here), NORM)
    return JudgedKernel(named, validation, verdict_of(validation, DEFAULTS))


@pytest.mark.parametrize(
    ("mine_us", "outcome", "exit_code"), [(8.0, "passed", 0), (12.0, "failed", 1), (15.0, "failed", 1)]
)
def test_one_that_takes_as_long_as_a_line_has_stopped_paying(
    here: Path, mine_us: float, outcome: str, exit_code: int
) -> None:
    judged = judged_kernel(here, mine_us)
    report = judge(Config((), (judged.named.check,)), [trace(region("chain"))], None, [judged])
    assert (report["outcome"], report["exit_code"]) == (outcome, exit_code)
    assert [s["name"] for s in report["subjects"]] == ["step.json", "norm"]
    if exit_code:
        (found,) = report["errors"]
        assert "norm (mine.py:rms_norm) has stopped paying: torch.compile" in found["message"]
        assert found["call"] == "torch.compile(region)"
        assert (found["tool"], found["evidence"]) == ("compile", "measured")
        assert found["region_speedup"] == pytest.approx(
            {"low": mine_us / 12.1, "mid": mine_us / 12, "high": mine_us / 11.9}
        )
        assert "has stopped paying" in to_text(report)
    for name, known in FORMATS.items():
        text = known.render(report)
        VALIDATORS[name](text)
        assert ("has stopped paying" in text) is bool(exit_code), name


@pytest.mark.parametrize("evil", NAMES, ids=range(len(NAMES)))
def test_reports_of_kernels_of_hostile_names_are_valid(here: Path, evil: str) -> None:
    judged = judged_kernel(here, 12.0, name=evil, message=evil)
    report = judge(Config((), (judged.named.check,)), [], None, [judged])
    for name, known in FORMATS.items():
        VALIDATORS[name](known.render(report))


def test_every_verdict_is_a_finding_unmeasured_or_nothing(here: Path) -> None:
    statuses = {"ok": [], "mismatch": ["is wrong"], "impossible": ["cheats"], "fault": ["crashed"], "timeout": ["hung"]}
    for status, said in statuses.items():
        fired, unmeasured = findings(judged_kernel(here, 8.0, status=status, message="so"))
        assert [s for s, _ in FAILS.values() if any(s in f.message for f in fired)] == said
        assert unmeasured == []
    fired, unmeasured = findings(judged_kernel(here, 8.0, status="cancelled", message="so"))
    assert (fired, len(unmeasured)) == ([], 1)


def test_a_finding_keeps_its_fingerprint_while_times_change(here: Path) -> None:
    first, second = (findings(judged_kernel(here, t))[0][0] for t in (12.0, 15.0))
    assert first.message != second.message
    assert first.fingerprints == second.fingerprints


def test_a_region_that_does_not_fit_together_leaves_the_other_kernels_their_verdicts(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "odd.txt").write_text("x: f32[4]\ny: f32[5]\nreturn x + y\n")
    odd = TABLE.format("rms_norm").replace("norm.txt", "odd.txt").replace('name = "rms_norm"', 'name = "odd"')
    config(here, "scale_off", more=odd)
    assert cli.main(["check", "--format", "json", "--out", "reports"]) == 1
    report = json.loads((here / "reports" / "check.json").read_text())
    assert [f["subject"] for f in report["errors"]] == ["scale_off"]
    assert "odd.txt" in json.dumps(report) + capsys.readouterr().out


@pytest.mark.parametrize("place", ["kernel", "region"])
def test_a_path_that_is_none_is_said_by_its_place(here: Path, place: str) -> None:
    fields = {"name": "n", "kernel": "mine.py:rms_norm", "region": "norm.txt"} | {
        "kernel": {"kernel": "mi\0ne.py:rms_norm"}, "region": {"region": "no\0rm.txt"},
    }[place]  # fmt: skip
    with pytest.raises(ConfigError, match=f"kernels.1.{place}"):
        named_checks(Config((), kernels=(KernelCheck(**fields),)), here)
