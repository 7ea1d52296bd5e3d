"""What goes over the pipe: it arrives as it was sent, what is of another form is refused, and names that stand in two
places are the same."""

from __future__ import annotations

import dataclasses
import json
import math
import socket
import typing

import msgspec
import pytest

from app.objects import evidence
from kernels.candidates import Candidate
from kernels.host import Host
from kernels.measure import conditions, messages
from kernels.measure.landscape import messages as landscape_messages
from kernels.measure.landscape.messages import Machine, Opened
from kernels.measure.landscape.model import Point
from kernels.measure.messages import (
    Answer,
    Case,
    Failed,
    Fault,
    MakePlan,
    Note,
    Offered,
    OutputError,
    Prepare,
    Prepared,
    PreparedTask,
    Question,
    RegionFault,
    RoundTimes,
    Shape,
    ToldStatus,
    Waiting,
    candidate_request,
    child_event,
)
from kernels.measure.model import STATUSES, Interval
from kernels.measure.processes.channel import Channel, encode
from profiler.region.model import RegionError


def sent(message: msgspec.Struct) -> dict[str, object]:
    """What the other end of a channel receives."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Channel(ours).send(message)
        received = Channel(theirs).receive()
    assert received is not None
    return received


def test_an_answer_with_nan_and_infinities_arrives_with_them() -> None:
    """msgspec's own JSON would make them null, and the judge would then see no error."""
    error = OutputError("random", "f32", 8, math.inf, math.nan, 1, (0.0, 1.0, 0.5, 0.0, 1.0, 0.5))
    prepared = Prepared([PreparedTask(1.5, [Case("normal", "float64", [error], repeats=False)], ["x"], None)], {"a": 1})
    event = child_event(sent(Answer(7, prepared)))
    assert isinstance(event, Answer) and event.id == 7
    (case,) = msgspec.convert(event.result, Prepared).tasks[0].cases
    (found,) = case.outputs
    assert found.error == math.inf and math.isnan(found.outlier)
    assert found.statistics == error.statistics
    assert (case.repeats, case.stale, case.against) == (False, None, "")


def test_a_request_arrives_as_it_was_sent() -> None:
    request = Prepare(
        candidate="eager", tasks=[Shape("x: f32[N]\nreturn x", {"N": 3})], device="cpu", seed=1, turn=None,
        memory_bytes=1e9, l2_bytes=0.0, compile_workers=1, registry="kernels.candidates", env={"A": "b"},
    )  # fmt: skip
    question = msgspec.convert(sent(Question(3, request)), Question)
    assert question.id == 3
    assert candidate_request(question.request) == request


def test_a_host_arrives_with_its_sets_and_its_capability() -> None:
    host = Host(
        "NVIDIA H200", (9, 0), {"torch": "2.11"}, frozenset({"quack", "liger_kernel"}), frozenset({"F.rms_norm"})
    )
    question = msgspec.convert(sent(Question(1, MakePlan("x", [{}], None, "r", host))), Question)
    assert msgspec.convert(question.request, MakePlan).host == host


def test_points_arrive_with_constants_of_their_own_types() -> None:
    constants: dict[str, typing.Any] = {"BLOCK": 64, "EVEN": True, "ACTIVATION": "gelu", "SCALE": 0.5}
    point = Point("k", "kernel", "BLOCK=64", constants, 4, 3, True, time_us=Interval(1.0, 0.5, 2.0))
    event = child_event(sent(Answer(1, Opened("kernel", [], "k", [point]))))
    assert isinstance(event, Answer)
    (found,) = msgspec.convert(event.result, Opened).points
    assert found == point
    assert [type(v) for v in found.constants.values()] == [int, bool, str, float]


