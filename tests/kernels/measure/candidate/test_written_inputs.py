"""What a candidate leaves in the inputs that a region writes into is held to float64, as its outputs are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from kernels.measure.candidate import checker
from kernels.measure.candidate.random_values import random_inputs, random_outputs
from kernels.measure.candidate.reference import reference
from kernels.measure.candidate.sampled_rows import rows_of
from kernels.measure.candidate.worker import Worker
from kernels.measure.messages import Case, Finish, Round, Warm
from kernels.measure.records import Record, judge_record
from profiler.region.language.program import program
from profiler.region.language.text import parse
from tests.kernels.measure.candidate.host_clock import HostClock

Call = Callable[..., tuple[torch.Tensor, ...]]
STATISTICS = """x: f32[16, 8, 6, 6]
m: f32[8]
v: f32[8]
y = F.batch_norm(x, m, v, training=True)
return y"""
TRAINING = STATISTICS.replace("6, 6]", "6, 6].requires_grad")


class Silent:
    def send(self, message: object) -> None:
        pass


def measured(call: Call, text: str, name: str = "triton:any") -> Record:
    worker = Worker(Silent())  # type: ignore[arg-type]
    worker.checker.seed, worker.checker.memory_bytes = 3, 2e9
    try:
        task = worker._build(lambda *_: call, name, parse(text), {})  # type: ignore[arg-type,return-value]
        worker._first_call(task)
        cases = worker.checker.cases(task, thorough=True, refilled=True)
    finally:
        torch.set_grad_enabled(True)
    return Record(name, name.partition(":")[0], cases=[cases], mutated=[task.mutated])


def judged(call: Call, text: str) -> Record:
    """The candidate, next to eager itself, as a validation has both."""
    eager = measured(lambda *given: program(parse(text)).module(*given), text, "eager")
    judge_record(eager, eager.cases, None, [""])
    assert eager.status == "correct", eager.message
    record = measured(call, text)
    judge_record(record, eager.cases, eager.mutated, [""])
    return record


def normed(
    x: torch.Tensor, m: torch.Tensor, v: torch.Tensor, by_mean: float = 1.0, by_var: float = 1.0
) -> torch.Tensor:
    """By hand, with running statistics of which the new part is off by these factors."""
    var, mean = torch.var_mean(x, (0, 2, 3), correction=0)
    count = x.numel() // x.shape[1]
    with torch.no_grad():
        m.mul_(0.9).add_(0.1 * by_mean * mean)
        v.mul_(0.9).add_(0.1 * by_var * var * count / (count - 1))
    return (x - mean[:, None, None]) * (var + 1e-5).rsqrt()[:, None, None]


@pytest.mark.parametrize("text", [STATISTICS, TRAINING], ids=["forward", "training"])
def test_right_running_statistics_pass(text: str) -> None:
    record = judged(lambda *given: (normed(*given),), text)
    assert record.status == "correct", record.message
    assert set(record.cases[0][0].written) == {"m", "v"}
    assert all(e.error < 1e-6 for e in record.cases[0][0].written.values())


@pytest.mark.parametrize("text", [STATISTICS, TRAINING], ids=["forward", "training"])
@pytest.mark.parametrize(("factors", "name"), [((1.01, 1.0), "m"), ((1.0, 1.01), "v"), ((1.0, 35 / 36), "v")])
def test_a_running_statistic_that_is_off_by_a_little_is_wrong(
    text: str, factors: tuple[float, float], name: str
) -> None:
    record = judged(lambda *given: (normed(*given, *factors),), text)
    assert record.status == "mismatch"
    assert f"what it wrote into {name} (f32)" in record.message


def test_a_statistic_that_is_never_written_is_said_to_be_unchanged() -> None:
    def stale(x: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor]:
        return (normed(x, m, v.clone()),)

    record = judged(stale, STATISTICS)
    assert (record.status, record.message) == ("mismatch", "it left v unchanged")


def test_a_statistic_that_is_written_at_first_and_stale_then_is_wrong() -> None:
    calls: list[int] = []

    def call(x: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor]:
        calls.append(1)
        return (normed(x, m, v if len(calls) < 3 else v.clone()),)

    record = judged(call, STATISTICS)
    assert record.mutated[0] == ["m", "v"]
    assert record.status == "mismatch" and "what it wrote into v" in record.message


def test_an_input_that_eager_leaves_alone_may_not_be_written() -> None:
    def spoils(x: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor]:
        y = normed(x, m, v)
        x.zero_()
        return (y,)

    record = judged(spoils, STATISTICS)
    assert (record.status, record.message) == ("mismatch", "it changed its input x")


IN_PLACE = """x: bf16[64, 48]
y: bf16[64, 48]
x[:, 0:24].add_(y[:, 0:24])
x.mul_(0.3)
return y + 1"""


def in_place(x: torch.Tensor, y: torch.Tensor, factor: float = 1.0) -> tuple[torch.Tensor]:
    """One kernel's arithmetic: in float32, rounded once."""
    made = x.float()
    made[:, :24] += y.float()[:, :24]
    x.copy_(made * 0.3 * factor)
    return (y + 1,)


