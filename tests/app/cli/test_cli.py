"""The command line: the API's objects, exit statuses, and no web or database where there is none."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import app
from app import cli
from app.archive import record_store
from app.cli import text as progress
from app.cli.validate import _region_to_validate
from app.objects.oracle import OraclePrediction
from app.objects.region import AdviceAnswer
from profiler.oracle.process import Oracle
from tests.app.cli.warm import run_warm
from tests.app.objects.exact import differences
from tests.conftest import ROOT
from tests.profiler.trace.analyze.test_ranks import rank_file
from tests.profiler.trace.read.test_archive import archive
from tests.profiler.trace.read.test_members import zipped

REGION = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"
EXAMPLES = ROOT / "app" / "examples"

ISOLATED = """
import sys

already = {blocked} & {name.partition(".")[0] for name in sys.modules}
assert not already, already

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ImportError("not on a GPU host: " + name)

sys.meta_path.insert(0, Blocked())
from app.cli import main
sys.exit(main(sys.argv[1:]))
"""

WEB = (
    "fastapi", "starlette", "sqlalchemy", "pydantic", "pydantic_settings", "uvicorn", "jinja2", "plotly", "httpx",
    "python_multipart", "prometheus_client", "psutil", "cachetools",
)  # fmt: skip


def isolated(*arguments: str, text: str = "", block: tuple[str, ...] = WEB) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, in which nothing of the web can be imported."""
    code = ISOLATED.replace("{blocked}", repr(set(block)))
    if "torch" in block:
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, timeout=800)
    done = run_warm(code, *arguments, cwd=ROOT, env=os.environ, stdin=text)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def region_file(tmp_path: Path) -> Path:
    path = tmp_path / "region.txt"
    path.write_text(REGION)
    return path


def test_advise_and_validate_import_no_web(region_file: Path, tmp_path: Path) -> None:
    advised = isolated("advise", "-", "--json", text="x: f32[4]\ny = gleu(x)\nreturn y\n")
    assert (advised.returncode, advised.stdout) == (1, "")
    assert "did you mean gelu" in advised.stderr.lower()
    arguments = ("--candidates", "eager", "--device", "cpu", "--json", "--record", str(tmp_path / "records"))
    validated = isolated("validate", str(region_file), *arguments)
    # Nothing can be timed on a CPU: not an error, but nothing was measured either.
    assert validated.returncode == 2, validated.stderr
    validation = json.loads(validated.stdout)
    assert validation["outcome"] == "unmeasured"
    assert validation["advice_before"]["tool"]
    assert "not recorded" in validated.stderr
    assert not (tmp_path / "records").exists()


def test_the_isolation_would_notice() -> None:
    for command in (isolated("advise", "-", text=REGION, block=("torch",)), isolated("serve")):
        assert command.returncode == 2
        assert command.stderr.startswith("tritonworthy: cannot import what this command needs: not on a GPU host")
        assert command.stderr.count("\n") == 1


def test_json_of_a_region_is_the_apis_object(region_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["advise", str(region_file), "--share", "0.2", "--device", "H100", "--json"]) == 0
    body: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert differences(AdviceAnswer, body) == []
    assert (body["share_of_step"], body["device"], body["text"]) == (0.2, "NVIDIA H100", REGION)
    assert body["cost"]["unfused"]["launches"] == 2
    assert body["criteria"]


def test_json_of_a_trace_is_the_apis_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["advise", str(EXAMPLES / "handrolled_blocks.json.gz"), "--oracle", "off", "--json"]) == 0
    printed = capsys.readouterr()
    body = json.loads(printed.out)
    assert (body["kernels"], body["linked_share"]) == (136, 1.0)
    assert "attention by hand" in [r["name"] for r in body["regions"]]
    assert {r["prediction"] for r in body["regions"]} == {"rules"}
    assert "oracle" not in body and "Inductor" not in printed.err


def test_a_trace_waits_for_inductor_and_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRITONWORTHY_DATA_DIR", str(tmp_path))
    trace = str(EXAMPLES / "handrolled_blocks.json.gz")
    assert cli.main(["advise", trace, "--json"]) == 0
    printed = capsys.readouterr()
    body = json.loads(printed.out)
    assert body["oracle"]["answered"] == body["oracle"]["asked"] == 5
    assert sum(r["prediction"] == "oracle" for r in body["regions"]) == 5
    lines = [line for line in printed.err.splitlines() if line.startswith("Inductor asked")]
    assert lines == [f"Inductor asked: {number} of 5 regions" for number in range(6)], "no terminal: a line each"
    # What was answered once is in the data folder: no process is started for it.
    monkeypatch.setattr(Oracle, "_start", lambda *a: pytest.fail("a process was started"))
    assert cli.main(["advise", trace]) == 0
    text = capsys.readouterr().out
    assert "Inductor answered for 5 of 5 regions asked about" in text
    assert text.count("by Inductor's kernels") == 5


