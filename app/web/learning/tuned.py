"""Autotuning, as recorded on a GPU: the configurations that were tried, each with its time and its code."""

from __future__ import annotations

import ast
import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from profiler.region.language import trees

Json = Mapping[str, Any]

ROOT = Path(__file__).resolve().parent.parent.parent.parent
RECORDED = ROOT / "app" / "examples" / "ladder" / "tuned.json"
"""Part of tests/records/kernels-h200.json; tools/records/record_learn.py writes it."""

_VARIANT = re.compile(r"(\w+)\((.*)\) x (\d+) warps(?:, (\d+) stages)?")


@cache
def load_cases() -> dict[str, Any]:
    """device, torch, triton, and cases: name, title, operation, file, what, chosen, tried [{variant, time_us}]."""
    found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def case_context(name: str | None, place: int | None) -> dict[str, Any]:
    """Context of partials/learn/tuned.html. name: of a case, place: of a configuration; else the first, its best."""
    record = load_cases()
    case = next((c for c in record["cases"] if c["name"] == name), record["cases"][0])
    tried = case["tried"]
    best = min(t["time_us"] for t in tried)
    chosen = next((i for i, t in enumerate(tried) if t["variant"] == case["chosen"]), 0)
    at = place if place is not None and 0 <= place < len(tried) else chosen
    configs = [
        {**parse_variant(t["variant"]), "variant": t["variant"], "time_us": t["time_us"], "ratio": t["time_us"] / best,
         "chosen": i == chosen, "shown": i == at, "place": i, "share": t["time_us"] / max(x["time_us"] for x in tried)}
        for i, t in enumerate(tried)
    ]  # fmt: skip
    varying = _varying(configs)
    for config in configs:
        config["differs"] = ", ".join(f"{k} {v}" for k, v in config["settings"] if k in varying) or config["variant"]
    source = function(case["file"], configs[at]["kernel"])
    return {
        "record": record, "case": case, "cases": record["cases"], "configs": configs, "config": configs[at],
        "config_launch": launch(source, configs[at]), "source": source,
    }  # fmt: skip


def parse_variant(variant: str) -> dict[str, Any]:
    """kernel, constants, warps, stages of a variant as records write it; settings: all of it in pairs."""
    found = _VARIANT.fullmatch(variant)
    if found is None:
        raise ValueError(f"no variant: {variant!r}")
    kernel, inside, warps, stages = found.groups()
    constants = [(k, v) for k, _, v in (part.partition("=") for part in inside.split(", "))] if inside else []
    settings = [*constants, ("warps", warps), *([("stages", stages)] if stages else [])]
    return {"kernel": kernel, "constants": constants, "warps": int(warps), "stages": int(stages) if stages else None,
            "settings": settings}  # fmt: skip


def _varying(configs: Sequence[Json]) -> set[str]:
    """Names of the settings in which the configurations differ."""
    names = {k for c in configs for k, _ in c["settings"]}
    return {n for n in names if len({dict(c["settings"]).get(n) for c in configs}) > 1}


def launch(source: str, config: Json) -> str:
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
def function(file: str, name: str) -> str:
    """The source of one jit function of a file somewhere in kernels/ops, decorators and all.

    Raises LookupError where there is no such file, or the file has none of that name.
    """
    paths = sorted((ROOT / "kernels" / "ops").rglob(file))
    text = paths[0].read_text(encoding="utf-8") if paths else ""
    for node in trees.module(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    raise LookupError(f"no {file} in kernels/ops has {name}")
