"""The ways in which measurements of kernels have been fooled: candidates that try each are really run, and caught.

docs/validation.md lists them with the defence and the tests of each; the last tests here hold that list to the code.
The timed part runs on the CPU, with the host's clock in the place of device events (`host_clock`).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from types import ModuleType

import pytest
import torch
from msgspec.structs import replace

from kernels.measure import conditions, records, rounds
from kernels.measure.candidate import inputs, samples
from kernels.measure.candidate.worker import MOST_RENEWED
from kernels.measure.crosscheck import Clocks, contradiction
from kernels.measure.messages import MOST_SAMPLES, Prepare, Round, Shape, Warm
from kernels.measure.plan import Plan
from kernels.measure.records import Record
from kernels.measure.session import Limits, Modules, Session, ValidationRequest, validate
from profiler.region.language.text import parse
from tests.conftest import ROOT
from tests.kernels.measure.candidate import cheats
from tests.kernels.measure.candidate.host_clock import HostClock
from tests.kernels.measure.fake_planner import offered
from tests.kernels.measure.test_records import ANSWER
from tests.kernels.measure.test_session import LIMITS, MODULES

REGISTRY = "tests.kernels.measure.candidate.cheats"
PRODUCT = "x: f32[48, 32]\nw: f32[32, 48]\nreturn gelu(x @ w)"
DOUBLE = "x: f32[40, 64]\nreturn x * 2"


class Measured:
    """All of a session but its plan, which says that the region is to be timed here as it stands."""

    def __init__(self, fork_server, text, names, folder, least_us=0.0):
        request = ValidationRequest(text, timing_s=1.0, rounds=5, budget_s=240, limits=Limits(prepare_s=60))
        modules = Modules("tests.kernels.measure.candidate.host_clock", registry=REGISTRY)
        candidates = [offered(n) for n in ("eager", *names)]
        plan = Plan(replace(ANSWER, device=None, reduced=text, reduced_wide=text, candidates=candidates), [{}], [1])
        self.session = session = Session(request, parse(text), None, None, modules)
        session.pool.records = plan.records(None)
        session.start(fork_server, plan)
        session.turn_file = str(folder / "turn")
        session.prepare(plan)
        session.judge(plan)
        self.unfit = rounds.measure(session.pool, plan)
        self.log_bytes = {n: os.fstat(c._log.fileno()).st_size for n, c in session.pool.children.items() if c.alive}
        rounds.finish(session.pool, plan)
        summary = records.summarise(session.pool.records, [{}], [1.0], [None], [least_us])
        self.by_name = {r.name.partition(".")[2] or r.name: r for r in summary.results}


CAUGHT = {
    "returns_freed_memory": ("mismatch", "timed calls"),
    "zeroes_its_inputs": ("mismatch", ""),
    "keeps_by_address": ("mismatch", "timed calls"),
    "keeps_by_identity": ("mismatch", "timed calls"),
    "keeps_by_version": ("mismatch", "timed calls"),
    "keeps_by_shape": ("mismatch", "timed calls"),
    "keeps_by_contents": ("impossible", "keeps results|others' work"),
    "returns_a_subclass": ("mismatch", "Lazy"),
    "finishes_in_a_thread": ("mismatch", "thread running|timed calls"),
    "keeps_a_thread": ("mismatch", "thread running behind its call: helper"),
    "stops_the_clock": ("error", "replaced time.perf_counter"),
    "fakes_the_events": ("error", "replaced torch.cuda"),
    "agrees_with_everything": ("error", "replaced .*compare"),
    "writes_its_own_times": ("error", "replaced .*worker.RoundTimes"),
    "slows_its_clock": ("impossible", "outside of its process"),
    "reads_inputs_while_warming": ("mismatch", "timed calls"),
    "works_ahead": ("impossible", "keeps results|others' work"),
    "forges_an_answer": ("bad_output", ""),
    "honest_every_eighth_call": ("mismatch", "timed calls"),
    "bf16_inside": ("mismatch", "error"),
    "f16_accumulates": ("mismatch", "error"),
    "tf32_inside": ("mismatch", "error"),
    "zeros": ("mismatch", "error"),
    "constant": ("mismatch", "error"),
    "ignores_x": ("mismatch", ""),
    "ignores_w": ("mismatch", ""),
    "corrupts_later": ("mismatch", "timed calls"),
    "launches_nothing": ("mismatch", "timed calls"),
    "accumulates_while_tuning": ("mismatch", "normal inputs"),
}
REPORTED = {
    "differs_each_time": "two runs on the same inputs differ",
    "compiles_while_timed": "compiled \\d+ graphs more while it was timed",
    "prints_200_megabytes": "",
}


@pytest.fixture(scope="module")
def measured(fork_server, tmp_path_factory):
    names = [f"library:cheat.{n}" for n in (*CAUGHT, *REPORTED)]
    made = Measured(fork_server, PRODUCT, names, tmp_path_factory.mktemp("turn"))
    yield made
    made.session.close()


@pytest.mark.parametrize("name", CAUGHT)
def test_is_caught(measured, name):
    found = measured.by_name[name]
    status, message = CAUGHT[name]
    assert found.status == status, found.message
    assert re.search(message, found.message), found.message
    assert found.time_us is None


@pytest.mark.parametrize("name", REPORTED)
def test_is_reported(measured, name):
    found = measured.by_name[name]
    assert found.status == "ok", found.message
    assert re.search(REPORTED[name], found.message)


def test_eager_beside_them_is_measured(measured):
    assert measured.by_name["eager"].status == "ok", measured.by_name["eager"].message
    assert measured.by_name["eager"].message == ""
    assert measured.unfit == ""


def test_an_endless_log_is_cut(measured):
    assert measured.log_bytes["library:cheat.prints_200_megabytes"] <= 17 * Limits().log_bytes


def test_a_kernel_that_does_not_compute_the_result_is_told_by_launch_ablation(fork_server):
    names = [f"triton:cheat.{f.__name__}" for f in cheats.TRITON]
    request = ValidationRequest(DOUBLE, candidates=tuple(names), device="cpu", limits=Limits(prepare_s=60))
    validation = validate(request, fork_server=fork_server, modules=Modules(registry=REGISTRY))
    by_name = {c.name.partition(".")[2] or c.name: c for c in validation.candidates}
    assert by_name["launches_its_kernel"].status == "correct", by_name["launches_its_kernel"].message
    assert by_name["falls_back"].status == "error"
    assert "no Triton kernel" in by_name["falls_back"].message
    assert by_name["launches_for_show"].status == "error"
    assert "something else computes it" in by_name["launches_for_show"].message


def test_a_time_below_the_roofline_is_impossible(fork_server, tmp_path):
    made = Measured(fork_server, DOUBLE, [], tmp_path, least_us=1e6)
    made.session.close()
    assert made.by_name["eager"].status == "impossible"
    assert "datasheet" in made.by_name["eager"].message


def clocks(times, **others):
    return Clocks([times] * 5, **{"wall_us": [times[0]] * 5, **others})


def test_work_on_another_stream_shows_in_the_wait_for_all_of_it():
    honest = clocks([100.0] * 20, drain_us=[98.0] * 5)
    assert contradiction(honest) == ""
    assert "worked on" in contradiction(clocks([3.0] * 20, drain_us=[98.0] * 5))


def test_launch_bound_calls_contradict_nothing():
    assert contradiction(clocks([4.0] * 20, wall_us=[40.0] * 5, drain_us=[1.0] * 5, span_us=[900.0] * 5)) == ""


def test_one_slow_call_among_many_is_no_burst():
    assert contradiction(clocks([150.0, *[10.0] * 40])) == ""
    assert "others' work" in contradiction(clocks([500.0, *[10.0] * 19]))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="a stream of its own needs a GPU")
def test_work_on_another_stream_is_late_or_seen():
    from kernels.measure.candidate import timing

    x = torch.randn(4096, 4096, device="cuda")
    side = torch.cuda.Stream()

    def call(v):
        out = torch.empty_like(v)
        with torch.cuda.stream(side):
            for _ in range(4):
                torch.mm(v, v, out=out)
        return (out,)

    clock, rotation = timing.DeviceClock(), timing.Rotation([[x]])
    estimate = timing.warm(call, rotation, 20, clock)
    times = timing.cold_calls(call, rotation, 10, estimate, clock)
    together = timing.back_to_back(call, rotation, 10, clock)
    assert "worked on" in contradiction(Clocks([times], [together.wall_us], [together.drain_us]))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="a launch that fails needs a GPU")
def test_a_launch_with_too_much_shared_memory_is_an_error():
    from kernels.measure.candidate.worker import fault_of

    x = torch.randn(512, 512, device="cuda")
    with pytest.raises(Exception, match=r"(?i)shared memory|resource") as raised:
        cheats.square_kernel[(1,)](x, torch.empty_like(x), SIDE=512)
    assert fault_of(raised.value).status in ("error", "out_of_memory")


@pytest.fixture
def worker():
    import socket

    from kernels.measure.candidate.worker import Worker
    from kernels.measure.processes.channel import Channel

    ours, theirs = socket.socketpair()
    yield Worker(Channel(ours), HostClock())
    torch.set_grad_enabled(True)
    ours.close()
    theirs.close()


def prepared(worker, candidate, text, *bindings):
    tasks = [Shape(text, b) for b in bindings or ({},)]
    return worker.prepare(
        Prepare(
            candidate=candidate, tasks=tasks, device="cpu", seed=3, turn=None, memory_bytes=1e9, l2_bytes=1e5,
            compile_workers=1, registry=REGISTRY,
        )
    )  # fmt: skip


SIZES = ({"N": 64}, {"N": 37}, {"N": 129})


def test_a_kernel_for_one_shape_is_wrong_at_another(worker):
    text = "N: sizes[64, 37, 129]\nx: f32[N, 32]\nw: f32[32, 48]\nreturn gelu(x @ w)"
    eager = Record("eager", "eager")
    eager.take_prepared(prepared(worker, "eager", text, *SIZES))
    hard = Record("library:cheat.only_64_rows", "library")
    hard.take_prepared(prepared(worker, hard.name, text, *SIZES))
    records.judge_record(hard, eager.cases, eager.mutated, ["N = 64", "N = 37", "N = 129"])
    assert hard.status == "mismatch"
    assert hard.message.endswith("N = 129")


def test_a_kernel_for_one_dtype_is_wrong_in_another(worker):
    with pytest.raises(Exception, match=r"output 0 is torch\.float32"):
        prepared(worker, "library:cheat.only_f32", "x: bf16[8, 8]\nreturn x * 2")


def test_a_region_that_hides_its_inputs_is_said(worker):
    def blind(text):
        return records.blind_spot(records.insensitive(prepared(worker, "eager", text).tasks[0].cases))

    assert blind("x: bf16[16, 64]\nreturn softmax(x, -1).sum(-1)").startswith("the outputs are about the same")
    assert "depend on b:" in blind("x: bf16[16, 64]\nb: bf16[64]\nreturn x + 1e-6 * b")
    assert blind(PRODUCT) == ""


def test_every_timed_input_is_random_and_of_no_check(worker):
    """No zeros (a GPU clocks higher on them), and nothing that tuning or a check has seen."""
    prepared(worker, "eager", PRODUCT)
    (task,) = worker.tasks
    seen = [inputs.input_set(task.region, {}, "cpu", 3, number=n)[0] for n in range(MOST_SAMPLES)]
    worker.warm(Warm(0.1))
    before = [[v.clone() for v in values] for values in task.rotation.sets]
    where = [v.data_ptr() for values in task.rotation.sets for v in values]
    worker.round(Round(0, 50, 1))
    kept = [torch.equal(old[0], new[0]) for old, new in zip(before, task.rotation.sets, strict=True)]
    assert len(kept) == 25
    assert sum(kept) <= 25 - MOST_RENEWED
    for new in task.rotation.sets:
        assert new[0].std() == pytest.approx(1, abs=0.1)
        assert not any(torch.equal(new[0], s) for s in seen)
    assert where == [v.data_ptr() for values in task.rotation.sets for v in values]


def test_calls_of_a_turn_are_never_the_same_number():
    found = {rounds._jittered(100) for _ in range(100)}
    assert len(found) > 5
    assert min(found) >= 100
    assert max(found) <= 120


def test_the_copied_call_cannot_be_foretold():
    assert len({samples.below(100) for _ in range(100)}) > 20


def test_all_candidates_are_called_alike(measured):
    """Nobody is warmed, timed or repeated otherwise: as many rounds, the same turns."""
    came = [r for r in measured.session.pool.records if r.status == "ok"]
    assert len(came) == 1 + len(REPORTED)
    assert {len(r.times_us[0]) for r in came} == {len(r.walls_us[0]) for r in came} == {5}


CALM = {"sm_clock_mhz": 1900, "sm_clock_max_mhz": 1980, "throttle": ["power cap"], "other_processes": 0}
HOT = {**CALM, "throttle": ["thermal (hardware)"]}


def test_rounds_of_a_slowed_gpu_are_left_out_and_too_many_refused():
    readings = [(n + 1, HOT if n in (2, 5) else CALM) for n in range(9)]
    fitness = conditions.fitness(readings, 9, 0.01)
    assert fitness.bad == {2, 5}
    assert fitness.reason == ""
    assert "2 of 9 rounds were left out" in fitness.warnings[0]
    assert "slowed (thermal (hardware)) in 9 of 9" in conditions.fitness([(9, HOT)], 9, 0.01).reason
    assert conditions.fitness([(3, CALM), (6, HOT), (9, CALM)], 9, 0.01).bad == {3, 4, 5}


@pytest.mark.parametrize(("throttle", "reason"), [([], "1200 of 1980"), (["power cap"], "")])
def test_a_low_clock_counts_unless_the_power_cap_explains_it(throttle, reason):
    fitness = conditions.fitness([(5, {**CALM, "sm_clock_mhz": 1200, "throttle": throttle})], 5, 0.01)
    assert reason in fitness.reason
    assert bool(fitness.reason) == bool(reason)


@pytest.mark.parametrize(("steadiest", "refused"), [(0.02, False), (0.3, True), (None, False)])
def test_a_shared_gpu_is_refused_where_it_shows(steadiest, refused):
    fitness = conditions.fitness([(5, {**CALM, "other_processes": 2})], 5, steadiest)
    assert bool(fitness.reason) == refused
    assert not conditions.fitness([(5, CALM)], 5, 0.3).reason


@pytest.mark.parametrize("bad", [range(20), (1, 3)])
def test_an_unfit_machine_measures_nothing_and_says_why(bad):
    from kernels.measure.processes.processes import ForkServer

    count = iter(range(100))
    modules = Modules(MODULES.worker, MODULES.plan, gpu_present=lambda: True,
                      read=lambda card, ours: HOT if next(count) - 1 in bad else CALM)  # fmt: skip
    text = "x: bf16[8]\nreturn x # candidates: eager compile:300"
    with ForkServer(warm=False) as parent:
        validation = validate(
            ValidationRequest(text, timing_s=0.02, limits=LIMITS), fork_server=parent, modules=modules
        )
    if len(bad) > 2:
        assert validation.outcome == "unmeasured"
        assert validation.reason.startswith("this machine is not fit to measure, because the GPU was slowed")
        assert {c.status for c in validation.candidates} == {"correct"}
        assert all(c.time_us is None for c in validation.candidates)
    else:
        assert validation.outcome == "confirmed"
        assert any("rounds were left out" in w for w in validation.conditions["warnings"])
        assert [r["rounds"] for r in validation.conditions["during"]] == list(range(1, 10))


SEEDS = """
from kernels.measure.candidate import inputs
from profiler.region.language.text import parse
region = parse("x: f32[8]\\ni: i64[8].below(37)\\nreturn x")
print([v.tolist() for v in inputs.input_set(region, {"N": 3}, "cpu", 5)])
"""


def test_inputs_are_the_same_under_any_hash_seed():
    made = {
        subprocess.run([sys.executable, "-c", SEEDS], env={**os.environ, "PYTHONHASHSEED": seed}, cwd=ROOT,
                       capture_output=True, text=True, check=True).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(made) == 1
    assert "[[" in made.pop()


PAGE = (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")
ROWS = [[c.strip() for c in line.strip("|").split("|")] for line in PAGE.splitlines() if re.match(r"\| \d", line)]


def test_the_page_lists_all_twenty():
    assert [int(row[0]) for row in ROWS] == list(range(1, 21))
    assert all(len(row) == 4 and all(row) for row in ROWS)


def module_in_rooms(package: str, name: str) -> ModuleType:
    """The module of this name, in the package itself or in one of its rooms."""
    return next(
        importlib.import_module(path)
        for room in ("candidate.", "processes.", "landscape.", "")
        if importlib.util.find_spec(path := f"{package}.{room}{name}")
    )


def test_the_page_names_defences_and_tests_that_exist():
    for row in ROWS:
        for module, name in re.findall(r"`(\w+):([\w.]+)`", row[2]):
            defence = module_in_rooms("kernels.measure", module)
            for part in name.split("."):
                defence = getattr(defence, part)
        for name in re.findall(r"`([\w:]+)`", row[3]):
            file, _, test = name.rpartition(":")
            tests = module_in_rooms("tests.kernels.measure", file or "test_cheats")
            assert test in CAUGHT or test in REPORTED or callable(getattr(tests, test)), name


def test_the_page_lists_every_test_and_every_cheat():
    listed = set(re.findall(r"`(\w+)`", " ".join(row[3] for row in ROWS)))
    own = {n for n in globals() if n.startswith("test_") and "_page_" not in n}
    general = {"test_is_caught", "test_is_reported", "test_eager_beside_them_is_measured", "test_an_endless_log_is_cut"}
    assert own - general - listed == set()
    assert {*CAUGHT, *REPORTED} - {"prints_200_megabytes"} - listed == set()
    assert {n.partition(".")[2] for n in cheats.BY_NAME} - listed <= {
        "only_64_rows", "only_f32", "prints_200_megabytes", "launches_its_kernel", "falls_back", "launches_for_show"
    }  # fmt: skip
