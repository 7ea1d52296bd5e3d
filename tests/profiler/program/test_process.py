"""What would break: a program that never ends, that is larger than the machine, that returns what it should not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profiler.child.limits import GIB, Limits
from profiler.program.model import ProgramError
from profiler.program.process import LIMITS, answered, record_in_process
from profiler.program.request import Request

PROGRAMS = Path(__file__).with_name("programs.py")


def said(source: str, limits: Limits | None = None, **options: object) -> str:
    request = Request(source, **options)  # type: ignore[arg-type]
    with pytest.raises(ProgramError) as caught:
        record_in_process(request, limits or LIMITS)
    return f"{caught.value.message} {caught.value.remedy}"


def test_seventy_billion_weights_take_no_memory() -> None:
    answer = answered(Request(f"{PROGRAMS}:seventy_billion"))
    assert answer.program is not None
    assert answer.program.parameters > 69e9
    assert answer.peak_bytes < 2 * GIB


def test_an_endless_program_ends_at_its_time() -> None:
    assert "not recorded after 15 s" in said(f"{PROGRAMS}:endless", Limits(timeout_s=15.0))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("nothing", "returned a str"),
        ("hostile", "returned a Hostile"),
        ("missing", "no function missing"),
    ],
)
def test_a_wrong_function_is_told_what_to_return(function: str, message: str) -> None:
    assert message in said(f"{PROGRAMS}:{function}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_package_at_all\n", "broken.py:1: No module named 'no_such_package_at_all'"),
        ("def make(:\n", "broken.py:1: invalid syntax"),
        ("import os\nos._exit(3)\n", "it ended with status 3"),
        ("def make():\n    raise RuntimeError('on purpose')\n", "broken.py:2: RuntimeError: on purpose"),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    assert message in said(f"{path}:make")


def test_a_program_imports_from_its_folder_and_the_current_one_which_replace_nothing_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("profiler", "app", "msgspec"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the folder was imported')")
    (tmp_path / "models").mkdir()
    (tmp_path / "widths.py").write_text("WIDTH = 96\n")
    (tmp_path / "models" / "parts.py").write_text("from torch.nn import Linear\n")
    (tmp_path / "models" / "one.py").write_text(
        "import torch\nfrom parts import Linear\nfrom widths import WIDTH\n"
        "def make():\n    return Linear(WIDTH, 8), torch.randn(4, WIDTH)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert record_in_process(Request("models/one.py:make")).parameters == 96 * 8 + 8


def test_while_it_is_recorded_its_time_is_told() -> None:
    told: list[float] = []
    with pytest.raises(ProgramError, match="not recorded after 5 s"):
        record_in_process(Request(f"{PROGRAMS}:endless"), Limits(timeout_s=5.0), told.append)
    assert 3 <= len(told) <= 6 and told == sorted(told)


DEFINITION = {
    "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 64}, "T": {"type": "expr", "expression": "M * 2"}},
    "inputs": {"a": {"shape": ["T", "N"], "dtype": "bfloat16"}, "eps": {"shape": None, "dtype": "float32"}},
    "reference": "import torch\ndef run(a, eps):\n    return torch.nn.functional.rms_norm(a, (64,), eps=eps)\n",
}


def test_a_definition_is_run_at_its_sizes(tmp_path: Path) -> None:
    path = tmp_path / "definition.json"
    path.write_text(json.dumps(DEFINITION))
    program = record_in_process(Request(f"def:{path}", sizes={"M": 16}))
    assert program.calls[0].name == "aten::rms_norm"
    assert program.calls[0].signature.dims[0] == [32, 64]
    assert "no size for M" in said(f"def:{path}")


def test_a_size_is_no_python(tmp_path: Path) -> None:
    hostile = {**DEFINITION, "axes": {**DEFINITION["axes"], "T": {"expression": "__import__('os').getpid()"}}}
    path = tmp_path / "definition.json"
    path.write_text(json.dumps(hostile))
    assert "cannot be computed" in said(f"def:{path}", sizes={"M": 16})


def test_a_config_runs_no_code_and_downloads_nothing(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "no-such-model", "auto_map": {"AutoModel": "evil.Model"}}')
    told = said(f"hf:{path}")
    assert "unknown to transformers" in told or "transformers is not installed" in told
    path.write_text("[1, 2]")
    assert "no JSON object" in said(f"hf:{path}")
