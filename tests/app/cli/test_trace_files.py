"""Other tools' files from a shell: advised on, checked against a torch trace of the same run, refused in words."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from app import cli
from app.cli.inputs import is_trace
from tests.profiler.trace.files import SMALL, TRACES, loaded
from tests.profiler.trace.nsys_export import export
from tests.profiler.trace.read.formats.test_unzstd import zstd
from tests.profiler.trace.read.test_members import zipped


@pytest.fixture
def exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return export(loaded(SMALL), tmp_path / "run.sqlite")


def test_what_a_file_is_its_bytes_tell(exported: Path, tmp_path: Path) -> None:
    data = exported.read_bytes()
    for number, content in enumerate((data, gzip.compress(data), zstd.compress(data), zipped({"run.sqlite": data}))):
        path = tmp_path / f"step{number}"
        path.write_bytes(content)
        assert is_trace(path)
    for name, content in (("step.nsys-rep", b"no zero in it"), ("program", b"\x7fELF\2\1\1" + bytes(9))):
        (tmp_path / name).write_bytes(content)
        assert is_trace(tmp_path / name)
    (tmp_path / "region").write_text("x: f32[8]\nreturn x\n")
    assert not is_trace(tmp_path / "region")


def test_check_holds_an_export_to_the_torch_trace_of_its_run(
    exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The step is the same to the nanosecond: nothing got slower."""
    Path("tritonworthy.toml").write_text('[assertions]\nregression = "error"\n')
    packed = Path("run.zip")
    packed.write_bytes(zipped({"run.sqlite": exported.read_bytes()}))
    for path in (exported, packed):
        status = cli.main(["check", str(path), "--baseline", str(TRACES / SMALL)])
        said = capsys.readouterr()
        assert status == 0, said.out + said.err


@pytest.mark.parametrize("cut", [0.5, 0.9])
def test_a_cut_export_is_refused_in_words(cut: float, exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = exported.read_bytes()
    exported.write_bytes(data[: int(len(data) * cut)])
    assert cli.main(["advise", str(exported)]) == 1
    said = capsys.readouterr().err
    assert "damaged or cut off" in said
    assert "nsys export --type sqlite" in said
    assert cli.main(["check", str(exported)]) == 2
    assert "damaged or cut off" in capsys.readouterr().out


def test_advice_on_an_export_has_the_step_of_its_torch_trace(
    exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = []
    for path in (exported, TRACES / SMALL):
        assert cli.main(["advise", str(path), "--json", "--oracle", "off"]) == 0
        steps.append(json.loads(capsys.readouterr().out))
    assert steps[0]["step_time_us"] == steps[1]["step_time_us"]
    assert steps[0]["step_parts"] == steps[1]["step_parts"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("step.nsys-rep", b"\x0bNVIDIA Nsight" + bytes(2000)), ("step.qdrep", b"report"), ("step", b"rep" + bytes(2000))],
)
def test_a_report_that_was_not_exported_says_how_it_is(
    name: str, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert cli.main(["advise", str(path)]) == 1
    assert "nsys export --type sqlite" in capsys.readouterr().err
    assert cli.main(["check", str(path)]) == 2
    assert "nsys export --type sqlite" in capsys.readouterr().out
