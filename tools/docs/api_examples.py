"""The examples in /openapi.json, as a server of today answers: `python -m tools.docs.api_examples` writes them.

Long lists and texts are cut; nothing else is changed. tests/app/web/api holds each to its schema.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import httpx

from app.archive import record_store
from app.check.formats import BY_SUFFIX
from app.web.api.openapi import EXAMPLES, operation_id
from tools.checks.check_api import REGION, TIGHT, furnish, sample_runs
from tools.server import ROOT, serving

Json = dict[str, Any]

WIDGET = {"share_of_step": 0.15, "uniqueness": 0.8, "irregularity": 0.3, "bound": "memory", "kind": "elementwise"}
CHECK = {
    "regions": [REGION],
    "assertions": {"compile": {"level": "warn", "min_share": 0.05}, "triton": "error"},
}
ITEMS, CHARACTERS = 1, 240


def shorten(value: Any) -> Any:
    """The same with the first items of lists and the first characters of texts."""
    if isinstance(value, dict):
        return {k: shorten(v) for k, v in value.items()}
    if isinstance(value, list):
        return [shorten(v) for v in value[:ITEMS]]
    if isinstance(value, str) and len(value) > CHARACTERS:
        return value[: CHARACTERS - 1] + "…"
    return value


def list_requests(ids: dict[str, list[str]], kernel: str, measured: str) -> list[tuple[str, str, Json]]:
    """(method, path template, what httpx takes in addition to the path, with `ids` of its parameters)."""
    trace, region, check, job = (ids[f"{name}_id"][-1] for name in ("trace", "region", "check", "job"))
    of_trace, of_region, of_check, of_job = ({f"{n}_id": i} for n, i in zip(
        ("trace", "region", "check", "job"), (trace, region, check, job), strict=True
    ))  # fmt: skip
    of_record, v1 = {"validation_id": measured}, "/api/v1"
    form = {"files": {"companion": (None, trace)}}
    return [
        ("GET", f"{v1}/traces", {"params": {"limit": 1}}),
        ("GET", f"{v1}/traces/{{trace_id}}", {"ids": of_trace}),
        ("GET", f"{v1}/traces/{{trace_id}}/ranks", {"ids": of_trace}),
        ("POST", f"{v1}/traces", {"params": {"name": "step"}, "content": TRACE}),
        ("POST", f"{v1}/traces/{{trace_id}}/again", {"ids": of_trace, **form}),
        ("PATCH", f"{v1}/traces/{{trace_id}}", {"ids": of_trace, "json": {"name": "after"}}),
        ("PATCH", f"{v1}/regions/{{region_id}}", {"ids": of_region, "json": {"name": "mlp"}}),
        ("POST", f"{v1}/regions/{{region_id}}/oracle", {"ids": of_region}),
        ("GET", f"{v1}/regions", {"params": {"limit": 1}}),
        ("GET", f"{v1}/regions/{{region_id}}", {"ids": of_region}),
        ("GET", f"{v1}/regions/{{region_id}}/devices", {"ids": of_region}),
        ("GET", f"{v1}/regions/{{region_id}}/measured-devices", {"ids": of_region}),
        ("GET", f"{v1}/regions/{{region_id}}/kinds", {"ids": of_region}),
        ("GET", f"{v1}/regions/{{region_id}}/kernels/{{kernel}}", {"ids": {**of_region, "kernel": kernel}}),
        ("POST", f"{v1}/advice", {"json": {"widget": WIDGET}}),
        ("POST", f"{v1}/links", {"json": {"region": REGION, "share_of_step": 0.2}}),
        ("GET", f"{v1}/links/{{link_id}}", {"ids": {"link_id": ids["link_id"][-1]}}),
        ("POST", f"{v1}/validations", {"json": {"region": REGION, "candidates": ["eager", "compile"]}}),
        ("GET", f"{v1}/validations", {"params": {"limit": 1}}),
        ("GET", f"{v1}/validations/{{validation_id}}", {"ids": of_record}),
        ("GET", f"{v1}/validations/{{validation_id}}/measured-devices", {"ids": of_record}),
        ("GET", f"{v1}/validations/{{validation_id}}/kinds", {"ids": of_record}),
        ("GET", f"{v1}/validations/{{validation_id}}/regression", {"ids": of_record}),
        ("GET", f"{v1}/validations/{{validation_id}}/since", {"ids": of_record}),
        ("GET", f"{v1}/jobs/{{job_id}}", {"ids": of_job}),
        ("POST", f"{v1}/jobs/{{job_id}}/cancel", {"ids": of_job}),
        ("GET", f"{v1}/jobs/{{job_id}}/events", {"ids": of_job}),
        ("POST", f"{v1}/checks", {"json": CHECK}),
        ("GET", f"{v1}/checks", {"params": {"limit": 1}}),
        ("GET", f"{v1}/checks/{{check_id}}", {"ids": of_check}),
        ("POST", f"{v1}/history", {"json": {"entries": sample_runs()[:1]}}),
        ("GET", f"{v1}/history", {"params": {"limit": 1}}),
        ("GET", f"{v1}/history/{{series_id}}", {"ids": {"series_id": ids["series_id"][-1]}}),
        ("GET", f"{v1}/device", {}),
        ("GET", "/healthz", {}),
        ("GET", "/readyz", {}),
        ("GET", "/metrics", {}),
        *(("GET", f"{v1}/checks/{{check_id}}.{{suffix}}", {"ids": {**of_check, "suffix": s}}) for s in BY_SUFFIX),
    ]


TRACE = b'{"traceEvents": []}'
"""Enough to be taken; it is read later."""


def examples(url: str) -> Json:
    """By the operation's id: parameters, request and responses by status and media type."""
    ids = furnish(url)
    by_operation: Json = {}
    measured = str(record_store.records()[0]["id"])
    with httpx.Client(base_url=url, timeout=120) as client:
        region = _kernels(client, ids)
        kernel = region["oracle"][0]["kernels"][0]["name"]
        for method, path, more in list_requests({**ids, "region_id": [region["id"]]}, kernel, measured):
            parameters = more.pop("ids", {})
            response = client.request(method, path.format(**parameters), **more)
            response.raise_for_status()
            kind = response.headers["content-type"].partition(";")[0]
            body = shorten(response.json()) if kind == "application/json" else response.text[:600]
            entry = by_operation.setdefault(
                operation_id(method, path), {"parameters": {}, "request": {}, "responses": {}}
            )
            entry["parameters"] |= {"suffix": "md", **parameters} if "suffix" in parameters else parameters
            entry["parameters"] |= more.get("params", {})
            if "json" in more:
                entry["request"]["application/json"] = more["json"]
            entry["responses"].setdefault(str(response.status_code), {})[kind] = body
    return {**by_operation, **_of_landscapes(by_operation["post-validations"]["responses"]["202"]["application/json"])}


