"""Who holds the card's memory while candidates are timed: the schedule by itself, and a session with a small card."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from kernels.measure import alone, records, rounds
from kernels.measure.gpu_lock import locked
from kernels.measure.memory import CONTEXT_BYTES, Need, free_of, schedule, too_large
from kernels.measure.messages import BindingCost, Finish
from kernels.measure.plan import Plan
from kernels.measure.processes.processes import Child
from kernels.measure.records import Record
from kernels.measure.request import Limits, SharedGpu
from kernels.measure.session import Modules, Session, ValidationRequest
from profiler.region.language.text import parse
from tests.kernels.measure.fake_planner import offered
from tests.kernels.measure.test_records import ANSWER

GB = 10**9


def need(name, inputs, call, outputs=0, held=0):
    return Need(name, inputs * GB, call * GB, outputs * GB, held * GB)


def test_what_fits_together_keeps_its_inputs_and_shares_what_is_left():
    made = schedule([need("eager", 1, 2, 1), need("compile", 1, 1, 1)], 40 * GB)
    assert not made.in_turns
    assert made.samples == 4
    assert made.remark == ""
    # 2 + 2 + 7 and 2 + 1 + 7 are spoken for; what is left is for more input sets
    assert made.sets_bytes == {"eager": 2 * GB + 19 * GB / 2, "compile": 2 * GB + 19 * GB / 2}


def test_fewer_samples_are_kept_before_anybody_has_to_give_memory_back():
    needs = [need("eager", 1, 1, 1), need("compile", 1, 1, 1)]
    assert schedule(needs, 20 * GB).samples == 4
    assert schedule(needs, 15 * GB).samples == 1
    assert schedule(needs, 14 * GB).samples == 1
    assert not schedule(needs, 14 * GB).in_turns
    assert schedule(needs, 13 * GB).in_turns


def test_five_of_thirty_gigabytes_take_turns_on_one_card_and_nobody_is_left_out():
    needs = [need(n, 20, c, 10) for n, c in (("eager", 30), ("compile", 10), ("a", 10), ("b", 20), ("c", 10))]
    made = schedule(needs, 76 * GB)
    assert made.in_turns
    assert made.alone == ()
    assert set(made.sets_bytes) == {n.name for n in needs}
    assert made.samples == 0  # each copy is 10 GB in every process
    assert "timed in turns of one" in made.remark
    assert f"they need {made.needed_bytes / GB:.1f} GB, and 76.0 GB are free" in made.remark


def test_in_turns_samples_are_kept_where_there_is_room_for_those_of_all():
    needs = [need(n, 10, 20, 1) for n in "abcd"]
    assert schedule(needs, 70 * GB).samples == 4  # 31 for the turn, 4 x 6 for copies
    assert schedule(needs, 43 * GB).samples == 1
    assert schedule(needs, 41 * GB).samples == 0


def test_one_that_keeps_memory_between_its_turns_is_timed_when_the_others_have_left():
    needs = [need("eager", 20, 30), need("graphs", 20, 10, held=30), need("compile", 20, 10)]
    made = schedule(needs, 45 * GB)
    assert made.alone == ("graphs",)
    assert set(made.sets_bytes) == {"eager", "compile"}
    assert made.remark.endswith("after the others, alone: graphs")
    assert schedule(needs, 50 * GB).alone == ()


def test_one_that_the_others_processes_leave_no_room_is_timed_alone_too():
    made = schedule([need("eager", 20, 30), need("compile", 20, 10)], 45 * GB)
    assert made.alone == ("eager",)


def test_new_contents_of_large_inputs_count_where_a_call_takes_less_than_they_do():
    small = Need("small", 20 * GB, 2 * GB, 10 * GB, renewed_bytes=11 * GB)
    assert small.turn_bytes == 41 * GB
    assert Need("large", 20 * GB, 12 * GB, 10 * GB, renewed_bytes=11 * GB).turn_bytes == 42 * GB


def test_what_is_free_is_what_the_driver_says_or_what_was_before_the_processes():
    needs = [need("eager", 1, 1), need("graphs", 1, 1, held=5)]
    assert free_of(80 * GB, 10_000, 70 * GB, needs) == pytest.approx(0.97 * (80 * GB - 10_000 * 2**20))
    assert free_of(80 * GB, None, 70 * GB, needs) == pytest.approx(0.97 * (65 * GB - 2 * CONTEXT_BYTES))
    assert free_of(80 * GB, 90_000, 70 * GB, needs) == 0


def test_a_region_that_alone_exceeds_the_card_is_refused_with_the_sum():
    cost = BindingCost(0, 0, None, 0, 60 * GB, None, outputs_bytes=30 * GB)
    small = replace(cost, set_bytes=GB)
    assert too_large([small, cost], ["N = 1", "N = 2"], 80 * GB) == (
        "this region alone exceeds the card at N = 2: 60.0 GB of inputs + 30.0 GB of outputs = 90.0 GB, and 80.0 GB of "
        "it are free"
    )
    assert too_large([small, cost], ["N = 1", "N = 2"], 90 * GB) == ""


def test_times_of_the_late_are_those_of_the_references_own_rounds():
    """The card is a fifth slower when the late one has its turn, and drifts: the reference says by how much."""
    reference = Record("eager", "eager", times_us=[[[100.0], [110.0], [120.0]]], walls_us=[[1.0, 1.0, 1.0]])
    again = Record("eager", "eager", times_us=[[[120.0], [132.0]]])
    late = Record("compile", "compile", times_us=[[[60.0], [66.0]]], walls_us=[[62.0, 68.0]], drains_us=[[1.0, 1.0]],
                  spans_us=[[None, 700.0]], fresh=[[[0], [1]]])  # fmt: skip
    alone.join(late, again, reference)
    assert [t for (t,) in late.times_us[0]] == pytest.approx([50.0, 55.0, 60.0])  # half of eager's, in every round
    assert late.walls_us[0][0] == pytest.approx(62 / 1.2)
    assert late.spans_us[0][0] is None
    assert late.fresh[0] == [[0], [1], [0]]


TEXT = "x: f32[48, 32]\nw: f32[32, 48]\nreturn gelu(x @ w)"
INPUTS, OUTPUTS, WRITTEN = 4 * 2 * 48 * 32, 4 * 48 * 48, 2 * 4 * 48 * 48
REGISTRY = "tests.kernels.measure.candidate.candidates"


def session_of(fork_server, folder, names, card_bytes, budget_s=240, shared=None):
    request = ValidationRequest(
        TEXT, timing_s=0.5, rounds=5, budget_s=budget_s, limits=Limits(prepare_s=60, card_bytes=card_bytes),
        shared=shared,
    )  # fmt: skip
    cost = BindingCost(0, 0, None, WRITTEN, INPUTS, None, outputs_bytes=OUTPUTS)
    planned = replace(ANSWER, device=None, reduced=TEXT, reduced_wide=TEXT, bindings=[cost],
                      candidates=[offered(n) for n in names])  # fmt: skip
    plan = Plan(planned, [{}], [1])
    session = Session(request, parse(TEXT), None, None, Modules("tests.kernels.measure.candidate.host_clock",
                                                                registry=REGISTRY))  # fmt: skip
    session.pool.records = plan.records(None)
    session.turn_file = str(folder / "turn")
    session.start(fork_server, plan)
    session.prepare(plan)
    session.judge(plan)
    return session, plan


def timed(session, plan):
    assert session.measure(plan) == ""
    rounds.finish(session.pool, plan, session.made)
    session.measure_alone(plan)
    summary = records.summarise(session.pool.records, [{}], [1.0], [None], [0.0])
    return {r.name.rpartition(".")[2]: r for r in summary.results}


def measured(attempt):
    """What attempt() measured, again where a busy host made its clocks contradict each other."""
    for _ in range(3):
        by_name = attempt()
        if all(r.status != "impossible" for r in by_name.values()):
            break
    return by_name


@pytest.mark.parametrize(("card_bytes", "in_turns"), [(100 * INPUTS, False), (6 * INPUTS, True)])
def test_all_are_timed_on_a_card_that_holds_one_at_a_time(fork_server, tmp_path, monkeypatch, card_bytes, in_turns):
    finishing: list[int] = []
    children: dict[str, Child] = {}
    ask = Child.ask

    def asked(child, request, limit_s):
        ask(child, request, limit_s)
        children[child.name] = child
        if isinstance(request, Finish):
            finishing.append(sum(c.pending is not None for c in children.values()))

    monkeypatch.setattr(Child, "ask", asked)

    def attempt():
        session, plan = session_of(fork_server, tmp_path, ["eager", "library:test.right"], card_bytes)
        try:
            assert session.schedule(plan).in_turns is in_turns
            by_name = timed(session, plan)
            said = " ".join(session.pool.conditions["warnings"])
            assert ("timed in turns of one" in said) is in_turns
            assert max(finishing) == (1 if in_turns else 2)  # of all at once
            return by_name
        finally:
            session.close()

    by_name = measured(attempt)
    assert {r.status for r in by_name.values()} == {"ok"}, by_name
    assert by_name["right"].ratio_to_eager is not None


def test_one_that_the_card_cannot_hold_next_to_the_other_is_timed_alone_and_compared(fork_server, tmp_path):
    def attempt():
        session, plan = session_of(fork_server, tmp_path, ["eager", "library:test.right"], 2 * INPUTS)
        try:
            session.pool.records[1].held_bytes = 5 * INPUTS  # as a CUDA graph would
            return timed(session, plan)
        finally:
            session.close()

    by_name = measured(attempt)
    assert by_name["right"].status == by_name["eager"].status == "ok", by_name
    assert "alone but for eager" in by_name["right"].message
    assert by_name["right"].ratio_to_eager.median == pytest.approx(1.0, abs=0.5)


def test_a_late_one_on_a_shared_card_has_the_turn_for_its_checks_and_this_process_for_its_rounds(
    fork_server, tmp_path, monkeypatch
):
    """Who held the turn over all of it would wait for a process that waits for the turn."""
    turn = tmp_path / "turn"
    held: dict[str, set[bool]] = {}
    ask = Child.ask

    def asked(child, request, limit_s):
        with open(turn, "a") as file:
            held.setdefault(type(request).__name__, set()).add(not locked(file))
        ask(child, request, limit_s)

    def attempt():
        held.clear()
        names = ["eager", "library:test.right"]
        session, plan = session_of(fork_server, tmp_path, names, 2 * INPUTS, shared=SharedGpu(str(turn), 1))
        try:
            session.pool.records[1].held_bytes = 5 * INPUTS
            assert session.measure(plan) == ""
            rounds.finish(session.pool, plan, session.made)
            with monkeypatch.context() as patch:
                patch.setattr(Child, "ask", asked)
                session.measure_alone(plan)
            summary = records.summarise(session.pool.records, [{}], [1.0], [None], [0.0])
            return {r.name.rpartition(".")[2]: r for r in summary.results}
        finally:
            session.close()

    by_name = measured(attempt)
    assert by_name["right"].status == "ok", by_name
    assert held == {"Prepare": {False}, "Warm": {True}, "Round": {True}, "Finish": {False}}


@pytest.fixture
def ledger(fork_server, tmp_path, monkeypatch):
    """A file that the candidates know of."""
    ledger = tmp_path / "card"
    monkeypatch.setenv("TRITONWORTHY_TEST_CARD", str(ledger))
    original = fork_server.fork

    def fork(name, module, *, env=None, **rest):
        return original(name, module, env={**(env or {}), "TRITONWORTHY_TEST_CARD": str(ledger)}, **rest)

    monkeypatch.setattr(fork_server, "fork", fork)
    return ledger


@pytest.mark.parametrize("calls", [0, 60])
def test_a_late_one_that_hangs_costs_the_others_nothing(fork_server, tmp_path, monkeypatch, ledger, calls):
    """While it is prepared, or while it is timed: the budget is used up by then, and the others have their times."""
    monkeypatch.setattr(alone, "LEAST_S", 1.0)
    monkeypatch.setattr(rounds, "FINISH_RESERVE_S", 4.0)

    def attempt():
        ledger.unlink(missing_ok=True)
        names = ["eager", "library:test.right", "library:test.hangs_when_told"]
        session, plan = session_of(fork_server, tmp_path, names, 2 * INPUTS)
        try:
            session.pool.records[2].held_bytes = 5 * INPUTS
            assert session.measure(plan) == ""
            rounds.finish(session.pool, plan, session.made)
            ledger.write_text(str(calls))
            session.pool.deadline = time.monotonic() + 10
            session.measure_alone(plan)
            summary = records.summarise(session.pool.records, [{}], [1.0], [None], [0.0])
            return {r.name.rpartition(".")[2]: r for r in summary.results}
        finally:
            session.close()

    by_name = measured(attempt)
    assert by_name["hangs_when_told"].status == "timeout"
    assert ("took too long for the time budget" in by_name["hangs_when_told"].message) is bool(calls)
    assert by_name["eager"].status == by_name["right"].status == "ok", by_name
    assert by_name["right"].ratio_to_eager is not None


def test_what_ran_out_of_memory_next_to_others_is_tried_again_by_itself(fork_server, tmp_path, ledger):
    names = ["eager", "library:test.out_of_memory_at_first", "library:test.runs_out_of_memory"]

    def attempt():
        ledger.unlink(missing_ok=True)
        session, plan = session_of(fork_server, tmp_path, names, 100 * INPUTS)
        try:
            return timed(session, plan)
        finally:
            session.close()

    by_name = measured(attempt)
    assert by_name["out_of_memory_at_first"].status == "ok", by_name["out_of_memory_at_first"].message
    assert by_name["runs_out_of_memory"].status == "out_of_memory"
    assert "it was tried with the card to itself" in by_name["runs_out_of_memory"].message
    assert by_name["eager"].status == "ok"
