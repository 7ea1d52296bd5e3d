"""Prefill and decode are told apart and advised apart: every figure is of one of them, and actions say of which."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.trace_report.actions.listed import saving_words
from app.trace_report.phase import phase_of, phase_of_region
from app.trace_report.report import report
from app.trace_report.speedup import with_actions
from app.web.templating import environment
from app.web.views.trace_page import trace_page
from profiler.trace import read_trace
from tests.app.trace_report.reports import reported
from tests.profiler.trace.files import annotation, kernel, launch, op, written

Json = dict[str, Any]

VLLM = "execute_{tokens}_context_{p}(sq{pt}sk{pt}sqsq0sqsk0)_generation_{d}(sq{d}sk{keys}sqsq{d}sqsk{keys})"
PREFILL = VLLM.format(tokens=2048, p=2, pt=2048, d=0, keys=0)
DECODE = VLLM.format(tokens=32, p=0, pt=0, d=32, keys=55086)
MIXED = VLLM.format(tokens=2080, p=2, pt=2048, d=32, keys=55086)


def engine(path: Path, steps: list[tuple[str, int, float]]) -> Path:
    """A serving engine's recording: (annotation, rows of its products, µs of each) a step, six products each."""
    path.mkdir(exist_ok=True)
    events: list[Json] = []
    at = 0.0
    for number, (name, rows, took) in enumerate(steps):
        begin = at
        for place in range(6):
            identity = 10 * number + place + 1
            shapes = {"Input Dims": [[rows, 4096], [4096, 4096]], "Input type": ["c10::BFloat16"] * 2}
            events += [
                op("aten::mm", at, 8.0, **shapes),
                launch(at + 2.0, identity),
                kernel(at + 6.0, took, identity, name="nvjet_tst_128x256"),
            ]
            at += took + 20.0
        events.append(annotation(name, begin - 1.0, at - begin - 2.0))
    return written(path, json.dumps({"traceEvents": events}))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three decode steps and three prefills, which take most of the kernel time."""
    order = [(DECODE, 32, 30.0), (PREFILL, 2048, 400.0)] * 3
    return engine(tmp_path_factory.mktemp("engine") / "both", order)


def test_every_figure_is_of_one_phase(both: Path) -> None:
    told = report(both, "both")
    assert told["phase"] == {"kind": "prefill", "told_by": "annotations", "decode_share": None}
    (note,) = [n for n in told["notes"] if n["code"] == "serving-phases"]
    assert "All figures are of prefill steps alone." in note["message"]
    assert told["step_times"]["count"] == 3 and told["step_times"]["left_out"] == 3
    rows = {dim for r in told["regions"] for s in r["shapes"] for dim in s["operands"] if dim.startswith("x: ")}
    assert rows == {"x: bf16[2048, 4096]"}
    assert told["step_time_us"] == pytest.approx(6 * 420.0, rel=0.05)  # not the mean with a decode's 300


def test_a_mixed_batch_is_said_to_be_one(tmp_path: Path) -> None:
    mixed = read_trace(engine(tmp_path / "mixed", [(MIXED, 2080, 300.0)] * 3))
    phase = phase_of(mixed, mixed.steps, None)
    assert phase is not None and phase["kind"] == "mixed"
    one = read_trace(engine(tmp_path / "one", [(DECODE, 32, 30.0)] * 3))
    assert phase_of(one, one.steps, None) == {"kind": "decode", "told_by": "annotations", "decode_share": None}


@pytest.mark.parametrize(("name", "kind"), [
    ("tl_sglang_prefilldecode.json.gz", "prefill"),
    ("tl_vllm_decode_full_exec.json.gz", "decode"),
    ("llama_decode_bf16_eager.json.gz", "mixed"),  # a prompt, and seven tokens behind it
    ("llama_prefill_bf16_eager.json.gz", None),  # nothing tells it from an encoder
])  # fmt: skip
def test_recorded_traces_have_the_phase_that_their_annotations_or_shapes_tell(name: str, kind: str | None) -> None:
    told = reported(name)
    assert (told["phase"] or {"kind": None})["kind"] == kind
    for action in told["actions"]:
        if action["scope"] == "step":
            assert action.get("phase") == kind


def test_actions_name_the_phase_on_page_check_and_json() -> None:
    told = reported("llama_decode_bf16_eager.json.gz")
    action = next(a for a in told["actions"] if a["saves_us"])
    assert action["phase"] == "mixed" and "record each by itself" in action["because"]
    assert "of a step of prefill and decode" in saving_words(action)
    regions = [{**r, "id": f"{n:026d}"} for n, r in enumerate(told["regions"])]
    page = trace_page({**told, "id": "t" * 26, "status": "ready", "regions": regions})  # type: ignore[typeddict-item]
    shown = environment().get_template("partials/trace/body.html").render(**page)
    assert '<span class="tag">prefill and decode</span>' in shown
    alone = with_actions({**told, "phase": {"kind": "decode", "told_by": "shapes", "decode_share": 1.0}})  # type: ignore[typeddict-item]
    again = next(a for a in alone["actions"] if a["saves_us"])
    assert again["phase"] == "decode" and "of a decode step" in saving_words(again)
    assert "faster arithmetic does not" in again["because"]


def test_a_region_of_a_mixed_step_has_the_phase_of_its_own_calls() -> None:
    mixed: Any = {"kind": "mixed", "told_by": "shapes", "decode_share": 0.9}

    def region(*tokens: int) -> Any:
        return {"shapes": [{"operands": [f"x: bf16[4, {n}, 2048]"], "calls": 1.0, "time_us_per_step": 1.0}
                           for n in tokens]}  # fmt: skip

    assert phase_of_region(region(1), mixed) == "decode"
    assert phase_of_region(region(128), mixed) == "prefill"
    assert phase_of_region(region(1, 128), mixed) == "mixed"
    assert phase_of_region({"shapes": []}, mixed) == "mixed"  # type: ignore[typeddict-item]
    assert phase_of_region(region(128), {**mixed, "kind": "decode"}) == "decode"
    assert phase_of_region(region(1), None) is None
