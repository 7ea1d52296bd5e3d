"""What /learn shows, held to what really happens: Triton's interpreter, counted loads, the recorded measurements."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.advice.criteria import CRITERIA
from app.analysis import service
from app.web.learning import ladder, primitives, program, rule, tiles, tuned
from profiler.hardware import find_device
from tests.conftest import ROOT
from tools.records import record_learn

Json = dict[str, Any]

RUN_PROGRAM = """
import json, sys, torch
sys.path.insert(0, sys.argv[1])
from program_file import add
x, y = (torch.tensor(v, dtype=torch.float32) for v in json.loads(sys.argv[2]))
z = torch.full((12,), -1.0)
add[(int(sys.argv[3]),)](x, y, z, x.numel(), BLOCK=int(sys.argv[4]))
print(json.dumps(z.tolist()))
"""

RUN_TAIL = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from tail_file import tail, tail_kernel
configs = list(tail_kernel.configs)
torch.manual_seed(0)
for place, shape in enumerate(((7, 333), (4, 1024), (1, 1))):
    tail_kernel.configs = configs[place : place + 1]  # one at a time: the interpreter times nothing
    z, bias = torch.randn(shape), torch.randn(shape[-1])
    mask = (torch.rand(shape) < 0.7).float()
    torch.testing.assert_close(tail(z, bias, mask), torch.nn.functional.gelu(z + bias) * mask)
print("ok")
"""


def interpreted(tmp_path: Path, file: str, name: str, script: str, *arguments: str) -> str:
    """What a script prints in Triton's interpreter, with a file of the ladder importable under a name."""
    (tmp_path / f"{name}.py").write_text((ladder.FOLDER / file).read_text())
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), *arguments], capture_output=True, text=True, timeout=800,
        env={**os.environ, "TRITON_INTERPRET": "1"}, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


# ------------------------------------------------------------------------------------------------------------- the rule


def lit(advice: Json) -> dict[str, str]:
    return {n["question"]: n["state"] for n in rule.light_tree(advice)["nodes"]}


def widget(**answers: Any) -> Json:
    return service.advise_widget(**{"share_of_step": 0.2, "uniqueness": 0.5, "irregularity": 0.3, **answers})


def test_a_sliver_of_the_step_ends_at_the_second_question() -> None:
    tree = rule.light_tree(widget(share_of_step=0.001))
    states = [n["state"] for n in tree["nodes"]]
    assert states == ["lit", "taken", "dim", "dim", "dim", "dim", "dim"]
    assert tree["ended"] and tree["nodes"][1]["leaf"] == "skip" and tree["nodes"][1]["chosen"]


@pytest.mark.parametrize(
    ("answers", "tool"),
    [
        ({"uniqueness": 0.9, "irregularity": 0.8, "bound": "memory", "kind": "custom"}, "triton"),
        ({"uniqueness": 0.05, "irregularity": 0.1, "bound": "compute", "kind": "attention"}, "library"),
        ({"bound": "memory", "kind": "elementwise"}, "compile"),
    ],
)
def test_the_lit_path_ends_at_the_tool_that_is_advised(answers: Json, tool: str) -> None:
    advice = widget(**answers)
    assert advice["tool"] == tool
    tree = rule.light_tree(advice)
    assert not tree["ended"]
    (chosen,) = [n for n in tree["nodes"] if n["chosen"]]
    assert chosen["leaf"] == tool and chosen["state"] == "taken"
    competing = {o["tool"] for o in advice["alternatives"] if o["admitted"]}
    assert {n["leaf"] for n in tree["nodes"] if n["state"] == "taken"} == competing - {"skip"}


def test_every_criterion_of_the_rule_answers_a_question_or_is_known_not_to() -> None:
    asked = {name for q in rule.QUESTIONS for name in q.criteria}
    names = [c["name"] for c in widget()["criteria"]]
    assert asked <= set(names)
    assert all(not c.ends and c.refuses is None for c in CRITERIA if c.name not in asked)


# -------------------------------------------------------------------------------------------------------- one program


