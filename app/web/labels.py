"""The words that pages use for the API's fixed values. One table each; templates look them up. Texts as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict

from app.objects.trace import PairedBy, TraceSummary

TOOL_LABELS = {
    "skip": "Leave it",
    "library": "Library",
    "compile": "torch.compile",
    "triton": "Triton",
    "cuda": "CUDA",
    "eager": "Eager",
    "rest": "Not a region",
    "none": "Without advice",
}

OUTCOME_LABELS = {
    "confirmed": ("Confirmed", "The measurement agrees with the advice."),
    "overturned": ("Overturned", "The measurement disagrees with the prediction, and the measurement wins."),
    "tie": ("Tie", "The intervals overlap: no candidate is certainly faster, so the one with the least effort stands."),
    "unmeasured": ("Unmeasured", "Nothing was timed. Which candidates were checked stands with each of them."),
}

AGREEMENT = {"confirmed": "agrees", "overturned": "disagrees", "tie": "a tie", "unmeasured": "not timed"}
"""Outcome -> how a recorded measurement stands to the advice it was made for, after "Measured on ...:"."""

PAIRED_BY: Mapping[PairedBy, str] = {
    "text": "the same text",
    "module": "name and module",
    "sizes": "sizes of the matrix product",
    "name": "name",
    "operations": "its operations",
    "weak operations": "common operations",
    "alone": "–",
}
"""How /compare knew two parts to be the same work."""

STATUS_LABELS = {
    "ok": "correct and timed",
    "correct": "correct, not timed",
    "mismatch": "wrong result, never timed",
    "unsupported": "cannot run this region",
    "not_installed": "not installed here",
    "error": "raised an error",
    "fault": "its process died",
    "timeout": "ran out of time",
    "out_of_memory": "out of memory",
    "bad_output": "broke the protocol",
    "impossible": "faster than the hardware allows: rejected",
    "cancelled": "cancelled",
    "not_run": "not run",
}

WIDGET_SLIDERS = (
    ("share_of_step", "How much of the step does it take?", "a sliver", "all of it"),
    ("uniqueness", "How unusual is the operation?", "textbook", "nobody has it"),
    ("irregularity", "How irregular are its shapes?", "one fixed shape", "ragged, many"),
)

WIDGET_BOUNDS = (("", "not known"), ("memory", "memory-bound"), ("compute", "compute-bound"))

WIDGET_KINDS = (
    ("", "not known"),
    ("gemm", "matrix product (GEMM)"),
    ("attention", "attention"),
    ("elementwise", "elementwise chain"),
    ("quantised_gemm", "quantised GEMM"),
    ("normalisation", "normalisation"),
    ("reduction", "reduction"),
    ("custom", "something custom"),
)

WIDGET_PRESETS = (
    # the sources' table of situations: (what it is called, the answers)
    (
        "Vanilla GEMM",
        {"share_of_step": 0.4, "uniqueness": 0.05, "irregularity": 0.1, "bound": "compute", "kind": "gemm"},
    ),
    ("Attention", {"share_of_step": 0.3, "uniqueness": 0.2, "irregularity": 0.5, "kind": "attention"}),
    (
        "Elementwise chain",
        {"share_of_step": 0.15, "uniqueness": 0.5, "irregularity": 0.3, "bound": "memory", "kind": "elementwise"},
    ),
    (
        "Quantised GEMM",
        {"share_of_step": 0.35, "uniqueness": 0.25, "irregularity": 0.3, "bound": "memory", "kind": "quantised_gemm"},
    ),
    ("Under 1 % of the step", {"share_of_step": 0.005, "uniqueness": 0.9, "irregularity": 0.6}),
    (
        "Nobody has it, many shapes",
        {"share_of_step": 0.2, "uniqueness": 0.9, "irregularity": 0.7, "bound": "memory", "kind": "custom"},
    ),
)

RECORD_A_TRACE = """\
from torch.profiler import ProfilerActivity, profile, schedule

with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=schedule(wait=2, warmup=2, active=3, repeat=1),
    on_trace_ready=lambda p: p.export_chrome_trace("trace.json.gz"),
    record_shapes=True,
    with_stack=True,
) as profiler:
    for _ in range(7):
        train_step()
        profiler.step()

import json, urllib.request

with open("trace.json.gz", "rb") as file:
    body = file.read()
request = urllib.request.Request("{base}/api/v1/traces?name=my-step", body, {headers})
print("{base}/traces/" + json.load(urllib.request.urlopen(request))["id"])"""
"""What to run for a trace of a few steady steps with shapes and stacks; it sends it to the server at {base}."""


def recording_script(base: str, token_needed: bool) -> str:
    """RECORD_A_TRACE for the server at base, such as http://127.0.0.1:8000."""
    kind = '{"Content-Type": "application/octet-stream"}'
    headers = kind[:-1] + ', "Authorization": "Bearer TOKEN"}' if token_needed else kind
    return RECORD_A_TRACE.replace("{base}", base).replace("{headers}", headers)


def format_time(iso: str) -> str:
    """2026-11-21T06:34:12.123Z as 2026-11-21 06:34 UTC."""
    return f"{iso[:10]} {iso[11:16]} UTC" if len(iso) >= 16 else iso


class Choice(TypedDict):
    """A trace or validation as an option of a form."""

    id: str
    label: str


def trace_choices(traces: Iterable[TraceSummary]) -> list[Choice]:
    """Traces that are read, as options."""
    return [
        {"id": t["id"], "label": f"{t['name']} · {t['device'] or 'no GPU named'} · {format_time(t['created_at'])}"}
        for t in traces
        if t["status"] == "ready"
    ]


LANGUAGE: tuple[tuple[str, str], ...] = (
    (
        "x: bf16[8192, 4096]",
        "an input: f64 f32 bf16 f16 f8e4m3 f8e5m2 f8e8m0 f4e2m1x2 i64 i32 i16 i8 u8 bool; `f32[()]` is a scalar tensor",
    ),
    ("N: sizes[37, 911, 2048]", "a size that varies; then `x: bf16[N, 4096]`. Several symbols vary together"),
    (
        "x: bf16[8192, 4096].requires_grad",
        "forward and backward. Also `.channels_last`, `.strides(1, 8192)`, `.below(128256)`, `.mask(0.9)`",
    ),
    (
        "z = gelu(x @ w + b)",
        "expressions over torch, torch.nn.functional and tensor methods; a bare name is F's, else torch's",
    ),
    ("for i in range(4): ...", "loops over constants, unrolled; slicing with `...` and None; augmented assignment"),
    ("return y", "one output or several, `return a, b`"),
)
"""What the region language holds, as /learn lists it."""
