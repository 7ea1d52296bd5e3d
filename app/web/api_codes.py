"""The `code` of the problems of each operation that its request's schema cannot keep away: /openapi.json names them.

A name that ends in "-" stands for all that begin so: `region-` for what can be wrong with a region's text.
"""

from __future__ import annotations

from collections.abc import Mapping

ANY: Mapping[int, tuple[str, ...]] = {
    400: ("bad-host", "bad-request"),
    401: ("token-missing",),
    403: ("cross-origin",),
    404: ("not-found",),
    408: ("request-stalled",),
    413: ("body-too-large",),
    415: ("unsupported-media-type",),
    422: ("invalid-request", "invalid-json"),
    429: ("too-many-requests",),
    500: ("internal",),
    503: ("too-many-connections", "storage-failed", "storage-corrupt", "stopping"),
}
"""Wherever the status is."""

QUEUE = {429: ("queue-full",)}
ADVICE = {
    422: ("advice-limit", "advice-crashed"),
    429: ("advice-queue-full", "advice-busy"),
    503: ("advice-timeout", "advice-killed", "host-unknown"),
}
UPLOAD = {
    400: ("bad-multipart", "too-many-parts", "upload-aborted"),
    408: ("upload-stalled",),
    413: ("upload-too-large", "trace-too-large"),
    422: ("upload-not-a-file", "too-many-files", "trace-", "execution-trace-"),
    507: ("disk-full", "quota-full"),
    **QUEUE,
}
TEXT = {413: ("region-too-large",), 422: ("region-", "device-unknown", "too-many-shapes")}
STORED = {422: ("region-", "device-unknown")}
COMPILER = {422: ("no-triton-target", "kernel-"), 429: ("compiler-busy",), 503: ("oracle-unavailable",)}


def _joined(*parts: Mapping[int, tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
    found: dict[int, tuple[str, ...]] = {}
    for part in parts:
        for status, codes in part.items():
            found[status] = tuple(dict.fromkeys((*found.get(status, ()), *codes)))
    return found


OF: Mapping[str, Mapping[int, tuple[str, ...]]] = {
    "post-traces": UPLOAD,
    "post-traces-trace_id-again": _joined(UPLOAD, {422: ("trace-not-ready",)}),
    "get-regions-region_id": _joined(STORED, ADVICE),
    "get-regions-region_id-devices": _joined(STORED, ADVICE),
    "get-regions-region_id-kinds": {422: ("region-without-text",)},
    "get-validations-validation_id-since": {409: ("validation-not-done",)},
    "post-regions-region_id-oracle": _joined(STORED, ADVICE, COMPILER, {409: ("trace-not-ready",)}),
    "get-regions-region_id-kernels-kernel": _joined(STORED, ADVICE, COMPILER),
    "post-advice": _joined(TEXT, ADVICE),
    "post-validations": _joined(
        TEXT, ADVICE, QUEUE, {422: ("candidate-unknown", "one-device", "device-not-here", "region-without-text")}
    ),
    "get-validations-validation_id-kit.zip": _joined(STORED, ADVICE, {422: ("candidate-unknown",)}),
    "post-validations-validation_id-landscape": _joined(
        STORED, ADVICE, QUEUE, {409: ("needs-gpu", "not-ready"), 422: ("candidate-unknown",)}
    ),
    "post-checks": _joined(UPLOAD, TEXT, ADVICE, {409: ("trace-not-ready",), 422: ("config-invalid",)}),
    "get-checks-check_id-suffix": {409: ("check-not-done",)},
    "get-readyz": {503: ("not-ready",)},
    "get-device": {503: ("host-unknown",)},
}
"""By the operation's id."""


def codes(operation_id: str, status: int) -> tuple[str, ...]:
    """The codes that an operation's problem of that status may have."""
    return (*OF.get(operation_id, {}).get(status, ()), *ANY.get(status, ()))