@pytest.mark.parametrize("place", range(program.PROGRAMS))
def test_a_programs_life_is_what_triton_does(tmp_path: Path, place: int) -> None:
    """The interpreter runs programs 0 to place: what the last one of them adds is what the page says it stores."""

    def after(count: int) -> list[float]:
        given = json.dumps([program.X, program.Y])
        return list(map(float, json.loads(
            interpreted(tmp_path, "program.txt", "program_file", RUN_PROGRAM, given, str(count), str(program.BLOCK))
        )))  # fmt: skip

    before = after(place) if place else [-1.0] * 12
    now = after(place + 1)
    changed = {i: v for i, (u, v) in enumerate(zip(before, now, strict=True)) if u != v}
    assert changed == program.stores_of(place)
    shown = program.describe_life(place)
    assert {c["at"]: c["z"] for c in shown["cells"] if c["z"] != ""} == changed


def test_each_step_shows_its_own_line_of_the_kernel() -> None:
    lines = program.code()
    for step in program.describe_life(0)["steps"]:
        assert step.lines, step.name
    shown = [lines[i - 1].strip() for s in program.describe_life(0)["steps"] for i in s.lines]
    assert shown == [line.strip() for line in lines if line.startswith("    ")]


# ---------------------------------------------------------------------------------------------------------------- tiles


@pytest.mark.parametrize("tile", [8, 16, 32])
def test_bytes_read_are_those_of_a_loop_that_counts_them(tile: int) -> None:
    n, device = 64, find_device("H200")
    assert device is not None
    read = 0
    for _row in range(0, n, tile):
        for _column in range(0, n, tile):
            read += (tile * n + n * tile) * 2
    row = next(r for r in tiles.tile_rows(n, device) if r["tile"] == tile)
    assert row["read"] == read
    assert row["programs"] == (n // tile) ** 2
    assert row["held"] == 3 * 2 * tile * 64 * 2


# --------------------------------------------------------------------------------------------------- ladder and tuning


def test_the_ladders_triton_computes_what_its_eager_does(tmp_path: Path) -> None:
    assert interpreted(tmp_path, "triton.txt", "tail_file", RUN_TAIL).strip() == "ok"


def test_the_ladders_eager_and_compile_are_the_same_function() -> None:
    code = {r["tool"]: r["code"] for r in ladder.rungs()}
    assert code["compile"] == f"@torch.compile\n{code['eager']}"
    assert [r["lines"] for r in ladder.rungs()] == sorted(r["lines"] for r in ladder.rungs())


def test_times_shown_are_the_recorded_ones() -> None:
    record = json.loads(record_learn.RECORD.read_text())
    assert tuned.load_cases() == record_learn.select_fields(record)
    rows = {(r["operation"], r["case"]): r for r in record["rows"]}
    for case in tuned.load_cases()["cases"]:
        assert {t["variant"]: t["time_us"] for t in case["tried"]} == (
            rows[case["operation"], case["case"]]["chosen"]["tried_us"]
        )


@pytest.mark.parametrize("case", [c["name"] for c in tuned.load_cases()["cases"]])
def test_each_configuration_has_its_own_code_and_time(case: str) -> None:
    tried = next(c["tried"] for c in tuned.load_cases()["cases"] if c["name"] == case)
    launches = set()
    for place, one in enumerate(tried):
        shown = tuned.case_context(case, place)
        assert shown["config"]["time_us"] == one["time_us"]
        assert f"def {shown['config']['kernel']}(" in shown["source"]
        compile(shown["config_launch"], "launch", "exec")
        launches.add(shown["config_launch"])
    assert len(launches) == len(tried)
    assert len({c["differs"] for c in tuned.case_context(case, 0)["configs"]}) == len(tried)


def test_a_strange_address_shows_the_first_kernels_choice() -> None:
    for name, place in (("nothing", 3), (None, None), ("softmax", 999)):
        shown = tuned.case_context(name, place)
        assert shown["case"]["name"] == "softmax"
        assert shown["configs"][shown["config"]["place"]]["shown"]


def test_every_primitives_line_stands_in_the_file_that_is_named() -> None:
    for one in primitives.PRIMITIVES:
        assert one.line in (ROOT / one.file).read_text()
