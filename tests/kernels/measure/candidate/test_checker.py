"""What a candidate is checked on, whatever the rooms of roundings take."""

from __future__ import annotations

import weakref

import msgspec
import pytest
import torch

from kernels.measure.candidate import checker
from kernels.measure.candidate.worker import Worker
from kernels.measure.judge import judge
from kernels.measure.messages import Case, InRoom, OutputError
from kernels.measure.records import Record, judge_record
from profiler.region.language.text import parse
from profiler.region.model import Region

REGION = "x: bf16[32, 64]\ny: bf16[32, 64]\nreturn (x * 16.0 + y) - x * 16.0"
DISTRIBUTIONS = ["normal", "normal again", "uniform", "large", "tiny", "special", "changed x", "changed y"]


class Silent:
    def send(self, message: object) -> None:
        pass


def by_text(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor]:
    return ((x * 16.0 + y) - x * 16.0,)


def wrong_where_large(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor]:
    return by_text(x, y.clamp(-20.0, 20.0))


def cases_of(call: object, text: str = REGION) -> list[Case]:
    region: Region = parse(text)
    worker = Worker(Silent())  # type: ignore[arg-type]
    worker.checker.seed, worker.checker.memory_bytes = 3, 2e9
    task = worker._build(lambda *_: call, "any", region, {})  # type: ignore[arg-type,return-value]
    worker._first_call(task)
    return worker.checker.cases(task, thorough=True)


def test_rooms_that_take_too_long_end_themselves_and_not_the_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [c.distribution for c in cases_of(by_text)] == DISTRIBUTIONS
    monkeypatch.setattr(checker, "MOST_ROOMS_S", 0.0)  # the first room takes more
    eager, wrong = cases_of(by_text), cases_of(wrong_where_large)
    assert [c.distribution for c in wrong] == DISTRIBUTIONS
    assert wrong[0].outputs[0].in_room is not None
    assert {c.outputs[0].in_room for c in wrong[1:]} == {None}
    assert judge(eager, eager).ok
    refused = judge(wrong, eager)
    assert not refused.ok
    assert "large inputs" in refused.message


def test_what_rooms_that_were_not_made_would_have_checked_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judge(cases_of(by_text), cases_of(by_text)).unchecked == ""
    monkeypatch.setattr(checker, "MOST_ROOMS_S", 0.0)
    cases = cases_of(by_text)
    verdict = judge(cases, cases)
    assert verdict.ok
    lacking = [c for c in cases if c.distribution != "special" and c.outputs[0].in_room is None]
    assert lacking and verdict.unchecked.startswith(f"{len(lacking)} of {len(cases)} sets of inputs")
    assert "no single row" in verdict.unchecked
    record = Record("triton:any", "triton", cases=[cases], mutated=[[]])
    judge_record(record, [cases], [[]], [""])
    assert record.status == "correct" and verdict.unchecked in record.message


def wrong_in_one_row(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor]:
    (result,) = by_text(x, y)
    result = result.clone()
    result[17] += 40.0 * y[17].abs().max()
    return (result,)


