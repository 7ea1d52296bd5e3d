"""The words that pages use for the API's fixed values. One table each; templates look them up."""

from __future__ import annotations

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
    "unmeasured": ("Unmeasured", "Nothing was timed. Correctness was checked as far as this host allows."),
}

AGREEMENT = {"confirmed": "agrees", "overturned": "disagrees", "tie": "a tie", "unmeasured": "not timed"}
"""Outcome -> how a recorded measurement stands to the advice it was made for, after "Measured on ...:"."""

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


def recording(base: str, token_needed: bool) -> str:
    """RECORD_A_TRACE for the server at base, such as http://127.0.0.1:8000."""
    kind = '{"Content-Type": "application/octet-stream"}'
    headers = kind[:-1] + ', "Authorization": "Bearer TOKEN"}' if token_needed else kind
    return RECORD_A_TRACE.replace("{base}", base).replace("{headers}", headers)
