"""What the server asks the processes that import torch: each question with the type of its answer.

`app.requests.executor` sends them and `app.analysis.answering` answers them, one line of JSON each, `ask` being the
question's tag. Both take the same types: a question that nobody answers, or one whose answer is of another type, does
not pass mypy.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from app.analysis.advice_inputs import AdviceInputs
from app.analysis.analyze import NO_COMPILE_PREDICTION, CompilePrediction
from app.analysis.service import Outline
from kernels.kernel_listing_model import Own
from kernels.starter_kit.model import Kit
from profiler.oracle.serialization import from_dict, recompiles_from_dict, recompiles_to_dict, to_message
from profiler.region.language.completion_model import Vocabulary

if TYPE_CHECKING:
    from app.objects.advice import Advice, DeviceAdvice
    from app.objects.region import RegionBody
else:  # read as the plain JSON that they are: nothing is left out, and no number changes its type
    Advice = DeviceAdvice = RegionBody = dict

Json = dict[str, Any]

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Question:
    """A region that is asked about: by a user, or again as it was advised on.

    workload: keyword arguments of service.prepare_region. inputs: of a stored region; they stand for the workload.
    """

    text: str
    workload: Mapping[str, Any] = field(default_factory=dict)
    inputs: AdviceInputs | None = None


@dataclass(frozen=True, slots=True)
class DecidedRegion:
    """The API's region with its advice, and what that was issued on, to be kept with it."""

    region: RegionBody
    inputs: AdviceInputs


class Request(msgspec.Struct, Generic[Answer], frozen=True, tag_field="ask"):
    """One question to a child of the pool; Answer is the type of what it answers."""

    @classmethod
    def read(cls, value: object) -> Answer:
        """The answer, from the plain values of its JSON. Raises msgspec.ValidationError for a value of another type."""
        (base,) = (b for b in cls.__orig_bases__ if typing.get_origin(b) is Request)  # type: ignore[attr-defined]
        answer: Answer = msgspec.convert(value, typing.get_args(base)[0])
        return answer


class OutlineRequest(Request[Outline], frozen=True, tag="outline"):
    """What the oracle is to be asked of a region."""

    question: Question


class DecideRequest(Request[DecidedRegion], frozen=True, tag="decide"):
    """A region with its advice. predictions, recompiles: what the oracle said, as
    profiler.oracle.serialization has it.

    name: of the region, "" for the one that its text gets.
    """

    question: Question
    name: str = ""
    predictions: Sequence[Json] = ()
    recompiles: Json | None = None

    @classmethod
    def with_oracle(
        cls, question: Question, prediction: CompilePrediction = NO_COMPILE_PREDICTION, name: str = ""
    ) -> DecideRequest:
        """The question with the oracle's answer."""
        recompiles = recompiles_to_dict(prediction.recompiles) if prediction.recompiles else None
        return cls(question, name, [to_message(p) for p in prediction.predictions], recompiles)

    @property
    def prediction(self) -> CompilePrediction:
        """What the oracle said."""
        recompiles = recompiles_from_dict(self.recompiles) if self.recompiles else None
        return CompilePrediction(tuple(from_dict(p) for p in self.predictions), recompiles)


class DevicesRequest(Request[list[DeviceAdvice]], frozen=True, tag="on-devices"):
    """A region's advice on every device of the table, one row each; advice: what stands for its own."""

    question: Question
    advice: Advice | None = None


class DeviceRequest(Request[RegionBody], frozen=True, tag="on-device"):
    """The API's region as it would be on another device."""

    question: Question
    device: str
    title: str = ""


class KitRequest(Request[Kit], frozen=True, tag="kit"):
    """The starter kit of a region; see service.make_kit."""

    text: str
    candidate: str | None = None
    validation: Mapping[str, Any] | None = None


class OwnRequest(Request[Own], frozen=True, tag="own"):
    """The Triton kernels that this app has for a region; see service.own_code."""

    text: str
    sizes: Mapping[str, int]
    candidate: str | None = None
    validation: Mapping[str, Any] | None = None


class ReplayRequest(Request[str], frozen=True, tag="replay"):
    """The file that runs a region eagerly and under torch.compile."""

    text: str
    shapes: Sequence[Mapping[str, Any]] | None = None


class CandidatesRequest(Request[list[str]], frozen=True, tag="candidates"):
    """Every candidate's name, whatever the region."""


class VocabularyRequest(Request[Vocabulary], frozen=True, tag="vocabulary"):
    """Every name of the region language, for the editor."""


AnyRequest = (
    OutlineRequest
    | DecideRequest
    | DevicesRequest
    | DeviceRequest
    | KitRequest
    | OwnRequest
    | ReplayRequest
    | CandidatesRequest
    | VocabularyRequest
)
