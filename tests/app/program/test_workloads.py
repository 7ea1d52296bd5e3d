"""Workloads beside a definition: the sizes of the line that was asked for, and words for what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app import cli
from app.cli.program import request_of
from app.program.workloads import FILE, WorkloadError, sizes_of

LINES = [
    {"axes": {"M": 64, "N": 8}, "inputs": {"a": {"type": "random"}}, "uuid": "a"},
    {"definition": "rms", "solution": None, "workload": {"axes": {"M": 128}, "inputs": {}, "uuid": "b"}},
]
DEFINITION = {
    "axes": {"M": {"type": "var"}},
    "inputs": {"a": {"shape": ["M", "M"], "dtype": "float32"}},
    "reference": "def run(a):\n    return (a @ a).softmax(-1)\n",
}


@pytest.fixture
def definition(tmp_path: Path) -> Path:
    path = tmp_path / "definition.json"
    path.write_text(json.dumps(DEFINITION))
    (tmp_path / FILE).write_text("\n".join(json.dumps(line) for line in LINES) + "\n\n")
    return path


def test_both_ways_in_which_a_line_is_written(definition: Path) -> None:
    assert [dict(sizes_of(definition, n)) for n in (1, 2)] == [{"M": 64, "N": 8}, {"M": 128}]


@pytest.mark.parametrize(
    ("lines", "number", "told"),
    [
        ("{}", 2, "has 1 workloads, and no number 2"),
        ("", 1, "has 0 workloads"),
        ("{}", 1, "has no axes"),
        ("[1]", 1, "cannot be read"),
        ('{"axes": {"M": "many"}}', 1, "cannot be read"),
        ('{"axes": {"M": 0}}', 1, "a size below 1"),
    ],
)
def test_what_is_wrong_with_it_is_said(definition: Path, lines: str, number: int, told: str) -> None:
    definition.with_name(FILE).write_text(lines)
    with pytest.raises(WorkloadError, match=told):
        sizes_of(definition, number)


def test_the_command_takes_them_and_a_size_goes_before_them(
    definition: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "step.json"
    asked = ["advise", f"def:{definition}", "--workload", "2", "--oracle", "off", "--device", "H100"]
    assert cli.main([*asked, "--save", str(saved), "--json"]) == 0
    capsys.readouterr()
    shapes = [e["args"].get("Input Dims") for e in json.loads(saved.read_text())["traceEvents"]]
    assert [[128, 128], [128, 128]] in shapes
    assert cli.main([*asked[:2], "--workload", "3"]) == 1
    assert "has 2 workloads, and no number 3" in capsys.readouterr().err
    assert cli.main(["advise", "hf:config.json", "--workload", "1"]) == 1
    assert "--workload goes with def:" in capsys.readouterr().err


def test_a_size_is_said_before_the_workloads(definition: Path) -> None:
    from argparse import Namespace

    given = Namespace(training=False, dtype=None, batch=None, sequence=None, size=[("M", 7)], workload=1)
    assert request_of(given, f"def:{definition}").sizes == {"M": 7, "N": 8}
