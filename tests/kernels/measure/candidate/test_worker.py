"""The real worker on real tensors: what is wrong is found, what is right passes, whatever the kind of output."""

from __future__ import annotations

import gc
import os
import socket
import time

import pytest
import torch

from kernels.measure.candidate import inputs as tensors
from kernels.measure.candidate.worker import Worker, fault_of
from kernels.measure.messages import Finish, Prepare, Round, Shape, Warm
from kernels.measure.processes.channel import Channel
from kernels.measure.session import Limits, Modules, ValidationRequest, validate
from profiler.region.language.text import parse
from tests.kernels.measure.candidate import candidates
from tests.processes import wait_for

EXAMPLE = """x: bf16[8192, 4096]
w: bf16[4096, 16384]
b: bf16[16384]
mask: bf16[8192, 16384]
z = x @ w
z = z + b
z = gelu(z)
y = z * mask
return y"""
MODULES = Modules(registry="tests.kernels.measure.candidate.candidates")
EXPECTED = {
    "off_by_a_little": "mismatch",
    "one_element_wrong": "mismatch",
    "tail_not_written": "mismatch",
    "always_the_first": "mismatch",
    "changes_its_input": "mismatch",
    "ignores_the_last_input": "mismatch",
    "subclass": "mismatch",
    "wrong_dtype": "mismatch",
    "aborts": "fault",
    "hangs": "timeout",
    "raises": "error",
    "unsupported": "unsupported",
    "runs_out_of_memory": "out_of_memory",
    "prints_a_lot": "correct",
    "leaves_processes": "correct",
    "right": "correct",
}


def check(fork_server, text, *names, limits=None):
    request = ValidationRequest(
        text,
        candidates=tuple(f"library:test.{n}" for n in names),
        device="cpu",
        limits=limits or Limits(prepare_s=60),
    )
    validation = validate(request, fork_server=fork_server, modules=MODULES)
    return validation, {c.name.removeprefix("library:test."): c for c in validation.candidates}


@pytest.fixture(scope="module")
def example(fork_server, tmp_path_factory):
    pids = tmp_path_factory.mktemp("pids") / "pids"
    candidates_env = {"TRITONWORTHY_TEST_PIDS": str(pids)}
    original = fork_server.fork

    def fork(name, module, *, env=None, **rest):
        return original(name, module, env={**(env or {}), **candidates_env}, **rest)

    fork_server.fork = fork
    try:
        found, by_name = check(fork_server, EXAMPLE, *EXPECTED, limits=Limits(prepare_s=7))
    finally:
        fork_server.fork = original
    return found, by_name, [int(p) for p in pids.read_text().split()]


@pytest.mark.parametrize("name", EXPECTED)
def test_each_candidate_gets_what_it_deserves(example, name):
    assert example[1][name].status == EXPECTED[name], example[1][name].message


def test_eager_is_right_and_nothing_is_timed(example):
    found, by_name, _ = example
    assert by_name["eager"].status == "correct"
    assert found.outcome == "unmeasured"
    assert "GPU" in found.reason
    assert all(c.time_us is None and c.wall_us is None for c in found.candidates)
    assert found.device is None


def test_processes_that_a_candidate_started_are_gone(example):
    pids = example[2]
    assert len(pids) >= 3
    wait_for(lambda: not any(os.path.exists(f"/proc/{p}") for p in pids), what=f"of {pids} some still run")


def test_compile_and_absent_libraries_say_what_they_need(fork_server):
    request = ValidationRequest(EXAMPLE, candidates=("compile", "library:absent.call"), device="cpu")
    by_name = {c.name: c for c in validate(request, fork_server=fork_server, modules=MODULES).candidates}
    assert by_name["compile"].status == "not_run"
    assert "GPU" in by_name["compile"].message
    assert by_name["library:absent.call"].status == "not_installed"


GRADIENTS = """x: f32[4096, 1024].requires_grad
w: f32[1024].requires_grad
y = F.layer_norm(x, [1024], w)
return y"""


def test_gradients_are_outputs_too(fork_server):
    _, by_name = check(fork_server, GRADIENTS, "wrong_gradient", "right")
    assert by_name["right"].status == "correct"
    assert by_name["wrong_gradient"].status == "mismatch"
    assert "output 2" in by_name["wrong_gradient"].message  # y, dx, dw


def test_dropout_is_compared_by_distribution(fork_server):
    text = "x: f32[4096, 1024]\nreturn F.dropout(gelu(x), 0.3)"
    _, by_name = check(fork_server, text, "right", "keeps_everything", "other_rate")
    assert by_name["eager"].status == by_name["right"].status == "correct"
    assert by_name["keeps_everything"].status == "mismatch"
    assert "zeros" in by_name["keeps_everything"].message or "deviation" in by_name["keeps_everything"].message
    assert by_name["other_rate"].status == "mismatch"