def test_on_a_terminal_progress_is_one_line_that_ends_with_the_last_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    for answered in range(5):
        failed = int(answered == 4)
        progress.show_oracle_progress(
            {"asked": 4, "answered": answered - failed, "failed": failed, "of_time": 0.95, "done": answered == 4}
        )
    progress.show_oracle_progress({"asked": 0, "answered": 0, "failed": 0, "of_time": 0.0, "done": True})
    said = terminal.getvalue()
    assert said.count("\n") == 1 and said.endswith("\n")
    bars = said.strip().split("\r")
    assert bars[0] == f"[{'-' * 24}] Inductor asked: 0 of 4 regions"
    assert bars[2] == f"[{'#' * 12}{'-' * 12}] Inductor asked: 2 of 4 regions"
    assert bars[-1] == f"[{'#' * 24}] Inductor asked: 4 of 4 regions"
    assert len({len(bar) for bar in bars}) == 1, "what was written is written over"


def test_text_for_people(region_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["advise", str(region_file)]) == 0
    text = capsys.readouterr().out
    assert "worth-it" in text
    assert "{" not in text.splitlines()[0]


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        ("x: f32[4]\ny = gleu(x)\nreturn y\n", "r.txt", "gelu"),
        ("x: f32[4, 5]\ny: f32[6, 7]\nz = x @ y\nreturn z\n", "r.txt", "line 3"),
        ("", "r.txt", "line 1"),
        ("", "t.json", "empty"),
        ("hello", "t.json", "JSON"),
        ("[1, 2]", "t.json", ""),
    ],
)
def test_bad_input_is_status_1_with_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, name: str, said: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert cli.main(["advise", str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert "Traceback" not in captured.err


def test_missing_binary_and_ambiguous_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    binary = tmp_path / "x.bin"
    binary.write_bytes(b"\xff\xfe\x00")
    assert cli.main(["advise", str(tmp_path / "none.txt")]) == 1
    assert cli.main(["advise", str(tmp_path / "none.json")]) == 1
    assert cli.main(["advise", str(tmp_path)]) == 1
    assert cli.main(["advise", str(binary)]) == 1
    assert cli.main(["validate"]) == 1
    assert cli.main(["advise", str(binary), "--device", "Voodoo 2"]) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_a_region_of_a_trace_by_name_and_number(capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(EXAMPLES / "handrolled_blocks.json.gz")
    assert cli.main(["validate", "--trace", trace, "--region", "nothing like it"]) == 1
    listed = capsys.readouterr().err
    assert "1. attention by hand" in listed
    arguments = cli._parser().parse_args(["validate", "--trace", trace, "--region", "rmsnorm"])
    by_name = _region_to_validate(arguments)
    assert by_name["name"] == "RMSNorm by hand"
    number = next(line.split(".")[0] for line in listed.splitlines() if "RMSNorm by hand" in line).strip()
    arguments = cli._parser().parse_args(["validate", "--trace", trace, "--region", number])
    assert _region_to_validate(arguments) == by_name


def test_the_oracle_on_the_command_line_imports_no_web(tmp_path: Path) -> None:
    path = tmp_path / "tail.txt"
    path.write_text("x: bf16[512, 1024]\nb: bf16[1024]\nz = x + b\ny = gelu(z)\nreturn y\n")
    asked = isolated("oracle", str(path), "--device", "H200", "--json")
    assert asked.returncode == 0, asked.stderr
    answer = json.loads(asked.stdout)
    assert (answer["device"], answer["launches"]) == ("NVIDIA H200", 2)
    (prediction,) = answer["oracle"]
    assert differences(OraclePrediction, prediction) == []
    (kernel,) = prediction["kernels"]
    assert (kernel["kind"], kernel["lines"], prediction["launches"]) == ("pointwise", [3, 4], 1)
    name = kernel["name"]
    ptx = isolated("oracle", str(path), "--device", "H200", "--kernel", name, "--show", "ptx")
    assert ptx.returncode == 0, ptx.stderr
    assert f".entry {name}" in ptx.stdout
    assert "sm_90" in ptx.stdout


def test_an_oracle_that_cannot_answer_is_status_2(
    region_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profiler.oracle.process.START_S", 0.05)  # no process starts in that time
    assert cli.main(["oracle", str(region_file), "--device", "H200"]) == 2
    assert "unavailable: no answer within" in capsys.readouterr().out
    assert cli.main(["oracle", str(region_file), "--device", "H200", "--kernel", "k"]) == 2
    assert cli.main(["advise", str(region_file), "--oracle", "auto", "--json"]) == 0
    assert "no answer within" in json.loads(capsys.readouterr().out)["oracle"][0]["unavailable"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--device", "Voodoo 2"], "no such device"),
        (["--show", "ptx"], "--kernel"),
        (["--shapes", '[{"N": 4}]'], "no size that varies"),
    ],
)
def test_what_the_oracle_is_not_asked(
    region_file: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    assert cli.main(["oracle", str(region_file), *more]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["fly"], ["advise"], ["advise", "x", "--share", "2"], ["advise", "x", "-q"]])
def test_wrong_arguments_are_status_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert capsys.readouterr().out == f"tritonworthy {declared}\n"
    assert app.__version__ == declared


# --- the archive's shelf

MEASURED = {
    "outcome": "confirmed",
    "reason": "…",
    "region": REGION,
    "device": "NVIDIA H200",
    "date": "2026-11-21",
    "candidates": [
        {"name": "eager", "tool": "eager", "status": "ok", "time_us": {"median": 9.0, "low": 8.9, "high": 9.1}}
    ],
}


def test_a_record_is_found_by_its_region_whatever_the_spelling(tmp_path: Path) -> None:
    path = record_store.record(MEASURED, "gelu × 2", tmp_path)
    assert path.name.startswith("gelu-2-nvidia-h200-2026-11-21-")
    spelled = "x : f32[64,128]   # a comment\ny = gelu(x)*2\nreturn y"
    nearest_record = record_store.nearest(spelled, tmp_path)
    assert nearest_record is not None
    assert nearest_record["archived"] == {"file": path.name, "match": "same"}
    assert record_store.by_id(nearest_record["id"], tmp_path) == record_store.records(tmp_path)[0]
    other = record_store.nearest(REGION.replace("128", "999"), tmp_path)
    assert other is not None
    assert other["archived"]["match"] == "other-sizes"
    assert record_store.nearest(REGION.replace("gelu", "relu"), tmp_path) is None
    assert record_store.nearest("no region at all", tmp_path) is None
    assert record_store.by_id("../x", tmp_path) is None


@pytest.mark.parametrize("change", [{"device": None}, {"candidates": []}, {"outcome": None}])
def test_only_measurements_are_recorded(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="measured"):
        record_store.record(MEASURED | change, "r", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_rules_numbers_come_from_the_environment(
    region_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    region_file.write_text(REGION.replace("64, 128", "8192, 4096"))  # large enough for something to change the advice
    asked = ["advise", str(region_file), "--share", "0.3", "--json"]
    assert cli.main(asked) == 0
    before = json.loads(capsys.readouterr().out)
    monkeypatch.setenv("TRITONWORTHY_THRESHOLDS", "worth_share=0.4")
    assert cli.main(asked) == 0
    after = json.loads(capsys.readouterr().out)
    limits = [next(c["threshold"] for c in a["criteria"] if c["name"] == "worth-it") for a in (before, after)]
    assert limits == [0.01, 0.4]
    assert after["tool"] == "skip"
    assert cli.main(asked[:-1]) == 0
    said = capsys.readouterr().out
    assert all(f"  would change it: {c['because']}" in said for c in after["would_change"])
    assert after["would_change"]
    monkeypatch.setenv("TRITONWORTHY_THRESHOLDS", "worth=0.4")
    assert cli.main(asked) == 2
    assert "TRITONWORTHY_THRESHOLDS: no such threshold: worth" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_an_archive_of_several_ranks_is_advised_on_as_its_files(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {f"rank{r}.json": rank_file(tmp_path, r, us).read_bytes() for r, us in ((0, 500.0), (1, 850.0))}
    path = tmp_path / f"job.{kind}"
    path.write_bytes(archive(files) if kind == "tar.gz" else zipped(files))
    assert cli.main(["advise", str(path), "--oracle", "off", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [trace["rank"] for trace in told["ranks"]] == [0, 1]
    assert told["spread"]["slowest"] == 1
    path.write_bytes(path.read_bytes()[:-40] if kind == "zip" else path.read_bytes()[: path.stat().st_size // 2])
    assert cli.main(["advise", str(path), "--oracle", "off"]) == 1
    assert "archive" in capsys.readouterr().err


def test_a_zip_of_one_trace_is_checked_and_reported_on_as_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    trace = rank_file(tmp_path, 0, 500.0)
    Path("one.zip").write_bytes(zipped({"job/rank0.json": trace.read_bytes(), "config.json": b"{}"}))
    subjects = []
    for file in (str(trace), "one.zip"):
        assert cli.main(["check", file, "--baseline", file, "--format", "json"]) == 0
        subjects.append(json.loads(capsys.readouterr().out)["subjects"])
    assert subjects[1][0]["name"] == "one.zip"
    for measure in subjects[1][0]["measures"]:
        measure["subject"] = measure["subject"].replace("one.zip", trace.name)
    assert [{**s, "name": trace.name} for s in subjects[1]] == subjects[0]
    assert cli.main(["report", "one.zip"]) == 0
    assert "<html" in Path("one.html").read_text()


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_check_and_report_take_one_trace_at_a_time_and_say_which_there_are(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {f"rank{r}.json": rank_file(tmp_path, r, us).read_bytes() for r, us in ((0, 500.0), (1, 850.0))}
    Path(f"job.{kind}").write_bytes(archive(files) if kind == "tar.gz" else zipped(files))
    for command, status in (("check", 3), ("report", 1)):
        assert cli.main([command, f"job.{kind}"]) == status
        said = capsys.readouterr().err
        assert "one at a time" in said
        assert "rank0.json, rank1.json" in said


def test_check_of_a_damaged_zip_is_unmeasured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cut.zip").write_bytes(zipped({"rank0.json": rank_file(tmp_path, 0, 500.0).read_bytes()})[:-40])
    assert cli.main(["check", "cut.zip"]) == 2
    assert "The archive cannot be unpacked" in capsys.readouterr().out
