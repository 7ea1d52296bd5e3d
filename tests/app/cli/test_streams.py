"""Commands as processes whose streams are closed, full, without a reader or in ASCII: one line, the right status."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pytest

from app import cli
from app.archive import record_store
from tests.app.cli.warm import COMMAND_LINE, run_warm
from tests.conftest import ROOT

REGION = "x: bf16[4096, 4096]\ny: bf16[4096, 4096]\nz = torch.nn.functional.gelu(x + y)\nreturn z\n"
NO_ROOM = "tritonworthy: cannot write to standard output: No space left on device\n"
CLOSED = "tritonworthy: cannot write to standard output: it is closed\n"

ADVISE = ("advise", "region.txt")
COMMANDS: dict[str, tuple[str, ...]] = {
    "help": ("--help",),
    "help of a command": ("accuracy", "--help"),
    "version": ("--version",),
    "advise": ADVISE,
    "advise as JSON": (*ADVISE, "--json"),
    "advise on a trace": ("advise", str(ROOT / "app" / "examples" / "vit_base.json.gz"), "--oracle", "off"),
    "report": ("report", "region.txt", "--out", "page.html"),
    "archive list": ("archive", "list"),
    "archive list as JSON": ("archive", "list", "--json"),
    "accuracy": ("accuracy", "--records", "records", "--json"),
    "kit": ("kit", "region.txt", "--json"),
    "check": ("check", "region.txt"),
    "check as JSON": ("check", "region.txt", "--format", "json"),
    "watch": ("watch", "region.txt", "--dry-run", "--json"),
    "fleet": ("fleet", "resources", "--read-slots", "2"),
}


def commands(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("command", [COMMANDS[name] for name in names], ids=names)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a region and some records."""
    folder = tmp_path_factory.mktemp("here")
    (folder / "region.txt").write_text(REGION)
    (folder / "records").mkdir()
    for path in sorted(record_store.FOLDER.glob("*.json"))[:3]:
        shutil.copy(path, folder / "records")
    return folder