@pytest.mark.parametrize(
    "line",
    [
        {"id": 3, "result": {}},
        {"event": "answer", "result": {}},
        {"event": "answer", "id": "3", "result": {}},
        {"event": "failed", "id": 3, "fault": {"status": "ok", "message": ""}},
        {"event": "failed", "id": 3, "fault": "timeout"},
        {"event": "note"},
        {"event": "ready", "pid": 3},
        {"event": "anything"},
    ],
    ids=str,
)
def test_what_no_child_may_say_is_refused(line: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        child_event(line)


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"times_us": [1.0], "wall_us": 1.0, "fresh": []},  # without what the host's clock is checked by
        {"times_us": ["1"], "wall_us": 1.0, "drain_us": 0.0, "fresh": []},
        {"times_us": [1.0], "wall_us": None, "drain_us": 0.0, "fresh": []},
        {"times_us": 1.0, "wall_us": 1.0, "drain_us": 0.0, "fresh": []},
        {"times_us": [1.0], "wall_us": 1.0, "drain_us": 0.0, "fresh": [0.5]},
    ],
    ids=str,
)
def test_times_of_another_form_are_refused(result: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(result, RoundTimes)


def test_events_without_an_answer_are_told_apart() -> None:
    assert child_event(sent(Waiting())) == Waiting()
    assert child_event(sent(Note("compiling"))) == Note("compiling")
    assert child_event(sent(Failed(2, Fault("fault", "lost")))) == Failed(2, Fault("fault", "lost"))
    assert json.loads(encode(Waiting())) == {"event": "waiting"}


def test_no_two_messages_have_one_name() -> None:
    """A request of one process that another takes for its own would be answered in another form."""
    for base in (messages.Request, messages.ToldByChild, messages.ToldByServer):
        tags = [kind.__struct_config__.tag for kind in base.__subclasses__()]
        assert len(tags) == len(set(tags))
    assert landscape_messages.RunPoint in messages.Request.__subclasses__()


def names(form: type[msgspec.Struct]) -> list[str]:
    return list(form.__struct_fields__)


def test_a_candidate_loses_nothing_on_its_way_from_the_planner() -> None:
    kept_by_pages = {"kernels"}  # which lines of the text each of them computes: no process measures that
    assert set(names(Offered)) | kept_by_pages == {f.name for f in dataclasses.fields(Candidate)}


def test_what_a_kernel_takes_is_a_points_own_figures() -> None:
    fields = {f.name for f in dataclasses.fields(Point)}
    assert names(Machine) == ["registers", "spill_bytes", "shared_bytes", "occupancy"]
    assert set(names(Machine)) < fields


def test_a_regions_error_keeps_its_place() -> None:
    fault = RegionError("no", code="region-syntax", line=2, column=3, end_column=5, hint="so", text="x")
    told = msgspec.convert(fault, RegionFault, from_attributes=True)
    kept = RegionError(told.message, **{n: getattr(told, n) for n in names(RegionFault) if n != "message"}, text="x")
    assert str(kept) == str(fault) and kept.code == fault.code


def test_a_child_gives_itself_statuses_that_there_are_and_no_good_one() -> None:
    told = set(typing.get_args(ToldStatus))
    assert told < set(STATUSES)
    assert not told & {"ok", "correct", "timeout", "impossible", "bad_output"}


def test_what_is_kept_of_a_measurement_is_what_the_api_says_it_keeps() -> None:
    shown = typing.get_type_hints(evidence.Reading)
    assert set(typing.get_type_hints(conditions.RoundReading)) == set(shown)
    kept = set(typing.get_type_hints(conditions.Conditions)) | {"device"}  # which comes to them at the end
    assert kept == set(typing.get_type_hints(evidence.Conditions))
    assert names(messages.Card) == list(typing.get_type_hints(evidence.MeasuredGpu))


def test_every_figure_that_nvidia_smi_is_asked_for_is_one_of_a_reading() -> None:
    told = set(conditions.QUERY.values())
    assert told | {"other_processes"} == set(typing.get_type_hints(conditions.Reading))