def test_a_result_in_place_passes_that_rounds_less_often_than_eager() -> None:
    record = judged(in_place, IN_PLACE)
    assert record.status == "correct", record.message


@pytest.mark.parametrize("wrong", ["factor", "element", "unscaled"])
def test_a_wrong_result_in_place_is_wrong(wrong: str) -> None:
    def call(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor]:
        result = in_place(x, y, 1.01 if wrong == "factor" else 1.0)
        if wrong == "element":
            x[17, 31] += 40 * x.abs().max()
        if wrong == "unscaled":
            x[:, 24:] /= 0.3
        return result

    record = judged(call, IN_PLACE)
    assert record.status == "mismatch" and "what it wrote into x (bf16)" in record.message


COUNTER = """x: f32[64]
n: i64[()]
n.add_(1)
return x * 2"""


@pytest.mark.parametrize(("step", "status"), [(1, "correct"), (2, "mismatch")])
def test_a_counter_counts_by_as_much_as_eagers(step: int, status: str) -> None:
    def call(x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor]:
        n += step
        return (x * 2,)

    assert judged(call, COUNTER).status == status


KEPT = """x: f32[512, 8]
y: f32[512, 8]
x.clamp_(min=-3.5)
return x + y"""


def test_what_is_written_where_eager_changes_nothing_by_chance_is_compared_too() -> None:
    """Uniform inputs are all above the bound: there the reference leaves x as it was."""

    def call(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor]:
        result = x.clamp(min=-3.5) + y
        x.copy_(x * 1.01 if bool((x > 0).all()) else x.clamp(min=-3.5))
        return (result,)

    record = judged(call, KEPT)
    assert record.status == "mismatch" and "what it wrote into x (f32), uniform inputs" in record.message


def test_random_numbers_that_are_written_are_compared_by_their_distribution() -> None:
    text = "x: f32[64, 1024]\ny: f32[64, 1024]\nx.copy_(F.dropout(y, 0.3))\nreturn y + 1"
    module = program(parse(text)).module
    assert (random_inputs(module), random_outputs(module)) == ({0}, frozenset())

    def dropped(rate: float) -> Call:
        def call(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor]:
            x.copy_(F.dropout(y, rate))
            return (y + 1,)

        return call

    assert judged(dropped(0.3), text).status == "correct"
    wrong = judged(dropped(0.35), text)
    assert wrong.status == "mismatch" and "what it wrote into x" in wrong.message


def test_a_mask_that_is_joined_with_a_random_one_is_not_written() -> None:
    module = program(parse("m: bool[64]\nx: f32[64]\nr = (torch.rand_like(x) > 0.5)\nreturn m & r, m | (x > 0)")).module
    assert (random_inputs(module), random_outputs(module)) == (frozenset(), {0})


