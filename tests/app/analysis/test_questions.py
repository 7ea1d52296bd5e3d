"""Questions to the processes that import torch: they cross the pipe with their types, and nothing else is answered."""

from __future__ import annotations

import io
import json
import typing
from typing import Any

import msgspec
import pytest

from app.analysis import answering, service
from app.analysis.analyze import CompilePrediction
from app.analysis.questions import (
    AnyRequest,
    CandidatesRequest,
    DecideRequest,
    KitRequest,
    OutlineRequest,
    OwnRequest,
    Question,
    Request,
)
from kernels.kernel_listing_model import Own
from profiler.oracle.model import OracleKernel, Prediction, Recompiles

TEXT = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"


def served(*lines: str) -> list[Any]:
    """What a child says to these lines, without its greeting."""
    answers = io.StringIO()
    answering.serve(io.StringIO("".join(f"{line}\n" for line in ("{}", *lines))), answers)
    return [json.loads(line) for line in answers.getvalue().splitlines()[1:]]


def line_of(request: Request[Any]) -> str:
    return json.dumps(msgspec.to_builtins(request))


def test_every_question_can_be_read_by_the_child_under_a_tag_of_its_own() -> None:
    known = typing.get_args(AnyRequest)
    assert set(known) == set(Request.__subclasses__())
    tags = [kind.__struct_config__.tag for kind in known]
    assert len(set(tags)) == len(tags)


def test_an_answer_comes_back_in_its_questions_type() -> None:
    (outline,) = served(line_of(OutlineRequest(Question(TEXT))))
    assert OutlineRequest.read(outline["value"]) == service.outline(service.prepare_region(TEXT))
    own = Own("triton:generated", "f(x)", "text", ("triton:softmax",))
    assert OwnRequest.read(json.loads(json.dumps(own, default=msgspec.to_builtins))) == own
    (names,) = served(line_of(CandidatesRequest()))
    assert "eager" in CandidatesRequest.read(names["value"])


def test_an_answer_of_another_type_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        OutlineRequest.read({"text": TEXT})
    with pytest.raises(msgspec.ValidationError):
        CandidatesRequest.read("eager")


def test_what_the_oracle_said_crosses_the_pipe_whole() -> None:
    kernel = OracleKernel("triton_poi_fused_gelu_0", "pointwise", 1, 65536, ("gelu", "mul"), "source", lines=(3, 4))
    of_one_mode = Prediction("NVIDIA H100", "default", {"N": 64}, True, kernels=(kernel,))
    bindings = ((("N", 64),), (("N", 37),))
    prediction = CompilePrediction(
        (of_one_mode,), Recompiles(bindings, (0, 1), 2, 8, because="sizes", symbolic=of_one_mode)
    )
    asked = DecideRequest.with_oracle(Question(TEXT, {"share_of_step": 0.2}), prediction, "a name")
    read = msgspec.convert(json.loads(line_of(asked)), AnyRequest)
    assert isinstance(read, DecideRequest)
    assert (read.question, read.name, read.prediction) == (asked.question, "a name", prediction)


@pytest.mark.parametrize("line", ['{"ask": "decides", "question": {"text": "x"}}', '{"question": {"text": "x"}}', "{"])
def test_a_line_that_is_no_question_is_our_fault_and_the_child_is_not_asked_again(line: str) -> None:
    bad, good = served(line, line_of(CandidatesRequest()))
    assert (bad["error"]["kind"], bad["retire"]) == ("fault", True)
    assert good["value"]


@pytest.mark.parametrize("request_", [KitRequest(TEXT, "triton:nothing"), OwnRequest(TEXT, {}, "triton:nothing")])
def test_a_candidate_that_does_not_fit_is_the_users_mistake(request_: Request[Any]) -> None:
    (said,) = served(line_of(request_))
    assert said["error"]["kind"] == "candidate"
    assert "retire" not in said
