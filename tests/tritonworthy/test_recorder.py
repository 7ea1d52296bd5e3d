"""capture: two steady steps of a program that runs as before, whole files, and an end that never ends the program."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import tritonworthy
from profiler.trace import read_trace
from profiler.trace.execution_trace import read_execution
from tests.app.web.conftest import serving
from tests.conftest import ROOT
from tritonworthy import profiling, recorder
from tritonworthy.handover import upload
from tritonworthy.recording import Recording

MODEL = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 64))
X = torch.randn(32, 64)
TRACE = ROOT / "app" / "examples" / "handrolled_blocks.json.gz"


def train() -> float:
    loss = MODEL(X).square().sum()
    loss.backward()
    return float(loss.detach())


def events(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        return json.load(file)["traceEvents"]


def step_names(path: Path) -> list[str]:
    return sorted({e["name"] for e in events(path) if str(e.get("name")).startswith("ProfilerStep")})


def test_two_steps_without_stacks_and_one_with_them(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "step.json.gz"
    with tritonworthy.capture(path, skip=1, quiet=True) as capture:
        for _ in range(capture.steps_wanted + 3):
            train()
            capture.step()
    recording = capture.recording
    assert capture.done and recording is not None and capture.steps == capture.steps_wanted
    assert recording.plain is not None and recording.stacks is not None and recording.execution_trace is not None
    assert path in (recording.plain, recording.stacks)
    assert (len(step_names(recording.plain)), len(step_names(recording.stacks))) == (2, 1)
    plain, stacks = (read_trace(one) for one in (recording.plain, recording.stacks))
    assert (plain.has_shapes, plain.has_stacks) == (True, False)
    assert (stacks.has_shapes, stacks.has_stacks) == (True, True)
    assert sum(e["name"] == "aten::gelu" for e in events(recording.plain)) == 2, "each step once"
    assert any(e["name"].startswith("nn.Module: Linear_") for e in events(recording.stacks))
    (gelu,) = (e for e in events(recording.stacks) if e["name"] == "aten::gelu")
    observed = read_execution(recording.execution_trace)
    assert observed.name(gelu["args"]["Record function id"]) == "aten::gelu", "of the same step"
    assert recording.bare_us and recording.plain_us and recording.stacks_us


def test_a_block_without_step_is_one_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tritonworthy.capture(tmp_path / "block.json.gz") as capture:
        train()
    assert capture.recording is not None
    assert step_names(capture.recording.path) == ["ProfilerStep#0"]
    said = capsys.readouterr().err
    assert "step() was never called" in said and f"recorded {tmp_path}" in said


def test_a_decorated_function_returns_as_before_and_each_call_is_a_step(tmp_path: Path) -> None:
    capture = tritonworthy.capture(tmp_path / "step.json.gz", skip=0, execution_trace=False, quiet=True)
    step = capture(train)
    assert step.__name__ == "train"
    assert {type(step()) for _ in range(capture.steps_wanted + 1)} == {float}
    assert capture.recording is not None and capture.recording.execution_trace is None


def test_too_few_steps_say_how_many_and_leave_no_file(tmp_path: Path) -> None:
    with tritonworthy.capture(tmp_path / "step.json.gz", skip=1, quiet=True) as capture:
        for _ in range(3):
            train()
            capture.step()
    assert capture.problem == f"3 steps ran, and a recording takes {capture.steps_wanted}: lower skip, or run more"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(tritonworthy.CaptureError, match="3 steps ran"):
        capture.report  # noqa: B018


def test_a_program_that_ends_before_the_step_with_stacks_has_the_others(tmp_path: Path) -> None:
    with tritonworthy.capture(tmp_path / "step.json.gz", skip=0, quiet=True) as capture:
        for _ in range(capture.steps_wanted - 1):
            train()
            capture.step()
    assert capture.recording is not None and not capture.problem
    assert [p.name for p in tmp_path.iterdir()] == ["step.json.gz"]
    assert len(step_names(tmp_path / "step.json.gz")) == 2


def test_an_error_of_the_program_is_the_programs_and_no_profiler_stays_on(tmp_path: Path) -> None:
    capture = tritonworthy.capture(tmp_path / "step.json.gz", skip=0, timed=1, quiet=True)

    def fail_in_the_third_step() -> None:
        with capture:
            for _ in range(2):
                train()
                capture.step()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_the_third_step()
    assert "ZeroDivisionError" in capture.problem
    with tritonworthy.capture(tmp_path / "next.json.gz", quiet=True) as after:
        train()
    assert after.recording is not None


def test_a_profiler_that_cannot_start_does_not_end_the_program(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("")
    with tritonworthy.capture(taken / "step.json.gz", skip=0, quiet=True) as capture:
        for _ in range(3):
            train()
            capture.step()
    assert "file" in capture.problem and capture.done


def test_without_a_gpu_it_says_that_there_is_nothing_to_advise_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if torch.cuda.is_available():
        pytest.skip("here is a GPU")
    with tritonworthy.capture(tmp_path / "step.json.gz", url="http://127.0.0.1:9") as capture:
        train()
    assert "no GPU here" in capsys.readouterr().err and not capture.link
    with pytest.raises(tritonworthy.CaptureError, match="advice is on a GPU's kernels"):
        capture.report  # noqa: B018
    assert "no GPU here" in capture._repr_html_()


def test_a_capture_records_once(tmp_path: Path) -> None:
    with tritonworthy.capture(tmp_path / "step.json.gz", quiet=True) as capture:
        train()
    with pytest.raises(tritonworthy.CaptureError, match="records once"), capture:
        pass
    for wrong in ({"skip": -1}, {"timed": 0}):
        with pytest.raises(ValueError, match="at least"):
            tritonworthy.capture(tmp_path / "step.json.gz", **wrong)


def test_a_recording_is_handed_to_a_server_with_its_execution_trace(tmp_path: Path) -> None:
    traces = ROOT / "tests" / "data" / "traces"
    path = traces / "llama_eager_attention_prefill.json.gz"
    observed = traces / "llama_eager_attention_prefill.et.json.gz"
    with serving(tmp_path) as server:
        sent = upload(server.url, Recording(path, None, path, observed, None, None, 15e3, True), None)
        assert not sent.problem
        report = sent.report()
        assert report.link == f"{server.url}/traces/{sent.trace_id}" == sent.link
        assert report.body["companions"] == {"execution_trace": observed.name}
        assert report.regions and report.link in report._repr_html_()
        stored = server.client.get(f"/api/v1/traces/{sent.trace_id}").json()
        assert stored["bytes"] == path.stat().st_size


def test_a_server_that_does_not_answer_is_a_problem_and_no_error() -> None:
    recording = Recording(TRACE, TRACE, None, None, None, 1e3, None, True)
    assert upload("http://127.0.0.1:9", recording, None).problem.startswith("not handed over: http://127.0.0.1:9")
    assert "no address" in upload("localhost", recording, None).problem


PROGRAM = """
import sys, torch, tritonworthy
from torch.profiler import profile, schedule
model = torch.nn.Linear(64, 64)
def train(): model(torch.randn(32, 64)).sum().backward()
"""


def run_program(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, which may die."""
    return subprocess.run(
        [sys.executable, "-c", f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{PROGRAM}{code}"],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


NESTED = """
with {outer} as outer:
    with tritonworthy.capture("step.json.gz", skip=0) as capture:
        for _ in range(14):
            train()
            {steps}
    assert capture.done and capture.recording is None
outer.export_chrome_trace("outer.json")
print(capture.problem)
"""


@pytest.mark.parametrize(
    ("outer", "steps"),
    [
        ("profile()", "capture.step()"),
        ("profile()", "pass"),
        # its turn comes within a part of the recording
        ("profile(schedule=schedule(wait=1, warmup=3, active=3, repeat=1))", "capture.step(); outer.step()"),
    ],
)
def test_a_program_that_profiles_itself_lives_and_keeps_its_trace(tmp_path: Path, outer: str, steps: str) -> None:
    done = run_program(tmp_path, NESTED.format(outer=outer, steps=steps))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "another profiler is running\n"
    assert "nothing was recorded: another profiler is running" in done.stderr
    assert "no active profiling session" not in done.stderr
    traced = json.loads((tmp_path / "outer.json").read_text())["traceEvents"]
    assert any(e["name"] == "aten::addmm" for e in traced)


WITHIN = """
from torch.autograd.profiler import emit_itt, profile as autograd_profile
from torch.autograd.profiler_legacy import profile as legacy_profile
for first, last in {places}:
    theirs = {theirs}
    with tritonworthy.capture(f"{{first}}.{{last}}.json.gz", skip=0) as capture:
        for number in range(14):
            if number == first:
                theirs.__enter__()
            train()
            if number == last:
                theirs.__exit__(None, None, None)
            capture.step()
        if last > 13:
            theirs.__exit__(None, None, None)
    assert capture.done
    print(capture.problem, "addmm" in str(theirs.key_averages()) if hasattr(theirs, "key_averages") else "", sep="|")
"""
WAY_IS_MADE = "another profiler began in a step that was recorded, and torch has one at a time"


@pytest.mark.parametrize("theirs", ["profile()", "autograd_profile()", "legacy_profile()", "emit_itt()"])
def test_a_profiler_that_begins_in_a_recorded_step_records_and_the_program_lives(tmp_path: Path, theirs: str) -> None:
    # three steps are timed, one warms up, two are recorded (4, 5), one warms up, one is recorded with stacks (7)
    places = [(3, 3), (4, 4), (4, 9), (5, 20), (6, 9), (7, 7)]
    done = run_program(tmp_path, WITHIN.format(theirs=theirs, places=places))
    assert done.returncode == 0, done.stderr
    has_events = "" if theirs == "emit_itt()" else "True"
    assert done.stdout.splitlines() == [f"{WAY_IS_MADE}|{has_events}"] * len(places)
    assert done.stderr.count(f"nothing was recorded: {WAY_IS_MADE}") == 4
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["6.9.json.gz", "7.7.json.gz"], "the two steps without stacks were recorded before"


BLOCK = """
with tritonworthy.capture("step.json.gz") as capture:
    train()
    with profile() as theirs:
        train()
theirs.export_chrome_trace("theirs.json")
print(capture.problem)
"""


def test_a_profiler_that_begins_in_a_recorded_block_records_and_the_program_lives(tmp_path: Path) -> None:
    done = run_program(tmp_path, BLOCK)
    assert (done.returncode, done.stdout) == (0, f"{WAY_IS_MADE}\n"), done.stderr
    traced = json.loads((tmp_path / "theirs.json").read_text())["traceEvents"]
    assert any(e["name"] == "aten::addmm" for e in traced)


ELSEWHERE = """
import threading
from tritonworthy.making_way import OtherThreadError
def theirs():
    try:
        with profile():
            train()
    except OtherThreadError as error:
        print(error)
with tritonworthy.capture("step.json.gz") as capture:
    train()
    thread = threading.Thread(target=theirs)
    thread.start()
    thread.join()
print(capture.problem, capture.recording.path, sep="\\n")
theirs()
"""
STEPS_ELSEWHERE = ELSEWHERE.replace(
    "    thread.join()\n",
    """    thread.join()
    for _ in range({steps}):
        capture.step()
        train()
""",
).replace("capture.recording.path", "capture.recording and capture.recording.path")


def test_a_profiler_of_another_thread_is_refused_in_words_and_the_recording_goes_on(tmp_path: Path) -> None:
    """torch 2.13 ends the process there: a profiler ends in the thread that began it."""
    done = run_program(tmp_path, ELSEWHERE)
    assert done.returncode == 0, done.stderr
    refused, problem, path = done.stdout.splitlines()
    assert refused.endswith("begin this one behind the recording") and path == "step.json.gz"
    assert problem == recorder.REFUSED and done.stderr.count(problem) == 1


def test_a_refused_profiler_hides_no_later_problem_and_ends_no_recording(tmp_path: Path) -> None:
    """In the first step, which is recorded as a block until its end: the rest is a recording of steps."""
    wanted = tritonworthy.capture(tmp_path / "x.json.gz").steps_wanted
    done = run_program(tmp_path, STEPS_ELSEWHERE.format(steps=wanted + 1))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == [recorder.REFUSED, "step.json.gz"]
    done = run_program(tmp_path, STEPS_ELSEWHERE.format(steps=3))
    problem, path = done.stdout.splitlines()[1:]
    assert problem.startswith("3 steps ran, and a recording takes") and problem.endswith(recorder.REFUSED)
    assert path == "None" and f"nothing was recorded: {problem.partition(';')[0]}" in done.stderr


def test_a_profiler_that_has_ended_is_no_obstacle(tmp_path: Path) -> None:
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=1)
    with torch.profiler.profile(schedule=schedule) as earlier:
        for _ in range(3):
            train()
            earlier.step()
    profiling.require_free()
    with torch.profiler.profile(schedule=schedule), pytest.raises(profiling.ProfilerBusyError):
        profiling.require_free()


def test_a_folder_that_is_gone_at_the_end_does_not_end_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "gone"
    with tritonworthy.capture(folder / "step.json.gz", skip=0) as capture:
        for _ in range(capture.steps_wanted - 1):
            train()
            capture.step()
        shutil.rmtree(folder)
    assert capture.recording is None and capture.problem.startswith("FileNotFoundError")
    assert "nothing was recorded: FileNotFoundError" in capsys.readouterr().err
    profiling.require_free()


def test_too_few_calls_of_a_decorated_function_are_told_when_the_program_ends(tmp_path: Path) -> None:
    done = run_program(
        tmp_path, "step = tritonworthy.capture('step.json.gz', skip=0)(train)\nfor _ in range(4): step()"
    )
    assert done.returncode == 0, done.stderr
    assert "nothing was recorded: 4 steps ran, and a recording takes 8" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("failing", [0, 2, 4, 6])
def test_a_call_that_fails_is_no_part_of_a_step(tmp_path: Path, failing: int) -> None:
    """In the steps that are timed, that warm up, that are recorded: each part has whole calls alone."""
    capture = tritonworthy.capture(tmp_path / "step.json.gz", skip=0, timed=2, execution_trace=False, quiet=True)
    calls = 0

    @capture
    def step() -> None:
        nonlocal calls
        calls += 1
        train()
        if calls == failing + 1:
            raise ZeroDivisionError

    for _ in range(2 * capture.steps_wanted):
        try:
            step()
        except ZeroDivisionError:
            assert calls == failing + 1
    recording = capture.recording
    assert recording is not None and not capture.problem and capture.failed_steps == 1
    assert recording.plain is not None and recording.stacks is not None
    for path, steps in ((recording.plain, 2), (recording.stacks, 1)):
        assert len(step_names(path)) == steps
        assert sum(e["name"] == "aten::gelu" for e in events(path)) == steps, "one call a step"


def test_an_error_while_handing_over_is_told_and_the_recording_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("id")

    monkeypatch.setattr(recorder, "upload", fail)
    with tritonworthy.capture(tmp_path / "step.json.gz", url="http://127.0.0.1:9") as capture:
        train()
    assert capture.recording is not None and not capture.problem
    capture._finish(replace(capture.recording, has_gpu=True))  # as where there is a GPU
    assert capture.recording is not None and capture.recording.path.exists() and not capture.link
    assert capture.problem == "not handed over: KeyError: 'id'" and capture.problem in capsys.readouterr().err
    assert "recorded" in repr(capture) and "not handed over" in repr(capture)


def test_an_answer_without_an_id_is_a_problem_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.cli.servers.remote.Remote._ask", lambda *_: {})
    sent = upload("http://127.0.0.1:9", Recording(TRACE, TRACE, None, None, None, 1e3, None, True), None)
    assert sent.problem == "not handed over: http://127.0.0.1:9 answered without a trace's id" and not sent.link
