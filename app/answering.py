"""What a child of the pool answers: every question about a region's text that needs torch, one line of JSON each.

    server -> child   {"ask": "decide", "text": ..., "workload": {...}, ...}
    child -> server   {"value": ...} or {"error": {...}}; with "retire": true it is not to be asked again

A child keeps the regions that it prepared last: a question often comes twice, without the oracle's answer and with it.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict
from typing import IO, Any

from app import foreseen as stored
from app import service
from app.advice.thresholds import Thresholds
from app.evaluate import Foreseen, Prepared
from app.recent import Recent
from profiler.child.limits import is_of_memory
from profiler.oracle.wire import from_dict, recompiles_from_dict
from profiler.region.leftovers import forget
from profiler.region.model import RegionError

Json = dict[str, Any]

KEPT = 4
FORGET_EVERY = 16
"""Questions after which what torch keeps of them is dropped."""

WARM_UP = "x: f32[64, 64]\nw: f32[64, 64]\ny = relu(x @ w + 1.0)\nreturn y\n"

_prepared: Recent[Prepared] = Recent(KEPT)


def serve(lines: IO[str], answers: IO[str]) -> int:
    """Answer until the lines end. The first is a greeting: what all questions share."""
    shared = json.loads(lines.readline() or "{}")
    if shared.get("host"):
        from kernels import host

        host.assume(host.from_json(shared["host"]))
    thresholds = Thresholds.from_mapping(shared.get("thresholds") or {})
    _say(answers, {"value": "ready"})
    for number, line in enumerate(lines, 1):
        _say(answers, _answer(json.loads(line), thresholds))
        if number % FORGET_EVERY == 0:
            forget()
    return 0


def _say(answers: IO[str], said: Json) -> None:
    answers.write(json.dumps(said) + "\n")
    answers.flush()


def _answer(asked: Json, thresholds: Thresholds) -> Json:
    try:
        return {"value": QUESTIONS[asked["ask"]](asked, thresholds)}
    except RegionError as error:
        told = {k: getattr(error, k) for k in ("code", "message", "line", "column", "end_column", "hint")}
        return {"error": {"kind": "region", **told, "shown": str(error)}}
    except KeyError as error:
        if asked["ask"] in ("kit", "own"):  # a candidate that does not fit
            return {"error": {"kind": "candidate", "message": str(error)}}
        return _fault(error)
    except ValueError as error:
        if (code := getattr(error, "code", None)) is None:
            return _fault(error)
        told = {"code": code, "message": str(error), "remedy": getattr(error, "remedy", "")}
        return {"error": {"kind": "refused", **told}}
    except Exception as error:
        return _fault(error)


def _fault(error: BaseException) -> Json:
    """A fault of ours: the traceback goes to the log of the child, and this child answers nothing more."""
    memory = is_of_memory(error)
    traceback.print_exc(file=sys.stderr)
    if memory:
        return {"error": {"kind": "memory"}, "retire": True}
    return {"error": {"kind": "fault", "message": f"{type(error).__name__}: {error}"[:2000]}, "retire": True}


def _of(asked: Json, thresholds: Thresholds) -> Prepared:
    """The region of a question, prepared; in the situation that its trace saw where it comes from one."""
    key = json.dumps([asked["text"], asked.get("workload"), asked.get("traced")], sort_keys=True)

    def prepare() -> Prepared:
        prepared = service.prepare_region(asked["text"], thresholds=thresholds, **(asked.get("workload") or {}))
        traced = asked.get("traced")
        return stored.as_traced(prepared, traced["region"], traced["trace"]) if traced else prepared

    return _prepared.of(key, prepare)


def _outline(asked: Json, thresholds: Thresholds) -> Json:
    return asdict(service.outline(_of(asked, thresholds)))


def _decide(asked: Json, thresholds: Thresholds) -> Json:
    said = asked.get("foreseen") or {}
    recompiles = said.get("recompiles")
    foreseen = Foreseen(
        tuple(from_dict(p) for p in said.get("predictions") or ()),
        recompiles_from_dict(recompiles) if recompiles else None,
    )
    return service.decide_region(_of(asked, thresholds), foreseen, name=asked.get("name") or "")


def _on_devices(asked: Json, thresholds: Thresholds) -> list[Json]:
    return service.on_devices(_of(asked, thresholds), asked.get("advice"))


def _on_device(asked: Json, thresholds: Thresholds) -> Json:
    return service.on_device(_of(asked, thresholds), asked["device"], title=asked.get("name") or "")


def _kit(asked: Json, _: Thresholds) -> Json:
    return asdict(service.make_kit(asked["text"], **asked["more"]))


def _own(asked: Json, _: Thresholds) -> Json:
    return asdict(service.own_code(asked["text"], asked["sizes"], asked["candidate"], asked["validation"]))


def _replay(asked: Json, _: Thresholds) -> str:
    return service.replay_script(asked["text"], asked["shapes"])


def _candidates(asked: Json, _: Thresholds) -> list[str]:
    from app.candidates import known_names

    return list(known_names())


QUESTIONS: dict[str, Callable[[Json, Thresholds], Any]] = {
    "outline": _outline,
    "decide": _decide,
    "on-devices": _on_devices,
    "on-device": _on_device,
    "kit": _kit,
    "own": _own,
    "replay": _replay,
    "candidates": _candidates,
}


def warm_up() -> None:
    """Import what answers need, and answer once: in the template, so that its forks begin warm."""
    import kernels.own  # noqa: F401
    from app.candidates import known_names

    known_names()
    prepared = service.prepare_region(WARM_UP)
    service.decide_region(prepared)
    forget()