def _kernels(client: httpx.Client, ids: dict[str, list[str]]) -> Json:
    """A region of the trace that the oracle writes a kernel for."""
    for region_id in ids["region_id"]:
        answer = client.post(f"/api/v1/regions/{region_id}/oracle")
        if answer.status_code == 200 and any(p["kernels"] for p in answer.json()["oracle"][:1]):
            body: Json = answer.json()
            return body
    raise RuntimeError("the oracle writes a kernel for no region of the example")


def _of_landscapes(job: Json) -> Json:
    """Landscapes need a GPU: the job is one of validation under another name, the answer a recorded one."""
    recorded = json.loads((ROOT / "tests" / "records" / "landscapes-h200.json").read_text())[0]
    recorded["points"] = [_point(point, recorded["kernel"]) for point in recorded["points"]]
    own = {"id": job["id"], "validation_id": ids_of(1), "state": "done", "progress": None, "error": None}
    body = {**own, **{k: v for k, v in recorded.items() if k != "region"}, "created_at": job["created_at"]}
    request = {"candidate": recorded["candidate"], "shape": 0, "budget_s": 60.0}
    of = {"validation_id": own["validation_id"]}
    return {
        "post-validations-validation_id-landscape": {
            "parameters": of,
            "request": {"application/json": request},
            "responses": {"202": {"application/json": {**job, "kind": "landscape", "result": None}}},
        },
        "get-validations-validation_id-landscape": {
            "parameters": of,
            "request": {},
            "responses": {"200": {"application/json": shorten(body)}},
        },
    }


def _point(point: Json, kernel: str) -> Json:
    """A recorded point as the API has it: the recording keeps medians alone."""
    time_us = point["time_us"]
    span = None if time_us is None else {"median": time_us, "low": time_us, "high": time_us}
    return {"kernel": kernel, "occupancy": None, "ratio_to_best": None, **point, "time_us": span}


def ids_of(number: int) -> str:
    """An id that looks like one."""
    return f"{number:026}"


def main() -> int:
    """Write the file."""
    settings = {**TIGHT, "JOB_TIMEOUT_S": "60"}
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "data", settings) as served:
        by_operation = examples(served.url)
    EXAMPLES.write_text(json.dumps(by_operation, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(by_operation)} operations, {EXAMPLES.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
