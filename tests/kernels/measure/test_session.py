"""The session against workers that go wrong in every way: each costs itself, and no process is left."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from kernels.host import Host
from kernels.measure import gpu_lock, planner
from kernels.measure.kernel_verdict import kernel_verdict
from kernels.measure.messages import MakePlan, PlanAnswer, UserKernel
from kernels.measure.model import to_json, validation_from_json
from kernels.measure.processes import poll
from kernels.measure.processes.processes import ForkServer
from kernels.measure.request import SharedGpu
from kernels.measure.session import Limits, Modules, ValidationRequest, validate
from profiler.child.process import descendants
from profiler.region.model import Binding, RegionError
from tests.kernels.measure.limits import ANSWER_S, Clock, clock_of, short_for
from tests.processes import alive, wait_for

MODULES = Modules("tests.kernels.measure.fake_worker", "tests.kernels.measure.fake_planner", gpu_present=lambda: True)
LIMITS = Limits(plan_s=ANSWER_S, prepare_s=ANSWER_S, turn_s=ANSWER_S, finish_s=ANSWER_S, message_bytes=1_000_000)


@pytest.fixture(scope="module")
def parent():
    with ForkServer(warm=False) as made:
        yield made


def measured(parent, *names, told=None, **arguments):
    text = f"x: bf16[8]\nreturn x # candidates: {' '.join(names)}"
    request = ValidationRequest(text, timing_s=0.05, limits=LIMITS, **arguments)
    validation = validate(request, told, fork_server=parent, modules=MODULES)
    return validation, {c.name: c for c in validation.candidates}


def below(pid):
    return [p for p in descendants(pid) if alive(p)]


def affinity(pid):
    with contextlib.suppress(ProcessLookupError):
        return os.sched_getaffinity(pid)


def test_good_candidates_are_timed_and_the_fastest_wins(parent):
    found, by_name = measured(parent, "eager", "library:500", "compile:200", "triton:150",
                              advice_before={"tool": "compile"})  # fmt: skip
    assert found.outcome == "overturned"
    assert found.best == "triton:150"
    assert {c.status for c in found.candidates} == {"ok"}
    assert by_name["compile:200"].ratio_to_eager.median == pytest.approx(0.2, rel=0.02)
    assert by_name["triton:150"].ratio_to_best_other.median == pytest.approx(0.75, rel=0.02)
    assert by_name["library:500"].ratio_to_best_other.median == pytest.approx(500 / 150, rel=0.02)
    assert by_name["triton:150"].share_of_limit == pytest.approx(50 / 150, rel=0.02)
    assert by_name["triton:150"].kernels == ("triton_mine",)
    assert found.conditions["rounds"] >= 5
    assert found.floor_us == 50
    assert validation_from_json(to_json(found)) == found


def test_a_users_kernel_is_timed_among_the_others_and_the_advice_rests_on_them(parent):
    others = ("eager", "compile:200", "triton:150")
    alone, _ = measured(parent, *others, advice_before={"tool": "compile"})
    found, by_name = measured(
        parent, *others, advice_before={"tool": "compile"}, kernel=UserKernel("/home/me/mine.py", "100")
    )
    assert [c.name for c in found.candidates] == [*others, "kernel:100"]
    assert {c.status for c in found.candidates} == {"ok"}
    assert (found.outcome, alone.outcome) == ("overturned", "overturned")
    assert found.reason.startswith("triton:150 takes")
    assert (found.best, alone.best) == ("kernel:100", "triton:150")
    assert by_name["compile:200"].ratio_to_best_other.median == pytest.approx(200 / 150, rel=0.02)
    verdict = kernel_verdict(found)
    assert (verdict.verdict, verdict.against) == ("keep", "compile:200")
    assert verdict.speedup.median == pytest.approx(2.0, rel=0.02)
    slow, _ = measured(parent, *others, kernel=UserKernel("/home/me/mine.py", "201"))
    assert kernel_verdict(slow).verdict == "delete"
    assert validation_from_json(to_json(slow)) == slow


BAD = {
    "library:300.abort-at-prepare": "fault",
    "library:301.exit-at-prepare": "fault",
    "library:302.hang-at-prepare": "timeout",
    "library:303.garbage-at-prepare": "bad_output",
    "library:304.flood-at-prepare": "bad_output",
    "library:305.number-at-round": "bad_output",
    "library:306.other-answer-at-round": "bad_output",
    "library:307.empty-answer-at-prepare": "bad_output",
    "library:308.empty-answer-at-round": "bad_output",
    "library:309.huge-at-round": "bad_output",
    "library:310.abort-at-round": "fault",
    "library:311.hang-at-round": "timeout",
    "library:312.holder-at-round": "fault",
    "library:313.wrong-at-prepare": "mismatch",
    "library:314.wrong-at-finish": "mismatch",
    "library:315.exit-at-finish": "fault",
    "library:316.empty-answer-at-finish": "bad_output",
    "library:317.abort-at-warm": "fault",
    "library:319.too-many-at-warm": "bad_output",
    "library:20": "impossible",  # 480 MB in 20 µs
    "triton:318.pretends": "error",
}


@pytest.fixture(scope="module")
def hostile(parent):
    with short_for(lambda child, request: child.name.endswith(f".hang-at-{type(request).__name__.lower()}")):
        return measured(parent, "eager", "compile:400", *BAD, advice_before={"tool": "compile"})


@pytest.mark.parametrize("name", BAD)
def test_a_bad_candidate_gets_its_status(hostile, name):
    assert hostile[1][name].status == BAD[name], hostile[1][name].message
    assert hostile[1][name].message
    assert hostile[1][name].time_us is None


def test_the_good_ones_beside_them_are_measured_all_the_same(hostile):
    found, by_name = hostile
    assert found.outcome == "confirmed"
    assert by_name["compile:400"].status == by_name["eager"].status == "ok"
    assert by_name["compile:400"].time_us.median == pytest.approx(400, rel=0.02)


def test_messages_say_what_happened(hostile):
    by_name = hostile[1]
    assert "SIGABRT" in by_name["library:300.abort-at-prepare"].message
    assert "allocator gave up" in by_name["library:301.exit-at-prepare"].message
    assert "datasheet" in by_name["library:20"].message
    assert "aten_mul" in by_name["triton:318.pretends"].message


def test_no_process_is_left(hostile, parent):
    wait_for(lambda: not below(parent._process.pid), what="children of the last validation still run")


def test_bindings_are_weighted_by_calls(parent):
    bindings = (Binding((("N", 1),), 3.0), Binding((("N", 2),), 1.0))
    _, by_name = measured(parent, "eager", "compile:400", bindings=bindings)
    shapes = by_name["compile:400"].shapes
    assert [(s.binding, s.calls) for s in shapes] == [({"N": 1}, 3.0), ({"N": 2}, 1.0)]
    assert all(s.time_us.median == pytest.approx(400, rel=0.02) for s in shapes)


def test_cancelling_stops_soon_and_says_so(parent):
    text = "x: bf16[8]\nreturn x # candidates: eager library:300.hang-at-prepare"
    seen = []

    def cancelled():
        return any("building" in p.message for p in seen)

    validation = validate(
        ValidationRequest(text, limits=LIMITS), seen.append, cancelled, fork_server=parent, modules=MODULES
    )
    assert validation.outcome == "unmeasured"
    assert validation.reason == "cancelled"
    # Not "timeout": that is what it would have got at its own limit.
    assert next(c.status for c in validation.candidates if "hang" in c.name) == "cancelled"


def test_the_budget_ends_what_hangs_and_keeps_the_rest(parent):
    budget_s, clock, ready = 3600.0, Clock(), set()

    def told(progress):
        """Once the good ones are ready, all but the last minute of the budget passes until there is an end to it."""
        if progress.message.endswith(": ready"):
            ready.add(progress.candidate)
        waits = progress.phase == "prepare" and ready == {"eager", "compile:300"} and "timeout" not in progress.message
        clock.passed_s = budget_s - 60 if waits else 0.0

    with clock_of(poll, clock):
        found, by_name = measured(
            parent, "eager", "compile:300", "library:300.hang-at-prepare", told=told, budget_s=budget_s
        )
    assert by_name["library:300.hang-at-prepare"].status == "timeout"
    assert "time budget" in by_name["library:300.hang-at-prepare"].message
    assert by_name["compile:300"].status == "ok"
    assert found.outcome == "confirmed"


def test_unknown_and_unwanted_candidates(parent):
    found, by_name = measured(parent, "eager", "compile:300", "library:200",
                              candidates=("compile:300", "triton:flash"))  # fmt: skip
    assert set(by_name) == {"eager", "compile:300", "triton:flash"}
    assert by_name["triton:flash"].status == "unsupported"
    assert found.best == "compile:300"


def test_progress_runs_forward_through_all_phases(parent):
    seen = []
    text = "x: bf16[8]\nreturn x # candidates: eager compile:300"
    validate(ValidationRequest(text, timing_s=0.02, limits=LIMITS), seen.append, fork_server=parent, modules=MODULES)
    assert [p.fraction for p in seen] == sorted(p.fraction for p in seen)
    assert list(dict.fromkeys(p.phase for p in seen)) == ["plan", "prepare", "time", "finish", "done"]
    assert seen[-1].fraction == 1.0


def test_a_planner_that_dies_leaves_a_reason(parent):
    modules = Modules("tests.kernels.measure.fake_worker", "tests.kernels.measure.no_such_module",
                      gpu_present=lambda: True)  # fmt: skip
    validation = validate(ValidationRequest("x: bf16[8]\nreturn x", limits=LIMITS), fork_server=parent, modules=modules)
    assert validation.outcome == "unmeasured"
    assert "no_such_module" in validation.reason


def test_a_text_that_is_no_region_raises_before_anything_starts():
    with pytest.raises(RegionError):
        validate(ValidationRequest("x: bf16[8]"))


def test_children_end_when_their_parent_is_killed():
    with ForkServer(warm=False) as made:
        child = made.fork("eager", "tests.kernels.measure.fake_worker")
        os.kill(made._process.pid, signal.SIGKILL)
        made._process.wait()
        wait_for(lambda: not alive(child.pid), what="the child outlives its parent")
        child.release()


ORPHAN = """
import time
from kernels.measure.processes.processes import ForkServer
made = ForkServer(warm=False)
child = made.fork("eager", "tests.kernels.measure.fake_worker")
print(made._process.pid, child.pid, flush=True)
time.sleep(300)
"""


def test_everything_ends_when_the_server_is_killed():
    with subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True) as server:
        pids = [int(p) for p in server.stdout.readline().split()]
        server.kill()
    wait_for(lambda: not any(map(alive, pids)), what=f"of {pids} some outlive the server")


def test_one_validation_at_a_time_on_a_gpu(parent):
    """Two at once would spoil each other's times: the rounds of one lie wholly before those of the other."""
    spans = {}

    def run(name):
        times = []
        text = "x: bf16[8]\nreturn x # candidates: eager compile:300"

        def told(progress):
            if progress.phase in ("prepare", "time", "finish"):
                times.append(time.monotonic())

        with ForkServer(warm=False) as own:
            validate(ValidationRequest(text, timing_s=0.02, limits=LIMITS), told, fork_server=own, modules=MODULES)
        spans[name] = (min(times), max(times))

    threads = [threading.Thread(target=run, args=(n,)) for n in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = sorted(spans.values())
    assert first[1] <= second[0]


def test_those_that_share_a_gpu_prepare_together_and_time_in_turns(tmp_path):
    """Each waits at preparing for the other, so both come to its end only if they are there at once; their rounds lie
    one behind the other all the same, on the cores kept for that."""
    together = threading.Barrier(2, timeout=ANSWER_S)
    cores = sorted(os.sched_getaffinity(0))
    rounds, told_cores, answers = {}, {}, {}

    def run(name):
        times = []

        def told(progress):
            if progress.phase == "prepare" and progress.candidate is None:
                together.wait()
            if progress.phase == "time":
                times.append(time.monotonic())
                told_cores[name] = [affinity(pid) for pid in below(os.getpid())]

        shared = SharedGpu(str(tmp_path / "turn"), 2, tuple(cores[:1]))
        text = "x: bf16[8]\nreturn x # candidates: eager compile:300"
        with ForkServer(warm=False) as own:
            wanted = ValidationRequest(text, timing_s=0.02, limits=LIMITS, shared=shared)
            answers[name] = validate(wanted, told, fork_server=own, modules=MODULES)
        rounds[name] = (min(times), max(times))

    threads = [threading.Thread(target=run, args=(n,)) for n in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = sorted(rounds.values())
    assert first[1] <= second[0]
    assert all({c.status for c in a.candidates} == {"ok"} for a in answers.values())
    assert all("turn" in a.conditions["phases_s"] for a in answers.values())
    assert all(set(cores[:1]) in affinities for affinities in told_cores.values())


def test_another_process_on_a_shared_gpu_is_no_fault_of_the_measurement(parent, tmp_path):
    """Its owner's other validations hold contexts there and wait; on a GPU that is not shared the same is said."""
    modules = dataclasses.replace(MODULES, read=lambda index, ours: {"other_processes": 3})
    said = {}
    for shared in (None, SharedGpu(str(tmp_path / "turn"), 2)):
        wanted = ValidationRequest(
            "x: bf16[8]\nreturn x # candidates: eager", timing_s=0.02, limits=LIMITS, shared=shared
        )
        said[shared] = " ".join(validate(wanted, fork_server=parent, modules=modules).conditions["warnings"])
    alone, together = said.values()
    assert "3 other processes on the GPU" in alone
    assert "other process" not in together


def test_a_fresh_interpreter_speaks_the_same_protocol(parent):
    child = parent.fork("plan", "kernels.measure.planner", execute=True)
    child.ask(MakePlan("x: bf16[8", [{}], "cpu", "none", Host()), ANSWER_S)
    poll.pump([child], time.monotonic() + ANSWER_S)
    assert child.result(PlanAnswer).region_error.code == "region-syntax"
    child.release()


def test_timed_outputs_that_were_not_checked_again_are_said_so(parent):
    _, by_name = measured(parent, "eager", "compile:400", "library:300.unchecked-at-finish")
    assert by_name["library:300.unchecked-at-finish"].status == "ok"
    assert "not checked again" in by_name["library:300.unchecked-at-finish"].message
    assert "not checked again" not in by_name["compile:400"].message


def test_a_device_that_is_not_here_is_named(fork_server):
    request = ValidationRequest("x: bf16[8]\nreturn x * 2", candidates=("eager",), device="cuda:9")
    validation = validate(request, fork_server=fork_server, modules=Modules(gpu_present=lambda: True))
    assert validation.outcome == "unmeasured"
    assert "no cuda:9" in validation.reason


def test_names_of_devices_that_are_none():
    assert [planner._index(d) for d in ("cpu", None, "NVIDIA H200", "cuda:1")] == [None, 0, 0, 1]
    assert [planner._index(d) for d in ("cuda:²", "cuda:", "cuda:-1", "cuda:x")] == [None] * 4


def test_a_measurement_without_a_place_for_its_lock_says_so(parent, tmp_path, monkeypatch):
    (tmp_path / f"tritonworthy-{os.getuid()}").write_text("a file where the folder should be")
    monkeypatch.setattr(gpu_lock.tempfile, "gettempdir", lambda: str(tmp_path))
    found, _ = measured(parent, "eager", "compile:400")
    assert found.outcome == "confirmed"
    assert any("other validations" in w for w in found.conditions["warnings"])


def test_the_lock_of_a_card_lies_in_a_folder_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_lock.tempfile, "gettempdir", lambda: str(tmp_path))
    with gpu_lock.open_lock("GPU-12/../ab") as first, gpu_lock.open_lock("GPU-12ab") as other:
        folder = os.path.dirname(first.name)
        assert os.path.dirname(folder) == str(tmp_path)
        assert os.stat(folder).st_mode & 0o77 == 0
        assert gpu_lock.locked(first)
        assert gpu_lock.locked(other) is (first.name != other.name)