def test_a_cast_that_is_written_into_leaves_its_input_alone_in_float64_too() -> None:
    module = program(parse("x: bf16[4, 8]\na = x.float()\na.add_(1.0)\nreturn a * 2, x * 3")).module
    given = torch.randn(4, 8).bfloat16()
    found = reference(module, [given], [False], [None, None])
    assert found.written == ()
    torch.testing.assert_close(found.outputs[1], given.double() * 3)
    torch.testing.assert_close(found.outputs[0], (given.double() + 1) * 2)


def test_where_rooms_are_made_of_some_rows_what_is_written_has_its_room_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "WHOLE_ROOMS_S", 0.0)
    assert judged(in_place, IN_PLACE).status == "correct"
    wrong = judged(lambda x, y: in_place(x, y, 1.01), IN_PLACE)
    assert wrong.status == "mismatch" and "what it wrote into x" in wrong.message


def test_a_region_whose_written_input_is_of_all_rows_has_no_rows_by_themselves() -> None:
    """y's rows come of x's alone; what is left in s is a sum over all of them."""
    alone = "x: f32[512, 32]\ns: f32[32]\n{}\nreturn x * 2"
    assert rows_of(parse(alone.format("s.mul_(0.5)")), {}, "cpu") is not None
    assert rows_of(parse(alone.format("s.add_(x.sum(0))")), {}, "cpu") is None


