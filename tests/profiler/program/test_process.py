"""What would break: a program that never ends, that is larger than the machine, that returns what it should not."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from profiler.child.limits import GIB, Limits
from profiler.program.model import ProgramError
from profiler.program.process import LIMITS, MOST_LOG, answered, record_in_process
from profiler.program.request import Request
from profiler.program.sources import without
from tests.libraries import library

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


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("wrong_shape", "must have same reduction dim"),
        ("wrong_inside", "programs.py:{inside}: RuntimeError: "),
        ("views", "it runs nothing on the device"),
        ("huge", "above 2^64"),
        ("interrupted", "programs.py:{interrupted}: it ended itself, by KeyboardInterrupt"),
        ("leaves", "it ended itself, by SystemExit: 0"),
        ("leaves_at_once", "it ended with status 0 before its step was recorded, as by os._exit(0)"),
    ],
)
def test_what_goes_wrong_is_said_with_its_line_and_without_ours(function: str, message: str) -> None:
    lines = PROGRAMS.read_text().splitlines()
    places = {"inside": "self.layer(x", "interrupted": "raise KeyboardInterrupt"}
    numbers = {name: next(i for i, line in enumerate(lines, 1) if text in line) for name, text in places.items()}
    told = said(f"{PROGRAMS}:{function}")
    assert message.format(**numbers) in told
    assert "Traceback" not in told and "child.py" not in told


def test_the_end_of_what_it_wrote_is_kept_and_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    largest = 0

    def look(_: float) -> None:
        nonlocal largest
        largest = max(largest, sum(f.stat().st_size for f in tmp_path.rglob("*") if f.is_file()))

    with pytest.raises(ProgramError) as caught:
        record_in_process(Request(f"{PROGRAMS}:talks"), on_wait=look)
    assert "it ended with status 5" in caught.value.message
    assert caught.value.remedy.endswith("its last words") and len(caught.value.remedy) <= MOST_LOG
    assert 0 < largest < 100_000  # of 50 MB


@pytest.mark.skipif(sys.platform != "linux", reason="who loses its parent is kept by Linux alone")
def test_nothing_that_it_started_outlives_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    left = tmp_path / "left"
    monkeypatch.setenv("LEFT", str(left))
    assert record_in_process(Request(f"{PROGRAMS}:starts_another")).calls
    pid = int(left.read_text())
    try:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


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


NAMED_CODE = {
    "auto_map": {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"},
    "attn_implementation": "someone/kernel:attend",
    "_attn_implementation": "someone/kernel:attend",
    "experts_implementation": "someone/kernel:mix",
}
TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 96}


def test_what_names_code_is_taken_out_of_a_config_at_any_depth() -> None:
    config = {"model_type": "llama", **TINY}
    assert without({**config, **NAMED_CODE, "text_config": {**TINY, **NAMED_CODE}}) == {**config, "text_config": TINY}


def test_a_model_of_a_config_is_made_without_the_code_that_it_names(tmp_path: Path) -> None:
    library("transformers")
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Model: ...\nclass Config: ...\n")
    programs = []
    for name, more in (("plain", {}), ("named", NAMED_CODE)):
        path = tmp_path / name / "config.json"
        path.parent.mkdir()
        path.write_text(json.dumps({"model_type": "llama", "num_key_value_heads": 2, **TINY, **more}))
        (path.parent / "evil.py").write_text((tmp_path / "evil.py").read_text())
        programs.append(record_in_process(Request(f"hf:{path}", sequence=16)))
    assert [c.name for c in programs[0].calls] == [c.name for c in programs[1].calls]
    assert not (tmp_path / "ran").exists()


def test_a_config_of_an_unknown_type_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "no-such-model", "auto_map": {"AutoModel": "evil.Model"}}')
    told = said(f"hf:{path}")
    assert "unknown to transformers" in told or "transformers is not installed" in told
    path.write_text("[1, 2]")
    assert "no JSON object" in said(f"hf:{path}")
