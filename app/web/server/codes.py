"""The `code` of problems that a request's schema cannot keep away, in groups: routes declare them, /openapi.json names
them.

A name that ends in "-" stands for all that begin so: `region-` for what can be wrong with a region's text.
"""

from __future__ import annotations

from collections.abc import Mapping

Codes = Mapping[int, tuple[str, ...]]
"""Status -> codes."""

ANY: Codes = {
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

QUEUE: Codes = {429: ("queue-full",)}
ADVICE: Codes = {
    422: ("advice-limit", "advice-crashed"),
    429: ("advice-queue-full", "advice-busy"),
    503: ("advice-timeout", "advice-killed", "host-unknown"),
}
UPLOAD: Codes = {
    400: ("bad-multipart", "too-many-parts", "upload-aborted"),
    408: ("upload-stalled",),
    413: ("upload-too-large", "trace-too-large"),
    422: ("upload-not-a-file", "too-many-files", "trace-", "execution-trace-"),
    507: ("disk-full", "quota-full"),
    **QUEUE,
}
TEXT: Codes = {413: ("region-too-large",), 422: ("region-", "device-unknown", "too-many-shapes")}
STORED: Codes = {422: ("region-", "device-unknown")}
COMPILER: Codes = {422: ("no-triton-target", "kernel-"), 429: ("compiler-busy",), 503: ("oracle-unavailable",)}


def join_codes(*groups: Codes) -> Codes:
    """The codes of several groups, each once, in their order."""
    together: dict[int, tuple[str, ...]] = {}
    for group in groups:
        for status, codes in group.items():
            together[status] = tuple(dict.fromkeys((*together.get(status, ()), *codes)))
    return together