def test_indices_are_compared_by_what_they_select(fork_server):
    text = "x: bf16[512, 1024]\nv, i = torch.topk(x, 4, dim=-1)\nreturn i"
    _, by_name = check(fork_server, text, "last_of_ties", "one_index_repeated", "shifted_indices")
    assert by_name["last_of_ties"].status == "correct", by_name["last_of_ties"].message
    assert by_name["one_index_repeated"].status == "mismatch"
    assert by_name["shifted_indices"].status == "mismatch"


def test_a_region_that_writes_into_its_input_wants_that_too(fork_server):
    text = "x: f32[512, 64]\nx.mul_(2)\nreturn x + 1"
    _, by_name = check(fork_server, text, "right", "works_on_a_copy")
    assert by_name["right"].status == "correct", by_name["right"].message
    assert by_name["works_on_a_copy"].status == "mismatch"
    assert "unchanged" in by_name["works_on_a_copy"].message


class HostClock:
    """The host's clock in the place of device events: the loop around it is the real one."""

    def __init__(self):
        self.slept_us = 0.0

    def mark(self):
        return time.perf_counter()

    def elapsed_us(self, first, second):
        return (second - first) * 1e6

    def synchronize(self):
        pass

    def sleep_us(self, duration_us):
        self.slept_us += duration_us


@pytest.fixture
def worker():
    ours, theirs = socket.socketpair()
    made = Worker(Channel(ours), HostClock())
    yield made
    torch.set_grad_enabled(True)
    ours.close()
    theirs.close()


def asked(text, candidate="eager", memory_bytes=1e9):
    return Prepare(
        candidate=candidate, tasks=[Shape(text, {})], device="cpu", seed=3, turn=None, memory_bytes=memory_bytes,
        l2_bytes=1e5, compile_workers=1, registry="tests.kernels.measure.candidate.candidates",
    )  # fmt: skip


def prepared(worker, text, candidate="eager", memory_bytes=1e9):
    worker.prepare(asked(text, candidate, memory_bytes))
    return worker


def test_rounds_rotate_the_inputs_and_the_last_outputs_are_checked(worker):
    prepared(worker, "x: f32[64, 64]\nreturn gelu(x)")
    warmed = worker.warm(Warm(1.0))
    assert warmed.sets == [19]  # three times the L2 of 1e5 bytes, over 16 KiB
    found = worker.round(Round(0, 25, 2))
    assert len(found.times_us) == 25
    assert all(t > 0 for t in found.times_us)
    assert 0 < found.wall_us < 1e5
    assert worker.clock.slept_us > 0
    finished = worker.finish(Finish(False))
    (case,) = finished.cases[0]
    assert case.outputs[0].error < 1e-6


def test_an_output_that_goes_wrong_while_timed_is_seen(worker):
    prepared(worker, "x: f32[64, 64]\nreturn gelu(x)", "library:test.wrong_after_twenty_calls")
    worker.warm(Warm(0.1))
    worker.round(Round(0, 30, 0))
    (case,) = worker.finish(Finish(False)).cases[0]
    assert case.outputs[0].error > 0.1


LOSS = "x: f32[64, 64].requires_grad\nreturn (x * x).mean()"


def test_a_loss_and_its_gradient_pass(worker):
    assert all(o.error < 1e-6 for case in worker.prepare(asked(LOSS)).tasks[0].cases for o in case.outputs)


def test_what_forgets_the_gradient_that_comes_in_is_wrong(worker):
    cases = worker.prepare(asked(LOSS, "library:test.forgets_what_comes_in")).tasks[0].cases
    assert all(case.outputs[0].error < 1e-6 for case in cases)
    assert all(case.outputs[1].error > 0.1 for case in cases)


def test_a_loss_is_timed_and_checked_after_it_as_a_step_has_it(worker):
    prepared(worker, LOSS)
    (before,) = worker.tasks[0].upstream
    worker.warm(Warm(0.1))
    worker.round(Round(0, 5, 0))
    assert [float(g) for g in worker.tasks[0].upstream] == [1.0] != [float(before)]
    (case,) = worker.finish(Finish(False)).cases[0]
    assert all(output.error < 1e-6 for output in case.outputs)


def test_what_is_no_number_keeps_its_random_gradient_while_it_is_timed(worker):
    prepared(worker, "x: f32[64, 64].requires_grad\nreturn gelu(x)")
    (before,) = worker.tasks[0].upstream
    worker.warm(Warm(0.1))
    (timed,) = worker.tasks[0].upstream
    assert torch.equal(before, timed) and before.std() > 0.5


