"""Autotuning, as recorded on a GPU: the configurations that were tried, each with its time and its code."""

from __future__ import annotations

import ast
import json
import re
import textwrap
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TypedDict

from profiler.region.language import trees

ROOT = Path(__file__).resolve().parent.parent.parent.parent
RECORDED = ROOT / "app" / "examples" / "ladder" / "tuned.json"
"""Part of tests/records/kernels-h200.json; tools/records/record_learn.py writes it."""

_VARIANT = re.compile(r"(\w+)\((.*)\) x (\d+) warps(?:, (\d+) stages)?")


class Tried(TypedDict):
    """A configuration that was timed, as records write it."""

    variant: str
    time_us: float


class Case(TypedDict):
    """A recorded tuning. file: of the kernel; chosen: a variant; times_us: of the work by each tool."""

    name: str
    case: str
    title: str
    operation: str
    file: str
    tuning_s: float
    chosen: str
    tried: list[Tried]
    times_us: dict[str, float]


class Record(TypedDict):
    """What was recorded, and where."""

    device: str
    torch: str
    triton: str
    cases: list[Case]


class Variant(TypedDict):
    """A configuration. settings: all of it, constants, warps and stages, as (name, value)."""

    kernel: str
    constants: list[tuple[str, str]]
    warps: int
    stages: int | None
    settings: list[tuple[str, str]]


class Config(Variant):
    """A configuration with its time. ratio: to the best; share: of the slowest; differs: from the others, in words."""

    variant: str
    time_us: float
    ratio: float
    chosen: bool
    shown: bool
    place: int
    share: float
    differs: str


class CasePart(TypedDict):
    """Context of partials/learn/tuned.html. config: the one that is shown, with its launch and its kernel's source."""

    record: Record
    case: Case
    cases: list[Case]
    configs: list[Config]
    config: Config
    config_launch: str
    source: str


@cache
def load_cases() -> Record:
    """The recorded tunings."""
    record: Record = json.loads(RECORDED.read_text(encoding="utf-8"))
    return record


def case_context(name: str | None, place: int | None) -> CasePart:
    """name: of a case, place: of a configuration; else the first, its best."""
    record = load_cases()
    case = next((c for c in record["cases"] if c["name"] == name), record["cases"][0])
    tried = case["tried"]
    best, slowest = min(t["time_us"] for t in tried), max(t["time_us"] for t in tried)
    chosen = next((i for i, t in enumerate(tried) if t["variant"] == case["chosen"]), 0)
    at = place if place is not None and 0 <= place < len(tried) else chosen
    configs: list[Config] = [
        {**parse_variant(t["variant"]), "variant": t["variant"], "time_us": t["time_us"], "ratio": t["time_us"] / best,
         "chosen": i == chosen, "shown": i == at, "place": i, "share": t["time_us"] / slowest,
         "differs": ""}
        for i, t in enumerate(tried)
    ]  # fmt: skip
    varying = _varying_settings(configs)
    for config in configs:
        config["differs"] = ", ".join(f"{k} {v}" for k, v in config["settings"] if k in varying) or config["variant"]
    source = read_function(case["file"], configs[at]["kernel"])
    return {
        "record": record, "case": case, "cases": record["cases"], "configs": configs, "config": configs[at],
        "config_launch": write_launch(source, configs[at]), "source": source,
    }  # fmt: skip


def parse_variant(variant: str) -> Variant:
    """A configuration of a variant as records write it. ValueError for a text that is none."""
    match = _VARIANT.fullmatch(variant)
    if match is None:
        raise ValueError(f"no variant: {variant!r}")
    kernel, inside, warps, stages = match.groups()
    constants = [(k, v) for k, _, v in (part.partition("=") for part in inside.split(", "))] if inside else []
    settings = [*constants, ("warps", warps), *([("stages", stages)] if stages else [])]
    return {"kernel": kernel, "constants": constants, "warps": int(warps), "stages": int(stages) if stages else None,
            "settings": settings}  # fmt: skip


def _varying_settings(configs: Sequence[Config]) -> set[str]:
    """Names of the settings in which the configurations differ."""
    names = {k for c in configs for k, _ in c["settings"]}
    return {n for n in names if len({dict(c["settings"]).get(n) for c in configs}) > 1}


def write_launch(source: str, config: Variant) -> str:
    """The launch of one configuration as code: its arguments by the kernel's own names."""
    arguments = [a.arg for a in _definition(source).args.args if a.annotation is None]
    constants = [f"{k}={_python(v)}" for k, v in config["constants"]]
    warps = [f"num_warps={config['warps']}"] + ([f"num_stages={config['stages']}"] if config["stages"] else [])
    lines = [textwrap.fill(", ".join(p), 88, initial_indent="    ", subsequent_indent="    ")
             for p in (arguments, constants, warps) if p]  # fmt: skip
    inside = ",\n".join(lines)
    return f"{config['kernel']}[grid](\n{inside},\n)"


def _python(value: str) -> str:
    plain = value in ("True", "False", "None") or re.fullmatch(r"-?\d+(\.\d+)?", value)
    return value if plain else json.dumps(value)


def _definition(source: str) -> ast.FunctionDef:
    return next(n for n in trees.module(source).body if isinstance(n, ast.FunctionDef))


@cache
def read_function(file: str, name: str) -> str:
    """The source of one jit function of a file somewhere in kernels/ops, or of one next to it; decorators and all.

    Raises LookupError where there is no such file, or neither it nor its folder has one of that name.
    """
    named = sorted((ROOT / "kernels" / "ops").rglob(file))[:1]
    for path in (*named, *(p for first in named for p in sorted(first.parent.glob("*.py")) if p != first)):
        text = path.read_text(encoding="utf-8")
        for node in trees.module(text).body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                first_line = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                return "\n".join(text.splitlines()[first_line - 1 : node.end_lineno])
    raise LookupError(f"neither {file} in kernels/ops nor its folder has {name}")