def run(
    here: Path, command: tuple[str, ...], redirected: str = "", **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """The command by a shell that redirects its streams; what is not redirected is captured.

    Those that advise on a region, and whose interpreter is told nothing, are forks of a process that has torch.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TRITONWORTHY_", "PYTHON", "LC_", "LANG"))}
    env = kept | {"PYTHONPATH": str(ROOT)} | variables
    if "region.txt" in command and not variables:
        with redirect(redirected, here) as streams:
            return run_warm(COMMAND_LINE, *command, cwd=here, env=env, **streams)
    line = f'exec "$0" -m app.cli "$@" {redirected}'
    return subprocess.run(
        ["sh", "-c", line, sys.executable, *command], cwd=here, stdin=subprocess.DEVNULL, capture_output=True,
        env=env, timeout=800,
    )  # fmt: skip


@contextmanager
def redirect(redirected: str, here: Path) -> Iterator[dict[str, int | None]]:
    """The streams that a shell would give for this redirection, "2>&-" or ">/dev/full": closed, or open files."""
    with ExitStack() as files:
        streams: dict[str, int | None] = {}
        for number, direction, target in re.findall(r"(\d?)([<>])(\S+)", redirected):
            name = ("stdin", "stdout", "stderr")[int(number or "<>".index(direction))]
            mode = "rb" if name == "stdin" else "wb"
            file = None if target == "&-" else files.enter_context((here / target).open(mode, 0))
            streams[name] = file and file.fileno()
        yield streams


@commands(
    "help", "version", "advise", "advise as JSON", "report", "archive list as JSON", "kit", "check as JSON", "fleet"
)
def test_a_full_disk_behind_stdout_is_status_2_and_one_line(here: Path, command: tuple[str, ...]) -> None:
    ended = run(here, command, ">/dev/full")
    assert ended.returncode == 2
    # What a command says of its progress, or of the verdict itself, may stand before it.
    assert ended.stderr.decode().endswith(NO_ROOM)
    assert b"Traceback" not in ended.stderr


@commands("help", "advise", "archive list as JSON")
def test_closed_streams_are_status_2_and_one_line(here: Path, command: tuple[str, ...]) -> None:
    ended = run(here, command, "<&- >&-")
    assert ended.returncode == 2
    assert ended.stderr.decode().endswith(CLOSED)
    assert b"Traceback" not in ended.stderr


@commands("advise as JSON", "archive list")
@pytest.mark.parametrize(
    "variables", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
    ids=["PYTHONIOENCODING", "LC_ALL"],
)  # fmt: skip
def test_what_ascii_lacks_is_replaced(here: Path, command: tuple[str, ...], variables: dict[str, str]) -> None:
    ended, whole = run(here, command, **variables), run_in_utf_8(here, command)
    assert ended.returncode == whole.returncode
    assert b"Traceback" not in ended.stderr
    text = ended.stdout.decode("ascii")
    if "--json" in command:
        assert _stable(json.loads(text)) == _stable(json.loads(whole.stdout))
    else:
        assert len(text.splitlines()) == len(whole.stdout.decode().splitlines())


@cache
def run_in_utf_8(here: Path, command: tuple[str, ...]) -> subprocess.CompletedProcess[bytes]:
    return run(here, command, PYTHONUTF8="1")


def _stable(body: object) -> object:
    """Without what differs between two runs: times and ids made now."""
    if isinstance(body, dict):
        return {k: _stable(v) for k, v in body.items() if k not in ("id", "created_at")}
    return [_stable(item) for item in body] if isinstance(body, list) else body


@pytest.mark.parametrize("command", [ADVISE, (*ADVISE, "--json"), ("archive", "list"), ("--help",)])
def test_nobody_reads_any_more(here: Path, command: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        if "region.txt" in command:
            ended = run_warm(COMMAND_LINE, *command, cwd=here, env=env, stdout=writing)
        else:
            ended = subprocess.run(
                [sys.executable, "-m", "app.cli", *command], cwd=here, stdout=writing, stderr=subprocess.PIPE,
                timeout=800, env=env,
            )  # fmt: skip
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.parametrize(("redirected", "status"), [("2>/dev/full", 1), ("2>&-", 1), ("2>/dev/full >&-", 1)])
def test_a_message_that_cannot_be_written_changes_no_status(here: Path, redirected: str, status: int) -> None:
    ended = run(here, ("advise", "none.txt"), redirected)
    assert (ended.returncode, ended.stdout) == (status, b"")


@pytest.mark.parametrize("command", [("advise", "-"), ("kit", "-"), ("landscape", "-", "--candidate", "triton:x")])
def test_closed_stdin_is_told(here: Path, command: tuple[str, ...]) -> None:
    ended = run(here, command, "<&-")
    assert ended.returncode == 1
    assert ended.stderr == b"-: Bad file descriptor\n"


def test_stdin_is_utf_8_whatever_the_locale(here: Path) -> None:
    (here / "commented.txt").write_text("# 5 µs × 2\n" + REGION, encoding="utf-8")
    ended = run(here, ("advise", "-"), "<commented.txt", PYTHONIOENCODING="ascii")
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("command", [("report", "region.txt"), ("kit", "region.txt"), ("check", "region.txt")])
def test_a_file_that_cannot_be_written_is_status_2(here: Path, command: tuple[str, ...]) -> None:
    place = ("--out", "region.txt/out") if command[0] != "report" else ("--out", "/dev/full")
    more = ("--format", "json") if command[0] == "check" else ()
    ended = run(here, (*command, *place, *more))
    assert ended.returncode == 2
    assert ended.stderr.decode().count("\n") == 1, ended.stderr


# ----------------------------------------------------------------------------------------------------- faults, numbers


def broken(arguments: object) -> int:
    raise KeyError("a\nfault \x1b[31m" + "x" * 9000)


@pytest.mark.parametrize("debug", ["", "1"])
def test_a_fault_is_one_line_and_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], debug: str
) -> None:
    monkeypatch.setenv("TRITONWORTHY_DEBUG", debug)
    monkeypatch.setattr("app.cli.advise._advise", broken)
    monkeypatch.setattr("app.cli.ci.check._check", broken)
    for command in ("advise", "check"):
        assert cli.main([command, "x"]) == 2
        said = capsys.readouterr().err
        line = said.splitlines()[-1]
        assert line.startswith("tritonworthy: internal error: KeyError: ")
        assert "test_streams.py:" in line
        assert len(line) < 600
        assert said.isprintable() or said.replace("\n", "").isprintable() or debug
        assert ("Traceback" in said) == bool(debug)
        assert debug or said.count("\n") == 1


def test_the_streams_of_the_caller_are_its_own_again(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdin, sys.stdout, sys.stderr, sys.stdout.errors
    assert cli.main(["advise", "/nonexistent"]) == 1
    assert (sys.stdin, sys.stdout, sys.stderr, sys.stdout.errors) == before
    assert "nonexistent" in capsys.readouterr().err


WRONG = ("inf", "-inf", "nan", "-1", "0", "1e400", "1e13", "x", "")
NUMBERS: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (("advise", "x", "--step-time-us"), WRONG),
    (("validate", "x", "--step-time-us"), WRONG),
    (("report", "x", "--step-time-us"), WRONG),
    (("advise", "x", "--share"), ("inf", "nan", "-0.1", "1.1", "x", "")),
    (("validate", "x", "--budget"), (*WRONG, "0.5", "86401")),
    (("landscape", "x", "--candidate", "c", "--budget"), WRONG),
    (("landscape", "x", "--candidate", "c", "--points"), ("0", "-1", "1.5", "1000001", "9" * 5000, "")),
    (("fleet", "resources", "--read-slots"), ("0", "-1", "x", "1e3", "")),
    (("serve", "--port"), ("-1", "65536", "x", "")),
    (("validate", "x", "--shapes"), ("[" * 100_000, "9" * 5000, '[{"N": ' + "9" * 5000 + "}]", "{}")),
]  # fmt: skip
STATUS_3: list[tuple[tuple[str, ...], tuple[str, ...]]] = [(("watch", "x", "--budget"), WRONG)]


@pytest.mark.parametrize(("command", "values"), [*NUMBERS, *STATUS_3], ids=lambda given: " ".join(given)[:40])
def test_a_number_out_of_its_range_is_wrong_usage(
    command: tuple[str, ...], values: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for value in values:
        with pytest.raises(SystemExit) as ended:
            cli.main([*command[:-1], f"{command[-1]}={value}"])
        assert ended.value.code == (3 if command[0] == "watch" else 2)
        last = capsys.readouterr().err.splitlines()[-1]
        assert f"error: argument {command[-1]}: " in last


@pytest.mark.parametrize(
    "command",
    [
        ("serve", "--data-dir="),
        ("archive", "list", "--folder="),
        ("validate", "x", "--record= "),
        ("report", "x", "--out="),
        ("accuracy", "--records="),
        ("kit", "x", "--out="),
        ("check", "x", "--out="),
    ],
)
def test_an_empty_path_is_not_the_current_folder(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(command))
    assert ended.value.code == (3 if command[0] == "check" else 2)
    assert capsys.readouterr().err.splitlines()[-1].endswith("a path is wanted; it is empty")