def test_sets_too_large_to_keep_are_made_anew_for_each_turn(worker):
    prepared(worker, "x: f32[64, 64]\nreturn gelu(x)", memory_bytes=10_000)
    assert worker.warm(Warm(0.1)).sets == [1]
    assert worker.tasks[0].lean
    assert worker.tasks[0].rotation is None
    assert len(worker.round(Round(0, 3, 0)).times_us) == 3


def alive_of(shape):
    return sum(type(o) is torch.Tensor and o.shape == shape for o in gc.get_objects())


def test_in_turns_nothing_is_held_when_the_memory_is_given_back(worker):
    """Inputs, outputs and the gradients from behind: who still has a name for them keeps them from the others."""
    prepared(worker, "x: f32[61, 67].requires_grad\nreturn gelu(x)")
    gc.collect()
    before, held = alive_of((61, 67)), []
    free = worker.checker.free

    def freed():
        held.append(alive_of((61, 67)))
        free()

    worker.checker.free = freed
    worker.warm(Warm(0.1, 1e9, in_turns=True, samples=0))
    worker.round(Round(0, 3, 1))
    assert held == [before, before]
    assert worker.tasks[0].samples.all() == []


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB"), "out_of_memory"),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "fault"),
        (NotImplementedError("no"), "unsupported"),
        (ModuleNotFoundError("No module named 'liger_kernel'"), "not_installed"),
        (ValueError("tile"), "error"),
    ],
)
def test_exceptions_are_told_apart(fault, status):
    assert fault_of(fault).status == status
    assert fault_of(fault).message


def test_all_candidates_of_this_file_exist():
    assert {f"library:test.{n}" for n in EXPECTED} <= set(candidates.BY_NAME)


def test_the_last_timed_outputs_of_a_graph_are_kept_apart_from_its_memory(worker):
    """What a CUDA graph does: every call writes into the same memory."""
    prepared(worker, "x: f32[64, 64]\nreturn gelu(x)")
    (task,) = worker.tasks
    task.graphed = True
    memory, plain = torch.empty(64, 64), task.call

    def replayed(*values):
        memory.copy_(plain(*values)[0])
        return (memory,)

    task.call = replayed
    worker.warm(Warm(0.1))
    worker.round(Round(0, 5, 0))
    memory.fill_(7.0)  # the next step of the graph
    (case,) = worker.finish(Finish(False)).cases[0]
    assert case.outputs[0].error < 1e-6


def test_small_inputs_that_rotation_cannot_keep_out_of_the_cache_are_flushed(worker):
    prepared(worker, "x: f32[8]\nreturn x * 2")  # 32 bytes a set: the most sets are far from three times the L2
    worker.warm(Warm(0.1))
    assert worker.tasks[0].sets == tensors.MAX_SETS
    assert worker.tasks[0].flush is not None
    prepared(worker, "x: f32[64, 64]\nreturn x * 2")
    worker.warm(Warm(0.1))
    assert worker.tasks[0].flush is None


class Silent:
    def send(self, message):
        pass


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_where_candidates_take_turns_nothing_is_made_at_the_end_outside_of_one(tmp_path, monkeypatch):
    """Several that fill the card each: what the last check and the profiler are called with is made in the turn, and
    given back before it ends."""
    worker = Worker(Silent(), HostClock())
    worker.checker.memory_bytes, worker.candidate, worker.roomy = 2e9, "triton.mine", True
    worker.checker.turn.open(str(tmp_path / "turn"))
    task = worker._build(lambda *_: lambda x: (x * 2,), "mine", parse("x: f32[32, 16]\nreturn x * 2"), {})
    worker._first_call(task)
    worker.tasks = [task]
    worker.warm(Warm(0.1, 1e6, in_turns=True, samples=1))
    worker.round(Round(0, 3, 1))
    assert task.samples.all()

    events: list[str] = []
    draw = tensors.one_input
    turn = worker.checker.turn

    def tell(what):
        events.append(what if turn.held else f"{what} outside its turn")

    def drawn(*arguments):
        tell("made")
        return draw(*arguments)

    def free():
        tell("awaited")
        return 1, 1

    monkeypatch.setattr(tensors, "one_input", drawn)
    monkeypatch.setattr(type(worker.checker), "on_gpu", True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", free)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: tell("freed"))
    finished = worker.finish(Finish(profile=True))
    assert set(events) == {"awaited", "made", "freed"}
    assert events[-1] == "freed"
    assert events.count("awaited") == 3  # for the check, the profiler, and the call without its kernels
    assert not task.samples.all()
    assert finished.ablation == "none"
