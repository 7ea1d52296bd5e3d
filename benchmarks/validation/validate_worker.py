"""One GPU's part of benchmarks/validation/validate.py: a line of JSON in, a validation as a line of JSON out, until
stdin ends.

A request has text (a region's file), cache_dir, budget_s, record (a folder of records, or null) and shared (turn and
parts of a `SharedGpu`, or null), and may have without (ends of names of candidates that are left out). The process that
candidates are forked from stays between validations, as a server keeps it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from app.analysis import service  # noqa: E402 (run as a file)
from app.analysis.validate import validate_region  # noqa: E402
from app.archive import record_store  # noqa: E402
from kernels.candidates import candidates  # noqa: E402
from kernels.host import probe_host  # noqa: E402
from kernels.measure.request import SharedGpu  # noqa: E402
from kernels.measure.session import open_fork_server  # noqa: E402
from profiler.region.graph.lowering import lower  # noqa: E402
from profiler.region.language.text import parse  # noqa: E402

Json = dict[str, Any]


def kept(text: str, without: Sequence[str]) -> list[str] | None:
    """The candidates of a region but for those whose names end so; None where none is left out."""
    if not without:
        return None
    offered = candidates(lower(parse(text), {}), probe_host())
    return [c.name for c in offered if not c.name.endswith(tuple(without)) and not c.on_request]


def one(request: Json, fork_server: Any) -> Json:
    """The region's advice, then its validation, recorded where asked."""
    text = Path(request["text"])
    advised = service.advise_region(text.read_text(), device=probe_host().gpu)
    started = time.monotonic()
    body: Json = {
        **validate_region(
            {
                "region": advised["text"] or "",
                "candidates": kept(advised["text"] or "", request.get("without") or ()),
                "advice_before": advised["advice"],
                "budget_s": request["budget_s"],
                "cache_dir": request["cache_dir"],
            },
            fork_server=fork_server,
            shared=SharedGpu(**request["shared"]) if request["shared"] else None,
        )
    }
    body["verdict_s"] = time.monotonic() - started
    if request["record"]:
        record: Any = {"name": advised["name"], **{k: v for k, v in body.items() if k != "verdict_s"}}
        try:
            body["recorded"] = str(record_store.record(record, advised["name"], Path(request["record"])))
        except ValueError as fault:
            body["recorded"] = f"not: {fault}"
    return body


def main() -> None:
    """Until stdin ends. What others print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    fork_server = open_fork_server()
    fork_server.wait_ready()
    for line in sys.stdin:
        if not fork_server.alive:
            fork_server = open_fork_server()
        try:
            body = one(json.loads(line), fork_server)
        except Exception as fault:  # told, and the next region is measured
            body = {"failed": f"{type(fault).__name__}: {str(fault)[:400]}"}
        answers.write(json.dumps(body) + "\n")
        answers.flush()
    fork_server.close()


if __name__ == "__main__":
    main()
