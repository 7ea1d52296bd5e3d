"""What would break: a trace taken for a program, and words with which another program is asked about."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tritonworthy
from app import cli
from app.cli.program import request_of
from app.program.named import is_definition, is_program, trace_name, words_of
from profiler.program.request import Request


@pytest.mark.parametrize(
    "name", ["model.py:make", "a/b c/model.py:make_2", "hf:config.json", "hf:folder", "def:some.json"]
)
def test_a_program_is_told_by_its_form(name: str) -> None:
    assert is_program(name)


@pytest.mark.parametrize("name", ["model.py", "model.py:", "model.py:a.b", "step.json.gz", "region.txt", "none.json"])
def test_what_has_no_such_form_is_none(name: str) -> None:
    assert not is_program(name)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"axes": {}, "inputs": {}, "reference": ""}, True),
        ({"axes": {}, "inputs": {}, "reference": "", "traceEvents": []}, False),
        ({"traceEvents": []}, False),
        ([1], False),
    ],
)
def test_a_definition_without_its_prefix_is_told_and_never_run(tmp_path: Path, value: object, told: bool) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps(value))
    assert is_definition(path) == told and not is_program(str(path))


def test_a_file_of_that_very_name_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("model.py:forward", "hf:text", "def:text"):
        assert is_program(name)
        Path(name).write_text("x: f32[64, 128]\ny = gelu(x)\nreturn y\n")
        assert not is_program(name)
        assert cli.main(["advise", name, "--device", "H100"]) == 0
        assert capsys.readouterr().out.startswith("GELU")


EVIL = {
    "schemaVersion": 1,
    "axes": {"M": {"type": "const", "value": 64}},
    "inputs": {"x": {"shape": ["M", 64], "dtype": "float32"}},
}


@pytest.mark.parametrize("traced", [True, False])
def test_nothing_of_a_received_file_is_run(
    tmp_path: Path, traced: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    mark = tmp_path / "ran"
    payload = f"open({str(mark)!r}, 'w')\nimport torch\ndef run(x):\n    return torch.relu(x) + 1\n"
    value = {**EVIL, "reference": payload, **({"traceEvents": []} if traced else {})}
    Path("evil.json").write_text(json.dumps(value))
    assert cli.main(["advise", "evil.json", "--brief", "--oracle", "off"]) == 1
    assert ("def:evil.json runs its reference" in capsys.readouterr().err) == (not traced)
    for name in ("evil.json", "def:evil.json", "hf:evil.json"):
        with pytest.raises(tritonworthy.InputError):
            tritonworthy.read_trace(name)
        assert cli.main(["advise", name, "--no-program", "--oracle", "off"]) == 1
    assert not mark.exists()
    assert cli.main(["advise", "def:evil.json", "--device", "H100", "--oracle", "off"]) == 0  # asked for by its prefix
    assert mark.exists()


@pytest.mark.parametrize(
    "asked",
    [
        Request("model.py:make"),
        Request("model.py:make", True, "bf16"),
        Request("hf:c.json", False, None, 8, 4096),
        Request("def:d.json", True, "f32", 1, 1024, {"M": 4, "N": 8}),
    ],
)
@pytest.mark.parametrize("device", [None, "NVIDIA H100"])
def test_its_words_ask_the_command_line_the_same(asked: Request, device: str | None) -> None:
    words = words_of(asked, device)
    arguments = cli._parser().parse_args(["advise", *words])
    read = request_of(arguments, arguments.file[0])
    assert (read, arguments.device) == (Request(**{**vars_of(asked), "sizes": asked.sizes or {}}), device)
    assert len(words_of(Request("model.py:make"), None)) == 1


def vars_of(request: Request) -> dict[str, object]:
    return {name: getattr(request, name) for name in request.__slots__}


def test_its_trace_is_named_after_it() -> None:
    assert trace_name("a/model.py:make") == "model.make.json.gz"
    assert trace_name("hf:a/llama.json") == "llama.json.gz"
    assert trace_name("def:a/norm.json") == "norm.json.gz"


@pytest.mark.parametrize("size", ["M", "M=0", "=4", "M=-1", "M=²", "M=" + "9" * 5000])
def test_a_size_that_is_none_is_refused_by_the_command_line(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli._parser().parse_args(["advise", "def:d.json", "--size", size])
    assert "a size is NAME=N" in capsys.readouterr().err
