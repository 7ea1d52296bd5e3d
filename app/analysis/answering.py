"""What a child of the pool answers: every question about a region's text that needs torch, one line of JSON each.

    server -> child   {"ask": "decide", "question": {"text": ..., "workload": {...}}, ...}    one of
    app.analysis.questions
    child -> server   {"value": ...} or {"error": {...}}; with "retire": true it is not to be asked again

A child keeps the regions that it prepared last: a question often comes twice, without the oracle's answer and with it.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import IO, Any, assert_never

import msgspec

from app.analysis import service
from app.analysis.analyze import AnalyzedRegion
from app.analysis.questions import (
    Answer,
    AnyRequest,
    CandidatesRequest,
    DecidedRegion,
    DecideRequest,
    DeviceRequest,
    DevicesRequest,
    KitRequest,
    OutlineRequest,
    OwnRequest,
    Question,
    ReplayRequest,
    Request,
    VocabularyRequest,
)
from app.atlas import shipped, user_atlas
from app.lru_cache import Recent
from app.thresholds import Thresholds
from profiler.child.limits import is_of_memory
from profiler.region.graph.torch_caches import forget
from profiler.region.model import RegionError

Json = dict[str, Any]

KEPT = 4
FORGET_EVERY = 16
"""Questions after which what torch keeps of them is dropped."""

WARM_UP = """
x: bf16[4, 64, 128].requires_grad
w: bf16[128, 128].requires_grad
g: bf16[128].requires_grad
t: i64[256]
h = F.layer_norm(x, (128,), g, g)
q = F.linear(h, w, g).view(4, 64, 4, 32).transpose(1, 2)
a = F.scaled_dot_product_attention(q, q, q).transpose(1, 2).reshape(4, 64, 128)
m = F.dropout(F.gelu(a @ w), 0.1) + x
s = m.float().softmax(-1)
return m, F.cross_entropy(s.view(256, 128), t)
"""
"""What models are made of, with its backward: what torch looks up, compiles and remembers at the first call of each."""

_prepared: Recent[AnalyzedRegion] = Recent(KEPT)


def serve(lines: IO[str], answers: IO[str]) -> int:
    """Answer until the lines end. The first is a greeting: what all questions share."""
    shared = json.loads(lines.readline() or "{}")
    if shared.get("host"):
        from kernels import host

        host.assume(host.from_json(shared["host"]))
    if shared.get("atlas_dir"):
        user_atlas.use_folder(Path(shared["atlas_dir"]))
    thresholds = Thresholds.from_mapping(shared.get("thresholds") or {})
    _say(answers, {"value": "ready"})
    for number, line in enumerate(lines, 1):
        _say(answers, _answer(line, thresholds))
        if number % FORGET_EVERY == 0:
            forget()
    return 0


def _say(answers: IO[str], said: Json) -> None:
    answers.write(json.dumps(said, default=msgspec.to_builtins) + "\n")
    answers.flush()


def _answer(line: str, thresholds: Thresholds) -> Json:
    request: AnyRequest | None = None
    user_atlas.look_again()
    try:
        request = msgspec.convert(json.loads(line), AnyRequest)
        return {"value": answer(request, thresholds)}
    except RegionError as error:
        details = {k: getattr(error, k) for k in ("code", "message", "line", "column", "end_column", "hint")}
        return {"error": {"kind": "region", **details, "shown": str(error)}}
    except KeyError as error:
        if isinstance(request, KitRequest | OwnRequest):  # a candidate that does not fit
            return {"error": {"kind": "candidate", "message": str(error)}}
        return _fault(error)
    except ValueError as error:
        if (code := getattr(error, "code", None)) is None:
            return _fault(error)
        details = {"code": code, "message": str(error), "remedy": getattr(error, "remedy", "")}
        return {"error": {"kind": "refused", **details}}
    except Exception as error:
        return _fault(error)


def _fault(error: BaseException) -> Json:
    """A fault of ours: the traceback goes to the log of the child, and this child answers nothing more."""
    memory = is_of_memory(error)
    traceback.print_exc(file=sys.stderr)
    if memory:
        return {"error": {"kind": "memory"}, "retire": True}
    return {"error": {"kind": "fault", "message": f"{type(error).__name__}: {error}"[:2000]}, "retire": True}


def answer(request: AnyRequest, thresholds: Thresholds) -> object:
    """What a question of the server is answered with, as JSON takes it."""
    match request:
        case OutlineRequest():
            return _check_type(request, service.outline(_prepare(request.question, thresholds)))
        case DecideRequest():
            prepared = _prepare(request.question, thresholds)
            region = service.decide_region(prepared, request.prediction, name=request.name)
            return _check_type(request, DecidedRegion(region, service.inputs_of(prepared)))
        case DevicesRequest():
            return _check_type(request, service.on_devices(_prepare(request.question, thresholds), request.advice))
        case DeviceRequest():
            prepared = _prepare(request.question, thresholds)
            return _check_type(request, service.on_device(prepared, request.device, title=request.title))
        case KitRequest():
            kit = service.make_kit(request.text, candidate=request.candidate, validation=request.validation)
            return _check_type(request, kit)
        case OwnRequest():
            own = service.own_code(request.text, request.sizes, request.candidate, request.validation)
            return _check_type(request, own)
        case ReplayRequest():
            return _check_type(request, service.replay_script(request.text, request.shapes))
        case CandidatesRequest():
            from app.analysis.candidates import known_names

            return _check_type(request, list(known_names()))
        case VocabularyRequest():
            from profiler.region.language.completion import completion

            return _check_type(request, completion())
        case _:
            assert_never(request)


def _check_type(request: Request[Answer], value: Answer) -> Answer:
    """The value, which mypy holds to the type of the question's answer."""
    return value


def _prepare(question: Question, thresholds: Thresholds) -> AnalyzedRegion:
    """The region of a question, prepared; with what its advice was issued on where that is known."""
    key = json.dumps(msgspec.to_builtins(question), sort_keys=True)

    def prepare() -> AnalyzedRegion:
        if question.inputs is not None:
            return service.prepare_from_inputs(question.text, question.inputs, thresholds)
        return service.prepare_region(question.text, thresholds=thresholds, **question.workload)

    return _prepared.of(key, prepare)


def warm_up() -> None:
    """Import what answers need, and answer once: in the template, so that its forks begin warm."""
    import kernels.kernel_listing  # noqa: F401
    from app.analysis.candidates import known_names

    known_names()
    shipped.warm()
    prepared = service.prepare_region(WARM_UP)
    service.decide_region(prepared)
    forget()
