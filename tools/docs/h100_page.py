"""docs/measured-h100.md from the records of the H100: `python -m tools.docs.h100_page` writes it, a test holds it to
them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tools.docs.error_bounds import bounds
from tools.docs.generated_programs import new_operations
from tools.docs.measured_page import RECORDS, ROOT
from tools.docs.tables import table

Json = dict[str, Any]

PAGE = ROOT / "docs" / "measured-h100.md"
KNOWN = {
    "arg 20": ": the least of a negated i32 row. The generator reduces integers in 64 bits since, which were right in "
    "the same place; not run again."
}
"""Of programs that were wrong, what is known since."""
WORDS = {3: "delete it", 4: "wrong", 5: "it cheats", 6: "it crashed", 7: "it hung"}
OPTIONS = {
    "compile-model": "torch.compile(model)", "cuda-graphs": 'torch.compile(model, mode="reduce-overhead")',
    "tf32": "TF32", "bf16": "bf16 autocast", "channels-last": "channels-last",
}  # fmt: skip
HEAD = """# Measured on an H100

Written by `python -m tools.docs.h100_page` from `tests/records`; nothing here is typed in by hand. One NVIDIA H100 of
80 GB, torch 2.11.0+cu130, triton 3.6.0, 2026-11-25. What failed stands here with what held.
"""


def load(name: str) -> Any:
    """A record by its name."""
    return json.loads((RECORDS / f"{name}-h100.json").read_text(encoding="utf-8"))


def page() -> str:
    """The whole document."""
    parts = [
        HEAD, *bounds(load("bounds")), *own_kernels(load("own-kernel")), *new_operations(load("new-operations"), KNOWN),
        *training(load("training")), *applied(load("applied")),
    ]  # fmt: skip
    return "\n".join(parts).rstrip() + "\n"


def own_kernels(record: Json) -> Iterator[str]:
    """`tritonworthy validate --kernel` on eight functions."""
    yield "## Eight kernels of a user's\n"
    yield "`tritonworthy validate rms_norm.txt --kernel my_kernels.py:NAME`: an RMSNorm of 8,192 rows of 4,096, bf16.\n"
    yield from table(
        ["function", "exit status", "verdict"],
        [[r["function"], f"{r['exit_status']}: {WORDS[r['exit_status']]}", r["verdict"].split("https")[0].strip()]
         for r in record["runs"]],
    )  # fmt: skip


def training(record: Json) -> Iterator[str]:
    """Training regions by candidate."""
    yield "## Training regions\n"
    yield (
        "Forward and backward in one, µs of device time. What came in behind the loss was random here, so that kernels "
        "which make the gradient in the forward had to scale it once more; since then it is 1 while a region is timed, "
        "as in a step.\n"
    )
    for region in record["regions"]:
        times = sorted(region["times_us"].items(), key=lambda item: item[1])
        line = ", ".join(f"`{name}` {time:,.0f}" for name, time in times)
        refused = "".join(f"; refused: `{n}` ({m})" for n, m in region.get("refused", {}).items())
        yield f"- {region['name']}: {line}{refused}"
    yield ""


def predicted(model: Json, what: str) -> Json | None:
    """The predicted step of an option, or of all that goes together; None where there is none."""
    own = {a["id"]: a["step_time_us"] for a in model["actions"]}
    whole = model["gain"]["all"]
    step: Json | None = own.get(what) or (whole["step_time_us"] if whole and "+" in what else None)
    return step


def applied(record: Json) -> Iterator[str]:
    """Whole-step options, followed."""
    yield "## Whole steps: the advice followed\n"
    yield (
        "`python benchmarks/traces/applied.py`: each model traced eager, advised, changed and timed again without a "
        "profiler, medians of 20. Times as fast: predicted over the recorded step, found over the eager one. Other "
        "models were compiled on the same host while the steps were recorded, so that where the host sets the pace the "
        "recorded step is up to seven times the one without a profiler; predictions of such steps miss, and those of "
        "the diffusion transformer, where the GPU sets the pace, do not.\n"
    )
    rows = []
    for model in record["models"]:
        eager = model["found"]["eager"]["wall_us"]
        for what, told in model["found"].items():
            step = predicted(model, what)
            if what == "eager" or "wall_us" not in told or step is None:
                continue
            mid = model["profiled_us"] / step["mid"]
            rows.append([
                model["model"], f"{model['profiled_us'] / 1e3:.1f}", f"{eager / 1e3:.1f}",
                ", ".join(OPTIONS[w] for w in what.split("+")), f"{told['wall_us'] / 1e3:.2f}", f"{mid:.2f}",
                f"{eager / told['wall_us']:.2f}",
            ])  # fmt: skip
    head = ["model", "recorded, ms", "eager, ms", "changed", "then, ms", "predicted", "found"]
    yield from table(head, rows)


def main() -> None:
    """Write the document."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
