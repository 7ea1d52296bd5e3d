"""A corpus and measurements for trying things on: programs of the development third, said to be of the blind one."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import msgspec

from app.accuracy.corpus.measured import load_measured
from app.accuracy.corpus.programs import BLIND, DEVELOPMENT, Corpus, load_corpus
from app.objects.corpus import CorpusFigures, DeviceFigures, GroupFigures, LeftOut, TimeFigures
from app.objects.record import ArchiveRecord

H200, H100 = "NVIDIA H200", "NVIDIA H100 80GB HBM3"


def development_records(count: int, device: str = H200) -> list[ArchiveRecord]:
    """The smallest programs of the development third as an H200 ran them; for another device with the same times."""
    measured = [r for r in load_measured(DEVELOPMENT) if r["device"] == H200]
    texts = sorted(measured, key=lambda r: (len(r["region"]), r["id"]))
    chosen: list[Any] = deepcopy([r for r in texts if len(r["candidates"]) > 2][:count])
    return [r | {"device": device, "id": r["id"].replace(H200, device)} for r in chosen]


def corpus_with_blind(records: Sequence[ArchiveRecord], unmeasured: int = 0) -> Corpus:
    """The corpus without its blind third, these records' programs in its place, and some that nobody measured."""
    corpus, names = load_corpus(), {r["name"] for r in records}
    programs = [p for p in corpus.programs if p.third == DEVELOPMENT]
    more = {p.name for p in programs if p.name not in {r["name"] for r in load_measured(DEVELOPMENT)}}
    names |= set(sorted(more)[:unmeasured])
    return msgspec.structs.replace(
        corpus, programs=tuple(msgspec.structs.replace(p, third=BLIND) for p in programs if p.name in names)
    )


def times(predictions: int = 10, within: float = 0.8, inside: float = 0.8) -> TimeFigures:
    return {"predictions": predictions, "within": within, "inside": inside, "error_geomean": 1.1}


def group(cases: int = 10, regret: float = 1.02, worst: float = 1.3, right: float = 0.9) -> GroupFigures:
    return {
        "cases": cases, "regret_geomean": regret, "regret_worst": worst, "right": right, "speedups": cases,
        "within": 0.8, "eager": times(cases), "compiled": times(cases),
    }  # fmt: skip


def device(programs: int = 12, measured: int = 10, name: str = H200, **more: Any) -> DeviceFigures:
    """Whole figures: of so many programs as many were measured, all of which count."""
    figures = ("advice", "speed-up", "eager", "torch.compile")
    left: list[LeftOut] = [
        {"figure": f, "reason": "not measured on this device yet", "programs": programs - measured} for f in figures
    ]
    policy = {"cases": measured, "regret_geomean": 1.1, "regret_worst": 2.0, "right": 0.5}
    body: Any = {
        "device": name, "torch": ["2.11.0"], "dates": ["2026-11-25"], "atlas": name, "own": True, "measured": measured,
        "by_wall_time": 3, "next_runnable": 1, "unanswered": 0, "all": group(measured),
        "families": {"norm": group(measured - 4), "scan": group(4)},
        "modes": {"forward": group(measured - 2), "training": group(2)},
        "policies": {"always eager": policy, "always max-autotune": policy}, "left_out": left,
    }  # fmt: skip
    whole: DeviceFigures = body | more
    return whole


def blind_figures(*devices: DeviceFigures, programs: int = 12) -> CorpusFigures:
    return {
        "third": BLIND, "prediction": "own atlas, Inductor's kernels", "programs": programs,
        "devices": list(devices) or [device(programs)],
    }  # fmt: skip