@pytest.mark.parametrize(("factor", "status"), [(1.0, "correct"), (1.05, "mismatch")])
def test_against_eager_alone_what_is_written_is_compared(
    monkeypatch: pytest.MonkeyPatch, factor: float, status: str
) -> None:
    def none_of_it(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(checker, "reference", none_of_it)
    record = judged(lambda x, y: in_place(x, y, factor), IN_PLACE)
    assert record.cases[0][0].precision == "eager"
    assert record.status == status, record.message


def timed(call: Call, text: str, rounds: int = 3, calls: int = 6) -> tuple[Worker, list[Case]]:
    worker = Worker(Silent(), HostClock())  # type: ignore[arg-type]
    worker.checker.seed, worker.checker.memory_bytes, worker.l2_bytes = 3, 2e9, 1e5
    task = worker._build(lambda *_: call, "any", parse(text), {})  # type: ignore[arg-type,return-value]
    worker._first_call(task)
    worker.checker.cases(task, thorough=False)
    worker.tasks = [task]
    worker.warm(Warm(0.1))
    for _ in range(rounds):
        worker.round(Round(0, calls, 1))
    kept = task.samples.all()
    assert kept and all(set(s.left) == set(task.written) for s in kept)
    return worker, worker.finish(Finish(False)).cases[0]


@pytest.mark.parametrize("calls", [2, 60], ids=["each on contents of its own", "more calls than input sets"])
def test_what_timed_calls_write_is_held_to_float64(calls: int) -> None:
    """Many calls write into the same inputs: what is compared is of the first on its contents."""
    _, (case,) = timed(lambda *given: in_place(*given), IN_PLACE, calls=calls)
    assert set(case.written) == {"x"}
    assert case.written["x"].error < 4e-3 and case.outputs[0].error < 4e-3


def test_a_statistic_that_goes_stale_while_timed_is_seen() -> None:
    done: list[int] = []

    def call(x: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor]:
        done.append(1)
        return (normed(x, m, v if len(done) < 20 else v.clone()),)

    _, right = timed(lambda *given: (normed(*given),), STATISTICS)
    _, wrong = timed(call, STATISTICS, rounds=10)
    for cases, status in ((right, "correct"), (wrong, "mismatch")):
        record = Record("triton:any", "triton", cases=[cases], mutated=[[]])
        judge_record(record, [right], None, [""])
        assert record.status == status, record.message
    assert "what it wrote into v (f32), after timing inputs" in record.message


def test_copies_of_what_is_written_stay_within_the_memory_of_outputs() -> None:
    """x is twice as large as what is returned: seven copies and two in hand are one and two, each of three times it."""
    worker = Worker(Silent(), HostClock())  # type: ignore[arg-type]
    worker.checker.memory_bytes, worker.l2_bytes = 2e9, 1e5
    text = "x: f32[64, 64]\nx.mul_(2)\nreturn x[:32] + 1"
    plain = program(parse(text)).module
    task = worker._build(lambda *_: lambda *given: plain(*given), "any", parse(text), {})  # type: ignore[arg-type]
    worker._first_call(task)
    worker.checker.cases(task, thorough=False)
    worker.tasks = [task]
    for samples, room in ((7, 1), (6, 0), (1, 0)):
        worker.warm(Warm(0.1, 1e8, samples=samples))
        assert task.samples.room == room


def test_dropout_behind_statistics_that_are_not_trained_is_judged() -> None:
    text = """x: f32[16, 8, 6, 6].requires_grad
w: f32[8].requires_grad
m: f32[8]
v: f32[8]
y = F.dropout(F.batch_norm(x, m, v, w, training=True), 0.1)
return y"""
    record = judged(lambda *given: program(parse(text)).module(*given), text)
    assert record.status == "correct", record.message


@pytest.mark.parametrize(
    "norm", ["F.batch_norm(h, m, v, training=True)", "F.instance_norm(h, m, v, use_input_stats=True)"]
)
def test_statistics_of_random_numbers_are_compared_by_their_distribution(norm: str) -> None:
    text = f"x: f32[16, 8, 6, 6]\nm: f32[8]\nv: f32[8]\nh = F.dropout(x, 0.5)\ny = {norm}\nreturn y"
    module = program(parse(text)).module

    def other_stream(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        torch.rand(7)
        return tuple(module(*given))

    record = judged(other_stream, text)
    assert record.status == "correct", record.message
    assert {e.kind for e in record.cases[0][0].written.values()} == {"random"}


def test_what_an_operation_leaves_that_is_asked_to_work_in_place_is_compared() -> None:
    text = "x: f32[64, 1024]\ny = F.dropout(x, 0.5, True, inplace=True)\nreturn y * 2"
    module = program(parse(text)).module

    def other_stream(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        torch.rand(7)
        return tuple(module(x))

    def leaves_zeros(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        result = tuple(module(x))
        x.zero_()
        return result

    assert judged(other_stream, text).status == "correct"
    wrong = judged(leaves_zeros, text)
    assert wrong.status == "mismatch" and "what it wrote into x" in wrong.message


def test_a_cast_that_is_worked_on_in_place_by_an_argument_leaves_its_input_alone_in_float64_too() -> None:
    module = program(parse("x: bf16[4, 8]\na = x.float()\nb = F.relu(a, inplace=True)\nreturn b * 2, x * 3")).module
    given = torch.randn(4, 8).bfloat16()
    found = reference(module, [given], [False], [None, None])
    assert found.written == ()
    torch.testing.assert_close(found.outputs[1], given.double() * 3)


BRANCHES = """x: f32[2048, 64]
w: f32[64, 64].requires_grad
y: f32[2048, 64]
return x @ w + F.dropout(y, 0.1)"""


@pytest.mark.parametrize(("factor", "status"), [(1.0, "correct"), (1.0002, "mismatch")])
def test_a_gradient_that_no_random_number_reaches_is_held_to_float64(factor: float, status: str) -> None:
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):  # type: ignore[no-untyped-def]
            ctx.save_for_backward(x)
            return x @ w

        @staticmethod
        def backward(ctx, grad):  # type: ignore[no-untyped-def]
            (x,) = ctx.saved_tensors
            total = torch.zeros(64, 64)
            for row in range(2048):  # in another order than eager's
                total += x[row, :, None] * grad[row]
            return None, total * factor

    def call(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor]:
        return (Product.apply(x, w) + F.dropout(y, 0.1),)

    record = judged(call, BRANCHES)
    assert record.status == status, record.message
    assert [o.kind for o in record.cases[0][0].outputs] == ["random", "float"]
