"""The record of looks at the blind third, and the development third's figures: read, checked, written.

Looks are only ever added. Each names the digest of the one before it, so that one that was changed or taken out shows.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from app.accuracy.corpus.outcome import ADVICE, COMPILE, EAGER, FIGURES, SPEED_UP
from app.accuracy.corpus.programs import BLIND
from app.objects.accuracy import TotalsFigures
from app.objects.corpus import CorpusFigures, DeviceFigures, GroupFigures, Look, ThirdFigures

LOOKS = Path(__file__).resolve().parent / "looks.json"
DEVELOPED = Path(__file__).resolve().parent / "development.json"


def load_looks(file: Path = LOOKS) -> list[Look]:
    """All of them, the first one first; none where nobody looked."""
    return list(_read(file, file.stat().st_mtime_ns)) if file.is_file() else []


@lru_cache(maxsize=4)
def _read(file: Path, _mtime_ns: int) -> tuple[Look, ...]:
    return tuple(json.loads(file.read_text(encoding="utf-8")))


def load_development(file: Path = DEVELOPED) -> ThirdFigures | None:
    """The development third's figures as committed; None where nobody wrote them."""
    return _read_development(file, file.stat().st_mtime_ns) if file.is_file() else None


@lru_cache(maxsize=4)
def _read_development(file: Path, _mtime_ns: int) -> ThirdFigures:
    figures: ThirdFigures = json.loads(file.read_text(encoding="utf-8"))
    return figures


def digest(look: Look) -> str:
    """16 hex digits of all that it holds."""
    return hashlib.sha256(json.dumps(look, sort_keys=True).encode()).hexdigest()[:16]


def append_look(figures: Sequence[CorpusFigures], date: str, commit: str, changed: bool, file: Path = LOOKS) -> Look:
    """Add one look to the record. ValueError where the record would not be whole with it: nothing is written then."""
    looks = load_looks(file)
    look: Look = {
        "date": date,
        "commit": commit,
        "changed": changed,
        "previous": digest(looks[-1]) if looks else "",
        "figures": list(figures),
    }
    if wrong := faults([*looks, look]):
        raise ValueError("; ".join(wrong))
    write_json(file, [*looks, look])
    return look


def write_json(file: Path, body: object) -> None:
    """As it is committed; whole or not at all."""
    written = file.with_name(f".{file.name}")
    written.write_text(json.dumps(body, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    written.replace(file)


def faults(looks: Sequence[Look]) -> list[str]:
    """What is wrong with the record; nothing where it is whole."""
    wrong = []
    before: Look | None = None
    for number, look in enumerate(looks, 1):
        name = f"look {number}"
        if before is not None and look["date"] < before["date"]:
            wrong.append(f"{name} is of {look['date']}, before the one that it follows")
        if look["previous"] != (digest(before) if before is not None else ""):
            wrong.append(f"{name} does not follow the look that stands before it")
        if len(look["commit"]) != 40 or set(look["commit"]) - set("0123456789abcdef"):
            wrong.append(f"{name} names no commit")
        if not look["figures"] or not all(f["devices"] for f in look["figures"]):
            wrong.append(f"{name} has no figures")
        for figures in look["figures"]:
            if figures["third"] != BLIND:
                wrong.append(f"{name} is of the {figures['third']} third")
            wrong += [f"{name}, {said}" for d in figures["devices"] for said in _device_faults(d, figures["programs"])]
        before = look
    return wrong


def _device_faults(device: DeviceFigures, programs: int) -> list[str]:
    wrong = [f"{device['device']}: {f} does not tell of every program" for f in not_whole(device, programs)]
    if device["measured"] > programs:
        wrong.append(f"{device['device']}: more programs were measured than there are")
    groups = {"all": device["all"], **device["families"], **device["modes"]}
    wrong += [f"{device['device']}, {name}: {said}" for name, group in groups.items() for said in _group_faults(group)]
    for parts in (device["families"], device["modes"]):
        if sum(g["cases"] for g in parts.values()) != device["all"]["cases"]:
            wrong.append(f"{device['device']}: families or modes do not add up")
    for name, policy in device["policies"].items():
        wrong += [f"{device['device']}, {name}: {said}" for said in _regret_faults(policy)]
    return wrong


def _group_faults(group: GroupFigures) -> list[str]:
    shares = {"right": group["right"], "within": group["within"]}
    for time in ("eager", "compiled"):
        shares |= {f"{time} within": group[time]["within"], f"{time} inside": group[time]["inside"]}
    wrong = [f"{name} is no share" for name, share in shares.items() if share is not None and not 0 <= share <= 1]
    return wrong + _regret_faults(group)


def _regret_faults(totals: TotalsFigures) -> list[str]:
    mean, worst = totals["regret_geomean"], totals["regret_worst"]
    if mean is None or worst is None:
        return [] if totals["cases"] == 0 else ["cases without a regret"]
    return [] if 1 <= mean <= worst * (1 + 1e-4) else ["regret is below 1, or its mean above the worst"]


def not_whole(device: DeviceFigures, programs: int) -> list[str]:
    """Figures whose counted programs and those left out with a reason are not all that the third has."""
    left = Counter[str]()
    for row in device["left_out"]:
        left[row["figure"]] += row["programs"]
    group = device["all"]
    counted = {
        ADVICE: group["cases"],
        SPEED_UP: group["speedups"],
        EAGER: group["eager"]["predictions"],
        COMPILE: group["compiled"]["predictions"],
    }
    return [figure for figure in FIGURES if counted[figure] + left[figure] != programs]