@pytest.fixture(params=["time", "memory"])
def only_some_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rooms of all rows take too long, or do not fit. What is returned: of how many rows each room was made."""
    made: list[int] = []
    plain = checker.rooms

    def rooms(module: object, values: list[torch.Tensor], *more: object) -> object:
        if request.param == "memory" and len(values[0]) == 32:
            raise torch.OutOfMemoryError("CUDA out of memory")
        made.append(len(values[0]))
        return plain(module, values, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(checker, "rooms", rooms)
    if request.param == "time":
        monkeypatch.setattr(checker, "WHOLE_ROOMS_S", 0.0)
    return made


def test_where_rooms_of_all_rows_cannot_be_had_some_rows_have_theirs(only_some_rows: list[int]) -> None:
    eager = cases_of(by_text)
    assert set(only_some_rows) <= {2, 4} and len(only_some_rows) >= 4
    told = [c.outputs[0].in_room for c in eager if c.distribution != "special"]
    assert None not in told
    assert judge(eager, eager).ok and judge(eager, eager).unchecked == ""
    refused = judge(cases_of(wrong_in_one_row), eager)  # a row that has no room of its own
    assert not refused.ok


def test_a_room_of_some_rows_holds_all_of_them_to_what_those_are_off_by() -> None:
    some = OutputError("float", "bf16", 64, 1e-3, 4e-3, 0, row=2e-3, in_room=InRoom(0.8, 1.0, 3.0, 1e-4))
    alike = msgspec.structs.replace(some, elements=1024, in_room=None)
    (same,) = checker.by_part([alike], [some])
    assert same.in_room == some.in_room and same.elements == 1024
    (row,) = checker.by_part([msgspec.structs.replace(alike, row=2e-1)], [some])
    assert row.in_room is not None and row.in_room.row == pytest.approx(100.0) and row.in_room.error == 0.8
    (none,) = checker.by_part([alike], [alike])
    assert none.in_room is None


QUANTISED = """x: bf16[512, 32]
w: bf16[32]
y = F.rms_norm(x, [32], w, 1e-6)
s = y.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448.0
return (y / s).clamp(-448, 448).to(f8e4m3)"""


def quantised(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor]:
    y = torch.nn.functional.rms_norm(x, [32], w, 1e-6)
    s = y.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448.0
    return ((y / s).clamp(-448, 448).to(torch.float8_e4m3fn),)


def one_step_down(rows: list[int]) -> object:
    """Codes of these rows one step towards zero: no rounding leads there."""

    def call(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor]:
        codes = quantised(x, w)[0].view(torch.uint8)
        down = codes[rows]
        codes[rows] = torch.where((down & 0x7F) > 9, down - 1, down)
        return (codes.view(torch.float8_e4m3fn),)

    return call


def test_steps_of_rows_that_rooms_were_not_made_of_are_said_to_be_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = cases_of(quantised, QUANTISED)
    assert judge(whole, whole).unchecked == ""
    assert "on a step that no rounding leads to" in judge(cases_of(one_step_down([5, 6]), QUANTISED), whole).message
    looked: set[int] = set()
    plain, of_rows = checker.Checker._part, checker.Checker._of_rows

    def noted(self: checker.Checker, *given: object) -> checker.Seen | None:
        seen = of_rows(self, *given)  # type: ignore[arg-type]
        looked.update((seen.rows if seen is not None else None) or ())
        return seen

    monkeypatch.setattr(checker, "WHOLE_ROOMS_S", 0.0)
    monkeypatch.setattr(checker.Checker, "_part", lambda self, seen, _: plain(self, seen, 0.5))
    monkeypatch.setattr(checker.Checker, "_of_rows", noted)
    eager = cases_of(quantised, QUANTISED)
    unseen = [row for row in range(512) if row not in looked]
    assert looked and len(unseen) >= 6
    verdict = judge(cases_of(one_step_down(unseen[:6]), QUANTISED), eager)  # 1.2 % of the elements
    assert not verdict.ok or "only 8,192 of 16,384 elements were held to the steps" in verdict.unchecked
    refused = judge(cases_of(one_step_down([min(looked)]), QUANTISED), eager)
    assert not refused.ok and "on a step that no rounding leads to" in refused.message


def test_a_room_of_some_rows_says_of_how_many_steps_are_known_only_where_others_differ() -> None:
    some = OutputError("exact", "i8", 64, 2 / 64, 0.0, 0, in_room=InRoom(0.5))
    same = msgspec.structs.replace(some, elements=1024, error=2 / 1024, in_room=None)
    for differing, held in ((2, 0), (3, 64)):
        (told,) = checker.by_part([msgspec.structs.replace(same, error=differing / 1024)], [some])
        assert told.in_room is not None and told.in_room.held == held
    (worst,) = checker.worst([[some], [told]])
    assert worst.in_room is not None and worst.in_room.held == 64


def test_a_slow_case_still_ends_the_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "SLOW_CASE_S", 0.0)
    assert [c.distribution for c in cases_of(by_text)] == DISTRIBUTIONS[:2]


def test_rooms_of_timed_samples_are_counted_anew() -> None:
    region: Region = parse(REGION)
    worker = Worker(Silent())  # type: ignore[arg-type]
    task = worker._build(lambda *_: by_text, "any", region, {})  # type: ignore[arg-type,return-value]
    worker.checker.rooms_s = 2 * checker.MOST_ROOMS_S
    assert worker.checker.timed_case(task) == []
    assert worker.checker.rooms_s == 0.0


def test_what_did_not_fit_is_let_go_before_the_next_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handled failure's frames hold the tensors of the run that it ended: next to them nothing else would fit."""
    held: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []

    def reference(module: object, values: list[torch.Tensor], *rest: object) -> object:
        alive.append(sum(ref() is not None for ref in held))
        most_of_the_card = torch.empty(1000)
        held.append(weakref.ref(most_of_the_card))
        raise torch.OutOfMemoryError(f"CUDA out of memory, next to {most_of_the_card.numel()}")

    worker = Worker(Silent())  # type: ignore[arg-type]
    task = worker._build(lambda *_: by_text, "any", parse(REGION), {})  # type: ignore[arg-type,return-value]
    values = worker.checker.inputs(task.region, task.sizes, task.scales)
    plain = worker.checker._as_written

    def as_written(*given: object) -> checker.Seen:
        alive.append(sum(ref() is not None for ref in held))
        return plain(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(checker, "reference", reference)
    monkeypatch.setattr(worker.checker, "_as_written", as_written)
    seen = worker.checker.reference(task, values)
    assert seen.expected.precision == "eager"
    assert alive == [0, 0, 0]  # before float64, before float32, before the program as written


def test_a_large_random_output_is_not_drawn_as_often_as_a_small_one_needs() -> None:
    """79 draws of a batch norm's weights took 79 of its activations with them: 134 GB for 200 MB."""
    text = "x: f32[256, 256]\nw: f32[640]\nreturn dropout(x, 0.25), dropout(w, 0.25)"

    def dropped(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.nn.functional.dropout(x, 0.25), torch.nn.functional.dropout(w, 0.25)

    cases = cases_of(dropped, text)
    large, small = cases[0].outputs
    assert large.elements == 256 * 256
    assert checker.SAMPLES <= small.elements < checker.SAMPLES + 2 * 640
    assert judge(cases, cases).ok
