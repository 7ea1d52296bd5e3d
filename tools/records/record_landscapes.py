"""Writes app/archive/landscapes.json: the landscapes recorded on named hardware that a region's page shows.

`python -m tools.records.record_landscapes`, after tests/records/landscapes-h200.json or kernels-h200.json has changed.
From the
first come whole surveys, from the second what each kernel's tuner tried: its own space, at the sizes of the benchmark.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from app.archive.landscapes import SHIPPED
from app.web.learning.tuned import parse_variant
from kernels.hand_written import WRITTEN
from profiler.region.graph.cost import cost
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse

Json = dict[str, Any]

RECORDS = Path(__file__).resolve().parent.parent.parent / "tests" / "records"
CANDIDATES = {
    "channel_rms_norm": "channel_norm",
    "gather_scale_scatter": "scatter_add",
    "index_add": "scatter_add",
    "layer_norm_both": "layer_norm_backward",
}
"""Operations of the benchmark that a candidate of another name runs."""
KEPT = ("tile", "warps", "stages", "own", "status", "reason", "registers", "spill_bytes", "shared_bytes", "time_us")


def survey(landscape: Json) -> Json:
    """A landscape as the API has it, its points by number."""
    keys = [p["key"] for p in landscape["points"]]
    region = parse(landscape["region"])
    return {
        "kind": "survey", "candidate": landscape["candidate"], "kernel": landscape["kernel"],
        "what": ", ".join(f"{i.name}: {i.dtype}{list(i.shape)}" for i in region.inputs),
        "dtype": region.inputs[0].dtype, "bytes": cost(lower(region)).ideal.bytes_moved,
        "points": [{"kernel": p.get("kernel") or landscape["kernel"], **{k: p[k] for k in KEPT if k in p}}
                   for p in landscape["points"]],
        "chosen": keys.index(landscape["chosen"]), "best": keys.index(landscape["best"]),
        "chosen_to_best": landscape["chosen_to_best"], "order": landscape["order"], "reason": landscape["reason"],
        "device": landscape["device"], "torch": landscape["software"]["torch"],
        "triton": landscape["software"]["triton"],
        "date": landscape["date"],
    }  # fmt: skip


def tuner(row: Json, runs: Json) -> Json | None:
    """What the tuner tried at one case of the benchmark; None where it had no choice, or no candidate runs it."""
    name = f"triton:{CANDIDATES.get(row['operation'], row['operation'])}"
    tried = (row.get("chosen") or {}).get("tried_us") or {}
    if len(tried) < 2 or name not in {w.name for w in WRITTEN}:
        return None
    variants = {v: parse_variant(v) for v in tried}
    points = []
    for variant, time_us in tried.items():
        made = variants[variant]
        alike = [dict(v["constants"]) for v in variants.values() if v["kernel"] == made["kernel"]]
        varying = [(n, v) for n, v in made["constants"] if len({a.get(n) for a in alike}) > 1]
        tile = " ".join(n if v == "True" else f"{n}={v}" for n, v in varying if v != "False")
        kept = {"kernel": made["kernel"], "tile": tile or "its only tile", "warps": made["warps"]}
        points.append({**kept, "stages": made["stages"], "own": True, "status": "ok", "reason": "", "time_us": time_us})
    order = list(tried)
    run = runs[row["run"]]
    return {
        "kind": "tuner", "candidate": name, "kernel": row["operation"], "what": row["case"],
        "dtype": row["case"].split()[0], "bytes": row["bytes"], "points": points,
        "chosen": order.index(row["chosen"]["variant"]), "best": order.index(min(tried, key=tried.__getitem__)),
        "chosen_to_best": None, "order": None, "reason": "", "device": run["device"], "torch": run["torch"],
        "triton": run["triton"], "date": row["run"][:10],
    }  # fmt: skip


def main() -> None:
    """Both records into one file, a landscape a line."""
    kernels = json.loads((RECORDS / "kernels-h200.json").read_text(encoding="utf-8"))
    landscapes = [survey(s) for s in json.loads((RECORDS / "landscapes-h200.json").read_text(encoding="utf-8"))]
    landscapes += [t for row in kernels["rows"] if (t := tuner(row, kernels["runs"])) is not None]
    lines = ",\n".join(json.dumps(f, separators=(",", ":")) for f in landscapes)
    SHIPPED.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
